"""Find the epsilon per round at which the published programs report a total, and print it as entries of a study.

    python bench/scripts/equal_totals.py > entries.toml
    python bench/scripts/equal_totals.py child > entries-of-child.toml

SVT-PC, Priv-PC and EM-PC are given an epsilon per round or node, and report a total afterwards. A fair comparison with
CURATE, which is given a total, needs the epsilon at which the mean total is the budget. EM-PC is left out on child, as
in the publication, whose run asked more than 7000 questions. Two settings of each:

fair
    Those of CURATE's section IV: T = 0.05, q = 1, δ′ = 1e-12, and totals as its program adds them up,
    kε² + ε√(2k ln(1/δ′)) over k rounds; Priv-PC's two halves of a round are k rounds each.
own
    The constants of each program, and the total that it reports itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import method_named
from dagveil.papers.publication import PublishedAccess, advanced_composition, read_settings, require_reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent

NETWORKS = ("cancer", "earthquake", "survey", "asia", "sachs", "child")
BUDGETS = (0.1, 1.0, 10.0)
STEPS = 7
RUNS = {"svt-pc": 12, "priv-pc": 12, "em-pc": 2}
FAILURE = 1e-12
SETTING = {"svt-pc": "round_epsilon", "priv-pc": "round_epsilon", "em-pc": "node_epsilon"}
FAIR = {
    "svt-pc": {"threshold": 0.05, "delta": FAILURE},
    "priv-pc": {"threshold": 0.05, "delta": FAILURE, "rate": 1.0},
    "em-pc": {"level": 0.05, "delta": FAILURE},
}
OWN: dict[str, dict[str, float]] = {"svt-pc": {}, "priv-pc": {}, "em-pc": {}}


def count_rounds(method: str, epsilon: float, reported: float) -> int:
    """Return how many rounds a report is made of."""
    parts = 2.0 if method == "priv-pc" else 1.0
    totals = [parts * advanced_composition(epsilon / parts, k, FAILURE / parts) for k in range(20_000)]
    return int(np.argmin(np.abs(np.array(totals) - reported)))


def fair_total(method: str, epsilon: float, reported: float) -> float:
    """Return the total as CURATE's program adds it up."""
    k = count_rounds(method, epsilon, reported)
    squares = 2.0 * k * (epsilon / 2.0) ** 2 if method == "priv-pc" else k * epsilon**2
    return squares + math.sqrt(2.0 * squares * math.log(1.0 / FAILURE))


def search(total_at: Callable[[float], float], budget: float) -> float:
    """Return the epsilon at which the mean total is the budget, by halving in logarithms."""
    low, high = budget / 1000.0, budget
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if total_at(middle) < budget else (low, middle)
    return math.sqrt(low * high)


def tune(access: PublishedAccess, method: str, kind: str, settings: dict[str, float]) -> list[float]:
    """Return the epsilon of each budget, to three digits."""
    chosen = method_named(method)
    reading = require_reading(chosen, Calibration.PROGRAM)

    def mean_total(epsilon: float) -> float:
        read = read_settings(chosen, Calibration.PROGRAM, {**settings, SETTING[method]: epsilon})
        runs = [reading.publish(access, Budget.of(1, 0), Knowledge.none(), read, silent) for _ in range(RUNS[method])]
        totals = [asked.reported[0] for asked in runs if asked.reported is not None]
        return float(np.mean([fair_total(method, epsilon, total) if kind == "fair" else total for total in totals]))

    return [float(f"{search(mean_total, budget):.3g}") for budget in BUDGETS]


def main() -> None:
    """Print an entry for each method, kind of settings and network."""
    for network in sys.argv[1:] or NETWORKS:
        model = load_network(network)
        codes = sample_codes(model, 100_000, np.random.default_rng(1))
        access = PublishedAccess(
            MemoryTable.from_codes(codes, network_schema(model, 100_000)), np.random.default_rng(2)
        )
        for kind, choices in (("fair", FAIR), ("own", OWN)):
            for method, settings in choices.items():
                if (network, method) == ("child", "em-pc"):
                    continue
                found = tune(access, method, kind, settings)
                words = ", ".join(f"{name} = {value}" for name, value in settings.items())
                label = f"{method}, settings of CURATE" if kind == "fair" else f"{method}, own settings"
                print(f'\n[[methods]]\nlabel = "{label}"\nmethod = "{method}"\ncalibration = "program"')
                print(f"settings = {{ {words} }}\nsettings_at = {{ {SETTING[method]} = {found} }}")
                print(f'data = ["{network}"]', flush=True)


if __name__ == "__main__":
    main()

"""Effects on real rows whose truth is known: a trial with controls from a survey, and the challenge of ACIC 2016."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyarrow import csv

from dagveil.data.column import Boolean, Numeric
from dagveil.data.schema import Schema
from dagveil.effects.answer import COVERED, pick_main
from dagveil.effects.estimate import EffectEstimator
from dagveil.effects.parents import list_readings
from dagveil.errors import MissingExtraError
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.effects import effect
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.effects import CLIP, COMMON, Case, exact_answer, rival_widths, run_linear, run_tables
from dagveil_bench.local_data import folder_of
from dagveil_bench.peers import import_peer
from dagveil_bench.tables import write_table

Floats = NDArray[np.float64]

CHALLENGE: Final = "acic"
TRIAL: Final = "nsw"
REAL: Final = (TRIAL, CHALLENGE)
"""Tables of packages."""

TABLES: Final = 10
"""Tables of the challenge that the package ships, each of a law of its own."""
EPSILONS: Final = (1.0, 3.0, 10.0)
CAUSE, OUTCOME = "treatment", "outcome"


def find_challenge() -> Path:
    """Return the folder of the challenge's tables, in a package that need not be imported."""
    try:
        return folder_of("causallib") / "datasets" / "data" / "acic_challenge_2016"
    except MissingExtraError:
        raise MissingExtraError(
            "the tables of ACIC 2016 are in the package 'causallib', which is not installed; install it with: "
            f"pip install --no-deps causallib, or leave them out with --real {TRIAL}"
        ) from None


def read_challenge(number: int) -> tuple[dict[str, Floats], float]:
    """Return a table of the challenge, without covariates that are no numbers, and the mean effect on its rows."""
    folder = find_challenge()
    covariates = csv.read_csv(folder / "x.csv")
    drawn = {name: column.to_numpy() for name, column in _columns(csv.read_csv(folder / f"zymu_{number}.csv"))}
    table = {
        name: column.to_numpy().astype(np.float64)
        for name, column in _columns(covariates)
        if str(column.type) not in ("string", "large_string")
    }
    treated = drawn["z"] == 1
    table[CAUSE] = treated.astype(np.float64)
    table[OUTCOME] = np.where(treated, drawn["y1"], drawn["y0"])
    return table, float((drawn["mu1"] - drawn["mu0"]).mean())


def _columns(table: Any) -> Any:
    return zip(table.column_names, table.columns, strict=True)


def declare_challenge(table: Mapping[str, Floats]) -> Schema:
    """Return a schema whose centres and spreads are those of the rows to two digits, as a codebook has them."""

    def to_two_digits(value: float) -> float:
        return float(f"{value:.1e}")

    columns = {
        name: Numeric(
            bounds=(math.floor(values.min()), math.ceil(values.max())),
            center=to_two_digits(values.mean()),
            spread=to_two_digits(values.std()),
        )
        for name, values in table.items()
    }
    return Schema(dataset="acic-2016", columns=columns, reviewed=True, public=True, nominal_rows=len(table[CAUSE]))


def solve_exactly(table: Mapping[str, Floats], adjust: Sequence[str]) -> tuple[float, float]:
    """Return the interval of least squares on the exact rows."""
    design = np.column_stack([np.ones(len(table[CAUSE])), table[CAUSE], *(table[name] for name in adjust)])
    slopes, _, rank, _ = np.linalg.lstsq(design, table[OUTCOME], rcond=None)
    residual = table[OUTCOME] - design @ slopes
    variance = float(residual @ residual) / (len(design) - rank) * float(np.linalg.pinv(design.T @ design)[1, 1])
    half = COVERED * math.sqrt(variance)
    return float(slopes[1]) - half, float(slopes[1]) + half


def run_challenge(runs: int, progress: Progress, numbers: Sequence[int] = range(1, TABLES + 1)) -> list[Any]:
    """Ask each table of the challenge for its mean effect: given that covariates come first, and by the graph found."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    asked: dict[tuple[str, str], int] = defaultdict(int)
    total = len(numbers) * len(EPSILONS) * runs
    for place, number in enumerate(numbers):
        table, truth = read_challenge(number)
        schema = declare_challenge(table)
        before = tuple(name for name in table if name not in (CAUSE, OUTCOME))
        knowledge = Knowledge(tiers=(before, (CAUSE,), (OUTCOME,)))
        arcs = {(name, after) for name in before for after in (CAUSE, OUTCOME)} | {(CAUSE, OUTCOME)}
        known = Dag(tuple(table), frozenset(arcs))
        for way, adjust in (("nothing", ()), ("all covariates", before)):
            found[way, "exact rows"].append((*solve_exactly(table, adjust), truth))
            asked[way, "exact rows"] += 1
        for at, (epsilon, seed) in enumerate(product(EPSILONS, range(runs)), start=1):
            evidence = measure_source(table, schema, epsilon, noise=NoiseKind.SEEDED, seed=seed, ledger=None)
            result = search_evidence(evidence, SearchSettings(redraws=0), knowledge=knowledge)
            for way, graph in (("all covariates", known), ("as the graph says", None)):
                answer = effect(result, CAUSE, OUTCOME, evidence=evidence, graph=graph)
                key = way, f"ε = {epsilon:g}"
                asked[key] += 1
                if answer.union is not None:
                    found[key].append((answer.union.low, answer.union.high, truth))
            progress("tables of the challenge", place * len(EPSILONS) * runs + at, total)
    order = sorted(found, key=lambda key: (key[0] == "as the graph says", key[0] != "nothing"))
    return [_summarise(key, found[key], asked[key]) for key in order]


def _summarise(key: tuple[str, str], answers: Sequence[tuple[float, float, float]], asked: int) -> tuple[str, ...]:
    low, high, truth = np.array(answers).T
    error = (low + high) / 2.0 - truth
    told = f"{len(answers)} of {asked}", f"{error.mean():+.2f}", f"{np.sqrt((error**2).mean()):.2f}"
    return (*key, *told, f"{((low <= truth) & (truth <= high)).mean():.2f}", f"{(high - low).mean():.2f}")


def run_trial(epsilons: Sequence[float], runs: int) -> list[tuple[str, ...]]:
    """Ask what the training of NSW did to later work, with controls from the CPS, beside exact answers."""
    causaldata = import_peer("causaldata", "tables")
    nsw = causaldata.nsw_mixtape.load_pandas().data
    cps = causaldata.cps_mixtape.load_pandas().data
    trained = nsw[nsw.treat == 1]
    experiment = float((trained.re78 > 0).mean() - (nsw[nsw.treat == 0].re78 > 0).mean())
    columns: dict[str, Any] = {
        "treat": Boolean("false"),
        "worked75": Boolean("false"),
        "black": Boolean("false"),
        "married": Boolean("false"),
        "age": Numeric(bounds=(16, 60), bins=(25, 35)),
        "worked78": Boolean("false"),
    }
    every = np.concatenate([trained.index, cps.index])
    data = {
        name: np.concatenate([np.asarray(trained[own]), np.asarray(cps[own])])
        for name, own in (
            ("treat", "treat"), ("worked75", "re75"), ("black", "black"), ("married", "marr"), ("age", "age"),
            ("worked78", "re78"),
        )
    }  # fmt: skip
    rows = {name: values > 0 if name != "age" else values.astype(float) for name, values in data.items()}
    schema = Schema(dataset="nsw-cps", columns=columns, reviewed=True, public=True, nominal_rows=len(every))
    before = ("worked75", "black", "married", "age")
    arcs = {(name, outcome) for name in before for outcome in ("treat", "worked78")} | {("treat", "worked78")}
    arcs |= {(a, b) for i, b in enumerate(before) for a in before[:i]}
    graph = Cpdag(tuple(columns), frozenset(arcs), frozenset())
    (reading,) = list_readings(graph, "treat", "worked78")
    codes = {
        name: np.digitize(values, (25, 35)) if name == "age" else values.astype(int) for name, values in rows.items()
    }
    exact = exact_answer(schema, codes, "treat", "worked78", tuple(sorted(before)))
    raw = exact_answer(schema, codes, "treat", "worked78", ())
    found: list[tuple[str, ...]] = [
        ("the experiment's own controls, exact", f"{100 * experiment:+.1f}", ""),
        ("CPS controls, not adjusted, exact", f"{100 * (raw[1, 1] - raw[0, 1]):+.1f}", ""),
        ("CPS controls, adjusted, exact", f"{100 * (exact[1, 1] - exact[0, 1]):+.1f}", ""),
    ]
    for epsilon in epsilons:
        values, widths = [], []
        for seed in range(runs):
            evidence = measure_source(rows, schema, epsilon, noise=NoiseKind.SEEDED, seed=seed)
            estimator = EffectEstimator(schema, evidence.releases)
            answer = estimator.answer(reading, "treat", "worked78")
            estimate = pick_main(answer, estimator.main_contrast("treat", "worked78"))
            if estimate is not None:
                values.append(100 * estimate.value)
                widths.append(100 * (estimate.high - estimate.low))
        told = f"{np.mean(values):+.1f} ± {np.std(values):.1f}" if values else "hidden by noise"
        found.append((f"CPS controls, adjusted, ε = {epsilon:g}", told, f"{np.mean(widths):.1f}" if widths else ""))
    return found


TRIAL_RUNS = 20
CHALLENGE_RUNS = 5


def effects_page(case: Case, real: Sequence[str], command: str, progress: Progress) -> str:
    """Run everything, and write the page; `real` are tables of packages, which must be there before anything runs."""
    if TRIAL in real:
        import_peer("causaldata", "tables")
    if CHALLENGE in real:
        find_challenge()
    tally, unknown = run_tables(case, progress)
    linear = run_linear(case, progress)
    heads = ("network", "from", "estimates", "RMSE", "RMSE, not private", "ratio", "coverage", "width")
    widths = [row for rows in (10_000, 100_000) for row in rival_widths(rows, 1.0, (1, 10, 100))]
    return "\n".join(
        [
            "# Effects: error, coverage and width",
            "",
            f"{case.rows} rows, ε = {case.epsilon:g}, δ = 1e-6, add/remove; {case.pairs} pairs of each network in",
            f"which the effect lies behind the cause, {case.repetitions} repetitions. The contrasts of a table are not",
            "independent, so a coverage has a larger standard error than as many coins. Contrasts between levels of",
            f"the cause that hold at least {COMMON:.0%} of the rows; errors and widths in points. All by",
            "",
            f"    {command}",
            "",
            "## The true graph",
            "",
            "Evidence of `measure`, which was not released for any effect; `table` is exact, `additive` takes columns",
            "to act one by one and its intervals only guess at what it misses where they do not. `fresh table`:",
            "exactly the table of the effect, with the same ε, as `dagveil effect FILE --from` releases it. Not",
            "private: the same estimator on the exact counts of the same rows.",
            "",
            write_table(heads, tally.rows()),
            "",
            "## The graph of the same evidence",
            "",
            f"The truth lies in the union over possible parent sets, and in the interval of {case.redraws} redraws of",
            f"graph and effect; {case.unknown} repetitions.",
            "",
            write_table(("network", "answers", "union holds it", "width", "redraws hold it", "width"), unknown),
            "",
            "## Linear Gaussian networks",
            "",
            "Slopes in units of the columns, whose errors have deviation 1.",
            "",
            write_table(heads, linear.rows()),
            "",
            *(_tell_trial() if TRIAL in real else ()),
            *(_tell_challenge(progress) if CHALLENGE in real else ()),
            "## Width beside rivals that spend ε on each effect",
            "",
            "Formulas, for a yes/no cause and effect with shares of one half, in points: no noise; one joint table of",
            f"eight yes/no columns, for all effects together; AIPW with propensities cut at {CLIP:g}, and a difference",
            "of noisy means, both with ε divided by the number of effects.",
            "",
            write_table(("rows", "ε", "effects", "no noise", "dagveil", "AIPW", "means"), widths),
            "",
        ]
    )


def _tell_trial() -> list[str]:
    return [
        "## NSW with controls from the CPS",
        "",
        "Points by which training raised the share who worked in 1978, adjusted for work in 1975, race, marriage and",
        f"age; {TRIAL_RUNS} runs of `measure` at each ε, with deviation. 185 of 16 177 rows are trained.",
        "",
        write_table(("", "points", "width"), run_trial((0.3, 1, 3), TRIAL_RUNS)),
        "",
    ]


def _tell_challenge(progress: Progress) -> list[str]:
    return [
        "## ACIC 2016",
        "",
        f"{TABLES} tables of a challenge, as the package causallib ships them: 4802 rows and 58 covariates of a real",
        "study of births, with treatment and outcome drawn by laws that bend and interact, so the mean effect on the",
        f"rows is known. The 55 covariates that are numbers come before the treatment. {CHALLENGE_RUNS} runs of",
        "`measure` on each table at each ε, which release 57 columns at once; then slopes adjusted for all covariates,",
        "or for what the graph of the same evidence says. Exact rows: least squares. The outcome has a deviation of 5.",
        "",
        write_table(
            ("adjusted for", "from", "answers", "mean error", "RMSE", "coverage", "width"),
            run_challenge(CHALLENGE_RUNS, progress),
        ),
        "",
    ]

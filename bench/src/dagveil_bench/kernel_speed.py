"""How fast one exact kernel test is, beside causal-learn's, on the same rows in the same process.

All of them test x and y given columns that both depend on, without privacy. Seconds depend on the machine and its other
work; ratios of the same run are what counts. Nothing here asserts a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.papers.zhang2023 import RcitSettings, exact_rcit, feature_rcit
from dagveil.progress import Progress
from dagveil.runs.discovery import discover
from dagveil.search.settings import SearchSettings
from dagveil_bench.nonlinear import nonlinear_schema, sample_over
from dagveil_bench.peers import import_peer
from dagveil_bench.speed import Timing, compare_timings, time_best
from dagveil_bench.tables import write_table

OURS: Final = ("dagveil exact RCIT", "dagveil feature RCIT")  # labels of our programs; ratios are taken to each
# peers, and what causal-learn calls them; each with its defaults
PEERS: Final = {"causal-learn KCI": "kci", "causal-learn FastKCI": "fastkci", "causal-learn RCIT": "rcit"}
# programs that go from rows to a graph; the peer last
GRAPHS: Final = (
    "dagveil measure-features, ε = 1",
    "dagveil measure-features, ε = 1, with 50 redraws for confidence",
    "causal-learn PC, Fisher's z (linear, not private)",
)


def compare(rows: int, permutations: int, conditioners: Sequence[int], tries: int, told: Progress) -> list[Timing]:
    """Time one test by each program, for several numbers of conditioning columns.

    Permutations are those of our tests; the peers' null laws come from approximations of their own. The best try
    counts.
    """
    timings = []
    total = len(conditioners) * (len(OURS) + len(PEERS))
    for count in conditioners:
        sample = draw_sample(rows, count, np.random.default_rng(count))
        programs: dict[str, Callable[[], object]] = {
            OURS[0]: _ours(exact_rcit, sample, permutations),
            OURS[1]: _ours(feature_rcit, sample, permutations),
        }
        programs |= {label: _causal_learn(name, sample) for label, name in PEERS.items()}
        for program, run in programs.items():
            timings.append(Timing(f"{rows} rows, {count} given", program, time_best(run, tries, time.perf_counter)))
            told("timing", len(timings), total)
    return timings


def compare_graphs(network: str, rows: int, tries: int, told: Progress) -> list[Timing]:
    """Time a private nonlinear graph beside causal-learn's linear one, on the same nonlinear rows of a network."""
    columns, _ = sample_over(network, rows, np.random.default_rng(1))
    schema = nonlinear_schema(columns, rows)
    matrix = np.column_stack(list(columns.values()))

    def ours(redraws: int) -> Callable[[], object]:
        settings = SearchSettings(redraws=redraws)
        return lambda: discover(columns, schema, 1.0, method="measure-features", settings=settings, ledger=None)

    programs = {GRAPHS[0]: ours(0), GRAPHS[1]: ours(50), GRAPHS[2]: _pc(matrix)}
    timings = []
    for program, run in programs.items():
        timings.append(Timing(f"{network}, {rows} rows", program, time_best(run, tries, time.perf_counter)))
        told("timing graphs", len(timings), len(programs))
    return timings


def graph_speed_table(timings: Sequence[Timing]) -> str:
    """Write seconds from arrays to a graph, and how many times longer the peer takes."""
    peer = timings[-1]
    rows = [(t.program, f"{t.seconds:.3f} s", f"{peer.seconds / t.seconds:.1f} ×") for t in timings]
    return write_table((peer.case, "seconds", "causal-learn / ours"), rows)


def draw_sample(rows: int, conditioners: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return x, y and the conditioning columns: x and y are sines of their sum with uniform noise, within ±1."""
    given = rng.uniform(-0.5, 0.5, (rows, conditioners))
    common = np.sin(given.sum(axis=1))
    noise = rng.uniform(-0.5, 0.5, (rows, 2)) * rng.uniform(0.5, 1.0, 2)
    return np.column_stack([(common[:, None] + noise) / 1.5, given])


def kernel_speed_page(timings: Sequence[Timing], graphs: Sequence[Timing], command: str) -> str:
    """Write the page: seconds, and how many times longer each peer takes."""
    return "\n\n".join(
        [
            "# Speed of kernel tests",
            "One exact conditional independence test on the same rows in one process, without privacy: ours with all "
            "their permutations, causal-learn's with its defaults. The best of several tries counts, but a program "
            "that takes over 5 seconds is tried once, so its ratios carry the noise of a single try and lean in our "
            "favour on a busy machine. Written by",
            f"    {command}",
            *compare_timings(timings),
            "Exact RCIT reads a Gram matrix through a factor of low rank where that is exact to 1e-10, so that a "
            "permutation costs rank² per row, and solves the whole system for more than three conditioning columns. "
            "Feature RCIT is linear in the rows. KCI, FastKCI and causal-learn's RCIT are other statistics for the "
            "same question; FastKCI runs in several processes.",
            "## From rows to a graph",
            graph_speed_table(graphs) + "\n",
        ]
    )


def _ours(test: Callable[..., object], sample: NDArray[np.float64], permutations: int) -> Callable[[], object]:
    x, y, given = sample[:, 0].copy(), sample[:, 1].copy(), sample[:, 2:].copy()
    settings = RcitSettings(permutations=permutations)
    return lambda: test(x, y, given, settings, np.random.default_rng(1))


def _pc(matrix: NDArray[np.float64]) -> Callable[[], object]:
    pc = import_peer("causallearn.search.ConstraintBased.PC").pc
    return lambda: pc(matrix, alpha=0.01, indep_test="fisherz", show_progress=False)


def _causal_learn(name: str, sample: NDArray[np.float64]) -> Callable[[], object]:
    cit = import_peer("causallearn.utils.cit").CIT
    # a new object for each try, since it remembers answers
    return lambda: cit(sample, name)(0, 1, tuple(range(2, sample.shape[1])))

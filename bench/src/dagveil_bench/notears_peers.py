"""Linear NOTEARS beside gCastle's on the same rows: structural Hamming distance, rates and CPU seconds.

gCastle needs PyTorch even for its linear learner, so no extra of this package brings it: install it beside dagveil. Its
cost grows with the rows, so each fit is given up after a limit; a time with ">" is a lower bound.
"""

import enum
import multiprocessing
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, product, repeat

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import GraphError, MissingExtraError
from dagveil.search.score.notears import Acyclicity, NotearsSettings, find_weights, weights_to_dag
from dagveil_bench.peers import finish_within
from dagveil_bench.tables import write_table

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PENALTY = 0.1
THRESHOLD = 0.3  # the published choices, for both programs
PEER = "gCastle"
MOST_NODES_EXPONENTIAL = 20  # beyond this our exponential measure of cycles takes minutes per sample
NEXT_STEP = "pip install gcastle torch, or leave it out with --limit 0"


class Shape(enum.Enum):
    """How random graphs are drawn."""

    ERDOS_RENYI = "Erdős–Rényi"
    SCALE_FREE = "scale-free"


class Error(enum.Enum):
    """Law of the errors of a linear model."""

    GAUSSIAN = "Gaussian"
    GUMBEL = "Gumbel"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Case:
    """A published setting: so many nodes, edges per node, rows, and a law."""

    shape: Shape
    error: Error
    n_nodes: int
    n_rows: int
    edges_per_node: int = 2


# the demonstration in the authors' repository, whose README prints what came out: the true graph
DEMO = Case(Shape.ERDOS_RENYI, Error.GAUSSIAN, 20, 100, 1)


@dataclass(frozen=True, slots=True)
class Fit:
    """One program on one sample, with CPU seconds; a distance of None means that it was given up after them."""

    case: Case
    program: str
    seed: int
    distance: int | None
    seconds: float
    tpr: float = float("nan")
    fdr: float = float("nan")

    def __str__(self) -> str:
        case, found = self.case, "given up" if self.distance is None else f"SHD {self.distance}"
        return (
            f"{case.shape.value} {case.edges_per_node}, {case.error.value}, {case.n_nodes} nodes, {case.n_rows} rows, "
            f"seed {self.seed}: {self.program}, {found}, TPR {self.tpr:.3f}, FDR {self.fdr:.3f}, {self.seconds:.2f} s"
        )


def list_cases(
    runs_of: Mapping[int, int], n_rows: int, many_rows: int, laws: Iterable[Error], edges_per_node: int
) -> dict[Case, int]:
    """List settings and how often each is run: the authors' demonstration, every setting, and a few with many rows.

    `runs_of` has samples by number of nodes. `many_rows` are those of one more sample for each shape, with the most
    nodes and Gaussian errors; 0 leaves it out.
    """
    laws = tuple(laws)
    cases = {DEMO: max(runs_of.values())}
    for (d, runs), shape, law in product(runs_of.items(), Shape, laws):
        cases[Case(shape, law, d, n_rows, edges_per_node)] = runs
    if many_rows:
        cases |= {Case(shape, Error.GAUSSIAN, max(runs_of), many_rows, edges_per_node): 1 for shape in Shape}
    return cases


def draw_weights(case: Case, rng: np.random.Generator) -> Floats:
    """Draw a DAG with weights between 0.5 and 2 in size, of random sign, its nodes in random order."""
    d, k = case.n_nodes, case.edges_per_node
    if d < 2 or k < 1:
        raise GraphError(f"a random graph needs 2 nodes and 1 edge per node at least, not {d} and {k}")
    chosen = np.zeros((d, d), dtype=np.bool_)
    if case.shape is Shape.ERDOS_RENYI:
        chosen = np.triu(rng.random((d, d)) < min(1.0, 2.0 * k / (d - 1)), 1)
    else:
        # each new node points to k older ones, chosen in proportion to 1 + their edges so far (Barabási and Albert)
        fame = np.ones(d)
        for node in range(1, d):
            targets = rng.choice(node, min(node, k), replace=False, p=fame[:node] / fame[:node].sum())
            chosen[node, targets] = True
            fame[targets] += 1.0
    order = rng.permutation(d)
    size = rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    return np.where(chosen[np.ix_(order, order)], size, 0.0)


def draw_rows(weights: Floats, case: Case, rng: np.random.Generator) -> Floats:
    """Draw centred rows of the linear model with these weights."""
    size = (case.n_rows, len(weights))
    if case.error is Error.GAUSSIAN:
        errors = rng.standard_normal(size)
    elif case.error is Error.GUMBEL:
        errors = rng.gumbel(size=size)
    else:
        errors = rng.exponential(size=size)
    rows: Floats = errors @ np.linalg.inv(np.eye(len(weights)) - weights)
    rows -= rows.mean(axis=0)
    return rows


def count_differences(found: Bools, truth: Bools) -> int:
    """Return the structural Hamming distance of two graphs; a turned edge counts once."""
    differs = found != truth
    return int(np.triu(differs | differs.T).sum())


def rate_arrows(found: Bools, truth: Bools) -> tuple[float, float]:
    """Return the true positive rate and the false discovery rate of arrows; a turned edge is a false one."""
    hits = int((found & truth).sum())
    n_found, n_true = int(found.sum()), int(truth.sum())
    return (hits / n_true if n_true else 1.0), (1.0 - hits / n_found if n_found else 0.0)


def compare(
    cases: Iterable[Case],
    runs: int | Sequence[int],
    seed: int,
    limit: float,
    told: Callable[[Fit], None] = lambda fit: None,
    measures: Iterable[Acyclicity] = tuple(Acyclicity),
    workers: int = 1,
) -> list[Fit]:
    """Fit every case, on so many samples each, with our measures of cycles and with the peer.

    Seeds count up from the first sample's. A fit of the peer is given up after `limit` CPU seconds; 0 leaves the peer
    out. `told` is told about each fit. All programs on a sample run one after the other.
    """
    if limit > 0.0:
        check_peer()
    measures = tuple(measures)
    counts = repeat(runs) if isinstance(runs, int) else runs
    # a single number never ends, so the cases decide
    counted = zip(cases, counts, strict=not isinstance(runs, int))
    jobs = [(case, run, limit, measures) for case, count in counted for run in range(seed, seed + count)]
    # spawned, because programs with threads of their own do not survive a fork
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) if workers > 1 else None
    fits = []
    with pool or nullcontext():
        for fit in chain.from_iterable((pool.map if pool else map)(_fit_sample, jobs)):
            fits.append(fit)
            told(fit)
    return fits


def check_peer() -> None:
    """Refuse a comparison whose peer is not installed, before time is spent."""
    missing = [name for name, module in (("gcastle", "castle"), ("torch", "torch")) if find_spec(module) is None]
    if missing:
        raise MissingExtraError(f"the comparison needs {' and '.join(missing)}, which no extra brings: {NEXT_STEP}")


def _fit_sample(job: tuple[Case, int, float, tuple[Acyclicity, ...]]) -> list[Fit]:
    case, seed, limit, measures = job
    key = (list(Shape).index(case.shape), list(Error).index(case.error), case.n_nodes, case.n_rows, case.edges_per_node)
    rng = np.random.default_rng([seed, *key])  # every cell has graphs of its own, so that cells can be pooled
    weights = draw_weights(case, rng)
    rows = draw_rows(weights, case, rng)
    fits = []
    for acyclicity in measures:
        if acyclicity is Acyclicity.EXPONENTIAL and case.n_nodes > MOST_NODES_EXPONENTIAL:
            continue
        start = time.process_time()
        adjacency = _fit(rows, acyclicity)
        fits.append(_score(case, f"dagveil, {acyclicity.value}", seed, adjacency, weights, time.process_time() - start))
    if limit > 0.0:
        found, seconds = _fit_peer(rows, limit)
        fits.append(_score(case, PEER, seed, found, weights, seconds))
    return fits


def _score(case: Case, program: str, seed: int, found: Bools | None, weights: Floats, seconds: float) -> Fit:
    if found is None:
        return Fit(case, program, seed, None, seconds)
    truth = weights != 0.0
    return Fit(case, program, seed, count_differences(found, truth), seconds, *rate_arrows(found, truth))


def _fit(rows: Floats, acyclicity: Acyclicity) -> Bools:
    """Ours, from rows to graph: the covariance is part of the time."""
    d = rows.shape[1]
    weights = find_weights(rows.T @ rows / len(rows), NotearsSettings(penalty=PENALTY, acyclicity=acyclicity))
    adjacency = np.zeros((d, d), dtype=np.bool_)
    for edge in weights_to_dag(weights, THRESHOLD):
        adjacency[edge] = True
    return adjacency


def _fit_peer(rows: Floats, limit: float) -> tuple[Bools | None, float]:
    """Return the peer's graph, or None if it was given up, and its CPU seconds."""
    learner = import_module("castle.algorithms").Notears(lambda1=PENALTY, w_threshold=THRESHOLD)
    start = time.process_time()
    finished = finish_within(limit, lambda: (learner.learn(rows), True))
    seconds = time.process_time() - start
    return (None if finished is None else np.asarray(learner.causal_matrix) != 0), seconds


def comparison_page(fits: Sequence[Fit], command: str = "dagveil bench notears") -> str:
    """Write the page: distances and seconds side by side, paired differences, and rates."""
    programs = list(dict.fromkeys(fit.program for fit in fits))
    cases = list(dict.fromkeys(fit.case for fit in fits))
    cells = {key: [fit for fit in fits if (fit.case, fit.program) == key] for key in product(cases, programs)}
    ours = [program for program in programs if program != PEER] if PEER in programs else []
    lead = ["graph", "errors", "nodes", "rows"]
    head = [*lead, *(f"{program}: SHD, seconds" for program in programs), *(f"{p} against {PEER}" for p in ours)]
    rates = [*lead, *(f"{program}: TPR, FDR" for program in programs)]
    lines, rate_lines = [], []
    for case in cases:
        name = [f"{case.shape.value} {case.edges_per_node}", case.error.value, f"{case.n_nodes}", f"{case.n_rows}"]
        found = [cells[case, program] for program in programs]
        against = [_contrast(cells[case, program], cells[case, PEER]) for program in ours]
        lines.append((*name, *map(_summarise, found), *against))
        rate_lines.append((*name, *map(_summarise_rates, found)))
    return "\n\n".join(
        [
            "# NOTEARS beside gCastle",
            f"Linear NOTEARS on the same rows, λ = {PENALTY:g}, threshold {THRESHOLD:g}, from rows to graph, "
            "without privacy. Graphs have the number of edges per node that stands beside their shape, effects "
            "between 0.5 and 2 in size, and errors of one variance. gCastle's `Notears` is a port of the authors' "
            "program, with a polynomial measure of cycles, and stands for it here, since the publication shows "
            "distances in plots only. SHD is the structural Hamming distance to the true graph, a mean over "
            "samples with its standard error, or one sample where none stands; a turned edge counts once. Seconds "
            "are medians of CPU time, so that waiting for other work does not count; a «>» marks fits that were "
            "given up, which have no distance and no rates. The last columns have the paired difference in SHD, "
            "ours minus gCastle's, and how many times faster ours is. Our exponential measure of cycles is slow, "
            f"and is left out beyond {MOST_NODES_EXPONENTIAL} nodes. Written by",
            f"    {command}",
            write_table(head, lines),
            "The first line is the demonstration of the authors' repository (github.com/xunzheng/notears), whose "
            "README prints the outcome of one sample: SHD 0, TPR 1, FDR 0.",
            *(_pool(fits, program) for program in ours),
            "## True positive rate and false discovery rate of arrows",
            write_table(rates, rate_lines),
        ]
    )


def _mean(values: Sequence[float], sign: str = "", digits: int = 1) -> str:
    """Write a mean with its standard error; of one value, the value."""
    if len(values) < 2:
        return f"{values[0]:{sign}.3g}" if values else "–"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):{sign}.{digits}f} ± {error:.{digits}f}"


def _summarise(fits: Sequence[Fit]) -> str:
    if not fits:
        return "–"
    return f"{_mean([fit.distance for fit in fits if fit.distance is not None])}, {_bound(fits)}{_middle(fits):.2f}"


def _summarise_rates(fits: Sequence[Fit]) -> str:
    done = [fit for fit in fits if fit.distance is not None]
    rates = ([fit.tpr for fit in done], [fit.fdr for fit in done])
    return ", ".join(_mean(values, digits=2) for values in rates) if done else "–"


def _contrast(ours: Sequence[Fit], peers: Sequence[Fit]) -> str:
    if not ours or not peers:
        return "–"
    return f"{_mean(_pair(ours, peers), '+')}, {_bound(peers)}{_middle(peers) / _middle(ours):.0f} ×"


def _pool(fits: Sequence[Fit], program: str) -> str:
    """Say how far ours lies from the peer over all samples that both finished."""
    ours, peers = ([fit for fit in fits if fit.program == name] for name in (program, PEER))
    gaps = _pair(ours, peers)
    return f"`{program}` minus {PEER}, over the {len(gaps)} samples that both finished: {_mean(gaps, '+')} SHD."


def _pair(ours: Sequence[Fit], peers: Sequence[Fit]) -> list[float]:
    theirs = {(fit.case, fit.seed): fit.distance for fit in peers}
    pairs = [(fit.distance, theirs.get((fit.case, fit.seed))) for fit in ours]
    return [float(mine - other) for mine, other in pairs if mine is not None and other is not None]


def _bound(fits: Sequence[Fit]) -> str:
    return "> " if any(fit.distance is None for fit in fits) else ""


def _middle(fits: Sequence[Fit]) -> float:
    return float(np.median([fit.seconds for fit in fits]))

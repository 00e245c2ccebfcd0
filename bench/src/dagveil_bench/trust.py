"""How far graphs of real tables may be believed: four questions, each with a target.

On an empty truth, made by shuffling every column by itself, a method should find nothing. On the rows themselves its
edges should be among those of strict non-private PC, it should keep the strongest of them, and the confidence that it
states should be the share of fresh runs in which an edge returns. The page is not private: it tells of exact rows.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from dagveil.errors import DagveilError, MethodError
from dagveil.evaluation.comparison import SkeletonRates
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs import result as writing
from dagveil.runs.discovery import measure_source
from dagveil.runs.result import Result
from dagveil.runs.run import schema_knowledge
from dagveil.runs.search import check_search, search_evidence
from dagveil.search.settings import SearchRule, SearchSettings
from dagveil_bench.trust_tables import Pair, Reference, TrustTable, find_reference, reference_folder

CONTENDERS: Final = ("measure", "measure-ges", "measure-features", "measure-notears:tests")
"""Methods, with the rule of the search after a colon where it is not the method's own. Together they release every kind
of evidence: tables of levels, and moments of numbers, of features and of the scores of levels."""

EPSILONS: Final = (0.3, 1.0, 3.0, 10.0)
DELTA: Final = "1e-6"

SHARES: Final = (0.0, 0.2, 0.5, 0.8, 1.0)  # upper ends of the groups of pairs by their share of fresh runs
LIKELY: Final = 0.2  # share from which on a pair is likely to be told of
_SMALL: Final = 1e-9
_IDEAL_DRAWS: Final = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    table: str
    contender: str
    epsilon: float
    shuffled: bool
    run: int
    seed: int


@dataclass(frozen=True, slots=True)
class TrustOutcome:
    """Adjacent pairs that are drawn, those that the search found, and the stated confidence of all pairs."""

    drawn: frozenset[Pair]
    found: frozenset[Pair]
    stated: Mapping[Pair, float]


@dataclass(slots=True)
class Cell:
    """All runs of one contender on one table with one budget."""

    table: str
    contender: str
    epsilon: float
    shuffled: list[int] = field(default_factory=list)
    runs: list[TrustOutcome] = field(default_factory=list)

    def share_drawn(self, pair: Pair) -> float:
        """Return the share of runs in which a pair was drawn."""
        return sum(pair in run.drawn for run in self.runs) / len(self.runs)

    def share_found(self, pair: Pair) -> float:
        """Return the share of runs in which the search found a pair."""
        return sum(pair in run.found for run in self.runs) / len(self.runs)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Stated confidence beside the share of fresh runs, over the `pairs` that have either above 0.

    `rank` is Spearman's correlation of the mean stated confidence with the share, NaN where one does not vary; `error`
    is their mean absolute difference, `single_error` that of what a single run states, and `likely_error` that of pairs
    with either at `LIKELY` or above: many pairs near 0 cannot hide it. `best_rank` and `best_error` are what would be
    expected if the mean stated confidence were exactly right: so few runs cannot tell rare pairs apart. `groups` has,
    for each group of `SHARES`, how many of all pairs it has, and their mean stated confidence.
    """

    pairs: int
    rank: float
    error: float
    single_error: float
    likely_error: float
    best_rank: float
    best_error: float
    groups: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that the page tells."""

    tables: Sequence[TrustTable]
    references: Mapping[str, Reference]
    cells: Sequence[Cell]
    runs: int


def run_trust(
    tables: Sequence[TrustTable],
    contenders: Sequence[str],
    epsilons: Sequence[float],
    runs: int,
    seed: int,
    workers: int,
    told: Progress,
    folder: Path | None = None,
) -> Study:
    """Ask all questions of all tables, whose names must differ, so many runs per cell on the rows and on shuffled ones.

    Contenders are methods, with the rule of the search after a colon; one that cannot take a table is left out for it.
    References are kept in `folder`; None takes the user's cache folder.
    """
    by_name = {table.name: table for table in tables}
    if len(by_name) < len(tables):
        raise MethodError("two tables have the same name; give each data set a name of its own")
    fits = [
        (table.name, contender) for table in tables for contender in contenders if _fits(contender, table, epsilons)
    ]
    if not fits:
        raise MethodError(f"none of {', '.join(contenders)} takes any of these tables and budgets; choose others")
    cells = {(*fit, epsilon): Cell(*fit, epsilon) for fit in fits for epsilon in epsilons}
    tasks = [Task(*key, shuffled, run, seed) for key in cells for run in range(runs) for shuffled in (True, False)]
    folder = reference_folder() if folder is None else folder
    with ProcessPoolExecutor(workers, initializer=_take_tables, initargs=(by_name,)) as pool:
        references = {}
        told("references", 0, len(tables))
        for name, reference in zip(by_name, pool.map(partial(_find_reference, folder), by_name), strict=True):
            references[name] = reference
            told("references", len(references), len(tables))
        for done, (task, outcome) in enumerate(zip(tasks, pool.map(_run_here, tasks), strict=True), start=1):
            cell = cells[task.table, task.contender, task.epsilon]
            if task.shuffled:
                cell.shuffled.append(len(outcome.drawn))
            else:
                cell.runs.append(outcome)
            told("runs", done, len(tasks))
    return Study(tables, references, list(cells.values()), runs)


_TABLES: dict[str, TrustTable] = {}  # the tables of a worker


def _take_tables(tables: Mapping[str, TrustTable]) -> None:
    _TABLES.update(tables)


def _find_reference(folder: Path, name: str) -> Reference:
    return find_reference(_TABLES[name], folder)


def _run_here(task: Task) -> TrustOutcome:
    return run_task(_TABLES[task.table], task)


def run_task(table: TrustTable, task: Task) -> TrustOutcome:
    """Release evidence and search it once; shuffles are the same for all contenders and budgets."""
    key = [task.seed, task.run, crc32(table.name.encode())]
    rng = np.random.default_rng([*key, crc32(repr(task).encode())])
    if task.shuffled:
        table = table.shuffle(np.random.default_rng(key))
    method, rule = read_contender(task.contender)
    evidence = measure_source(
        table.open(),
        table.schema,
        task.epsilon,
        DELTA,
        method=method,
        noise=NoiseKind.SEEDED,
        seed=int(rng.integers(2**62)),
        accept_draft=True,
        ledger=None,
    )
    usual = writing.NEAR_MISS
    try:
        # results leave out pairs with a smaller confidence, but the comparison needs them all
        writing.NEAR_MISS = 0.0
        result = search_evidence(evidence, SearchSettings(search=rule))
    finally:
        writing.NEAR_MISS = usual
    drawn = result.graph.cpdag.skeleton()
    doubtful = frozenset(frozenset((miss.source, miss.target)) for miss in result.near_misses if miss.found)
    return TrustOutcome(drawn, drawn | doubtful, stated_confidence(result))


def stated_confidence(result: Result) -> dict[Pair, float]:
    """Return the confidence of every pair that a result tells of."""
    stated = {frozenset((edge.source, edge.target)): edge.confidence or 0.0 for edge in result.graph.edges}
    return stated | {frozenset((miss.source, miss.target)): miss.confidence for miss in result.near_misses}


def read_contender(text: str) -> tuple[str, SearchRule | None]:
    """Read the name of a method that releases evidence, and the rule of the search after a colon."""
    name, _, rule = text.partition(":")
    if method_named(name).release is None:
        raise MethodError(f"{name} leaves no evidence to search, so nothing could be compared; choose another method")
    rules = [known.value for known in SearchRule]
    if rule and rule not in rules:
        raise MethodError(f"{text}: no search goes by {rule!r}; choose from {', '.join(rules)}")
    return name, SearchRule(rule) if rule else None


def _fits(contender: str, table: TrustTable, epsilons: Sequence[float]) -> bool:
    name, rule = read_contender(contender)
    method, knowledge = method_named(name), schema_knowledge(table.schema)
    if contender == "measure-notears:tests" and table.test == "fisherz":
        return False  # second moments of numbers, searched by tests: that is `measure` again
    try:
        method.check(table.schema, knowledge)
        check_search(name, table.schema, SearchSettings(search=rule))
        settings = method.read_settings(None)
        for epsilon in epsilons:
            method.accounting(Budget.of(epsilon, DELTA), table.schema, settings, knowledge)
    except DagveilError:
        return False
    return True


def rate_pairs(found: frozenset[Pair], truth: frozenset[Pair], columns: int) -> SkeletonRates:
    """Score adjacent pairs against those of a reference."""
    absent = columns * (columns - 1) // 2 - len(found | truth)
    return SkeletonRates(len(found & truth), len(found - truth), len(truth - found), absent)


def compare_confidence(cell: Cell, columns: Sequence[str]) -> Agreement:
    """Set the stated confidence of all pairs beside the share of fresh runs."""
    pairs = [frozenset(pair) for pair in combinations(columns, 2)]
    fresh = np.array([cell.share_found(pair) for pair in pairs])
    stated = np.array([[run.stated.get(pair, 0.0) for pair in pairs] for run in cell.runs])
    mean = stated.mean(axis=0)
    groups, lower = [], -1.0
    for upper in SHARES:
        inside = (fresh > lower) & (fresh <= upper + _SMALL)
        groups.append((int(inside.sum()), float(mean[inside].mean()) if inside.any() else float("nan")))
        lower = upper + _SMALL
    rank, error = _compare(mean, fresh)
    rng = np.random.default_rng(1)  # a fixed seed: the same runs give the same page
    best = [_compare(mean, rng.binomial(len(cell.runs), mean) / len(cell.runs)) for _ in range(_IDEAL_DRAWS)]
    ranks = [rank for rank, _ in best if not math.isnan(rank)]
    seen = (fresh > 0) | (mean > 0)
    likely = np.maximum(fresh, mean) >= LIKELY
    return Agreement(
        int(seen.sum()),
        rank,
        error,
        float(np.abs(stated - fresh)[:, seen].mean()) if seen.any() else 0.0,
        float(np.abs(mean - fresh)[likely].mean()) if likely.any() else 0.0,
        float(np.mean(ranks)) if ranks else float("nan"),
        float(np.mean([error for _, error in best])),
        tuple(groups),
    )


def _compare(stated: Floats, fresh: Floats) -> tuple[float, float]:
    """Return Spearman's correlation and the mean absolute error over pairs with either above 0."""
    seen = (fresh > 0) | (stated > 0)
    if not seen.any():
        return float("nan"), 0.0
    first, second = rankdata(stated[seen]), rankdata(fresh[seen])
    rank = float(np.corrcoef(first, second)[0, 1]) if np.ptp(first) and np.ptp(second) else float("nan")
    return rank, float(np.abs(stated - fresh)[seen].mean())

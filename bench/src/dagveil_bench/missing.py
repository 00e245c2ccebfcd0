"""Missing values: what graphs are left of a known network and of mixed ones, by what the schema says of missing cells.

Three quarters of the columns lose values, each at a rate between half and one and a half times the nominal one; the
others stay complete. Values go completely at random (MCAR), or by the logit of one complete column in spreads (MAR).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from itertools import combinations, product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import special

from dagveil.data.column import OWN_LEVEL, PAIRWISE
from dagveil.data.schema import Schema
from dagveil.evaluation.comparison import marked_edge_f1, skeleton_f1
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.constraint.pc import Question
from dagveil.search.settings import SearchSettings
from dagveil_bench.mixed import DELTA, declare, draw_graph, draw_rows
from dagveil_bench.mixed_anchors import ConditionalGaussian, run_pc
from dagveil_bench.peers import import_peer, keep_quiet

Columns = dict[str, NDArray[Any]]

NETWORKS: Final = ("child", "mixed")
MIXED_COLUMNS: Final = 10
ROWS: Final = (10_000, 100_000)
EPSILONS: Final = (0.1, 1.0)
RATES: Final = (0.1, 0.3)
MECHANISMS: Final = ("MCAR", "MAR")
LEVEL: Final = 0.001
"""Level of the tests without privacy."""

COMPLETE: Final = "complete"
DELETED: Final = "not private, deleted by test"
MVPC: Final = "MVPC"
PEERS: Final = (DELETED, MVPC)
WAYS: Final = (COMPLETE, OWN_LEVEL, PAIRWISE)
"""All values kept; or missing ones become a level, or an indicator beside the centre of a number; or are left out."""

LARGEST_SET: Final = 2
PEER_ROWS: Final = 20_000
"""The search without privacy reads at most so many rows: it takes minutes on more."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run; a network and its rows follow from name, rows and seed."""

    network: str
    rows: int
    mechanism: str
    rate: float
    epsilon: float
    way: str
    seed: int


@lru_cache(maxsize=1)
def draw_case(network: str, rows: int, seed: int) -> tuple[Dag, Columns, Schema]:
    """Return graph, complete columns, and a schema for them: numbers as floats, levels as texts."""
    if network == "mixed":
        rng = np.random.default_rng(seed)
        dag = draw_graph(MIXED_COLUMNS, rng)
        drawn = draw_rows(dag, rows, False, rng)
        levels = {name: column if column.dtype.kind == "f" else column.astype(str) for name, column in drawn.items()}
        return dag, levels, declare(drawn, rows, None)
    known = load_network(network)
    codes = sample_codes(known, rows, np.random.default_rng([seed, rows]))
    texts = {name: np.array(known.levels[name])[column] for name, column in codes.items()}
    return known.dag(), texts, replace(network_schema(known, rows), reviewed=True, public=True)


def choose_missing(columns: Columns, mechanism: str, rate: float, seed: int) -> dict[str, NDArray[np.bool_]]:
    """Return which values of each column go missing; complete columns are left out."""
    rng = np.random.default_rng([seed, 7])
    names = list(rng.permutation(list(columns)))
    stay = names[: max(1, len(names) // 4)]
    n_rows = len(columns[names[0]])
    gone = {}
    for name in names[len(stay) :]:
        share = rate * rng.uniform(0.5, 1.5)
        driver = columns[stay[int(rng.integers(len(stay)))]]
        if mechanism == "MCAR":
            gone[name] = rng.random(n_rows) < share
            continue
        numbers = driver if driver.dtype.kind == "f" else np.unique(driver, return_inverse=True)[1].astype(float)
        odds = np.exp((numbers - numbers.mean()) / (numbers.std() or 1.0))
        # the constant that gives the share wanted
        low, high = 1e-6, 1e6
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if (middle * odds / (1 + middle * odds)).mean() < share else (low, middle)
        gone[name] = rng.random(n_rows) < low * odds / (1 + low * odds)
    return gone


def run_case(case: Case) -> tuple[float, float]:
    """Remove values, release evidence and search it; return F1 of the skeleton and of marked edges."""
    dag, columns, schema = draw_case(case.network, case.rows, case.seed)
    gone = {} if case.way == COMPLETE else choose_missing(columns, case.mechanism, case.rate, case.seed)
    table = pa.table({name: pa.array(column, mask=gone.get(name)) for name, column in columns.items()})
    declared = dict(schema.columns)
    for name in gone:
        declared[name] = replace(declared[name], missing=case.way)
    evidence = measure_source(
        table,
        replace(schema, columns=declared),
        case.epsilon,
        DELTA,
        noise=NoiseKind.SEEDED,
        seed=case.seed,
        ledger=None,
    )
    found = search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag
    truth = dag.cpdag()
    return skeleton_f1(found, truth), marked_edge_f1(found, truth)


def run_peer(case: Case) -> tuple[float, float]:
    """Score the graph that PC finds without privacy; return F1 of the skeleton and of marked edges.

    Either each test is on the rows that have all its values, χ² for levels alone and likelihood ratios beside numbers;
    or it is causal-learn's MVPC, for which levels count as numbers.
    """
    dag, columns, _ = draw_case(case.network, case.rows, case.seed)
    gone = choose_missing(columns, case.mechanism, case.rate, case.seed)
    columns = {
        name: column[:PEER_ROWS] if column.dtype.kind == "f" else np.unique(column[:PEER_ROWS], return_inverse=True)[1]
        for name, column in columns.items()
    }
    known = {name: ~gone[name][:PEER_ROWS] if name in gone else np.ones(len(columns[name]), bool) for name in columns}
    names, truth = tuple(columns), dag.cpdag()
    if case.way == DELETED:
        test = _Deleted(columns, known, square if case.network != "mixed" else ratio)
        found = run_pc(test, names, LARGEST_SET, LEVEL)
        return skeleton_f1(found, truth), marked_edge_f1(found, truth)
    rows = np.stack([np.where(known[name], column, np.nan) for name, column in columns.items()], axis=1)
    with keep_quiet(), redirect_stdout(StringIO()):
        pc = import_peer("causallearn.search.ConstraintBased.PC").pc
        ends = pc(rows, LEVEL, "mv_fisherz", mvpc=True, show_progress=False).G.graph
    pairs = [(x, y) for x, y in combinations(range(len(names)), 2) if ends[x, y] or ends[y, x]]
    # causal-learn: 1 is an arrowhead and −1 a tail, at the second place
    arrows = {
        (names[a], names[b]) for x, y in pairs for a, b in ((x, y), (y, x)) if ends[b, a] == 1 and ends[a, b] == -1
    }
    lines = {frozenset((names[x], names[y])) for x, y in pairs} - {frozenset(arrow) for arrow in arrows}
    found = Cpdag(names, frozenset(arrows), frozenset(lines))
    return skeleton_f1(found, truth), marked_edge_f1(found, truth)


class _Deleted:
    """A test on the rows that have all values of a question."""

    def __init__(self, columns: Columns, known: Mapping[str, NDArray[np.bool_]], test: Callable[..., float]) -> None:
        self._columns, self._known, self._test = columns, known, test

    def p_value(self, question: Question) -> float:
        x, y, given = question
        names = (x, y, *given)
        there = np.logical_and.reduce([self._known[name] for name in names])
        return self._test({name: self._columns[name][there] for name in names}, question)


def ratio(columns: Columns, question: Question) -> float:
    """Return the p-value of a likelihood ratio."""
    return ConditionalGaussian(columns).p_value(question)


def square(columns: Columns, question: Question) -> float:
    """Return the p-value of a χ² test; levels of the conditioning set with one level of an end say nothing."""
    x, y, given = question
    shape = [int(columns[name].max()) + 1 for name in (*given, x, y)]
    places = np.ravel_multi_index(tuple(columns[name] for name in (*given, x, y)), shape)
    counts = np.bincount(places, minlength=math.prod(shape)).reshape(-1, *shape[-2:]).astype(np.float64)
    first, second, total = counts.sum(axis=2), counts.sum(axis=1), counts.sum(axis=(1, 2))
    expected = first[:, :, None] * second[:, None, :] / np.maximum(total, 1.0)[:, None, None]
    statistic = ((counts - expected) ** 2 / np.maximum(expected, 1e-300))[expected > 0].sum()
    freedom = np.maximum((first > 0).sum(axis=1) - 1, 0) * np.maximum((second > 0).sum(axis=1) - 1, 0)
    return float(special.chdtrc(freedom.sum(), statistic)) if freedom.sum() else 1.0


def list_cases(networks: Sequence[str], rows: Sequence[int], runs: int, seed: int) -> Iterator[Case]:
    """List all runs, those of one table in a row; those on complete data once for each number of rows and budget."""
    cells = product(networks, rows, range(seed, seed + runs), MECHANISMS, RATES)
    for network, length, number, mechanism, rate in cells:
        for epsilon, way in product(EPSILONS, WAYS):
            if way != COMPLETE or (mechanism, rate) == (MECHANISMS[0], RATES[0]):
                yield Case(network, length, mechanism, rate, epsilon, way, number)
        for way in PEERS:
            yield Case(network, length, mechanism, rate, 0.0, way, number)


def run_missing(cases: Sequence[Case], told: Progress) -> dict[tuple[Any, ...], list[tuple[float, float]]]:
    """Run all cases; scores are by network, rows, mechanism, rate, epsilon and way."""
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for done, case in enumerate(cases, start=1):
        score = run_peer(case) if case.way in PEERS else run_case(case)
        key = case.network, case.rows, case.mechanism, case.rate, case.epsilon, case.way
        found.setdefault(key, []).append(score)
        told("runs", done, len(cases))
    return found


def missing_page(found: Mapping[tuple[Any, ...], list[tuple[float, float]]], runs: int, command: str) -> str:
    """Write what was found as a page."""
    lines = [
        "# Missing values",
        "",
        f"F1 of the skeleton / F1 of edges with their marks, means of {runs} runs. Three quarters of the columns lose",
        "values, completely at random (MCAR) or by a column that stays complete (MAR); `mixed` are random networks,",
        "half of whose columns are numbers. *own-level*: missing values are a level, or an indicator beside the centre",
        "of a number; *pairwise*: tests leave them out. The last two columns are PC without privacy at level",
        f"{LEVEL:g} on at most {PEER_ROWS} rows: each test on the rows that have all its values, by χ² on Child and by",
        f"conditional-Gaussian likelihood ratios on `mixed`, sets of up to {LARGEST_SET}; and causal-learn's MVPC, for",
        "which levels count as numbers. No constant was chosen on these seeds.",
        "",
        f"    {command}",
        "",
        "| network | rows | ε | missing | " + " | ".join((*WAYS, *PEERS)) + " |",
        "|---|---|---|---|" + "---|" * (len(WAYS) + len(PEERS)),
    ]
    cells = dict.fromkeys((*key[:2], epsilon, *key[2:4]) for key in found for epsilon in EPSILONS)
    for network, rows, epsilon, mechanism, rate in cells:
        whole = network, rows, MECHANISMS[0], RATES[0], epsilon, COMPLETE
        keys = [whole, *((network, rows, mechanism, rate, epsilon, way) for way in WAYS[1:])]
        keys += [(network, rows, mechanism, rate, 0.0, way) for way in PEERS]
        scores = [" / ".join(f"{mean:.2f}" for mean in np.mean(found[key], axis=0)) for key in keys]
        missing = f"{mechanism} {rate:.0%}"
        lines.append(f"| {network} | {rows} | {epsilon:g} | {missing} | {' | '.join(scores)} |")
    return "\n".join(lines) + "\n"

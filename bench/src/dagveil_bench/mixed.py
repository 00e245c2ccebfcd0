"""Numbers beside levels: random networks of both kinds, measured by one matrix and by tables with bins.

Half of the columns are numbers, the others have two to four levels. A number is a sum of effects of its parents and
normal noise, scaled to variance 1; a level is drawn from a multinomial logit of such effects. Curved networks bend half
of the effects that a number has, by a sine or a square. No effect of a parent is below 0.4 spreads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtri

from dagveil.data.column import Categorical, Numeric
from dagveil.data.schema import Schema
from dagveil.evaluation.comparison import marked_edge_f1, skeleton_f1
from dagveil.graphs.cpdag import Dag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

Floats = NDArray[np.float64]

COLUMNS: Final = (10, 20)
ROWS: Final = (2_000, 10_000, 100_000)
EPSILONS: Final = (0.1, 1.0, 10.0)
CURVED: Final = (False, True)
DELTA: Final = "1e-6"

EDGES_PER_COLUMN: Final = 1.2
MOST_PARENTS: Final = 3
WEAKEST: Final = 0.4
STRONGEST: Final = 0.9
LOGIT: Final = 2.0
"""An effect on a level, in logits, is this times one on a number: the noise of a logit is that much wider."""

MATRIX: Final = "one matrix"
WAYS: Final[Mapping[str, int | None]] = {MATRIX: None, "3 bins": 3, "5 bins": 5, "8 bins": 8}
"""What is done with numbers: nothing, or bins that a normal column fills evenly."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a network by its seed, its rows, a budget, and what is done with numbers."""

    columns: int
    rows: int
    curved: bool
    epsilon: float
    way: str
    seed: int


@dataclass(slots=True)
class Score:
    """F1 of the skeleton and of marked edges in every run of a cell."""

    skeleton: list[float] = field(default_factory=list)
    marked: list[float] = field(default_factory=list)


def draw_graph(columns: int, rng: np.random.Generator) -> Dag:
    """Draw a graph in which no column has more than `MOST_PARENTS` parents."""
    names = tuple(f"c{place}" for place in range(columns))
    order = rng.permutation(columns)
    chance = 2.0 * EDGES_PER_COLUMN / (columns - 1)
    edges = set()
    for place, child in enumerate(order):
        parents = [parent for parent in order[:place] if rng.random() < chance][:MOST_PARENTS]
        edges |= {(names[parent], names[child]) for parent in parents}
    return Dag(names, frozenset(edges))


def draw_rows(dag: Dag, rows: int, curved: bool, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Draw a model over the graph, and rows from it: numbers as floats, levels as integers."""
    numbers = set(rng.permutation(dag.nodes)[: len(dag.nodes) // 2].tolist())
    drawn: dict[str, NDArray[Any]] = {}
    for name in dag.order():
        parents = sorted(dag.parents(name))
        if name in numbers:
            total = rng.standard_normal(rows)
            for parent in parents:
                total += _effect(rng) * _bend(drawn[parent], curved, rng)
            drawn[name] = (total - total.mean()) / total.std()
            continue
        levels = int(rng.integers(2, 5))
        logits = rng.gumbel(size=(levels, rows)) + 0.3 * rng.standard_normal((levels, 1))
        for parent in parents:
            slopes = rng.standard_normal(levels)
            slopes = (slopes - slopes.mean()) / slopes.std()
            if drawn[parent].dtype.kind == "f":
                logits += LOGIT * _effect(rng) * slopes[:, None] * _bend(drawn[parent], curved, rng)
            else:
                of_parent = int(drawn[parent].max()) + 1
                moved = rng.standard_normal((levels, of_parent))
                moved -= moved.mean(axis=1, keepdims=True)
                logits += LOGIT * _effect(rng) * (moved / moved.std())[:, drawn[parent]]
        drawn[name] = logits.argmax(axis=0)
    return {name: drawn[name] for name in dag.nodes}


def _effect(rng: np.random.Generator) -> float:
    return float(rng.uniform(WEAKEST, STRONGEST) * rng.choice((-1.0, 1.0)))


def _bend(column: NDArray[Any], curved: bool, rng: np.random.Generator) -> Floats:
    """Return a parent as numbers of variance 1 or so."""
    if column.dtype.kind != "f":
        scores = rng.standard_normal(int(column.max()) + 1)
        values = np.asarray(scores[column])
        return np.asarray((values - values.mean()) / (values.std() or 1.0))
    if not curved or rng.random() < 0.5:
        return np.asarray(column)
    bent = np.sin(1.5 * column) * math.sqrt(2.0) if rng.random() < 0.5 else (column**2 - 1.0) / math.sqrt(2.0)
    return np.asarray(bent)


def declare(columns: Mapping[str, NDArray[Any]], rows: int, bins: int | None) -> Schema:
    """Return a schema as a person would write it: columns of numbers have variance 1."""
    edges = None if bins is None else tuple(ndtri(np.arange(1, bins) / bins).tolist())
    declared = {
        name: Numeric(bounds=(-10.0, 10.0), center=0.0, spread=1.0, bins=edges)
        if column.dtype.kind == "f"
        else Categorical(levels=tuple(map(str, range(max(2, int(column.max()) + 1)))), outside="0")
        for name, column in columns.items()
    }
    return Schema(dataset="mixed", columns=declared, reviewed=True, public=True, nominal_rows=rows)


def run_case(case: Case) -> tuple[float, float]:
    """Draw a network, release evidence and search it; return F1 of the skeleton and of marked edges."""
    rng = np.random.default_rng([case.seed, case.columns, case.curved])
    dag = draw_graph(case.columns, rng)
    drawn = draw_rows(dag, case.rows, case.curved, rng)
    table = pa.table(
        {name: column if column.dtype.kind == "f" else column.astype(str) for name, column in drawn.items()}
    )
    schema = declare(drawn, case.rows, WAYS[case.way])
    evidence = measure_source(
        table, schema, case.epsilon, DELTA, noise=NoiseKind.SEEDED, seed=case.seed, ledger=None, accept_draft=True
    )
    found = search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag
    truth = dag.cpdag()
    return skeleton_f1(found, truth), marked_edge_f1(found, truth)


def list_cases(
    graphs: int, seed: int, ways: Sequence[str], columns: Sequence[int], rows: Sequence[int]
) -> Iterator[Case]:
    """List all runs, `graphs` of each cell; a network is the same at all rows, budgets and ways."""
    cells = product(columns, rows, CURVED, EPSILONS, ways, range(graphs))
    return (
        Case(width, length, curved, epsilon, way, seed + number)
        for width, length, curved, epsilon, way, number in cells
    )


def run_mixed(cases: Sequence[Case], workers: int, told: Progress) -> dict[tuple[Any, ...], Score]:
    """Run all cases; scores are by columns, rows, curved, epsilon and way."""
    found: dict[tuple[Any, ...], Score] = {}
    with ProcessPoolExecutor(workers) as pool:
        for done, (case, (skeleton, marked)) in enumerate(zip(cases, pool.map(run_case, cases), strict=True), start=1):
            key = (case.columns, case.rows, case.curved, case.epsilon, case.way)
            score = found.setdefault(key, Score())
            score.skeleton.append(skeleton)
            score.marked.append(marked)
            told("runs", done, len(cases))
    return found


def mixed_page(found: Mapping[tuple[Any, ...], Score], graphs: int, command: str) -> str:
    """Write what was found as a page."""
    ways = list(dict.fromkeys(key[-1] for key in found))
    cells = list(dict.fromkeys(key[:3] for key in found))
    lines = [
        "# Numbers beside levels",
        "",
        f"Random networks, {graphs} in each cell, half of whose columns are numbers: F1 of the skeleton / F1 of edges",
        "with their marks, of the graph that the search finds without redraws. All ways have the same rows, centres",
        "and spreads. One matrix is what `measure` releases by itself; with bins it counts tables.",
        "",
        f"    {command}",
        "",
        "| columns | rows | effects | ε | " + " | ".join(ways) + " |",
        "|---|---|---|---|" + "---|" * len(ways),
    ]
    for columns, rows, curved in cells:
        for epsilon in EPSILONS:
            scores = [_write(found[columns, rows, curved, epsilon, way]) for way in ways]
            kind = "curved" if curved else "linear"
            lines.append(f"| {columns} | {rows} | {kind} | {epsilon:g} | " + " | ".join(scores) + " |")
    lines += ["", "## Means over all cells", "", "| ε | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
    for epsilon in EPSILONS:
        means = []
        for way in ways:
            of = [found[*cell, epsilon, way] for cell in cells]
            skeleton = np.mean([np.mean(score.skeleton) for score in of])
            means.append(f"{skeleton:.3f} / {np.mean([np.mean(score.marked) for score in of]):.3f}")
        lines.append(f"| {epsilon:g} | " + " | ".join(means) + " |")
    return "\n".join(lines) + "\n"


def _write(score: Score) -> str:
    return f"{np.mean(score.skeleton):.2f} / {np.mean(score.marked):.2f}"

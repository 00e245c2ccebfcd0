"""Numbers beside levels: random networks of both kinds, measured by one matrix and by tables with bins.

Half of the columns are numbers, the others have two to four levels. A number is a sum of effects of its parents and
normal noise, scaled to variance 1; a level is drawn from a multinomial logit of such effects. Curved networks bend half
of the effects that a number has, by a sine or a square. No effect of a parent is below 0.4 spreads. Beside them stand
the same release without noise, and PC without privacy by two tests for such tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, product
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
from dagveil_bench.mixed_anchors import LEVEL as ANCHOR_LEVEL
from dagveil_bench.mixed_anchors import TESTS, run_pc
from dagveil_bench.tables import write_table

Floats = NDArray[np.float64]

COLUMNS: Final = (10, 20)
ROWS: Final = (2_000, 10_000, 100_000)
EPSILONS: Final = (0.1, 1.0, 10.0)
CURVED: Final = (False, True)
DELTA: Final = "1e-6"

EDGES_PER_COLUMN: Final = 1.2
MOST_PARENTS: Final = 3
MOST_LEVELS: Final = 4
WEAKEST: Final = 0.4
STRONGEST: Final = 0.9
LOGIT: Final = 2.0
"""An effect on a level, in logits, is this times one on a number: the noise of a logit is that much wider."""

MATRIX: Final = "one matrix"
WAYS: Final[Mapping[str, int | None]] = {MATRIX: None, "3 bins": 3, "5 bins": 5, "8 bins": 8}
"""What is done with numbers: nothing, or bins that a normal column fills evenly."""

NOISELESS: Final = "no noise"
NO_NOISE: Final = 1e6
"""At this ε the noise of the matrix is far below what one record adds."""

ANCHORS: Final = (NOISELESS, *TESTS)
LARGEST_ORDER: Final[Mapping[str, int]] = {"conditional Gaussian": 3, "Pillai": 2}
SLOW: Final = "Pillai"
SLOW_GRAPHS: Final = 4
SLOW_CELLS: Final = ((10, 2_000),)
"""A forest for each column and set takes a minute per graph of ten columns and 2000 rows."""

TARGETS: Final = {0.1: (0.72, 0.51), 1.0: (0.94, 0.79), 10.0: (0.98, 0.92)}


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a network by its seed, its rows, a budget, and what is done with numbers; an anchor has no budget."""

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
    """Draw a model over the graph, and rows from it: numbers as floats, levels as integers.

    The model does not depend on the number of rows.
    """
    (chance,) = rng.spawn(1)
    sizes: dict[str, int] = {}
    numbers = set(rng.permutation(dag.nodes)[: len(dag.nodes) // 2].tolist())
    drawn: dict[str, NDArray[Any]] = {}
    for name in dag.order():
        parents = sorted(dag.parents(name))
        if name in numbers:
            total = chance.standard_normal(rows)
            for parent in parents:
                total += _effect(rng) * _bend(drawn[parent], curved, rng)
            drawn[name] = (total - total.mean()) / total.std()
            continue
        levels = int(rng.integers(2, MOST_LEVELS + 1))
        sizes[name] = levels
        logits = chance.gumbel(size=(levels, rows)) + 0.3 * rng.standard_normal((levels, 1))
        for parent in parents:
            slopes = rng.standard_normal(levels)
            slopes = (slopes - slopes.mean()) / slopes.std()
            if drawn[parent].dtype.kind == "f":
                logits += LOGIT * _effect(rng) * slopes[:, None] * _bend(drawn[parent], curved, rng)
            else:
                moved = rng.standard_normal((levels, sizes[parent]))
                moved -= moved.mean(axis=1, keepdims=True)
                logits += LOGIT * _effect(rng) * (moved / moved.std())[:, drawn[parent]]
        drawn[name] = logits.argmax(axis=0)
    return {name: drawn[name] for name in dag.nodes}


def _effect(rng: np.random.Generator) -> float:
    return float(rng.uniform(WEAKEST, STRONGEST) * rng.choice((-1.0, 1.0)))


def _bend(column: NDArray[Any], curved: bool, rng: np.random.Generator) -> Floats:
    """Return a parent as numbers of variance 1 or so."""
    if column.dtype.kind != "f":
        values = np.asarray(rng.standard_normal(MOST_LEVELS)[column])
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
    """Draw a network and rows, find a graph in them; return F1 of the skeleton and of marked edges."""
    dag, drawn, table = _draw(case.columns, case.rows, case.curved, case.seed)
    if case.way in TESTS:
        found = run_pc(TESTS[case.way](drawn), dag.nodes, LARGEST_ORDER[case.way])
    else:
        evidence = measure_source(
            table,
            declare(drawn, case.rows, WAYS.get(case.way)),
            NO_NOISE if case.way == NOISELESS else case.epsilon,
            DELTA,
            noise=NoiseKind.SEEDED,
            seed=case.seed,
            ledger=None,
            accept_draft=True,
        )
        found = search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag
    truth = dag.cpdag()
    return skeleton_f1(found, truth), marked_edge_f1(found, truth)


@lru_cache(maxsize=1)
def _draw(columns: int, rows: int, curved: bool, seed: int) -> tuple[Dag, dict[str, NDArray[Any]], pa.Table]:
    rng = np.random.default_rng([seed, columns, curved])
    dag = draw_graph(columns, rng)
    drawn = draw_rows(dag, rows, curved, rng)
    texts = {name: column if column.dtype.kind == "f" else column.astype(str) for name, column in drawn.items()}
    return dag, drawn, pa.table(texts)


def list_cases(
    graphs: int, seed: int, ways: Sequence[str], columns: Sequence[int], rows: Sequence[int]
) -> Iterator[Case]:
    """List all runs, `graphs` of each cell, those of one table in a row; a network is the same at all rows."""
    for width, length, curved, number, way in product(columns, rows, CURVED, range(graphs), ways):
        if way == SLOW and ((width, length) not in SLOW_CELLS or number >= SLOW_GRAPHS):
            continue
        for epsilon in EPSILONS if way in WAYS else (0.0,):
            yield Case(width, length, curved, epsilon, way, seed + number)


def run_mixed(cases: Sequence[Case], workers: int, told: Progress) -> dict[tuple[Any, ...], Score]:
    """Run all cases; scores are by columns, rows, curved, epsilon and way."""
    found: dict[tuple[Any, ...], Score] = {}
    with ProcessPoolExecutor(workers) as pool:
        scores = pool.map(run_case, cases, chunksize=len(WAYS) * len(EPSILONS))
        for done, (case, (skeleton, marked)) in enumerate(zip(cases, scores, strict=True), start=1):
            key = (case.columns, case.rows, case.curved, case.epsilon, case.way)
            score = found.setdefault(key, Score())
            score.skeleton.append(skeleton)
            score.marked.append(marked)
            told("runs", done, len(cases))
    return found


def mixed_page(found: Mapping[tuple[Any, ...], Score], graphs: int, command: str) -> str:
    """Write what was found as a page."""
    asked = dict.fromkeys(key[-1] for key in found)
    ways, anchors = [way for way in WAYS if way in asked], [way for way in ANCHORS if way in asked]
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
        write_table(
            ("columns", "rows", "effects", "ε", *ways),
            [
                (*_name(cell), f"{epsilon:g}", *(_write(found[*cell, epsilon, way]) for way in ways))
                for cell in cells
                for epsilon in EPSILONS
            ],
        ),
        "",
        "## Means over all cells",
        "",
        "With standard errors over networks.",
        "",
        write_table(
            ("ε", "wanted", *ways),
            [
                (
                    f"{epsilon:g}",
                    " / ".join(f"{target:.2f}" for target in TARGETS[epsilon]),
                    *(_write_mean([found[*cell, epsilon, way] for cell in cells]) for way in ways),
                )
                for epsilon in EPSILONS
            ],
        ),
        "",
    ]
    if MATRIX in ways:
        lines += _tell_falls(found, cells)
    if anchors:
        lines += _tell_anchors(found, cells, anchors)
    return "\n".join(lines)


def _tell_falls(found: Mapping[tuple[Any, ...], Score], cells: Sequence[tuple[Any, ...]]) -> list[str]:
    """List where the matrix finds less with more budget or more rows."""
    budgets = [((*cell, less), (*cell, more)) for cell in cells for less, more in pairwise(EPSILONS)]
    lengths = sorted({rows for _, rows, _ in cells})
    grown = [
        ((width, less, curved, epsilon), (width, more, curved, epsilon))
        for width, curved in dict.fromkeys((width, curved) for width, _, curved in cells)
        for less, more in pairwise(lengths)
        for epsilon in EPSILONS
    ]
    rows = []
    for less, more in (*budgets, *grown):
        change = np.subtract(found[*more, MATRIX].skeleton, found[*less, MATRIX].skeleton)
        if change.mean() < 0.0:
            step = f"ε {less[3]:g} to {more[3]:g}" if less[:3] == more[:3] else f"{less[1]} to {more[1]} rows"
            fixed = f"{less[1]} rows" if less[:3] == more[:3] else f"ε {less[3]:g}"
            kind = f"{less[0]} columns, {'curved' if less[2] else 'linear'}, {fixed}"
            rows.append((step, kind, f"{change.mean():.3f} ± {_error(change):.3f}"))
    steps = len(budgets) + len(grown)
    lines = ["## Where one matrix finds less with more", ""]
    if not rows:
        return [*lines, f"In none of {steps} steps to a larger ε or to more rows does the skeleton's mean F1 fall.", ""]
    told = f"The skeleton's mean F1 falls in {len(rows)} of {steps} steps to a larger ε or to more rows; the networks"
    return [*lines, told, "are the same before and after.", "", write_table(("step", "where", "change"), rows), ""]


def _tell_anchors(
    found: Mapping[tuple[Any, ...], Score], cells: Sequence[tuple[Any, ...]], anchors: Sequence[str]
) -> list[str]:
    """Set what the same tables give without noise beside the matrix at ε = 1."""
    budget, level = 1.0, ANCHOR_LEVEL
    gaussian, forests = (LARGEST_ORDER[way] for way in ("conditional Gaussian", SLOW))
    shown = [(MATRIX, budget), *((way, 0.0) for way in anchors)]
    rows = [
        (
            *_name(cell),
            *(_write(found[*cell, epsilon, way]) if (*cell, epsilon, way) in found else "" for way, epsilon in shown),
        )
        for cell in cells
    ]
    means = [
        _write_mean([found[*cell, epsilon, way] for cell in cells])
        if all((*cell, epsilon, way) in found for cell in cells)
        else ""
        for way, epsilon in shown
    ]
    return [
        "## Without noise",
        "",
        f"*{NOISELESS}*: the matrix and its search at ε = {NO_NOISE:g}. The others are PC without privacy at level",
        f"{level:g}: *conditional Gaussian* by likelihood ratios of normal numbers in each cell of the levels, up",
        f"to {gaussian} columns given; *Pillai* by pgmpy's test of residuals of random forests, up to",
        f"{forests}, on {SLOW_GRAPHS} of the smallest graphs of each kind: it takes a minute for one.",
        "",
        write_table(
            ("columns", "rows", "effects", f"{MATRIX}, ε = {budget:g}", *anchors), [*rows, ("mean", "", "", *means)]
        ),
        "",
    ]


def _name(cell: tuple[Any, ...]) -> tuple[str, str, str]:
    columns, rows, curved = cell
    return str(columns), str(rows), "curved" if curved else "linear"


def _write(score: Score) -> str:
    return f"{np.mean(score.skeleton):.2f} / {np.mean(score.marked):.2f}"


def _write_mean(scores: Sequence[Score]) -> str:
    """Write means over cells, with standard errors over the networks that cells have in common."""
    parts = []
    for values in ([score.skeleton for score in scores], [score.marked for score in scores]):
        by_network = np.mean(values, axis=0)
        parts.append(f"{by_network.mean():.3f} ± {_error(by_network):.3f}")
    return " / ".join(parts)


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan

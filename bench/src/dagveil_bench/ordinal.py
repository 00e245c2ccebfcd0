"""Ordered levels: random networks of ordinal columns, measured as they are declared and as if they had no order.

A column has five to ten levels. It is a latent number, the sum of effects of its parents' scores and logistic noise,
cut at thresholds. Bent networks have U-shaped effects in half of all edges, which no trend sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.column import Categorical, Column, Ordinal
from dagveil.data.schema import Schema
from dagveil.evaluation.comparison import marked_edge_f1, skeleton_f1
from dagveil.graphs.cpdag import Dag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.mixed import DELTA, LOGIT, STRONGEST, WEAKEST, draw_graph
from dagveil_bench.tables import write_table

COLUMNS: Final = 10
ROWS: Final = (2_000, 10_000, 100_000)
EPSILONS: Final = (0.1, 1.0)
WAYS: Final[Mapping[str, type[Ordinal] | type[Categorical]]] = {"ordinal": Ordinal, "no order": Categorical}


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a network by its seed, its rows, whether effects are bent, a budget, and what is declared."""

    rows: int
    bent: bool
    epsilon: float
    way: str
    seed: int


def draw_rows(dag: Dag, rows: int, bent: bool, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Draw a model over the graph, and codes of levels from it."""
    drawn: dict[str, NDArray[np.int64]] = {}
    for name in dag.order():
        total = rng.logistic(size=rows)
        for parent in sorted(dag.parents(name)):
            score = (drawn[parent] - drawn[parent].mean()) / (drawn[parent].std() or 1.0)
            if bent and rng.random() < 0.5:
                score = (score**2 - 1.0) / math.sqrt(2.0)
            total += LOGIT * rng.uniform(WEAKEST, STRONGEST) * rng.choice((-1.0, 1.0)) * score
        levels = int(rng.integers(5, 11))
        shares = np.cumsum(rng.dirichlet(np.full(levels, 5.0)))[:-1]
        drawn[name] = np.searchsorted(np.quantile(total, shares), total)
    return {name: drawn[name] for name in dag.nodes}


def run_case(case: Case) -> tuple[float, float]:
    """Draw a network, release evidence and search it; return F1 of the skeleton and of marked edges."""
    rng = np.random.default_rng([case.seed, case.bent])
    dag = draw_graph(COLUMNS, rng)
    drawn = draw_rows(dag, case.rows, case.bent, rng)
    declared: dict[str, Column] = {
        name: WAYS[case.way](levels=tuple(map(str, range(int(codes.max()) + 1))), outside="0")
        for name, codes in drawn.items()
    }
    schema = Schema(dataset="ordinal", columns=declared, reviewed=True, public=True, nominal_rows=case.rows)
    table = pa.table({name: codes.astype(str) for name, codes in drawn.items()})
    evidence = measure_source(table, schema, case.epsilon, DELTA, noise=NoiseKind.SEEDED, seed=case.seed, ledger=None)
    found = search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag
    truth = dag.cpdag()
    return skeleton_f1(found, truth), marked_edge_f1(found, truth)


def list_cases(graphs: int, seed: int) -> Iterator[Case]:
    """List all runs; a network is the same at all budgets and ways."""
    cells = product(ROWS, (False, True), EPSILONS, WAYS, range(graphs))
    return (Case(rows, bent, epsilon, way, seed + graph) for rows, bent, epsilon, way, graph in cells)


def run_ordinal(cases: Sequence[Case], told: Progress) -> dict[tuple[Any, ...], list[tuple[float, float]]]:
    """Run all cases; scores are by rows, bent, epsilon and way."""
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for done, case in enumerate(cases, start=1):
        found.setdefault((case.rows, case.bent, case.epsilon, case.way), []).append(run_case(case))
        told("runs", done, len(cases))
    return found


def ordinal_page(found: Mapping[tuple[Any, ...], list[tuple[float, float]]], graphs: int, command: str) -> str:
    """Write what was found as a page."""
    cells = dict.fromkeys(key[:3] for key in found)
    rows = [
        (
            rows,
            "bent" if bent else "monotone",
            f"{epsilon:g}",
            *(_write(found[rows, bent, epsilon, way]) for way in WAYS),
        )
        for rows, bent, epsilon in cells
    ]
    return "\n".join(
        [
            "# Ordered levels",
            "",
            f"Random networks of {COLUMNS} columns with five to ten levels, {graphs} in each cell: F1 of the skeleton,",
            "F1 of edges with their marks, found without redraws. *ordinal*: columns are declared in order, and",
            "`measure` takes trends where noise is heavy; *no order*: the same columns declared as categorical, which",
            "is how ordered levels were measured before. Bent networks have U-shaped effects in half of their edges,",
            "which no trend sees.",
            "",
            f"    {command}",
            "",
            write_table(("rows", "effects", "ε", *WAYS), rows),
            "",
        ]
    )


def _write(scores: Sequence[tuple[float, float]]) -> str:
    return " / ".join(f"{mean:.2f}" for mean in np.mean(scores, axis=0))

"""How good the graphs are: scores of `measure` against known networks, over budgets and repetitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.errors import MethodError
from dagveil.evaluation.comparison import cpdag_shd, marked_edge_f1
from dagveil.evaluation.skeleton import rate_skeleton
from dagveil.examples.networks import load_network
from dagveil.examples.simulate import (
    gaussian_schema,
    network_schema,
    random_linear_gaussian,
    random_network,
    sample_codes,
    sample_linear_gaussian,
)
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.methods.catalogue import method_named
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover
from dagveil.search.settings import SearchSettings
from dagveil_bench.nonlinear import nonlinear_dag, nonlinear_schema, sample_over, with_bins

_SIMULATED = ("random", "gaussian", "gaussian-unscaled")
_NONLINEAR = ("nonlinear", "nonlinear-binned")
KINDS = (*_SIMULATED, *_NONLINEAR)
"""Sources that are drawn from a model: first words of `Cell.source`."""

Told = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a study: what is sampled, how much of it, and the budget.

    Parameters
    ----------
    source
        Name of a network; "random D S" for a random categorical network of D nodes and sparseness S; "gaussian D S"
        for a linear Gaussian one, "gaussian-unscaled D S" for one whose spreads the schema does not declare;
        "nonlinear NAME" for nonlinear numeric columns over the graph of a network, "nonlinear-binned NAME" for the same
        rows with public bins. NAME may be "sachs-cells": the measured cells instead of a simulation.
    n_rows
        Rows.
    epsilon, delta
        Budget.
    method
        Name of the method.
    calibration
        Sound, or as published.
    options
        Settings of the method, by name.
    sample
        Number of the sample that all runs of the cell share; None draws a fresh one for each run.
    """

    source: str
    n_rows: int
    epsilon: float
    delta: float = 1e-6
    method: str = "measure"
    calibration: Calibration = Calibration.SOUND
    options: tuple[tuple[str, Any], ...] = ()
    sample: int | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one run, or their means; questions and reported epsilon are 0 where a method has none."""

    f1: float
    tpr: float
    fpr: float
    tdr: float
    marked_f1: float
    shd: float
    arrow_hits: float
    arrows: float
    questions: float = 0.0
    reported: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over the runs of a cell, the standard error of the skeleton's F1, the fewest and the most questions."""

    cell: Cell
    runs: int
    mean: Scores
    f1_error: float
    fewest: float = 0.0
    most: float = 0.0

    @property
    def arrow_precision(self) -> float:
        """Share of all arrows found, over all runs, that are compelled in the truth."""
        return self.mean.arrow_hits / self.mean.arrows if self.mean.arrows else float("nan")


def run_cell(cell: Cell, run: int, seed: int) -> Scores:
    """Sample, discover and score once; the seed of a run does not depend on the other cells."""
    key = [seed, run, crc32(cell.source.encode()), cell.n_rows, int(cell.epsilon * 1_000_000)]
    if cell.sample is None:
        rng = np.random.default_rng(key)
        table, dag = draw_table(cell, rng)
    else:
        rng = np.random.default_rng([*key, cell.sample])
        table, dag = draw_table(cell, np.random.default_rng([seed, cell.sample, *key[2:4]]))
    method = method_named(cell.method)
    searched = method.release is not None and cell.calibration is Calibration.SOUND
    result = discover(
        table,
        table.schema,
        cell.epsilon,
        cell.delta,
        method=cell.method,
        calibration=cell.calibration,
        options=dict(cell.options),
        settings=SearchSettings(redraws=0) if searched else None,
        noise=NoiseKind.SEEDED,
        seed=int(rng.integers(2**62)),
        ledger=None,
    )
    reported = result.reported.epsilon if result.reported is not None else 0.0
    return replace(score(result.graph.cpdag, dag), questions=float(result.questions or 0), reported=reported)


def score(found: Cpdag, dag: Dag) -> Scores:
    """Compare a graph with the truth."""
    truth = dag.cpdag()
    rates = rate_skeleton(found, dag)
    return Scores(
        f1=rates.f1,
        tpr=rates.tpr,
        fpr=rates.fpr,
        tdr=rates.tdr,
        marked_f1=marked_edge_f1(found, truth),
        shd=cpdag_shd(found, truth),
        arrow_hits=len(found.directed & truth.directed),
        arrows=len(found.directed),
    )


def run_study(cells: Sequence[Cell], runs: int, seed: int, workers: int, told: Told) -> list[Summary]:
    """Run every cell so many times, on all cores.

    Parameters
    ----------
    cells
        What to run.
    runs
        Repetitions per cell.
    seed
        Of the whole study.
    workers
        Processes.
    told
        Told after each run.
    """
    for cell in cells:
        check_source(cell.source)
    jobs = [(cell, run, seed) for cell in cells for run in range(runs)]
    scores: list[Scores] = []
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for done, result in enumerate(pool.map(_run_job, jobs, chunksize=1), start=1):
            scores.append(result)
            told("runs", done, len(jobs))
    return [summarise(cell, scores[i * runs : (i + 1) * runs]) for i, cell in enumerate(cells)]


def summarise(cell: Cell, scores: Sequence[Scores]) -> Summary:
    """Average the runs of a cell."""
    values = np.array([[getattr(s, name) for name in Scores.__slots__] for s in scores], dtype=np.float64)
    error = float(values[:, 0].std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else float("nan")
    asked = [s.questions for s in scores]
    return Summary(cell, len(scores), Scores(*values.mean(axis=0).tolist()), error, min(asked), max(asked))


def _run_job(job: tuple[Cell, int, int]) -> Scores:
    return run_cell(*job)


def check_source(source: str) -> None:
    """Refuse a source that no cell can sample, before a study starts."""
    kind, *numbers = source.split() or [""]
    if kind in _SIMULATED:
        try:
            nodes, sparseness = int(numbers[0]), float(numbers[1])
        except (IndexError, ValueError):
            nodes, sparseness = 0, 0.0
        if nodes < 2 or not 0.0 <= sparseness <= 1.0 or len(numbers) != 2:
            raise MethodError(
                f"{source!r} needs a number of nodes, 2 or more, and a sparseness from 0 to 1, the share of pairs that "
                f"are joined, for example '{kind} 20 0.1'"
            )
    elif kind in _NONLINEAR:
        if len(numbers) != 1:
            raise MethodError(f"{source!r} needs the name of a network, for example '{kind} asia'")
        nonlinear_dag(numbers[0])
    else:
        load_network(source)


def draw_table(cell: Cell, rng: np.random.Generator) -> tuple[MemoryTable, Dag]:
    """Draw the rows of a cell, with their true graph."""
    kind, *numbers = cell.source.split()
    if kind.startswith("gaussian"):
        model = random_linear_gaussian(int(numbers[0]), float(numbers[1]), rng)
        rows = sample_linear_gaussian(model, cell.n_rows, rng)
        schema = gaussian_schema(model, cell.n_rows, declare_spread=kind == "gaussian")
        return MemoryTable.from_source(dict(zip(model.nodes, rows.T, strict=True)), schema), model.dag()
    if kind in _NONLINEAR:
        columns, dag = sample_over(numbers[0], cell.n_rows, rng)
        schema = nonlinear_schema(columns, len(next(iter(columns.values()))))
        schema = with_bins(schema) if kind == "nonlinear-binned" else schema
        return MemoryTable.from_source(columns, schema), dag
    network = (
        random_network(int(numbers[0]), float(numbers[1]), rng, (2, 5)) if kind == "random" else load_network(kind)
    )
    codes = sample_codes(network, cell.n_rows, rng)
    return MemoryTable.from_codes(codes, network_schema(network, cell.n_rows)), network.dag()

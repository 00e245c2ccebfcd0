"""Linear NOTEARS beside gCastle's on the same rows: structural Hamming distance and seconds.

gCastle needs PyTorch even for its linear learner, so it is in no extra of this package: install it beside dagveil and
run ``python -m dagveil.benchmarks.notears_peers``. Its cost grows with the rows, so each fit runs in a process of its
own and is given up after a limit; a time with ">" is a lower bound.
"""

from __future__ import annotations

import enum
import multiprocessing
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection

import click
import numpy as np
from numpy.typing import NDArray

from dagveil.errors import GraphError, MissingExtraError
from dagveil.search.score.acyclicity import Acyclicity
from dagveil.search.score.notears import NotearsSettings, find_weights
from dagveil.search.score.threshold import weights_to_dag

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PENALTY = 0.1
THRESHOLD = 0.3
"""The published choices, for both programs."""

PEER = "gCastle"
IMPORT_LIMIT = 120.0
"""Seconds that the peer may take to be imported; they do not count."""


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


@dataclass(frozen=True, slots=True)
class Fit:
    """One program on one sample; a distance of None means that it was given up after `seconds`."""

    case: Case
    program: str
    seed: int
    distance: int | None
    seconds: float


def draw_weights(case: Case, rng: np.random.Generator) -> Floats:
    """Draw a DAG with weights between 0.5 and 2 in size, of random sign, its nodes in random order.

    Examples
    --------
    >>> draw_weights(Case(Shape.SCALE_FREE, Error.GAUSSIAN, 6, 10), np.random.default_rng(0)).shape
    (6, 6)
    """
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
    """Return the structural Hamming distance of two graphs; a turned edge counts once.

    Examples
    --------
    >>> count_differences(np.array([[False, True], [False, False]]), np.array([[False, False], [True, False]]))
    1
    """
    differs = found != truth
    return int(np.triu(differs | differs.T).sum())


def compare(
    cases: Iterable[Case],
    runs: int,
    seed: int,
    limit: float,
    told: Callable[[Fit], None] = lambda fit: None,
    measures: Iterable[Acyclicity] = tuple(Acyclicity),
) -> list[Fit]:
    """Fit every case with our measures of cycles and with the peer.

    Parameters
    ----------
    cases
        Settings.
    runs
        Samples per setting.
    seed
        Of the first sample; others follow.
    limit
        Seconds after which a fit of the peer is given up; 0 leaves the peer out.
    told
        Told after each fit.
    measures
        Measures of cycles to try.
    """
    measures = tuple(measures)
    fits: list[Fit] = []
    for case in cases:
        for run in range(seed, seed + runs):
            rng = np.random.default_rng([run, case.n_nodes])
            weights = draw_weights(case, rng)
            rows = draw_rows(weights, case, rng)
            for acyclicity in measures:
                start = time.perf_counter()
                adjacency = _fit(rows, acyclicity)
                seconds = time.perf_counter() - start
                name = f"dagveil, {acyclicity.value}"
                fits.append(Fit(case, name, run, count_differences(adjacency, weights != 0.0), seconds))
                told(fits[-1])
            if limit > 0.0:
                found, seconds = _fit_peer(rows, limit)
                distance = None if found is None else count_differences(found, weights != 0.0)
                fits.append(Fit(case, PEER, run, distance, seconds))
                told(fits[-1])
    return fits


def comparison_page(fits: list[Fit]) -> str:
    """Return a Markdown table: medians of distance and seconds, side by side."""
    programs = list(dict.fromkeys(fit.program for fit in fits))
    head = ["graph", "errors", "nodes", "rows", *(f"{program}: SHD, seconds" for program in programs)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for case in dict.fromkeys(fit.case for fit in fits):
        cells = [f"{case.shape.value} {case.edges_per_node}", case.error.value, f"{case.n_nodes}", f"{case.n_rows}"]
        for program in programs:
            cells.append(_summarise([fit for fit in fits if fit.case == case and fit.program == program]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _summarise(fits: list[Fit]) -> str:
    distances = [fit.distance for fit in fits if fit.distance is not None]
    mark = "" if len(distances) == len(fits) else "> "
    distance = f"{np.median(distances):g}" if distances else "–"
    return f"{distance}, {mark}{np.median([fit.seconds for fit in fits]):.2f}" if fits else "–"


def _fit(rows: Floats, acyclicity: Acyclicity) -> Bools:
    """Ours, from rows to graph: the covariance is part of the time."""
    d = rows.shape[1]
    weights = find_weights(rows.T @ rows / len(rows), NotearsSettings(penalty=PENALTY, acyclicity=acyclicity))
    adjacency = np.zeros((d, d), dtype=np.bool_)
    for edge in weights_to_dag(weights, THRESHOLD):
        adjacency[edge] = True
    return adjacency


def _fit_peer(rows: Floats, limit: float) -> tuple[Bools | None, float]:
    """Return the peer's graph and its seconds, or None and the limit."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_learn_with_peer, args=(there, rows), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(IMPORT_LIMIT) or here.recv() != "ready":
            raise MissingExtraError("the comparison needs gCastle and PyTorch: pip install gcastle torch")
        if not here.poll(limit):
            return None, limit
        adjacency, seconds = here.recv()
        return np.asarray(adjacency, dtype=np.bool_), float(seconds)
    except EOFError as error:
        raise MissingExtraError("gCastle's process ended early; is it installed, with PyTorch?") from error
    finally:
        process.terminate()
        process.join()


def _learn_with_peer(pipe: Connection, rows: Floats) -> None:
    try:
        peer = import_module("castle.algorithms")
    except ImportError:
        pipe.send("missing")
        return
    pipe.send("ready")
    start = time.perf_counter()
    learner = peer.Notears(lambda1=PENALTY, w_threshold=THRESHOLD)
    learner.learn(rows)
    seconds = time.perf_counter() - start
    pipe.send((np.asarray(learner.causal_matrix) != 0, seconds))


@click.command()
@click.option("--nodes", type=click.IntRange(2), multiple=True, default=(10, 20, 50), show_default=True)
@click.option("--rows", type=click.IntRange(2), multiple=True, default=(1000, 100_000), show_default=True)
@click.option("--errors", type=click.Choice([e.name.lower() for e in Error]), multiple=True, help="All if not given.")
@click.option("--measures", type=click.Choice([a.value for a in Acyclicity]), multiple=True, help="All if not given.")
@click.option("--edges", type=click.IntRange(1), default=2, show_default=True, help="Edges per node.")
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Samples per setting.")
@click.option("--seed", type=click.IntRange(0), default=101, show_default=True, help="Seed of the first sample.")
@click.option("--limit", type=float, default=60.0, show_default=True, help="Seconds for a fit of the peer; 0: none.")
def main(
    nodes: tuple[int, ...],
    rows: tuple[int, ...],
    errors: tuple[str, ...],
    measures: tuple[str, ...],
    edges: int,
    runs: int,
    seed: int,
    limit: float,
) -> None:
    """Print a table of distances and seconds."""
    laws = [error for error in Error if not errors or error.name.lower() in errors]
    cases = [Case(shape, law, d, n, edges) for d in nodes for n in rows for shape in Shape for law in laws]
    tried = [acyclicity for acyclicity in Acyclicity if not measures or acyclicity.value in measures]
    fits = compare(cases, runs, seed, limit, lambda fit: click.echo(f"{fit}", err=True), tried)
    click.echo(comparison_page(fits))


if __name__ == "__main__":
    main()

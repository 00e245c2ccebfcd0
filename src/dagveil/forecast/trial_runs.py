"""Rehearsals: methods run on made-up tables, whose graphs are known, to see what they would find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import msgspec
import numpy as np

from dagveil.data.schema import Schema
from dagveil.errors import DagveilError
from dagveil.evaluation.skeleton import skeleton_f1
from dagveil.forecast.synthetic import Law, MadeUp, make_up
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, Release
from dagveil.progress import Progress
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

STAGE = "rehearsing on made-up tables"
"""What progress is told."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """All runs on one made-up table.

    Parameters
    ----------
    schema, knowledge, law, rows
        What the table is drawn from.
    seed, model
        Which table it is.
    methods, budgets
        Every method runs at every budget, with the same seed of its noise.
    """

    schema: Schema
    knowledge: Knowledge
    law: Law
    rows: int
    seed: int
    model: int
    methods: tuple[str, ...]
    budgets: tuple[Budget, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What came of one run: its skeleton's F1, the largest order of released tables, or why it failed."""

    method: str
    place: int
    f1: float | None = None
    order: int | None = None
    failure: str | None = None


def rehearse_all(rehearsals: Sequence[Rehearsal], workers: int, progress: Progress) -> list[Outcome]:
    """Run all of them, in one process or in several; the outcomes are the same.

    Parameters
    ----------
    rehearsals
        One for each made-up table.
    workers
        Processes.
    progress
        Told how many runs are done.
    """
    total = sum(len(one.methods) * len(one.budgets) for one in rehearsals)
    done: list[Outcome] = []

    def tell(further: int) -> None:
        progress(STAGE, len(done) + further, total)

    tell(0)
    for outcomes in _work(rehearsals, workers, tell):
        done.extend(outcomes)
        tell(0)
    return done


def rehearse(rehearsal: Rehearsal, told: Callable[[int], None] | None = None) -> list[Outcome]:
    """Run every method at every budget on one made-up table.

    Parameters
    ----------
    rehearsal
        What to run.
    told
        Told after each run how many are done.
    """
    key = (rehearsal.seed, rehearsal.model)
    rng = np.random.default_rng(key)
    made = make_up(rehearsal.schema, rehearsal.knowledge, rehearsal.law, rehearsal.rows, rng)
    # the same draws at every budget: what differs along a curve is the budget alone
    seed = int(np.random.SeedSequence((*key, 1)).generate_state(1)[0])
    outcomes: list[Outcome] = []
    for method in rehearsal.methods:
        for place, budget in enumerate(rehearsal.budgets):
            outcomes.append(_run(made, rehearsal.knowledge, method, place, budget, seed))
            if told is not None:
                told(len(outcomes))
    return outcomes


def most_common_order(orders: Sequence[int]) -> int | None:
    """Return the order that most runs had; the smaller one if two are as common.

    Examples
    --------
    >>> most_common_order([3, 2, 3, 2]), most_common_order([])
    (2, None)
    """
    counts = Counter(orders)
    return min(counts, key=lambda order: (-counts[order], order)) if counts else None


def _run(made: MadeUp, knowledge: Knowledge, method: str, place: int, budget: Budget, seed: int) -> Outcome:
    table = made.table
    order = None
    try:
        if method_named(method).release is None:
            result = discover(
                table,
                table.schema,
                budget.epsilon,
                budget.delta,
                method=method,
                knowledge=knowledge,
                noise=NoiseKind.SEEDED,
                seed=seed,
                ledger=None,
            )
        else:
            evidence = measure_source(
                table,
                table.schema,
                budget.epsilon,
                budget.delta,
                method=method,
                knowledge=knowledge,
                noise=NoiseKind.SEEDED,
                seed=seed,
                ledger=None,
            )
            order = max((_order(release) for release in evidence.releases), default=None)
            result = search_evidence(evidence, SearchSettings(redraws=0), knowledge=knowledge)
    except DagveilError as error:
        return Outcome(method, place, failure=str(error))
    return Outcome(method, place, skeleton_f1(result.graph.cpdag, made.dag), order)


def _order(release: Release) -> int:
    """Return how many columns a released table joins; a matrix of moments joins pairs."""
    return len(release.columns) if isinstance(release, NoisyCounts | NoisyInteractions) else 2


def _work(rehearsals: Sequence[Rehearsal], workers: int, told: Callable[[int], None]) -> Iterator[list[Outcome]]:
    if workers <= 1 or len(rehearsals) <= 1:
        for one in rehearsals:
            yield rehearse(one, told)
        return
    # spawned, not forked: a fork would copy the state of threads and generators
    with ProcessPoolExecutor(min(workers, len(rehearsals)), mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(rehearse, one) for one in rehearsals]:
            yield future.result()

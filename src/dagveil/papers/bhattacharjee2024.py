"""Bhattacharjee and Tandon 2024 as published: CURATE by constraints and by scores."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from dagveil.curator import Question
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Level, NotNegative
from dagveil.methods.curate import allocate
from dagveil.methods.noleaks import Schedule
from dagveil.papers.common import PublishedTests, describe_published
from dagveil.papers.ma2022 import NOLEAKS_FLAW, NoleaksPublished, publish_noleaks
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Traversal, prune


class CurateScorePublished(NoleaksPublished, frozen=True, kw_only=True):
    """Constants of the published program: those of `noleaks`, but for the schedule."""

    schedule: Schedule = Schedule.MULTIPLICATIVE


CURATE_P_VALUE_CONSTANT: Final = 0.3627
"""CURATE's program: sensitivity of the p-value times √n. False: blocks switch in and out, whatever n is."""


CURATE_FLAW = (
    "one record moves the p-value by far more than the stated sensitivity, and the published program charges only the "
    "questions that removed an edge, after the run"
)


class CuratePublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published program.

    Parameters
    ----------
    threshold
        T, on the p-value.
    margins
        β₁ and β₂.
    band
        c₁ and c₂ of Lemma 1.
    failure
        δ′ of advanced composition in each order.
    total_delta
        Reported with the run.
    """

    threshold: Level = 0.05
    margins: tuple[NotNegative, NotNegative] = (0.2, 0.2)
    band: tuple[NotNegative, NotNegative] = (1.0, 1.0)
    failure: Level = 1e-14
    total_delta: float = 1e-10


def error_bound(epsilon: float, distance: float, margin: float, band: float) -> float:
    """Return Lemma 1's bound c/2 + ½ exp(−β ε T/Δ) on a wrong decision, in which T/Δ is the threshold in records.

    With β₁ and c₁ it bounds the probability of keeping what the exact statistic removes, with β₂ and c₂ the opposite;
    c is the probability that the noisy value lands in the band where a coin decides.

    Examples
    --------
    >>> round(error_bound(0.1, 100.0, 0.2, 0.1), 4)
    0.1177
    """
    return band / 2.0 + 0.5 * math.exp(-margin * epsilon * distance)


def publish_curate(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: CuratePublished, progress: Progress
) -> Asked:
    """Run the published program: edges in the band stay, and e is never updated."""
    columns = tuple(access.schema.columns)
    d = len(columns)
    tests = PublishedTests(access)
    sensitivity = CURATE_P_VALUE_CONSTANT / math.sqrt(access.n_rows)
    log_failure = math.log(1.0 / settings.failure)
    left = total = float(budget.epsilon)
    epsilon, removed, orders = 0.0, 0, 0

    def price() -> float:
        return removed * epsilon**2 + epsilon * math.sqrt(2.0 * removed * log_failure)

    def start_order(order: int, graph: Pruning) -> bool:
        nonlocal left, epsilon, removed, orders
        left -= price()
        questions = [d * (d - 1) // 2 * math.comb(d - 2, j) for j in range(order, d - 1)]
        linear = [math.sqrt(2.0 * t * log_failure) for t in questions]
        distance = settings.threshold / sensitivity
        found = allocate(questions, max(left, 1e-9), linear, distance, settings.margins, settings.band)
        epsilon, removed, orders = max(float(found[0]), 1e-12), 0, orders + 1
        return True

    def is_independent(question: Question) -> bool:
        nonlocal removed
        noisy = tests.kendall(question) + access.rng.laplace(0.0, sensitivity / epsilon)
        if noisy <= settings.threshold * (1.0 + settings.margins[1]):
            return False
        removed += 1
        return True

    sweep = prune(columns, is_independent, d - 2, knowledge, Traversal.PUBLISHED, start_order, progress=progress)
    left -= price()
    return describe_published(access.schema, sweep, knowledge, (total - left, settings.total_delta))


PUBLICATIONS = {
    "curate": Publication(
        {Calibration.PROGRAM: Reading(CuratePublished, publish_curate, CURATE_FLAW)},
        "only the constants of the authors' program are declared so far",
    ),
    "curate-score": Publication(
        {Calibration.PAPER: Reading(CurateScorePublished, publish_noleaks, NOLEAKS_FLAW)},
        "the authors' program for it is an archive that could not be read",
    ),
}

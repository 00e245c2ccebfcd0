"""Ma, Ji, Pang and Wang 2022 as published: NoLeaks."""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
import numpy as np

from dagveil.data.column import Numeric
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, NotNegative, Positive, Rate
from dagveil.methods.noleaks import (
    BITS,
    Clip,
    Floats,
    Schedule,
    descend,
    epsilon_at,
    read_graph,
    row_plan,
    tell_direction,
)
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.conversion import mu_squared_of
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.score.notears import forbidden_entries


def published_gradient_sensitivity(n_columns: int, n_rows: int, clip: float) -> float:
    """Return √(d(d − 1)) s / n, NOLEAKS' sensitivity of a gradient whose *mean* was clipped entry by entry at s.

    False: clipping a mean bounds the mean, not what one record does to it.
    """
    return math.sqrt(n_columns * (n_columns - 1)) * clip / n_rows


NOLEAKS_FLAW = (
    "the mean gradient is clipped instead of each record's, so one record moves it by many times the stated "
    "sensitivity, and the line search reads raw losses"
)


class NoleaksPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published program, but for the edge threshold, which it chooses with the true graph.

    Parameters
    ----------
    iterations
        Gradients of the run.
    outer
        Rounds of the augmented Lagrangian.
    penalty
        λ of the ℓ₁ penalty.
    clip
        Entries of the *mean* gradient are clipped to this.
    question_delta
        δ of each gradient.
    threshold
        Smallest weight that counts as an edge.
    schedule
        How the budget of each iteration follows from the first one's.
    initial_share
        ε₀ over the run's epsilon. None takes 1/iterations.
    """

    iterations: Count = 30
    outer: Count = 5
    penalty: NotNegative = 0.1
    clip: Clip = 2.0
    question_delta: Positive = 1e-4
    threshold: Positive = 0.15
    schedule: Schedule = Schedule.UNIFORM
    initial_share: Rate | None = None


def publish_noleaks(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: NoleaksPublished, progress: Progress
) -> Asked:
    """Run the published method: the mean gradient is clipped, and the exact loss sets the steps."""
    columns = tuple(access.schema.columns)
    d, n = len(columns), max(access.n_rows, 1)
    levels = {
        name: access.exact_table((name,)) / n
        for name, column in access.schema.columns.items()
        if not isinstance(column, Numeric)
    }
    plan = row_plan(access.schema, levels)
    moments = access.exact_moments(plan).astype(np.float64)[1:, 1:] / 4.0**BITS / n
    sensitivity = published_gradient_sensitivity(d, n, settings.clip)
    delta = Fraction(settings.question_delta).limit_denominator(10**15)
    initial = float(budget.epsilon) * (settings.initial_share or 1.0 / settings.iterations)
    reported = 0.0

    def loss_gradient(weights: Floats, k: int) -> Floats:
        nonlocal reported
        epsilon = epsilon_at(settings.schedule, initial, k, settings.iterations)
        reported += epsilon
        # the analytic Gaussian mechanism: the mu whose (epsilon, delta) curve passes through this point
        mu = math.sqrt(mu_squared_of(Budget(Fraction(epsilon), delta)))
        mean = np.clip(-(moments @ (np.eye(d) - weights)), -settings.clip, settings.clip)
        return np.asarray(mean + access.rng.normal(0.0, sensitivity / mu, (d, d)))

    def curvature(direction: Floats, k: int) -> float:
        return float(np.trace(direction.T @ moments @ direction))

    forbidden = forbidden_entries(columns, knowledge)
    counts = (settings.iterations, settings.outer)
    weights = descend(d, loss_gradient, curvature, *counts, settings.penalty, forbidden, progress)
    total_delta = settings.iterations * settings.question_delta
    findings = (
        f"{settings.iterations} gradients were asked.",
        tell_direction(settings.schedule, initial),
        f"The paper would report epsilon {reported:.4g} and delta {total_delta:.3g}; that claim does not hold.",
    )
    graph = read_graph(columns, weights, settings.threshold, knowledge)
    return Asked(graph, (), findings, settings.iterations, (), (reported, total_delta))


PUBLICATIONS = {
    "noleaks": Publication(
        {Calibration.PROGRAM: Reading(NoleaksPublished, publish_noleaks, NOLEAKS_FLAW)},
        "only the constants of the authors' program are declared so far",
    ),
}

"""Gradients through the door: charge, record, draw; never beyond the total; and the noise that was declared."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spies import SpyNoise, SpyRun, spy_on

from dagveil.curator import Curator
from dagveil.curator.questions import GradientQuestions
from dagveil.data.column import Numeric
from dagveil.data.gradients import GradientPlan
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, Filter, GaussianFilter, PureFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.moments import curvature_squared_sensitivity, gradient_squared_sensitivity

BITS = 10
ROWS = MomentPlan(("x", "y", "z"), (0.0, 0.0, 0.5), (1.0, 2.0, 1.0), 9.0, 1.0, BITS)
WEIGHTS = np.array([[0.0, 0.5, 0.0], [0.0, 0.0, -1.0], [0.2, 0.0, 0.0]])
DIRECTION = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
CLIP, CAP = 4.0, 9.0


class StrictNoise(SpyNoise):
    """Every draw is the whole of its charge."""

    def discrete_gaussian(self, variance: Fraction, size: int) -> np.ndarray:
        event = self.run.events[-1]
        assert isinstance(event, DiscreteGaussian)
        assert (event.variance, event.draws) == (variance, size)
        return super().discrete_gaussian(variance, size)


def make_values(n: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(n) for name in ROWS.columns}


def make_table() -> MemoryTable:
    schema = Schema(dataset="numbers", columns={name: Numeric(bounds=(-5, 5)) for name in ROWS.columns}, reviewed=True)
    return MemoryTable.from_source(make_values(), schema)


def make_descent(
    fails: bool = False, relation: Relation = Relation.ADD_REMOVE
) -> tuple[GradientQuestions, Curator, list[str], SpyRun]:
    log: list[str] = []
    run = SpyRun(log, fails)
    accounting = spy_on(GaussianFilter(Budget.of(1, 1e-6)), log)
    curator = Curator(make_table(), relation, accounting, run, StrictNoise(log, run))
    return curator.ask_gradients(ROWS), curator, log, run


QUESTIONS: dict[str, Callable[[GradientQuestions, Fraction], object]] = {
    "gradient": lambda descent, share: descent.gradient(WEIGHTS, CLIP, share, "gradient"),
    "curvature": lambda descent, share: descent.curvature(DIRECTION, CAP, share, "curvature"),
}
every_question = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)


def clipped_rows() -> np.ndarray:
    z = (np.stack(list(make_values().values()), axis=1) - ROWS.centers) / ROWS.spreads
    return z * np.minimum(1.0, 3.0 / np.linalg.norm(z, axis=1))[:, None]


@every_question
def test_charge_then_record_then_draw(ask: Callable[[GradientQuestions, Fraction], object]) -> None:
    descent, curator, log, run = make_descent()
    for number in (1, 2, 3):
        ask(descent, Fraction(1, 10))
        assert log == ["charge", "record", "draw"] * number
        assert descent.asked == number
    assert tuple(run.events) == curator.events


@every_question
def test_what_would_overspend_is_refused(ask: Callable[[GradientQuestions, Fraction], object]) -> None:
    descent, curator, log, run = make_descent()
    ask(descent, Fraction(2, 3))
    spent = curator.accounting.spent
    with pytest.raises(BudgetExceededError):
        ask(descent, Fraction(1, 2))
    assert log == ["charge", "record", "draw"]
    assert (descent.asked, len(run.events), curator.accounting.spent) == (1, 1, spent)


@every_question
def test_nothing_is_drawn_when_the_ledger_fails(ask: Callable[[GradientQuestions, Fraction], object]) -> None:
    descent, curator, log, _ = make_descent(fails=True)
    with pytest.raises(LedgerError):
        ask(descent, Fraction(1, 2))
    # charged, so it can never be asked for free, and not drawn
    assert log == ["charge"]
    assert curator.accounting.spent > 0
    assert descent.asked == 0


@every_question
@pytest.mark.parametrize("share", [Fraction(0), Fraction(-1, 2)])
def test_no_share_no_answer(ask: Callable[[GradientQuestions, Fraction], object], share: Fraction) -> None:
    descent, _, log, _ = make_descent()
    with pytest.raises(BudgetError, match="above 0"):
        ask(descent, share)
    assert log == []


@given(st.lists(st.tuples(st.sampled_from(list(QUESTIONS)), st.fractions(Fraction(1, 1000), Fraction(1))), max_size=12))
@settings(max_examples=40, deadline=None)
def test_no_sequence_exceeds_the_total(questions: list[tuple[str, Fraction]]) -> None:
    descent, curator, _, _ = make_descent()
    for name, share in questions:
        try:
            QUESTIONS[name](descent, share)
        except BudgetExceededError:
            continue
    assert curator.accounting.spent <= curator.accounting.total
    assert sum(curator.accounting.cost(event) for event in curator.events) == curator.accounting.spent
    assert len(curator.events) == descent.asked


@pytest.mark.parametrize("relation", Relation)
def test_events_hold_the_proved_sensitivities(relation: Relation) -> None:
    descent, curator, _, _ = make_descent(relation=relation)
    for ask in QUESTIONS.values():
        ask(descent, Fraction(1, 3))
    gradient, curvature = curator.events
    assert isinstance(gradient, DiscreteGaussian)
    assert isinstance(curvature, DiscreteGaussian)
    plan = GradientPlan(ROWS, tuple(map(tuple, WEIGHTS.tolist())), CLIP)
    assert gradient.squared_sensitivity == gradient_squared_sensitivity(relation, plan)
    assert curvature.squared_sensitivity == curvature_squared_sensitivity(ROWS, CAP)
    assert (gradient.draws, curvature.draws) == (9, 1)


def test_without_noise_the_answers_are_the_clipped_sums() -> None:
    descent, _, _, _ = make_descent()
    z = clipped_rows()
    residuals = z - z @ WEIGHTS
    lengths = np.linalg.norm(z, axis=1) * np.linalg.norm(residuals, axis=1)
    factors = np.minimum(1.0, CLIP / lengths)
    assert (factors < 1.0).any()
    assert (factors == 1.0).any()
    gradient, _ = descent.gradient(WEIGHTS, CLIP, Fraction(1, 4), "gradient")
    assert np.allclose(gradient, -(z * factors[:, None]).T @ residuals, atol=60 * 2.0**-BITS * 9)
    curvature, _ = descent.curvature(DIRECTION, CAP, Fraction(1, 4), "curvature")
    squares = (z @ DIRECTION) ** 2
    assert curvature == pytest.approx(np.minimum(squares.sum(axis=1), CAP).sum(), abs=60 * 2.0**-BITS)


@every_question
def test_answers_carry_the_noise_that_they_state(ask: Callable[[GradientQuestions, Fraction], object]) -> None:
    run = SpyRun([])
    noise = noise_source(NoiseKind.SEEDED, 0)
    curator = Curator(make_table(), Relation.ADD_REMOVE, GaussianFilter(Budget.of(1, 1e-6)), run, noise)
    descent = curator.ask_gradients(ROWS)
    answers, deviations = zip(*(ask(descent, Fraction(1, 500)) for _ in range(400)), strict=True)  # type: ignore[misc]
    (stated,) = set(deviations)
    values = np.stack([np.asarray(answer) for answer in answers])
    drawn = values - values.mean(axis=0)
    ratio = math.sqrt(float((drawn**2).sum()) / (drawn.size - drawn[0].size)) / stated
    # four standard errors of a deviation
    assert abs(ratio - 1.0) < 4.0 / math.sqrt(2.0 * drawn.size)


@every_question
def test_pure_accounting_cannot_pay(ask: Callable[[GradientQuestions, Fraction], object]) -> None:
    run = SpyRun([])
    accounting: Filter = PureFilter(Budget.of(1, 0))
    curator = Curator(make_table(), Relation.ADD_REMOVE, accounting, run, noise_source(NoiseKind.SEEDED, 0))
    with pytest.raises(BudgetError, match="give a delta above 0"):
        ask(curator.ask_gradients(ROWS), Fraction(1, 2))
    assert run.events == []

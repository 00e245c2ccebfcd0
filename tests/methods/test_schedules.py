"""Schedules: Lemma 2's numbers of iterations added up, which way budgets go, and that it is told."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dagveil.errors import MethodError
from dagveil.methods.noleaks import (
    CurateScoreSettings,
    Schedule,
    describe_direction,
    epsilon_at,
    iterations_allowed,
    shares,
)
from dagveil.papers.publication import readings_of

every_schedule = pytest.mark.parametrize("schedule", Schedule)
RISING = (Schedule.ADDITIVE, Schedule.EXPONENTIAL)


def add_up(schedule: Schedule, initial: float, iterations: int) -> float:
    return math.fsum(epsilon_at(schedule, initial, k, iterations) for k in range(iterations))


@every_schedule
@given(initial=st.floats(0.001, 5.0), factor=st.floats(1.0, 200.0))
def test_the_number_of_lemma_2_fits(schedule: Schedule, initial: float, factor: float) -> None:
    total = initial * factor
    allowed = iterations_allowed(schedule, total, initial)
    iterations = math.floor(allowed * (1.0 - 1e-9))
    assume(iterations >= 1)
    assert add_up(schedule, initial, iterations) <= total * (1.0 + 1e-9)


@pytest.mark.parametrize("schedule", [Schedule.UNIFORM, Schedule.ADDITIVE, Schedule.MULTIPLICATIVE])
@given(initial=st.floats(0.001, 5.0), factor=st.floats(1.0, 200.0))
def test_one_more_does_not_fit(schedule: Schedule, initial: float, factor: float) -> None:
    total = initial * factor
    more = math.floor(iterations_allowed(schedule, total, initial) * (1.0 + 1e-9)) + 1
    assert add_up(schedule, initial, more) > total * (1.0 - 1e-9)


def test_the_exponential_number_is_loose() -> None:
    """As printed, every iteration is charged like the last one: e/(e − 1) times as many would fit."""
    total, initial = 10.0, 0.01
    printed = math.floor(iterations_allowed(Schedule.EXPONENTIAL, total, initial))
    assert printed == 367
    fitting = printed
    while add_up(Schedule.EXPONENTIAL, initial, fitting + 1) <= total:
        fitting += 1
    assert fitting / printed == pytest.approx(math.e / (math.e - 1.0), rel=0.01)


@pytest.mark.parametrize(("total", "initial"), [(1.0, 0.0), (1.0, -0.1), (0.05, 0.1)])
@every_schedule
def test_a_first_epsilon_that_does_not_fit(schedule: Schedule, total: float, initial: float) -> None:
    with pytest.raises(MethodError, match=r"does not fit a total of .*; choose a smaller one"):
        iterations_allowed(schedule, total, initial)


@every_schedule
@given(initial=st.floats(0.001, 1000.0), iterations=st.integers(1, 100))
def test_shares_are_squares_and_add_up(schedule: Schedule, initial: float, iterations: int) -> None:
    parts = shares(schedule, initial, iterations)
    assert len(parts) == iterations
    assert math.fsum(parts) == pytest.approx(1.0)
    assert min(parts) > 0.0
    first, last = (epsilon_at(schedule, initial, k, iterations) for k in (0, iterations - 1))
    assert parts[-1] / parts[0] == pytest.approx((last / first) ** 2)


@pytest.mark.parametrize("schedule", RISING)
@given(initial=st.floats(0.001, 1000.0), iterations=st.integers(2, 60))
def test_rising_schedules_rise_whatever_the_first_epsilon(schedule: Schedule, initial: float, iterations: int) -> None:
    parts = shares(schedule, initial, iterations)
    assert all(later > earlier for earlier, later in pairwise(parts))
    assert describe_direction(schedule, initial) == "Later iterations get more budget than earlier ones."


@given(initial=st.floats(0.001, 1000.0).filter(lambda x: abs(x - 1.0) > 1e-3), iterations=st.integers(2, 60))
def test_the_multiplicative_schedule_goes_by_the_first_epsilon(initial: float, iterations: int) -> None:
    parts = shares(Schedule.MULTIPLICATIVE, initial, iterations)
    told = describe_direction(Schedule.MULTIPLICATIVE, initial)
    assert (parts[-1] > parts[0]) == (initial > 1.0) == ("get more" in told)
    assert ("get less" in told) == ("falls for an initial epsilon below 1" in told) == (initial < 1.0)


def test_the_same_for_all() -> None:
    for schedule, initial in ((Schedule.UNIFORM, 0.3), (Schedule.MULTIPLICATIVE, 1.0)):
        assert shares(schedule, initial, 4) == [0.25] * 4
        assert describe_direction(schedule, initial) == "Every iteration gets the same budget."
    assert iterations_allowed(Schedule.MULTIPLICATIVE, 7.0, 1.0) == 7.0


def test_the_default_rises() -> None:
    assert CurateScoreSettings().schedule in RISING
    published = next(iter(readings_of("curate-score").values())).settings()
    assert published.schedule is Schedule.MULTIPLICATIVE

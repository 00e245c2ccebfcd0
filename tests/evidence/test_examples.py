"""Small examples of what the functions of evidence/ return."""

from __future__ import annotations

import numpy as np

from dagveil.evidence.bundle import digest_releases
from dagveil.evidence.questions import Questions
from dagveil.evidence.strata import encode_questions, margins_of
from dagveil.evidence.tables import NoisyTable, add_total, combine
from dagveil.evidence.wald import Remainder


def test_digest_releases() -> None:
    assert digest_releases(())[:8] == "4f53cda1"


def test_margins_of() -> None:
    assert margins_of(np.array([[1.0, 2.0], [3.0, 4.0]])).of((0,)).tolist() == [3.0, 7.0]


def test_encode_questions() -> None:
    assert encode_questions(Questions.of([(0, 1, (2, 3)), (1, 0, (3, 2))]), 10).tolist() == [123, 123]


def test_noisy_table_margin() -> None:
    assert NoisyTable(("a", "b"), np.ones((2, 3)), 1.0).margin(("a",)).variance == 3.0


def test_combine() -> None:
    assert combine(
        [NoisyTable(("a",), np.zeros(2), 1.0), NoisyTable(("a",), np.full(2, 3.0), 2.0)]
    ).counts.tolist() == [1.0, 1.0]


def test_add_total() -> None:
    assert (
        repr(
            add_total([NoisyTable(("a",), np.array([2.0, -2.0]), 4.0)], NoisyTable((), np.array(10.0), 4.0))["a"].counts
        )
        == "array([7., 3.])"
    )


def test_remainder_odds() -> None:
    left = Remainder(np.array([0.0, 0.1, 0.5]), np.array([0.0, 100.0, 100.0]), np.full(3, 0.8))
    assert left.odds(100_000.0).round(1).tolist() == [0.0, -1.5, 11.3]
    assert repr(left.odds(1000.0).round(1).tolist()) == "[0.0, -inf, 11.3]"

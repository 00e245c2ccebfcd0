"""Small examples of what the functions of plans/ return."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.plans.combine import add_releases
from dagveil.plans.plan_file import digest_questions
from dagveil.privacy.release import NoisyCounts


def test_add_releases() -> None:
    north = NoisyCounts(("a",), (2,), 1, Fraction(3), (40, 60))
    south = NoisyCounts(("a",), (2,), 4, Fraction(16), (20, 44))
    both = add_releases([[north], [south]])[0]
    assert (both.counts.tolist(), both.count_variance) == ([45.0, 71.0], 4.0)


def test_digest_questions() -> None:
    north = Schema(dataset="north", columns={"smokes": Boolean(outside="false")}, nominal_rows=10)
    assert digest_questions(north) == digest_questions(msgspec.structs.replace(north, dataset="south", nominal_rows=20))

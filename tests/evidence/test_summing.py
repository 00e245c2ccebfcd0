"""Sums of releases: exact, whatever the lattices, and read with the whole variance of their noise."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dagveil.errors import EvidenceError
from dagveil.evidence.bundle import independence_from
from dagveil.evidence.questions import Questions
from dagveil.plans.combine import add_releases
from dagveil.privacy.release import (
    NoisyCounts,
    NoisyFeatureMoments,
    NoisyInteractions,
    NoisyMagnitudes,
    NoisyMoments,
    Release,
)

VALUES = st.integers(-(2**70), 2**70)
VARIANCES = st.fractions(min_value=Fraction(1, 10), max_value=10**9)
LATTICES = st.sampled_from([1, 2, 8, 2048, 3])


@st.composite
def tables(draw: st.DrawFn) -> list[Release]:
    """Draw what several sites answer to one question."""
    sites = draw(st.integers(1, 4))
    kind = draw(st.sampled_from([NoisyCounts, NoisyInteractions, NoisyMagnitudes]))
    shape = (2, 3)
    releases: list[Release] = []
    for _ in range(sites):
        values = tuple(draw(st.lists(VALUES, min_size=prod(shape), max_size=prod(shape))))
        lattice, variance = draw(LATTICES), draw(VARIANCES)
        if kind is NoisyMagnitudes:
            releases.append(NoisyMagnitudes("a", 0.5, -3, lattice, variance, values))
        else:
            releases.append(kind(("a", "b"), shape, lattice, variance, values))
    return releases


class TestSums:
    @given(tables())
    def test_counts_and_variances_add_exactly(self, releases: list[Release]) -> None:
        (total,) = add_releases([[release] for release in releases])
        assert not isinstance(total, NoisyMoments | NoisyFeatureMoments)
        for cell, value in enumerate(total.values):
            expected = sum(Fraction(release.values[cell], release.lattice) for release in releases)  # type: ignore[union-attr]
            assert Fraction(value, total.lattice) == expected
        variance = sum(release.variance / release.lattice**2 for release in releases)  # type: ignore[union-attr]
        assert total.variance / total.lattice**2 == variance

    def test_moments_add_with_both_variances(self) -> None:
        first = NoisyMoments(("a",), (0.0,), (1.0,), 4.0, 1.0, 10, Fraction(5), Fraction(10), (1, 2, 3))
        second = replace(first, variance=Fraction(1, 3), diagonal_variance=Fraction(2, 3), values=(10, 20, 30))
        (total,) = add_releases([[first], [second]])
        assert total == replace(first, variance=Fraction(16, 3), diagonal_variance=Fraction(32, 3), values=(11, 22, 33))

    def test_features_add(self) -> None:
        first = NoisyFeatureMoments(
            ("a",), (0.0,), (1.0,), "legendre", 1, 4.0, 1.0, 10, Fraction(5), Fraction(10), (1, 2, 3)
        )
        (total,) = add_releases([[first], [first], [first]])
        assert (total.variance, total.values) == (15, (3, 6, 9))

    @pytest.mark.parametrize(
        "change", [{"columns": ("a", "c")}, {"shape": (4, 1)}], ids=["other columns", "another shape"]
    )
    def test_different_questions_are_refused(self, change: dict[str, object]) -> None:
        table = NoisyCounts(("a", "b"), (2, 2), 1, Fraction(1), (1, 2, 3, 4))
        with pytest.raises(EvidenceError, match="different questions"):
            add_releases([[table], [replace(table, **change)]])

    @pytest.mark.parametrize("change", [{"centers": (1.0,)}, {"radius_squared": 5.0}, {"bits": 9}, {"constant": 2.0}])
    def test_moments_in_other_units_are_refused(self, change: dict[str, object]) -> None:
        moments = NoisyMoments(("a",), (0.0,), (1.0,), 4.0, 1.0, 10, Fraction(5), Fraction(10), (1, 2, 3))
        with pytest.raises(EvidenceError, match="different questions"):
            add_releases([[moments], [replace(moments, **change)]])

    def test_kinds_numbers_and_lost_values_are_refused(self) -> None:
        table = NoisyCounts(("a", "b"), (2, 2), 1, Fraction(1), (1, 2, 3, 4))
        other = NoisyInteractions(("a", "b"), (2, 2), 1, Fraction(1), (1, 2, 3, 4))
        with pytest.raises(EvidenceError, match="different questions"):
            add_releases([[table], [other]])
        with pytest.raises(EvidenceError, match="different numbers of tables"):
            add_releases([[table], [table, table]])
        with pytest.raises(EvidenceError, match="lost values"):
            add_releases([[table], [replace(table, values=(1, 2, 3))]])
        with pytest.raises(EvidenceError):
            add_releases([])


class TestNoiseOfSums:
    """Independent columns at five sites with Laplace noise: the sum is not Laplace, and tests keep their level."""

    RUNS, SITES, SCALE, ROWS = 400, 5, 20.0, 400

    def rejections(self, claimed: float) -> float:
        """Return the share of true independences that are rejected at 5 % if the noise is said to be so large."""
        rng = np.random.default_rng(5)
        question = Questions.of([(0, 1, (2,))])
        rejected = 0
        for _ in range(self.RUNS):
            sites = []
            for _ in range(self.SITES):
                codes = rng.integers(0, 2, size=(3, self.ROWS))
                counts = np.bincount(codes[0] * 4 + codes[1] * 2 + codes[2], minlength=8)
                noise = np.round(rng.laplace(0.0, self.SCALE, 8)).astype(int)
                variance = Fraction(claimed * 2.0 * self.SCALE**2)
                sites.append([NoisyCounts(("x", "y", "z"), (2, 2, 2), 1, variance, tuple((counts + noise).tolist()))])
            tests = independence_from(("x", "y", "z"), add_releases(sites))
            assert tests is not None
            rejected += int(tests.test(question).p_value[0] < 0.05)
        return rejected / self.RUNS

    def test_the_level_holds_with_the_whole_variance_and_not_with_one_site_s(self) -> None:
        assert 0.02 <= self.rejections(1.0) <= 0.09
        assert self.rejections(1 / self.SITES) > 0.15

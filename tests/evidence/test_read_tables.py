from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dagveil.evidence.tables import NoisyTable, combine_alike, read_tables, two_way_margins
from dagveil.privacy.release import NoisyCounts, NoisyInteractions


def test_tables_are_read_together_as_one_by_one():
    rng = np.random.default_rng(1)
    releases: list[NoisyCounts | NoisyInteractions] = []
    for place in range(30):
        shape = (2 + place % 3, 2 + place % 2)
        values = tuple(rng.integers(-(2**60), 2**60, shape[0] * shape[1]).tolist())
        names = (f"x{place}", f"y{place}")
        variance, lattice = Fraction(7 + place % 2, 3), 1 + place % 5
        kind = NoisyInteractions if place % 4 == 0 else NoisyCounts
        releases.append(kind(names, shape, lattice, variance, values))
    releases.append(NoisyCounts((), (), 3, Fraction(5), (11,)))
    for release, table in zip(releases, read_tables(releases), strict=True):
        assert table.columns == release.columns
        np.testing.assert_array_equal(table.counts, release.counts)
        assert table.counts.shape == release.counts.shape
        is_counts = isinstance(release, NoisyCounts)
        assert table.variance == (release.count_variance if is_counts else release.interaction_variance)


def test_nothing_is_read_from_nothing():
    assert read_tables([]) == []


def test_releases_are_combined_together_as_one_by_one():
    """Pairs of every margin, averaged by inverse variance, whatever the order of columns and the shapes."""
    rng = np.random.default_rng(4)
    levels = {"a": 2, "b": 3, "c": 3, "d": 5}
    tables = []
    for size in (2, 3, 2, 3):
        for columns in combinations(levels, size):
            names = tuple(rng.permutation(columns).tolist())
            counts = rng.normal(100, 10, [levels[name] for name in names])
            tables.append(NoisyTable(names, counts, rng.uniform(1, 9), tuple(rng.uniform(0.5, 2, size).tolist())))
    triples = [table for table in tables if len(table.columns) == 3]
    for size, combined in ((2, combine_alike(two_way_margins(tables))), (3, combine_alike(triples))):
        assert set(combined) == {frozenset(columns) for columns in combinations(levels, size)}
        for names, table in combined.items():
            holding = [t for t in tables if names <= set(t.columns) and (size == 2 or len(t.columns) == 3)]
            margins = [t.margin(table.columns) for t in holding]
            weights = np.array([1 / margin.variance for margin in margins])
            assert table.variance == pytest.approx(1 / weights.sum())
            mean = sum(w * margin.counts for w, margin in zip(weights, margins, strict=True)) / weights.sum()
            np.testing.assert_allclose(table.counts, mean)
            flatness = weights @ np.array([margin.flatness for margin in margins]) / weights.sum()
            np.testing.assert_allclose(table.flatness, flatness)

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dagveil.evidence.tables import read_tables
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

"""Mutual information is G in another unit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dagveil.privacy.budget import Relation
from dagveil.statistics.g import GRID, G, MutualInformation
from dagveil.statistics.statistic import TableShape


def test_the_same_integers_as_g() -> None:
    tables = np.random.default_rng(1).integers(0, 90, (30, 2, 3, 3))
    np.testing.assert_array_equal(MutualInformation(900).values(tables), G(900).values(tables))
    shape = TableShape(2, 3, 3)
    for relation in Relation:
        assert MutualInformation(900).sensitivity(relation, shape) == G(900).sensitivity(relation, shape)
    assert MutualInformation(900).critical_value(0.01, 900.0, shape) == G(900).critical_value(0.01, 900.0, shape)


def test_the_unit_is_nats_per_row() -> None:
    statistic = MutualInformation(1000)
    p = np.array([[0.4, 0.1], [0.2, 0.3]])
    exact = float((p * np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum())
    found = int(statistic.values((1000 * p).round().astype(np.int64)[None])) / GRID / 2000
    assert found == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("n", [100, 10_000])
def test_the_sensitivity_is_the_bound_of_privbayes(n: int) -> None:
    """Replace one record, one side binary: (1/n) ln n + ((n − 1)/n) ln(n/(n − 1))."""
    statistic = MutualInformation(n)
    bound = math.log(n) / n + (n - 1) / n * math.log(n / (n - 1))
    found = statistic.sensitivity(Relation.REPLACE_ONE, TableShape(1, 2, 4)) / GRID / (2 * n)
    assert found == pytest.approx(bound, abs=1e-7)

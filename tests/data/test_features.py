"""Features of rows: the polynomials, what a row may become, and exact sums of products."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import Basis, FeaturePlan, quantise_rows, sum_outer_products
from dagveil.data.schema import Schema
from dagveil.errors import SchemaError

NAMES = ("x", "y", "z")
numbers = st.one_of(
    st.floats(-4.0, 4.0), st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, -0.0, 2.5, -1.5])
)
rows = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=12)


def make_plan(degree: int = 3, radius: float = 6.0, bits: int = 8, **changes: Any) -> FeaturePlan:
    facts: dict[str, Any] = {"columns": NAMES, "centers": (0.5, 0.0, -1.0), "reaches": (2.0, 1.0, 0.1)} | changes
    return FeaturePlan(**facts, basis=Basis.LEGENDRE, degree=degree, radius_squared=radius, constant=1.1, bits=bits)


def quantise_features(values: np.ndarray, plan: FeaturePlan) -> np.ndarray:
    return quantise_rows(plan.expand(values.T).T, plan.rows)


def test_features_are_legendre_polynomials_with_mean_square_one() -> None:
    plan = make_plan(degree=8, columns=("x",), centers=(1.0,), reaches=(2.0,))
    t = np.linspace(-1.0, 1.0, 20_001)
    features = plan.expand((1.0 + 2.0 * t)[None, :])
    for power, feature in enumerate(features, start=1):
        np.testing.assert_allclose(feature, math.sqrt(2 * power + 1) * special.eval_legendre(power, t), atol=1e-12)
        assert np.trapezoid(feature**2, t) / 2.0 == pytest.approx(1.0, abs=1e-4)


def test_values_are_cut_and_missing_ones_are_the_center() -> None:
    plan = make_plan(columns=("x",), centers=(0.5,), reaches=(2.0,))
    wild = plan.expand(np.array([[2.5, 1e308, math.inf, -1.5, -math.inf, math.nan, 0.5]]))
    assert np.array_equal(wild[:, 0], wild[:, 1])
    assert np.array_equal(wild[:, 0], wild[:, 2])
    assert np.array_equal(wild[:, 3], wild[:, 4])
    assert np.array_equal(wild[:, 5], wild[:, 6])
    # no row is longer than its polynomials at the ends: k (k + 2) per column
    assert float((wild**2).sum(axis=0).max()) == pytest.approx(15.0)


def test_no_rows_have_features_too() -> None:
    assert make_plan(degree=3).expand(np.empty((3, 0))).shape == (9, 0)


def slow_vector(row: tuple[float, ...], plan: FeaturePlan) -> list[int]:
    """The same vector in rational arithmetic, up to the last bit of rounding."""
    features = []
    for value, center, reach in zip(row, plan.centers, plan.reaches, strict=True):
        t = 0.0 if math.isnan(value) else min(max((value - center) / reach, -1.0), 1.0)
        features += [math.sqrt(2 * j + 1) * float(special.eval_legendre(j, t)) for j in range(1, plan.degree + 1)]
    length = sum(feature**2 for feature in features)
    factor = math.sqrt(min(1.0, plan.radius_squared / length)) if length else 1.0
    return [math.trunc(1.1 * 2**plan.bits), *(math.trunc(f * factor * 2**plan.bits) for f in features)]


@given(rows, st.sampled_from([0.0, 0.7, 6.0, 45.0]), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_vectors_of_rows(values: list[tuple[float, ...]], radius: float, degree: int) -> None:
    plan = make_plan(degree, radius)
    vectors = quantise_features(np.array(values), plan)
    assert vectors.shape == (len(values), 1 + 3 * degree)
    for row, vector in zip(values, vectors, strict=True):
        assert sum(int(entry) ** 2 for entry in vector) <= plan.rows.norm_squared_bound()
        assert max(abs(a - int(b)) for a, b in zip(slow_vector(row, plan), vector, strict=True)) <= 1
        # a row's vector does not depend on the rows beside it
        assert np.array_equal(quantise_features(np.array([row]), plan)[0], vector)


@given(rows)
@settings(max_examples=40, deadline=None)
def test_sums_are_exact(values: list[tuple[float, ...]]) -> None:
    plan = make_plan(2)
    vectors = [[int(entry) for entry in vector] for vector in quantise_features(np.array(values), plan)]
    slow = [[sum(v[i] * v[j] for v in vectors) for j in range(7)] for i in range(7)]
    columns = list(np.array(values).T)
    assert sum_outer_products(columns, plan, n_rows=len(values)).tolist() == slow


def test_blocks_add_up_and_the_engine_agrees() -> None:
    plan = make_plan(3)
    sample = np.random.default_rng(1).standard_normal((9000, 3))
    vectors = quantise_features(sample, plan)
    schema = Schema(dataset="wide", columns={name: Numeric(bounds=(-9, 9)) for name in NAMES}, reviewed=True)
    table = MemoryTable.from_source(dict(zip(NAMES, sample.T, strict=True)), schema)
    assert np.array_equal(table.outer_products(plan), vectors.T @ vectors)
    with pytest.raises(SchemaError, match="no column 'w'"):
        table.outer_products(make_plan(2, columns=("x", "y", "w")))


def test_where_a_row_stands_does_not_matter() -> None:
    """Vectorised loops treat the ends of arrays differently; integers must come out the same."""
    plan = make_plan(4, bits=16)
    sample = np.random.default_rng(2).uniform(-3.0, 3.0, (257, 3))
    whole = quantise_features(sample, plan)
    for start in (1, 2, 3, 5, 8, 13):
        assert np.array_equal(quantise_features(sample[start:], plan), whole[start:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reaches": (1.0, 2.0)}, "3 columns, 3 centers and 2 reaches"),
        ({"reaches": (1.0, 0.0, 1.0)}, "reach"),
        ({"reaches": (1.0, math.inf, 1.0)}, "reach"),
        ({"centers": (1.0, math.nan, 1.0)}, "center"),
        ({"degree": 0}, "0 features"),
        ({"degree": 9}, "choose 1 to 8"),
        ({"radius": -1.0}, "radius_squared"),
        ({"bits": 60}, "bits"),
        ({"columns": ("x", "x", "z")}, "twice"),
    ],
)
def test_plans_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make_plan(**changes)


def test_the_cap_is_the_ball_and_the_constant() -> None:
    plan = make_plan(2, radius=6.0, bits=8)
    assert plan.rows.norm_squared_bound() == math.floor(Fraction(6) * 4**8) + math.trunc(1.1 * 2**8) ** 2

"""Nonlinear simulated tables: the model that they follow, and schemas as a person would write them."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.data.column import Numeric
from dagveil.examples.networks import load_network
from dagveil.graphs.cpdag import Dag
from dagveil_bench.nonlinear import nonlinear_schema, sample_nonlinear


def test_roots_are_uniform_and_children_follow_their_parents() -> None:
    dag = Dag(("child", "root", "alone"), frozenset({("root", "child")}))
    seen = set()
    for seed in range(40):
        rows = sample_nonlinear(dag, 4000, np.random.default_rng(seed))
        assert list(rows) == ["child", "root", "alone"]
        for name in ("root", "alone"):
            assert 0.24 < np.abs(rows[name]).max() <= 0.5
            assert abs(rows[name].mean()) < 0.02
        # given the root, only b ε with |b ε| <= ½ is left around one of the five functions
        root = rows["root"]
        fits = [
            name
            for name, function in (("cos", np.cos), ("exp", np.exp), ("square", np.square), ("odd", np.tanh))
            if min(np.abs(rows["child"] - function(a * root)).max() for a in np.linspace(0.5, 1.0, 26)) <= 0.51
        ]
        assert fits
        seen.update(fits)
    assert seen == {"cos", "exp", "square", "odd"}


@pytest.mark.parametrize("name", ["cancer", "asia", "child", "alarm"])
def test_rows_are_finite_on_every_network(name: str) -> None:
    dag = load_network(name).dag()
    for seed in range(10):
        rows = sample_nonlinear(dag, 500, np.random.default_rng(seed))
        assert set(rows) == set(dag.nodes)
        assert all(np.isfinite(column).all() and column.std() > 0.0 for column in rows.values())


def test_the_same_seed_gives_the_same_rows() -> None:
    dag = load_network("asia").dag()
    one, other = (sample_nonlinear(dag, 50, np.random.default_rng(7)) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in dag.nodes)


@pytest.mark.parametrize("declare_spread", [True, False])
def test_schemas_hold_all_rows_and_are_round(declare_spread: bool) -> None:
    rows = sample_nonlinear(load_network("alarm").dag(), 1000, np.random.default_rng(2))
    schema = nonlinear_schema(rows, 1000, declare_spread)
    assert schema.nominal_rows == 1000
    for name, values in rows.items():
        column = schema.columns[name]
        assert isinstance(column, Numeric)
        lower, upper = column.bounds
        assert lower <= values.min() <= values.max() <= upper
        assert upper - lower <= (values.max() - values.min()) + 3.0 * values.std()
        assert (column.spread is None) == (column.center is None) == (not declare_spread)
        if column.spread is not None:
            assert float(f"{column.spread:.1g}") == column.spread
            assert column.spread == pytest.approx(values.std(), rel=0.5)

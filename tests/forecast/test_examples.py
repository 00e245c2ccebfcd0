"""Small examples of what the functions of forecast/ return."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.forecast.choose import fitting_methods, most_common_order, scale_budget
from dagveil.forecast.detection import Weakest, _round_up, find_weakest
from dagveil.forecast.recommendation import Curve, Point, reach
from dagveil.forecast.synthetic import SyntheticLaw, make_synthetic
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.budget import Budget


def test_fitting_methods() -> None:
    schema = Schema(dataset="demo", columns={name: Boolean(outside="false") for name in "abc"})
    found = fitting_methods(schema, Knowledge.none(), (Budget.of(1, 0),))
    assert (found["measure"] is None, found["priv-pc-star"] is None) == (True, False)


def test_scale_budget() -> None:
    assert scale_budget(Budget.of(1, 0), 100_000, 20_000).words == "epsilon 5, delta 0"


def test_find_weakest() -> None:
    columns = {name: Boolean(outside="false") for name in "abcdefghijkl"}
    schema = Schema(dataset="study", columns=columns, reviewed=True)
    assert [round(find_weakest(schema, Budget.of(epsilon, 1e-6), 10_000).typical, 2) for epsilon in (0.3, 3)] == [
        0.06,
        0.04,
    ]


def test_round_up() -> None:
    assert (_round_up(0.1234), _round_up(7601)) == ("0.13", "7700")


def test_reach() -> None:
    nowhere = Weakest("correlation", None, None)
    points = [Point(Fraction(e), f, f, f, None, nowhere) for e, f in ((1, 0.5), (4, 0.9))]
    assert float(reach(Curve("measure", tuple(points)), 0.7)) == 2.0


def test_synthetic_law() -> None:
    assert (SyntheticLaw().density(21), SyntheticLaw().density(3)) == (0.15, 0.5)


def test_make_synthetic() -> None:
    schema = Schema(dataset="demo", columns={name: Boolean(outside="false") for name in "abcd"})
    made = make_synthetic(schema, Knowledge.none(), SyntheticLaw(), 100, np.random.default_rng(1))
    assert (made.table.n_rows, made.dag.nodes) == (100, ("a", "b", "c", "d"))


def test_most_common_order() -> None:
    assert (most_common_order([3, 2, 3, 2]), most_common_order([])) == (2, None)

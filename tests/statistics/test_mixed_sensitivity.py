"""The declared sensitivity of moments of levels beside numbers against a search for worse neighbours."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dagveil.data.column import Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.mixed import MixedPairs, MixedPlan, level_step
from dagveil.data.moments import quantise_rows
from dagveil.data.schema import Schema
from dagveil.errors import SchemaError
from dagveil.privacy.budget import Relation
from dagveil.statistics.moments import moments_squared_sensitivity, pair_moments_squared_sensitivity


def make_plan(sizes: tuple[int, ...], degrees: tuple[int, ...], per_feature: float, bits: int) -> MixedPlan:
    radius_squared = per_feature * sum(degrees)
    constant = math.sqrt(max(1.0, (radius_squared + len(sizes)) / 10.0))
    levels = tuple(f"l{k}" for k in range(len(sizes)))
    numbers = tuple(f"x{k}" for k in range(len(degrees)))
    scales = (0.5,) * len(degrees), (2.0,) * len(degrees)
    return MixedPlan(levels, sizes, numbers, *scales, degrees, radius_squared, constant, bits)


PLANS = [
    make_plan((2, 3), (1, 1), 0.75, 10),
    make_plan((4,), (2, 2), 1.0, 10),
    make_plan((2, 5, 1), (3,), 2.0, 8),
    make_plan((40,), (1, 3), 0.75, 4),
    replace(make_plan((3,), (1, 2), 0.75, 10), marked=("x0", "x1")),
]


def candidate_rows(plan: MixedPlan, rng: np.random.Generator) -> np.ndarray:
    """Rows at all levels, with numbers at the ends, just inside and outside, at random, huge and broken ones."""
    width = len(plan.numbers)
    ends = np.array(list(product((-1.0, 0.0, 1.0), repeat=width)))
    numbers = np.vstack([ends * factor for factor in (1.0, 1 - 1e-12, 1 + 1e-12, 0.999, 1.5, 1e3, 1e300)])
    some = np.where(rng.random((20, width)) < 0.5, np.nan, rng.uniform(-1.0, 1.0, (20, width)))
    broken = np.vstack([some, [np.nan] * width, [np.inf] * width, [-np.inf] * width])
    numbers = np.vstack([numbers, rng.uniform(-1.0, 1.0, (200, width)), broken]) * 2.0 + 0.5
    codes = np.stack([rng.integers(0, size, len(numbers)) for size in plan.sizes], axis=1).astype(float)
    # codes that no engine gives must not matter either
    codes[-4:] = np.array([np.nan, -3.0, 1e9, 0.5])[:, None]
    return np.hstack([codes, numbers])


def quantise(plan: MixedPlan, rows: np.ndarray) -> np.ndarray:
    return quantise_rows(plan.expand(list(rows.T)).T, plan.rows)


def largest_change(plan: MixedPlan, relation: Relation) -> Fraction:
    """The largest weighted squared change that the search finds, in exact integers."""
    vectors = quantise(plan, candidate_rows(plan, np.random.default_rng(3)))
    gram = (vectors @ vectors.T).astype(object)
    squares = np.diag(gram)
    if relation is Relation.ADD_REMOVE:
        return Fraction(int(squares.max()) ** 2, 2)
    change = squares[:, None] ** 2 + squares[None, :] ** 2 - 2 * gram**2
    return Fraction(int(change.max()), 2)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"levels {plan.sizes}, features {plan.degrees}")
@pytest.mark.parametrize("relation", Relation)
class TestSearch:
    def test_nothing_exceeds_the_bound(self, plan: MixedPlan, relation: Relation) -> None:
        assert largest_change(plan, relation) <= moments_squared_sensitivity(relation, plan)

    def test_a_smaller_bound_fails_the_same_search(self, plan: MixedPlan, relation: Relation) -> None:
        # two rows are hardly ever orthogonal, so the search stays further below the bound for replacing
        share = Fraction(9, 10) if relation is Relation.ADD_REMOVE else Fraction(1, 2)
        assert largest_change(plan, relation) > share * moments_squared_sensitivity(relation, plan)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"levels {plan.sizes}")
def test_levels_have_one_norm_and_nothing_is_rounded(plan: MixedPlan) -> None:
    rows = candidate_rows(plan, np.random.default_rng(4))
    vectors = quantise(plan, rows)
    start = 1
    for place, (size, step) in enumerate(zip(plan.sizes, plan.steps, strict=True)):
        block = vectors[:, start : start + size]
        assert set((block**2).sum(axis=1).tolist()) == {step**2 * size * (size - 1)}
        assert (block.sum(axis=1) == 0).all()
        known = rows[:, place] == np.clip(np.floor(rows[:, place]), 0, size - 1)
        if size > 1:
            assert (block.argmax(axis=1)[known] == rows[known, place]).all()
        start += size
    assert plan.rows.leading == sum(plan.sizes)
    assert (vectors**2).sum(axis=1).max() <= plan.rows.norm_squared_bound()


def test_a_row_is_the_same_wherever_it_stands() -> None:
    plan = PLANS[1]
    rows = candidate_rows(plan, np.random.default_rng(5))
    together = quantise(plan, rows)
    for place in range(0, len(rows), 17):
        assert np.array_equal(quantise(plan, rows[place : place + 1])[0], together[place])


@pytest.mark.parametrize("relation", Relation)
def test_whole_tables_move_as_their_rows_do(relation: Relation) -> None:
    """The engine's own answers on neighbouring tables, wild values included, against the bound."""
    plan = make_plan((3,), (1, 2), 1.0, 8)
    columns = {"l0": Categorical(levels=("0", "1", "2"), outside="0")}
    columns |= {name: Numeric(bounds=(-1e9, 1e9)) for name in plan.numbers}
    schema = Schema(dataset="wild", columns=columns, reviewed=True)
    rng = np.random.default_rng(5)
    base = np.column_stack([rng.integers(0, 3, 40), rng.standard_normal((40, 2))])
    bound = moments_squared_sensitivity(relation, plan)

    def sum_moments(matrix: np.ndarray) -> np.ndarray:
        texts = [str(int(code)) if np.isfinite(code) else "?" for code in matrix[:, 0]]
        source = {"l0": texts, "x0": matrix[:, 1], "x1": matrix[:, 2]}
        return MemoryTable.from_source(source, schema).outer_products(plan)

    start = sum_moments(base)
    worst = Fraction(0)
    for place, row in enumerate(candidate_rows(plan, rng)[::7]):
        cut = np.delete(base, place % 40, axis=0) if relation is Relation.REPLACE_ONE else base
        changed = np.insert(cut, place % 40, row, axis=0)
        change = (sum_moments(changed) - start).astype(object)
        worst = max(worst, Fraction(int((change * change).sum()), 2))
    assert bound / 4 < worst <= bound


CHOSEN = [
    MixedPairs(PLANS[0], (("l0", "x0"), ("x0", "x1"), ("l1", "l0"))),
    MixedPairs(PLANS[1], (("x0", "x1"),)),
    MixedPairs(PLANS[2], (("l0", "l1"), ("l1", "x0"), ("l2", "x0"))),
    MixedPairs(PLANS[3], (("l0", "x0"), ("l0", "x1"))),
    MixedPairs(PLANS[2], (("l0", "l1"),)),
]


def cut_blocks(query: MixedPairs, rows: np.ndarray) -> list[list[int]]:
    """Return the blocks of each row, flat, in exact integers."""
    vectors = query.expand(list(rows.T)).astype(np.int64).astype(object)
    places = {name: slice(place.start - 1, place.stop - 1) for name, place in query.places().items()}
    return [
        [a * b for x, y in query.pairs for a in vector[places[x]] for b in vector[places[y]]] for vector in vectors.T
    ]


@pytest.mark.parametrize("query", CHOSEN, ids=lambda query: "-".join(map("".join, query.pairs)))
class TestChosenPairs:
    def test_nothing_exceeds_the_bound_and_a_smaller_one_fails(self, query: MixedPairs) -> None:
        blocks = cut_blocks(query, candidate_rows(query.plan, np.random.default_rng(3)))
        added = [sum(entry * entry for entry in block) for block in blocks]
        bound = pair_moments_squared_sensitivity(Relation.ADD_REMOVE, query)
        assert max(added) <= bound
        assert max(added) > Fraction(9, 10) * bound

    def test_replacing_moves_at_most_twice_the_length(self, query: MixedPairs) -> None:
        blocks = cut_blocks(query, candidate_rows(query.plan, np.random.default_rng(4))[::5])
        bound = pair_moments_squared_sensitivity(Relation.REPLACE_ONE, query)
        changes = [sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) for one in blocks for other in blocks]
        assert bound / 8 < max(changes) <= bound

    def test_a_row_is_the_same_wherever_it_stands(self, query: MixedPairs) -> None:
        rows = candidate_rows(query.plan, np.random.default_rng(5))
        together = query.expand(list(rows.T))
        for place in range(0, len(rows), 23):
            assert np.array_equal(query.expand(list(rows[place : place + 1].T))[:, 0], together[:, place])


@pytest.mark.parametrize("pairs", [(), (("l0", "l0"),), (("l0", "nothing"),), (("l0", "x0"), ("x0", "l0"))])
def test_pairs_that_make_no_sense_are_refused(pairs: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(SchemaError, match="pair"):
        MixedPairs(PLANS[0], pairs)


def test_many_levels_keep_a_step() -> None:
    assert level_step(1000, 4) == 1
    assert level_step(3, 10) == 341


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": (2,)}, "2 columns with levels and 1 sizes"),
        ({"sizes": (2, 0)}, "no levels"),
        ({"degrees": (1,)}, "2 columns of numbers"),
        ({"degrees": (1, 99)}, "choose 1 to 8"),
        ({"numbers": ("x0", "l0")}, "twice"),
        ({"widths": (1.0, 0.0)}, "spread"),
        ({"bits": 41}, "41 bits"),
    ],
)
def test_plans_that_make_no_sense_are_refused(changed: dict[str, object], message: str) -> None:
    fields = {name: getattr(PLANS[0], name) for name in PLANS[0].__dataclass_fields__}
    with pytest.raises(SchemaError, match=message):
        MixedPlan(**(fields | changed))

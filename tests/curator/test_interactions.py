"""Released interactions: their noise, their price, and the tables that are put together from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spies import SpyRun

from dagveil.curator import Curator
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evidence.tables import NoisyTable, add_total, join_margins, read_tables
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, GaussianFilter, gaussian_cost
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.contingency import interactions_squared_sensitivity, margins_squared_sensitivity

LEVELS = {"a": 2, "b": 3, "c": 5, "d": 2}
PAIRS = list(combinations(LEVELS, 2))


def make_curator(
    make_schema: Callable[..., Schema], relation: Relation = Relation.ADD_REMOVE, epsilon: float = 1.0, seed: int = 1
) -> tuple[Curator, MemoryTable]:
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, levels, 400) for name, levels in LEVELS.items()}
    table = MemoryTable.from_codes(codes, make_schema(LEVELS))
    noise = noise_source(NoiseKind.SEEDED, seed)
    return Curator(table, relation, GaussianFilter(Budget.of(epsilon, 1e-6)), SpyRun([]), noise), table


def centre(counts: np.ndarray) -> np.ndarray:
    counts = counts - counts.mean(axis=0)
    return counts - counts.mean(axis=1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 20.0), st.sampled_from(list(Relation)), st.fractions(Fraction(1, 50), 1))
def test_the_price_covers_every_draw_and_stays_within_the_share(epsilon, relation, share) -> None:
    schema_of = _schema_maker()
    curator, _ = make_curator(schema_of, relation, epsilon)
    released = curator.interactions(PAIRS, share, "pairs")
    (event,) = curator.events
    assert isinstance(event, DiscreteGaussian)
    price = gaussian_cost(event)
    assert price is not None
    assert price <= share * curator.accounting.total
    assert price > Fraction(99, 100) * share * curator.accounting.total
    # what the draws really cost: the change in counts over the variance of the table that is sharpest in counts
    sharpest = min((r.variance - 2) / (r.lattice * math.prod(r.shape)) ** 2 for r in released)
    assert interactions_squared_sensitivity(relation, PAIRS, LEVELS) / sharpest <= price
    assert event.draws == sum(len(release.values) for release in released)
    # every interaction is equally sharp in counts
    variances = [release.interaction_variance for release in released]
    assert max(variances) == pytest.approx(min(variances), rel=1e-4)


def _schema_maker() -> Callable[..., Schema]:
    from dagveil.data.column import Categorical

    def make(levels: dict[str, int]) -> Schema:
        columns = {n: Categorical(tuple(f"l{k}" for k in range(r)), "l0") for n, r in levels.items()}
        return Schema(dataset="d", columns=columns, reviewed=True)

    return make


def test_noise_has_the_declared_variance_and_only_inside_the_subspace(make_schema: Callable[..., Schema]) -> None:
    squares, count, inside = 0.0, 0, 0
    for seed in range(280):
        curator, table = make_curator(make_schema, seed=seed)
        for release in curator.interactions(PAIRS, Fraction(1, 2), "pairs"):
            noise = centre(release.counts) - centre(table.counts(release.columns).astype(float))
            np.testing.assert_allclose(noise.sum(axis=0), 0, atol=1e-9)
            np.testing.assert_allclose(noise.sum(axis=1), 0, atol=1e-9)
            squares += float((noise**2).sum()) / release.interaction_variance
            inside = (release.shape[0] - 1) * (release.shape[1] - 1)
            count += inside
    # a chi-square with so many degrees of freedom; 10 % off would be far outside
    ratio = squares / count
    spread = np.sqrt(2.0 / count)
    assert abs(ratio - 1.0) < 5 * spread
    assert 5 * spread < 0.1


@pytest.mark.parametrize(
    ("d", "levels", "epsilon", "whole"), [(3, 30, 3.0, 1.18), (3, 100, 10.0, 1.32), (2, 200, 30.0, 2.71)]
)
def test_rounding_costs_next_to_nothing_however_large_the_tables(
    d: int, levels: int, epsilon: float, whole: float
) -> None:
    """The noise of pairs, in counts, against what the price allows; `whole`: in whole multiples of r r′."""
    columns = {f"c{place}": levels for place in range(d)}
    pairs = list(combinations(columns, 2))
    table = MemoryTable.from_codes({name: np.arange(400) % levels for name in columns}, _schema_maker()(columns))
    accounting = GaussianFilter(Budget.of(epsilon, 1e-6))
    curator = Curator(table, Relation.ADD_REMOVE, accounting, SpyRun([]), noise_source(NoiseKind.SEEDED, 1))
    released = curator.interactions(pairs, Fraction(3, 8), "pairs")[0]
    best = float(interactions_squared_sensitivity(Relation.ADD_REMOVE, pairs, columns) / (accounting.total * 3 / 8))
    deviation = released.interaction_variance**0.5 / best**0.5
    assert 1.0 <= deviation < 1.001
    unit = math.sqrt(released.variance) / math.prod(released.shape)
    assert math.ceil(unit) / unit * deviation == pytest.approx(whole, abs=0.01)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 20.0), st.sampled_from(list(Relation)), st.fractions(Fraction(1, 50), 1))
def test_margins_cost_their_share_and_are_equally_sharp(epsilon, relation, share) -> None:
    curator, table = make_curator(_schema_maker(), relation, epsilon)
    total, *margins = curator.margins(tuple(LEVELS), share, "margins")
    (event,) = curator.events
    assert isinstance(event, DiscreteGaussian)
    price = gaussian_cost(event)
    assert price is not None
    assert Fraction(99, 100) * share * curator.accounting.total < price <= share * curator.accounting.total
    noisy = [release for release in (total, *margins) if release.variance > 0]
    assert event.draws == sum(len(release.values) for release in noisy)
    in_counts = [(r.variance - 2) / (r.lattice * math.prod(r.shape)) ** 2 for r in noisy]
    assert margins_squared_sensitivity(relation, list(LEVELS.values())) / min(in_counts) <= price
    assert float(max(in_counts)) == pytest.approx(float(min(in_counts)), rel=1e-4)
    assert (total.columns, total.shape) == ((), ())
    assert [release.columns for release in margins] == [(name,) for name in LEVELS]
    assert (total.variance == 0 and total.values == (table.n_rows,)) == (relation is Relation.REPLACE_ONE)


def test_the_number_of_rows_is_free_where_it_is_public(make_schema: Callable[..., Schema]) -> None:
    curator, table = make_curator(make_schema, Relation.REPLACE_ONE)
    rows = curator.count_rows(Fraction(1, 100))
    assert (rows.values, rows.variance, curator.events) == ((table.n_rows,), 0, ())
    secret, _ = make_curator(make_schema, Relation.ADD_REMOVE)
    assert secret.count_rows(Fraction(1, 100)).variance > 0
    assert len(secret.events) == 1


@pytest.mark.parametrize("relation", Relation)
def test_margins_put_together_have_the_noise_that_they_claim(
    relation: Relation, make_schema: Callable[..., Schema]
) -> None:
    """One-way tables share one total: their covariance, inside columns and between them, against what is claimed."""
    found = []
    for seed in range(1500):
        curator, table = make_curator(make_schema, relation, seed=seed)
        total, *margins = read_tables(curator.margins(tuple(LEVELS), Fraction(1, 4), "margins"))
        singles = add_total(margins, total)
        truth = np.concatenate([table.counts((name,)) for name in LEVELS])
        found.append(np.concatenate([singles[name].counts for name in LEVELS]) - truth)
        sums = [single.counts.sum() for single in singles.values()]
        np.testing.assert_allclose(sums, float(total.counts), atol=1e-9)
    claimed = np.zeros((len(truth), len(truth)))
    starts = dict(zip(LEVELS, np.cumsum([0, *LEVELS.values()]), strict=False))
    for a, b in product(LEVELS, repeat=2):
        block = np.full((LEVELS[a], LEVELS[b]), total.variance / (LEVELS[a] * LEVELS[b]))
        if a == b:
            single = singles[a]
            block += single.variance * (np.eye(LEVELS[a]) - 1 / LEVELS[a])
            assert single.cell_variance == pytest.approx(block[0, 0])
            assert single.margin(()).variance == pytest.approx(total.variance)
        claimed[starts[a] : starts[a] + LEVELS[a], starts[b] : starts[b] + LEVELS[b]] = block
    measured = np.cov(np.array(found).T)
    scale = np.sqrt(np.outer(np.diag(claimed), np.diag(claimed)))
    # correlations of 1500 draws have a deviation of at most 0.026, their scale one of 0.037
    assert np.abs((measured - claimed) / scale).max() < 0.15
    if relation is Relation.ADD_REMOVE:
        assert np.abs(claimed[:2, 2:]).max() > 0  # margins that did not share their total would have none


def test_a_table_put_together_has_the_noise_that_it_claims() -> None:
    """Noise in every direction of the table, against `variance` and `flatness`."""
    rng = np.random.default_rng(2)
    rows, columns, variance, margin_variance = 3, 4, 2.0, 5.0
    truth = rng.integers(5, 60, (rows, columns)).astype(float)
    joined = []
    for _ in range(4000):
        interaction = centre(truth) + centre(rng.normal(0, np.sqrt(variance), (rows, columns)))
        total = NoisyTable((), truth.sum() + rng.normal(0, np.sqrt(margin_variance)), margin_variance)
        contrasts = [
            NoisyTable((name,), truth.sum(axis=axis) + rng.normal(0, np.sqrt(margin_variance), size), margin_variance)
            for name, axis, size in (("a", 1, rows), ("b", 0, columns))
        ]
        (table,) = join_margins([NoisyTable(("a", "b"), interaction, variance)], add_total(contrasts, total))
        joined.append(table.counts - truth)
    noise = np.array(joined)
    assert np.abs(noise.mean(axis=0)).max() < 0.3
    both = noise - noise.mean(axis=1, keepdims=True)
    both = both - both.mean(axis=2, keepdims=True)
    measured = (both**2).sum() / (len(noise) * (rows - 1) * (columns - 1))
    assert measured == pytest.approx(table.variance, rel=0.05)
    for axis, flat in ((1, table.flatness[0]), (2, table.flatness[1])):
        # all levels of one column together, centred along the other
        along = noise.sum(axis=axis) / np.sqrt(noise.shape[axis])
        along = along - along.mean(axis=1, keepdims=True)
        measured = (along**2).sum() / (len(noise) * (along.shape[1] - 1))
        assert measured == pytest.approx(table.variance * flat, rel=0.06)

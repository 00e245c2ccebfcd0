"""Released interactions: their noise, their price, and the tables that are put together from them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.curator import Curator
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evidence.tables import NoisyTable, join_margins
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, gaussian_cost
from dagveil.privacy.filter import GaussianFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import interaction_squared_sensitivity

LEVELS = {"a": 2, "b": 3, "c": 5, "d": 2}
PAIRS = list(combinations(LEVELS, 2))


class NoLedger:
    def record(self, event: object) -> None:
        """Forget it."""


def make_curator(
    make_schema: Callable[..., Schema], relation: Relation = Relation.ADD_REMOVE, epsilon: float = 1.0, seed: int = 1
) -> tuple[Curator, MemoryTable]:
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, levels, 400) for name, levels in LEVELS.items()}
    table = MemoryTable.from_codes(codes, make_schema(LEVELS))
    noise = noise_source(NoiseKind.SEEDED, seed)
    return Curator(table, relation, GaussianFilter(Budget.of(epsilon, 1e-6)), NoLedger(), noise), table


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
    # what the draws really cost: each table's own change over its own variance
    real = sum(
        Fraction(interaction_squared_sensitivity(relation, release.shape) * release.lattice**2) / (release.variance - 2)
        for release in released
    )
    assert real <= price
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


def test_a_table_put_together_has_the_noise_that_it_claims() -> None:
    """Noise in every direction of the table, against `variance` and `flatness`."""
    rng = np.random.default_rng(2)
    rows, columns, variance, margin_variance = 3, 4, 2.0, 5.0
    truth = rng.integers(5, 60, (rows, columns)).astype(float)
    joined = []
    for _ in range(4000):
        interaction = centre(truth) + centre(rng.normal(0, np.sqrt(variance), (rows, columns)))
        first = truth.sum(axis=1) + rng.normal(0, np.sqrt(margin_variance), rows)
        second = truth.sum(axis=0) + rng.normal(0, np.sqrt(margin_variance), columns)
        (table,) = join_margins(
            [NoisyTable(("a", "b"), interaction, variance)],
            {
                "a": NoisyTable(("a",), first, margin_variance),
                "b": NoisyTable(("b",), second, margin_variance),
            },
        )
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

"""Columns with levels in linear methods: centred and scaled by released tables, by scores that the schema declares."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagveil.curator import Curator
from dagveil.data.column import Categorical, Numeric, Ordinal
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.methods.asking import Asked
from dagveil.methods.measure import read_shares, release_levels, scale_levels
from dagveil.methods.noleaks import RADIUS_PER_COLUMN, row_plan
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import GaussianFilter
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.release import NoisyCounts, NoisyMoments
from dagveil.runs.discovery import measure_source

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

LEVELS = ("a", "b", "c")


def make_curator(table: MemoryTable) -> Curator:
    budget = Budget.of(1, 1e-6)
    run = MemoryLedger().reserve("levels", budget, TERMS, "pure accounting", "test", "test")
    return Curator(table, Relation.ADD_REMOVE, GaussianFilter(budget), run, noise_source(NoiseKind.SEEDED, 0))


@given(
    st.lists(st.floats(-100, 100), min_size=3, max_size=3, unique=True),
    st.lists(st.integers(0, 1000), min_size=3, max_size=3).filter(any),
)
def test_centre_and_spread_are_mean_and_deviation(scores: list[float], counts: list[int]) -> None:
    column = Categorical(LEVELS, "a", scores=tuple(scores))
    rows = np.repeat(scores, counts)
    center, spread = scale_levels(column, np.array(counts) / sum(counts))
    assert center == pytest.approx(float(rows.mean()), abs=1e-9)
    assert spread > 0.0
    if np.ptp(rows) > 1e-3:
        assert spread == pytest.approx(float(rows.std()), rel=1e-6, abs=1e-9)


def test_a_column_that_never_varies() -> None:
    assert scale_levels(Categorical(("only",), "only"), np.array([1.0])) == (0.0, 1.0)
    assert scale_levels(Categorical(LEVELS, "a"), np.array([0.0, 1.0, 0.0])) == (1.0, 1.0)


def test_shares_of_noisy_counts() -> None:
    """Counts below the noise count as the noise: every level keeps a share, whatever noise was drawn."""
    table = NoisyCounts(("x",), (3,), 1, Fraction(100), (-50, 90, 0))
    assert read_shares(table).tolist() == pytest.approx([10 / 110, 90 / 110, 10 / 110])
    drowned = read_shares(NoisyCounts(("x",), (2,), 1, Fraction(10**8), (-5, -90)))
    assert drowned.tolist() == [0.5, 0.5]


def test_only_columns_with_levels_are_released(sampled: Any) -> None:
    curator = make_curator(sampled("cancer", 500))
    released = release_levels(curator, Fraction(1, 20))
    assert [table.columns for table in released] == [(name,) for name in curator.schema.columns]
    (event,) = curator.events
    assert curator.accounting.cost(event) <= curator.accounting.total / 20
    schema = Schema(dataset="numbers", columns={name: Numeric((0, 1)) for name in "xy"}, reviewed=True)
    numbers = make_curator(MemoryTable.from_source({"x": [0.5], "y": [0.5]}, schema))
    assert release_levels(numbers, Fraction(1, 20)) == ()
    assert numbers.events == ()


def test_the_scaling_of_rows() -> None:
    columns = {
        "level": Ordinal(LEVELS, "a", scores=(0.0, 10.0, 20.0)),
        "plain": Numeric((-6, 12)),
        "known": Numeric((-6, 12), center=1, spread=2),
    }
    schema = Schema(dataset="scaled", columns=columns, reviewed=True)
    plan = row_plan(schema, {"level": np.array([0.25, 0.5, 0.25])})
    assert plan.columns == ("level", "plain", "known")
    assert plan.centers == (10.0, 3.0, 1.0)
    assert plan.spreads == pytest.approx((math.sqrt(50.0), 3.0, 2.0))
    assert plan.radius_squared == 3 * RADIUS_PER_COLUMN
    assert row_plan(schema, {"level": np.ones(3) / 3}, 7.0).radius_squared == 21.0


def make_table(scores: tuple[float, ...] | None) -> MemoryTable:
    """Return a column whose outer levels go with `other`: by default scores that is no linear dependence."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 4000)
    other = rng.random(4000) < np.array([0.9, 0.1, 0.9])[level]
    columns = {"level": Categorical(LEVELS, "a", scores=scores), "other": Categorical(("no", "yes"), "no")}
    schema = Schema(dataset="bent", columns=columns, reviewed=True, nominal_rows=4000)
    return MemoryTable.from_codes({"level": level, "other": other.astype(np.int64)}, schema)


class TestDeclaredScoresDecide:
    @pytest.mark.parametrize(("scores", "linear"), [(None, False), ((1.0, 0.0, 1.0), True)])
    def test_what_moments_see(self, scores: tuple[float, ...] | None, linear: bool) -> None:
        table = make_table(scores)
        evidence = measure_source(
            table, table.schema, 5, method="measure-notears", noise=NoiseKind.SEEDED, seed=0, ledger=None
        )
        release = evidence.releases[-1]
        assert isinstance(release, NoisyMoments)
        tests = evidence.independence()
        assert tests is not None
        matrix = tests.covariance.matrix  # type: ignore[attr-defined]
        correlation = matrix[0, 1] / math.sqrt(matrix[0, 0] * matrix[1, 1])
        assert (abs(correlation) > 0.5) == linear

    @pytest.mark.parametrize("method", ["noleaks", "curate-score"])
    @pytest.mark.parametrize(("scores", "linear"), [(None, False), ((1.0, 0.0, 1.0), True)])
    def test_what_gradients_see(
        self,
        method: str,
        scores: tuple[float, ...] | None,
        linear: bool,
        ask_method: Callable[..., tuple[Asked, Curator]],
    ) -> None:
        asked, _ = ask_method(method, make_table(scores), 50, penalty=0.05, threshold=0.2)
        assert bool(asked.graph.skeleton()) == linear

    def test_shifted_and_stretched_scores_change_no_graph(self, ask_method: Any) -> None:
        """Centre and spread take them out; only their proportions matter."""
        table = make_table((1.0, 0.0, 1.0))
        other = make_table((107.0, 100.0, 107.0))
        graphs = {ask_method("noleaks", one, 50, threshold=0.2)[0].graph for one in (table, other)}
        assert len(graphs) == 1

    def test_evidence_keeps_them(self) -> None:
        table = make_table((1.0, 0.0, 1.0))
        evidence = measure_source(
            table, table.schema, 5, method="measure-notears", noise=NoiseKind.SEEDED, seed=0, ledger=None
        )
        assert evidence.schema.columns["level"] == Categorical(LEVELS, "a", scores=(1.0, 0.0, 1.0))
        plain = msgspec.structs.replace(table.schema, columns=make_table(None).schema.columns)
        assert plain.digest() != table.schema.digest()

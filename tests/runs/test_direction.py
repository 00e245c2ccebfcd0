"""The private direction of two columns: what is found, what is charged, what is told, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from dagveil.data.column import Boolean, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema, save_schema
from dagveil.errors import BudgetExceededError, DagveilError, MethodError, UnreviewedSchemaError
from dagveil.files import decode_json
from dagveil.methods.pcd import RegressionRule
from dagveil.methods.regressions import functions_from_table
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts
from dagveil.runs.direction import BINS, MODEL_ACCURACY, Direction, DirectionSettings, Score, find_direction

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cube": lambda x: x**3,
    "exponential": lambda x: np.exp(1.5 * x) / 3 - 0.6,
    "square": lambda x: x**2 + 0.5 * x - 0.3,
}


def make_rows(function: str = "cube", n: int = 2000, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    return {"x": x, "y": FUNCTIONS[function](x) + rng.uniform(-0.3, 0.3, n)}


def make_schema(n: int | None = 2000, **facts: Any) -> Schema:
    columns = {name: Numeric(bounds=(-1.5, 1.5)) for name in "xy"}
    return Schema(dataset="pair", columns=columns, nominal_rows=n, **{"reviewed": True, **facts})


def find(rows: dict[str, Any] | None = None, schema: Schema | None = None, **options: Any) -> Direction:
    settings = DirectionSettings(**{name: options.pop(name) for name in ("score", "regression") if name in options})
    arguments = {"epsilon": 20, "noise": NoiseKind.SEEDED, "seed": 1, "x": "x", "y": "y", "ledger": None, **options}
    return find_direction(rows or make_rows(), schema or make_schema(), settings=settings, **arguments)


class TestFound:
    @pytest.mark.parametrize("function", FUNCTIONS)
    @pytest.mark.parametrize("score", Score)
    def test_the_cause_is_found_both_ways_round(self, function: str, score: Score) -> None:
        for seed in range(3):
            rows = make_rows(function, seed=seed)
            forth = find(rows, score=score, seed=seed)
            back = find(rows, score=score, seed=seed, x="y", y="x")
            assert (forth.cause, forth.effect) == (back.cause, back.effect) == ("x", "y")
            assert forth.difference is not None
            assert back.difference is not None
            assert forth.difference < 0 < back.difference
            assert min(forth.confidence, back.confidence) == pytest.approx(MODEL_ACCURACY, abs=0.01)

    def test_ridge_regression(self) -> None:
        found = find(make_rows("cube", 4000), make_schema(4000), regression=RegressionRule.RIDGE, epsilon=2000)
        assert found.cause == "x"
        assert [event.label for event in found.receipt.events] == ["hsic both ways"]

    def test_noise_decides_nothing_at_a_tiny_epsilon(self) -> None:
        for seed in range(12):
            found = find(epsilon=1e-4, seed=seed)
            assert (found.cause, found.effect, found.confidence) == (None, None, 0.5)
            assert found.doubt

    def test_confidence_is_no_more_than_the_model_was_right_on_real_pairs(self) -> None:
        found = find(make_rows("square"), epsilon=20)
        assert found.difference is not None
        assert found.noise_scale is not None
        unturned = 1 - math.exp(-abs(found.difference) / found.noise_scale)
        assert found.confidence == pytest.approx(0.5 + (MODEL_ACCURACY - 0.5) * unturned)
        assert 0.55 < found.confidence <= MODEL_ACCURACY

    def test_functions_of_a_table_are_the_regressions(self) -> None:
        """On the table of the rows without noise, they are least squares on the middles of bins."""
        x = np.repeat((2.0 * np.arange(BINS) + 1) / BINS - 1, 3)
        y = np.round((0.5 * x**3 - 0.2 * x + 1) * BINS / 2 - 0.5).astype(int)
        counts = np.zeros((BINS, BINS), dtype=int)
        np.add.at(counts, (np.repeat(np.arange(BINS), 3), y), 1)
        table = NoisyCounts(("x", "y"), (BINS, BINS), 1, msgspec.convert(0, int), tuple(counts.reshape(-1).tolist()))  # type: ignore[arg-type]
        function = functions_from_table(table, 3).function("y", ("x",))
        middles = (2.0 * y + 1) / BINS - 1
        exact = np.polynomial.Legendre.fit(x, middles, 3, domain=[-1, 1])
        assert np.abs(function.values(x[:, None]) - exact(x)).max() < 0.01


class TestDoubt:
    @pytest.mark.parametrize("score", Score)
    def test_a_straight_line_with_normal_noise_has_no_direction(self, score: Score) -> None:
        told = 0
        for seed in range(12):
            rng = np.random.default_rng(seed)
            x = rng.normal(0, 0.4, 2000)
            found = find({"x": x, "y": 0.8 * x + rng.normal(0, 0.2, 2000)}, score=score, seed=seed)
            told += found.cause is not None
            assert found.cause or "straight line with normal noise" in str(found.doubt)
        assert told <= 3  # 3 of 41 on average by the rule, and noisy moments add a little

    def test_independent_columns_have_none_and_the_rest_is_not_asked(self) -> None:
        rng = np.random.default_rng(1)
        found = find({"x": rng.uniform(-1, 1, 2000), "y": rng.uniform(-1, 1, 2000)}, epsilon=2)
        assert found.cause is None
        assert "do not visibly depend" in str(found.doubt)
        assert found.difference is None
        assert [event.label for event in found.receipt.events] == ["table for regressions"]

    def test_uneven_residuals_both_ways(self) -> None:
        """A common cause of location and spread: no function plus independent noise, either way."""
        rng = np.random.default_rng(1)
        z = rng.uniform(0.05, 1, 20_000)
        rows = {"x": z * rng.normal(1, 0.3, 20_000) - 0.5, "y": z * rng.normal(1, 0.3, 20_000) - 0.5}
        found = find(rows, make_schema(20_000))
        assert found.cause is None
        assert "spread unevenly both ways" in str(found.doubt)

    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_steep_places_are_not_taken_for_uneven_noise(self, function: str) -> None:
        """Within a bin a steep function moves: that is not the noise of the effect."""
        assert find(make_rows(function, 20_000), make_schema(20_000)).cause == "x"


class TestCharged:
    def test_plain_addition_within_the_total(self) -> None:
        ledger = MemoryLedger()
        found = find(epsilon=1, ledger=ledger)
        events = found.receipt.events
        assert [type(event) for event in events] == [DiscreteLaplace, DiscreteLaplace]
        assert sum(event.epsilon for event in events if isinstance(event, DiscreteLaplace)) == 1
        (run,) = ledger.history()
        assert run.method == "direction"
        assert (found.receipt.epsilon, found.receipt.delta) == ("1", "0")

    def test_rows_are_counted_if_nothing_is_declared(self) -> None:
        found = find(schema=make_schema(None))
        assert [stage.stage for stage in found.plan] == ["number of rows", "table for regressions", "direction"]
        assert sum(stage.share for stage in found.plan) == pytest.approx(1.0)

    def test_a_lifetime_budget_binds(self) -> None:
        ledger = MemoryLedger()
        ledger.set_budget("pair", Budget.of(1, 1e-5))
        arguments: dict[str, Any] = {"ledger": ledger, "epsilon": 0.7, "noise": NoiseKind.EXACT, "seed": None}
        find(**arguments)
        with pytest.raises(BudgetExceededError):
            find(**arguments)
        assert len(ledger.history()) == 1

    def test_seeded_noise_needs_consent(self) -> None:
        ledger = MemoryLedger()
        ledger.set_budget("pair", Budget.of(100, 1e-5))
        with pytest.raises(MethodError, match="seeded noise"):
            find(ledger=ledger)
        assert not find(ledger=ledger, accept_no_guarantee=True).receipt.guaranteed


class TestTold:
    def test_json_comes_back(self, tmp_path: Any) -> None:
        found = find()
        found.save(tmp_path / "direction.json")
        text = (tmp_path / "direction.json").read_text(encoding="utf-8")
        assert decode_json(text, Direction) == found
        content = json.loads(text)
        assert (content["format"], content["version"], content["cause"]) == ("dagveil-direction", 2, "x")
        assert content["settings"] == {
            "score": "hsic",
            "regression": "released",
            "bandwidth": 0.5,
            "penalty": None,
            "rows": None,
        }

    def test_other_columns_are_not_read(self, tmp_path: Any) -> None:
        schema = make_schema()
        schema = msgspec.structs.replace(schema, columns={**schema.columns, "smokes": Boolean("false")})
        save_schema(schema, tmp_path / "schema.toml")
        found = find_direction(make_rows(), tmp_path / "schema.toml", "x", "y", 5, noise=NoiseKind.EXACT, ledger=None)
        assert found.schema.digest == schema.digest()
        assert found.receipt.guaranteed

    def test_extreme_cells(self) -> None:
        rows = make_rows()
        for column in rows.values():
            column[:6] = [math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0]
        assert find(rows).cause == "x"


class TestRefused:
    def refuse(self, match: str, error: type[DagveilError] = MethodError, **options: Any) -> None:
        ledger = MemoryLedger()
        with pytest.raises(error, match=match):
            find(ledger=ledger, **options)
        assert ledger.history() == ()

    def test_columns(self) -> None:
        self.refuse("name two different ones", y="x")
        self.refuse("has no column 'z'; its columns are x, y", y="z")
        schema = Schema(dataset="d", columns={"x": Numeric(bounds=(0, 1)), "y": Boolean("false")}, reviewed=True)
        self.refuse("column 'y' is not numeric.*use `discover`", schema=schema)

    @pytest.mark.parametrize("facts", [{"tiers": (("x",), ("y",))}, {"required": (("y", "x"),)}])
    def test_what_knowledge_answers_is_not_asked(self, facts: dict[str, Any]) -> None:
        self.refuse("is the only direction that it allows. Nothing was spent", schema=make_schema(**facts))

    def test_ranks_of_ridge_residuals(self) -> None:
        self.refuse("choose regression=released", score=Score.SPEARMAN, regression=RegressionRule.RIDGE)

    def test_open_tables_and_drafts(self) -> None:
        table = MemoryTable.from_source(make_rows(), make_schema())
        self.refuse("give the path, frame or array", rows=table)
        self.refuse("is unreviewed", UnreviewedSchemaError, schema=make_schema(reviewed=False))

"""Explorations: no rows, the same by seed, more budget finds more, and the recommendation reads the curves rightly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dagveil as dv
from dagveil.data import memory
from dagveil.data.column import Boolean, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DagveilError, MethodError, SchemaError, UnreviewedSchemaError
from dagveil.forecast.choose import FEWEST_ROWS, fit_time_limit
from dagveil.forecast.detection import Weakest
from dagveil.forecast.explore import Exploration, explore, load_exploration
from dagveil.forecast.recommendation import Curve, Point, reach, read_curve, recommend
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import METHODS
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.ledger import MemoryLedger

SCHEMA = Schema(
    dataset="clinic",
    columns={name: Boolean(outside="false") for name in "abcde"},
    reviewed=True,
    unit="one patient",
    nominal_rows=3000,
)
NUMBERS = Schema(
    dataset="body",
    columns={name: Numeric(bounds=(-5.0, 5.0), center=0.0, spread=1.0) for name in "abcd"},
    reviewed=True,
    nominal_rows=2000,
)
QUICK: dict[str, Any] = {"methods": ["measure", "em-pc"], "models": 3}
NOWHERE = Weakest("correlation", None, None)


@pytest.fixture(scope="module")
def found() -> Exploration:
    return explore(SCHEMA, ["0.05", "0.5", "5"], **QUICK)


class TestExploring:
    def test_more_budget_finds_more(self, found: Exploration) -> None:
        for curve in found.curves:
            heights = [point.f1 for point in curve.points]
            assert None not in heights
            assert heights[0] < heights[-1]  # type: ignore[operator]
            assert heights[-1] > 0.7  # type: ignore[operator]
            for point in curve.points:
                assert 0.0 <= point.low <= point.f1 <= point.high <= 1.0  # type: ignore[operator]

    def test_no_rows_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing asks for a source: reading any would raise."""

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("rows were read")

        monkeypatch.setattr(memory, "read_declared", refuse)
        monkeypatch.setattr(memory.MemoryTable, "from_source", refuse)
        assert explore(SCHEMA, [1], methods=["measure"], models=2).curves

    def test_the_seed_decides(self, found: Exploration) -> None:
        again = explore(SCHEMA, [5, "0.05", "0.5"], **QUICK)
        assert again == found
        assert again.to_svg() == found.to_svg()
        assert explore(SCHEMA, ["0.5"], seed=8, **QUICK).table != explore(SCHEMA, ["0.5"], **QUICK).table

    def test_a_point_does_not_depend_on_the_others(self, found: Exploration) -> None:
        alone = explore(SCHEMA, ["0.5"], **QUICK)
        assert alone.curves[0].points[0] == found.curves[0].points[1]

    def test_processes_change_nothing(self, found: Exploration) -> None:
        assert explore(SCHEMA, ["0.05", "0.5", "5"], workers=2, **QUICK) == found

    def test_numbers(self) -> None:
        numbers = explore(NUMBERS, [1], methods=["measure", "measure-notears"], models=2)
        assert [point.order for curve in numbers.curves for point in curve.points] == [2, 2]
        assert numbers.recommendation.weakest.scale == "correlation"

    def test_methods_that_do_not_fit_are_left_out_with_their_reason(self) -> None:
        everything = explore(SCHEMA, [1], models=2, seconds=2.0)
        explored = {curve.method for curve in everything.curves}
        assert {"measure", "lap-mech"} <= explored
        assert "priv-pc-star" in everything.unfit
        assert "numeric" in everything.unfit["priv-pc-star"]
        assert "pcd" in everything.left_out
        assert "pcd" in " ".join(everything.notes)
        assert explored | set(everything.unfit) | set(everything.left_out) == set(METHODS)

    def test_knowledge_of_the_schema_is_obeyed(self) -> None:
        known = Schema(
            dataset="known",
            columns=SCHEMA.columns,
            reviewed=True,
            nominal_rows=3000,
            tiers=(("a", "b"), ("c", "d", "e")),
        )
        assert explore(known, [1], **QUICK).curves != explore(SCHEMA, [1], **QUICK).curves

    def test_a_run_that_fails_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from dagveil.forecast import choose as trial

        real = trial.measure_source

        def fail(table: object, schema: Schema, epsilon: Fraction, *rest: object, **named: object) -> object:
            if epsilon < 1:
                raise MethodError("too little")
            return real(table, schema, epsilon, *rest, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(trial, "measure_source", fail)
        partly = explore(SCHEMA, ["0.5", "2"], methods=["measure"], models=2)
        assert [(point.f1 is None, point.failure) for point in partly.curves[0].points] == [
            (True, "too little"),
            (False, None),
        ]
        assert "<svg" in partly.to_svg()
        with pytest.raises(MethodError, match="too little"):
            explore(SCHEMA, ["0.5"], methods=["measure"], models=2)


class TestBadRequests:
    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            ({"epsilons": []}, "no epsilon"),
            ({"epsilons": [0]}, "epsilon is 0"),
            ({"epsilons": ["much"]}, "epsilon is 'much'"),
            ({"delta": 2}, "delta is 2"),
            ({"methods": []}, "no method is named"),
            ({"methods": ["nothing"]}, "no method is called 'nothing'"),
            ({"methods": ["priv-pc-star"]}, "needs numeric columns"),
            ({"models": 1}, "models is 1"),
            ({"wanted_f1": 1.5}, "wanted F1 is 1.5"),
            ({"wanted_f1": float("nan")}, "wanted F1 is nan"),
            ({"degree": 9}, "too few for 9 edges"),
            ({"strength": -1}, "strength is -1"),
            ({"rows": 0}, "rows is 0"),
            ({"seconds": 0}, "seconds must be above 0"),
            ({"workers": 0}, "workers at least 1"),
        ],
    )
    def test_they_are_refused(self, arguments: dict[str, Any], what: str) -> None:
        with pytest.raises(DagveilError, match=what):
            explore(SCHEMA, **{"models": 2, **arguments})

    def test_public_facts_are_needed(self) -> None:
        with pytest.raises(UnreviewedSchemaError, match="unreviewed"):
            explore(Schema(dataset="draft", columns=SCHEMA.columns, nominal_rows=10))
        rowless = Schema(dataset="rowless", columns=SCHEMA.columns, reviewed=True)
        with pytest.raises(SchemaError, match="--rows"):
            explore(rowless)
        assert explore(rowless, [1], rows=3000, **QUICK).nominal_rows == 3000
        with pytest.raises(MethodError, match="at least 2"):
            explore(Schema(dataset="one", columns={"a": Boolean()}, reviewed=True, nominal_rows=10))


def curve_of(epsilons: Sequence[float], heights: Sequence[float | None], name: str = "measure") -> Curve:
    points = [
        Point(Fraction(repr(epsilon)), height, height, height, 2, NOWHERE)
        for epsilon, height in zip(epsilons, heights, strict=True)
    ]
    return Curve(name, tuple(points))


def slow_reach(epsilons: Sequence[float], heights: Sequence[float], wanted: float) -> float | None:
    """Walk along the curve in small steps; heights are pooled by the min-max formula of isotonic regression."""
    pooled = [
        max(min(float(np.mean(heights[i : j + 1])) for j in range(k, len(heights))) for i in range(k + 1))
        for k in range(len(heights))
    ]
    logs = np.log(epsilons)
    steps = np.linspace(logs[0], logs[-1], 200_001)
    above = np.flatnonzero(np.interp(steps, logs, pooled) >= wanted - 1e-12)
    return math.exp(steps[above[0]]) if above.size else None


class TestRecommendation:
    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(st.floats(0.0, 1.0).map(lambda x: round(x, 3)), min_size=2, max_size=6),
        st.floats(0.05, 1.0).map(lambda x: round(x, 3)),
    )
    def test_the_smallest_epsilon_is_that_of_a_slow_walk(self, heights: list[float], wanted: float) -> None:
        epsilons = [0.1 * 2.5**k for k in range(len(heights))]
        slow = slow_reach(epsilons, heights, wanted)
        fast = reach(curve_of(epsilons, heights), wanted)
        if slow is None or fast is None:
            # the walk has a tolerance
            assert slow is fast or wanted == pytest.approx(max(heights), abs=1e-9)
        else:
            assert float(fast) == pytest.approx(slow, rel=1e-4)

    def test_points_without_a_height_are_skipped(self) -> None:
        assert reach(curve_of([1.0, 2.0, 4.0], [0.0, None, 1.0]), 0.5) == 2
        assert reach(curve_of([1.0, 2.0], [None, None]), 0.5) is None
        assert read_curve(curve_of([1.0, 4.0], [0.2, 0.6]), Fraction(2)) == pytest.approx(0.4)

    def test_the_cheapest_method_is_named_and_rounded_up(self) -> None:
        curves = (curve_of([0.1, 1.0], [0.1, 0.95]), curve_of([0.1, 1.0], [0.85, 0.99], "measure-ges"))
        advice = recommend(curves, 0.9, SCHEMA, Fraction(1, 10**6), 3000)
        exact = reach(curves[1], 0.9)
        assert exact is not None
        assert (advice.method, advice.reached) == ("measure-ges", True)
        assert exact <= advice.epsilon <= Fraction(11, 10) * exact
        assert advice.f1 >= 0.9
        assert advice.order == 2
        text = " ".join(advice.words)
        assert "measure-ges reaches an expected skeleton F1 of 0.9 at epsilon 0.23" in text
        assert "those of pairs" in text
        assert "Cramér's V" in text
        assert "whether one record is in the table is right at most 55.8 %" in text

    def test_ties_go_to_the_first_curve(self) -> None:
        curves = (curve_of([0.1, 1.0], [0.1, 0.95]), curve_of([0.1, 1.0], [0.1, 0.95], "lap-mech"))
        assert recommend(curves, 0.9, SCHEMA, Fraction(0), 3000).method == "measure"
        assert recommend(curves, 0.99, SCHEMA, Fraction(0), 3000).method == "measure"

    def test_if_none_reaches_it_the_best_is_named(self) -> None:
        curves = (curve_of([0.1, 1.0], [0.1, 0.5]), curve_of([0.1, 1.0], [0.2, 0.6], "em-pc"))
        advice = recommend(curves, 0.9, SCHEMA, Fraction(0), 3000)
        assert not advice.reached
        assert (advice.method, advice.epsilon, advice.f1) == ("em-pc", 1, 0.6)
        assert "None of these methods" in advice.words[0]
        assert "em-pc with 0.60" in advice.words[0]

    def test_nearly_as_good_for_less_is_recommended(self) -> None:
        curves = (curve_of([1.0, 3.0, 10.0], [0.5, 0.62, 0.63]), curve_of([1.0, 3.0, 10.0], [0.6, 0.6, 0.64], "em-pc"))
        advice = recommend(curves, 0.9, SCHEMA, Fraction(0), 3000)
        assert (advice.method, advice.epsilon) == ("measure", 3)
        assert "em-pc with 0.64 there. measure at epsilon 3 has 0.62: more budget hardly helps" in advice.words[0]

    @pytest.mark.parametrize("wanted", [0.5, 0.7, 0.9])
    @pytest.mark.parametrize("left", [Fraction(1), Fraction(2), Fraction(20)])
    def test_not_more_than_what_is_left_is_recommended(self, wanted: float, left: Fraction) -> None:
        curves = (curve_of([0.1, 1.0, 3.0, 10.0], [0.1, 0.4, 0.75, 0.85]),)
        advice = recommend(curves, wanted, SCHEMA, Fraction(0), 3000, left)
        assert advice.epsilon <= left
        assert "is left of the lifetime budget" in advice.words[0]

    def test_what_is_left_between_two_points_counts(self) -> None:
        curves = (curve_of([0.1, 1.0, 10.0], [0.1, 0.85, 0.95]),)
        advice = recommend(curves, 0.89, SCHEMA, Fraction(0), 3000, Fraction("2.73651"))
        assert advice.reached
        assert (advice.epsilon, advice.method) == (Fraction("2.6"), "measure")
        assert "More than epsilon 2.736 is not recommended" in advice.words[0]
        short = recommend(curves, 0.94, SCHEMA, Fraction(0), 3000, Fraction("2.73651"))
        assert "up to epsilon 2.7; the best is measure with 0.89 there" in short.words[0]

    def test_what_is_left_is_read_from_the_ledger(self) -> None:
        books = MemoryLedger()
        assert "lifetime" not in explore(SCHEMA, [1], ledger=books, **QUICK).recommendation.words[0]
        books.set_budget(SCHEMA.dataset, Budget.of(1, 1e-5))
        assert explore(SCHEMA, ["0.5", 5], ledger=books, **QUICK).recommendation.epsilon < 1
        with pytest.raises(MethodError, match="is left of the lifetime budget"):
            explore(SCHEMA, [5], ledger=books, **QUICK)
        dv.Ledger.open(dv.default_ledger()).set_budget(SCHEMA.dataset, Budget.of(1, 1e-5))
        assert explore(SCHEMA, ["0.5", 5], **QUICK).recommendation.epsilon < 1

    def test_the_smallest_explored_may_be_more_than_needed(self) -> None:
        advice = recommend((curve_of([0.1, 1.0], [0.95, 0.99]),), 0.9, SCHEMA, Fraction(0), 3000)
        assert advice.epsilon == Fraction(1, 10)
        assert "less may do" in advice.words[0]

    def test_the_attacker_s_bound_is_that_of_the_receipt(self, found: Exploration) -> None:
        rows = {name: [True, False] for name in SCHEMA.columns}
        told = dv.measure_source(
            rows,
            SCHEMA,
            found.recommendation.epsilon,
            "1e-6",
            options={"plan": "pairs"},
            noise=dv.NoiseKind.EXACT,
            ledger=None,
        ).receipt.words()
        sentence = next(words for words in told if words.startswith("What that means"))
        assert sentence.removeprefix("What that means: ") in found.recommendation.words[-1]


class TestEffort:
    def fit(self, rows: int, seconds: float, names: Sequence[str], *, may_leave_out: bool = True) -> Any:
        methods = [METHODS[name] for name in names]
        budgets = [Budget.of(1, "1e-6")]
        none = Knowledge.none()
        return fit_time_limit(SCHEMA, none, methods, budgets, 10, rows, seconds, may_leave_out=may_leave_out)

    def test_slow_methods_go_first_and_rows_second(self) -> None:
        all_of_it = self.fit(50_000, 1e9, ["measure", "em-pc", "pcd"])
        assert (all_of_it.rows, all_of_it.left_out) == (50_000, ())
        less = self.fit(50_000, 6.0, ["measure", "em-pc", "pcd"])
        assert less.left_out == ("pcd",)
        assert less.seconds <= 6.0
        named = self.fit(10**9, 5.0, ["measure", "pcd"], may_leave_out=False)
        assert (named.rows, named.left_out) == (FEWEST_ROWS, ())
        huge = self.fit(10**9, 20.0, ["measure"])
        assert FEWEST_ROWS <= huge.rows < 10**9
        assert huge.seconds <= 20.0

    def test_fewer_rows_are_said_and_made_up_for(self) -> None:
        huge = Schema(dataset="huge", columns=SCHEMA.columns, reviewed=True, nominal_rows=10**9)
        few = explore(huge, ["0.000001", "0.01"], delta=0, methods=["measure"], models=2, seconds=0.5)
        assert few.rows < 10**6
        assert f"{few.rows} rows instead of 1000000000" in " ".join(few.notes)
        low, high = (point.f1 for point in few.curves[0].points)
        # unscaled, both would find nothing
        assert high > 0.7  # type: ignore[operator]
        assert low > 0.2  # type: ignore[operator]


class TestFiles:
    def test_json_comes_back(self, found: Exploration, tmp_path: Path) -> None:
        found.save(tmp_path / "curve.json")
        assert load_exploration(tmp_path / "curve.json") == found
        assert found.table[0].keys() == {"method", "epsilon", "f1", "low", "high", "order", "weakest", "failure"}
        assert [(row["method"], row["epsilon"]) for row in found.table][:4] == [
            *(("measure", epsilon) for epsilon in (0.05, 0.5, 5.0)),
            ("em-pc", 0.05),
        ]

    def test_other_endings_are_refused(self, found: Exploration, tmp_path: Path) -> None:
        with pytest.raises(MethodError, match="choose one of these"):
            found.save(tmp_path / "curve.pdf")

    def test_damaged_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "curve.json").write_text('{"format": "dagveil-result"}', encoding="utf-8")
        with pytest.raises(DagveilError, match="exploration"):
            load_exploration(tmp_path / "curve.json")

"""Forecasts of time and memory: they grow with the work, and what cannot fit is refused before anything is spent."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dagveil.data.column import Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.methods.method import METHODS
from dagveil.plans.planning import TableRule, forecast_plan, plan_measurement, work_at_site, work_of_search
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs import cost as costs
from dagveil.runs.cost import Search, Work, estimate_cost, work_of_run
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.machine_speed import Speed, load_speed, measure_speed, save_speed, speed_path
from dagveil.search.settings import SearchSettings


def make_schema(width: int, rows: int | None = 10_000, levels: int = 3) -> Schema:
    names = tuple(f"v{k}" for k in range(levels))
    columns = {f"c{k}": Categorical(names, "v0") for k in range(width)}
    return Schema(dataset="patients", columns=columns, reviewed=True, nominal_rows=rows)


def size_of(schema: Schema, method: str = "measure", epsilon: float = 1, **facts: Any) -> Work:
    chosen = METHODS[method]
    settings = chosen.read_settings(None)
    accounting = chosen.accounting(Budget.of(epsilon, "1e-6"), schema, settings, NO_KNOWLEDGE)
    return work_of_run(schema, chosen, accounting, settings, NO_KNOWLEDGE, **facts)


class TestForecast:
    def test_questions_and_numbers_are_counted(self) -> None:
        plan = plan_measurement(make_schema(12), 1, tables=TableRule.TRIPLES)
        work = work_at_site(plan, plan.sites[0], NoiseKind.OPENDP)
        assert work.tables == len(work.counted) == 12 + 66 + 220
        assert work.cells == 1 + 12 * 3 + 66 * 9 + 220 * 27 == sum(stage.cells for stage in forecast_plan(plan))
        assert work.search is Search.TRIPLES
        assert work_of_search(plan, 5).rows == 0

    @pytest.mark.parametrize(
        ("schema", "method", "search"),
        [
            (make_schema(3), "measure", Search.JOINT),
            (make_schema(30, 1000), "measure", Search.PAIRS),
            (make_schema(12, 10**6), "measure", Search.TRIPLES),
            (make_schema(3), "lap-mech", Search.JOINT),
            (
                Schema(dataset="n", columns={n: Numeric(bounds=(0, 1), spread=0.2) for n in "abc"}, reviewed=True),
                "measure-features",
                Search.MATRIX,
            ),
        ],
    )
    def test_the_kind_of_a_run_is_known_beforehand(self, schema: Schema, method: str, search: Search) -> None:
        assert size_of(schema, method).search is search

    def test_of_an_asking_method_only_reading_is_foreseen(self) -> None:
        work = size_of(make_schema(5), "svt-pc")
        assert (work.cells, work.redraws) == (0, 0)
        assert estimate_cost(work, Speed()).memory > 0

    def test_forecasts_grow_with_the_work(self) -> None:
        base = size_of(make_schema(12, None), redraws=10)
        cost = estimate_cost(base, Speed())
        larger = [
            replace(base, rows=10**8),
            size_of(make_schema(40, None), redraws=10),
            size_of(make_schema(12, None, levels=8), redraws=10),
        ]
        for work in larger:
            more = estimate_cost(work, Speed())
            assert more.seconds > cost.seconds
            assert more.memory > cost.memory
        assert estimate_cost(replace(base, redraws=1000), Speed()).steps[-1].seconds > 50 * cost.steps[-1].seconds
        assert estimate_cost(replace(base, held=True, rows=10**8), Speed()).memory < 1e10
        assert estimate_cost(replace(base, noise=NoiseKind.OPENDP), Speed()).seconds > cost.seconds

    def test_every_constant_matters(self) -> None:
        numbers = Schema(dataset="n", columns={n: Numeric(bounds=(0, 1), spread=0.2) for n in "abc"}, nominal_rows=9999)
        # many distinct rows, so that tables are counted in passes
        works = [
            size_of(make_schema(30, 10**6), redraws=2),
            replace(size_of(make_schema(30, 10**6)), noise=NoiseKind.OPENDP),
            size_of(numbers, redraws=2),
        ]
        for name in Speed.__struct_fields__:
            faster = msgspec.structs.replace(Speed(), **{name: getattr(Speed(), name) / 2})
            assert any(estimate_cost(work, faster).seconds < estimate_cost(work, Speed()).seconds for work in works), (
                name
            )


class TestSpeed:
    def test_measured_constants_are_kept_and_broken_files_are_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert load_speed() == (Speed(), False)
        measured = measure_speed()
        for name in Speed.__struct_fields__:
            # any machine is within a factor of a thousand of the shipped constants
            assert 1e-3 < getattr(measured, name) / getattr(Speed(), name) < 1e3, name
        assert save_speed(measured) == speed_path()
        assert load_speed() == (measured, True)
        for content in (
            "",
            "{",
            '{"version": 1}',
            '{"version": 1, "speed": {}}',
            '{"version": 3, "speed": {}}',
            '{"version": 2, "speed": {"row": "x"}}',
        ):
            speed_path().write_text(content, encoding="utf-8")
            assert load_speed() == (Speed(), False), content


class TestRoom:
    def test_the_system_says_how_much_is_free(self) -> None:
        found = costs.available_memory()
        assert found is None or 1e6 < found < 1e15

    def test_a_small_run_fits_and_a_large_one_is_refused(self) -> None:
        small = size_of(make_schema(12))
        assert costs.check_fits(small, Speed(), 8e9).memory < 8e9
        with pytest.raises(MethodError, match=r"would need about .* GB of memory for reading, and 8 GB are available"):
            costs.check_fits(replace(small, rows=10**9), Speed(), 8e9)

    def test_what_is_suggested_would_fit(self) -> None:
        rows = 3 * 10**7
        large = replace(size_of(make_schema(20)), rows=rows)
        advice = costs.suggest(large, Speed(), 8e9)
        assert "another engine" in advice
        kept = int(advice.split("keep about ")[1].split()[0])
        assert 2 <= kept < 20
        schema = make_schema(kept)
        assert estimate_cost(replace(size_of(schema), rows=rows), Speed()).memory <= 8e9
        assert estimate_cost(replace(size_of(make_schema(kept + 2)), rows=rows), Speed()).memory > 8e9

    def test_lower_order_and_fewer_redraws_are_suggested(self) -> None:
        plan = plan_measurement(make_schema(16, levels=12), 1, tables=TableRule.TRIPLES)
        work = work_of_search(plan, 50)
        with_triples = estimate_cost(work, Speed()).memory
        assert "leave out three-way tables" in costs.suggest(work, Speed(), with_triples * 0.9)
        wide = work_of_search(plan_measurement(make_schema(100, levels=8), 1, tables=TableRule.PAIRS), 50)
        need = estimate_cost(wide, Speed()).memory
        assert "--redraws 0" in costs.suggest(wide, Speed(), need * 0.99)

    def test_rows_alone_can_be_too_many_for_any_columns(self) -> None:
        advice = costs.suggest(replace(size_of(make_schema(3)), rows=10**12), Speed(), 8e9)
        assert "another engine" in advice
        assert "keep about" not in advice
        assert "three-way" not in advice

    def test_a_hopeless_run_is_told_so(self) -> None:
        assert "larger machine" in costs.suggest(size_of(make_schema(12)), Speed(), 1e6)

    def test_runs_refuse_before_they_spend(self) -> None:
        schema = make_schema(12, rows=10**12)
        books = MemoryLedger()
        rows = {name: ["v0", "v1"] for name in schema.columns}
        for run in (
            lambda: measure_source(rows, schema, 1, ledger=books),
            lambda: discover(rows, schema, 1, ledger=books),
            lambda: discover(rows, schema, 1, ledger=books, method="svt-pc"),
            lambda: measure_planned(rows, plan_measurement(schema, 1), schema=schema, ledger=books),
        ):
            with pytest.raises(MethodError, match="would need about"):
                run()
        assert books.history() == ()

    def test_rows_in_memory_already_are_not_counted(self) -> None:
        schema = make_schema(3, rows=10**12)
        table = MemoryTable.from_codes({name: np.arange(9, dtype=np.uint8) % 3 for name in schema.columns}, schema)
        settings = SearchSettings(redraws=0)
        assert discover(table, schema, 1, settings=settings, noise=NoiseKind.SEEDED, seed=1, ledger=None).graph.nodes

    def test_published_methods_are_judged_by_their_rows_alone(self) -> None:
        # the joint table of these columns would have 3^40 cells, and no published method on numbers counts it
        schema = make_schema(40, rows=50)
        rows = {name: [f"v{(row * (k + 1)) % 3}" for row in range(50)] for k, name in enumerate(schema.columns)}
        result = discover(rows, schema, 1, method="measure-notears", calibration=Calibration.PAPER, ledger=None)
        assert len(result.graph.nodes) == 40

    def test_no_answer_from_the_system_refuses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(costs, "available_memory", lambda: None)
        assert math.isfinite(costs.check_fits(replace(size_of(make_schema(3)), rows=10**12), Speed()).memory)

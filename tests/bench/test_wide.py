from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.data.machine import peak_memory
from dagveil_bench.commands.group import bench
from dagveil_bench.wide import (
    Dimension,
    GrowthPoint,
    GrowthStage,
    Sizes,
    WideCase,
    WideKind,
    WideRun,
    WideStage,
    draw_growth,
    fit_growth,
    fit_power,
    growth_page,
    measure_growth,
    run_case,
    wide_page,
    wide_schema,
)


@pytest.mark.parametrize("kind", list(WideKind))
def test_a_case_runs_and_finds_something(kind):
    run = run_case(WideCase(kind, 12, 20_000, 20.0, 1))
    assert run.f1 > 0.5
    assert min(run.measure, run.search) > 0
    assert run.memory > 1e7
    assert (run.moments is None) == (kind is WideKind.LEVELS)
    assert run.stages[0].tables == (12 if kind is WideKind.LEVELS else 1)


@pytest.mark.parametrize("method", ["measure-ges", "measure-notears"])
def test_other_searches_run_as_well(method):
    run = run_case(WideCase(WideKind.NUMBERS, 12, 20_000, 20.0, 1, method))
    assert run.f1 > 0.5
    page = wide_page([run_case(WideCase(WideKind.NUMBERS, 6, 2_000, 20.0, 1)), run], "dagveil bench wide")
    assert page.splitlines()[2].startswith(f"`measure` and `{method}` on synthetic tables")
    assert f"| 12 | {method} | 20000 |" in page


def test_a_wide_table_is_measured_by_chosen_pairs():
    run = run_case(WideCase(WideKind.LEVELS, 40, 5_000, 1.0, 1))
    first, again = run.stages[1], run.stages[2]
    assert first.tables == 39  # a tree of chosen pairs
    assert again.tables < first.tables


def test_the_page_has_a_line_per_run_and_fits():
    runs = [
        WideRun(
            WideCase(WideKind.LEVELS, columns, 100, 1.0, 1),
            columns**2,
            columns,
            1e9,
            0.5,
            0.5,
            0.5,
            (WideStage("s", 3, 7.0),),
        )
        for columns in (10, 20, 40)
    ]
    page = wide_page(runs, "dagveil bench wide")
    assert "columns^2.0, the search as columns^1.0" in page
    assert page.count("| s: 3 (7) |") == 3
    assert "Numeric columns" not in page


def test_exponents_are_those_of_the_times():
    assert fit_power([10, 100], [1.0, 1000.0]) == pytest.approx(3.0)
    points = [
        GrowthPoint(Dimension.ROWS, size, {GrowthStage.COUNT: 1e-3 * size, GrowthStage.SEARCH: 1.0})
        for size in (1, 2, 4)
    ]
    fits = fit_growth(points)
    assert fits[GrowthStage.COUNT, Dimension.ROWS] == pytest.approx(1.0)
    assert fits[GrowthStage.SEARCH, Dimension.ROWS] == pytest.approx(0.0)
    assert (GrowthStage.COUNT, Dimension.COLUMNS) not in fits


def test_growth_is_measured_told_and_drawn(tmp_path):
    sizes = Sizes((500, 1000), (4, 6), (2, 3))
    points = measure_growth(sizes, 1, lambda stage, done, total: None)
    assert [(point.dimension.value, point.size) for point in points] == [
        ("rows", 500),
        ("rows", 1000),
        ("columns", 4),
        ("columns", 6),
        ("levels", 2),
        ("levels", 3),
    ]
    page = growth_page(points, sizes, "dagveil bench growth")
    assert "stays at 1000 rows, 6 columns, 3 levels" in page
    pytest.importorskip("matplotlib")
    draw_growth(points, tmp_path / "growth.svg")
    assert "<svg" in (tmp_path / "growth.svg").read_text()
    assert set(points[-1].seconds) == set(GrowthStage) - {GrowthStage.MOMENTS}


def test_bad_sizes_are_refused():
    for arguments, told in (
        (["wide", "--levels", "1"], "at least 2"),
        (["wide", "--levels", "none", "--numbers", "none"], "both kinds"),
        (["wide", "--method", "measure,priv-pc"], "'priv-pc' is none of measure"),
        (["growth", "--rows", "2.5"], "whole numbers"),
    ):
        done = CliRunner().invoke(bench, arguments)
        assert done.exit_code == 2
        assert told in done.output


def test_columns_are_declared_as_asked():
    assert len(wide_schema(WideKind.NUMBERS, 1000, 5).columns) == 1000


def test_memory_is_that_of_the_process_itself():
    """A large parent must not show in the memory of the process that it starts."""
    ballast = np.ones(60_000_000)
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        alone = pool.submit(peak_memory).result()
    assert ballast.nbytes == 480_000_000
    assert math.isnan(alone) or 1e6 < alone < ballast.nbytes


def test_levels_fall_beyond_forty_columns_so_that_false_edges_do_not_take_over():
    run = run_case(WideCase(WideKind.NUMBERS, 160, 20_000, 4.0, 1))
    assert run.fixed_f1 is not None
    assert run.f1 > run.fixed_f1 + 0.02
    assert run.precision > 0.8
    assert run_case(WideCase(WideKind.NUMBERS, 6, 2_000, 20.0, 1)).fixed_f1 is None

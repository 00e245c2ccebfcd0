"""Timing of runs beside peers, and the exact PC that is one of them."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from dagveil_bench import speed
from dagveil_bench.commands.group import bench, command_line
from dagveil_bench.exact_searches import chi_square
from dagveil_bench.studies.machine import THREADS


@pytest.mark.parametrize(
    ("spent", "best", "tries"),
    [([3.0, 2.0, 1.0, 4.0], 1.0, 4), ([9.0, 1.0, 1.0, 1.0], 9.0, 1), ([1, 7.0, 1, 1], 7.0, 2)],
)
def test_the_first_try_counts_only_if_it_is_long(spent, best, tries):
    ends = [0.0]
    for seconds in spent:
        ends += [ends[-1] + seconds] * 2
    clock = iter(ends)
    runs: list[int] = []
    assert speed.time_best(lambda: runs.append(1), 3, lambda: next(clock)) == best
    assert len(runs) == tries


def test_programs_take_turns_and_a_long_try_ends_one():
    seconds = {"short": iter([4.0, 3.0, 1.0, 2.0, 4.0, 4.0]), "long": iter([7.0, 6.0, 8.0])}
    passed, order, told = [0.0], [], []

    def spend(program: str) -> None:
        passed[0] += next(seconds[program])
        order.append(program)

    runs = {"short": lambda: spend("short"), "long": lambda: spend("long")}
    best = speed._best_in_turn(runs, 3, told.append, lambda: passed[0])
    assert best == pytest.approx({"short": 2.0, "long": 6.0})
    assert order == ["short", "short", "long"] * 3
    assert told == [1, 2, 3]


def test_an_unknown_case_is_refused():
    done = CliRunner().invoke(bench, ["speed", "--cases", "asia,atlantis"])
    assert done.exit_code == 2
    assert "'atlantis' is none of asia" in done.output


def test_the_exact_test_is_scipys_by_stratum():
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 30, size=(3, 4, 2))
    parts = [stats.chi2_contingency(counts[:, :, k], correction=False) for k in range(2)]
    both = stats.chi2.sf(sum(part.statistic for part in parts), sum(part.dof for part in parts))
    assert chi_square(counts) == pytest.approx(both)
    assert chi_square(np.zeros((2, 2), dtype=np.int64)) == 1.0


def test_our_exact_pc_finds_a_small_graph():
    rng = np.random.default_rng(1)
    network = speed.load_network("cancer")
    codes = speed.sample_codes(network, 200_000, rng)
    found = speed._exact_pc("cancer", codes)().skeleton
    names = tuple(speed.network_schema(network, 1).columns)
    edges = {frozenset((names[x], names[y])) for x, y in found.edges()}
    # each of ten tests errs with a chance of one in a hundred
    assert len(edges ^ network.dag().skeleton()) <= 1


def test_a_command_is_told_with_its_threads(monkeypatch):
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["program", "bench", "wide", "--levels", "", "--method", "a b"])
    assert command_line() == 'dagveil bench wide --levels "" --method "a b"'
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert command_line() == 'OMP_NUM_THREADS=1 dagveil bench wide --levels "" --method "a b"'

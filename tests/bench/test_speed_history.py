from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from dagveil.errors import DataError
from dagveil_bench import speed
from dagveil_bench.commands.group import bench, command_line
from dagveil_bench.speed import Timing, methods_speed_page, p_value
from dagveil_bench.speed_history import (
    SpeedEntry,
    append_entry,
    describe_changes,
    list_ratios,
    make_entry,
    read_history,
)
from dagveil_bench.studies.machine import THREADS

RUNS = [Timing("asia", "dagveil, exact noise", 0.5), Timing("asia", "peer", 4.0), Timing("child", "peer", 1.0)]
LOADING = [Timing("10 rows", "read", 1.0), Timing("10 rows", "count", 2.0)]


def entry(**ratios: float) -> SpeedEntry:
    return SpeedEntry("2026-01-01T00:00:00+00:00", ratios, {"numpy": "1"}, "a machine")


def test_ratios_set_peers_beside_ours_in_one_case_only():
    assert list_ratios(RUNS, LOADING) == {"asia: peer / dagveil, exact noise": 8.0, "10 rows: read / count": 0.5}


def test_entries_come_back_in_order(tmp_path):
    path = tmp_path / "history.jsonl"
    assert read_history(path) == []
    entries = [entry(a=2.0), make_entry({"a": 3.0})]
    for one in entries:
        append_entry(path, one)
    assert read_history(path) == entries
    assert len(path.read_text().splitlines()) == 2
    assert entries[1].versions["numpy"]


def test_only_a_fall_beyond_a_fifth_is_warned_about():
    lines, warnings = describe_changes(entry(a=10.0, b=10.0, c=10.0, gone=1.0), entry(a=8.1, b=7.9, c=13.0, new=2.0))
    assert len(warnings) == 1
    assert "b: 10 × before, 7.9 × now (-21%)" in warnings[0]
    assert sum("before" in line for line in lines) == 3
    assert describe_changes(None, entry(a=1.0))[1] == []


def test_other_machines_and_versions_are_told():
    now = SpeedEntry("now", {"a": 1.0}, {"numpy": "2"}, "another")
    text = "\n".join(describe_changes(entry(a=1.0), now)[0])
    assert "another one: a machine" in text
    assert "numpy was 1, and is 2 now" in text


def test_a_broken_history_is_refused_by_line(tmp_path):
    path = tmp_path / "history.jsonl"
    append_entry(path, entry(a=1.0))
    path.write_text(path.read_text() + "{oops\n")
    with pytest.raises(DataError, match="line 2"):
        read_history(path)


def test_the_command_appends_and_warns(tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    append_entry(path, entry(**{"asia: peer / dagveil, exact noise": 80.0}))
    monkeypatch.setattr("dagveil_bench.commands.timings.time_runs", lambda *arguments: RUNS[:2])
    done = CliRunner().invoke(bench, ["speed", "--history", str(path), "--load-rows", "200", "--load-columns", "3"])
    assert done.exit_code == 0, done.output
    assert "80 × before, 8 × now (-90%)" in done.output
    assert "Warning: slower" in done.output
    ratios = json.loads(path.read_text().splitlines()[-1])["ratios"]
    assert ratios["asia: peer / dagveil, exact noise"] == 8.0
    for program in ("load and count 3 pair tables", "from the file to the graph"):
        assert ratios[f"200 rows × 3 columns: read the file into Arrow / {program}"] > 0
        assert f"| {program} |" in done.output


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
    assert "'atlantis' is no case" in done.output


def test_the_exact_test_is_scipys_by_stratum():
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 30, size=(3, 4, 2))
    parts = [stats.chi2_contingency(counts[:, :, k], correction=False) for k in range(2)]
    both = stats.chi2.sf(sum(part.statistic for part in parts), sum(part.dof for part in parts))
    assert p_value(counts) == pytest.approx(both)
    assert p_value(np.zeros((2, 2), dtype=np.int64)) == 1.0


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


def test_ratios_of_speed() -> None:
    timings = [Timing("asia", "causal-learn PC, χ²", 1.0), Timing("asia", "dagveil svt-pc, sound", 0.25)]
    assert "| dagveil svt-pc, sound | 0.250 | 4.0 × |" in methods_speed_page(timings, "command")

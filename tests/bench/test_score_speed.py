"""Speed of measure-ges: small runs, causal-learn's marks, and the page. No time is asserted."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.exchange.formats import to_causal_learn
from dagveil_bench.score_speed import (
    PEER,
    Outcome,
    read_marks,
    run_gaussian,
    run_network,
    score_speed_page,
)

NODES = ("a", "b", "c")


def small_graphs() -> list[Cpdag]:
    """All CPDAGs of three nodes."""
    pairs = (("a", "b"), ("a", "c"), ("b", "c"))
    found = set()
    for choice in product((None, 0, 1), repeat=3):
        arcs = {pair if turn == 0 else pair[::-1] for pair, turn in zip(pairs, choice, strict=True) if turn is not None}
        if arcs not in ({("a", "b"), ("b", "c"), ("c", "a")}, {("b", "a"), ("c", "b"), ("a", "c")}):
            found.add(Dag(NODES, frozenset(arcs)).cpdag())
    return list(found)


def test_marks_of_causal_learn_are_read_as_they_are_written() -> None:
    graphs = small_graphs()
    assert len(graphs) == 11
    for graph in graphs:
        assert read_marks(to_causal_learn(graph).graph, NODES) == graph


def test_a_network_with_a_generous_budget_is_found() -> None:
    outcome = run_network("cancer", 20_000, 50.0, 2)
    assert outcome.f1 > 0.7
    assert [name for name, _ in outcome.stages] == ["loading", "measuring", "searching"]
    assert outcome.seconds == pytest.approx(sum(seconds for _, seconds in outcome.stages))
    assert outcome.megabytes > 10


def test_numeric_columns_with_a_generous_budget_are_found() -> None:
    assert run_gaussian(6, 5000, 50.0, 1).f1 > 0.6
    assert run_gaussian(6, 200, 1.0, 1).case == "6 numeric columns, 200 rows"


def test_the_page_has_the_ratio_of_programs_on_the_same_rows() -> None:
    outcomes = [
        Outcome("asia, 10 rows", "ours", (("loading", 0.5), ("measuring", 0.25), ("searching", 0.25)), 0.5, 0.25, 99.6),
        Outcome("asia, 10 rows", PEER, (("all", 20.0),), 1.0, 1.0, 10.0),
        Outcome("6 numeric columns, 10 rows", "ours", (("loading", 1.0), ("searching", 1.0)), 0.5, 0.5, 5.0),
    ]
    page = score_speed_page(outcomes, 1.0, "dagveil bench score-speed")
    assert "    dagveil bench score-speed\n" in page
    stages = "loading 0.50, measuring 0.25, searching 0.25"
    assert f"| asia, 10 rows | ours | 1.00 | {stages} | 20 × | 0.500 | 0.250 | 100 |" in page
    assert f"| asia, 10 rows | {PEER} | 20.00 |  | 1 × | 1.000 | 1.000 | 10 |" in page
    assert "| 6 numeric columns, 10 rows | ours | 2.00 | loading 1.00, searching 1.00 |  | 0.500 |" in page


def test_the_command_writes_its_page_without_a_peer(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words = ["bench", "score-speed", "--network", "cancer", "--rows", "200", "--nodes", "6", "--sizes", "200"]
    result = CliRunner().invoke(group, [*words, "--tries", "1", "--peer", "none", "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "| cancer, 200 rows | dagveil measure-ges |" in text
    assert "| 6 numeric columns, 200 rows | dagveil measure-ges |" in text
    assert PEER not in text

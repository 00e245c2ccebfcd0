"""Small examples of what the functions of report/ return."""

from __future__ import annotations

from fractions import Fraction

from dagveil.forecast import recommendation
from dagveil.forecast.detection import Weakest
from dagveil.report.exploration import write_point
from dagveil.report.formatting import (
    break_lines,
    measure,
    shorten,
    split_words,
    write_count,
    write_date,
    write_delta,
    write_epsilon,
    write_number,
    write_part,
    write_percent,
    write_plural,
    write_share,
)
from dagveil.report.guarantee import judge
from dagveil.report.layout import Grid, count_crossings, keep_apart, order_nodes, place_graph, rank_nodes
from dagveil.report.model import _describe_change
from dagveil.report.registry import encode_card
from dagveil.report.snippets import write_dot
from dagveil.report.svg import describe_edge, describe_graph, draw_graph, write_length
from dagveil.runs import result as results
from dagveil.runs.result import ResultEdge, ResultGraph


def test_encode_card() -> None:
    assert encode_card({"dataset": "</script>"}) == '{\n  "dataset": "\\u003c/script\\u003e"\n}'


def test_write_point() -> None:
    assert (
        write_point(recommendation.Point(Fraction(1), 0.912, 0.85, 0.97, 2, Weakest("correlation", 0.1, 0.1)))
        == "0.91 (0.85–0.97)"
    )


def test_write_epsilon() -> None:
    assert write_epsilon(Fraction(1, 3)) == "0.3334"


def test_write_delta() -> None:
    assert (write_delta(Fraction(1, 10**6)), write_delta(Fraction(1, 3000)), write_delta(Fraction(0))) == (
        "10⁻⁶",
        "3.4 × 10⁻⁴",
        "0",
    )


def test_write_share() -> None:
    assert [write_share(x) for x in (0.0, 0.001, 0.974, 0.999, 1.0, None)] == [
        "0 %",
        "< 1 %",
        "97 %",
        "> 99 %",
        "100 %",
        "–",
    ]


def test_write_percent() -> None:
    assert (write_percent(0.974), write_percent(1.0)) == ("97.4", "100")


def test_write_part() -> None:
    assert [write_part(x) for x in (0.0, 0.0001, 0.125, 1.0)] == ["0 %", "< 0.1 %", "12.5 %", "100 %"]


def test_write_count() -> None:
    assert write_count(100_000).replace("\u202f", " ") == "100 000"


def test_write_number() -> None:
    assert (write_number(45.234), write_number(1234.5).replace("\u202f", " ")) == ("45.2", "1 234")


def test_write_date() -> None:
    assert write_date("2026-11-15T12:00:00Z") == "15 November 2026, 12:00 UTC"


def test_write_plural() -> None:
    assert (write_plural(1, "edge"), write_plural(3, "edge")) == ("1 edge", "3 edges")


def test_judge() -> None:
    assert judge([]).value == "promised"


def test_measure() -> None:
    assert measure("lung") < measure("LUNG") < measure("肺がん腫")


def test_split_words() -> None:
    assert split_words("systolicPressure_before visit") == ["systolic", "Pressure_", "before ", "visit"]


def test_break_lines() -> None:
    assert (break_lines("lung"), break_lines("blood_pressure_before_the_visit_systolic")) == (
        ("lung",),
        ("blood_pressure_", "before_the_visit_", "systolic"),
    )


def test_shorten() -> None:
    assert (shorten("lung", 150), shorten("blood_pressure_before_the_visit_systolic", 150)) == (
        "lung",
        "blood_pre…_systolic",
    )


def test_order_nodes() -> None:
    assert order_nodes(("a", "b", "c"), [("c", "a")]) == ("b", "c", "a")


def test_rank_nodes() -> None:
    assert rank_nodes(("a", "b", "d", "c"), [("a", "b"), ("b", "c"), ("d", "c")]) == {"a": 0, "b": 1, "d": 1, "c": 2}


def test_count_crossings() -> None:
    assert count_crossings(Grid(4, [[0, 1], [2, 3]], [[], [], [1], [0]], [[3], [2], [], []])) == 1


def test_keep_apart() -> None:
    assert keep_apart([0.0, 0.0], [1.0, 1.0], [0.0, 10.0]) == [-5.0, 5.0]


def test_place_graph() -> None:
    layout = place_graph(("lung", "smoke"), [("smoke", "lung")], [])
    assert layout.positions["smoke"].y < layout.positions["lung"].y


def test_describe_change() -> None:
    assert _describe_change(results.ChangedEdge("a", "b", "none", "directed")) == "new: a → b"


def test_write_dot() -> None:
    assert (
        write_dot(ResultGraph(("a", "b"), "cpdag", (ResultEdge("a", "b", "undirected"),))).splitlines()[3]
        == "  n0 -> n1 [dir=none];"
    )


def test_write_length() -> None:
    assert (write_length(12.04), write_length(0.25)) == ("12", "0.2")


def test_draw_graph() -> None:
    assert draw_graph(ResultGraph(("a", "b"), "cpdag", ()))[:4] == "<svg"


def test_describe_graph() -> None:
    assert (
        describe_graph(ResultGraph(("a", "b"), "cpdag", (ResultEdge("a", "b", "undirected"),)))
        == "2 columns; 0 directed and 1 undirected edge. a — b."
    )


def test_describe_edge() -> None:
    assert describe_edge(ResultEdge("a", "b", "directed", 0.5)) == "a → b: the edge came back in 50 % of redraws"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_result import model_of, write_sealed

from dagveil.errors import DagveilError
from dagveil.report.formatting import WIDEST_WORD, break_lines, measure, shorten
from dagveil.report.html import render_svg
from dagveil.report.svg import draw_graph, draw_samples
from dagveil.runs.result import ResultEdge, ResultGraph, result_from_json
from dagveil.text import clean_text

SVG = "{http://www.w3.org/2000/svg}"

HOSTILE = [
    "<script>alert(1)</script>",
    "\"quotes\" & 'more'",
    "]]><!--",
    "x" * 200,
    "naïve ﬁancée 肺がん 🫁",
    "nul\x00 bell\x07 lone\ud800 end\uffff",
    "right\u202eto left",
    "",
    "two\nlines",
]


def parse(drawing: str) -> ElementTree.Element:
    drawing.encode("utf-8")
    return ElementTree.fromstring(drawing)


def edge(source: str, target: str, kind: str = "directed", **more: Any) -> ResultEdge:
    return ResultEdge(source, target, kind, **more)


def draw(nodes: Sequence[str], *edges: ResultEdge, **more: Any) -> str:
    return draw_graph(ResultGraph(tuple(nodes), "cpdag", edges), **more)


def part(root: ElementTree.Element, group: str) -> list[ElementTree.Element]:
    return [element for element in root.iter(f"{SVG}g") if element.get("class") == group]


def test_hostile_names_give_well_formed_xml_and_no_new_elements() -> None:
    edges = [edge(HOSTILE[0], name, "undirected", confidence=0.5) for name in HOSTILE[1:]]
    root = parse(draw(HOSTILE, *edges, title="<b>&"))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "g", "path", "polygon", "circle", "text", "tspan")
    }
    assert len(part(root, "node")) == len(HOSTILE)
    titles = [node.findtext(f"{SVG}title") for node in part(root, "node")]
    assert titles == [clean_text(name) for name in HOSTILE]
    assert titles[3] == "x" * 200


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5, unique=True))
def test_any_names_give_well_formed_xml(names: list[str]) -> None:
    edges = [edge(names[0], name) for name in names[1:]]
    root = parse(draw(names, *edges))
    assert len(part(root, "edge")) == len(edges)


@given(st.text(max_size=300))
def test_labels_fit_and_keep_both_ends(name: str) -> None:
    label = shorten(name, 150)
    assert measure(label) <= 150
    if label != clean_text(name):
        start, end = label.split("…", 1) if label.count("…") == 1 else (label[:1], label[-1:])
        assert clean_text(name).startswith(start)
        assert clean_text(name).endswith(end)


@given(st.text(max_size=90))
def test_names_are_drawn_whole(name: str) -> None:
    lines = break_lines(name)
    assert all(measure(line) <= WIDEST_WORD for line in lines)
    assert "".join("".join(lines).split()) == "".join(clean_text(name).split())


def test_a_long_name_is_whole_in_its_box() -> None:
    name = "Haushaltseinkommen vor Abzug aller Steuern (Tsd. €)"
    (node,) = part(parse(draw([name])), "node")
    (text,) = node.findall(f"{SVG}text")
    assert " ".join(text.itertext()) == name
    assert len(list(text.itertext())) == 3
    assert float(node.find(f"{SVG}rect").get("height")) == 30 + 2 * 16


def test_kinds_differ_by_shape() -> None:
    root = parse(draw(["a", "b", "c"], edge("a", "b"), edge("b", "c", "undirected")))
    arrow, line = part(root, "edge")
    assert (len(arrow.findall(f"{SVG}polygon")), len(arrow.findall(f"{SVG}circle"))) == (1, 0)
    assert (len(line.findall(f"{SVG}polygon")), len(line.findall(f"{SVG}circle"))) == (0, 2)


def test_the_arrowhead_points_at_the_target() -> None:
    root = parse(draw(["effect", "cause"], edge("cause", "effect")))
    tip, left, right = (tuple(map(float, p.split(","))) for p in root.find(f".//{SVG}polygon").get("points").split())
    boxes = {node.findtext(f"{SVG}title"): float(node.find(f"{SVG}rect").get("y")) for node in part(root, "node")}
    assert boxes["cause"] < left[1] == right[1] < tip[1] <= boxes["effect"]


@pytest.mark.parametrize(("share", "look"), [(0.49, "hollow"), (0.5, "full"), (None, "full")])
@pytest.mark.parametrize(("kind", "shape"), [("directed", "polygon"), ("undirected", "circle")])
def test_a_doubtful_direction_is_hollow(share: float | None, look: str, kind: str, shape: str) -> None:
    drawing = draw(["a", "b"], edge("a", "b", kind, confidence=0.9, arrow_confidence=share))
    (group,) = part(parse(drawing), "edge")
    assert {mark.get("class") for mark in group.findall(f"{SVG}{shape}")} == {look}


@pytest.mark.parametrize(("forward", "look"), [(0.56, "hollow"), (0.9, "full")])
def test_an_arrow_that_many_redraws_do_not_show_is_hollow(forward: float, look: str) -> None:
    shares = {"arrow_confidence": forward, "forward": forward, "backward": 0.1, "line": 0.9 - forward}
    drawing = draw(["a", "b"], edge("a", "b", confidence=1.0, **shares))
    (group,) = part(parse(drawing), "edge")
    assert group.find(f"{SVG}polygon").get("class") == look
    told = [text.text for text in part(parse(drawing), "legend")[0]]
    assert ("hollow: redraws disagree about the direction" in told) == (look == "hollow")


def test_line_width_grows_with_confidence() -> None:
    widths = []
    for confidence in (0.0, 0.3, 0.6, 1.0):
        drawing = draw(["a", "b"], edge("a", "b", confidence=confidence))
        widths.append(float(parse(drawing).find(f".//{SVG}path").get("stroke-width")))
    assert widths == sorted(set(widths))


def test_the_legend_names_only_what_occurs() -> None:
    texts = [t.text for t in part(parse(draw(["a", "b"], edge("a", "b"))), "legend")[0]]
    assert "direction found" in texts
    assert not any(text and ("hollow" in text or "thicker" in text or "open" in text) for text in texts)
    assert list(part(parse(draw(["a"])), "legend")[0]) == []


def test_undirected_edges_do_not_look_like_cause_and_effect() -> None:
    (legend,) = part(parse(draw(["a", "b"], edge("a", "b", "undirected"))), "legend")
    assert "joined; the direction is open, whichever end is on top" in [text.text for text in legend]


def test_an_edge_below_one_half_is_not_drawn_solid() -> None:
    edges = [edge("a", "b", confidence=0.49), edge("b", "c", confidence=0.5)]
    lines = parse(draw(["a", "b", "c"], *edges)).findall(f".//{SVG}path")
    assert [line.get("stroke-dasharray") is not None for line in lines[:2]] == [True, False]


def test_a_page_shows_the_legend_apart(result: dict[str, Any]) -> None:
    graph = model_of(result).result.graph
    apart = parse(draw_graph(graph, legend_apart=True))
    assert list(part(apart, "legend")[0]) == []
    assert float(apart.get("height")) < float(parse(draw_graph(graph)).get("height"))
    samples = draw_samples(graph)
    inside = [text.text for text in part(parse(draw_graph(graph)), "legend")[0].findall(f"{SVG}text")]
    assert [words for words, _ in samples] == inside
    assert all(ElementTree.fromstring(sample).get("aria-hidden") == "true" for _, sample in samples)


def test_edges_and_nodes_carry_their_numbers(result: dict[str, Any]) -> None:
    root = parse(draw_graph(model_of(result).result.graph))
    nodes = result["graph"]["nodes"]
    assert [node.get("data-node") for node in part(root, "node")] == [str(i) for i in range(len(nodes))]
    for group, edge in zip(part(root, "edge"), result["graph"]["edges"], strict=True):
        assert nodes[int(group.get("data-source"))] == edge["source"]
        assert nodes[int(group.get("data-target"))] == edge["target"]
        share = group.get("data-confidence")
        assert (None if share is None else float(share) / 100) == pytest.approx(edge["confidence"])


def test_a_screen_reader_hears_title_and_edges() -> None:
    root = parse(draw(["a", "b"], edge("a", "b"), title="Graph of t"))
    assert root.get("role") == "img"
    assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert root.get("aria-labelledby") == " ".join(child.get("id") for child in root[:2])
    assert root[0].text == "Graph of t"
    assert "a → b" in (root[1].text or "")


@pytest.mark.parametrize(
    "change",
    [
        {"target": "z"},
        {"target": "lung"},
        {"source": "smoke", "target": "lung"},
        {"kind": "bidirected"},
        {"confidence": 1.5},
        {"confidence": "high"},
        {"forward": -0.1},
        {"source": None},
    ],
)
def test_broken_graphs_are_refused(result: dict[str, Any], change: dict[str, Any]) -> None:
    edges = result["graph"]["edges"]
    edges[3] = {**edges[3], **change}
    with pytest.raises(DagveilError, match="result"):
        result_from_json(write_sealed(result))


@pytest.mark.parametrize("edges", ["ab", ["a"], [{"source": "lung"}]])
def test_what_is_no_list_of_edges_is_refused(result: dict[str, Any], edges: Any) -> None:
    result["graph"]["edges"] = edges
    with pytest.raises(DagveilError, match=r"graph\.edges"):
        result_from_json(write_sealed(result))


def test_repeated_nodes_are_refused(result: dict[str, Any]) -> None:
    result["graph"]["nodes"][1] = "asia"
    with pytest.raises(DagveilError, match="1 node names occur more than once"):
        result_from_json(write_sealed(result))


def test_the_drawing_of_a_result(result: dict[str, Any]) -> None:
    root = parse(render_svg(model_of(result)))
    assert len(part(root, "node")) == 8
    assert len(part(root, "edge")) == 7
    assert "asia-demo" in (root[0].text or "")

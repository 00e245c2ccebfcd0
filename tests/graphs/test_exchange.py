from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from dagveil.errors import GraphError, MissingExtraError
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.exchange.dot import to_dot
from dagveil.graphs.exchange.formats import from_networkx, to_causal_learn, to_graphml, to_networkx
from dagveil.graphs.pag import Edge, Mark, MixedGraph

HARD = ('say "hi"', "two words", "ключ 鍵 é", "<a> & 'b'", "back\\slash\\", "line\nbreak", " edge ", "-> x;", "]]>")
HARD_CPDAG = Cpdag(
    HARD,
    frozenset({(HARD[0], HARD[1]), (HARD[2], HARD[1]), (HARD[1], HARD[4]), (HARD[1], HARD[5])}),
    frozenset({frozenset((HARD[3], HARD[6])), frozenset((HARD[6], HARD[7]))}),
)
HARD_DAG = Dag(HARD, HARD_CPDAG.directed)

DOT_NODE = re.compile(r'^  (n\d+) \[label="((?:[^"\\]|\\.)*)"\];$')
DOT_EDGE = re.compile(r"^  (n\d+) -> (n\d+)(?: \[(.*)\])?;$")


def read_dot(text: str) -> MixedGraph:
    """Read our own DOT back, with the rules for labels in Graphviz's manual."""
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("digraph {", "}")
    names: dict[str, str] = {}
    edges = set()
    marks = {"none": Mark.TAIL, "normal": Mark.ARROW, "odot": Mark.CIRCLE}
    for line in lines[1:-1]:
        if node := DOT_NODE.match(line):
            names[node[1]] = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), node[2])
        else:
            edge = DOT_EDGE.match(line)
            assert edge is not None, line
            style = dict(item.split("=") for item in edge[3].split(", ")) if edge[3] else {}
            match style.get("dir"):
                case "none":
                    ends = (Mark.TAIL, Mark.TAIL)
                case "both":
                    ends = (marks[style["arrowtail"]], marks[style["arrowhead"]])
                case _:
                    ends = (Mark.TAIL, Mark.ARROW)
            edges.add(Edge(names[edge[1]], names[edge[2]], *ends))
    return MixedGraph(tuple(names.values()), frozenset(edges))


def test_networkx_and_back(all_classes: dict[Cpdag, list[Dag]]) -> None:
    pytest.importorskip("networkx")
    for cpdag, members in all_classes.items():
        assert from_networkx(to_networkx(cpdag)) == cpdag
        assert from_networkx(to_networkx(members[0])) == members[0]
    assert from_networkx(to_networkx(HARD_CPDAG)) == HARD_CPDAG
    assert from_networkx(to_networkx(HARD_DAG)) == HARD_DAG


def test_networkx_graphs_made_by_others() -> None:
    networkx = pytest.importorskip("networkx")
    assert from_networkx(networkx.Graph([("a", "b")])) == Cpdag.complete(("a", "b"))
    mixed = networkx.DiGraph([("a", "b"), ("b", "c"), ("c", "b")])
    assert from_networkx(mixed) == Cpdag(("a", "b", "c"), frozenset({("a", "b")}), frozenset({frozenset("bc")}))
    with pytest.raises(GraphError, match="strings"):
        from_networkx(networkx.DiGraph([(1, 2)]))
    half = networkx.DiGraph()
    half.add_edge("a", "b", kind="undirected")
    with pytest.raises(GraphError, match="does not fit its reverse"):
        from_networkx(half)
    mixed.graph["family"] = "dag"
    with pytest.raises(GraphError, match="1 undirected"):
        from_networkx(mixed)


def test_graphml_is_read_by_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    for graph in (HARD_CPDAG, HARD_DAG, Cpdag.empty(("carriage\rreturn", "tab\t"))):
        assert from_networkx(networkx.parse_graphml(to_graphml(graph))) == graph


def test_graphml_refuses_what_xml_cannot_hold() -> None:
    with pytest.raises(GraphError, match="XML"):
        to_graphml(Cpdag.empty(("nul\x00",)))


def test_dot_and_back(all_classes: dict[Cpdag, list[Dag]]) -> None:
    circles = MixedGraph(
        ("a", "b", "c", "d"),
        frozenset(
            {
                Edge("a", "b", Mark.CIRCLE, Mark.ARROW),
                Edge("a", "c", Mark.ARROW, Mark.ARROW),
                Edge("a", "d", Mark.CIRCLE, Mark.TAIL),
                Edge("b", "c", Mark.CIRCLE, Mark.CIRCLE),
            }
        ),
    )
    for graph in (*all_classes, HARD_CPDAG, HARD_DAG, circles):
        assert read_dot(to_dot(graph)) == MixedGraph.of(graph)


def test_causal_learn_has_the_same_marks() -> None:
    pytest.importorskip("causallearn")
    circles = MixedGraph(("a", "b"), frozenset({Edge("a", "b", Mark.CIRCLE, Mark.ARROW)}))
    for graph in (HARD_CPDAG, HARD_DAG, circles):
        mixed, general = MixedGraph.of(graph), to_causal_learn(graph)
        assert [node.get_name() for node in general.get_nodes()] == list(graph.nodes)
        edges = set()
        for edge in general.get_graph_edges():
            ends = [Mark[end.name] for end in (edge.get_endpoint1(), edge.get_endpoint2())]
            edges.add(Edge(edge.get_node1().get_name(), edge.get_node2().get_name(), ends[0], ends[1]))
        assert MixedGraph(graph.nodes, frozenset(edges)) == mixed


@pytest.mark.parametrize(
    ("export", "package", "name"),
    [(to_networkx, "networkx", "networkx"), (to_causal_learn, "causallearn", "causal-learn")],
)
def test_a_missing_package_is_named(export: Any, package: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"pip install {name}"):
        export(HARD_CPDAG)

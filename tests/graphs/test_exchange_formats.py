"""Graphs in the formats of other programs: there and back, by our readers and by the packages themselves."""

from __future__ import annotations

import ast
import contextlib
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.exchange.dot import from_dagitty, from_dot, to_dagitty, to_dot
from dagveil.graphs.exchange.formats import (
    Extension,
    Format,
    choose_dag,
    from_gml,
    from_graphml,
    from_networkx,
    from_node_link,
    from_tetrad,
    load_graph,
    read_graph,
    to_causal_learn,
    to_gml,
    to_graphml,
    to_networkx,
    to_node_link,
    to_pgmpy,
    to_tetrad,
    write_graph,
    write_pgmpy,
)
from dagveil.graphs.pag import Edge, Mark, MixedGraph

HOSTILE = st.one_of(
    # what separates, quotes and escapes in some format
    st.text("\\\"'-<>;,[]{}=:/*#&|@+. \n\r\t\x1b\x85\u2028ab0", max_size=8),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(
        [
            'say "hi"',
            "back\\",
            'x\\" -> evil //',
            'x\\\\" -> evil //',
            'x"; a -> b; "',
            "a,b",
            "\\N",
            "-> x;",
            "]]>",
            "<b>",
            "&amp;",
            "&#65;",
            "graph",
            "node",
            "edge",
            "n0",
            "0",
            "-1",
            "a b",
            "a;b",
            "a.b",
            "line\nbreak",
            "carriage\rreturn",
            " edges ",
            "'; DROP TABLE",
            "{}",
            "${x}",
            "/* c */",
            "// c",
            "# c",
            "ключ",
            "🜲",
            "",
        ]
    ),
)


@st.composite
def graphs(draw: st.DrawFn, names: st.SearchStrategy[str] = HOSTILE) -> Cpdag | Dag:
    """Draw a DAG, or the CPDAG of one, or a graph that no DAG has."""
    nodes = tuple(draw(st.lists(names, min_size=1, max_size=5, unique=True)))
    pairs = [(a, b) for place, a in enumerate(nodes) for b in nodes[place + 1 :]]
    kinds = [draw(st.sampled_from("  ><-")) for _ in pairs]
    family = draw(st.sampled_from(["dag", "cpdag", "any"]))
    if family == "any":
        directed = {
            pair if kind == ">" else pair[::-1] for pair, kind in zip(pairs, kinds, strict=True) if kind in "><"
        }
        undirected = {frozenset(pair) for pair, kind in zip(pairs, kinds, strict=True) if kind == "-"}
        return Cpdag(nodes, frozenset(directed), frozenset(undirected))
    dag = Dag(nodes, frozenset(pair for pair, kind in zip(pairs, kinds, strict=True) if kind != " "))
    return dag if family == "dag" else dag.cpdag()


ROUND_TRIPS: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    "graphml": (to_graphml, from_graphml),
    "gml": (to_gml, from_gml),
    "node-link": (lambda graph: to_node_link(to_networkx(graph)), from_node_link),
}
MARKED_ROUND_TRIPS: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    "dot": (to_dot, from_dot),
    "dagitty": (to_dagitty, from_dagitty),
    "tetrad": (to_tetrad, from_tetrad),
}


def write_or_refuse(write: Callable[[Any], str], graph: Cpdag | Dag) -> str | None:
    """Write a graph; a name that the format cannot hold must be refused with what to do."""
    try:
        return write(graph)
    except GraphError as refusal:
        if "rename" not in str(refusal):
            raise
        return None


@pytest.mark.parametrize("form", ROUND_TRIPS)
@settings(max_examples=80, deadline=None)
@given(graph=graphs())
def test_there_and_back(form: str, graph: Cpdag | Dag) -> None:
    write, read = ROUND_TRIPS[form]
    text = write_or_refuse(write, graph)
    if text is None:
        return
    assert read(text) == graph


@pytest.mark.parametrize("form", MARKED_ROUND_TRIPS)
@settings(max_examples=80, deadline=None)
@given(graph=graphs())
def test_marks_there_and_back(form: str, graph: Cpdag | Dag) -> None:
    """These formats do not say whether a graph without undirected edges is a DAG or a CPDAG."""
    write, read = MARKED_ROUND_TRIPS[form]
    text = write_or_refuse(write, graph)
    if text is None:
        return
    assert MixedGraph.of(read(text)) == MixedGraph.of(graph)


@pytest.mark.parametrize("form", [*ROUND_TRIPS, *MARKED_ROUND_TRIPS])
def test_ordinary_names_are_never_refused(form: str) -> None:
    write, read = (ROUND_TRIPS | MARKED_ROUND_TRIPS)[form]
    graph = Cpdag(("age", "bmi_2", "größe"), frozenset({("age", "bmi_2")}), frozenset({frozenset(("bmi_2", "größe"))}))
    assert read(write(graph)) == graph


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_networkx_reads_what_we_write(graph: Cpdag | Dag) -> None:
    networkx = pytest.importorskip("networkx")
    assert from_networkx(networkx.parse_gml(to_gml(graph))) == graph
    assert from_networkx(networkx.node_link_graph(json.loads(to_node_link(to_networkx(graph))), edges="edges")) == graph


@settings(max_examples=40, deadline=None)
@given(graph=graphs(st.text("abcxyz_", min_size=1, max_size=4)))
def test_we_read_what_networkx_writes(graph: Cpdag | Dag) -> None:
    networkx = pytest.importorskip("networkx")
    theirs = to_networkx(graph)
    assert from_gml("\n".join(networkx.generate_gml(theirs))) == graph
    assert from_graphml("\n".join(networkx.generate_graphml(theirs))) == graph
    assert from_node_link(json.dumps(networkx.node_link_data(theirs, edges="links"))) == graph
    pytest.importorskip("pydot")
    text = networkx.nx_pydot.to_pydot(theirs).to_string()
    assert MixedGraph.of(from_dot(text)) == MixedGraph.of(graph)


def read_general_graph(graph: Any) -> MixedGraph:
    """Read a graph of causal-learn."""
    edges = set()
    for edge in graph.get_graph_edges():
        marks = [Mark[end.name] for end in (edge.get_endpoint1(), edge.get_endpoint2())]
        edges.add(Edge(edge.get_node1().get_name(), edge.get_node2().get_name(), marks[0], marks[1]))
    return MixedGraph(tuple(graph.get_node_names()), frozenset(edges))


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_causal_learn_there_and_back(graph: Cpdag | Dag) -> None:
    pytest.importorskip("causallearn")
    assert read_general_graph(to_causal_learn(graph)) == MixedGraph.of(graph)


def test_causal_learn_reads_our_text(tmp_path: Path) -> None:
    reader = pytest.importorskip("causallearn.utils.TXT2GeneralGraph")
    graph = MixedGraph(
        ("age", "b-c", "größe", "d"),
        frozenset(
            {
                Edge("age", "b-c", Mark.TAIL, Mark.ARROW),
                Edge("age", "größe", Mark.TAIL, Mark.TAIL),
                Edge("d", "b-c", Mark.CIRCLE, Mark.ARROW),
                Edge("d", "größe", Mark.ARROW, Mark.ARROW),
            }
        ),
    )
    path = tmp_path / "graph.txt"
    path.write_text(to_tetrad(graph), encoding="utf-8")
    assert read_general_graph(reader.txt2generalgraph(str(path))) == graph
    assert load_graph(path) == graph


@settings(max_examples=80, deadline=None)
@given(graph=graphs())
def test_a_program_for_pgmpy_holds_names_and_nothing_else(graph: Cpdag | Dag) -> None:
    """Run it with a stand-in for pgmpy: no name can become code, and every edge arrives."""
    tree = ast.parse(write_pgmpy(graph))
    assert [type(statement) for statement in tree.body] == [ast.ImportFrom, ast.Assign, ast.Expr]
    made, added = tree.body[1].value, tree.body[2].value  # type: ignore[attr-defined]
    given = [ast.literal_eval(value) for value in (*made.args, *(word.value for word in made.keywords))]
    assert ast.literal_eval(added.args[0]) == list(graph.nodes)
    directed = graph.edges if isinstance(graph, Dag) else graph.directed
    assert set(given[0]) == directed
    if isinstance(graph, Cpdag):
        assert {frozenset(pair) for pair in given[1]} == graph.undirected


@settings(max_examples=30, deadline=None)
@given(graph=graphs())
def test_pgmpy(tmp_path_factory: pytest.TempPathFactory, graph: Cpdag | Dag) -> None:
    base = pytest.importorskip("pgmpy.base")
    path = tmp_path_factory.mktemp("pgmpy") / "graph.py"
    path.write_bytes(write_pgmpy(graph).encode())
    for made in (to_pgmpy(graph), runpy.run_path(str(path))["graph"]):
        assert set(made.nodes) == set(graph.nodes)
        if isinstance(graph, Dag):
            assert isinstance(made, base.DAG)
            assert set(made.edges) == graph.edges
        else:
            assert isinstance(made, base.PDAG)
            assert set(made.directed_edges) == graph.directed
            assert {frozenset(edge) for edge in made.undirected_edges} == graph.undirected


class TestExtension:
    PAIR = Cpdag(("a", "b"), frozenset(), frozenset({frozenset("ab")}))
    SQUARE = Cpdag(tuple("abcd"), frozenset(), frozenset(frozenset(pair) for pair in ("ab", "bc", "cd", "da")))

    def test_a_cpdag_is_never_a_dag_in_silence(self) -> None:
        for write in (lambda: choose_dag(self.PAIR), lambda: write_graph(self.PAIR, Format.DOWHY)):
            with pytest.raises(GraphError, match="1 edges of this graph have no direction"):
                write()

    def test_all_arrows_and_no_choice(self) -> None:
        directed = Cpdag(tuple("abc"), frozenset({("a", "b"), ("c", "b")}), frozenset())
        assert choose_dag(directed) == Dag(directed.nodes, directed.directed)

    def test_arrows_in_a_cycle_are_no_dag(self) -> None:
        with pytest.raises(GraphError, match="cycle"):
            choose_dag(Cpdag(tuple("abc"), frozenset({("a", "b"), ("b", "c"), ("c", "a")}), frozenset()))

    def test_a_member_of_the_class(self, all_classes: dict[Cpdag, list[Dag]]) -> None:
        for cpdag, members in all_classes.items():
            assert choose_dag(cpdag, Extension.CONSISTENT) in members

    def test_a_graph_that_no_dag_has(self) -> None:
        with pytest.raises(GraphError, match="--extend-nearest"):
            choose_dag(self.SQUARE, Extension.CONSISTENT)
        near = choose_dag(self.SQUARE, Extension.NEAREST)
        assert near.skeleton() == self.SQUARE.skeleton()

    @pytest.mark.parametrize("form", list(Format))
    def test_every_format_writes_the_chosen_dag(self, form: Format) -> None:
        text = write_graph(self.PAIR, form, Extension.CONSISTENT)
        assert text != ""
        readers = {Format.DOT: from_dot, Format.GML: from_gml, Format.DOWHY: from_gml, Format.GRAPHML: from_graphml}
        if form in readers:
            assert isinstance(readers[form](text), Dag)


class TestDowhy:
    GRAPH = Dag(("smokes", "tar in lungs", "cancer", "age"), frozenset({("smokes", "tar in lungs"), ("tar in lungs", "cancer"), ("age", "smokes"), ("age", "cancer")}))  # fmt: skip  # noqa: E501

    def test_an_effect_is_identified(self, tmp_path: Path) -> None:
        dowhy = pytest.importorskip("dowhy")
        pandas = pytest.importorskip("pandas")
        import numpy as np

        rng = np.random.default_rng(1)
        frame = pandas.DataFrame({name: rng.normal(size=200) for name in self.GRAPH.nodes})
        path = tmp_path / "graph.gml"
        path.write_text(write_graph(self.GRAPH, Format.DOWHY))
        for graph in (to_networkx(self.GRAPH), str(path)):
            model = dowhy.CausalModel(frame, treatment="smokes", outcome="cancer", graph=graph)
            found = model.identify_effect(proceed_when_unidentifiable=True)
            assert found.get_backdoor_variables() == ["age"]
            assert found.get_frontdoor_variables() == ["tar in lungs"]


class TestGraphsOfOthers:
    def test_dot(self) -> None:
        text = """
        /* a comment */ strict digraph "my graph" {
            rankdir=LR; node [shape=box, label="ignored"]
            # a line that a preprocessor wrote
            smokes -> {cancer; "chronic bronchitis"} -> cough;  // groups
            subgraph cluster_1 { label="inner"; edge [dir=none]; age -> smokes }
            x:port -> y:p:n [dir=back, color="red"]
            "two" + " words" -> html;
            html [label=<<b>bold</b> name>];
            long -> e [arrowhead=vee];
        }
        """
        graph = from_dot(text)
        assert isinstance(graph, Cpdag)
        assert graph.directed == {
            ("smokes", "cancer"),
            ("smokes", "chronic bronchitis"),
            ("cancer", "cough"),
            ("chronic bronchitis", "cough"),
            ("y", "x"),
            ("two words", "<b>bold</b> name"),
            ("long", "e"),
        }
        assert graph.undirected == {frozenset(("age", "smokes"))}

    def test_dot_without_directions(self) -> None:
        assert from_dot("graph { a -- b -- c }").undirected == {frozenset("ab"), frozenset("bc")}

    def test_dot_with_both_directions(self) -> None:
        assert from_dot("digraph { a -> b; b -> a; a -> b }") == Cpdag.complete(("a", "b"))

    def test_dagitty(self) -> None:
        text = """dag {
            bb="0,0,1,1"
            X [exposure,pos="-0.5,0.2"]
            "Y two" [outcome,pos="0.5,0.2"]
            Z [pos="0,0"]
            X -> "Y two"
            X <- Z -> "Y two"
        }"""
        assert from_dagitty(text) == Dag(("X", "Y two", "Z"), frozenset({("X", "Y two"), ("Z", "X"), ("Z", "Y two")}))
        assert from_dagitty("pdag{x->y<-z}") == Cpdag(tuple("xyz"), frozenset({("x", "y"), ("z", "y")}), frozenset())
        mixed = from_dagitty("pag { x @-> y  y <-> z  x @-@ w }")
        assert isinstance(mixed, MixedGraph)
        assert mixed.mark("x", "y") is Mark.ARROW
        assert mixed.mark("y", "x") is Mark.CIRCLE

    @pytest.mark.parametrize(
        ("suffix", "text", "words"),
        [
            (".dot", "", "line 1 .*expected digraph or graph"),
            (".dot", "digraph {", "expected a name"),
            (".dot", "digraph { a -> }", "expected a name"),
            (".dot", "digraph { a -> a }", "cannot be joined to itself|joins 2 different"),
            (".dot", "digraph { a -> b } x", "expected the end"),
            (".dot", "digraph { a \n % b }", "line 2 .*'%'"),
            (".dot", 'digraph { "a -> b }', "'\"' that means nothing"),
            (".dot", "digraph { a -> b; a -> b [dir=both] }", "different kinds"),
            (".dot", 'digraph { a [label="x"]; b [label="x"] }', "more than once"),
            (".dot", "digraph " + "{" * 60 + "}" * 60, "more than 50 braces"),
            (".graphml", "not xml", "this GraphML cannot be read: syntax error"),
            (".graphml", "<html/>", "this GraphML cannot be read: file not successfully read"),
            (".graphml", '<!DOCTYPE x [<!ENTITY a "aaa">]><graphml>&a;</graphml>', "document type"),
            (".gml", "", "this GML cannot be read: input contains no graph"),
            (".gml", "graph [ node [ id 0 ]", "this GML cannot be read: expected"),
            (".gml", "graph [ ] ]", "this GML cannot be read: expected"),
            (".gml", 'graph [ label "x ]', "this GML cannot be read"),
            (".gml", "graph [ node ]", "expected an int, float, string or"),
            (".gml", "graph [ edge [ source 1 target 2 ] ]", "undefined source"),
            (".gml", "graph [ " * 5000 + "] " * 5000, "this GML cannot be read: maximum recursion depth"),
            (".gml", "graph [ ] graph [ ]", "more than one graph"),
            (".json", "[]", "neither a dagveil result"),
            (".json", "{", "not JSON"),
            (".json", '{"nodes":[{"id":1}],"edges":[]}', "strings"),
            (".json", '{"nodes":[{"id":"a"}],"edges":[{"source":"a","target":"b"}],"directed":true}', "unknown node"),
            (".txt", "Graph Nodes:\na;b\n\nGraph Edges:\n1. a ~~> b", "cannot be read"),
            (".csv", "a,b", "'.csv' is no graph"),
            ("", "a", "'nothing' is no graph"),
        ],
    )
    def test_what_cannot_be_read(self, suffix: str, text: str, words: str) -> None:
        with pytest.raises(GraphError, match=words):
            read_graph(text, suffix)

    @settings(max_examples=150, deadline=None)
    @given(
        suffix=st.sampled_from([".dot", ".graphml", ".gml", ".dagitty", ".txt", ".json"]),
        text=st.text('digraph{}[]<>-@;,:"\\=+/*#% \n0ab&', max_size=40),
        head=st.sampled_from(["", "digraph {", "dag {", "graph [", "<graphml>", '{"nodes":', "Graph Nodes:\n"]),
    )
    def test_nonsense_is_an_error_that_says_so(self, suffix: str, text: str, head: str) -> None:
        with contextlib.suppress(GraphError):
            read_graph(head + text, suffix)

    def test_files_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.dot"
        with pytest.raises(GraphError, match="cannot read"):
            load_graph(path)
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(GraphError, match="UTF-8"):
            load_graph(path)
        path.write_bytes("\ufeffdigraph { a -> b }".encode())
        assert load_graph(path) == Dag(("a", "b"), frozenset({("a", "b")}))

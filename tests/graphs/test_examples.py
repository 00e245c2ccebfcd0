"""Small examples of what the functions of graphs/ return."""

from __future__ import annotations

import networkx

from dagveil.graphs.cpdag import (
    Cpdag,
    Dag,
    check_nodes,
    close,
    find_extension,
    list_by_end,
    nearest_extension,
    sort_topologically,
)
from dagveil.graphs.exchange.dot import DOT_TYPES, from_dagitty, from_dot, join_arcs, read_statements
from dagveil.graphs.exchange.formats import (
    Extension,
    Format,
    choose_dag,
    from_gml,
    from_graphml,
    from_networkx,
    from_node_link,
    read_graph,
    to_graphml,
    to_networkx,
    to_node_link,
    write_graph,
)
from dagveil.graphs.pag import Edge, Mark, MixedGraph


def test_find_extension() -> None:
    assert sorted(find_extension(("a", "b", "c"), {("a", "b")}, {frozenset({"b", "c"})})) == [("a", "b"), ("b", "c")]


def test_nearest_extension() -> None:
    square = [frozenset(pair) for pair in ("ab", "bc", "cd", "da")]
    assert find_extension(("a", "b", "c", "d"), [], square) is None
    assert len(nearest_extension(("a", "b", "c", "d"), [], square)) == 4


def test_sort_topologically() -> None:
    assert sort_topologically(("a", "b", "c"), {("c", "a")}) == ("b", "c", "a")
    assert sort_topologically(("a", "b"), {("a", "b"), ("b", "a")}) is None


def test_join_arcs() -> None:
    graph = join_arcs(["a", "b", "c"], [("a", "b", None), ("b", "c", None), ("c", "b", None)])
    assert [sorted(pair) for pair in graph.undirected] == [["b", "c"]]


def test_read_statements() -> None:
    assert read_statements('digraph { a -> "b c" [dir=none] }', DOT_TYPES).edges == [
        ("a", "->", "b c", {"dir": "none"})
    ]


def test_from_dot() -> None:
    assert from_dot("digraph { smokes -> {cancer bronchitis} }").order() == ("smokes", "cancer", "bronchitis")


def test_from_dagitty() -> None:
    assert sorted(from_dagitty("dag { x <- z -> y  x -> y }").edges) == [("x", "y"), ("z", "x"), ("z", "y")]


def test_choose_dag() -> None:
    pair = Cpdag(("a", "b"), frozenset(), frozenset({frozenset("ab")}))
    assert repr(choose_dag(pair, Extension.CONSISTENT).edges) == "frozenset({('b', 'a')})"


def test_write_graph() -> None:
    assert write_graph(Cpdag.empty(("a",)), Format.DOT).splitlines()[1] == '  n0 [label="a"];'


def test_read_graph() -> None:
    assert repr(read_graph("digraph { a -> b }", ".dot").edges) == "frozenset({('a', 'b')})"


def test_to_networkx() -> None:
    assert to_networkx(Dag(("a", "b"), frozenset({("a", "b")}))).edges["a", "b"] == {"kind": "directed"}


def test_from_networkx() -> None:
    assert repr(from_networkx(networkx.DiGraph([("a", "b")]))) == "Dag(nodes=('a', 'b'), edges=frozenset({('a', 'b')}))"


def test_from_gml() -> None:
    assert from_gml(
        'graph [ directed 1 node [ id 7 label "a" ] node [ id 8 ] edge [ source 7 target 8 ] ]'
    ).order() == ("a", "8")


def test_to_graphml() -> None:
    assert "a &amp; b" in to_graphml(Cpdag.empty(("a & b",)))


def test_from_graphml() -> None:
    assert from_graphml(to_graphml(Dag(("a", "b"), frozenset({("a", "b")})))).order() == ("a", "b")


def test_to_node_link() -> None:
    assert from_node_link(to_node_link(to_networkx(Cpdag.complete(("a", "b"))))) == Cpdag.complete(("a", "b"))


def test_close() -> None:
    directed, undirected = close(("a", "b", "c"), {("a", "b")}, {frozenset({"b", "c"})})
    assert repr((sorted(directed), undirected)) == "([('a', 'b'), ('b', 'c')], frozenset())"


def test_mark() -> None:
    assert Mark("arrow") is Mark.ARROW


def test_mixed_graph() -> None:
    graph = MixedGraph(("a", "b"), frozenset({Edge("b", "a", Mark.ARROW, Mark.CIRCLE)}))
    assert repr((graph.mark("a", "b"), graph.mark("b", "a"))) == "(<Mark.ARROW: 'arrow'>, <Mark.CIRCLE: 'circle'>)"


def test_check_nodes() -> None:
    assert check_nodes(["a", "b"]) == ("a", "b")


def test_list_by_end() -> None:
    assert repr(list_by_end(("a", "b"), {("a", "b")})) == "{'a': frozenset({'b'}), 'b': frozenset()}"

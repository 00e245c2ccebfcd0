from __future__ import annotations

import sys
import types
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_result import model_of, write_sealed

from dagveil.graphs.cpdag import Dag
from dagveil.report.snippets import write_dot, write_dowhy, write_networkx, write_snippets
from dagveil.runs.result import ResultEdge, ResultGraph, result_from_json

NAMES = [
    "</script>",
    "\"quotes\" 'more'",
    "back\\slash",
    "two\nlines",
    "right\u202eto left",
    "lone\ud800",
    "{x}",
    "é肺🫁",
]


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "snippet", "exec"), names)
    return names


@pytest.fixture
def dowhy(monkeypatch: pytest.MonkeyPatch) -> type:
    """Stand in for DoWhy, which is large: a model that keeps what it is given."""

    class CausalModel:
        def __init__(self, **given: Any) -> None:
            self.given = given

    module = types.ModuleType("dowhy")
    module.CausalModel = CausalModel
    monkeypatch.setitem(sys.modules, "dowhy", module)
    return CausalModel


@st.composite
def drawn_graphs(draw: st.DrawFn) -> ResultGraph:
    nodes = draw(st.lists(st.one_of(st.sampled_from(NAMES), st.text(max_size=8)), min_size=1, max_size=6, unique=True))
    shares = st.one_of(st.none(), st.floats(0, 1))
    edges = []
    for i, source in enumerate(nodes):
        for target in nodes[i + 1 :]:
            kind = draw(st.sampled_from((None, "directed", "undirected")))
            if kind:
                edges.append(ResultEdge(source, target, kind, draw(shares), draw(shares)))
    return ResultGraph(tuple(nodes), "cpdag", tuple(edges))


@settings(max_examples=80, deadline=None)
@given(drawn_graphs())
def test_networkx_code_makes_the_graph_of_the_library(graph: ResultGraph) -> None:
    code = write_networkx(graph)
    assert code.isascii()
    made = run(code)["graph"]
    edges = [(e.source, e.target, e.kind, e.confidence, e.arrow_confidence) for e in graph.edges]
    wanted = nx.DiGraph(family="cpdag")
    wanted.add_nodes_from(graph.nodes)
    for source, target, kind, share, arrow in edges:
        for arc in ((source, target),) if kind == "directed" else ((source, target), (target, source)):
            wanted.add_edge(*arc, kind=kind, confidence=share, arrow_confidence=arrow)
    assert dict(made.nodes(data=True)) == dict(wanted.nodes(data=True))
    assert {(a, b): d for a, b, d in made.edges(data=True)} == {(a, b): d for a, b, d in wanted.edges(data=True)}


def test_code_and_library_agree_on_a_result(result: dict[str, Any]) -> None:
    frozen: ResultGraph = result_from_json(write_sealed(result)).graph
    made, wanted = run(write_networkx(frozen))["graph"], frozen.to_networkx()
    assert made.graph == wanted.graph
    assert dict(made.adj) == dict(wanted.adj)
    assert write_dot(frozen) == frozen.to_dot()


@settings(max_examples=80, deadline=None)
@given(graph=drawn_graphs())
def test_dot_has_one_statement_for_each_node_and_edge(graph: ResultGraph) -> None:
    lines = write_dot(graph).splitlines()
    assert lines[0] == "digraph {"
    assert lines[-1] == "}"
    assert len(lines) == 2 + len(graph.nodes) + len(graph.edges)
    assert "\u202e" not in write_dot(graph)


def test_a_cpdag_is_never_a_dag_by_itself(result: dict[str, Any], dowhy: type) -> None:
    graph = model_of(result).result.graph
    code = write_dowhy(graph)
    mine = {"table": object(), "treatment": "smoke", "outcome": "dysp"}
    with pytest.raises(ValueError, match="CPDAG"):
        run(code, **mine)
    # the choice that the comment offers
    (offered,) = [line.partition(": ")[2] for line in code.splitlines() if line.startswith("# one choice")]
    chosen = run(offered)["chosen"]
    assert {frozenset(arc) for arc in chosen} == {frozenset((e.source, e.target)) for e in graph.lines}
    told = run(code.replace("chosen = []", offered), **mine)
    model = told["model"]
    assert isinstance(model, dowhy)
    assert model.given["data"] is mine["table"]
    dag = Dag(tuple(model.given["graph"].nodes), frozenset(model.given["graph"].edges))
    frozen = result_from_json(write_sealed(result)).graph.cpdag
    assert {frozenset(arc) for arc in dag.edges} == frozen.skeleton()
    assert frozen.directed <= dag.edges


def test_half_a_choice_is_refused(result: dict[str, Any], dowhy: type) -> None:
    code = write_dowhy(model_of(result).result.graph)
    for chosen in ("[('smoke', 'lung')]", "[('smoke', 'lung'), ('smoke', 'asia')]"):
        with pytest.raises(ValueError, match="CPDAG"):
            run(code.replace("chosen = []", f"chosen = {chosen}"), table=1, treatment="", outcome="")


def test_a_dag_needs_no_choice_and_a_cycle_is_refused(dowhy: type) -> None:
    edge = ResultEdge("a", "b", "directed")
    code = write_dowhy(ResultGraph(("a", "b"), "cpdag", (edge,)))
    assert "chosen" not in code
    assert list(run(code, table=1, treatment="a", outcome="b")["model"].given["graph"].edges) == [("a", "b")]
    ring = tuple(ResultEdge(a, b, "directed") for a, b in ("ab", "bc", "ca"))
    with pytest.raises(ValueError, match="cycle"):
        run(write_dowhy(ResultGraph(("a", "b", "c"), "cpdag", ring)), table=1, treatment="a", outcome="b")


def test_a_graph_that_fits_no_dag_offers_no_choice() -> None:
    square = tuple(ResultEdge(a, b, "undirected") for a, b in ("ab", "bc", "cd", "ad"))
    code = write_dowhy(ResultGraph(("a", "b", "c", "d"), "cpdag", square))
    assert "no choice is free of cycles" in code
    assert "# one choice" not in code


@settings(max_examples=80, deadline=None)
@given(graph=drawn_graphs())
def test_code_is_python_whatever_columns_are_called(graph: ResultGraph) -> None:
    for snippet in write_snippets(graph):
        if snippet.key != "dot":
            assert snippet.code.isascii()
            compile(snippet.code, snippet.key, "exec")

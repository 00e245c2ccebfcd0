"""The graph as text to take along: DOT, and Python code for networkx and for DoWhy."""

from collections.abc import Iterable
from dataclasses import dataclass

from dagveil.graphs.cpdag import find_extension
from dagveil.report.formatting import write_plural
from dagveil.runs.result import ResultGraph
from dagveil.text import clean_text


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text to copy: the key names it in the page, the note says what to know before using it."""

    key: str
    name: str
    note: str
    code: str


def write_snippets(graph: ResultGraph) -> tuple[Snippet, ...]:
    """Write the graph for other programs; all edges are in it, whatever a reader of the page has hidden."""
    if graph.family == "pag":
        networkx = "Each edge names its ends and the mark at each. DoWhy and pgmpy have no such marks."
        return (
            Snippet("dot", "DOT", "For Graphviz. A circle is arrowhead or arrowtail odot.", write_dot(graph)),
            Snippet("networkx", "networkx code", networkx, write_networkx(graph)),
        )
    lines = write_plural(len(graph.lines), "undirected edge")
    dowhy = f"DoWhy needs a DAG. This graph has {lines}: the code stops until you have directed each of them yourself."
    directed = "All edges are directed. DoWhy takes each of them as a cause."
    networkx = "An undirected edge is two arcs of the kind undirected."
    return (
        Snippet("dot", "DOT", "For Graphviz. An undirected edge has dir=none.", write_dot(graph)),
        Snippet("networkx", "networkx code", networkx, write_networkx(graph)),
        Snippet("dowhy", "DoWhy code", dowhy if graph.lines else directed, write_dowhy(graph)),
    )


def write_dot(graph: ResultGraph) -> str:
    """Write the graph in the DOT language; characters that turn the reading direction are replaced, as in the page."""
    return "\n".join(clean_text(line) for line in graph.to_dot().split("\n"))


def write_networkx(graph: ResultGraph) -> str:
    """Write Python code that makes a networkx.DiGraph: names are pure ASCII with escapes, so they arrive exactly."""
    if graph.family == "pag":
        code = ["import networkx as nx", "", 'graph = nx.Graph(family="pag")', *_write_nodes(graph)]
        for edge in graph.edges:
            first, second = edge.marks
            ends = {"first": edge.source, "second": edge.target}
            ends |= {"mark_at_first": first.value, "mark_at_second": second.value}
            code.append(f"graph.add_edge({edge.source!a}, {edge.target!a}, **{ends!a})")
        return "\n".join((*code, ""))
    code = ["import networkx as nx", "", 'graph = nx.DiGraph(family="cpdag")', *_write_nodes(graph)]
    if graph.lines:
        code.append("# an undirected edge is two arcs, one each way")
    if graph.edges:
        code += ["graph.add_edges_from(["]
        for edge in graph.edges:
            arcs = [(edge.source, edge.target), (edge.target, edge.source)][: 1 if edge.sign == "→" else 2]
            facts = {"kind": edge.kind, "confidence": edge.confidence, "arrow_confidence": edge.arrow_confidence}
            code += [f"    ({tail!a}, {head!a}, {facts!r})," for tail, head in arcs]
        code += ["])"]
    return "\n".join((*code, ""))


def write_dowhy(graph: ResultGraph) -> str:
    """Write Python code for a DoWhy model; with undirected edges it raises until the reader has directed each one."""
    code = [
        "import networkx as nx",
        "from dowhy import CausalModel",
        "",
        "graph = nx.DiGraph()",
        *_write_nodes(graph),
        *_write_list("graph.add_edges_from([", ((edge.source, edge.target) for edge in graph.arrows), "])"),
        "",
    ]
    if graph.lines:
        code += _write_choice(graph)
    code += [
        "if not nx.is_directed_acyclic_graph(graph):",
        '    raise ValueError("these arrows form a cycle, and DoWhy needs a DAG: turn or remove one of them")',
        "",
        "# table, treatment and outcome are yours: a data frame and the names of two of its columns",
        "model = CausalModel(data=table, treatment=treatment, outcome=outcome, graph=graph)",
    ]
    return "\n".join((*code, ""))


def _write_choice(graph: ResultGraph) -> list[str]:
    """Let the reader direct each undirected edge, and show one way that stays in the equivalence class, if any does."""
    open_edges = [(edge.source, edge.target) for edge in graph.lines]
    code = [
        f"# {write_plural(len(open_edges), 'edge')} without direction: what was released fits either way.",
        "# DoWhy needs a DAG, and it takes each arrow as a cause. Direct each edge from what you know of the subject.",
        *_write_list("undirected = [", open_edges, "]"),
        "chosen = []",
    ]
    pairs = {frozenset(edge) for edge in open_edges}
    found = find_extension(graph.nodes, [(e.source, e.target) for e in graph.arrows], pairs)
    if found is None:
        code.append("# no choice is free of cycles and of new colliders, so this graph fits no DAG exactly")
    else:
        example = sorted(arc for arc in found if frozenset(arc) in pairs)
        code.append(f"# one choice of those that fit equally well: chosen = [{', '.join(map(_write_arc, example))}]")
    return [
        *code,
        "if {frozenset(edge) for edge in chosen} != {frozenset(edge) for edge in undirected}:",
        '    raise ValueError("this graph is a CPDAG: direct each edge of `undirected` in `chosen` first")',
        "graph.add_edges_from(chosen)",
    ]


def _write_nodes(graph: ResultGraph) -> list[str]:
    return ["graph.add_nodes_from([", *(f"    {node!a}," for node in graph.nodes), "])"]


def _write_list(head: str, arcs: Iterable[tuple[str, str]], foot: str) -> list[str]:
    return [head, *(f"    {_write_arc(arc)}," for arc in arcs), foot]


def _write_arc(arc: tuple[str, str]) -> str:
    return f"({arc[0]!a}, {arc[1]!a})"

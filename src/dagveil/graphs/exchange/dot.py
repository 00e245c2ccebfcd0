"""The DOT language of Graphviz."""

from __future__ import annotations

import re
from typing import Final

from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import list_edges, simplify
from dagveil.graphs.exchange.statements import DOT_TYPES, Statements, merge_edges, read_statements
from dagveil.graphs.marks import Mark
from dagveil.graphs.mixed import Edge, MixedGraph

_HEADS: Final = {Mark.TAIL: "none", Mark.ARROW: "normal", Mark.CIRCLE: "odot"}
_MARKS: Final = {"none": Mark.TAIL, "odot": Mark.CIRCLE, "dot": Mark.CIRCLE}
_LINE_BREAKS: Final = frozenset("nlr")


def to_dot(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph in the DOT language of Graphviz.

    Nodes have numbers as identifiers and their names as labels, because DOT cannot write every name as an identifier.

    Examples
    --------
    >>> print(to_dot(Dag(("a", "b"), frozenset({("a", "b")}))), end="")
    digraph {
      n0 [label="a"];
      n1 [label="b"];
      n0 -> n1;
    }
    """
    mixed = MixedGraph.of(graph)
    key = {name: f"n{position}" for position, name in enumerate(mixed.nodes)}
    lines = [f"  {key[name]} [label={_quote(name)}];" for name in mixed.nodes]
    for edge in list_edges(mixed):
        if edge.mark_at_second is Mark.TAIL and edge.mark_at_first is not Mark.TAIL:
            edge = edge.turned()
        match edge.mark_at_first, edge.mark_at_second:
            case (Mark.TAIL, Mark.ARROW):
                style = ""
            case (Mark.TAIL, Mark.TAIL):
                style = " [dir=none]"
            case (first, second):
                style = f" [dir=both, arrowtail={_HEADS[first]}, arrowhead={_HEADS[second]}]"
        lines.append(f"  {key[edge.first]} -> {key[edge.second]}{style};")
    return "\n".join(["digraph {", *lines, "}", ""])


def from_dot(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from DOT; a MixedGraph if it has edges with circles or two arrowheads.

    The name of a node is its label if it has one, otherwise its identifier. Edges are read by `dir`, `arrowhead` and
    `arrowtail`; two arcs that join the same nodes in both ways are one undirected edge.

    Examples
    --------
    >>> from_dot("digraph { smokes -> {cancer bronchitis} }").order()
    ('smokes', 'cancer', 'bronchitis')
    """
    statements = read_statements(text, DOT_TYPES)
    names = {node: _read_label(node, attributes) for node, attributes in statements.nodes.items()}
    return simplify(MixedGraph(tuple(names.values()), merge_edges(_read_edges(statements, names))))


def _read_edges(statements: Statements, names: dict[str, str]) -> list[Edge]:
    edges = []
    for first, connector, second, attributes in statements.edges:
        direction = attributes.get("dir") or ("none" if connector == "--" else "forward")
        tail = head = Mark.TAIL
        if direction in ("forward", "both"):
            head = _MARKS.get(attributes.get("arrowhead", ""), Mark.ARROW)
        if direction in ("back", "both"):
            tail = _MARKS.get(attributes.get("arrowtail", ""), Mark.ARROW)
        edges.append(Edge(names[first], names[second], tail, head))
    return edges


def _quote(name: str) -> str:
    """Return a name as a DOT label: in a label, unlike in an identifier, a doubled backslash stands for one."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _read_label(node: str, attributes: dict[str, str]) -> str:
    """Return the name of a node: its label, in which a backslash has a meaning, or its identifier."""
    label = attributes.get("label")
    if label is None:
        return node
    return re.sub(r"\\(.)", lambda found: _unescape(found[1], node), label, flags=re.DOTALL)


def _unescape(character: str, node: str) -> str:
    if character in _LINE_BREAKS:
        return "\n"
    return node if character == "N" else character

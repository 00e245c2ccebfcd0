"""GraphML, which is XML."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import UNDIRECTED, join_arcs, list_arcs, name_family

SPACE: Final = "{http://graphml.graphdrawing.org/xmlns}"
NOT_IN_XML: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NAMES: Final = ("name", "label")


def to_graphml(graph: Dag | Cpdag) -> str:
    """Return the graph as GraphML: names as the node attribute ``name``, ``kind`` on each arc as in `to_networkx`.

    Examples
    --------
    >>> "a &amp; b" in to_graphml(Cpdag.empty(("a & b",)))
    True
    """
    for name in graph.nodes:
        if NOT_IN_XML.search(name):
            raise GraphError(f"the node {name!r} has a character that XML cannot hold; rename it before the export")
    key = {name: f"n{position}" for position, name in enumerate(graph.nodes)}
    nodes = [f'    <node id="{key[name]}"><data key="name">{_escape(name)}</data></node>' for name in graph.nodes]
    edges = [
        f'    <edge source="{key[tail]}" target="{key[head]}"><data key="kind">{kind}</data></edge>'
        for tail, head, kind in list_arcs(graph)
    ]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
            '  <key id="family" for="graph" attr.name="family" attr.type="string"/>',
            '  <key id="name" for="node" attr.name="name" attr.type="string"/>',
            '  <key id="kind" for="edge" attr.name="kind" attr.type="string"/>',
            '  <graph edgedefault="directed">',
            f'    <data key="family">{name_family(graph)}</data>',
            *nodes,
            *edges,
            "  </graph>",
            "</graphml>",
            "",
        ]
    )


def from_graphml(text: str) -> Dag | Cpdag:
    """Read a graph from GraphML.

    The name of a node is its attribute ``name`` or ``label`` if it has one, otherwise its identifier.

    Examples
    --------
    >>> from_graphml(to_graphml(Dag(("a", "b"), frozenset({("a", "b")})))).order()
    ('a', 'b')
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise GraphError("this GraphML declares a document type, which no graph needs; take the declaration out")
    try:
        # the declaration of an encoding speaks of the file, which is read already
        root = ElementTree.fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
    except ElementTree.ParseError as error:
        raise GraphError(f"this is not XML: {error}") from error
    attributes = {key.get("id"): key.get("attr.name") or key.get("id") for key in root.iter(f"{SPACE}key")}
    graphs = root.findall(f"{SPACE}graph")
    if root.tag != f"{SPACE}graphml" or len(graphs) != 1:
        raise GraphError(f"GraphML has one element graphml and in it one graph; this has {len(graphs)} graphs")
    graph = graphs[0]

    def read(element: ElementTree.Element) -> dict[str | None, str]:
        return {attributes.get(data.get("key")): data.text or "" for data in element.findall(f"{SPACE}data")}

    names: dict[str | None, str] = {}
    for node in graph.iter(f"{SPACE}node"):
        facts = read(node)
        names[node.get("id")] = next((facts[name] for name in _NAMES if name in facts), node.get("id") or "")
    arcs: list[tuple[str, str, str | None]] = []
    for edge in graph.iter(f"{SPACE}edge"):
        try:
            tail, head = (names[edge.get(end)] for end in ("source", "target"))
        except KeyError:
            raise GraphError("an edge of this GraphML joins a node that is not declared") from None
        directed = edge.get("directed", str(graph.get("edgedefault") == "directed").lower()) == "true"
        kind = read(edge).get("kind")
        arcs += [(tail, head, kind)] if directed else [(tail, head, UNDIRECTED), (head, tail, UNDIRECTED)]
    return join_arcs(names.values(), arcs, read(graph).get("family"))


def _escape(name: str) -> str:
    # A bare carriage return would come back as a line feed from any XML reader.
    return escape(name, {"\r": "&#13;"})

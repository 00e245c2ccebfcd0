"""GML, the graph modelling language, as networkx reads and writes it; DoWhy prefers it."""

from __future__ import annotations

import html
import re
from typing import Any, Final

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import UNDIRECTED, join_arcs, list_arcs, name_family

DEEPEST: Final = 20
_TOKEN: Final = re.compile(r'\s+|#[^\n]*|"(?P<text>[^"]*)"|(?P<sign>[\[\]])|(?P<word>[^\s\[\]"]+)')
_REFERENCE: Final = re.compile(r"&(?:#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]*));")


def to_gml(graph: Dag | Cpdag) -> str:
    """Return the graph as GML: names as labels, ``kind`` on each arc as in `to_networkx`.

    Examples
    --------
    >>> print(to_gml(Cpdag.empty(("a",))), end="")
    graph [
      directed 1
      family "cpdag"
      node [
        id 0
        label "a"
      ]
    ]
    """
    key = {name: position for position, name in enumerate(graph.nodes)}
    lines = ["graph [", "  directed 1", f'  family "{name_family(graph)}"']
    for name, position in key.items():
        lines += ["  node [", f"    id {position}", f"    label {_quote(name)}", "  ]"]
    for tail, head, kind in list_arcs(graph):
        lines += ["  edge [", f"    source {key[tail]}", f"    target {key[head]}", f'    kind "{kind}"', "  ]"]
    return "\n".join([*lines, "]", ""])


def from_gml(text: str) -> Dag | Cpdag:
    """Read a graph from GML; the name of a node is its label if it has one, otherwise its number.

    Examples
    --------
    >>> from_gml('graph [ directed 1 node [ id 7 label "a" ] node [ id 8 ] edge [ source 7 target 8 ] ]').order()
    ('a', '8')
    """
    tokens = _split(text)
    facts, end = _read_list(tokens, 0, 0)
    if end < len(tokens):
        raise GraphError("this GML cannot be read: a bracket is closed that was never opened")
    graphs = [value for key, value in facts if key == "graph" and isinstance(value, list)]
    if len(graphs) != 1:
        raise GraphError(f"this GML holds {len(graphs)} graphs; give a file with one")
    names: dict[str, str] = {}
    arcs: list[tuple[str, str, str | None]] = []
    found = {key: value for key, value in graphs[0] if isinstance(value, str)}
    for facts_of_node in _elements(graphs[0], "node"):
        if "id" not in facts_of_node or facts_of_node["id"] in names:
            raise GraphError("a node of this GML has no id of its own")
        names[facts_of_node["id"]] = facts_of_node.get("label", facts_of_node["id"])
    for facts_of_edge in _elements(graphs[0], "edge"):
        ends = [names.get(facts_of_edge.get(end, "")) for end in ("source", "target")]
        if ends[0] is None or ends[1] is None:
            raise GraphError("an edge of this GML joins a node that is not declared")
        if found.get("directed") == "1":
            arcs.append((ends[0], ends[1], facts_of_edge.get("kind")))
        else:
            arcs += [(ends[0], ends[1], UNDIRECTED), (ends[1], ends[0], UNDIRECTED)]
    return join_arcs(names.values(), arcs, found.get("family"))


def _elements(graph: list[tuple[str, Any]], wanted: str) -> list[dict[str, str]]:
    return [
        {name: content for name, content in value if isinstance(content, str)}
        for key, value in graph
        if key == wanted and isinstance(value, list)
    ]


def _split(text: str) -> list[tuple[str, str]]:
    tokens = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:  # only a quotation mark without its partner is left
            raise GraphError(f"line {text.count(chr(10), 0, place) + 1} of the GML cannot be read: a text never ends")
        if found.lastgroup is not None:
            tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    return tokens


def _read_list(tokens: list[tuple[str, str]], place: int, depth: int) -> tuple[list[tuple[str, Any]], int]:
    """Read pairs of key and value up to a closing bracket or the end."""
    if depth > DEEPEST:
        raise GraphError(f"this GML has more than {DEEPEST} brackets within each other")
    found: list[tuple[str, Any]] = []
    while place < len(tokens) and tokens[place] != ("sign", "]"):
        kind, key = tokens[place]
        if kind != "word" or place + 1 == len(tokens):
            raise GraphError(f"this GML cannot be read: expected a key and a value, found {key[:40]!r}")
        kind, value = tokens[place + 1]
        place += 2
        if (kind, value) == ("sign", "["):
            inner, place = _read_list(tokens, place, depth + 1)
            if place == len(tokens):
                raise GraphError("this GML cannot be read: a bracket is never closed")
            found.append((key, inner))
            place += 1
        elif kind == "sign":
            raise GraphError(f"this GML cannot be read: the key {key[:40]!r} has no value")
        else:
            found.append((key, _unescape(value) if kind == "text" else value))
    return found, place


def _quote(name: str) -> str:
    escaped = re.sub(r'[^ -~]|[&"]', lambda found: f"&#{ord(found[0])};", name)
    return f'"{escaped}"'


def _unescape(text: str) -> str:
    def read(found: re.Match[str]) -> str:
        decimal, hexadecimal, name = found.groups()
        if name is not None:
            return html.unescape(found[0])
        code = int(decimal) if decimal is not None else int(hexadecimal, 16)
        return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else found[0]

    return _REFERENCE.sub(read, text)

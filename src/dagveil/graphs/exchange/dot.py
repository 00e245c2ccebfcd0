"""The DOT language of Graphviz."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

from dagveil.errors import GraphError, MissingExtraError
from dagveil.graphs.cpdag import Arc, Cpdag, Dag, Pair, check_arcs, sort_topologically
from dagveil.graphs.pag import Edge, Mark, MixedGraph

DIRECTED: Final = "directed"
UNDIRECTED: Final = "undirected"


def split_edges(graph: Dag | Cpdag) -> tuple[list[Arc], list[Arc]]:
    """Return the directed edges, and the undirected ones with their ends in alphabetical order; both sorted."""
    arcs: frozenset[Arc] = graph.edges if isinstance(graph, Dag) else graph.directed
    pairs: frozenset[Pair] = frozenset() if isinstance(graph, Dag) else graph.undirected
    return sorted(arcs), sorted((min(pair), max(pair)) for pair in pairs)


def list_edges(mixed: MixedGraph) -> list[Edge]:
    """Return the edges in a fixed order."""
    return sorted(mixed.edges, key=lambda edge: (edge.first, edge.second))


def join_arcs(
    nodes: Iterable[str], arcs: Iterable[tuple[str, str, str | None]], family: str | None = None
) -> Dag | Cpdag:
    """Return the graph of some arcs.

    Arcs are (tail, head, kind); the kind is "directed", "undirected" or not told. If the family is not told, directed
    edges without a cycle are a Dag.
    """
    names = tuple(nodes)
    kinds = {(tail, head): kind for tail, head, kind in arcs}
    undirected = frozenset(frozenset(arc) for arc in kinds if arc[::-1] in kinds and arc[0] != arc[1])
    for (tail, head), kind in kinds.items():
        if kind is not None and kind != (UNDIRECTED if frozenset((tail, head)) in undirected else DIRECTED):
            raise GraphError(
                f"the arc from {tail!r} to {head!r} is of the kind {kind!r}, which does not fit its reverse; "
                "an undirected edge is two arcs, one each way, and a directed edge is one"
            )
    directed = frozenset(arc for arc in kinds if frozenset(arc) not in undirected)
    if family is None:
        acyclic = not undirected and sort_topologically(names, check_arcs(names, directed)) is not None
        family = "dag" if acyclic else "cpdag"
    if family == "dag" and not undirected:
        return Dag(names, directed)
    if family == "cpdag":
        return Cpdag(names, directed, undirected)
    raise GraphError(
        f"the graph calls itself {family!r} and has {len(undirected)} undirected edges; "
        "set its attribute family to 'dag' (no undirected edges) or 'cpdag'"
    )


def simplify(mixed: MixedGraph) -> Dag | Cpdag | MixedGraph:
    """Return a graph of directed and undirected edges as a Dag or Cpdag, and any other as it is."""
    arcs: list[tuple[str, str, str | None]] = []
    for edge in mixed.edges:
        if edge.mark_at_first is not Mark.TAIL:
            edge = edge.turned()
        if edge.mark_at_first is not Mark.TAIL or edge.mark_at_second is Mark.CIRCLE:
            return mixed
        arcs.append((edge.first, edge.second, None))
        if edge.mark_at_second is Mark.TAIL:
            arcs.append((edge.second, edge.first, None))
    return join_arcs(mixed.nodes, arcs)


def import_package(module: str) -> Any:
    """Import a module of another package, or say how to install that."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("causallearn", "causal-learn")
        raise MissingExtraError(f"{package} is not installed; install it with: pip install {package}") from error


DOT_TYPES: Final = frozenset({"graph", "digraph"})
DEEPEST: Final = 50  # subgraphs within subgraphs; more is no drawing of a graph
_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |(?P<connector>@->|@-@|@--|<->|<-@|<-|--@|->|--)
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<bare>-?[\w.]+)
    |(?P<sign>[{}\[\]=;,:+])
    """,
    re.VERBOSE | re.DOTALL,
)
_END: Final = "the end"


class Token(NamedTuple):
    """A piece of the text: its kind, for a sign itself, what it stands for, and where it begins."""

    kind: str
    text: str
    place: int


@dataclass(slots=True)
class Statements:
    """What a text says: its type, nodes with their attributes, and edges (first, connector, second, attributes)."""

    type: str = ""
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, str, dict[str, str]]] = field(default_factory=list)


def read_statements(text: str, types: frozenset[str]) -> Statements:
    """Read a text whose first word is one of the given types."""
    return _Reader(text).read(types)


def merge_edges(edges: list[Edge]) -> frozenset[Edge]:
    """Join arcs that go both ways between two nodes to one undirected edge, and drop repetitions."""
    found: dict[frozenset[str], Edge] = {}
    for given in edges:
        edge = given if given.first <= given.second else given.turned()
        before = found.setdefault(frozenset(edge[:2]), edge)
        if before == edge:
            continue
        arrows = {Mark.TAIL, Mark.ARROW}
        if {*edge[2:]} == {*before[2:]} == arrows:
            found[frozenset(edge[:2])] = Edge(edge.first, edge.second, Mark.TAIL, Mark.TAIL)
        elif not (before[2:] == (Mark.TAIL, Mark.TAIL) and {*edge[2:]} == arrows):
            raise GraphError(
                f"{edge.first!r} and {edge.second!r} are joined by edges of different kinds; give one for each pair"
            )
    return frozenset(found.values())


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _split(text)
        self._next = 0
        self._depth = 0
        self._found = Statements()

    def read(self, types: frozenset[str]) -> Statements:
        self._accept_word("strict")
        first = self._take()
        if first.kind != "bare" or first.text.lower() not in types:
            wanted = " or ".join(sorted(types))
            raise self._error(first, f"expected {wanted}, and then braces around the graph")
        self._found.type = first.text.lower()
        if not self._sees("{"):
            self._name()
        self._block({})
        if not self._sees(_END):
            raise self._error(self._peek(), "expected the end: a file holds one graph")
        return self._found

    def _block(self, defaults: dict[str, str]) -> list[str]:
        """Read statements in braces, and return the nodes that they name."""
        token = self._take()
        if token.kind != "{":
            raise self._error(token, "expected {")
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(self._peek(), f"there are more than {DEEPEST} braces within each other")
        named: dict[str, None] = {}
        defaults = dict(defaults)
        while not self._accept("}"):
            if not (self._accept(";") or self._accept(",")):
                named |= dict.fromkeys(self._statement(defaults))
        self._depth -= 1
        return list(named)

    def _statement(self, defaults: dict[str, str]) -> list[str]:
        token, follows = self._tokens[self._next], self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if token.kind == "bare" and follows.kind == "[" and token.text.lower() in ("graph", "node", "edge"):
            self._take()
            attributes = self._attributes()
            if token.text.lower() == "edge":
                defaults |= attributes
            return []
        if token.kind in ("bare", "quoted") and follows.kind == "=":
            self._next += 2
            self._name()
            return []
        ends, connectors = [self._end(defaults)], []
        while self._sees("connector"):
            connectors.append(self._take().text)
            ends.append(self._end(defaults))
        attributes = self._attributes()
        for connector, (left, right) in zip(connectors, pairwise(ends), strict=True):
            for first, second in product(left, right):
                self._found.edges.append((first, connector, second, defaults | attributes))
        for node in () if connectors else ends[0]:
            self._found.nodes[node] |= attributes
        return [node for end in ends for node in end]

    def _end(self, defaults: dict[str, str]) -> list[str]:
        """Read one end of an edge: a node, or a group of them."""
        if self._accept_word("subgraph") and not self._sees("{"):
            self._name()
        if self._sees("{"):
            return self._block(defaults)
        name = self._name()
        while self._accept(":"):  # a port of the box, which is no part of the graph
            self._name()
        self._found.nodes.setdefault(name, {})
        return [name]

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while self._accept("["):
            while not self._accept("]"):
                if not (self._accept(",") or self._accept(";")):
                    key = self._name()
                    found[key] = self._name() if self._accept("=") else ""
        return found

    def _name(self) -> str:
        token = self._take()
        if token.kind not in ("bare", "quoted"):
            raise self._error(token, "expected a name")
        name = token.text
        while token.kind == "quoted" and self._accept("+"):
            token = self._take()
            if token.kind != "quoted":
                raise self._error(token, "expected a quoted name after +")
            name += token.text
        return name

    def _accept_word(self, word: str) -> bool:
        return self._peek().text.lower() == word and self._accept("bare")

    def _accept(self, kind: str) -> bool:
        """Take the next piece if it is of a kind."""
        found = self._sees(kind)
        self._next += found
        return found

    def _sees(self, kind: str) -> bool:
        return self._peek().kind == kind

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek()
        if token.kind != _END:
            self._next += 1
        return token

    def _error(self, token: Token, why: str) -> GraphError:
        return _unreadable(self._text, token.place, why)


def _split(text: str) -> list[Token]:
    tokens = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is not None and found.lastgroup is not None:
            end = found.end()
            if found.lastgroup == "quoted":
                content = re.sub(r"\\\r?\n", "", found[0][1:-1]).replace('\\"', '"')
                tokens.append(Token("quoted", content, place))
            elif found.lastgroup != "blank":
                tokens.append(Token(found[0] if found.lastgroup == "sign" else found.lastgroup, found[0], place))
        elif text[place] == "<":
            end = _close(text, place)
            tokens.append(Token("quoted", text[place + 1 : end - 1], place))
        else:
            raise _unreadable(text, place, f"there is a {text[place]!r} that means nothing here")
        place = end
    return [*tokens, Token(_END, "", len(text))]


def _close(text: str, place: int) -> int:
    """Return where an HTML label ends."""
    depth = 0
    for position in range(place, len(text)):
        depth += (text[position] == "<") - (text[position] == ">")
        if depth == 0:
            return position + 1
    raise _unreadable(text, place, "a < is never closed")


def _unreadable(text: str, place: int, why: str) -> GraphError:
    line = text.count("\n", 0, place) + 1
    return GraphError(f"line {line} of the graph cannot be read: {why}")


_HEADS: Final = {Mark.TAIL: "none", Mark.ARROW: "normal", Mark.CIRCLE: "odot"}
_MARKS: Final = {"none": Mark.TAIL, "odot": Mark.CIRCLE, "dot": Mark.CIRCLE}


def to_dot(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph in the DOT language of Graphviz.

    Nodes have numbers as identifiers and their names as labels, because DOT cannot write every name as an identifier.
    """
    mixed = MixedGraph.of(graph)
    key = {name: f"n{position}" for position, name in enumerate(mixed.nodes)}
    lines = [f"  {key[name]} [label={_quote(name)}];" for name in mixed.nodes]
    for edge in list_edges(mixed):
        if edge.mark_at_second is Mark.TAIL and edge.mark_at_first is not Mark.TAIL:
            edge = edge.turned()
        tail, head = edge[2:]
        style = f" [dir=both, arrowtail={_HEADS[tail]}, arrowhead={_HEADS[head]}]"
        if tail is Mark.TAIL and head is not Mark.CIRCLE:
            style = "" if head is Mark.ARROW else " [dir=none]"
        lines.append(f"  {key[edge.first]} -> {key[edge.second]}{style};")
    return "\n".join(["digraph {", *lines, "}", ""])


def from_dot(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from DOT; a MixedGraph if it has edges with circles or two arrowheads.

    The name of a node is its label if it has one, otherwise its identifier. Edges are read by `dir`, `arrowhead` and
    `arrowtail`; two arcs that join the same nodes in both ways are one undirected edge.
    """
    statements = read_statements(text, DOT_TYPES)
    names = {node: _read_label(node, attributes) for node, attributes in statements.nodes.items()}
    edges = []
    for first, connector, second, attributes in statements.edges:
        direction = attributes.get("dir") or ("none" if connector == "--" else "forward")
        tail = head = Mark.TAIL
        if direction in ("forward", "both"):
            head = _MARKS.get(attributes.get("arrowhead", ""), Mark.ARROW)
        if direction in ("back", "both"):
            tail = _MARKS.get(attributes.get("arrowtail", ""), Mark.ARROW)
        edges.append(Edge(names[first], names[second], tail, head))
    return simplify(MixedGraph(tuple(names.values()), merge_edges(edges)))


def _quote(name: str) -> str:
    """Return a name as a DOT label: in a label, unlike in an identifier, a doubled backslash stands for one."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _read_label(node: str, attributes: dict[str, str]) -> str:
    """Return the name of a node: its label, in which a backslash has a meaning, or its identifier."""
    label = attributes.get("label")
    if label is None:
        return node
    meanings = {"n": "\n", "l": "\n", "r": "\n", "N": node}  # the first three break lines
    return re.sub(r"\\(.)", lambda found: meanings.get(found[1], found[1]), label, flags=re.DOTALL)


DAGITTY_TYPES: Final = frozenset({"dag", "pdag", "mag", "pag", "graph", "digraph"})

_CONNECTORS: Final = {
    "->": (Mark.TAIL, Mark.ARROW),
    "<-": (Mark.ARROW, Mark.TAIL),
    "--": (Mark.TAIL, Mark.TAIL),
    "<->": (Mark.ARROW, Mark.ARROW),
    "@->": (Mark.CIRCLE, Mark.ARROW),
    "<-@": (Mark.ARROW, Mark.CIRCLE),
    "@--": (Mark.CIRCLE, Mark.TAIL),
    "--@": (Mark.TAIL, Mark.CIRCLE),
    "@-@": (Mark.CIRCLE, Mark.CIRCLE),
}
_NOT_IN_NAMES: Final = re.compile(r'[\x00-\x1f\x7f]|\\"|\\$')


def to_dagitty(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph for dagitty: a `dag`, a `pdag` for a CPDAG, or a `pag`."""
    for name in graph.nodes:
        if not name or _NOT_IN_NAMES.search(name) or name in ("graph", "node"):
            raise GraphError(
                f"dagitty cannot have a variable {name!r}: it takes no empty names, line breaks, a backslash at the "
                "end or before a quotation mark, nor the words graph and node; rename it before the export"
            )
    if isinstance(graph, MixedGraph):
        kind, signs = "pag", {marks: sign for sign, marks in _CONNECTORS.items()}
        edges = [(edge.first, signs[edge[2:]], edge.second) for edge in list_edges(graph)]
    else:
        kind, (arcs, pairs) = "dag" if isinstance(graph, Dag) else "pdag", split_edges(graph)
        edges = [(tail, "->", head) for tail, head in arcs] + [(first, "--", second) for first, second in pairs]
    quoted = {name: '"' + name.replace('"', '\\"') + '"' for name in graph.nodes}
    lines = [*quoted.values(), *(f"{quoted[first]} {sign} {quoted[second]}" for first, sign, second in edges)]
    return "\n".join([f"{kind} {{", *lines, "}", ""])


def from_dagitty(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from dagitty's text; a MixedGraph if it has circles or edges with two arrowheads."""
    statements = read_statements(text, DAGITTY_TYPES)
    edges = [Edge(first, second, *_CONNECTORS[connector]) for first, connector, second, _ in statements.edges]
    graph = simplify(MixedGraph(tuple(statements.nodes), merge_edges(edges)))
    if statements.type == "pdag" and isinstance(graph, Dag):
        return Cpdag(graph.nodes, graph.edges, frozenset())
    return graph

"""All formats, by name and by how files end; and one DAG for those who need one, since data do not choose."""

import csv
import enum
import re
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag, nearest_extension
from dagveil.graphs.exchange import dot
from dagveil.graphs.pag import ARROW, TAIL, Edge, Mark, MixedGraph, read_ends

PAG: Final = "pag"
_NOT_IN_XML: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_networkx(graph: Dag | Cpdag | MixedGraph) -> Any:
    """Return a ``networkx.DiGraph``; each arc has the attribute ``kind``, "directed" or "undirected".

    An undirected edge becomes two arcs. The graph's attribute ``family`` is "dag" or "cpdag". A mixed graph is a
    ``networkx.Graph`` of the family "pag": each edge has the attributes ``first``, ``second``, ``mark_at_first`` and
    ``mark_at_second``.
    """
    networkx = dot.import_package("networkx")
    if isinstance(graph, MixedGraph):
        mixed = networkx.Graph(family=PAG)
        mixed.add_nodes_from(graph.nodes)
        for edge in dot.list_edges(graph):
            marks = {"mark_at_first": edge.mark_at_first.value, "mark_at_second": edge.mark_at_second.value}
            mixed.add_edge(edge.first, edge.second, first=edge.first, second=edge.second, **marks)
        return mixed
    answer = networkx.DiGraph(family="dag" if isinstance(graph, Dag) else "cpdag")
    answer.add_nodes_from(graph.nodes)
    arcs, pairs = dot.split_edges(graph)
    listed = [(*arc, dot.DIRECTED) for arc in arcs]
    listed += [(*ends, dot.UNDIRECTED) for pair in pairs for ends in (pair, pair[::-1])]
    answer.add_edges_from((tail, head, {"kind": kind}) for tail, head, kind in sorted(listed))
    return answer


def from_networkx(graph: Any, labels: tuple[str, ...] = ()) -> Dag | Cpdag | MixedGraph:
    """Return the Dag or Cpdag of a networkx graph, whose nodes are called by the first of `labels` that they have.

    An undirected edge is two arcs, one each way; all edges of an undirected networkx graph are undirected. The
    graph's attribute ``family`` ("dag" or "cpdag") decides what comes back; without it, a graph in which all edges
    are directed is a Dag.
    """
    names = {
        node: str(next((facts[label] for label in labels if label in facts), node)) if labels else node
        for node, facts in graph.nodes(data=True)
    }
    if graph.graph.get("family") == PAG:
        return _read_marks(tuple(names.values()), (facts for _, _, facts in graph.edges(data=True)))
    arcs = [(names[tail], names[head], kind) for tail, head, kind in graph.edges(data="kind")]
    return _join(names.values(), arcs, graph.is_directed(), graph.graph.get("family"))


def _read_marks(nodes: tuple[str, ...], edges: Iterable[dict[str, Any]]) -> MixedGraph:
    kinds = {"first": str, "second": str, "mark_at_first": Mark, "mark_at_second": Mark}
    try:
        read = [Edge(*(kind(edge[key]) for key, kind in kinds.items())) for edge in edges]
    except (KeyError, ValueError):
        raise GraphError(
            "an edge of this PAG lacks first, second, mark_at_first or mark_at_second, or its mark is not tail, arrow "
            "or circle; write it again"
        ) from None
    return MixedGraph(nodes, frozenset(read))


def _join(nodes: Iterable[Any], arcs: Iterable[Any], directed: bool, family: Any) -> Dag | Cpdag:
    if not directed:
        arcs = [ends for tail, head, _ in arcs for ends in ((tail, head, dot.UNDIRECTED), (head, tail, dot.UNDIRECTED))]
    return dot.join_arcs(nodes, arcs, family)


def to_gml(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as GML: names as labels, ``kind`` on each arc as in `to_networkx`."""
    return "\n".join((*dot.import_package("networkx").generate_gml(to_networkx(graph)), ""))


def from_gml(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from GML; the name of a node is its label if it has one, otherwise its number."""
    return _read(text, "GML", dot.import_package("networkx").parse_gml, ("label",), label="id")


def to_graphml(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as GraphML: names as identifiers, ``kind`` on each arc as in `to_networkx`."""
    for name in graph.nodes:
        if _NOT_IN_XML.search(name):
            raise GraphError(f"the node {name!r} has a character that XML cannot hold; rename it before the export")
    return "\n".join((*dot.import_package("networkx").generate_graphml(to_networkx(graph)), ""))


def from_graphml(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from GraphML.

    The name of a node is its attribute ``name`` or ``label`` if it has one, otherwise its identifier.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise GraphError("this GraphML declares a document type, which no graph needs; take the declaration out")
    return _read(text, "GraphML", dot.import_package("networkx").parse_graphml, ("name", "label"))


def _read(text: str, form: str, parse: Any, labels: tuple[str, ...], **options: Any) -> Dag | Cpdag | MixedGraph:
    """Let networkx read a text."""
    try:
        graph = parse(text, **options)
    except Exception as error:  # whatever it trips over, the text is no graph
        raise GraphError(f"this {form} cannot be read: {error or type(error).__name__}") from error
    return from_networkx(graph, labels)


def to_node_link(graph: Any) -> str:
    """Return a networkx graph as JSON for ``networkx.node_link_graph(…, edges="edges")``."""
    content = dot.import_package("networkx").node_link_data(graph, edges="edges")
    try:
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    except UnicodeEncodeError:
        raise GraphError("a node name contains an unpaired surrogate, which JSON cannot represent; rename it") from None


def from_node_link(text: str | bytes) -> Dag | Cpdag | MixedGraph:
    """Read a graph from networkx's JSON, with the key ``edges`` or, as older versions wrote it, ``links``."""
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise GraphError("this is not JSON") from error
    try:
        nodes = tuple(node["id"] for node in content["nodes"])
        edges = content["edges"] if "edges" in content else content["links"]
        family = (content.get("graph") or {}).get("family")
        if family == PAG:
            return _read_marks(nodes, edges)
        arcs = [(edge["source"], edge["target"], edge.get("kind")) for edge in edges]
        return _join(nodes, arcs, content.get("directed", False), family)
    except (KeyError, TypeError, AttributeError):
        raise GraphError(
            "this JSON is neither a dagveil result nor a graph of networkx: it needs nodes with ids, and edges with "
            "source and target"
        ) from None


_LEFT: Final = {Mark.TAIL: "-", Mark.ARROW: "<", Mark.CIRCLE: "o"}
_RIGHT: Final = {Mark.TAIL: "-", Mark.ARROW: ">", Mark.CIRCLE: "o"}
_SIGNS: Final = {sign: mark for mark, sign in (*_LEFT.items(), *_RIGHT.items())}
_UNFIT: Final = re.compile(r"[\s;,]|[^\x00-\uffff]|[\x00-\x1f\ud800-\udfff]|^$")
_EDGE: Final = re.compile(r"\d+\.\s+(\S+)\s+([-<o])-([->o])\s+(\S+)(\s.*)?")


def to_tetrad(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as Tetrad's text."""
    for name in graph.nodes:
        if _UNFIT.search(name):
            raise GraphError(
                f"Tetrad's text cannot hold the name {name!r}: no blanks, commas, semicolons; rename the column in the "
                "data and the schema, or export to graphml, which holds any name"
            )
    lines = ["Graph Nodes:", ";".join(graph.nodes), "", "Graph Edges:"]
    for number, edge in enumerate(dot.list_edges(MixedGraph.of(graph)), start=1):
        # arrows point to the right, as everywhere
        edge = edge.turned() if edge.mark_at_second is Mark.TAIL else edge
        lines.append(f"{number}. {edge.first} {write_marks(edge)} {edge.second}")
    return "\n".join([*lines, ""])


def write_marks(edge: Edge) -> str:
    """Return an edge's marks as three characters, such as o->."""
    return f"{_LEFT[edge.mark_at_first]}-{_RIGHT[edge.mark_at_second]}"


def from_tetrad(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from Tetrad's text."""
    lines = [line.strip() for line in text.splitlines()]
    if "Graph Nodes:" not in lines or "Graph Edges:" not in lines:
        raise GraphError("this is not Tetrad's text: it has the lines Graph Nodes: and Graph Edges:")
    after = lines[lines.index("Graph Nodes:") + 1 :]
    nodes = tuple(re.split("[;,]", after[0])) if after and after[0] and after[0] != "Graph Edges:" else ()
    edges = set()
    for line in lines[lines.index("Graph Edges:") + 1 :]:
        if line.startswith(("Graph ", "Ambiguous ")):
            break
        if not line:
            continue
        found = _EDGE.fullmatch(line)
        if found is None:
            raise GraphError(f"an edge of Tetrad's text cannot be read: {line[:80]!r}")
        edges.add(Edge(found[1], found[4], _SIGNS[found[2]], _SIGNS[found[3]]))
    return dot.simplify(MixedGraph(nodes, frozenset(edges)))


def to_causal_learn(graph: Dag | Cpdag | MixedGraph) -> Any:
    """Return a ``causallearn.graph.GeneralGraph.GeneralGraph`` with the same marks."""
    general = dot.import_package("causallearn.graph.GeneralGraph")
    endpoint = dot.import_package("causallearn.graph.Endpoint").Endpoint
    make_edge = dot.import_package("causallearn.graph.Edge").Edge
    make_node = dot.import_package("causallearn.graph.GraphNode").GraphNode
    mixed = MixedGraph.of(graph)
    nodes = {name: make_node(name) for name in mixed.nodes}
    answer = general.GeneralGraph(list(nodes.values()))
    for edge in dot.list_edges(mixed):
        first, second = endpoint[edge.mark_at_first.name], endpoint[edge.mark_at_second.name]
        answer.add_edge(make_edge(nodes[edge.first], nodes[edge.second], first, second))
    return answer


class Extension(enum.Enum):
    """What to do with edges that have no direction, where a DAG is wanted."""

    REFUSE = "refuse"  # raise an error
    # direct them without a cycle and without a new unshielded collider; refuse if that cannot be done
    CONSISTENT = "consistent"
    # the same, but with new colliders where there is no other way: noise can make a graph that no DAG has
    NEAREST = "nearest"


def choose_dag(graph: Dag | Cpdag, extension: Extension = Extension.REFUSE) -> Dag:
    """Return a DAG, or say why there is none."""
    if isinstance(graph, Dag):
        return graph
    if extension is Extension.NEAREST:
        return Dag(graph.nodes, nearest_extension(graph.nodes, graph.directed, graph.undirected))
    if extension is Extension.CONSISTENT:
        dag = graph.extension()
        if dag is None:
            raise GraphError(
                f"no DAG has these {len(graph.directed)} arrows and {len(graph.undirected)} undirected edges without a "
                "new collider: noise or chance made a graph that no DAG has. Take the nearest one (--extend-nearest, "
                "or Extension.NEAREST), or direct its edges by hand."
            )
        return dag
    if graph.undirected:
        raise GraphError(
            f"{len(graph.undirected)} edges of this graph have no direction, because the data do not tell it, and a "
            "DAG has no undirected edges. Choose one of the DAGs that fit (--extend, or Extension.CONSISTENT), and "
            "remember that the choice is arbitrary: an effect that is computed from it may not hold in another one."
        )
    return Dag(graph.nodes, graph.directed)


def write_amat(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as pcalg's adjacency matrix: a table of numbers with the names of nodes before rows and columns.

    A PAG has the coding of ``amat.pag``: the number in row a and column b is the mark at b, 0 for no edge, 1 for a
    circle, 2 for an arrowhead, 3 for a tail. Other graphs have that of ``amat.cpdag``: 1 in row b and column a alone is
    a → b, and both ways an undirected edge.

    >>> print(write_amat(Dag(("a", "b"), frozenset({("a", "b")}))), end="")
    "","a","b"
    "a",0,0
    "b",1,0
    """
    table = ends = read_ends(MixedGraph.of(graph))
    if not isinstance(graph, MixedGraph):  # an arrow stands in the row of its effect, a line in both
        table = np.where((ends.T == ARROW) | ((ends == TAIL) & (ends.T == TAIL)), 1, 0)
    written = StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(("", *graph.nodes))
    writer.writerows((name, *map(int, row)) for name, row in zip(graph.nodes, table, strict=True))
    return written.getvalue()


def to_pgmpy(graph: Dag | Cpdag) -> Any:
    """Return a ``pgmpy.base.DAG``, or a ``pgmpy.base.PDAG`` for a CPDAG."""
    base = dot.import_package("pgmpy.base")
    arcs, pairs = dot.split_edges(graph)
    answer = base.DAG(arcs) if isinstance(graph, Dag) else base.PDAG(directed_ebunch=arcs, undirected_ebunch=pairs)
    answer.add_nodes_from(graph.nodes)
    return answer


def write_pgmpy(graph: Dag | Cpdag) -> str:
    """Return a Python program that makes what `to_pgmpy` returns: pgmpy has no file format without probabilities."""
    arcs, pairs = dot.split_edges(graph)
    if isinstance(graph, Dag):
        kind, made = "DAG", f"DAG({arcs!r})"
    else:
        kind, made = "PDAG", f"PDAG(directed_ebunch={arcs!r}, undirected_ebunch={pairs!r})"
    return f"from pgmpy.base import {kind}\n\ngraph = {made}\ngraph.add_nodes_from({list(graph.nodes)!r})\n"


AnyGraph: TypeAlias = Dag | Cpdag | MixedGraph

LARGEST_FILE: Final = 50_000_000  # bytes of a file that is read as a graph


class Format(enum.Enum):
    """What a graph can be written as."""

    DOT = "dot"
    GRAPHML = "graphml"
    GML = "gml"
    NETWORKX_JSON = "networkx-json"
    DAGITTY = "dagitty"
    DOWHY = "dowhy"
    PGMPY = "pgmpy"
    CAUSAL_LEARN = "causal-learn"
    AMAT = "amat"


class Exporter(NamedTuple):
    """How a format is written, what its files end in, what reads them, and why it cannot hold a PAG if it cannot."""

    write: Callable[[Any], str]
    ending: str
    hint: str = ""
    no_pag: str = ""


_NO_MARKS: Final = "{} knows no circles and no edges with two arrowheads"
# command line, studio and results take formats from here
EXPORTERS: Final = {
    Format.DOT: Exporter(dot.to_dot, ".dot"),
    Format.GRAPHML: Exporter(to_graphml, ".graphml", 'networkx.read_graphml("{path}")'),
    Format.GML: Exporter(to_gml, ".gml", 'networkx.read_gml("{path}")'),
    Format.NETWORKX_JSON: Exporter(
        lambda graph: to_node_link(to_networkx(graph)),
        ".json",
        'networkx.node_link_graph(json.load(open("{path}")), edges="edges")',
    ),
    Format.DAGITTY: Exporter(dot.to_dagitty, ".txt"),
    Format.DOWHY: Exporter(
        to_gml, ".gml", 'CausalModel(data, treatment=…, outcome=…, graph="{path}")', _NO_MARKS.format("DoWhy")
    ),
    Format.PGMPY: Exporter(write_pgmpy, ".py", 'runpy.run_path("{path}")["graph"]', _NO_MARKS.format("pgmpy")),
    Format.CAUSAL_LEARN: Exporter(to_tetrad, ".txt", 'causallearn.utils.TXT2GeneralGraph.txt2generalgraph("{path}")'),
    Format.AMAT: Exporter(write_amat, ".csv", 'as.matrix(read.csv("{path}", row.names = 1, check.names = FALSE)) in R'),
}


def write_graph(graph: AnyGraph, form: Format, extension: Extension = Extension.REFUSE) -> str:
    """Return a graph as text; a PAG only in formats that have its marks, and none of its DAGs.

    With an extension, the DAG that it chooses is written. DOWHY is GML of a DAG: without an extension a graph with
    undirected edges is refused.
    """
    if isinstance(graph, MixedGraph):
        why = EXPORTERS[form].no_pag if extension is Extension.REFUSE else "a DAG takes all causes for measured"
        if why:
            raise GraphError(
                f"this graph is a PAG, which allows for hidden causes, and {why}. Write it as "
                f"{', '.join(other.value for other in Format if not EXPORTERS[other].no_pag)}, without choosing a DAG; "
                "or search the evidence again without hidden causes"
            )
    elif form is Format.DOWHY or extension is not Extension.REFUSE:
        graph = choose_dag(graph, extension)
    return EXPORTERS[form].write(graph)


_READERS: Final[dict[str, Callable[[str], AnyGraph]]] = {
    ".dot": dot.from_dot,
    ".gv": dot.from_dot,
    ".graphml": from_graphml,
    ".xml": from_graphml,
    ".gml": from_gml,
    ".json": from_node_link,
    ".dagitty": dot.from_dagitty,
    ".txt": lambda text: from_tetrad(text) if "Graph Nodes:" in text else dot.from_dagitty(text),
}


def read_graph(text: str, suffix: str) -> AnyGraph:
    """Read a graph; the end of the file's name tells the format."""
    if (read := _READERS.get(suffix.lower())) is not None:
        return read(text)
    raise GraphError(
        f"a file that ends in {suffix or 'nothing'!r} is no graph that can be read; give .dot, .graphml, .gml, "
        ".dagitty, .txt (dagitty or Tetrad) or .json (networkx, or a result of dagveil)"
    )


def load_graph(path: str | Path) -> AnyGraph:
    """Read a graph from a file."""
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise GraphError(f"{file} has more than {LARGEST_FILE} bytes; that is no graph to compare with")
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise GraphError(f"cannot read {file}: {error.strerror}; check the path") from error
    except UnicodeDecodeError:
        raise GraphError(f"{file} is not UTF-8 text; save it as UTF-8") from None
    try:
        return read_graph(text, file.suffix)
    except GraphError as error:
        raise GraphError(f"{file}: {error}") from error

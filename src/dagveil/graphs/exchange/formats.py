"""All formats, by name and by how files end; and one DAG for those who need one, since data do not choose."""

from __future__ import annotations

import csv
import enum
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, nearest_extension
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange import networkx_graphs as nx
from dagveil.graphs.exchange.arcs import import_package, split_edges
from dagveil.graphs.exchange.causal_learn import from_tetrad, to_tetrad
from dagveil.graphs.exchange.dot import from_dagitty, from_dot, to_dagitty, to_dot
from dagveil.graphs.mixed import MixedGraph
from dagveil.graphs.pag import ARROW, TAIL, read_ends


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
    ends = read_ends(MixedGraph.of(graph))
    if isinstance(graph, MixedGraph):
        table = ends
    else:  # an arrow stands in the row of its effect, a line in both
        table = np.where((ends.T == ARROW) | ((ends == TAIL) & (ends.T == TAIL)), 1, 0)
    written = StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(("", *graph.nodes))
    writer.writerows((name, *map(int, row)) for name, row in zip(graph.nodes, table, strict=True))
    return written.getvalue()


def to_pgmpy(graph: Dag | Cpdag) -> Any:
    """Return a ``pgmpy.base.DAG``, or a ``pgmpy.base.PDAG`` for a CPDAG."""
    base = import_package("pgmpy.base")
    arcs, pairs = split_edges(graph)
    answer = base.DAG(arcs) if isinstance(graph, Dag) else base.PDAG(directed_ebunch=arcs, undirected_ebunch=pairs)
    answer.add_nodes_from(graph.nodes)
    return answer


def write_pgmpy(graph: Dag | Cpdag) -> str:
    """Return a Python program that makes what `to_pgmpy` returns: pgmpy has no file format without probabilities."""
    arcs, pairs = split_edges(graph)
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
    Format.DOT: Exporter(to_dot, ".dot"),
    Format.GRAPHML: Exporter(nx.to_graphml, ".graphml", 'networkx.read_graphml("{path}")'),
    Format.GML: Exporter(nx.to_gml, ".gml", 'networkx.read_gml("{path}")'),
    Format.NETWORKX_JSON: Exporter(
        lambda graph: nx.to_node_link(nx.to_networkx(graph)),
        ".json",
        'networkx.node_link_graph(json.load(open("{path}")), edges="edges")',
    ),
    Format.DAGITTY: Exporter(to_dagitty, ".txt"),
    Format.DOWHY: Exporter(
        nx.to_gml, ".gml", 'CausalModel(data, treatment=…, outcome=…, graph="{path}")', _NO_MARKS.format("DoWhy")
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
        why = EXPORTERS[form].no_pag
        if extension is not Extension.REFUSE:
            why = "a DAG takes all causes for measured"
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
    ".dot": from_dot,
    ".gv": from_dot,
    ".graphml": nx.from_graphml,
    ".xml": nx.from_graphml,
    ".gml": nx.from_gml,
    ".json": nx.from_node_link,
    ".dagitty": from_dagitty,
    ".txt": lambda text: from_tetrad(text) if "Graph Nodes:" in text else from_dagitty(text),
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

"""Formats by name and by the end of a file's name."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.dagitty import from_dagitty, to_dagitty
from dagveil.graphs.exchange.dot import from_dot, to_dot
from dagveil.graphs.exchange.extending import Extension, choose_dag
from dagveil.graphs.exchange.gml import from_gml, to_gml
from dagveil.graphs.exchange.graphml import from_graphml, to_graphml
from dagveil.graphs.exchange.node_link import from_node_link, to_node_link
from dagveil.graphs.exchange.packages import write_pgmpy
from dagveil.graphs.exchange.tetrad import from_tetrad, to_tetrad
from dagveil.graphs.mixed import MixedGraph

AnyGraph: TypeAlias = Dag | Cpdag | MixedGraph

LARGEST_FILE: Final = 50_000_000
"""Bytes of a file that is read as a graph."""


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


_WRITERS: Final[dict[Format, Callable[[Dag | Cpdag], str]]] = {
    Format.DOT: to_dot,
    Format.GRAPHML: to_graphml,
    Format.GML: to_gml,
    Format.NETWORKX_JSON: to_node_link,
    Format.DAGITTY: to_dagitty,
    Format.DOWHY: to_gml,
    Format.PGMPY: write_pgmpy,
    Format.CAUSAL_LEARN: to_tetrad,
}


def write_graph(graph: Dag | Cpdag, form: Format, extension: Extension = Extension.REFUSE) -> str:
    """Return a graph as text.

    Parameters
    ----------
    graph
        A graph. With an extension, the DAG that it chooses is written.
    form
        DOWHY is GML of a DAG: without an extension a graph with undirected edges is refused.
    extension
        Which DAG of a CPDAG to take.

    Examples
    --------
    >>> write_graph(Cpdag.empty(("a",)), Format.DOT).splitlines()[1]
    '  n0 [label="a"];'
    """
    if form is Format.DOWHY or extension is not Extension.REFUSE:
        graph = choose_dag(graph, extension)
    return _WRITERS[form](graph)


def read_graph(text: str, suffix: str) -> AnyGraph:
    """Read a graph; the end of the file's name tells the format.

    Examples
    --------
    >>> read_graph("digraph { a -> b }", ".dot").edges
    frozenset({('a', 'b')})
    """
    match suffix.lower():
        case ".dot" | ".gv":
            return from_dot(text)
        case ".graphml" | ".xml":
            return from_graphml(text)
        case ".gml":
            return from_gml(text)
        case ".json":
            return from_node_link(text)
        case ".dagitty":
            return from_dagitty(text)
        case ".txt":
            return from_tetrad(text) if "Graph Nodes:" in text else from_dagitty(text)
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

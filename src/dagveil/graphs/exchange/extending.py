"""From a CPDAG to one DAG: only for those who ask for it, since the data do not choose between its DAGs."""

from __future__ import annotations

import enum

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.extension import nearest_extension


class Extension(enum.Enum):
    """What to do with edges that have no direction, where a DAG is wanted."""

    REFUSE = "refuse"
    """Raise an error."""
    CONSISTENT = "consistent"
    """Direct them without a cycle and without a new unshielded collider; refuse if that cannot be done."""
    NEAREST = "nearest"
    """The same, but with new colliders where there is no other way: noise can make a graph that no DAG has."""


def choose_dag(graph: Dag | Cpdag, extension: Extension = Extension.REFUSE) -> Dag:
    """Return a DAG, or say why there is none.

    Examples
    --------
    >>> pair = Cpdag(("a", "b"), frozenset(), frozenset({frozenset("ab")}))
    >>> choose_dag(pair, Extension.CONSISTENT).edges
    frozenset({('b', 'a')})
    """
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

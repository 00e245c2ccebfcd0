"""Graphs to and from other programs: as objects of their packages, and as text in their formats."""

from dagveil.graphs.exchange.dagitty import from_dagitty, to_dagitty
from dagveil.graphs.exchange.dot import from_dot, to_dot
from dagveil.graphs.exchange.extending import Extension, choose_dag
from dagveil.graphs.exchange.gml import from_gml, to_gml
from dagveil.graphs.exchange.graphml import from_graphml, to_graphml
from dagveil.graphs.exchange.node_link import from_node_link, to_node_link
from dagveil.graphs.exchange.packages import (
    from_causal_learn,
    from_networkx,
    to_causal_learn,
    to_dowhy,
    to_networkx,
    to_pgmpy,
)
from dagveil.graphs.exchange.tetrad import from_tetrad, to_tetrad

__all__ = [
    "Extension",
    "choose_dag",
    "from_causal_learn",
    "from_dagitty",
    "from_dot",
    "from_gml",
    "from_graphml",
    "from_networkx",
    "from_node_link",
    "from_tetrad",
    "to_causal_learn",
    "to_dagitty",
    "to_dot",
    "to_dowhy",
    "to_gml",
    "to_graphml",
    "to_networkx",
    "to_node_link",
    "to_pgmpy",
    "to_tetrad",
]

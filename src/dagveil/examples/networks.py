"""Published Bayesian networks with their probability tables: the ground truth of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import GraphError, MethodError
from dagveil.graphs.dag import Dag

NETWORK_NAMES: tuple[str, ...] = ("cancer", "earthquake", "survey", "asia", "sachs", "child", "alarm", "insurance")
"""The networks that come with the package, small ones first. `insurance` served once, to choose the removal order; no
number was tuned on it."""


@dataclass(frozen=True)
class Network:
    """A Bayesian network over categorical columns.

    Parameters
    ----------
    name : str
    nodes : tuple of str
    levels : mapping from node to tuple of str
    parents : mapping from node to tuple of str
        The order of the parents is the order of the axes of the node's table.
    tables : mapping from node to array
        ``tables[v]`` has one axis for each parent and a last one for the levels of ``v``, along which it sums to 1.

    Examples
    --------
    >>> network = load_network("asia")
    >>> network.parents["dysp"], network.tables["dysp"].shape
    (('bronc', 'either'), (2, 2, 2))
    >>> len(network.dag().edges)
    8
    """

    name: str
    nodes: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        for node in self.nodes:
            table = self.tables[node]
            shape = (*(len(self.levels[parent]) for parent in self.parents[node]), len(self.levels[node]))
            if table.shape != shape:
                raise GraphError(f"the table of {node!r} has the shape {table.shape}; its parents ask for {shape}")
            if table.min() < 0 or np.abs(table.sum(axis=-1) - 1).max() > 1e-9:
                raise GraphError(f"the table of {node!r} holds rows that are not probabilities with the sum 1")

    def dag(self) -> Dag:
        """Return the network's graph."""
        return Dag(self.nodes, frozenset((parent, node) for node in self.nodes for parent in self.parents[node]))


def load_network(name: str) -> Network:
    """Return a network that comes with the package.

    Parameters
    ----------
    name : str
        One of `NETWORK_NAMES`.

    Examples
    --------
    >>> load_network("cancer").levels["Pollution"]
    ('low', 'high')
    """
    if name not in NETWORK_NAMES:
        raise MethodError(f"no network is called {name!r}; choose one of: {', '.join(NETWORK_NAMES)}")
    return read_network(name)


def read_network(name: str) -> Network:
    """Return the network in the file of this name."""
    content = json.loads((files("dagveil.examples") / "data" / f"{name}.json").read_text(encoding="utf-8"))
    levels = {node["name"]: tuple(node["levels"]) for node in content["nodes"]}
    parents = {node["name"]: tuple(node["parents"]) for node in content["nodes"]}
    tables = {}
    for node in content["nodes"]:
        shape = (*(len(levels[parent]) for parent in node["parents"]), len(node["levels"]))
        table = np.array(node["table"], dtype=np.float64).reshape(shape)
        table.setflags(write=False)
        tables[node["name"]] = table
    return Network(content["name"], tuple(levels), levels, parents, tables)

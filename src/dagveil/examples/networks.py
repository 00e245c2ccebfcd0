"""Known networks, and rows sampled from them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.column import Categorical, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import GraphError, MethodError
from dagveil.graphs.cpdag import Dag

_SMALL = ("cancer", "earthquake", "survey", "asia", "sachs", "child")
NETWORK_NAMES: tuple[str, ...] = (*_SMALL, "insurance", "alarm", "hailfinder")
"""The networks that come with the package, small ones first. No number was tuned on `insurance` and `hailfinder`."""


@dataclass(frozen=True)
class Network:
    """A Bayesian network over categorical columns."""

    name: str
    nodes: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, tuple[str, ...]]  # the order of the parents is the order of the axes of the node's table
    # ``tables[v]`` has one axis for each parent and a last one for the levels of ``v``, along which it sums to 1
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
    """Return a network that comes with the package."""
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


def sample_codes(network: Network, n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.uint8]]:
    """Draw rows from a network, as the positions of their levels."""
    codes: dict[str, NDArray[np.uint8]] = {}
    for node in network.dag().order():
        bounds = _cumulate(network.tables[node].reshape(-1, len(network.levels[node])))
        draw = rng.random(n_rows)
        code = np.zeros(n_rows, dtype=np.uint8)
        if network.parents[node]:
            case = np.zeros(n_rows, dtype=np.intp)
            for parent in network.parents[node]:
                case *= len(network.levels[parent])
                case += codes[parent]
            for bound in bounds.T:
                code += draw >= bound[case]
        else:
            for bound in bounds.T:
                code += draw >= bound[0]
        codes[node] = code
    return {node: codes[node] for node in network.nodes}


def sample_table(network: Network, n_rows: int, rng: np.random.Generator) -> pa.Table:
    """Draw rows from a network, as a table of dictionary-encoded strings."""
    return pa.table(
        {
            node: pa.DictionaryArray.from_arrays(pa.array(code), pa.array(network.levels[node], type=pa.string()))
            for node, code in sample_codes(network, n_rows, rng).items()
        }
    )


def network_schema(network: Network, n_rows: int, dataset: str | None = None) -> Schema:
    """Return the schema of rows drawn from a network: everything about them is public."""
    return Schema(
        dataset=dataset or f"{network.name}-sample",
        reviewed=True,
        public=True,
        nominal_rows=n_rows,
        columns={node: Categorical(network.levels[node], network.levels[node][0]) for node in network.nodes},
    )


@dataclass(frozen=True)
class LinearGaussian:
    """A linear model with independent Gaussian errors."""

    nodes: tuple[str, ...]
    weights: NDArray[np.float64]  # ``weights[i, j]`` is the effect of node i on node j; zero means no edge
    scales: NDArray[np.float64]  # standard deviations of the errors

    def __post_init__(self) -> None:
        size = len(self.nodes)
        if self.weights.shape != (size, size) or self.scales.shape != (size,):
            raise GraphError(
                f"{size} nodes need weights of shape ({size}, {size}) and {size} scales; "
                f"these have {self.weights.shape} and {self.scales.shape}"
            )

    def dag(self) -> Dag:
        """Return the graph of the weights that are not zero."""
        edges = zip(*np.nonzero(self.weights), strict=True)
        return Dag(self.nodes, frozenset((self.nodes[tail], self.nodes[head]) for tail, head in edges))

    def covariance(self) -> NDArray[np.float64]:
        """Return the exact covariance matrix of the nodes."""
        spread = np.linalg.inv(np.eye(len(self.nodes)) - self.weights)
        covariance: NDArray[np.float64] = spread.T @ np.diag(self.scales**2) @ spread
        return covariance


def random_linear_gaussian(n_nodes: int, sparseness: float, rng: np.random.Generator) -> LinearGaussian:
    """Draw a linear Gaussian model over x1, x2, … in the way of pcalg's ``randomDAG`` and ``rmvDAG``.

    Each pair i < j is an edge from i to j with probability `sparseness`, with a weight uniform between 0.1 and 1;
    the errors are standard normal.
    """
    check_graph_size(n_nodes, sparseness)
    chosen = np.triu(rng.random((n_nodes, n_nodes)) < sparseness, k=1)
    weights = np.where(chosen, rng.uniform(0.1, 1.0, size=(n_nodes, n_nodes)), 0.0)
    return LinearGaussian(tuple(f"x{position + 1}" for position in range(n_nodes)), weights, np.ones(n_nodes))


def sample_linear_gaussian(model: LinearGaussian, n_rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw rows from a linear Gaussian model: an array (n_rows, n_nodes), columns in the order of ``model.nodes``."""
    place = {node: position for position, node in enumerate(model.nodes)}
    rows = rng.standard_normal((n_rows, len(model.nodes))) * model.scales
    for node in model.dag().order():
        column = place[node]
        rows[:, column] += rows @ np.where(np.arange(len(place)) == column, 0.0, model.weights[:, column])
    return rows


def _cumulate(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the upper ends of all levels but the last, exactly 1 where no later level is possible.

    Rounding could leave 0.9999999999999999 there, and a level of probability 0 would be drawn now and then.
    """
    bounds: NDArray[np.float64] = np.cumsum(table, axis=1)[:, :-1]
    rest = np.cumsum(table[:, ::-1], axis=1)[:, ::-1][:, 1:]
    bounds[rest == 0.0] = 1.0
    return bounds


def check_graph_size(n_nodes: int, sparseness: float) -> None:
    """Refuse sizes of which no random graph is drawn."""
    if n_nodes < 1 or not 0.0 <= sparseness <= 1.0:
        raise GraphError(
            f"a random graph needs at least 1 node and a sparseness between 0 and 1, not {n_nodes} and {sparseness}"
        )


def gaussian_schema(model: LinearGaussian, n_rows: int, declare_spread: bool = True) -> Schema:
    """Return a schema for rows of a linear Gaussian model, with spreads rounded to one digit as a person would."""
    spreads = [float(f"{value:.1g}") for value in np.sqrt(np.diag(model.covariance()))]
    return Schema(
        dataset="linear-gaussian-sample",
        reviewed=True,
        public=True,
        nominal_rows=n_rows,
        columns={
            node: Numeric(bounds=(-10.0 * spread, 10.0 * spread), center=0.0, spread=spread if declare_spread else None)
            for node, spread in zip(model.nodes, spreads, strict=True)
        },
    )

"""Nonlinear numeric tables, as the simulations of PCD draw them.

Each node is φ(Σ a · parent) + b ε with ε uniform between −½ and ½, a and b uniform between ½ and 1, and φ one of sine,
cosine, hyperbolic tangent, square and exponential, each as likely as the others.
"""

import math
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.examples.networks import load_network
from dagveil.graphs.cpdag import Dag
from dagveil_bench.local_data import real_sachs

REAL_CELLS = "sachs-cells"  # name of the measured cells among networks
BINS = 5  # public bins per column for methods that count
LARGEST_ARGUMENT = 8.0  # arguments beyond this are cut: chains of exponentials would leave the range of floating point
FUNCTIONS: tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], ...] = (
    np.sin,
    np.cos,
    np.tanh,
    np.square,
    np.exp,
)


def sample_nonlinear(dag: Dag, n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Draw a nonlinear model over a graph, and rows from it."""
    drawn: dict[str, NDArray[np.float64]] = {}
    for node in dag.order():
        function = FUNCTIONS[rng.integers(len(FUNCTIONS))]
        column = rng.uniform(0.5, 1.0) * rng.uniform(-0.5, 0.5, n_rows)
        parents = sorted(dag.parents(node), key=dag.nodes.index)
        if parents:
            argument = np.sum([rng.uniform(0.5, 1.0) * drawn[parent] for parent in parents], axis=0)
            column += function(np.clip(argument, -LARGEST_ARGUMENT, LARGEST_ARGUMENT))
        drawn[node] = column
    return {node: drawn[node] for node in dag.nodes}


def nonlinear_schema(columns: Mapping[str, NDArray[np.float64]], n_rows: int, declare_spread: bool = True) -> Schema:
    """Return a schema with bounds, centres and spreads as a person would state them: rounded to one digit.

    The person has learnt what is usual from the columns, such as a public sample. Where spreads are not declared, a run
    finds sizes privately.
    """
    declared = {}
    for name, column in columns.items():
        center, spread = float(np.mean(column)), float(np.std(column))
        step = _round_up(spread) / 2.0
        lower = math.floor(float(np.min(column)) / step) * step
        upper = math.ceil(float(np.max(column)) / step) * step
        guess = min(max(round(center / step) * step, lower), upper)
        declared[name] = Numeric(
            bounds=(lower, upper),
            center=guess if declare_spread else None,
            spread=float(f"{spread:.1g}") if declare_spread else None,
        )
    return Schema(dataset="nonlinear-sample", reviewed=True, public=True, nominal_rows=n_rows, columns=declared)


def nonlinear_dag(name: str) -> Dag:
    """Return the graph of a network, or that of the cells of Sachs and others for "sachs-cells"."""
    return real_sachs()[1] if name == REAL_CELLS else load_network(name).dag()


def sample_over(name: str, n_rows: int, rng: np.random.Generator) -> tuple[dict[str, NDArray[np.float64]], Dag]:
    """Draw rows over the graph of a network, or from the cells of Sachs and others, whose logarithms are taken."""
    if name != REAL_CELLS:
        dag = load_network(name).dag()
        return sample_nonlinear(dag, n_rows, rng), dag
    table, dag = real_sachs()
    rows = rng.permutation(table.num_rows)[:n_rows]
    # concentrations: a logarithm is what anyone would take first
    return {node: np.log(table[node].to_numpy()[rows]) for node in dag.nodes}, dag


def with_bins(schema: Schema, bins: int = BINS) -> Schema:
    """Return the schema with columns counted in so many bins of equal width within two spreads of the centre."""
    return msgspec.structs.replace(
        schema,
        columns={name: _bin(column, bins) for name, column in schema.columns.items() if isinstance(column, Numeric)},
    )


def _bin(column: Numeric, bins: int) -> Numeric:
    lower, upper = column.bounds
    if column.center is not None and column.spread is not None:
        lower, upper = max(lower, column.center - 2 * column.spread), min(upper, column.center + 2 * column.spread)
    edges = np.linspace(lower, upper, bins + 1)[1:-1]
    return msgspec.structs.replace(column, bins=tuple(float(edge) for edge in edges))


def _round_up(value: float) -> float:
    """Round a positive number up to one digit."""
    unit = 10.0 ** math.floor(math.log10(value))
    return math.ceil(value / unit) * unit

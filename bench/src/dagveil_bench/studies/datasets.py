"""Data sets of studies: those that the benchmarks know, and plug-ins of the entry point group `dagveil.datasets`.

A plug-in is a function ``sample(n_rows, rng, *words)`` that returns rows, their schema and the true graph. Rows are
anything that `discover` takes; words are what stands after the name in a study, as in ``source = "mine 20 0.1"``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import DataError, MethodError
from dagveil.examples import networks
from dagveil.graphs.cpdag import Dag
from dagveil.methods.method import Plugins, read_plugins
from dagveil_bench.adult import PACKAGE, REAL, SIMULATED, adult_network, sample_adult
from dagveil_bench.drawn_tables import KINDS as DRAWN
from dagveil_bench.drawn_tables import check_drawn, draw_table, random_network
from dagveil_bench.local_data import folder_of
from dagveil_bench.nonlinear import nonlinear_dag, nonlinear_schema, sample_over, with_bins

GROUP = "dagveil.datasets"  # entry point group of data sets
_SIMULATED = ("random", "gaussian", "gaussian-unscaled")
_NONLINEAR = ("nonlinear", "nonlinear-binned")
# sources that are drawn from a model, by their first word: "random D S", "gaussian D S" and "gaussian-unscaled D S",
# whose schema declares no spreads, have D nodes and sparseness S; "nonlinear NAME" has nonlinear columns over the graph
# of a network or the measured "sachs-cells", and "nonlinear-binned NAME" the same rows in public bins; the others are
# those of `draw_table`
KINDS = (*_SIMULATED, *_NONLINEAR, *DRAWN)
Sampler = Callable[..., tuple[Any, Schema, Dag]]


def data_plugins() -> Plugins[Sampler]:
    """Return the data sets of other packages."""
    return read_plugins(GROUP, _check_sampler)


def check_data_source(source: str) -> None:
    """Refuse a source that nobody can sample, before a study starts; MissingExtraError if it is not installed."""
    if source == REAL:
        folder_of(PACKAGE)
    if source in (REAL, SIMULATED) or _find_plugin(source) is not None:
        return
    kind, *numbers = source.split() or [""]
    if kind in _SIMULATED:
        try:
            nodes, sparseness = int(numbers[0]), float(numbers[1])
        except (IndexError, ValueError):
            nodes, sparseness = 0, 0.0
        if nodes < 2 or not 0.0 <= sparseness <= 1.0 or len(numbers) != 2:
            raise MethodError(
                f"{source!r} needs a number of nodes, 2 or more, and a sparseness from 0 to 1, the share of pairs that "
                f"are joined, for example '{kind} 20 0.1'"
            )
    elif kind in _NONLINEAR:
        if len(numbers) != 1:
            raise MethodError(f"{source!r} needs the name of a network, for example '{kind} asia'")
        nonlinear_dag(numbers[0])
    elif kind in DRAWN:
        check_drawn(source)
    else:
        try:
            networks.load_network(source)
        except MethodError as error:
            raise MethodError(f"{error}{_describe_others()}") from error


def sample_source(source: str, n_rows: int, rng: np.random.Generator) -> tuple[MemoryTable, Dag]:
    """Draw rows with their true graph."""
    if source in (REAL, SIMULATED):
        network = adult_network()
        codes = sample_adult(n_rows, rng) if source == REAL else networks.sample_codes(network, n_rows, rng)
        return MemoryTable.from_codes(codes, networks.network_schema(network, len(codes["age"]), source)), network.dag()
    sampler = _find_plugin(source)
    if sampler is None:
        return _draw_table(source, n_rows, rng)
    name, *words = source.split()
    drawn = sampler(n_rows, rng, *words)
    try:
        rows, schema, dag = drawn
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the data set {name!r} must return rows, schema and graph; it returned something else"
        ) from error
    if not isinstance(schema, Schema) or not isinstance(dag, Dag):
        raise DataError(
            f"the data set {name!r} must return rows, a dagveil Schema and a dagveil Dag, not {type(schema).__name__} "
            f"and {type(dag).__name__}"
        )
    return rows if isinstance(rows, MemoryTable) else MemoryTable.from_source(rows, schema), dag


def plugin_origin(source: str) -> str | None:
    """Return the package and version that a source comes from; None if it is our own."""
    name = source.split()[0]
    return None if _find_plugin(source) is None else data_plugins().origin(name)


def _check_sampler(name: str, found: object) -> Sampler:
    if _is_ours(name):
        raise MethodError("dagveil has a data set of this name; choose another")
    if not callable(found):
        raise MethodError("it is not a function of (n_rows, rng)")
    return found


def _find_plugin(source: str) -> Sampler | None:
    """Return the plug-in behind a source; what the benchmarks know themselves comes first."""
    plugins = data_plugins()
    name = (source.split() or [""])[0]
    return plugins.load(name) if name in plugins and not _is_ours(name) else None


def _draw_table(source: str, n_rows: int, rng: np.random.Generator) -> tuple[MemoryTable, Dag]:
    kind, *words = source.split()
    if kind in DRAWN:
        drawn = draw_table(source, n_rows, rng)
        return MemoryTable.from_source(drawn.rows, drawn.schema), drawn.dag
    if kind.startswith("gaussian"):
        model = networks.random_linear_gaussian(int(words[0]), float(words[1]), rng)
        rows = networks.sample_linear_gaussian(model, n_rows, rng)
        schema = networks.gaussian_schema(model, n_rows, declare_spread=kind == "gaussian")
        return MemoryTable.from_source(dict(zip(model.nodes, rows.T, strict=True)), schema), model.dag()
    if kind in _NONLINEAR:
        columns, dag = sample_over(words[0], n_rows, rng)
        schema = nonlinear_schema(columns, len(next(iter(columns.values()))))
        schema = with_bins(schema) if kind == "nonlinear-binned" else schema
        return MemoryTable.from_source(columns, schema), dag
    network = (
        random_network(int(words[0]), float(words[1]), rng, (2, 5)) if kind == "random" else networks.load_network(kind)
    )
    codes = networks.sample_codes(network, n_rows, rng)
    return MemoryTable.from_codes(codes, networks.network_schema(network, n_rows)), network.dag()


def _is_ours(name: str) -> bool:
    """Tell whether the benchmarks know a data set or a kind of data sets of this name."""
    return name in (REAL, SIMULATED, *KINDS, *networks.NETWORK_NAMES)


def _describe_others() -> str:
    names = data_plugins().names
    added = f"a plug-in: {', '.join(names)}" if names else "write a plug-in, for rows of your own"
    return f"; or {', '.join(KINDS)} with their numbers or network; or {REAL}, {SIMULATED}; or {added}"

"""Data sets of studies: those that the benchmarks know, and plug-ins of the entry point group `dagveil.datasets`.

A plug-in is a function ``sample(n_rows, rng, *words)`` that returns rows, their schema and the true graph. Rows are
anything that `discover` takes; words are what stands after the name in a study, as in ``source = "mine 20 0.1"``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import DataError, MethodError
from dagveil.examples.simulate import network_schema, sample_codes
from dagveil.graphs.dag import Dag
from dagveil.methods.catalogue import Plugins, read_plugins
from dagveil_bench.adult import PACKAGE, REAL, SIMULATED, adult_network, sample_adult
from dagveil_bench.local_data import folder_of
from dagveil_bench.utility import KINDS, Cell, check_source, draw_table

GROUP = "dagveil.datasets"
"""Entry point group of data sets."""

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
    try:
        check_source(source)
    except MethodError as error:
        raise MethodError(f"{error}{_tell_others(source)}") from error


def sample_source(source: str, n_rows: int, rng: np.random.Generator) -> tuple[MemoryTable, Dag]:
    """Draw rows with their true graph.

    Examples
    --------
    >>> table, dag = sample_source("asia", 10, np.random.default_rng(0))
    >>> tuple(table.schema.columns) == dag.nodes
    True
    """
    if source in (REAL, SIMULATED):
        network = adult_network()
        codes = sample_adult(n_rows, rng) if source == REAL else sample_codes(network, n_rows, rng)
        return MemoryTable.from_codes(codes, network_schema(network, len(codes["age"]), source)), network.dag()
    sampler = _find_plugin(source)
    if sampler is None:
        return draw_table(Cell(source, n_rows, 1.0), rng)
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


def _is_ours(name: str) -> bool:
    """Tell whether the benchmarks know a data set or a kind of data sets of this name."""
    if name in (REAL, SIMULATED):
        return True
    for form in (name, f"{name} 5 0.1", f"{name} asia"):
        with suppress(MethodError):
            check_source(form)
            return True
    return False


def _tell_others(source: str) -> str:
    if source.split()[:1] and source.split()[0] in KINDS:
        return ""
    names = data_plugins().names
    kinds = f"; or {', '.join(KINDS)} with their numbers or network; or {REAL}, {SIMULATED}"
    return (
        f"{kinds}; or a plug-in: {', '.join(names)}" if names else f"{kinds}; or write a plug-in, for rows of your own"
    )

"""How large a run is, from public facts: what is counted, released and searched."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, islice

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import METHODS
from dagveil.methods.measure_features import MeasureFeaturesSettings
from dagveil.methods.measure_tables import pays_for_triples
from dagveil.methods.method import Method
from dagveil.privacy.filter import Filter, PureFilter
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.cost import Search, Work

SECOND_ROUND = Fraction(3, 8)
"""Share of the budget that `measure` spends on what its first rounds recommend."""

TRIPLES_PER_COLUMN = 4
"""Three-way tables that its first rounds recommend, about, per column."""


def work_of_reading(schema: Schema, *, held: bool = False) -> Work:
    """Return the size of a run whose questions are not known: what is certain is that its rows are read."""
    return Work(schema, schema.nominal_rows or 0, [], 0, 0, 0, Search.PAIRS, 0, held=held)


def work_of_run(
    schema: Schema,
    method: Method,
    accounting: Filter,
    settings: object,
    knowledge: Knowledge,
    *,
    redraws: int = 0,
    noise: NoiseKind = NoiseKind.OPENDP,
    held: bool = False,
) -> Work:
    """Return the size of a run that follows no plan file: about, since its later questions follow from answers.

    Parameters
    ----------
    schema, method, accounting, settings, knowledge
        Of the run, settled before a row is touched.
    redraws
        Of the search that follows.
    noise
        Where noise comes from.
    held
        Whether the rows are in memory already.
    """
    rows = schema.nominal_rows or 0
    names = tuple(schema.columns)
    numeric = all(isinstance(column, Numeric) and column.bins is None for column in schema.columns.values())
    if method.release is None or method.name not in METHODS:
        return work_of_reading(schema, held=held)
    if isinstance(accounting, PureFilter):
        cells = math.prod(column.n_levels for column in schema.columns.values())
        return Work(schema, rows, [names], 1, cells, 0, Search.JOINT, redraws, noise, held)
    if numeric or method.name == "measure-notears":
        degree = (settings.degree or 2) if isinstance(settings, MeasureFeaturesSettings) else 1
        size = len(names) * degree + 1
        return Work(schema, rows, [], 1, size * (size + 1) // 2, size, Search.MATRIX, redraws, noise, held)
    pairs = [pair for pair in combinations(names, 2) if not knowledge.excludes(*pair)]
    counted: list[tuple[str, ...]] = [*((name,) for name in names), *pairs]
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    cells = sum(math.prod(levels[name] for name in columns) for columns in counted)
    triples = list(islice(combinations(names, 3), TRIPLES_PER_COLUMN * len(names)))
    if pays_for_triples(schema, triples, SECOND_ROUND, [(accounting.budget, max(rows, 1))]):
        cells += sum(math.prod(levels[name] for name in columns) for columns in triples)
        return Work(schema, rows, counted, len(counted), cells, 0, Search.TRIPLES, redraws, noise, held, True)
    return Work(schema, rows, counted, len(counted), cells, 0, Search.PAIRS, redraws, noise, held, True)

"""Synthetic tables of a schema: a random graph over its columns, and rows drawn from it. Nobody's rows are read.

The law is public and written in docs/plan.md. Everything here draws from a seeded generator.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.encoding import Codes, EncodedColumns, bin_numbers, clip_numbers, code_type
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.cpdag import Dag, sort_topologically
from dagveil.graphs.knowledge import Knowledge

Floats = NDArray[np.float64]

EDGES_PER_COLUMN = 1.5  # edges of a synthetic graph, per column, unless something else is asked for
MOST_DENSE = 0.5  # share of all pairs that these default edges may take: few columns have few pairs
STRENGTH = 0.4  # mean strength of an edge
VARIATION = 0.75  # strengths are uniform between one less and one more than this, times their mean
STRONGEST = 0.55  # the largest mean strength that may be asked for: some edges are then nearly deterministic
EXPLAINED = 0.8  # the largest share of a column's variance that its parents have together
# parameter of the Dirichlet distribution of level shares: 1 is uniform on the simplex, more is more even
EVENNESS = 1.0
BOUNDS_IN_SPREADS = 6.0  # width of the declared bounds in spreads, where no spread is declared
# share of synthetic numbers that one bin may hold. Beyond it the center and the spread say little about the bins
MOST_IN_ONE_BIN = 0.9
MOST_IF_GUESSED = 0.75  # the same where center or spread are not declared but guessed from the bounds


@dataclass(frozen=True, slots=True)
class SyntheticLaw:
    """What synthetic graphs are like.

    `degree` is edges per column on average; None takes `EDGES_PER_COLUMN`, or half of all pairs if that is less.
    `strength` is the mean strength of an edge: about the correlation that it gives its ends, before columns are cut
    into levels.
    """

    degree: float | None = None
    strength: float = STRENGTH

    def __post_init__(self) -> None:
        if self.degree is not None and not 0.0 <= self.degree < float("inf"):
            raise MethodError(f"degree is {self.degree:g}; give edges per column, for example {EDGES_PER_COLUMN:g}")
        if not 0.0 < self.strength <= STRONGEST:
            raise MethodError(f"strength is {self.strength:g}; choose a number above 0 and at most {STRONGEST:g}")

    def density(self, columns: int) -> float:
        """Return the chance that a pair of columns is an edge."""
        if columns < 2:
            return 0.0
        if self.degree is None:
            return min(2.0 * EDGES_PER_COLUMN / (columns - 1), MOST_DENSE)
        wanted = 2.0 * self.degree / (columns - 1)
        if wanted > 1.0:
            raise MethodError(
                f"{columns} columns have {columns * (columns - 1) // 2} pairs, too few for {self.degree:g} edges per "
                f"column; give at most {(columns - 1) / 2:g}"
            )
        return wanted


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTable:
    """A synthetic table, and the graph that it was drawn from."""

    dag: Dag
    table: MemoryTable


def make_synthetic(
    schema: Schema, knowledge: Knowledge, law: SyntheticLaw, n_rows: int, rng: np.random.Generator
) -> SyntheticTable:
    """Draw a graph and rows. Of the schema, levels and bounds are all that is used."""
    dag = draw_dag(schema, knowledge, law, rng)
    codes: dict[str, Codes] = {}
    values: dict[str, Floats] = {}
    for name in dag.order():
        latent = np.zeros(n_rows)
        parents = sorted(dag.parents(name), key=dag.nodes.index)
        weights = _draw_weights(len(parents), law.strength, rng)
        for parent, weight in zip(parents, weights.tolist(), strict=True):
            latent += weight * _score(schema.columns[parent], codes[parent], values.get(parent), rng)
        latent += np.sqrt(1.0 - (weights**2).sum()) * rng.standard_normal(n_rows)
        column = schema.columns[name]
        if isinstance(column, Numeric):
            values[name] = _place_numbers(latent, column)
            codes[name] = bin_numbers(values[name], values[name], column)
        else:
            codes[name] = _cut(latent, column, rng)
    # everything about synthetic rows is public
    public = msgspec.structs.replace(
        schema, dataset=f"{schema.dataset}, made up", reviewed=True, public=True, nominal_rows=n_rows
    )
    ordered = {name: codes[name] for name in schema.columns}
    return SyntheticTable(dag, MemoryTable(EncodedColumns(n_rows=n_rows, codes=ordered, values=values), public))


def draw_dag(schema: Schema, knowledge: Knowledge, law: SyntheticLaw, rng: np.random.Generator) -> Dag:
    """Draw a graph that obeys the knowledge; columns that cannot vary have no edges but required ones.

    Columns are put into a random order that the knowledge allows, and each pair is an edge by itself, from the earlier
    to the later.
    """
    names = tuple(schema.columns)
    density = law.density(len(names))
    knowledge.check(names)
    shuffled = tuple(names[place] for place in rng.permutation(len(names)))
    forced = {
        (cause, effect)
        for pair in combinations(names, 2)
        for cause, effect in (pair, pair[::-1])
        if knowledge.allows(cause, effect) and not knowledge.allows(effect, cause)
    }
    order = sort_topologically(shuffled, forced)
    assert order is not None  # the knowledge was checked
    lively = {name for name, column in schema.columns.items() if _count_levels(column) > 1}
    drawn = [
        (cause, effect)
        for cause, effect in combinations(order, 2)
        if rng.random() < density and lively.issuperset((cause, effect)) and knowledge.allows(cause, effect)
    ]
    return Dag(names, frozenset(drawn) | knowledge.required)


def _draw_weights(parents: int, strength: float, rng: np.random.Generator) -> Floats:
    weights = rng.uniform((1.0 - VARIATION) * strength, (1.0 + VARIATION) * strength, parents) * rng.choice(
        (-1.0, 1.0), parents
    )
    total = float((weights**2).sum())
    return np.asarray(weights * np.sqrt(EXPLAINED / total) if total > EXPLAINED else weights)


def _score(column: Column, codes: Codes, values: Floats | None, rng: np.random.Generator) -> Floats:
    """Return a parent as numbers of mean 0 and variance 1: its value, its place in the order, or random scores."""
    if values is not None:
        return _standardise(values)
    scores = np.arange(column.n_levels, dtype=np.float64)
    if isinstance(column, Categorical):
        scores = rng.standard_normal(column.n_levels)
    return _standardise(scores[codes])


def _standardise(numbers: Floats) -> Floats:
    spread = float(numbers.std())
    return (numbers - numbers.mean()) / spread if spread > 0.0 else np.zeros_like(numbers)


def _count_levels(column: Column) -> int:
    """Return the levels that are drawn: places for other and missing values stay empty if there are two others."""
    if isinstance(column, Numeric):
        return 2  # numbers vary, in however few bins they are counted
    return len(column.levels) if len(column.levels) > 1 else column.n_levels


def _cut(latent: Floats, column: Any, rng: np.random.Generator) -> Codes:
    """Cut a latent number into levels with random shares; levels without an order come in a random one."""
    levels = _count_levels(column)
    shares = rng.dirichlet(np.full(levels, EVENNESS))
    cuts = ndtri(np.clip(np.cumsum(shares)[:-1], 0.0, 1.0))
    places = np.searchsorted(cuts, latent)
    order = rng.permutation(levels) if isinstance(column, Categorical) else np.arange(levels)
    return np.asarray(order[places], dtype=code_type(column))


def _place_numbers(latent: Floats, column: Numeric) -> Floats:
    """Give normal numbers the declared center and spread; spread them over the bins if these fill hardly any."""
    lower, upper = column.bounds
    center = column.center if column.center is not None else lower / 2.0 + upper / 2.0
    spread = column.spread if column.spread is not None else upper / BOUNDS_IN_SPREADS - lower / BOUNDS_IN_SPREADS
    shares = np.diff(ndtr((np.array([-np.inf, *column.cuts, np.inf]) - center) / spread))
    declared = column.center is not None and column.spread is not None
    if len(shares) > 1 and shares.max() > (MOST_IN_ONE_BIN if declared else MOST_IF_GUESSED):
        edges = np.array([lower, *column.cuts, upper])
        return clip_numbers(np.interp(ndtr(latent), np.linspace(0.0, 1.0, len(edges)), edges), column)
    return clip_numbers(center + spread * latent, column)

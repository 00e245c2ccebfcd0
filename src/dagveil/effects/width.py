"""Which ε gives an interval of a wanted width, if exactly the tables that an effect needs are released."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.schema import Schema
from dagveil.effects.answer import COVERED
from dagveil.effects.components import Components
from dagveil.effects.estimate import MOST_CELLS, proper_levels
from dagveil.effects.parents import check_pair
from dagveil.effects.tables import estimate_law
from dagveil.errors import MethodError
from dagveil.evidence.graphical_model import project
from dagveil.privacy.budget import Amount, Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, Filter, PureFilter, tightest_filter
from dagveil.privacy.mechanisms.gaussian import FINE_DEVIATION, deviation_for
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.release import NoisyCounts
from dagveil.statistics.contingency import counts_sensitivity, counts_squared_sensitivity

Floats = NDArray[np.float64]

EPSILONS: Final = (1e-4, 100.0)  # the least and the largest ε that are looked at
PLANNED = "Before a row is read, all levels count as equally frequent; rare levels need more."


def table_accounting(budget: Budget, relation: Relation, tables: int) -> tuple[Filter, float]:
    """Choose Laplace or Gaussian noise for so many tables of counts, and return the variance in each cell."""
    pure = PureFilter(budget)
    laplace = float(laplace_variance(Fraction(counts_sensitivity(relation, tables)) / budget.epsilon))
    if budget.delta == 0:
        return pure, laplace
    other = tightest_filter(budget, [DiscreteGaussian])
    fine = FINE_DEVIATION
    gaussian = (deviation_for(other, counts_squared_sensitivity(relation, tables, fine), other.total) / fine) ** 2
    return (pure, laplace) if laplace <= gaussian else (other, gaussian)


def choose_tables(
    schema: Schema, budget: Budget, cause: str, effect: str, sets: Sequence[frozenset[str]]
) -> tuple[tuple[str, ...], ...]:
    """Choose between one table of all columns and one for each set, by the noise of the worst of them."""
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    names = [(cause, effect, *sorted(one)) for one in dict.fromkeys(sets)]
    # a set that another one holds is a sum of that one's cells
    names = [one for one in names if not any(set(one) < set(other) for other in names)]
    sizes = [math.prod(levels[name] for name in one) for one in names]
    if max(sizes) > MOST_CELLS:
        largest = names[int(np.argmax(sizes))]
        raise MethodError(
            f"the table of {' × '.join(largest)} has {max(sizes)} cells, the limit is {MOST_CELLS}"
            "; group levels in the schema, or name a smaller set with --adjust. Nothing was spent"
        )
    relation = Relation(schema.relation)
    together = (cause, effect, *sorted(frozenset().union(*sets)))
    whole = math.prod(levels[name] for name in together)
    apart = table_accounting(budget, relation, len(names))[1]
    joint = table_accounting(budget, relation, 1)[1] * whole / min(sizes)
    return (together,) if len(names) == 1 or (whole <= MOST_CELLS and joint <= apart) else tuple(names)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The ε that gives the width; None if no ε does, and then `reason` says why."""

    epsilon: float | None
    width: float
    reason: str | None


def epsilon_for_width(
    schema: Schema,
    cause: str,
    effect: str,
    sets: Sequence[frozenset[str]],
    width: float,
    delta: Amount = 0,
    expected: Callable[[tuple[str, ...]], Floats] | None = None,
) -> Wanted:
    """Return the least ε whose intervals of the main contrast are no wider, for each of these adjustment sets.

    - `width`: from the low to the high end, as a share: 0.02 is two points.
    - `expected`: rows of each cell of a table; left out, all cells are alike, with the schema's nominal rows.
    """
    if not 0.0 < width <= 2.0:
        raise MethodError(f"the width is {width:g}; give a share between 0 and 1, such as 0.02 for two points")
    check_pair(schema.columns, cause, effect)
    for name in sorted(frozenset().union(*sets)):
        if name not in schema.columns or name in (cause, effect):
            raise MethodError(f"no column to adjust for is called {name!r}; choose among the others of the schema")
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    if expected is None:
        rows = schema.nominal_rows or 0
        if not rows:
            raise MethodError("the width hangs on the number of rows; declare nominal_rows in the schema")

        def expected(names: tuple[str, ...]) -> Floats:
            cells = math.prod(levels[name] for name in names)
            return np.full([levels[name] for name in names], rows / cells)

    a = len(proper_levels(schema, cause)) - 1
    at = len(proper_levels(schema, effect)) - 1
    relation = Relation(schema.relation)
    counts = {one: expected((cause, effect, *sorted(one))) for one in dict.fromkeys(sets)}

    def forecast(epsilon: float) -> float:
        budget = Budget.of(repr(epsilon), delta)
        tables = choose_tables(schema, budget, cause, effect, list(counts))
        _, variance = table_accounting(budget, relation, len(tables))
        widest = 0.0
        for one, table in counts.items():
            names = (cause, effect, *sorted(one))
            holder = next(each for each in tables if set(names) <= set(each))
            summed = math.prod(levels[name] for name in holder) // table.size
            widest = max(widest, _width(names, table, variance * summed, a, at))
        return widest

    return find_epsilon(forecast, width, float(max(table.sum() for table in counts.values())))


def find_epsilon(forecast: Callable[[float], float], width: float, rows: float) -> Wanted:
    """Return the least ε whose forecast is no wider; without one, how many rows it would take."""
    low, high = EPSILONS
    least = forecast(high)
    if least > width:
        reason = "a level of the cause is too rare to be told from noise"
        if math.isfinite(least):
            reason = (
                f"even without noise the interval would be about {least:.2g} wide with {rows:.0f} rows; it would take "
                f"about {rows * (least / width) ** 2:.0f} rows"
            )
        return Wanted(None, width, reason)
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if forecast(middle) <= width else (middle, high)
        if high / low < 1.005:
            break
    return Wanted(high, width, None)


def _width(names: tuple[str, ...], table: Floats, variance: float, a: int, at: int) -> float:
    positive = project(table.reshape(-1), max(float(table.sum()), 1.0))
    lattice = 2**20
    values = tuple(int(value) for value in np.rint(positive * lattice))
    noise = Fraction(max(variance, 1e-12)).limit_denominator(10**15) * lattice**2
    release = NoisyCounts(names, table.shape, lattice, noise, values)
    law = estimate_law(Components(dict(zip(names, table.shape, strict=True)), [release]), names[0], names[1], names[2:])
    if law.hidden[a] or law.hidden[0]:
        return math.inf
    return 2.0 * COVERED * math.sqrt(float(law.contrast(a, 0)[1][at]))

"""How long a trial on synthetic tables will take, and what is left out so that it stays within its time.

Shipped constants of a machine serve, not measured ones: what is tried must not depend on where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dagveil.data.schema import Schema
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import METHODS
from dagveil.methods.method import Method
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.cost import estimate_cost
from dagveil.runs.machine_speed import Speed
from dagveil.runs.work import work_of_run

MADE_CELL = 1.5e-7
"""Seconds to make one cell up."""

FEWEST_ROWS = 10_000
"""Rows below which synthetic tables are not cut."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """What is tried.

    Attributes
    ----------
    rows
        Of each synthetic table.
    methods
        Names.
    left_out
        Names that would take too long.
    seconds
        Processor seconds that are foreseen.
    """

    rows: int
    methods: tuple[str, ...]
    left_out: tuple[str, ...]
    seconds: float


def fit_time_limit(
    schema: Schema,
    knowledge: Knowledge,
    methods: Sequence[Method],
    budgets: Sequence[Budget],
    models: int,
    rows: int,
    limit: float,
    *,
    may_leave_out: bool,
) -> TimeLimit:
    """Leave out the slowest methods, then cut rows, until the forecast is within the limit.

    Parameters
    ----------
    schema, knowledge
        What is tried on.
    methods
        What would be tried; the first one is never left out.
    budgets, models
        Runs of each method.
    rows
        Rows that each synthetic table should have.
    limit
        Processor seconds.
    may_leave_out
        Whether methods may be left out; methods that were asked for by name may not.
    """

    def foresee(names: Sequence[Method], n_rows: int) -> float:
        runs = sum(foresee_run(schema, knowledge, method, budget, n_rows) for method in names for budget in budgets)
        return models * (runs + MADE_CELL * n_rows * len(schema.columns))

    kept = list(methods)
    fewest = min(rows, FEWEST_ROWS)
    while may_leave_out and len(kept) > 1 and foresee(kept, rows) > limit:
        slowest = max(kept[1:], key=lambda method: foresee([method], rows))
        if foresee([slowest], fewest) <= limit / len(kept):
            break  # it is the rows that take long
        kept.remove(slowest)
    while rows > fewest and foresee(kept, rows) > limit:
        rows = max(fewest, rows // 2)
    names = {method.name for method in kept}
    left_out = tuple(method.name for method in methods if method.name not in names)
    return TimeLimit(rows, tuple(method.name for method in kept), left_out, foresee(kept, rows))


def foresee_run(schema: Schema, knowledge: Knowledge, method: Method, budget: Budget, rows: int) -> float:
    """Return the processor seconds of one run on a table in memory, without redraws."""
    weight = 1.0
    if method.release is None or method.name not in METHODS:
        weight = method.relative_time
        method = METHODS["measure"]
    settings = method.read_settings(None)
    accounting = method.accounting(budget, schema, settings, knowledge)
    sized = msgspec.structs.replace(schema, nominal_rows=rows)
    work = work_of_run(sized, method, accounting, settings, knowledge, noise=NoiseKind.EXACT, held=True)
    cost = estimate_cost(work, Speed())
    # the program has started already
    return weight * (cost.seconds - cost.steps[0].seconds)

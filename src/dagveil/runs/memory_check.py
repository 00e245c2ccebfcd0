"""Whether a run fits into the memory of this machine, and what would if it does not."""

from __future__ import annotations

import math
from dataclasses import replace

from dagveil.data.engine import Engine
from dagveil.data.machine import available_memory
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.runs.cost import Cost, Search, Work, estimate_cost, tell_bytes
from dagveil.runs.machine_speed import Speed

SPARED = 0.9
"""Share of the available memory that a run may plan for."""


def check_fits(work: Work, speed: Speed, available: float | None = None) -> Cost:
    """Refuse a run that cannot fit into memory, and say what would.

    Parameters
    ----------
    work, speed
        As in `estimate_cost`.
    available
        Bytes; None asks the operating system.
    """
    cost = estimate_cost(work, speed)
    room = available_memory() if available is None else available
    if room is None or cost.memory <= SPARED * room:
        return cost
    worst = max(cost.steps, key=lambda step: step.memory)
    raise MethodError(
        f"this run would need about {tell_bytes(cost.memory)} of memory for {worst.name}, and {tell_bytes(room)} are "
        f"available. {suggest(work, speed, SPARED * room)}"
    )


def suggest(work: Work, speed: Speed, room: float) -> str:
    """Say what would fit: less confidence, smaller tables, fewer columns, fewer rows at a time."""
    found = []
    if _fits(replace(work, redraws=0), speed, room) and work.redraws:
        found.append("leave out redraws (--redraws 0)")
    if work.search is Search.TRIPLES and _fits(_leave_triples(work), speed, room):
        found.append("leave out three-way tables (--tables pairs)")
    columns = list(work.schema.columns)
    low, high = 2, len(columns)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(_keep_columns(work, middle), speed, room) else (low, middle - 1)
    if _fits(_keep_columns(work, low), speed, room):
        found.append(f"keep about {low} of the {len(columns)} columns, or group levels")
    if not work.held and work.engine is Engine.MEMORY and _fits(replace(work, engine=Engine.DUCKDB), speed, room):
        found.append("let another engine than memory count the rows where they are (--engine duckdb)")
    return f"What would fit: {'; '.join(found)}." if found else "Nothing smaller would fit; use a larger machine."


def _fits(work: Work, speed: Speed, room: float) -> bool:
    return estimate_cost(work, speed).memory <= room


def _leave_triples(work: Work) -> Work:
    levels = {name: column.n_levels for name, column in work.schema.columns.items()}
    counted = [columns for columns in work.counted if len(columns) < 3]
    cells = sum(math.prod(levels[name] for name in columns) for columns in counted)
    return replace(work, counted=counted, tables=len(counted), cells=cells, search=Search.PAIRS)


def _keep_columns(work: Work, kept: int) -> Work:
    """Return the work on the first columns only, all else in proportion."""
    names = list(work.schema.columns)[:kept]
    share = kept / len(work.schema.columns)
    inside = set(names)
    schema = Schema(dataset="part", columns={name: work.schema.columns[name] for name in names})
    counted = [columns for columns in work.counted if inside.issuperset(columns)] or [tuple(names)] * bool(work.counted)
    order = max((len(columns) for columns in work.counted), default=2)
    cells = (
        math.prod(column.n_levels for column in schema.columns.values())
        if work.search is Search.JOINT
        else int(work.cells * share ** min(order, 3))
    )
    return replace(
        work,
        schema=schema,
        counted=counted,
        tables=int(work.tables * share ** min(order, 3)) + 1,
        cells=cells,
        features=int(work.features * share),
    )

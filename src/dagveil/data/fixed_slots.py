"""Levelled rows: every table as the same public number of slots, scaled to [-1, 1].

Records fill the slots, as `dagveil.data.selection` chooses them; where there are fewer, public filler takes the slots
that are left. Then two neighbours, whether a record was added, removed or replaced, differ in one slot only, up to the
order of the slots (docs/proofs/fixed-slots.md).
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Column, Numeric
from dagveil.errors import SchemaError

MOST_SLOTS: Final = 2**22
"""The largest number of slots: a mean over as many, summed up in any order, is exact to 1e-9 in float64."""


def check_slots(slots: int) -> None:
    """Refuse a number of slots that has no use."""
    if not 1 <= slots <= MOST_SLOTS:
        raise SchemaError(f"rows cannot be levelled to {slots} slots; choose between 1 and {MOST_SLOTS}")


def unit_scale(column: Column) -> tuple[float, float]:
    """Give the centre and the half-width by which a column is scaled to [-1, 1]; a column with one level has width 0.

    Examples
    --------
    >>> unit_scale(Numeric(bounds=(0, 20)))
    (10.0, 10.0)
    """
    lower, upper = column.bounds if isinstance(column, Numeric) else (min(column.numbers), max(column.numbers))
    # halves first: the difference of two large bounds could overflow
    return upper / 2.0 + lower / 2.0, upper / 2.0 - lower / 2.0


def scale_to_unit(values: NDArray[np.float64], column: Column) -> NDArray[np.float64]:
    """Scale numbers to [-1, 1] by the column's bounds, or by its smallest and largest score.

    Values beyond are clipped, and what is not a number counts as the middle. Elementwise: the result for a row depends
    on that row alone.

    Examples
    --------
    >>> scale_to_unit(np.array([0.0, 5.0, 99.0]), Numeric(bounds=(0, 20))).tolist()
    [-1.0, -0.5, 1.0]
    """
    middle, half = unit_scale(column)
    if half == 0.0:
        return np.zeros(len(values))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (np.asarray(values, dtype=np.float64) - middle) / half
    scaled[np.isnan(scaled)] = 0.0
    return np.clip(scaled, -1.0, 1.0)


def fill_slots(name: str, slots: range) -> NDArray[np.float64]:
    """Give the filler of a column in some slots: as good as uniform in [-1, 1] and independent, yet fixed and public.

    Examples
    --------
    >>> filler = fill_slots("age", range(1000))
    >>> bool(abs(filler.mean()) < 0.1), bool((filler[10:] == fill_slots("age", range(10, 1000))).all())
    (True, True)
    """
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    mixed = np.arange(slots.start, slots.stop, dtype=np.uint64)
    # once to spread the slots and once after the column's key
    for shift in (np.uint64(0x9E3779B97F4A7C15), np.uint64(key)):
        mixed = scramble(mixed + shift)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def scramble(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Map 64-bit integers one to one to others that look random: the finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def level_column(values: NDArray[np.float64], name: str, column: Column, slots: int) -> NDArray[np.float64]:
    """Give a column of the levelled table: the chosen values, scaled, then filler up to the number of slots."""
    return np.concatenate([scale_to_unit(values, column), fill_slots(name, range(len(values), slots))])

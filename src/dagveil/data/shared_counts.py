"""Which wide tables to count so that many small ones can be summed down from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_MOST_CELLS: Final = 2**16
_FEWEST_CELLS: Final = 2**8
_ROWS_PER_CELL: Final = 32
"""Wider tables take fewer passes, but each of their questions sums all of their cells: measured, from 10⁴ rows."""

_OPEN_BUNDLES: Final = 64


@dataclass(frozen=True, slots=True)
class Bundle:
    """Columns that are counted together, and the positions of the questions that this answers."""

    columns: tuple[str, ...]
    members: tuple[int, ...]


def widest_table(n_rows: int) -> int:
    """Return how many cells a table may have that is counted for the sake of smaller ones.

    Examples
    --------
    >>> widest_table(1000), widest_table(10**5), widest_table(10**9)
    (256, 3125, 65536)
    """
    return min(max(n_rows // _ROWS_PER_CELL, _FEWEST_CELLS), _MOST_CELLS)


def bundle_columns(
    column_sets: Sequence[Sequence[str]], levels: Mapping[str, int], *, n_rows: int
) -> tuple[Bundle, ...]:
    """Cover sets of columns by wider sets whose tables stay small against the rows.

    A pass over the rows costs about as much for ten columns as for two, so all pairs of twenty columns need about ten
    passes instead of 190. Empty sets are left out: they need no pass.

    Examples
    --------
    >>> [bundle.columns for bundle in bundle_columns([("a", "b"), ("b", "c")], {"a": 2, "b": 2, "c": 2}, n_rows=9999)]
    [('a', 'b', 'c')]
    """
    limit = widest_table(n_rows)
    bits = {name: 1 << position for position, name in enumerate(levels)}
    masks = [sum(bits[name] for name in columns) for columns in column_sets]
    wide: list[int] = []
    cells: list[int] = []
    homes: dict[int, int] = {}
    for wanted, columns in zip(masks, column_sets, strict=True):
        if not wanted or wanted in homes:
            continue
        # older bundles are nearly full; to look at all of them would take longer than the passes that it saves
        recent = range(max(0, len(wide) - _OPEN_BUNDLES), len(wide))
        home = next((position for position in recent if not wanted & ~wide[position]), None)
        if home is None:
            for position in recent:
                missing = wanted & ~wide[position]
                grown = cells[position] * math.prod(levels[name] for name in columns if bits[name] & missing)
                if grown <= limit:
                    home, cells[position] = position, grown
                    wide[position] |= wanted
                    break
        if home is None:
            home = len(wide)
            wide.append(wanted)
            cells.append(math.prod(levels[name] for name in columns))
        homes[wanted] = home
    members: list[list[int]] = [[] for _ in wide]
    for position, mask in enumerate(masks):
        if mask:
            members[homes[mask]].append(position)
    return tuple(
        Bundle(tuple(name for name, bit in bits.items() if bit & mask), tuple(positions))
        for mask, positions in zip(wide, members, strict=True)
    )

"""Which wide tables to count so that many small ones can be summed down from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_MOST_CELLS: Final = 2**16
_FEWEST_CELLS: Final = 2**8


@dataclass(frozen=True, slots=True)
class Bundle:
    """Columns that are counted together, and the positions of the questions that this answers."""

    columns: tuple[str, ...]
    members: tuple[int, ...]


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
    limit = min(max(n_rows // 4, _FEWEST_CELLS), _MOST_CELLS)
    wide: list[set[str]] = []
    cells: list[int] = []
    for wanted in dict.fromkeys(frozenset(columns) for columns in column_sets if columns):
        if any(wanted <= columns for columns in wide):
            continue
        for position, columns in enumerate(wide):
            grown = cells[position] * math.prod(levels[name] for name in wanted - columns)
            if grown <= limit:
                columns.update(wanted)
                cells[position] = grown
                break
        else:
            wide.append(set(wanted))
            cells.append(math.prod(levels[name] for name in wanted))
    members: list[list[int]] = [[] for _ in wide]
    for position, asked in enumerate(column_sets):
        if asked:
            members[next(k for k, columns in enumerate(wide) if columns.issuperset(asked))].append(position)
    order = list(levels)
    return tuple(
        Bundle(tuple(sorted(columns, key=order.index)), tuple(positions))
        for columns, positions in zip(wide, members, strict=True)
        if positions
    )

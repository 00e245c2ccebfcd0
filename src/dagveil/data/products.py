"""All pair tables at once, as one matrix product of indicators."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.distinct import WeightedRows

_MOST_CELLS: Final = 2**16
_FEWEST_CELLS: Final = 2**8
# wider tables take fewer passes, but each of their questions sums all of their cells: measured, from 10⁴ rows
_ROWS_PER_CELL: Final = 32
_OPEN_BUNDLES: Final = 64


@dataclass(frozen=True, slots=True)
class Bundle:
    """Columns that are counted together, and the positions of the questions that this answers."""

    columns: tuple[str, ...]
    members: tuple[int, ...]


def widest_table(n_rows: int) -> int:
    """Return how many cells a table may have that is counted for the sake of smaller ones."""
    return min(max(n_rows // _ROWS_PER_CELL, _FEWEST_CELLS), _MOST_CELLS)


def bundle_columns(
    column_sets: Sequence[Sequence[str]], levels: Mapping[str, int], *, n_rows: int
) -> tuple[Bundle, ...]:
    """Cover sets of columns by wider sets with small tables: a pass costs about as much for ten as for two."""
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


FEWEST_PAIRS: Final = 50  # fewer pairs than this are counted one by one
MOST_INDICATORS: Final = 6000  # indicators whose products are held at once: about 1 GB
_BLOCK_ROWS: Final = 4096
_BLOCK_WORDS: Final = 2**17
_MOST_BIT_INDICATORS: Final = 400
_WORD_BITS: Final = 64
_EXACT_IN_SINGLE: Final = 2**24
# Processor nanoseconds of one core, measured; only their ratios matter, and only for the choice between two ways to
# the same answer.
_PRODUCT: Final = 0.015
_INDICATOR: Final = 0.3
_PASS: Final = 3.0
_PASS_PAIR: Final = 0.22
_TABLE: Final = 40_000.0


def pays(column_sets: Sequence[Sequence[str]], levels: Mapping[str, int], n_rows: int) -> bool:
    """Tell whether the sets are pairs, many enough, and sooner counted by one product than table by table."""
    if len(column_sets) < FEWEST_PAIRS or any(len(columns) != 2 for columns in column_sets):
        return False
    columns = {name for pair in column_sets for name in pair}
    indicators = sum(levels[name] - 1 for name in columns)
    if indicators > MOST_INDICATORS:
        return False
    # table by table, one pass over the rows serves as many columns as its table has room for; that table, whose cells
    # grow with the rows, is then summed down for each pair
    mean = max(math.exp(sum(math.log(levels[name]) for name in columns) / len(columns)), 1.1)
    together = min(max(math.log(widest_table(n_rows)) / math.log(mean), 2.0), len(columns))
    passes = max(len(column_sets) / (together * (together - 1) / 2), 1.0)
    by_tables = n_rows * passes * (_PASS + _PASS_PAIR * together**2) + len(column_sets) * _TABLE
    return n_rows * indicators * (_INDICATOR + _PRODUCT * indicators) <= by_tables


@dataclass(frozen=True, slots=True, eq=False)
class PairTables:
    """Every pair table of some columns, as blocks of one matrix."""

    levels: Mapping[str, int]
    starts: Mapping[str, int]
    products: NDArray[np.int64]

    def holds(self, columns: Sequence[str]) -> bool:
        """Tell whether this is a pair whose table is here."""
        return len(columns) == 2 and columns[0] in self.starts and columns[1] in self.starts

    def table(self, first: str, second: str) -> NDArray[np.int64]:
        """Return the table of two different columns."""
        row, column = self.starts[first], self.starts[second]
        return self.products[row : row + self.levels[first], column : column + self.levels[second]].copy()


def count_pairs(rows: WeightedRows, levels: Mapping[str, int]) -> PairTables:
    """Count every pair of these columns.

    Each row becomes a vector of zeros and ones, one for each level but the first of each column; the product of the
    matrix of these vectors with itself, rows weighted by their multiplicity, holds the tables without their first rows
    and columns. Margins stand on its diagonal, so the rest is margins less what is there, in integers.
    """
    n_rows = rows.n_rows if rows.weights is None else int(rows.weights.sum())
    # beyond some hundred indicators, floating point has the faster kernel
    few = sum(levels.values()) - len(levels) <= _MOST_BIT_INDICATORS
    count = _count_bits if rows.weights is None and few else _multiply
    return _complete(count(rows, levels, n_rows), levels, n_rows)


def _count_bits(rows: WeightedRows, levels: Mapping[str, int], n_rows: int) -> NDArray[np.int64]:
    """Multiply indicators of rows that count once: a bit for each row, so that a word holds 64 of them."""
    width = sum(levels.values()) - len(levels)
    total = np.zeros((width, width), dtype=np.int64)
    # the indicators of a block, and what they have in common with one of them, stay in the cache
    step = _WORD_BITS * max(_BLOCK_WORDS // max(width, 1), 16)
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        used, words = -(-(stop - start) // 8), -(-(stop - start) // _WORD_BITS)
        bits = np.zeros((width, 8 * words), dtype=np.uint8)
        position = 0
        for name, size in levels.items():
            codes = rows.codes[name][start:stop]
            for level in range(1, size):
                bits[position, :used] = np.packbits(codes == level)
                position += 1
        packed = bits.view(np.uint64)
        for row in range(width):
            total[row, row:] += np.bitwise_count(packed[row] & packed[row:]).sum(axis=1, dtype=np.uint32)
    return total + np.triu(total, 1).T


def _multiply(rows: WeightedRows, levels: Mapping[str, int], n_rows: int) -> NDArray[np.floating]:
    """Multiply indicators in floats: sums of integers are exact in float32 below 2**24, in float64 below 2**53."""
    width = sum(levels.values()) - len(levels)
    total = np.zeros((width, width), dtype=np.float32 if n_rows < _EXACT_IN_SINGLE else np.float64)
    for start in range(0, rows.n_rows, _BLOCK_ROWS):
        block = slice(start, min(start + _BLOCK_ROWS, rows.n_rows))
        weights = None if rows.weights is None else rows.weights[block]
        small = weights is None or weights.sum() < _EXACT_IN_SINGLE
        indicators = np.empty((width, block.stop - block.start), dtype=np.float32 if small else np.float64)
        position = 0
        for name, size in levels.items():
            codes = rows.codes[name][block]
            for level in range(1, size):
                np.equal(codes, level, out=indicators[position])
                position += 1
        # a matrix times its own transpose takes half of the multiplications
        right = indicators if weights is None else indicators * weights.astype(indicators.dtype)
        total += indicators @ right.T
    return total


def _complete(kept: NDArray[np.floating] | NDArray[np.int64], levels: Mapping[str, int], n_rows: int) -> PairTables:
    """Add the first level of each column, in integers."""
    sizes = np.array(list(levels.values()), dtype=np.intp)
    starts = np.concatenate([np.zeros(1, dtype=np.intp), np.cumsum(sizes)])[:-1]
    width = int(sizes.sum())
    others = np.delete(np.arange(width), starts)
    products = np.zeros((width, width), dtype=np.int64)
    products[np.ix_(others, others)] = kept
    margins = np.diagonal(products).copy()
    margins[starts] = n_rows - np.add.reduceat(margins, starts)
    # all levels of a column together are everything; first levels are still empty in these sums
    products[starts] = margins - np.add.reduceat(products, starts, axis=0)
    products[:, starts] = 0
    products[:, starts] = margins[:, None] - np.add.reduceat(products, starts, axis=1)
    return PairTables(levels, dict(zip(levels, starts.tolist(), strict=True)), products)

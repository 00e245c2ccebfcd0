"""Tables of counts, and how far one record can move them (docs/proofs/counts.md)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.relation import Relation


def counts_squared_sensitivity(relation: Relation, n_tables: int, lattice: int = 1) -> Fraction:
    """Return the squared L2 sensitivity of so many tables of counts, each multiplied by the lattice.

    A record stands in exactly one cell of each table: adding or removing it moves one cell by 1, replacing it moves at
    most two.

    Examples
    --------
    >>> counts_squared_sensitivity(Relation.ADD_REMOVE, 28), counts_squared_sensitivity(Relation.REPLACE_ONE, 28)
    (Fraction(28, 1), Fraction(56, 1))
    """
    return Fraction(changed_cells(relation, n_tables) * lattice**2)


def counts_sensitivity(relation: Relation, n_tables: int) -> int:
    """Return the L1 sensitivity of so many tables of counts: one record moves each of these cells by 1.

    Examples
    --------
    >>> counts_sensitivity(Relation.ADD_REMOVE, 1), counts_sensitivity(Relation.REPLACE_ONE, 1)
    (1, 2)
    """
    return changed_cells(relation, n_tables)


def changed_cells(relation: Relation, n_tables: int) -> int:
    """Return how many cells of so many tables one record can change."""
    return n_tables * (1 if relation is Relation.ADD_REMOVE else 2)


def centre_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (r I − J) N (r′ I − J) for a table N with r rows and r′ columns, or a stack of them: free of the margins.

    Examples
    --------
    >>> centre_counts(np.array([[3, 0], [0, 1]])).tolist()
    [[4, -4], [-4, 4]]
    """
    rows, columns = counts.shape[-2:]
    down, across = counts.sum(axis=-2, keepdims=True), counts.sum(axis=-1, keepdims=True)
    total = down.sum(axis=-1, keepdims=True)
    centred: NDArray[np.int64] = rows * columns * counts - rows * across - columns * down + total
    return centred


def interaction_squared_sensitivity(relation: Relation, shape: tuple[int, int]) -> int:
    """Return the squared L2 sensitivity of one centred table (docs/proofs/counts.md).

    One record in cell (i, j) adds h_i ⊗ h_j with h_i = r e_i − 1, whose squared length is r (r − 1) r′ (r′ − 1). If it
    is replaced, the two differ most if they share a row or a column: h_i · h_k = −r for different levels.

    Examples
    --------
    >>> interaction_squared_sensitivity(Relation.ADD_REMOVE, (2, 3))
    12
    >>> interaction_squared_sensitivity(Relation.REPLACE_ONE, (2, 2))
    16
    """
    rows, columns = shape
    length = rows * (rows - 1) * columns * (columns - 1)
    if relation is Relation.ADD_REMOVE or length == 0:
        return length
    return 2 * length + 2 * rows * columns * max(rows - 1, columns - 1)

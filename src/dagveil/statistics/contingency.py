"""Tables of counts, and how far one record can move them (docs/proofs/counts.md)."""

from __future__ import annotations

from fractions import Fraction

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


def changed_cells(relation: Relation, n_tables: int) -> int:
    """Return how many cells of so many tables one record can change."""
    return n_tables * (1 if relation is Relation.ADD_REMOVE else 2)

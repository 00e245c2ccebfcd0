"""Tables of counts, and how far one record can move them (docs/proofs/counts.md)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.budget import Relation


def counts_squared_sensitivity(relation: Relation, n_tables: int, lattice: int = 1) -> Fraction:
    """Return the squared L2 sensitivity of so many tables of counts, each multiplied by the lattice.

    A record stands in exactly one cell of each table: adding or removing it moves one cell by 1, replacing it moves at
    most two.
    """
    return Fraction(changed_cells(relation, n_tables) * lattice**2)


def counts_sensitivity(relation: Relation, n_tables: int) -> int:
    """Return the L1 sensitivity of so many tables of counts: one record moves each of these cells by 1."""
    return changed_cells(relation, n_tables)


def changed_cells(relation: Relation, n_tables: int) -> int:
    """Return how many cells of so many tables one record can change."""
    return n_tables * (1 if relation is Relation.ADD_REMOVE else 2)


def centre_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Multiply every axis of tables but the first, which holds the tables, by r I − J: what is left has no margins.

    Of a table of no columns, one number, nothing is taken away.
    """
    for axis in range(1, counts.ndim):
        counts = counts.shape[axis] * counts - counts.sum(axis=axis, keepdims=True)
    return counts


def margins_squared_sensitivity(relation: Relation, levels: Sequence[int]) -> Fraction:
    """Return the squared L2 sensitivity of the number of rows and of centred one-way tables, in counts.

    Exact (docs/proofs/counts.md). Where a record is replaced, the number of rows does not move.
    """
    if relation is Relation.ADD_REMOVE:
        return 1 + sum((_length(count) for count in levels), Fraction(0))
    return Fraction(2 * sum(count > 1 for count in levels))


def interactions_squared_sensitivity(
    relation: Relation, column_sets: Sequence[tuple[str, ...]], levels: Mapping[str, int]
) -> Fraction:
    """Return the squared L2 sensitivity of centred tables of two or three columns, in counts (docs/proofs/counts.md).

    Exact if a record is added or removed. If it is replaced: exact if all pairs of some columns are asked for, and
    otherwise a bound, since the exact number for yes/no columns is a largest cut of the graph of the pairs.
    """
    if relation is Relation.ADD_REMOVE:
        shapes = Counter(tuple(levels[name] for name in columns) for columns in column_sets)
        return sum((count * _product(shape) for shape, count in shapes.items()), Fraction(0))
    moved = Fraction(0)
    for partners in _pair_layers([(columns[0], columns[1]) for columns in column_sets if len(columns) == 2]):
        cliques = split_cliques(partners)
        counted = Counter(tuple(sorted(levels[name] for name in clique)) for clique in cliques)
        by_clique = sum((count * _clique_move(found) for found, count in counted.items()), Fraction(0))
        paired = sorted(levels[name] for name, others in partners.items() if others)
        moved += min(by_clique, _clique_move(paired))
    triples = Counter(tuple(sorted(levels[name] for name in columns)) for columns in column_sets if len(columns) == 3)
    # a table of three columns moves most if the one with the fewest levels changes alone
    moved += sum((count * _product(shape[1:]) for shape, count in triples.items() if shape[0] > 1), Fraction(0))
    return 2 * moved


def _length(levels: int) -> Fraction:
    """Return the squared length of a centred indicator."""
    return 1 - Fraction(1, levels)


def _product(shape: Sequence[int]) -> Fraction:
    """Return the squared length of a product of centred indicators."""
    return math.prod(map(_length, shape), start=Fraction(1))


def _clique_move(levels: Sequence[int]) -> Fraction:
    """Return what replacing one record moves all pairs of columns with these ascending levels by, at most, halved.

    Changing a set S of k columns moves them by the sum over S of (all lengths less its own), less k (k − 1)/2. The
    columns with the fewest levels come first, and each adds less than the one before.
    """
    lengths = [_length(count) for count in levels if count > 1]  # a column with one level cannot change
    total = sum(lengths, Fraction(0))
    added = (total - length - changed for changed, length in enumerate(lengths))
    return sum(takewhile(lambda more: more > 0, added), Fraction(0))


def _pair_layers(pairs: Sequence[tuple[str, str]]) -> list[dict[str, int]]:
    """Return the partners of each column as bits, columns with many first; a pair asked for twice has two layers."""
    frequent = Counter(name for pair in pairs for name in pair).most_common()
    bit = {name: 1 << position for position, (name, _) in enumerate(frequent)}
    layers: list[dict[str, int]] = []
    for first, second in pairs:
        partners = next((layer for layer in layers if not layer[first] & bit[second]), None)
        if partners is None:
            partners = dict.fromkeys(bit, 0)
            layers.append(partners)
        partners[first] |= bit[second]
        partners[second] |= bit[first]
    return layers


def split_cliques(partners: Mapping[str, int]) -> list[list[str]]:
    """Split pairs into groups, each being all pairs of some columns, greedily.

    - `partners`: for each column the columns that it is paired with, as bits: bit k for the k-th column of the mapping.
    """
    names, left = list(partners), list(partners.values())
    cliques = []
    for first in range(len(names)):
        while left[first]:
            found, candidates = [first], left[first]
            while candidates:
                found.append((candidates & -candidates).bit_length() - 1)
                candidates &= left[found[-1]]
            inside = sum(1 << column for column in found)
            for column in found:
                left[column] &= ~inside
            cliques.append([names[column] for column in found])
    return cliques

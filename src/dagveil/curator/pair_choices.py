"""Private choices of pairs whose tables hold what a public model does not say (docs/proofs/pair-choices.md)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.curator.gate import Gate
from dagveil.curator.questions import RECORD
from dagveil.data.table import Table
from dagveil.errors import BudgetError
from dagveil.privacy.budget import Relation
from dagveil.statistics.contingency import centre_counts, interactions_squared_sensitivity

Pair = tuple[str, str]
LARGEST_SUM: Final = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """What is publicly expected of the centred tables of some pairs of one shape, in counts; pairs come first.

    - `places`: which pairs, among those that are chosen from.
    - `centre`: the tables without any dependence.
    - `moves`: what each of several models adds to them; a table between nothing and all of it is expected, too.
    - `slack`: distance from that which sampling alone would give, for each pair.
    """

    places: Sequence[int]
    centre: NDArray[np.float64]
    moves: tuple[NDArray[np.float64], ...]
    slack: NDArray[np.float64]


class PairChoices:
    """Choices among pairs, by how far each one's centred table lies from what is expected of it."""

    def __init__(self, table: Table, relation: Relation, pairs: Sequence[Pair], gate: Gate) -> None:
        self._gate = gate
        self._relation = relation
        self._levels = {name: column.n_levels for name, column in table.schema.columns.items()}
        self._lattice = table.lattice
        by_shape: dict[tuple[int, ...], list[tuple[Pair, NDArray[np.int64]]]] = {}
        for pair, counts in zip(pairs, table.counts_many(pairs), strict=True):
            by_shape.setdefault(counts.shape, []).append((pair, counts))
        self._centred = {
            shape: centre_counts(np.stack([counts for _, counts in alike])) for shape, alike in by_shape.items()
        }
        # the shape of each pair's table, and where it stands among those
        self._place = {pair: (shape, i) for shape, alike in by_shape.items() for i, (pair, _) in enumerate(alike)}

    def choose_forest(
        self, pairs: Sequence[Pair], expected: Sequence[Expectation], count: int, share: Fraction, label: str
    ) -> list[Pair]:
        """Choose up to so many of these pairs, none closing a circle with the others, for this share of the budget."""
        if not self._place.keys() >= set(pairs):
            raise BudgetError("a choice among pairs that were not opened; open them first.")
        if sorted(place for one in expected for place in one.places) != list(range(len(pairs))):
            raise BudgetError("something must be expected of every pair, once.")
        epsilon = self._gate.epsilon_of_choices(count, share)
        scores = [0] * len(pairs)
        for one in expected:
            for place, score in zip(one.places, self._score([pairs[place] for place in one.places], one), strict=True):
                scores[place] = score
        places = self._choose(scores, epsilon, count, Forest(pairs).allowed, label, (tuple(pairs), count))
        return [pairs[place] for place in places]

    def _choose(self, scores: Sequence[int], *rest: Any) -> list[int]:
        return self._gate.choose_in_turn(scores, RECORD, *rest)

    def _score(self, pairs: Sequence[Pair], expected: Expectation) -> list[int]:
        """Return **exact** scores in grid steps, rounded down, for mechanisms only."""
        sensitivity = interactions_squared_sensitivity(self._relation, pairs[:1], self._levels)
        if not sensitivity:  # a column with one level
            return [0] * len(pairs)
        shapes, places = zip(*(self._place[pair] for pair in pairs), strict=True)
        if len(set(shapes)) > 1:
            raise BudgetError("something must be expected of pairs of one shape at a time.")
        exact = self._centred[shapes[0]][list(places)]
        return distances_in_records(exact, expected, sensitivity, self._lattice)


def distances_in_records(
    exact: NDArray[np.int64], expected: Expectation, squared_sensitivity: Fraction, lattice: int = 1
) -> list[int]:
    """Return how far centred tables lie from what is expected, in grid steps of their sensitivity, rounded down.

    The least distance to the segments from the centre along each move, less the slack. All in integers: what is public
    is rounded first, and that moves no score of one table against that of a neighbour.
    """
    count, size = len(exact), math.prod(exact.shape[1:])
    centre, *steps = _round((expected.centre, *expected.moves), exact, size * lattice)
    beyond = exact.reshape(count, size) - centre
    own = (beyond * beyond).sum(axis=1).tolist()
    moves = [((beyond * step).sum(axis=1).tolist(), (step * step).sum(axis=1).tolist()) for step in steps]
    numerator = RECORD**2 * squared_sensitivity.denominator
    denominator = (size * lattice) ** 2 * squared_sensitivity.numerator
    slack = np.floor(expected.slack / math.sqrt(squared_sensitivity) * RECORD).tolist()
    scores = []
    for place, whole in enumerate(own):
        best, divisor = whole, 1
        for alongs, lengths in moves:
            along, length = alongs[place], lengths[place]
            if along <= 0:
                continue
            left, by = (whole - 2 * along + length, 1) if along >= length else (whole * length - along**2, length)
            if left * divisor < best * by:
                best, divisor = left, by
        scores.append(math.isqrt(best * numerator // (divisor * denominator)) - int(slack[place]))
    return scores


def _round(expected: Sequence[NDArray[np.float64]], exact: NDArray[np.int64], unit: int) -> list[NDArray[Any]]:
    """Return public tables, flat, in whole units of the exact ones; what cannot be is refused.

    In words where no sum of products can leave one, and otherwise in integers of any size.
    """
    size = math.prod(exact.shape[1:])
    scaled = [table * unit for table in expected]
    if not all(table.shape == exact.shape and np.isfinite(table).all() for table in scaled):
        raise BudgetError("what is expected of a pair must be numbers in the shape of its table.")
    largest = max((float(np.abs(table).max(initial=0.0)) for table in (exact, *scaled)), default=0.0)
    if 16 * size * (largest + 1) ** 2 < LARGEST_SUM:
        return [np.rint(table).astype(np.int64).reshape(len(exact), size) for table in scaled]
    return [
        np.array([round(value) for value in table.reshape(-1).tolist()], dtype=object).reshape(len(exact), size)
        for table in scaled
    ]


class Forest:
    """Tells which of some pairs close no circle."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        place = {name: number for number, name in enumerate(dict.fromkeys(name for pair in pairs for name in pair))}
        self._alone = np.arange(len(place))
        self._ends = (
            np.array([(place[first], place[second]) for first, second in pairs], dtype=np.intp).reshape(-1, 2).T
        )
        self._joined: list[int] = []
        self._part = self._alone  # in which part of the forest of those that are joined each column is

    def allowed(self, chosen: Sequence[int]) -> NDArray[np.intp]:
        """Return the places of the pairs whose columns those at these places do not connect yet."""
        if list(chosen[: len(self._joined)]) != self._joined:
            self._joined, self._part = [], self._alone
        for place in chosen[len(self._joined) :]:
            first, second = self._part[self._ends[:, place]]
            self._part = np.where(self._part == second, first, self._part)
        self._joined = list(chosen)
        first, second = self._part[self._ends]
        return np.flatnonzero(first != second)

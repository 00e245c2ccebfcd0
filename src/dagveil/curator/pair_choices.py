"""Private choices of pairs whose tables hold what a public model does not say (docs/proofs/pair-choices.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagveil.curator.gate import Gate
from dagveil.curator.questions import RECORD
from dagveil.data.table import Table
from dagveil.errors import BudgetError
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import centre_counts, interactions_squared_sensitivity

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """What is publicly expected of a pair's centred table, in counts.

    - `centre`: the table without any dependence.
    - `moves`: what each of several models adds to it; a table anywhere between nothing and all of it is expected, too.
    - `slack`: distance from that which sampling alone would give.
    """

    centre: NDArray[np.float64]
    moves: tuple[NDArray[np.float64], ...]
    slack: float


class PairChoices:
    """Choices among pairs, by how far each one's centred table lies from what is expected of it."""

    def __init__(self, table: Table, relation: Relation, pairs: Sequence[Pair], gate: Gate) -> None:
        self._gate = gate
        self._lattice = table.lattice
        levels = {name: column.n_levels for name, column in table.schema.columns.items()}
        shapes = {pair: (levels[pair[0]], levels[pair[1]]) for pair in pairs}
        # squared sensitivity of a pair's table alone, which its shape decides
        known = {
            shape: interactions_squared_sensitivity(relation, [pair], levels)
            for shape, pair in {shape: pair for pair, shape in shapes.items()}.items()
        }
        self._sensitivity = {pair: known[shape] for pair, shape in shapes.items()}
        self._exact = {
            pair: centre_counts(counts[None])[0] for pair, counts in zip(pairs, table.counts_many(pairs), strict=True)
        }

    def __repr__(self) -> str:
        return f"PairChoices({len(self._exact)} pairs)"

    def choose_forest(self, expected: dict[Pair, Expectation], count: int, share: Fraction, label: str) -> list[Pair]:
        """Choose up to so many of these pairs, none of which closes a circle with the others.

        All of it costs this share of the run's budget.
        """
        pairs = list(expected)
        if not set(pairs) <= set(self._exact):
            raise BudgetError("a choice among pairs that were not opened; open them first.")
        epsilon = self._gate.epsilon_of_choices(count, share)
        scores = [Fraction(self._score(pair, expectation), RECORD) for pair, expectation in expected.items()]

        def allowed(chosen: Sequence[int]) -> list[int]:
            return forest_places(pairs, [pairs[place] for place in chosen])

        places = self._choose(scores, epsilon, count, allowed, label, (tuple(pairs), count))
        return [pairs[place] for place in places]

    def _choose(self, scores: Sequence[Fraction], *rest: Any) -> list[int]:
        return self._gate.choose_in_turn(scores, *rest)

    def _score(self, pair: Pair, expectation: Expectation) -> int:
        """Return the **exact** score in grid steps, rounded down, for mechanisms only."""
        sensitivity = self._sensitivity[pair]
        if not sensitivity:  # a column with one level
            return 0
        return distance_in_records(self._exact[pair], expectation, sensitivity, self._lattice)


def distance_in_records(
    exact: NDArray[np.int64], expected: Expectation, squared_sensitivity: Fraction, lattice: int = 1
) -> int:
    """Return how far a centred table lies from what is expected, in grid steps of its sensitivity, rounded down.

    The least distance to the segments from the centre along each move, less the slack. All in integers: what is public
    is rounded first, and that moves no score of one table against that of a neighbour.
    """
    unit = exact.size * lattice
    beyond = [
        value - public
        for value, public in zip(exact.reshape(-1).tolist(), _round(expected.centre, exact, unit), strict=True)
    ]
    own = sum(map(mul, beyond, beyond))
    best = Fraction(own)
    for move in expected.moves:
        step = _round(move, exact, unit)
        along, length = sum(map(mul, beyond, step)), sum(map(mul, step, step))
        if along <= 0:
            continue
        left = Fraction(own - 2 * along + length) if along >= length else own - Fraction(along**2, length)
        best = min(best, left)
    scaled = best * RECORD**2 / (unit**2 * squared_sensitivity)
    slack = expected.slack / math.sqrt(squared_sensitivity)
    return math.isqrt(math.floor(scaled)) - math.floor(slack * RECORD)


def _round(expected: NDArray[np.float64], exact: NDArray[np.int64], unit: int) -> list[int]:
    """Return a public table in whole units of the exact one, whatever its size; what cannot be is refused."""
    if expected.shape != exact.shape or not np.isfinite(expected).all():
        raise BudgetError("what is expected of a pair must be numbers in the shape of its table.")
    return [round(value) for value in (expected * unit).reshape(-1).tolist()]


def forest_places(pairs: Sequence[Pair], joined: Sequence[Pair]) -> list[int]:
    """Return the places of the pairs whose columns are not connected yet."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := root.get(name, name)) != name:
            root[name] = name = root.get(above, above)
        return name

    for first, second in joined:
        root[find(first)] = find(second)
    group = {name: find(name) for name in {name for pair in pairs for name in pair}}
    return [place for place, (first, second) in enumerate(pairs) if group[first] != group[second]]

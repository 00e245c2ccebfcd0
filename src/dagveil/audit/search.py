"""What a search for the worst neighbours looks for, and what it found."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.relation import Relation

Floats = NDArray[np.float64]


class Effort(enum.Enum):
    """How long an audit may take."""

    QUICK = "quick", 2_000, 200, 200, 200, 200, 80, 80
    FULL = "full", 1_000_000, 100_000, 10_000, 2_000, 200, 2_000, 1_000

    pairs: int  # pairs of neighbours that are tried for each statistic, about
    runs: int  # runs on each of two sharp tables that an attack has, if the method is fast
    slow_runs: int  # the same for a method that is slow
    ordinary_runs: int  # runs on ordinary tables, where one record moves little and an attack proves little
    slow_ordinary_runs: int  # the same for a method that is slow
    trials: int  # trials of membership inference
    slow_trials: int  # the same for a method that is slow

    def __new__(cls, value: str, *numbers: int) -> Self:
        """Make a member that is known by its first entry, and has the others as numbers."""
        member = object.__new__(cls)
        member._value_ = value
        member.pairs, member.runs, member.slow_runs, *rest = numbers
        member.ordinary_runs, member.slow_ordinary_runs, member.trials, member.slow_trials = rest
        return member


class Norm(enum.Enum):
    """How the change of several numbers is summed up."""

    SIZES = "sum of sizes"
    SQUARES = "root of the sum of squares"
    LARGEST = "largest size"

    def measure(self, changes: Floats) -> Floats:
        """Return the norm of each change; the numbers stand along the last axis."""
        sizes = np.abs(changes)
        if self is Norm.SIZES:
            return np.asarray(sizes.sum(axis=-1))
        if self is Norm.SQUARES:
            # scaled, so that squares of large integers keep their digits
            top = np.maximum(sizes.max(axis=-1, initial=0.0), 1e-300)
            return np.asarray(top * np.sqrt(((sizes / top[..., None]) ** 2).sum(axis=-1)))
        return np.asarray(sizes.max(axis=-1, initial=0.0))


@dataclass(frozen=True, slots=True)
class Found:
    """How far the worst neighbours of so many pairs lie apart, and the two in words: made up, never anyone's rows."""

    change: float
    pairs: int
    words: str


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worst neighbours of a statistic, beside what it declares: a ratio above 1 breaks the guarantee."""

    statistic: str
    function: str
    relation: Relation
    change: float
    declared: float
    ratio: float
    pairs: int
    pair: str

    @property
    def holds(self) -> bool:
        """Whether no pair exceeds the declared sensitivity; floats may round by a billionth."""
        return self.ratio <= 1.0 + 1e-9


# searches under a relation with about so many pairs; returns what was found, and the declared sensitivity
Look = Callable[[Relation, int, np.random.Generator], tuple[Found, float]]


@dataclass(frozen=True, slots=True)
class AuditedStatistic:
    """A statistic whose sensitivity, the function as docs/guarantees.md names it, can be searched."""

    name: str
    function: str
    look: Look
    relations: tuple[Relation, ...] = tuple(Relation)


def join_looks(looks: Sequence[Look]) -> Look:
    """Return a search over several settings of a statistic; the worst one, beside what it declares, counts."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        outcomes = [one(relation, max(1, pairs // len(looks)), rng) for one in looks]
        found, declared = max(outcomes, key=lambda outcome: outcome[0].change / outcome[1])
        return Found(found.change, sum(other.pairs for other, _ in outcomes), found.words), declared

    return look

"""Questions of conditional independence in batches, and their answers.

A question is always (x, y, given). Searches ask thousands of them, so they travel as arrays of positions into
`Independence.columns`; this is the one place where positions cross a module border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import EvidenceError


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """A batch of questions with conditioning sets of one size.

    - `x`, `y`: positions of the two columns, shape (questions,).
    - `given`: positions of the conditioning columns, shape (questions, size of the set).
    """

    x: NDArray[np.intp]
    y: NDArray[np.intp]
    given: NDArray[np.intp]

    @classmethod
    def of(cls, questions: list[tuple[int, int, tuple[int, ...]]]) -> Questions:
        """Collect questions whose conditioning sets have one size.

        >>> Questions.of([(0, 1, (2,)), (0, 3, (2,))]).given.shape
        (2, 1)
        """
        size = len(questions[0][2]) if questions else 0
        other = next((len(question[2]) for question in questions if len(question[2]) != size), size)
        if other != size:
            raise EvidenceError(
                f"questions of one batch condition on sets of one size, but there are sets of {size} and of {other} "
                "columns; ask a batch for each size"
            )
        return cls(
            np.array([q[0] for q in questions], dtype=np.intp),
            np.array([q[1] for q in questions], dtype=np.intp),
            np.array([q[2] for q in questions], dtype=np.intp).reshape(len(questions), size),
        )

    @classmethod
    def pairs(cls, columns: int) -> Questions:
        """Return the questions about all pairs of so many columns, without a set."""
        x, y = np.triu_indices(columns, 1)
        return cls(x, y, np.empty((len(x), 0), dtype=np.intp))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def order(self) -> int:
        """Size of the conditioning sets."""
        return int(self.given.shape[1])

    def select(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Questions:
        """Return the questions at these rows of the batch."""
        return Questions(self.x[rows], self.y[rows], self.given[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a test says about each question of a batch: statistic, degrees of freedom, p-value."""

    statistic: NDArray[np.float64]
    freedom: NDArray[np.float64]
    p_value: NDArray[np.float64]


class Independence(Protocol):
    """Something that answers questions of conditional independence for free."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""

    def association(self) -> NDArray[np.float64]:
        """Return the marginal association of every pair, without the bias that noise gives to squares; 0 if unknown.

        It must obey the data processing inequality: if z separates x from y, then x and y are no more associated than
        either is with z.
        """

    def strength(self, questions: Questions) -> NDArray[np.float64]:
        """Return a cheap measure of remaining dependence, for ranking conditioning sets."""

    def test(self, questions: Questions) -> Answers:
        """Test each question."""

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions this evidence can answer at all."""

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered from tables of the whole conditioning set, not from its main effects."""

    def odds(self, questions: Questions) -> NDArray[np.float64]:
        """Return the log Bayes factor of dependence for each question: about 0 where the test could see nothing."""

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return p-values of questions without a set as if nothing depended on anything, shape (draws, questions)."""

    def redraw(self, rng: np.random.Generator) -> Independence:
        """Return evidence with fresh noise and fresh sampling around this one, at no cost."""


class BlockCovariance(Protocol):
    """Estimated covariances of blocks of coordinates, a block for each column."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order of the blocks."""

    def shrunk(self, shares: NDArray[np.float64], /) -> Self:
        """Return a copy whose blocks between columns are multiplied by these shares, shape (d, d)."""

    def redraw(self, rng: np.random.Generator) -> Self:
        """Return a copy with fresh noise and fresh sampling around the estimate."""


Blocks = TypeVar("Blocks", bound=BlockCovariance)


class CovarianceEvidence(Independence, Generic[Blocks]):
    """Independence tests on one covariance that was estimated from what was released."""

    def __init__(self, covariance: Blocks) -> None:
        self.covariance = covariance

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""
        return self.covariance.columns

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions can be answered: one matrix answers all of them."""
        return np.ones(len(questions), dtype=bool)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered jointly: pairs hold the main effects of larger sets only."""
        return np.full(len(questions), questions.order < 2)

    def over(self, covariance: Blocks) -> CovarianceEvidence[Blocks]:
        """Return the same tests on another covariance."""
        return type(self)(covariance)

    def redraw(self, rng: np.random.Generator) -> CovarianceEvidence[Blocks]:
        """Return evidence with fresh noise and fresh sampling around what was estimated."""
        return self.over(self.centre.redraw(rng))

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return p-values of marginal questions as if nothing depended on anything, shape (draws, questions)."""
        alone = self.covariance.shrunk(np.zeros((len(self.columns),) * 2))
        return np.stack([self.over(alone.redraw(rng)).test(questions).p_value for _ in range(draws)])

    @cached_property
    def centre(self) -> Blocks:
        """The covariance without what its noise alone adds to the square of each block on average.

        Noise drawn again around the released blocks would be there twice, and make every pair look dependent. With
        these, fresh noise gives their χ² statistics back on average, if it can.
        """
        pairs = Questions.pairs(len(self.columns))
        pairs = pairs.select(self.answers(pairs))
        found = self.test(pairs)
        excess = np.maximum(found.statistic - found.freedom, 0.0)
        shares = np.ones((len(self.columns),) * 2)
        shares[pairs.x, pairs.y] = np.sqrt(excess / np.maximum(found.statistic, 1e-12))
        shares[pairs.y, pairs.x] = shares[pairs.x, pairs.y]
        return self.covariance.shrunk(shares)

"""Questions of conditional independence in batches, and their answers.

A question is always (x, y, given). Searches ask thousands of them, so they travel as arrays of positions into
`Independence.columns`; this is the one place where positions cross a module border.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
        ...

    def association(self) -> NDArray[np.float64]:
        """Return the marginal association of every pair, without the bias that noise gives to squares; 0 if unknown.

        It must obey the data processing inequality: if z separates x from y, then x and y are no more associated than
        either is with z.
        """
        ...

    def strength(self, questions: Questions) -> NDArray[np.float64]:
        """Return a cheap measure of remaining dependence, for ranking conditioning sets."""
        ...

    def test(self, questions: Questions) -> Answers:
        """Test each question."""
        ...

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions this evidence can answer at all."""
        ...

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered from tables of the whole conditioning set, not from its main effects."""
        ...

    def odds(self, questions: Questions) -> NDArray[np.float64]:
        """Return the log Bayes factor of dependence for each question: about 0 where the test could see nothing."""
        ...

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return p-values of questions without a set as if nothing depended on anything, shape (draws, questions)."""
        ...

    def redraw(self, rng: np.random.Generator) -> Independence:
        """Return evidence with fresh noise and fresh sampling around this one, at no cost."""
        ...

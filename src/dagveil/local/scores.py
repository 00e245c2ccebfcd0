"""What a parent is worth to a node, from reports: a BIC that knows the channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Questions
from dagveil.local.linear_reports import LinearReportEvidence
from dagveil.local.reports import ReportEvidence

Floats = NDArray[np.float64]


class ReportScore:
    """½ (T − penalty) of the tests on reports; T stands in for twice the gain in log-likelihood.

    The penalty belongs to the pair, so graphs with one skeleton differ by statistics alone.

    Parameters
    ----------
    evidence
        Tests on reports.
    """

    def __init__(self, evidence: ReportEvidence | LinearReportEvidence) -> None:
        self.evidence = evidence
        d = len(evidence.columns)
        self.penalties = np.zeros((d, d))
        for x in range(d):
            for y in range(x):
                self.penalties[x, y] = self.penalties[y, x] = evidence.penalty(x, y)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""
        return self.evidence.columns

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        """Return what a node with these parents is worth, parent by parent in the order of positions."""
        ordered = sorted(parents)
        return sum(
            float(self.gains(Questions.of([(node, parent, tuple(ordered[:i]))]))[0]) for i, parent in enumerate(ordered)
        )

    def gains(self, questions: Questions) -> Floats:
        """Return what y adds as a parent of x beside `given`; NaN where a table would be too large."""
        gains = np.full(len(questions), np.nan)
        known = np.flatnonzero(self.evidence.answers(questions))
        if len(known):
            asked = questions.select(known)
            gains[known] = (self.evidence.test(asked).statistic - self.penalties[asked.x, asked.y]) / 2
        return gains

"""Partial correlations of *true* scores, tested on randomised reports: Fisher's question, knowing the channel.

Columns count by public scores of their levels. A report's image h has the true score as its mean, and q the true
squared deviation: covariances of columns come from products of h, variances from q (docs/proofs/channel-tests.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import EvidenceScore
from dagveil.local.channel import Floats
from dagveil.local.record import Undo
from dagveil.local.reports import ReportEvidence, ReportQuestions, Reports

Mean = TypeVar("Mean", float, NDArray[np.float64])

# floor for the correlation matrix of conditioning columns, which noise may leave indefinite
SMALLEST_EIGENVALUE: Final = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class LinearReportEvidence(ReportQuestions):
    """Linear independence of true scores, tested on reports."""

    columns: tuple[str, ...]
    reports: Reports
    undo: Undo  # of the channel
    scores: tuple[Floats, ...]  # public score of each level, for each column
    source: LinearReportEvidence | None = None
    _images: Floats = field(init=False, repr=False)
    _squares: Floats = field(init=False, repr=False)
    _covariance: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        codes, kept = self.reports.codes, self.undo.kept
        weights = self.reports.counts / self.reports.n_records
        d = len(self.columns)
        images, squares = np.empty((len(codes), d)), np.empty((len(codes), d))
        blind, variances = np.empty(d), np.empty(d)
        for j, (inverse, scores) in enumerate(zip(self.undo.inverses, self.scores, strict=True)):
            image = inverse @ scores
            centre = _undo_mean(float(weights @ image[codes[:, j]]), float(image.mean()), kept)
            square = inverse @ (scores - centre) ** 2
            images[:, j] = image[codes[:, j]] - centre
            squares[:, j] = square[codes[:, j]]
            blind[j] = image.mean() - centre
            variances[j] = _undo_mean(float(weights @ squares[:, j]), float(square.mean()), kept)
        products = (images * weights[:, None]).T @ images
        covariance = _undo_mean(products, np.outer(blind, blind), kept)
        floor = 1e-9 + np.sqrt(np.diag(products) / self.reports.n_records)
        np.fill_diagonal(covariance, np.maximum(variances, floor))
        for name, value in (("_images", images), ("_squares", squares), ("_covariance", covariance)):
            object.__setattr__(self, name, value)

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """One matrix answers every question."""
        return np.ones(len(questions), dtype=np.bool_)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Only main effects are seen."""
        return np.zeros(len(questions), dtype=np.bool_)

    def redraw(self, rng: np.random.Generator) -> LinearReportEvidence:
        """Return evidence from reports drawn again."""
        return LinearReportEvidence(self.columns, self.reports.redraw(rng), self.undo, self.scores, self)

    def penalty(self, x: int, y: int) -> float:
        """Return ln(1 + records that would tell as much without a channel): what an edge has to bring, by BIC."""
        products = self._images[:, x] * self._images[:, y]
        weights = self.reports.counts / self.reports.n_records
        variance = float(weights @ products**2) - float(weights @ products) ** 2
        variance /= self.reports.n_records * self.undo.kept**2
        one = float(self._covariance[x, x] * self._covariance[y, y])
        return float(np.log1p(one / variance)) if variance > 0.0 else 0.0

    def _test(self, x: int, y: int, given: tuple[int, ...]) -> tuple[float, float]:
        """Return the squared partial covariance over its variance, that of the channel included."""
        n, kept = self.reports.n_records, self.undo.kept
        weights = self.reports.counts / n
        left, right = self._images[:, x], self._images[:, y]
        influence = left * right
        value = float(self._covariance[x, y])
        if given:
            others = list(given)
            block = self._covariance[np.ix_(others, others)]
            scale = np.sqrt(np.diag(block))
            values, vectors = np.linalg.eigh(block / np.outer(scale, scale))
            inverse = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T / np.outer(scale, scale)
            u, v = inverse @ self._covariance[others, x], inverse @ self._covariance[others, y]
            value += float(u @ block @ v - u @ self._covariance[others, y] - v @ self._covariance[others, x])
            inner = self._images[:, others]
            influence = (left - inner @ u) * (right - inner @ v)
            # the square of an image is not the image of the square
            influence += (self._squares[:, others] - inner**2) @ (u * v)
        mean = float(weights @ influence)
        variance = (float(weights @ influence**2) - mean**2) / (n * kept**2)
        return (value**2 / variance if variance > 0.0 else 0.0), 1.0


def _undo_mean(seen: Mean, blind: Mean, kept: float) -> Mean:
    """Mean over true records from that over reports and that over all records, equally likely."""
    return (seen - (1.0 - kept) * blind) / kept


def report_score(evidence: ReportEvidence | LinearReportEvidence) -> EvidenceScore:
    """Return ½ (T − penalty) of the tests on reports; T stands in for twice the gain in log-likelihood.

    The penalty belongs to the pair, so graphs with one skeleton differ by statistics alone.
    """
    d = len(evidence.columns)
    penalties = np.zeros((d, d))
    for x in range(d):
        for y in range(x):
            penalties[x, y] = penalties[y, x] = evidence.penalty(x, y)
    return EvidenceScore(evidence, penalties, left_behind=0.0)

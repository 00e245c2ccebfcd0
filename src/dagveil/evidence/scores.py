"""What a parent is worth to a node, from released evidence alone: a BIC that knows the noise.

Twice the gain in log-likelihood by an edge x — y beside the parents S is close to the statistic T of the test of
(x, y, given S), with the noise of every table in it. Against it stands a penalty. Let u be the dependence that the test
looks at and C its covariance by sampling and noise. If u has a unit information prior, its evidence is ½ (T − ln det(I
+ n C⁻¹ Σ)), where Σ/n is the part of C that sampling alone would cause. Without noise that is BIC's degrees of freedom
times ln n; noise makes it smaller, since fewer rows could have told as much. The penalty is taken without conditioning,
so it belongs to the pair: graphs with one skeleton differ by statistics alone.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import EvidenceError
from dagveil.evidence.covariance import OneHotCovariance
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence, Questions

Floats = NDArray[np.float64]

LEFT_BEHIND = 0.1
"""Dependence, in units of a correlation, that main effects of several columns may leave behind where their joint
effect would leave none."""

MOMENT_WEIGHT = 4.0
"""Weight of the penalty for moments: rows that were shrunk to a ball join independent columns a little."""


class LocalScore(Protocol):
    """A score of graphs that is a sum over nodes with their parents, and the same for equivalent graphs."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        """Return what a node with these parents is worth, 0 without parents."""

    def gains(self, questions: Questions) -> Floats:
        """Return what y adds as a parent of x beside `given`, by equivalence also what x adds to y; NaN if unknown."""


class EvidenceScore:
    """The noise-aware BIC on tests.

    Its gains are sharp one by one. Added up along different ways to one graph they may differ a little, since each has
    noise of its own; `score` adds them in the order of positions.

    - `penalties`: what an edge has to bring, in units of T, shape (d, d); `noise_aware_score` computes it.
    - `left_behind`: taken off the dependence that questions about several columns show if only their main effects are
      known.
    """

    def __init__(self, evidence: Independence, penalties: Floats, left_behind: float = LEFT_BEHIND) -> None:
        self.evidence = evidence
        self.penalties = penalties
        self.left_behind = left_behind
        self._n_rows = _covariance(evidence).n_rows if left_behind > 0.0 else 1.0

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
        """Return ½ (T − penalty); NaN where nothing was released about the question."""
        gains = np.full(len(questions), np.nan)
        known = np.flatnonzero(self.evidence.answers(questions))
        if len(known):
            asked = questions.select(known)
            statistic = self.evidence.test(asked).statistic
            if asked.order > 1 and self.left_behind > 0:
                seen = np.sqrt(statistic / self._n_rows) - self.left_behind
                cautious = self._n_rows * np.maximum(seen, 0.0) ** 2
                statistic = np.where(self.evidence.joint(asked), statistic, cautious)
            gains[known] = (statistic - self.penalties[asked.x, asked.y]) / 2
        return gains


def noise_aware_score(evidence: Independence, level: float = 1.0) -> EvidenceScore:
    """Return the score that fits the evidence.

    - `level`: no penalty is below what a marginal test at this level asks for: noise makes penalties small, and chance
      is not.
    """
    covariance = _covariance(evidence)
    floor = _quantiles(covariance, level)
    if isinstance(covariance, NoisyCovariance):
        penalties = np.maximum(MOMENT_WEIGHT * moment_penalties(covariance), floor)
        return EvidenceScore(evidence, penalties, left_behind=0.0)
    return EvidenceScore(evidence, np.maximum(table_penalties(PairEvidence(covariance)), floor))


def lenient_score(score: EvidenceScore, level: float) -> EvidenceScore:
    """Return the score that accepts an edge, where that is less, at a level of the test."""
    quantiles = _quantiles(_covariance(score.evidence), level)
    return EvidenceScore(score.evidence, np.minimum(score.penalties, quantiles), score.left_behind)


def _quantiles(covariance: OneHotCovariance | NoisyCovariance, level: float) -> Floats:
    """Return the statistic that reaches a level, for each pair of columns."""
    d = len(covariance.columns)
    size = np.ones(d) if isinstance(covariance, NoisyCovariance) else np.maximum(covariance.size, 1)
    return np.asarray(special.chdtri(np.outer(size, size).astype(np.float64), level))


def table_penalties(evidence: PairEvidence) -> Floats:
    """Return ln det(I + n C⁻¹ Σ) of each pair of columns with levels; whitened, Σ is the identity over n."""
    c = evidence.covariance
    penalties = np.zeros((len(c.columns),) * 2)
    pairs = Questions.pairs(len(c.columns))
    pairs = pairs.select(c.measured[pairs.x, pairs.y])
    for rows, wald in evidence.walds(pairs):
        grown = np.linalg.slogdet(wald.covariance + np.eye(wald.covariance.shape[1]))[1]
        counted = grown - np.linalg.slogdet(wald.covariance)[1]
        penalties[pairs.x[rows], pairs.y[rows]] = penalties[pairs.y[rows], pairs.x[rows]] = counted
    return penalties


def moment_penalties(covariance: NoisyCovariance) -> Floats:
    """Return ln(1 + rows that would tell as much without noise) of each pair of numeric columns."""
    variance = np.diag(covariance.matrix)
    widened = 1.0 / covariance.n_rows + covariance.deviation**2 / np.outer(variance, variance)
    return np.asarray(np.log1p(1.0 / widened))


def _covariance(evidence: Independence) -> OneHotCovariance | NoisyCovariance:
    if isinstance(evidence, PairEvidence | JointEvidence | MomentEvidence):
        return evidence.covariance
    raise EvidenceError(
        f"{type(evidence).__name__} tells no noise scales, which a noise-aware score needs; use released evidence"
    )

"""Zhang, Xia, Ren, Guan and Zhou 2023 as published: PCD."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from scipy import special, stats

from dagveil.curator import Question
from dagveil.errors import EvidenceError, MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Order, Positive
from dagveil.papers import publication
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal
from dagveil.statistics import kernels
from dagveil.statistics.kernels import Floats, factor_gram, median_bandwidth
from dagveil.statistics.residuals import residuals_of_features, ridge_residuals, ridge_residuals_by_features

LOW_RANK: Final = 300  # beyond this rank of the Gram matrix regression solves the whole system
FEW_COLUMNS: Final = 3  # the rank grows with the power of the number of columns: beyond these a factor is not tried
# rows, evenly spread, that the median distance of the linear form is taken from: up to twice as many
MEDIAN_ROWS: Final = 1000
NARROWEST: Final = 200.0  # range over bandwidth of the narrowest kernel of the linear form


class RcitScale(enum.Enum):
    """What λ = 1 and the score of HSIC are measured in: two readings of the text, which says "normal settings"."""

    # λ as in equation 2, so that mλ/2 joins the diagonal of the Gram matrix K, and HSIC as in definition 4
    EQUATIONS = "equations"
    # as kernel programs usually have them: K + λI, and m·HSIC, which the bounds of equations 3 and 4 then meet
    CUSTOMARY = "customary"


@dataclass(frozen=True, slots=True)
class RcitSettings:
    """Settings of RCIT; the defaults are those of the publication.

    - `penalty`: λ of the regressions, and of the bounds.
    - `permutations`: How many permuted scores the score is compared with.
    - `bandwidth`: Of all kernels; None for median distances, which depend on the rows.
    - `scale`: What λ and the score are measured in.
    """

    penalty: float = 1.0
    permutations: int = 100
    bandwidth: float | None = None
    scale: RcitScale = RcitScale.EQUATIONS

    def __post_init__(self) -> None:
        if self.permutations < 1:
            raise EvidenceError(
                f"{self.permutations} permutations leave nothing to compare with; the published are 100"
            )

    def regression_penalty(self, slots: int) -> float:
        """Return λ in the scale of equation 2."""
        return self.penalty if self.scale is RcitScale.EQUATIONS else 2.0 * self.penalty / slots


@dataclass(frozen=True, slots=True, eq=False)
class Rcit:
    """The exact answer: not private."""

    p_value: float  # share of the permuted scores above the score
    score: float  # HSIC of the residuals, tr(K H L H)/(m − 1)², in the scale of the settings
    permuted: Floats  # the same for each permutation
    bandwidth_u: float  # of the kernels of the residuals
    bandwidth_v: float
    n_given: int  # number of conditioning columns; without any, x and y themselves are compared


def exact_rcit(x: Floats, y: Floats, given: Floats | None, settings: RcitSettings, rng: np.random.Generator) -> Rcit:
    """Test independence of x and y given columns, as published.

    Gram matrices are used through factors that are exact to 1e-10, so permutations cost rank² per row.
    """
    columns = _columns(given)
    u, v = (x, y) if columns is None else _residuals(columns, np.column_stack([x, y]), settings).T
    bandwidths = [_bandwidth(values[:, None], settings) for values in (u, v)]
    factors = [factor_gram(values[:, None], width) for values, width in zip((u, v), bandwidths, strict=True)]
    return _compare(factors, bandwidths, columns, settings, rng)


def feature_rcit(x: Floats, y: Floats, given: Floats | None, settings: RcitSettings, rng: np.random.Generator) -> Rcit:
    """Test the same with public Fourier features in place of Gram matrices: linear in the rows.

    Median distances, where no bandwidth is given, are those of about 1000 rows. Kernels narrower than a 200th of the
    range are widened to that: narrower ones need too many features.
    """
    columns = _columns(given)
    u, v = x, y
    if columns is not None:
        width = max(_bandwidth(columns[:: _stride(columns)], settings), 2.0 / NARROWEST)
        penalty = settings.regression_penalty(len(x))
        u, v = ridge_residuals_by_features(columns, np.column_stack([x, y]), penalty, width).T
    bandwidths, features = [], []
    for values in (u, v):
        reach = 2.0 * float(np.abs(values).max(initial=0.0)) or 1.0
        bandwidths.append(max(_bandwidth(values[:: _stride(values), None], settings), reach / NARROWEST))
        features.append(kernels.kernel_features(bandwidths[-1], reach).map(values))
    return _compare(features, bandwidths, columns, settings, rng)


def _residuals(columns: Floats, targets: Floats, settings: RcitSettings) -> Floats:
    """Return exact residuals, by a factor of the Gram matrix where its rank is low."""
    width, penalty = _bandwidth(columns, settings), settings.regression_penalty(len(columns))
    if columns.shape[1] <= FEW_COLUMNS:
        factor = factor_gram(columns, width, most=LOW_RANK)
        if factor.shape[1] < LOW_RANK:
            return residuals_of_features(factor, targets, penalty)
    return ridge_residuals(columns, targets, penalty, width)


def _compare(
    factors: list[Floats], widths: list[float], columns: Floats | None, settings: RcitSettings, rng: np.random.Generator
) -> Rcit:
    """Return the answer for two factors, or features, of Gram matrices."""
    slots = len(factors[0])
    if slots < 2:
        raise EvidenceError(f"{slots} rows are too few to test independence; 2 are needed")
    permutations = kernels.draw_permutations(settings.permutations, slots, rng)
    scores = (kernels.root_hsic(factors[0], factors[1], permutations) * (slots / (slots - 1))) ** 2
    if settings.scale is RcitScale.CUSTOMARY:
        scores = scores * slots
    n_given = 0 if columns is None else columns.shape[1]
    share = float(np.mean(scores[1:] > scores[0]))
    return Rcit(share, float(scores[0]), scores[1:], widths[0], widths[1], n_given)


def _columns(given: Floats | None) -> Floats | None:
    """Return the conditioning columns as a matrix, or None if there are none."""
    if given is None or given.size == 0:
        return None
    return given[:, None] if given.ndim == 1 else given


def _bandwidth(values: Floats, settings: RcitSettings) -> float:
    return median_bandwidth(values) if settings.bandwidth is None else settings.bandwidth


def _stride(values: Floats) -> int:
    return max(1, len(values) // MEDIAN_ROWS)


def published_hsic_bound(slots: int) -> float:
    """Return (12m − 11)/(m − 1)², equation (4), for HSIC of columns. False if bandwidths depend on the rows."""
    return (12.0 * slots - 11.0) / (slots - 1.0) ** 2


def published_residual_hsic_bound(slots: int, penalty: float, bandwidth_u: float, bandwidth_v: float) -> float:
    """Return equation (3), published for HSIC of residuals. False: it forgets the changed record itself."""
    exponent = -128.0 / (slots**2 * penalty**3)
    lost = -math.expm1(exponent / bandwidth_u**2) - math.expm1(exponent / bandwidth_v**2)
    return 2.0 * (slots**2 - slots) * lost / (slots - 1.0) ** 2


def published_residual_bound(slots: int, penalty: float) -> float:
    """Return 8/(mλ^1.5), published for the residual of every record. False for the changed record itself."""
    return 8.0 / (slots * penalty * math.sqrt(penalty))


def published_p_value_range(rcit: Rcit, slots: int, settings: RcitSettings) -> tuple[float, float]:
    """Return A and B of theorem 4: the stated range of a neighbour's p-value. False, as its bounds are."""
    if rcit.n_given:
        step = published_residual_hsic_bound(slots, settings.penalty, rcit.bandwidth_u, rcit.bandwidth_v)
    else:
        step = published_hsic_bound(slots)
    lowest, highest = (float(np.mean(rcit.score < rcit.permuted + moved)) for moved in (-2.0 * step, 2.0 * step))
    return lowest, highest


PCD_FLAW = (
    "answers that one record is said not to turn are given without noise, and the noise of the others is scaled to the "
    "rows, by a bound that forgets the changed record's own residual"
)


class RcitForm(enum.Enum):
    """How the published test is computed."""

    EXACT = "exact"  # by Gram matrices, as published
    FEATURES = "features"  # by Fourier features: linear in the rows
    KENDALL = "kendall"  # the publication's other test in its place: conditional Kendall's τ with Priv-PC's sensitivity


class PcdPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    - `level`: α.
    - `permutations`: Of HSIC.
    - `penalty`: λ of ridge regression.
    - `largest_order`: Size of the largest conditioning set; None goes on while there are neighbours.
    - `statistic`: exact, or features for speed; kendall for conditional Kendall's τ in place of RCIT.
    - `scale`: equations: λ and HSIC in the scale of equation 2 and definition 4. customary: K + λI and m·HSIC.
    - `question_epsilon`: ε of every noisy answer. None takes the run's epsilon.
    """

    level: Level = 0.05
    permutations: Count = 100
    penalty: Positive = 1.0
    largest_order: Order | None = None
    statistic: RcitForm = RcitForm.EXACT
    scale: RcitScale = RcitScale.EQUATIONS
    question_epsilon: Positive | None = None


class PublishedDecision:
    """Lines 3-17 of Algorithm 1 as printed, for one question at a time, asked in any of the forms.

    - `rows`: exact columns
    - `epsilon`: of each noisy answer
    """

    def __init__(
        self, rows: Mapping[str, Floats], epsilon: float, settings: PcdPublished, rng: np.random.Generator
    ) -> None:
        self._rows, self._epsilon, self._rng = rows, epsilon, rng
        self._level, self._form = settings.level, settings.statistic
        self._constants = RcitSettings(settings.penalty, settings.permutations, scale=settings.scale)
        self.noisy_answers = 0

    def is_independent(self, question: Question) -> bool:
        """Decide a question; most answers get no noise at all."""
        p_value, lowest, highest = self._ask(question)
        if p_value > self._level:  # lines 4-11
            if lowest > self._level:
                return True
            sensitivity = p_value - lowest
        else:  # lines 12-17
            if highest < self._level:
                return False
            sensitivity = highest - p_value
        self.noisy_answers += 1
        noisy = p_value + self._rng.laplace(0.0, 4.0 * sensitivity / self._epsilon)
        return bool(noisy >= self._level + self._rng.laplace(0.0, 2.0 * sensitivity / self._epsilon))

    def _ask(self, question: Question) -> tuple[float, float, float]:
        """Return r(ij | Z), and how small and how large a neighbour's is said to be."""
        x, y = (self._rows[name] for name in question[:2])
        given = np.stack([self._rows[name] for name in question[2]], axis=1) if question[2] else None
        if self._form is RcitForm.KENDALL:
            p_value = kendall_p_value(x, y, given)
            if p_value is None:
                return 0.0, 0.0, 0.0
            step = publication.published_p_value_sensitivity(len(x))
            return p_value, p_value - step, p_value + step
        test = exact_rcit if self._form is RcitForm.EXACT else feature_rcit
        rcit = test(x, y, given, self._constants, self._rng)
        return rcit.p_value, *published_p_value_range(rcit, len(x), self._constants)


def kendall_p_value(x: Floats, y: Floats, given: Floats | None) -> float | None:
    """Return the one-sided p-value of conditional Kendall's τ as Priv-PC has it: each value of Z is a block.

    Where all values of Z differ, as those of numbers do, no block is left, and there is none: the publication "directly
    treats all cases as being not conditional independent" then.
    """
    blocks = np.zeros(len(x), dtype=np.intp)
    columns = _columns(given)
    for column in () if columns is None else columns.T:
        values, codes = np.unique(column, return_inverse=True)
        blocks = np.unique(blocks * len(values) + codes, return_inverse=True)[1]
        if np.bincount(blocks).max() <= 2:
            return None
    total = weights = 0.0
    for block in np.flatnonzero(np.bincount(blocks) > 2):
        left, right = x[blocks == block], y[blocks == block]
        tied = [(counts := np.unique(side, return_counts=True)[1]) @ (counts - 1) / 2.0 for side in (left, right)]
        m = len(left)
        pairs = m * (m - 1) / 2.0
        if max(tied) < pairs:  # a constant column is left out
            correlation = stats.kendalltau(left, right).statistic * math.sqrt(math.prod(1.0 - t / pairs for t in tied))
            weight = 9.0 * m * (m - 1) / (4.0 * m + 10.0)
            total, weights = total + weight * correlation, weights + weight
    return float(special.ndtr(-abs(total) / math.sqrt(weights))) if weights else None


def publish_pcd(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: PcdPublished, progress: Progress
) -> Asked:
    """Run Algorithm 1 as printed."""
    if access.n_rows < 2:
        raise MethodError("the published test needs at least 2 rows; give more rows")
    columns = tuple(access.schema.columns)
    rows = dict(zip(columns, access.exact_rows(columns).T, strict=True))
    epsilon = settings.question_epsilon or float(budget.epsilon)
    decision = PublishedDecision(rows, epsilon, settings, access.rng)
    sweep = publication.prune_published(
        access, decision.is_independent, knowledge, progress, settings.largest_order, Traversal.ONCE
    )
    return publication.describe_published(access.schema, sweep, knowledge, (decision.noisy_answers * epsilon, 0.0))


PUBLICATIONS = {
    "pcd": Publication(
        {Calibration.PAPER: Reading(PcdPublished, publish_pcd, PCD_FLAW)},
        "no copy of the program that its paper names was found",
    ),
}

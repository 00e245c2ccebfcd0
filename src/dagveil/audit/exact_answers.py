"""From an answer without noise to the exact numbers behind it, in the unit in which noise meets them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.recorded_noise import NoiseLaw
from dagveil.audit.recording import Exact, Recording, Rule
from dagveil.curator import Answer, Question
from dagveil.curator.kernel_questions import COLUMN_REACH, RESIDUAL_REACH, HsicTest, NoisyDifference, Ridge
from dagveil.curator.questions import RECORD
from dagveil.curator.residual_sums import NoisySums
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.release import NoisyFeatureMoments, NoisyMoments, Release
from dagveil.statistics.hsic import root_hsic_sensitivity
from dagveil.statistics.kernels import kernel_features
from dagveil.statistics.reconciled import GRID
from dagveil.statistics.residuals import residual_sensitivity


def read_releases(releases: Sequence[Release], recording: Recording) -> Exact:
    """Read released integers, and the noise that was drawn for them; those with no noise claim to be public."""
    public = tuple(float(value) for release in releases if release.variance == 0 for value in release.values)
    releases = [release for release in releases if release.variance != 0]
    values = tuple(float(value) for release in releases for value in release.values)
    draws = recording.noise.draws
    if any(draw.law is NoiseLaw.LAPLACE for draw in draws):
        enough = sum(draw.size for draw in draws) >= len(values)
        scale = float(min(draw.width for draw in draws)) if enough else 0.0
        return Exact(Rule.SCALED_SIZES, values, (scale,) * len(values))
    told = [width for release in releases for width in _variances(release)]
    return Exact(Rule.WEIGHTED_SQUARES, values, _see_through(told, recording), public)


def _see_through(told: Sequence[float], recording: Recording) -> tuple[float, ...]:
    """Return the variances that an answer tells of, made smaller if smaller ones were drawn; 0 if a number got none."""
    draws = [draw for draw in recording.noise.draws if draw.law is NoiseLaw.GAUSSIAN]
    if not told or sum(draw.size for draw in draws) < len(told):
        return (0.0,) * len(told)
    part = min(1.0, float(min(draw.width for draw in draws)) / min(told))
    # told variances went through floats
    return tuple(width * (1.0 if part > 1.0 - 1e-9 else part) for width in told)


def _variances(release: Release) -> list[float]:
    if not isinstance(release, NoisyMoments | NoisyFeatureMoments):
        return [float(release.variance)] * len(release.values)
    # the upper triangle of a square of this size
    size = (math.isqrt(8 * len(release.values) + 1) - 1) // 2
    rows, columns = np.triu_indices(size)
    off, on = float(release.variance), float(release.diagonal_variance)
    return [on if row == column else off for row, column in zip(rows, columns, strict=True)]


def scales_in_records(recording: Recording) -> list[float]:
    """Return the scales of the Laplace noise of this exchange, in records."""
    return [float(draw.width) / RECORD for draw in recording.noise.draws if draw.law is NoiseLaw.LAPLACE]


def read_answer(answer: Answer, drawn: Sequence[float]) -> Exact:
    """Read a score with Laplace noise, in records.

    Draws come in blocks, so the answer tells the scale. If nothing of that scale was drawn so far, the smallest that
    was drawn counts.
    """
    told = answer.deviation / math.sqrt(2.0)
    scale = told if any(math.isclose(told, width, rel_tol=1e-9) for width in drawn) else min(drawn, default=0.0)
    return Exact(Rule.SCALED_SIZES, (answer.score,), (scale,))


def read_sampled(answer: Answer, recording: Recording) -> Exact:
    """Read the score of a sub-sample, in grid steps."""
    return Exact(Rule.SAMPLED, (answer.score * RECORD,), _see_through([(answer.deviation * RECORD) ** 2], recording))


def read_median(answer: float, recording: Recording) -> Exact:
    """Read a median p-value, in steps of its grid; the scale of its noise is a secret that a recording sees."""
    return Exact(Rule.SMOOTH, (answer * GRID,), tuple(float(draw.width) for draw in recording.noise.draws))


def read_notes(answer: int, recording: Recording) -> Exact:
    """Read the scores that a choice was made from, in records."""
    return Exact(Rule.RECORDS, recording.notes)


def read_gradient(answer: tuple[NDArray[np.float64], float], bits: int, recording: Recording) -> Exact:
    """Read a sum of gradients, in fixed point."""
    total, deviation = answer
    values = tuple((total * 4.0**bits).reshape(-1).tolist())
    return Exact(Rule.WEIGHTED_SQUARES, values, _see_through([(deviation * 4.0**bits) ** 2] * len(values), recording))


def read_curvature(answer: tuple[float, float], bits: int, recording: Recording) -> Exact:
    """Read a sum of curvatures, in fixed point."""
    total, deviation = answer
    return Exact(Rule.WEIGHTED_SQUARES, (total * 2.0**bits,), _see_through([(deviation * 2.0**bits) ** 2], recording))


def read_difference(answer: NoisyDifference, recording: Recording) -> Exact:
    """Read a difference of scores, in its own unit; the scale that it tells of counts as far as it was drawn."""
    (wanted,) = _grid_scales(recording, (1,))
    part = min(1.0, min(scales_in_records(recording), default=0.0) * RECORD / wanted)
    return Exact(Rule.SCALED_SIZES, (answer.value,), (answer.scale * part,))


def read_sums(answer: NoisySums, recording: Recording) -> Exact:
    """Read sums of residuals and products, in grid steps of each."""
    values = (answer.products, answer.squares, answer.first, answer.second)
    variances = (
        answer.variance_products,
        answer.variance_squares,
        answer.variance_first,
        answer.variance_second,
    )
    # one charge each for products and squares, one for both sums of residuals
    wanted = _grid_scales(recording, (1, 1, 2))
    steps = tuple(
        value / math.sqrt(variance / float(laplace_variance(Fraction(scale))))
        for value, variance, scale in zip(values, variances, wanted, strict=True)
    )
    drawn = [float(draw.width) for draw in recording.noise.draws]
    return Exact(Rule.SCALED_SIZES, steps, tuple(drawn) if len(drawn) == len(steps) else (0.0,) * len(steps))


def _grid_scales(recording: Recording, shares: Sequence[int]) -> list[float]:
    """Return the scales, in grid steps, that the charges of this exchange ask for: a record each."""
    epsilons = [event.epsilon for event in recording.events if isinstance(event, DiscreteLaplace)]
    if len(epsilons) != len(shares):
        return [float(RECORD)] * sum(shares)  # nobody paid for this, which is a finding of its own
    return [
        float(recording.noise.representable_scale(RECORD * share / epsilon))
        for epsilon, share in zip(epsilons, shares, strict=True)
        for _ in range(share)
    ]


def read_permuted(recording: Recording, slots: int, test: HsicTest, question: Question) -> Exact:
    """Read the statistic and the permuted ones, in records: in units of what one slot moves a permuted one by."""
    kernel = kernel_features(test.bandwidth, RESIDUAL_REACH if question[2] else COLUMN_REACH)
    ridge = test.regression if question[2] and isinstance(test.regression, Ridge) else None
    residual = 0.0 if ridge is None else residual_sensitivity(slots, ridge.penalty)
    unit = root_hsic_sensitivity(slots, kernel, kernel, residual, residual)
    scale = min(scales_in_records(recording), default=0.0)
    return Exact(Rule.PERMUTED, tuple(value / unit for value in recording.notes), (scale,))

"""The exponential mechanism, sampled exactly (docs/proofs/exponential.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from dagveil.errors import BudgetError
from dagveil.privacy.events import Event, ExponentialChoice
from dagveil.privacy.mechanisms.lazy_choice import choose_by_loss
from dagveil.privacy.noise.source import NoiseSource


def choose(
    scores_in_units_of_sensitivity: Sequence[Fraction | int],
    epsilon: Fraction,
    noise: NoiseSource,
    charge: Callable[[Event], None],
    label: str = "choice",
) -> int:
    """Choose a position with probability in proportion to exp(epsilon · score / 2).

    Every score is divided by its sensitivity first: one record moves it by at most 1. Scores are exact numbers; a float
    that was rounded may move by more than its sensitivity, so round it to a public grid and count that in.

    Examples
    --------
    >>> from dagveil.privacy.noise.kind import NoiseKind, noise_source
    >>> paid = []
    >>> choose([0, 5000], Fraction(1), noise_source(NoiseKind.EXACT), paid.append), paid[0].epsilon
    (1, Fraction(1, 1))
    """
    scores = [Fraction(score) for score in scores_in_units_of_sensitivity]
    if not scores:
        raise BudgetError("there is nothing to choose from; give at least one score.")
    charge(ExponentialChoice(label, epsilon))
    best = max(scores)
    return choose_by_loss([Fraction(epsilon) * (best - score) / 2 for score in scores], noise)

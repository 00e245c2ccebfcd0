"""Privacy amplification by sub-sampling (docs/proofs/subsampling.md).

It holds for one *fresh* sub-sample per mechanism. A sub-sample that is used again is one mechanism with its composed
epsilon, amplified once.
"""

import enum
import math
from fractions import Fraction

from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget, Relation


class Sampling(enum.Enum):
    """How the sub-sample is drawn."""

    WITHOUT_REPLACEMENT = "without replacement"
    POISSON = "poisson"


_NEEDED = {Sampling.WITHOUT_REPLACEMENT: Relation.REPLACE_ONE, Sampling.POISSON: Relation.ADD_REMOVE}
SAMPLING_FOR = {relation: sampling for sampling, relation in _NEEDED.items()}


def amplify(budget: Budget, rate: Fraction, sampling: Sampling, relation: Relation) -> Budget:
    """Budget on the whole table of a mechanism that has this budget on the sub-sample, rounded up."""
    needed = _NEEDED[sampling]
    if relation is not needed:
        raise BudgetError(
            f"sampling {sampling.value} amplifies under {needed.value} neighbours only, not under {relation.value}; "
            "choose the other sampling or the other relation."
        )
    if not 0 < rate <= 1:
        raise BudgetError(f"a sampling rate must be above 0 and at most 1, not {float(rate):.3g}.")
    if rate == 1:
        return budget
    epsilon, q = float(budget.epsilon), float(rate)
    if epsilon < 1:
        amplified = math.log1p(q * math.expm1(epsilon))
    else:  # the same, without overflow
        amplified = epsilon + math.log(q + (1 - q) * math.exp(-epsilon))
    # 1e-12 is far more than the error of these functions; amplification never makes epsilon larger
    above = Fraction(amplified) * (1 + Fraction(1, 10**12)) + Fraction(1, 10**15)
    return Budget(min(budget.epsilon, above), rate * budget.delta)


def strengthen(epsilon: Fraction, rate: Fraction, sampling: Sampling, relation: Relation) -> Fraction:
    """Epsilon that a mechanism may have on the sub-sample so that the whole table pays at most `epsilon`."""
    outer, q = float(epsilon), float(rate)
    if outer < 1:
        inner = Fraction(math.log1p(math.expm1(outer) / q))
    else:  # the same, without overflow
        inner = Fraction(outer + math.log((1 - math.exp(-outer)) / q + math.exp(-outer)))
    # rounding: step down until the amplified price fits; the first step suffices but for tiny epsilons
    step = Fraction(1, 10**9)
    while amplify(Budget(inner, Fraction(0)), rate, sampling, relation).epsilon > epsilon:
        inner *= 1 - step
        step *= 2
    return inner

"""How much integer Gaussian noise a share of the budget asks for."""

import math
from fractions import Fraction
from typing import Final

from dagveil.errors import BudgetError
from dagveil.privacy.events import ROUNDING_VARIANCE, SMALLEST_GAUSSIAN_VARIANCE, Filter, GaussianFilter, ZcdpFilter
from dagveil.privacy.renyi import RenyiFilter

# lattices are chosen so fine that integer noise has at least this deviation: rounding it up to an integer then costs
# less than 0.05 %, and what Gaussian accounting gives away (docs/proofs/discrete-gaussian.md) next to nothing
FINE_DEVIATION: Final = 2048


def deviation_for(accounting: Filter, squared_sensitivity: Fraction, amount: Fraction) -> int:
    """Return the smallest integer deviation whose charge is at most `amount`, in the filter's unit."""
    if amount <= 0:
        raise BudgetError("a share of the budget must be above 0")
    if isinstance(accounting, GaussianFilter):
        variance = max(squared_sensitivity / amount + ROUNDING_VARIANCE, Fraction(SMALLEST_GAUSSIAN_VARIANCE))
    elif isinstance(accounting, ZcdpFilter):
        variance = squared_sensitivity / (2 * amount)
    elif isinstance(accounting, RenyiFilter):
        variance = accounting.order * squared_sensitivity / (2 * amount)
    else:
        raise BudgetError(f"{accounting.name} cannot pay for Gaussian noise; give a delta above 0")
    return math.isqrt(math.ceil(variance) - 1) + 1


def lattice_for(accounting: Filter, squared_sensitivity: Fraction, amount: Fraction) -> int:
    """Return the power of two by which to multiply an integer statistic so that its noise is fine enough."""
    coarse = deviation_for(accounting, squared_sensitivity * FINE_DEVIATION**2, amount)
    # a lattice g multiplies the deviation by g: coarse / FINE_DEVIATION is the deviation on the lattice 1
    lattice = 1
    while lattice < FINE_DEVIATION and coarse * lattice < FINE_DEVIATION**2:
        lattice *= 2
    return lattice

"""Noise from OpenDP's vetted samplers."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.noise import source
from dagveil.privacy.noise.exact import ExactNoise, SystemBits


class OpendpNoise(source.NoiseSource):
    """Noise from OpenDP at representable scales only, which it samples exactly; the rest from the system."""

    name = "OpenDP"
    private = True

    def __init__(self) -> None:
        self._exact = ExactNoise(SystemBits())
        self.was_helped = False
        """Whether choices, orders or sub-samples were drawn, which OpenDP does not offer."""

    @property
    def helper(self) -> str:
        """Name of the sampler that draws those."""
        return self._exact.name

    def discrete_gaussian(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw integers with probability in proportion to exp(−y²/(2 variance))."""
        if source.representable_variance(variance) != variance:
            raise BudgetError("OpenDP cannot realise this variance exactly; ask representable_variance for one it can.")
        root = Fraction(math.isqrt(variance.numerator), math.isqrt(variance.denominator))
        return _sample(_gaussian(float(root)), size)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw integers with probability in proportion to exp(−|y|/scale)."""
        if source.representable_scale(scale) != scale:
            raise BudgetError("OpenDP cannot realise this scale exactly; ask representable_scale for one it can.")
        return _sample(_laplace(float(scale)), size)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw integers from 0 to bound − 1, all equally likely."""
        self.was_helped = True
        return self._exact.uniform_below(bound, size)

    def bernoulli(self, p: Fraction, size: int) -> NDArray[np.bool_]:
        """Draw true with probability p."""
        self.was_helped = True
        return self._exact.bernoulli(p, size)


def _sample(measurement: Any, size: int) -> NDArray[np.int64]:
    return np.array(measurement([0] * size), dtype=np.int64)


@lru_cache(maxsize=64)
def _gaussian(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64"), scale=scale)


@lru_cache(maxsize=64)
def _laplace(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=1)
def _opendp() -> Any:
    import opendp.prelude as dp  # takes most of a second: only when noise is drawn

    dp.enable_features("contrib")
    return dp

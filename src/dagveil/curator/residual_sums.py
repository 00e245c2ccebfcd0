"""Noisy sums of residuals and of their products, and what they say about a covariance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoisySums:
    """Noisy sums over slots of clipped residuals u and v, with the variances of their noise.

    Attributes
    ----------
    products, squares
        Σ uv and Σ (uv)².
    first, second
        Σ u and Σ v: clipping skewed residuals moves their means away from 0.
    """

    products: float
    squares: float
    first: float
    second: float
    variance_products: float
    variance_squares: float
    variance_first: float
    variance_second: float

    def centre(self, slots: int, spread: float) -> tuple[float, float]:
        """Return Σ uv − m ū v̄ with estimated means, and the variance that noise gives it.

        Parameters
        ----------
        slots
            m.
        spread
            How far the mean of clipped residuals is from 0, usually; noisy means are shrunk accordingly.
        """
        (u, spread_u), (v, spread_v) = (
            _shrink(total / slots, variance / slots**2, spread**2)
            for total, variance in ((self.first, self.variance_first), (self.second, self.variance_second))
        )
        means = u**2 * spread_v + v**2 * spread_u + spread_u * spread_v
        return self.products - slots * u * v, self.variance_products + slots**2 * means


def _shrink(mean: float, variance: float, prior: float) -> tuple[float, float]:
    """Return mean and variance of what is behind a noisy mean, itself around 0 with the prior variance."""
    share = prior / (prior + variance)
    return share * mean, share * variance

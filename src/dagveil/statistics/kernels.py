"""Gaussian kernels: exact Gram matrices, factors of low rank, and finite features with a certified diameter.

k(u, u′) = exp(−‖u − u′‖²/(2s²)) with the bandwidth s. Features of one-dimensional values are cosines and sines at
equally spaced frequencies: the trapezoid rule for k(t) = E cos(ωt/s), ω normal, whose error falls faster than any power
and is known in advance (docs/proofs/hsic.md).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import spatial
from scipy.special import ndtr

from dagveil.errors import EvidenceError

Floats = NDArray[np.float64]

ALIAS_DISTANCE: Final = 5.6
"""Bandwidths between the reach and the next copy of the kernel, which equally spaced frequencies repeat."""

LARGEST_FREQUENCY: Final = 5.3
"""Frequencies go up to this, in standard deviations of the normal law that the kernel transforms to."""

MOST_FREQUENCIES: Final = 2000  # a reach of more than about 2300 bandwidths is refused
FACTOR_TOLERANCE: Final = 1e-10
"""A factor of a Gram matrix leaves out no more than this of any diagonal entry, which is 1."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelFeatures:
    """A public map φ of a number to a vector of length 1, with φ(u)·φ(u′) = k(u, u′) up to 1e-6."""

    bandwidth: float  # s of the kernel
    reach: float  # the largest |u − u′|; values are clipped to ±reach/2, so that it holds for all that come
    frequencies: Floats  # φ(u) has the entries √w cos(fu) and, for f > 0, √w sin(fu); the weights add up to 1
    weights: Floats
    diameter: float  # no two images are further apart: certified

    @property
    def slope(self) -> float:
        """Return L with ‖φ(u) − φ(u′)‖ ≤ L |u − u′|: 1/bandwidth, up to the error of the features."""
        return math.sqrt(float(self.weights @ self.frequencies**2)) * (1.0 + 1e-12)

    def map(self, values: Floats) -> Floats:
        """Return φ of each value, one row each; what is not a number counts as 0."""
        half = self.reach / 2.0
        angles = np.outer(np.clip(np.nan_to_num(values, nan=0.0), -half, half), self.frequencies)
        lengths = np.sqrt(self.weights)
        count = len(self.frequencies)
        features = np.empty((len(angles), 2 * count - 1))
        np.multiply(np.cos(angles), lengths, out=features[:, :count])
        np.multiply(np.sin(angles[:, 1:]), lengths[1:], out=features[:, count:])
        return features


def kernel_features(bandwidth: float, reach: float) -> KernelFeatures:
    """Return features of the Gaussian kernel with an error below 1e-6 for all |u − u′| ≤ reach."""
    check_bandwidth(bandwidth)
    if not (0.0 < reach < math.inf):
        raise EvidenceError(f"reach is {reach}, but must be positive: it is the largest distance of two values")
    widest = reach / bandwidth
    period = widest + ALIAS_DISTANCE
    step = 2.0 * math.pi / period
    count = math.ceil(LARGEST_FREQUENCY / step)
    if count > MOST_FREQUENCIES:
        raise EvidenceError(
            f"a bandwidth of {bandwidth} is too small for values that differ by up to {reach}: {count} frequencies are "
            f"needed, {MOST_FREQUENCIES} are allowed; choose a bandwidth of at least {reach / 2000:.3g}"
        )
    multiples = step * np.arange(count + 1, dtype=np.float64)
    weights = np.exp(-0.5 * multiples**2)
    weights[1:] *= 2.0
    weights /= weights.sum()
    # copies of the kernel that the sum adds, and the frequencies that it leaves out; twice, for dividing by the total
    copies = 2.001 * math.exp(-0.5 * ALIAS_DISTANCE**2)
    left_out = 2.0 * float(ndtr(-count * step))
    error = 2.0 * (copies + left_out)
    diameter = math.sqrt(2.0 * (1.0 - math.exp(-0.5 * widest**2) + error))
    return KernelFeatures(bandwidth, reach, multiples / bandwidth, weights, diameter)


def median_bandwidth(values: Floats) -> float:
    """Return the median distance of two rows, the published bandwidth: it depends on the rows, so never for sound runs.

    Where it is 0 the median of the distances above 0 stands for it, and 1 if all rows are equal.
    """
    if values.shape[1] == 1:
        return _median_of_numbers(np.sort(values[:, 0]))
    distances = spatial.distance.pdist(values)
    median = float(np.median(distances)) if len(distances) else 0.0
    if median == 0.0:
        apart = distances[distances > 0.0]
        median = float(np.median(apart)) if len(apart) else 1.0
    return median


def gaussian_gram(values: Floats, bandwidth: float) -> Floats:
    """Return the Gram matrix exp(−‖u − u′‖²/(2s²)) of the rows."""
    check_bandwidth(bandwidth)
    squares = spatial.distance.pdist(values, "sqeuclidean")
    squares *= -0.5 / bandwidth**2
    gram: Floats = spatial.distance.squareform(np.exp(squares, out=squares))
    np.fill_diagonal(gram, 1.0)
    return gram


def factor_gram(values: Floats, bandwidth: float, most: int | None = None) -> Floats:
    """Return F with F Fᵀ equal to the Gram matrix up to 1e-10 in each entry, unless it has `most` columns already.

    Pivoted Cholesky: each step takes the row that is represented worst. Which rows these are depends on all rows, so
    what is computed from a factor has no proved sensitivity; it is for exact tests.
    """
    check_bandwidth(bandwidth)
    n_rows = len(values)
    limit = n_rows if most is None else min(most, n_rows)
    points = np.ascontiguousarray(values.T / bandwidth)
    left = np.ones(n_rows)
    rows = np.empty((min(limit, 32), n_rows))
    for rank in range(limit):
        pivot = int(np.argmax(left))
        if left[pivot] <= FACTOR_TOLERANCE:
            limit = rank
            break
        if rank == len(rows):
            rows = np.vstack([rows, np.empty((min(rank, limit - rank), n_rows))])
        row = rows[rank]
        difference = points - points[:, pivot, None]
        np.exp(-0.5 * np.einsum("ki,ki->i", difference, difference), out=row)
        row -= rows[:rank, pivot] @ rows[:rank]
        row /= math.sqrt(left[pivot])
        left -= row**2
        left[pivot] = 0.0
    return np.ascontiguousarray(rows[:limit].T)


def check_bandwidth(bandwidth: float) -> None:
    """Refuse a bandwidth that is not a positive number."""
    if not (0.0 < bandwidth < math.inf):
        raise EvidenceError(f"the bandwidth is {bandwidth}, but must be positive; 0.5 fits columns scaled to ±1")


def _median_of_numbers(ordered: Floats) -> float:
    """Return the median distance of sorted numbers by bisection, without forming the pairs."""
    n_rows = len(ordered)
    pairs = n_rows * (n_rows - 1) // 2
    if pairs == 0 or ordered[-1] == ordered[0]:
        return 1.0
    equal = _count_within(ordered, 0.0)
    skipped = equal if equal > pairs // 2 else 0
    lower = skipped + (pairs - skipped + 1) // 2
    upper = skipped + (pairs - skipped) // 2 + 1
    low = _select_distance(ordered, lower)
    return low if upper == lower else 0.5 * (low + _select_distance(ordered, upper))


def _select_distance(ordered: Floats, position: int) -> float:
    """Return the distance at this position, counted from 1, up to 1e-11 of the range."""
    low, high = 0.0, float(ordered[-1] - ordered[0])
    tolerance = 1e-11 * high
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        if _count_within(ordered, middle) >= position:
            high = middle
        else:
            low = middle
    return high


def _count_within(ordered: Floats, distance: float) -> int:
    """Return the number of pairs that are no further apart."""
    ends = np.searchsorted(ordered, ordered + distance, side="right")
    return int(ends.sum()) - len(ordered) * (len(ordered) + 1) // 2


BLOCK: Final = 1 << 17  # numbers that a block of permuted features may hold: 1 MiB, which stays in the cache


def root_hsic(features_u: Floats, features_v: Floats, permutations: NDArray[np.intp]) -> Floats:
    """Return ‖cross-covariance of the features‖ for the pairs as they are, then for each permutation of u, one per row.

    Slot i of v meets slot permutation[i] of u.
    """
    slots = len(features_u)
    u = np.ascontiguousarray(features_u - features_u.mean(axis=0))
    v = np.ascontiguousarray(features_v - features_v.mean(axis=0))
    norms = np.empty(1 + len(permutations))
    norms[0] = np.linalg.norm(u.T @ v)
    together = max(1, BLOCK // max(1, u.size))
    for start in range(0, len(permutations), together):
        block = permutations[start : start + together]
        # the permuted features side by side: one product for the whole block
        permuted = u[block.T].reshape(slots, -1)
        products = (permuted.T @ v).reshape(len(block), -1)
        norms[1 + start : 1 + start + len(block)] = np.sqrt(np.einsum("bk,bk->b", products, products))
    return norms / slots


def root_hsic_sensitivity(
    slots: int, u: KernelFeatures, v: KernelFeatures, residual_u: float = 0.0, residual_v: float = 0.0
) -> float:
    """Return how far one changed slot moves the root, whatever the permutation (theorems 1 and 3).

    The residuals are how far the values of the *other* slots may move along, as residuals of a regression do.
    """
    return 2.0 * u.diameter * v.diameter * (slots - 1) / slots**2 + _moving_along(slots, u, v, residual_u, residual_v)


def paired_root_hsic_sensitivity(
    slots: int, u: KernelFeatures, v: KernelFeatures, residual_u: float = 0.0, residual_v: float = 0.0
) -> float:
    """Return how far one changed slot moves the root of the pairs as they are (theorems 2, 3): √1.5 in place of 2."""
    own = math.sqrt(1.5) * u.diameter * v.diameter * (slots - 1) / slots**2
    return own * (1.0 + 1e-12) + _moving_along(slots, u, v, residual_u, residual_v)


def _moving_along(slots: int, u: KernelFeatures, v: KernelFeatures, residual_u: float, residual_v: float) -> float:
    """Return how far the root moves if every value of u and of v moves by so much (theorem 3)."""
    spread = math.sqrt(0.5 * (slots - 1) / slots)
    u_side = min(u.diameter, u.slope * residual_u) * v.diameter
    v_side = min(v.diameter, v.slope * residual_v) * u.diameter
    return spread * (u_side + v_side) * (1.0 + 1e-12)


def draw_permutations(count: int, slots: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return uniform permutations, one per row. They come from a seed: for exact tests, not for private ones."""
    return rng.permuted(np.tile(np.arange(slots, dtype=np.intp), (count, 1)), axis=1)

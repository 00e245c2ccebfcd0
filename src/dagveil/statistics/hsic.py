"""The Hilbert-Schmidt independence criterion, its root with features, and sensitivities (docs/proofs/hsic.md)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.statistics.kernels import Floats, KernelFeatures

BLOCK: Final = 1 << 17  # numbers that a block of permuted features may hold: 1 MiB, which stays in the cache


def root_hsic(features_u: Floats, features_v: Floats, permutations: NDArray[np.intp]) -> Floats:
    """Return ‖cross-covariance of the features‖ for the pairs as they are, then for each permutation of u.

    - `permutations`: one per row; slot i of v meets slot permutation[i] of u.
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

    - `residual_u`, `residual_v`: how far the values of the *other* slots may move along, as residuals of a regression
      do.
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

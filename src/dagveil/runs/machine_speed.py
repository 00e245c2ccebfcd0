"""How fast this machine is: a few small kernels, timed once, and kept in the user's cache folder.

Seconds are processor seconds of one core: other programs on the machine change them little.
"""

import os
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from dagveil.data.column import Categorical, Numeric
from dagveil.data.distinct import WeightedRows, mix_codes, shrink_rows
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan, sum_outer_products
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.evidence.bundle import independence_from
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import representable_variance
from dagveil.privacy.release import NoisyCounts
from dagveil.search.constraint.arrows import orient_by_evidence
from dagveil.search.constraint.skeleton import SkeletonSettings, find_skeleton

SPEED_VERSION = 2  # version of the file; others are ignored and the shipped constants serve
# a search over tables or moments takes about the number of columns to this power, on 10 to 1000 columns
SEARCH_GROWTH = 1.7
_TRIES = 3
_LEVELS = 3
_NAMES = tuple("abcdefghij")


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Processor seconds of small pieces of work; the defaults are those of one core of a small server.

    They are for: starting the program; reading one cell of a CSV file, with levels or a number; packing one cell when
    rows are reduced to the distinct ones, and sorting one row for that; counting one cell in a pass over rows; one
    product in a matrix of moments, and scaling, shrinking and rounding one number for it; one draw of noise, from
    OpenDP or from the exact sampler; what a released table costs beyond its draws; one search for a graph, divided by
    columns to the power `SEARCH_GROWTH`; eigenvectors of a matrix, divided by the third power of its size.
    """

    start: float = 2.5
    read_cell: float = 1.2e-7
    read_number: float = 3e-7
    row_cell: float = 4e-9
    row: float = 8e-8
    count_cell: float = 6e-10
    moment: float = 1e-10
    quantise: float = 2.7e-8
    draw: float = 1.5e-5
    exact_draw: float = 2.2e-7
    table: float = 2.5e-5
    search: float = 1e-4
    eigen: float = 4.2e-10


class _File(msgspec.Struct, frozen=True):
    version: int
    speed: Speed


def speed_path() -> Path:
    """Return where measured constants are kept."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "dagveil" / "speed.json"


def load_speed() -> tuple[Speed, bool]:
    """Return the constants of this machine, and whether they were measured on it; the shipped ones if not."""
    try:
        found = msgspec.json.decode(speed_path().read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError):
        return Speed(), False
    return (found.speed, True) if found.version == SPEED_VERSION else (Speed(), False)


def save_speed(speed: Speed) -> Path:
    """Keep measured constants for later plans."""
    path = speed_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(_File(SPEED_VERSION, speed)))
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; set XDG_CACHE_HOME to a folder you may write"
        ) from error
    return path


def measure_speed() -> Speed:
    """Time the kernels: a few seconds."""
    rng = np.random.default_rng(1)
    rows = 200_000
    codes = {name: rng.integers(0, _LEVELS, rows, dtype=np.uint8) for name in _NAMES}
    levels = dict.fromkeys(_NAMES, _LEVELS)
    weighted = WeightedRows(codes=codes, weights=None, n_rows=rows)
    numbers = rng.normal(size=(10, 20_000))
    block = rng.normal(size=(200, 4096))
    keys = rng.integers(0, 2**40, rows)
    eight, shape = list(codes.values())[:8], (_LEVELS,) * 8
    width = len(numbers)
    plan = MomentPlan(_NAMES, (0.0,) * width, (1.0,) * width, 4.0 * width, 1.0, 10)
    search = _search_seconds()
    return Speed(
        start=Speed().start,
        read_cell=_read_seconds(rng),
        read_number=_read_seconds(rng, numeric=True),
        row_cell=_seconds(lambda: shrink_rows(weighted, levels)) / (rows * len(_NAMES)),
        row=_seconds(lambda: np.sort(keys)) / rows,
        count_cell=_seconds(lambda: np.bincount(mix_codes(eight, shape), minlength=_LEVELS**8)) / (rows * 8),
        moment=_seconds(lambda: block @ block.T) / (200**2 * 4096),
        quantise=_seconds(lambda: sum_outer_products(list(numbers), plan, n_rows=20_000)) / numbers.size,
        draw=_draw_seconds(NoiseKind.OPENDP, 2_000),
        exact_draw=_draw_seconds(NoiseKind.EXACT, 100_000),
        table=Speed().table * search / Speed().search,
        search=search,
        eigen=_seconds(lambda: np.linalg.eigh((gauss := rng.normal(size=(300, 300))) + gauss.T)) / 300**3,
    )


def _seconds(kernel: Callable[[], object]) -> float:
    """Return the processor seconds of the best of a few tries."""
    best = float("inf")
    for _ in range(_TRIES):
        start = time.process_time()
        kernel()
        best = min(best, time.process_time() - start)
    return max(best, 1e-6)


def _draw_seconds(kind: NoiseKind, draws: int) -> float:
    source = noise_source(kind)
    variance = representable_variance(Fraction(2000**2))
    return _seconds(lambda: source.discrete_gaussian(variance, draws)) / draws


def _read_seconds(rng: np.random.Generator, *, numeric: bool = False) -> float:
    rows, width = 20_000, 8
    names = _NAMES[:width]
    if numeric:
        schema = Schema(dataset="kernel", columns={name: Numeric(bounds=(-9.0, 9.0)) for name in names})
        cells = [[f"{number:.6f}" for number in rng.normal(size=rows)] for _ in names]
    else:
        levels = tuple(f"level {k}" for k in range(_LEVELS))
        schema = Schema(dataset="kernel", columns={name: Categorical(levels, levels[0]) for name in names})
        cells = [[levels[code] for code in rng.integers(0, _LEVELS, rows)] for _ in names]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.csv"
        lines = [",".join(names), *(",".join(line) for line in zip(*cells, strict=True))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return _seconds(lambda: MemoryTable.from_source(path, schema)) / (rows * width)


def _search_seconds() -> float:
    """Time a search over pairs of a chain of columns, in units of its growth."""
    rng = np.random.default_rng(2)
    before = rng.integers(0, _LEVELS, 5_000)
    codes = []
    for _ in _NAMES:
        before = np.where(rng.random(5_000) < 0.5, before, rng.integers(0, _LEVELS, 5_000))
        codes.append(before)
    releases = []
    for (a, first), (b, second) in combinations(zip(_NAMES, codes, strict=True), 2):
        counts = np.bincount(first * _LEVELS + second, minlength=_LEVELS**2)
        releases.append(NoisyCounts((a, b), (_LEVELS, _LEVELS), 1, Fraction(100), tuple(counts.tolist())))

    def search() -> object:
        tests = independence_from(_NAMES, tuple(releases))
        assert tests is not None
        skeleton = find_skeleton(tests, SkeletonSettings(), NO_KNOWLEDGE)
        return orient_by_evidence(tests, skeleton, NO_KNOWLEDGE)

    return _seconds(search) / float(len(_NAMES) ** SEARCH_GROWTH)

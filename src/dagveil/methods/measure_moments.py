"""The rounds of `measure` for numeric columns: one noisy matrix of second moments answers every linear question.

Columns are scaled by public centres and spreads; where the schema declares no spread, a tenth of the budget finds the
size of the column by powers of two. Rows are then shrunk to a ball: bounding the row as a whole costs far less noise
than bounding each column.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dagveil.curator import Curator
from dagveil.data.column import Numeric
from dagveil.data.moments import MomentPlan, choose_bits
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage
from dagveil.methods.method import Measured
from dagveil.privacy.release import NoisyMagnitudes
from dagveil.progress import Progress

SIZES_SHARE = Fraction(1, 10)  # share of the budget that finds the spread of columns whose schema declares none
EXPONENTS_BELOW = 24  # powers of two below the declared bounds among which the size of a column is sought
RADIUS_PER_COLUMN = 0.75  # squared radius of the ball, per column, in squared spreads, where noise is the main concern
WIDEST_PER_COLUMN = 6.0  # squared radius per column beyond which hardly any row is shrunk
# the ball grows while noise stays below this share of what sampling alone makes of a correlation: shrinking rows bends
# dependence, so it is done only for as much as noise demands
QUIET = 0.25
NORMAL_MEDIAN = 0.6745  # median distance of a standard normal from its centre
# fixed-point bits per coordinate: a thousandth of a spread. Fewer where sums over the expected rows would not fit.
BITS = 10


def release_moments(
    curator: Curator,
    rows: int,
    scaled: ScaledColumns,
    progress: Progress,
    levels: Mapping[str, tuple[float, float]] | None = None,
) -> Measured:
    """Release the second moments of columns whose centres and spreads are known, with all that is left.

    - `levels`: centre and spread of each column with levels that is to take part, by its public scores.
    """
    centers = scaled.centers | {name: center for name, (center, _) in (levels or {}).items()}
    spreads = scaled.spreads | {name: spread for name, (_, spread) in (levels or {}).items()}
    names = tuple(name for name in curator.schema.columns if name in centers)
    plan = plan_moments(names, centers, spreads, rows, float(scaled.left * curator.accounting.total))
    progress("measuring second moments", 0, 1)
    released = curator.outer_products(plan, scaled.left, "second moments")
    progress("measuring second moments", 1, 1)
    why = "one matrix answers every linear question"
    stage = Stage("second moments", 1, len(released.values), float(scaled.left), released.deviation, why)
    findings = (describe_moments(plan), *warn_of_moment_noise(released.deviation, rows))
    return scaled.measured + Measured((released,), (stage,), findings)


def plan_moments(
    names: tuple[str, ...], centers: Mapping[str, float], spreads: Mapping[str, float], rows: int, mu_squared: float
) -> MomentPlan:
    """Return how rows are scaled, shrunk and rounded for the matrix of second moments, from public facts alone."""
    radius_squared = choose_radius(len(names), rows, mu_squared)
    constant = math.sqrt(max(1.0, radius_squared / 10.0))
    return MomentPlan(
        columns=names,
        centers=tuple(centers[name] for name in names),
        spreads=tuple(spreads[name] for name in names),
        radius_squared=radius_squared,
        constant=constant,
        bits=choose_bits(radius_squared, constant, rows, BITS),
    )


def describe_moments(plan: MomentPlan) -> str:
    """Say what a reader should know about second moments."""
    return (
        f"Columns were scaled by public centres and spreads, and rows longer than {math.sqrt(plan.radius_squared):.1f} "
        "spreads were shrunk to that length; dependence that is not linear is not seen."
        f"{describe_coarse_bits(plan.bits)}"
    )


def describe_coarse_bits(bits: int) -> str:
    """Say so if many expected rows made the rounding coarser than usual; begins with a blank, or is empty."""
    told = (
        f" Numbers were rounded to {bits} binary places, not {BITS}, so that sums over as many rows as are publicly "
        "expected fit into 64-bit integers."
    )
    return told if bits < BITS else ""


def warn_of_moment_noise(deviation: float, rows: int) -> list[str]:
    """Say so if the noise in a moment is large beside the number of rows."""
    told = (
        f"Noise of {deviation:.0f} in each moment is large beside about {rows} rows: expect only strong edges. A "
        "larger epsilon or fewer columns would show more."
    )
    return [told] if deviation > rows / 5 else []


@dataclass(frozen=True, slots=True)
class ScaledColumns:
    """Centre and spread of every numeric column, the share of the budget that is left, and what was released for it."""

    centers: dict[str, float]
    spreads: dict[str, float]
    left: Fraction
    measured: Measured


def scale_columns(
    curator: Curator, share: Fraction, progress: Progress, only: Collection[str] | None = None
) -> ScaledColumns:
    """Return centres and spreads of numeric columns, or of some only: declared ones, or else private ones."""
    columns = {name: column for name, column in curator.schema.columns.items() if isinstance(column, Numeric)}
    centers, spreads = declared_scales(curator.schema)
    wanted = columns if only is None else only
    unknown = {name: center for name, center in centers.items() if name not in spreads and name in wanted}
    if not unknown:
        return ScaledColumns(centers, spreads, share, Measured())
    progress("finding the sizes of columns", 0, len(unknown))
    widest = max(_reach(columns[name], center) for name, center in unknown.items())
    top = math.ceil(math.log2(widest))
    sizes = curator.magnitudes(unknown, range(top - EXPONENTS_BELOW, top + 1), share * SIZES_SHARE)
    progress("finding the sizes of columns", len(unknown), len(unknown))
    spreads |= {size.column: spread_of(size, _reach(columns[size.column], size.center)) for size in sizes}
    deviation = math.sqrt(sizes[0].variance) / sizes[0].lattice
    why = f"the schema declares no spread for {len(unknown)} columns"
    cells = sum(len(size.values) for size in sizes)
    stage = Stage("sizes of columns", len(sizes), cells, float(share * SIZES_SHARE), deviation, why)
    told = (
        f"The spread of {len(unknown)} columns was estimated privately; declaring center and spread in the schema "
        "saves a tenth of the budget."
    )
    return ScaledColumns(centers, spreads, share - share * SIZES_SHARE, Measured(sizes, (stage,), (told,)))


def declared_scales(schema: Schema) -> tuple[dict[str, float], dict[str, float]]:
    """Return the centres of all numeric columns, and the spreads of those whose schema declares one."""
    columns = {name: column for name, column in schema.columns.items() if isinstance(column, Numeric)}
    centers = {
        # in this form the middle of bounds that are far apart is finite
        name: one.bounds[0] + (one.bounds[1] - one.bounds[0]) / 2.0 if one.center is None else one.center
        for name, one in columns.items()
    }
    return centers, {name: column.spread for name, column in columns.items() if column.spread is not None}


def choose_radius(columns: int, rows: int, mu_squared: float) -> float:
    """Return the squared radius of the ball, from public facts alone; `mu_squared` is what the moments may cost."""
    # noise in a scaled moment is 1.1 R² / √(2 μ²); sampling gives it √n
    quiet = QUIET * math.sqrt(2.0 * mu_squared * rows) / 1.1
    return min(max(quiet, RADIUS_PER_COLUMN * columns), WIDEST_PER_COLUMN * columns)


def spread_of(size: NoisyMagnitudes, reach: float) -> float:
    """Return the spread that noisy counts by powers of two speak for: their median, as that of a normal.

    Cells that noise explains count as empty. If nothing is left, a sixth of the bounds' width stands in.
    """
    noise = math.sqrt(size.variance) / size.lattice
    counts = np.where(size.counts > 3.0 * noise, size.counts, 0.0)
    total = float(counts.sum())
    if total <= 0.0:
        return reach / 3.0
    reached = np.cumsum(counts)
    cell = int(np.searchsorted(reached, total / 2.0))
    before = float(reached[cell - 1]) if cell else 0.0
    inside = (total / 2.0 - before) / float(counts[cell])
    # cell k holds distances between half of 2^exponent and 2^exponent
    exponent = size.first_exponent + cell
    return float(2.0 ** (exponent - 1 + inside)) / NORMAL_MEDIAN


def _reach(column: Numeric, center: float) -> float:
    """Largest distance from the centre that the bounds allow."""
    lower, upper = column.bounds
    return max(upper - center, center - lower)

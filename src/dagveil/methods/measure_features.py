"""The method `measure-features`: second moments of public nonlinear features, released once, then any test for free.

Each numeric column is cut to a public interval and expanded into a few Legendre polynomials. Their noisy second moments
answer every question by a partial cross-covariance. How many polynomials, and how far rows are shrunk, follows from the
number of rows, the number of columns and the budget: no row is touched for it.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from dagveil.curator import Curator
from dagveil.data.column import Numeric
from dagveil.data.moments import MOST_FEATURES, Basis, FeaturePlan, choose_bits
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure_moments
from dagveil.methods.asking import Positive, plain_numbers
from dagveil.methods.measure import check_measurable, release_rows
from dagveil.methods.method import TWO_NUMBERS, Measured, Method, SharpCase, account_gaussian
from dagveil.progress import Progress

Degree = Annotated[int, msgspec.Meta(ge=1, le=MOST_FEATURES)]

REACH = 2.0  # spreads on each side of the centre within which values are told apart, inside the bounds
# two features per column pay while the variance of the noise is below this multiple of what sampling makes
QUIET_PAIR = 1.25
QUIET_TRIPLE = 0.1  # the same for three
# squared radius of the ball, per feature, where noise is the main concern; features have mean square 1 or so
NARROWEST_PER_FEATURE = 0.75
WIDEST_PER_FEATURE = 2.0  # squared radius per feature beyond which shrinking does little harm
# squared constant in front of each row, as a share of the squared radius: it holds number of rows and means
CONSTANT_SHARE = 0.1
LINEAR = (
    "Noise would have drowned nonlinear features here, so the columns themselves were measured, as `measure` does. A "
    "larger epsilon, more rows or fewer columns would allow features; degree=2 insists on them."
)


class MeasureFeaturesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `measure-features`; those of the search apply besides, at no cost.

    - `degree`: Features per column; None chooses 2 or 3, or second moments of the columns themselves where noise would
      drown features, from the number of rows, the number of columns and the budget.
    - `basis`: Family of functions.
    - `radius`: Squared radius that rows are shrunk to, per feature; None chooses it. From degree + 2 on nothing is
      shrunk.
    - `reach`: Spreads on each side of the centre within which values are told apart.
    """

    degree: Degree | None = None
    basis: Basis = Basis.LEGENDRE
    radius: Positive | None = None
    reach: Positive = REACH


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse tables with columns that are not numeric."""
    check_measurable(schema, knowledge)
    plain = plain_numbers(schema)
    others = [name for name in schema.columns if name not in plain]
    if others:
        raise MethodError(
            f"measure-features needs numeric columns without bins, and {others[0]!r} is none; choose `measure`, "
            "which takes any columns, or leave the others out"
        )


def release(curator: Curator, knowledge: Knowledge, settings: MeasureFeaturesSettings, progress: Progress) -> Measured:
    """Release the second moments of the features of all columns."""
    rows, share, counted = release_rows(curator)
    scaled = measure_moments.scale_columns(curator, share, progress)
    columns = tuple(curator.schema.columns)
    mu_squared = float(scaled.left * curator.accounting.total)
    degree = settings.degree or choose_degree(len(columns), rows, mu_squared)
    if settings.degree is None and degree == 1:
        moments = measure_moments.release_moments(curator, rows, scaled, progress)
        return counted + moments + Measured(findings=(LINEAR,))
    features = plan_features(curator.schema, scaled.centers, scaled.spreads, degree, settings, rows, mu_squared)
    progress("measuring features", 0, 1)
    released = curator.outer_products(features, scaled.left, "moments of features")
    progress("measuring features", 1, 1)
    why = f"one matrix of {degree} features per column answers every question"
    stage = Stage("moments of features", 1, len(released.values), float(scaled.left), released.deviation, why)
    findings = describe_features(features, settings) + measure_moments.warn_of_moment_noise(released.deviation, rows)
    return counted + scaled.measured + Measured((released,), (stage,), tuple(findings))


def plan_features(
    schema: Schema,
    centers: Mapping[str, float],
    spreads: Mapping[str, float],
    degree: int,
    settings: MeasureFeaturesSettings,
    rows: int,
    mu_squared: float,
) -> FeaturePlan:
    """Return how rows become features, from public facts alone; `mu_squared` is what moments may cost."""
    columns = tuple(schema.columns)
    if settings.radius:
        per_feature = min(settings.radius, degree + 2.0)  # beyond this nothing is shrunk
    else:
        per_feature = choose_radius(len(columns) * degree, rows, mu_squared)
    radius_squared = per_feature * len(columns) * degree
    constant = math.sqrt(max(1.0, CONSTANT_SHARE * radius_squared))
    # where values are told apart: around the centre, inside the bounds
    intervals = []
    for name, column in schema.columns.items():
        if not isinstance(column, Numeric):
            raise MethodError(f"column {name!r} is not numeric; choose `measure`")
        half = settings.reach * spreads[name]
        lower, upper = max(column.bounds[0], centers[name] - half), min(column.bounds[1], centers[name] + half)
        intervals.append((lower, upper) if lower < upper else column.bounds)
    return FeaturePlan(
        columns=columns,
        centers=tuple((lower + upper) / 2.0 for lower, upper in intervals),
        reaches=tuple((upper - lower) / 2.0 for lower, upper in intervals),
        basis=settings.basis,
        degree=degree,
        radius_squared=radius_squared,
        constant=constant,
        bits=choose_bits(radius_squared, constant, rows, measure_moments.BITS),
    )


def choose_degree(columns: int, rows: int, mu_squared: float) -> int:
    """Return the number of features per column, from public facts alone; `mu_squared` is what moments may cost."""

    def noise(degree: int) -> float:
        """Variance of the noise in a moment, if the ball holds a typical row, per row."""
        deviation = (1.0 + CONSTANT_SHARE) * columns * degree / math.sqrt(2.0 * mu_squared)
        return deviation**2 / rows

    return 3 if noise(3) <= QUIET_TRIPLE else 2 if noise(2) <= QUIET_PAIR else 1


def choose_radius(features: int, rows: int, mu_squared: float) -> float:
    """Return the squared radius of the ball per feature: as `measure` does for its rows, between other limits."""
    quiet = measure_moments.QUIET * math.sqrt(2.0 * mu_squared * rows) / (1.0 + CONSTANT_SHARE) / features
    return min(max(quiet, NARROWEST_PER_FEATURE), WIDEST_PER_FEATURE)


def describe_features(plan: FeaturePlan, settings: MeasureFeaturesSettings) -> list[str]:
    """Say what a reader should know before trusting an edge or a p-value."""
    chosen = "set" if settings.degree is not None else "chosen from the number of rows, the columns and the budget"
    findings = [
        f"Each column entered with {plan.degree} Legendre feature{'s' if plan.degree > 1 else ''} ({chosen})."
        f"{measure_moments.describe_coarse_bits(plan.bits)}",
        "p-values are scores for the graph, not levels: a set of several columns enters without interactions, "
        f"{plan.degree} features do not take all of a column away, and values beyond {settings.reach:g} spreads from "
        "the centre are cut.",
    ]
    longest = len(plan.columns) * plan.degree * (plan.degree + 2)
    if plan.radius_squared < longest:
        findings.append(
            f"Rows of features longer than {math.sqrt(plan.radius_squared):.1f} were shrunk to that length, which "
            "joins independent columns a little."
        )
    return findings


METHOD = Method(
    name="measure-features",
    title="noisy moments of nonlinear features once, then any search for free",
    paper=None,
    data="numeric",
    cost="one to three releases",
    settings=MeasureFeaturesSettings,
    accounting=account_gaussian,
    check=check,
    release=release,
    sharp=(SharpCase(TWO_NUMBERS),),
)

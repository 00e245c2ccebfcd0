"""The rounds of `measure` for levels beside numbers: one noisy matrix of second moments answers every question.

Columns with levels enter by centred indicators, numeric columns by themselves or by Legendre polynomials of them, all
in one row. How many features a number has, and how far they are shrunk, follows from the number of rows, the columns
and the budget: no row is touched for it.
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations
from statistics import median

import numpy as np
from scipy import special

from dagveil.curator import Curator
from dagveil.data.column import Ordinal, marks_missing
from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.data.moments import choose_bits
from dagveil.data.schema import Schema
from dagveil.evidence.blocks import covariance_from_mixed
from dagveil.evidence.bundle import Stage
from dagveil.evidence.mixed import MixedEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.wald import EXPECTED_EFFECT
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure_moments
from dagveil.methods.asking import plain_numbers
from dagveil.methods.measure_moments import RADIUS_PER_COLUMN, WIDEST_PER_COLUMN
from dagveil.methods.method import Measured
from dagveil.progress import Progress

REACH = 2.0  # spreads on each side of the centre within which values are told apart, with several features
# two features per number pay while the variance of the noise is below this multiple of what sampling makes
QUIET_PAIR = 4.0
QUIET_TRIPLE = 0.1  # the same for three
QUIET_MIXED = 0.5  # the ball grows while noise stays below this share of what sampling makes of a moment
# ordered levels enter by one trend where the variance of the noise is above this multiple of what sampling makes
HEAVY = 1.0
# level of the test by which r − 1 contrasts of ordered levels would show a dependence, or one trend takes over
SEEN = 0.001
# where noise is that heavy, this share of the budget goes to the matrix, and the rest to pairs that look dependent
FIRST_SHARE = Fraction(3, 5)
SCREEN = 0.2  # a pair looks dependent if its p-value in the first look is at most this
# the ball also grows while noise moves a moment, divided by the rows, by less than this: tests have more slack. The
# first is for a single feature per number, the second for more.
UNSEEN_LINEAR, UNSEEN = 0.005, 0.01
CONSTANT_SHARE = 0.1  # squared constant in front of each row, as a share of the squared norm of the rest


def is_mixed(schema: Schema) -> bool:
    """Tell whether a table has numeric columns without bins, and others beside them or missing values marked.

    Weighed records are counted.
    """
    plain = plain_numbers(schema)
    beside = len(plain) < len(schema.columns) or bool(_marked(schema))
    return bool(plain) and beside and schema.records != "weigh"


def measure_mixed(curator: Curator, rows: int, share: Fraction, progress: Progress) -> Measured:
    """Release the second moments of levels and numbers; the share also pays for spreads that nobody declared."""
    schema = curator.schema
    scaled = measure_moments.scale_columns(curator, share, progress, plain_numbers(schema))
    price = float(scaled.left * curator.accounting.total)
    plan = plan_mixed(schema, scaled.centers, scaled.spreads, rows, price)
    heavy = noise_share(_fixed_norm(plan.sizes), sum(plan.degrees), rows, price) > HEAVY
    first = scaled.left * FIRST_SHARE if heavy else scaled.left
    progress("measuring second moments", 0, 1 + heavy)
    released = curator.outer_products(plan, first, "mixed moments")
    stage = Stage("mixed moments", 1, len(released.values), float(first), released.deviation, explain(plan))
    measured = scaled.measured + Measured((released,), (stage,))
    if heavy:
        progress("measuring second moments", 1, 2)
        first_look = covariance_from_mixed(released, tuple(schema.columns), (), schema.pairwise)
        pairs = screen_pairs(MixedEvidence(first_look))
        again = curator.pair_moments(MixedPairs(plan, pairs), scaled.left - first, "pairs that look dependent")
        why = f"noise is heavy, so {len(pairs)} pairs that the matrix does not rule out were measured again"
        share_left, cells = float(scaled.left - first), len(again.values)
        stage = Stage("pairs that look dependent", len(pairs), cells, share_left, again.deviation, why)
        measured += Measured((again,), (stage,))
    progress("measuring second moments", 1 + heavy, 1 + heavy)
    findings = (*describe_mixed(plan, schema), *measure_moments.warn_of_moment_noise(released.deviation, rows))
    return measured + Measured(findings=findings)


def screen_pairs(evidence: MixedEvidence) -> tuple[tuple[str, str], ...]:
    """Return the pairs that a first look does not rule out: those with a small p-value, and the smallest of all."""
    names, pairs = evidence.columns, Questions.pairs(len(evidence.columns))
    p_value = evidence.test(pairs).p_value
    kept = pairs.select(p_value <= max(SCREEN, float(p_value.min())))
    return tuple((names[i], names[j]) for i, j in zip(kept.x, kept.y, strict=True))


def _marked(schema: Schema) -> tuple[str, ...]:
    """Return those whose missing values have an indicator beside the number."""
    return tuple(name for name in plain_numbers(schema) if marks_missing(schema.columns[name]))


def plan_mixed(
    schema: Schema, centers: Mapping[str, float], spreads: Mapping[str, float], rows: int, mu_squared: float
) -> MixedPlan:
    """Return how rows become vectors, from public facts alone; `mu_squared` is what the matrix may cost."""
    plain = plain_numbers(schema)
    # without numbers, the nominal number of rows has decided that trends are taken
    trends = choose_trends(schema, rows if plain else schema.nominal_rows or rows, mu_squared)
    levels = tuple(name for name in schema.columns if name not in plain and name not in trends)
    sizes = tuple(schema.columns[name].n_levels for name in levels)
    fixed = _fixed_norm(sizes)
    degree = choose_degree(fixed, len(plain), rows, mu_squared, len(trends))
    radius_squared = choose_radius(fixed, len(plain), degree, rows, mu_squared, len(trends))
    constant = math.sqrt(max(1.0, CONSTANT_SHARE * (fixed + radius_squared)))
    # not cut at the bounds: a column that piles up at one of them would have long features, and rows would be shrunk
    reach = 1.0 if degree == 1 else REACH
    scales = [(centers[name], reach * spreads[name]) for name in plain]
    for name in trends:
        column = schema.columns[name]
        assert isinstance(column, Ordinal)
        scores = np.array(column.numbers[: len(column.levels)])  # all levels as frequent as each other
        scales.append((float(scores.mean()), float(scores.std()) or 1.0))
    return MixedPlan(
        levels=levels,
        sizes=sizes,
        numbers=(*plain, *trends),
        centers=tuple(center for center, _ in scales),
        widths=tuple(width for _, width in scales),
        degrees=(degree,) * len(plain) + (1,) * len(trends),
        radius_squared=radius_squared,
        constant=constant,
        bits=choose_bits(radius_squared + fixed, constant, rows, measure_moments.BITS),
        marked=_marked(schema),
    )


def choose_trends(schema: Schema, rows: int, mu_squared: float) -> tuple[str, ...]:
    """Return the ordinal columns that enter by a trend: all of three levels or more, or none.

    Those whose missing values are left out pair by pair stay levels: a trend has no place that could be left out.

    Beside numbers they do if noise is heavy. Without any they do if r − 1 contrasts of each would not show a dependence
    of `EXPECTED_EFFECT` that one trend may show.
    """
    several = {name for name, one in schema.columns.items() if isinstance(one, Ordinal) and len(one.levels) > 2}
    ordered = tuple(name for name in schema.columns if name in several and name not in schema.pairwise)
    numbers = plain_numbers(schema)
    sizes = [column.n_levels for name, column in schema.columns.items() if name not in numbers]
    fixed = _fixed_norm(sizes)
    degree = choose_degree(fixed, len(numbers), rows, mu_squared)
    noise = noise_share(fixed, degree * len(numbers), rows, mu_squared)
    if numbers or not ordered:
        return ordered if noise > HEAVY else ()
    levels = median(schema.columns[name].n_levels for name in ordered)
    freedom = (levels - 1) ** 2
    # in whitened units noise is larger by the levels of both columns
    shift = EXPECTED_EFFECT**2 * rows / (1.0 + levels**2 * noise)
    return ordered if freedom + shift < special.chdtri(freedom, SEEN) else ()


def trends_pay(schema: Schema, mu_squared: float, knowledge: Knowledge) -> bool:
    """Tell whether a table of levels, most of them ordered, is measured by trends in one matrix: where noise is heavy.

    Public facts alone: the schema, with its nominal number of rows, and the price of all that is released. The matrix
    holds all pairs, so it is not taken where knowledge excludes one.
    """
    if schema.nominal_rows is None or plain_numbers(schema) or schema.records == "weigh":
        return False
    if any(knowledge.excludes(*pair) for pair in combinations(schema.columns, 2)):
        return False
    return 2 * len(choose_trends(schema, schema.nominal_rows, mu_squared)) > len(schema.columns)


def _fixed_norm(sizes: Iterable[int]) -> float:
    """Return the squared norm that the indicators of columns with so many levels have together."""
    return sum(1.0 - 1.0 / size for size in sizes)


def noise_share(fixed: float, features: int, rows: int, mu_squared: float) -> float:
    """Return the variance of the noise in a moment over that of sampling, if the ball is as small as it gets."""
    norm = (1.0 + CONSTANT_SHARE) * (fixed + RADIUS_PER_COLUMN * features)
    return norm**2 / (2.0 * mu_squared * rows)


def choose_degree(fixed: float, numbers: int, rows: int, mu_squared: float, trends: int = 0) -> int:
    """Return the number of features of each number, beside columns with levels of this squared norm together."""
    if noise_share(fixed, 3 * numbers + trends, rows, mu_squared) <= QUIET_TRIPLE:
        return 3
    return 2 if noise_share(fixed, 2 * numbers + trends, rows, mu_squared) <= QUIET_PAIR else 1


def choose_radius(fixed: float, numbers: int, degree: int, rows: int, mu_squared: float, trends: int = 0) -> float:
    """Return the squared radius of the ball that features are shrunk to; parameters as in `choose_degree`."""
    narrowest = RADIUS_PER_COLUMN * (degree * numbers + trends)
    # Legendre features are never longer than that, so nothing is shrunk then
    widest = (WIDEST_PER_COLUMN if degree == 1 else degree * (degree + 2.0)) * numbers + WIDEST_PER_COLUMN * trends
    unseen = UNSEEN_LINEAR if degree == 1 else UNSEEN
    # noise is (1 + share)(fixed + R²)/√(2 μ²) in each moment, sampling √n
    norm = max(QUIET_MIXED * math.sqrt(rows), unseen * rows) * math.sqrt(2.0 * mu_squared) / (1.0 + CONSTANT_SHARE)
    return min(max(norm - fixed, narrowest), widest)


def explain(plan: MixedPlan) -> str:
    """Say why one matrix is released."""
    both = f"{len(plan.levels)} columns with levels and {len(plan.numbers)} of numbers"
    return f"one matrix of {both} answers every question"


def describe_mixed(plan: MixedPlan, schema: Schema) -> list[str]:
    """Say what a reader should know about levels and numbers in one matrix."""
    trends = [name for name in plan.numbers if isinstance(schema.columns[name], Ordinal)]
    if set(trends) == set(plan.numbers):
        numbers = "Trends entered with their scores"
    elif max(plan.degrees) == 1:
        numbers = "Numeric columns entered as they are, so dependence on them that is not linear is not seen"
    else:
        numbers = (
            f"Numeric columns entered with {max(plan.degrees)} Legendre features each, and values beyond {REACH:g} "
            "spreads from the centre were cut"
        )
    told = [
        f"Noise is heavy here, so ordered levels entered by their trend: {', '.join(trends)}. What rises and falls "
        "again along them is not seen."
    ]
    return [
        *(told if trends else []),
        f"{numbers}; rows whose features are longer than {math.sqrt(plan.radius_squared):.1f} together were shrunk to "
        f"that length. Levels entered as they are.{measure_moments.describe_coarse_bits(plan.bits)}",
        "p-values are scores for the graph: a set of several columns enters without interactions, and features do not "
        "take all of a number away.",
    ]

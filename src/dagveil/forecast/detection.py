"""The weakest dependence that `measure` would still see, in closed form, before any row is read.

The formulas stand in docs/plan.md; the tests set them beside simulated releases.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from statistics import median

import msgspec
from scipy import special

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.evidence.wald import SLACK
from dagveil.forecast.synthetic import BOUNDS_IN_SPREADS
from dagveil.methods import measure
from dagveil.methods.measure_moments import SIZES_SHARE
from dagveil.methods.measure_tables import count_picks
from dagveil.plans.plan_file import Ask, AskInteractions, AskMixed, AskMoments, AskTables, MeasurementPlan, list_sets
from dagveil.plans.planning import forecast_noise, plan_measurement
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.events import DiscreteGaussian, tightest_filter
from dagveil.search.constraint.skeleton import SkeletonSettings

POWER = 0.8  # probability with which the weakest dependence is seen
DROWNED = 0.5  # noise drowns a table if the typical pair has to depend more than this
WANTED = 0.3  # dependence that advice aims at
LARGEST_EPSILON, MOST_ROWS = 10.0, 10**7  # advice goes no further
CORRELATION = "correlation"
CRAMERS_V = "Cramér's V"


class Weakest(msgspec.Struct, frozen=True):
    """The weakest dependence that is seen with probability `POWER`.

    It is that of the median pair of columns (None if not even full dependence would be seen) and of the worst one; the
    scale is "correlation", or "Cramér's V" for columns that are counted.
    """

    scale: str
    typical: float | None
    worst: float | None

    @property
    def words(self) -> str:
        """Say it for people."""
        if self.typical is None:
            return "not even full dependence"
        if self.typical == self.worst:
            return f"a {self.scale} of {self.typical:.2g}"
        worst = "not even full dependence" if self.worst is None else f"{self.worst:.2g}"
        return f"a {self.scale} of {self.typical:.2g} (typical pair; {worst} in the worst)"


def find_weakest(schema: Schema, budget: Budget, rows: int) -> Weakest:
    """Return the weakest dependence that the first test of `measure` sees, at the shares of its plan."""
    # where no spread is declared, a run finds it first
    guessed = {
        name: msgspec.structs.replace(column, spread=(column.bounds[1] - column.bounds[0]) / BOUNDS_IN_SPREADS)
        for name, column in schema.columns.items()
        if isinstance(column, Numeric) and column.bins is None and column.spread is None
    }
    columns = {**schema.columns, **guessed}
    declared = msgspec.structs.replace(schema, columns=columns, reviewed=True, nominal_rows=rows)
    plan = plan_measurement(declared, budget.epsilon, budget.delta)
    # of the plan's stages, this is the one that answers questions about pairs
    ask = next(ask for ask in plan.asks if len(list_sets(ask)[0]) > 1)
    if guessed:
        ask = msgspec.structs.replace(ask, share=ask.share * (1 - SIZES_SHARE))
    noise = forecast_noise(ask, declared, plan.noise, plan.sites[0])
    if isinstance(ask, AskMoments):
        seen = _see_correlation(ask, noise, rows)
        return Weakest(CORRELATION, seen, seen)
    if isinstance(ask, AskMixed):
        found = _see_mixed(ask, noise, rows)
        return Weakest(CORRELATION, _or_none(median(found)), _or_none(max(found)))
    level = _level(measure.TABLE_SEARCH, len(declared.columns))
    found = [_see_table(shape, variance, rows, level) for shape, variance in _list_pairs(plan, ask, noise)]
    return Weakest(CRAMERS_V, _or_none(median(found)), _or_none(max(found)))


def count_chosen_pairs(schema: Schema, budget: Budget, rows: int) -> int:
    """Return how many pairs `measure` would choose privately and measure; 0 if it would measure another way."""
    if measure.is_numeric(schema) or measure.releases_mixed("measure", measure.MeasureSettings(), schema, budget):
        return 0
    if budget.delta == 0 or measure.prefers_joint(budget, schema):
        return 0
    pairs = math.comb(len(schema.columns), 2)
    picks, saves = count_picks(schema, tightest_filter(budget, [DiscreteGaussian]), pairs, rows)
    return picks if saves else 0


def describe_visibility(schema: Schema, budget: Budget, rows: int) -> tuple[str, ...]:
    """Say how strong a dependence must be to be seen and, if noise would drown the table, what would help."""
    weakest = find_weakest(schema, budget, rows)
    seen = f"The weakest dependence that is seen with probability {POWER:g}: {weakest.words}."
    if chosen := count_chosen_pairs(schema, budget, rows):
        pairs = math.comb(len(schema.columns), 2)
        seen += f" `measure` would choose about {chosen} of the {pairs} pairs privately, with less noise in each."
    if weakest.typical is not None and weakest.typical <= DROWNED:
        return (seen,)
    helping = _list_help(schema, budget, rows)
    advice = (
        f"a {weakest.scale} of {WANTED:g} would be seen in the typical pair with {', or with '.join(helping)}."
        if helping
        else f"neither budget nor rows nor fewer columns alone show a {weakest.scale} of {WANTED:g}."
    )
    return (f"Noise would drown this table: {advice}", seen)


def _list_help(schema: Schema, budget: Budget, rows: int) -> list[str]:
    """List what would show a dependence of `WANTED` by itself: more budget, more rows, fewer columns."""

    def shows(schema: Schema, epsilon: float, rows: int) -> bool:
        typical = find_weakest(schema, Budget.of(f"{epsilon:.6g}", budget.delta), rows).typical
        return typical is not None and typical <= WANTED

    now, found = float(budget.epsilon), []
    enough = _find_factor(lambda factor: shows(schema, now * factor, rows), LARGEST_EPSILON / now)
    if enough is not None:
        found.append(f"epsilon {_round_up(now * enough)}")
    enough = _find_factor(lambda factor: shows(schema, now, math.ceil(rows * factor)), MOST_ROWS / rows)
    if enough is not None:
        found.append(f"{_round_up(rows * enough)} rows")
    names = sorted(schema.columns, key=lambda name: schema.columns[name].n_levels)
    low, high = 1, len(names)  # the first so many columns show it, and no more than that
    while high - low > 1:
        middle = (low + high) // 2
        kept = schema.narrow({name: schema.columns[name] for name in names[:middle]})
        low, high = (middle, high) if shows(kept, now, rows) else (low, middle)
    if low > 1:
        few = "" if len({column.n_levels for column in schema.columns.values()}) == 1 else " of the fewest levels"
        found.append(f"{low} columns{few} in place of {len(names)}")
    return found


def _find_factor(enough: Callable[[float], bool], most: float) -> float | None:
    """Return about the smallest factor, up to the most, that is enough."""
    if most <= 1 or not enough(most):
        return None
    low, high = 1.0, most
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _round_up(value: float) -> str:
    """Round up to two digits."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 1)
    return round_up(math.ceil(Fraction(value) / unit) * unit, 4)


def _list_pairs(plan: MeasurementPlan, ask: Ask, noise: float) -> list[tuple[tuple[int, int], float]]:
    """Return the numbers of levels of every pair that is measured, and the variance of its cells."""
    levels = {name: column.n_levels for name, column in plan.schema.columns.items()}
    if isinstance(ask, AskTables):
        names = ask.sets[0]
        cells = math.prod(levels[name] for name in names)
        shapes = [(levels[a], levels[b]) for i, a in enumerate(names) for b in names[:i]]
        # a cell of a pair's table is a sum of cells of the joint table
        return [(shape, noise**2 * cells / math.prod(shape)) for shape in shapes]
    assert isinstance(ask, AskInteractions)
    return [((levels[a], levels[b]), noise**2) for a, b in ask.sets]


def _see_table(shape: tuple[int, int], variance: float, rows: int, level: float) -> float:
    """Return Cramér's V; infinite if one of the columns cannot vary."""
    a, b = shape
    freedom = (a - 1) * (b - 1)
    if not freedom:
        return math.inf
    shift = _shift(level, freedom)
    # whitened units: sampling gives every contrast 1/n, and noise of even margins a b s²/n²
    return math.sqrt(shift * (1.0 / rows + a * b * variance / rows**2) / min(a - 1, b - 1))


def _see_mixed(ask: AskMixed, noise: float, rows: int) -> list[float]:
    """Return, for every pair, the dependence that is seen: the root of ‖K_xy‖² over the smaller number of directions.

    Features that are shrunk are taken to have lost variance alone, and levels to be equally frequent.
    """
    plan = ask.rows
    kept = min(1.0, plan.radius_squared / sum(plan.degrees))
    # directions of each column, and how much whitening widens noise in each of them
    blocks = [(size - 1, float(size)) for size in plan.sizes] + [(degree, 1.0 / kept) for degree in plan.degrees]
    level = _level(measure.FEATURE_SEARCH, len(blocks))
    found = []
    for (a, wider), (b, also) in combinations(blocks, 2):
        if a * b == 0:
            found.append(math.inf)
            continue
        variance = 1.0 / rows + wider * also * (noise / rows) ** 2
        found.append(math.sqrt((SLACK[0] ** 2 + _shift(level, a * b) * variance) / min(a, b)))
    return found


def _see_correlation(ask: AskMoments, noise: float, rows: int) -> float | None:
    columns, radius = len(ask.rows.columns), ask.rows.radius_squared
    variance, covariance, square = _shrink_moments(columns, radius)
    deviation = noise / rows
    ridged = variance + deviation * math.sqrt(columns)
    # the test reckons with 1/n of sampling; after shrinking and with the ridge there is less
    reckoned = math.hypot(1.0 / math.sqrt(rows), deviation / ridged)
    real = math.hypot(math.sqrt(square / rows) / ridged, deviation / ridged)
    level = _level(measure.MOMENT_SEARCH, columns)
    beyond = float(special.ndtri(1.0 - level / 2.0)) * reckoned
    seen = math.tanh(beyond + float(special.ndtri(POWER)) * real) * ridged / covariance
    return seen if seen < 1.0 else None


def _shrink_moments(columns: int, radius_squared: float) -> tuple[float, float, float]:
    """Return what shrinking rows x of d standard normal columns to a ball leaves.

    That is E x₁², what a small correlation ρ makes of E x₁x₂, divided by ρ, and E (x₁x₂)². With X = |x|², chi-square
    with d degrees, they are E min(X, R²)/d, E min(X², R²X)/(d(d+2)) and E min(X², R⁴)/(d(d+2)).
    """
    d, r = columns, radius_squared

    def inside(freedom: int) -> float:
        return float(special.gammainc(freedom / 2, r / 2))

    return (
        inside(d + 2) + r * (1.0 - inside(d)) / d,
        inside(d + 4) + r * (1.0 - inside(d + 2)) / (d + 2),
        inside(d + 4) + r**2 * (1.0 - inside(d)) / (d * (d + 2)),
    )


def _level(settings: SkeletonSettings, columns: int) -> float:
    """Return the level of the first test for a pair that depends while no other does: the strictest."""
    pairs = max(math.comb(columns, 2), 1)
    return min(measure.fit_levels(settings, columns).marginal_level, settings.false_share / pairs)


def _shift(level: float, freedom: int) -> float:
    """Return the noncentrality that a chi-square test of this level sees with probability `POWER`."""
    return float(special.chndtrinc(special.chdtri(freedom, level), freedom, 1.0 - POWER))


def _or_none(value: float) -> float | None:
    return value if value <= 1.0 else None

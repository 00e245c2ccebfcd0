"""Which of two columns is the cause: the additive noise model, asked privately (Kusner and others 2016).

If y = f(x) + noise, with noise that is independent of x, then the residual of y given x is independent of x, and seldom
is the residual of x given y independent of y. Both ways are tried; the smaller score of dependence wins.
"""

import enum
import math
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.curator import Curator
from dagveil.curator.kernel_questions import COLUMN_REACH, RESIDUAL_REACH, NoisyDifference, Ridge
from dagveil.data.column import Numeric
from dagveil.data.engine import Engine, choose_engine
from dagveil.data.schema import Schema, load_schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage, independence_from
from dagveil.evidence.questions import Questions
from dagveil.files import SavedRecord
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.methods.method import Method
from dagveil.methods.pcd import Bandwidth, RegressionRule, Rows, count_slots, default_penalty
from dagveil.methods.regressions import ReleasedFunctions, functions_from_table
from dagveil.privacy.budget import Amount, Budget
from dagveil.privacy.events import PureFilter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.privacy.receipt import Receipt
from dagveil.privacy.release import NoisyCounts
from dagveil.progress import Progress, silent
from dagveil.runs.discovery import DEFAULT_DELTA
from dagveil.runs.result import SchemaSummary, head, summarise
from dagveil.runs.run import RunOptions, open_run, schema_knowledge
from dagveil.statistics.kernels import kernel_features, root_hsic
from dagveil.statistics.residuals import residual_rank_score

Floats = NDArray[np.float64]

DIRECTION_VERSION = 2  # version of the JSON
TABLE_SHARE = Fraction(1, 4)  # share of the budget for the table that regressions are computed from
BINS = 16  # bins of each column in that table
DEGREE = 5  # degree of the regression polynomials
# share of real pairs with a known cause on which additive noise models without privacy were right: Mooij, Peters,
# Janzing, Zscheischler and Schölkopf, Distinguishing cause from effect using observational data, JMLR 17 (2016)
MODEL_ACCURACY = 0.63
SURE_DEPENDENCE = 0.01  # the two columns depend on each other if the p-value of their noisy table is below this
# the spread of residuals visibly changes with a column if their correlation is this many deviations from 0, and so
# large
VISIBLE_DEVIATIONS, VISIBLE_CORRELATION = 5.0, 0.1
# straight lines with normal noise that are drawn, and how many may give a larger difference than was found
STRAIGHT_DRAWS, MOST_LARGER = 40, 2
MEANING = (
    "Confidence counts noise, and that additive noise models were right on 63 % of real pairs whose cause is known: it "
    "never exceeds that. Half means that nothing was learned."
)


class Score(enum.Enum):
    """How the dependence of a residual on the other column is scored."""

    HSIC = "hsic"  # root HSIC with Gaussian kernels
    # rank correlations of the residual's size with the column, and with its distance from the middle
    SPEARMAN = "spearman"


class DirectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the private direction.

    - `score`: hsic or spearman.
    - `regression`: released: polynomials from a noisy table. ridge: kernel ridge regression on the rows, for hsic only.
    - `bandwidth`: of all kernels, in half-widths of the bounds.
    - `penalty`: of ridge regression. None takes a value from the number of rows.
    - `rows`: rows that are used, at most. None takes all.
    """

    score: Score = Score.HSIC
    regression: RegressionRule = RegressionRule.RELEASED
    bandwidth: Bandwidth = 0.5
    penalty: float | None = None
    rows: Rows | None = None


class Direction(SavedRecord, frozen=True):
    """Which of two columns looks like the cause, with the receipt of the run.

    - `cause`, `effect`: the direction that was found; None if the model visibly fails.
    - `confidence`: how far to trust it, from ½ to `MODEL_ACCURACY`.
    - `difference`: noisy score of dependence for columns[0] → columns[1], less that for the other way: below 0 if the
      former won; None if it was not asked for.
    - `noise_scale`: scale of the Laplace noise in it.
    - `doubt`: why there is no direction.
    """

    format: Literal["dagveil-direction"]
    version: int
    software: str
    created: str
    columns: tuple[str, str]
    cause: str | None
    effect: str | None
    confidence: float
    difference: float | None
    noise_scale: float | None
    doubt: str | None
    meaning: str
    settings: dict[str, Any]
    schema: SchemaSummary
    plan: tuple[Stage, ...]
    receipt: Receipt


def find_direction(
    source: Any,
    schema: Schema | str | Path,
    x: str,
    y: str,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    settings: DirectionSettings | None = None,
    **run: Unpack[RunOptions],
) -> Direction:
    """Find which of two numeric columns is the cause, under the additive noise model.

    - `source`, `schema`, `epsilon`, `delta`, `run`: as in `dagveil.measure_source`. All noise is Laplace noise, so that
      delta is not used, and the receipt says 0.
    - `x`, `y`: two numeric columns of the schema.
    - `settings`: how dependence is scored.

    Examples
    --------
    >>> import numpy as np
    >>> from dagveil.privacy.noise.kind import NoiseKind
    >>> x = np.linspace(-1, 1, 2000)
    >>> rows = {"x": x, "y": x**3 + 0.2 * np.sin(1000 * x)}
    >>> bounds = Numeric(bounds=(-1.5, 1.5))
    >>> columns = {"x": bounds, "y": bounds}
    >>> public = Schema(dataset="demo", columns=columns, reviewed=True, nominal_rows=2000, public=True)
    >>> found = find_direction(rows, public, "x", "y", epsilon=20, noise=NoiseKind.SEEDED, seed=1)
    >>> found.cause, round(found.confidence, 2)
    ('x', 0.63)
    """
    settings = settings or DirectionSettings()
    if settings.score is Score.SPEARMAN and settings.regression is RegressionRule.RIDGE:
        raise MethodError(
            "spearman with ridge regression has no useful sensitivity: one record moves all residuals, and all ranks "
            "with them; choose regression=released, or score=hsic"
        )
    if settings.penalty is not None and not 0.0 < settings.penalty < math.inf:
        raise MethodError(f"the penalty is {settings.penalty:g}; choose a positive number")
    full = schema if isinstance(schema, Schema) else load_schema(schema)
    narrow = _narrow(full, x, y)
    rows = choose_engine(source, run.get("engine", Engine.AUTO), run.get("memory_limit"))
    if rows.is_open:
        raise MethodError("a direction is found from rows, not from an open table; give the path, frame or array")
    budget = Budget.of(epsilon, delta)
    with open_run(rows, narrow, budget, QUESTION, settings, knowledge=NO_KNOWLEDGE, run=run) as (prepared, curator):
        found, doubt, plan = _compare(curator, x, y, settings, run.get("progress", silent))
    cause, effect, confidence = None, None, 0.5
    if found is not None and doubt is None:
        cause, effect = (x, y) if found.value <= 0.0 else (y, x)
        confidence += (MODEL_ACCURACY - 0.5) * -math.expm1(-abs(found.value) / found.scale)
    return Direction(
        **head("dagveil-direction", DIRECTION_VERSION),
        columns=(x, y),
        cause=cause,
        effect=effect,
        confidence=confidence,
        difference=None if found is None else found.value,
        noise_scale=None if found is None else found.scale,
        doubt=doubt,
        meaning=MEANING,
        settings=msgspec.to_builtins(settings),
        schema=summarise(full),
        plan=plan,
        receipt=prepared.receipt(curator.events),
    )


def _compare(
    curator: Curator, x: str, y: str, settings: DirectionSettings, progress: Progress
) -> tuple[NoisyDifference | None, str | None, tuple[Stage, ...]]:
    """Release what regressions need, then the difference of both ways unless the model visibly fails."""
    slots, stages = count_slots(curator, settings.rows)
    kernels = curator.ask_kernels(slots)
    functions: ReleasedFunctions | None = None
    ways = {(x, y): False, (y, x): False}
    if settings.regression is RegressionRule.RELEASED:
        progress("table of two columns", 0, 2)
        (released,) = curator.count_tables([(x, y)], TABLE_SHARE, "table for regressions")
        functions = functions_from_table(released, DEGREE)
        why = f"polynomials of degree {DEGREE}, both ways, are computed from it"
        sd = math.sqrt(released.count_variance)
        stages.append(Stage("table for regressions", 1, BINS**2, float(TABLE_SHARE), sd, why))
        if not depends(released):
            why = f"{x} and {y} do not visibly depend on each other, so neither is shown to be a cause"
            return None, why, tuple(stages)
        ways = {(cause, effect): fails(released, functions, cause, effect) for cause, effect in ways}
        if all(ways.values()):
            why = "residuals spread unevenly both ways, so neither is a function plus independent noise"
            return None, why, tuple(stages)
    progress("direction", 1, 2)
    epsilon = epsilon_for(curator.accounting, curator.accounting.remaining)
    label = f"{settings.score.value} both ways"
    if settings.score is Score.SPEARMAN and functions is not None:
        found = kernels.rank_difference(x, y, epsilon, functions, label)
    else:
        regression = functions or Ridge(settings.penalty or default_penalty(slots), settings.bandwidth)
        found = kernels.hsic_difference(x, y, epsilon, regression, settings.bandwidth, label)
    share = 1.0 - sum(stage.share for stage in stages)
    why = f"difference of two scores on {slots} rows, epsilon {float(epsilon):.3g}"
    stages.append(Stage("direction", 1, 1, share, 2**0.5 * found.scale, why))
    cause, effect = (x, y) if found.value <= 0.0 else (y, x)
    if functions is not None and not exceeds_straight_lines(found, functions, released, slots, settings):
        return found, "a straight line with normal noise, which has no direction, would score alike", tuple(stages)
    if ways[cause, effect]:
        return found, f"{cause} → {effect} scored better, but residuals of {effect} spread unevenly", tuple(stages)
    return found, None, tuple(stages)


def depends(table: NoisyCounts) -> bool:
    """Tell whether the two columns of a noisy table visibly depend on each other."""
    tests = independence_from(table.columns, (table,))
    return tests is not None and bool(tests.test(Questions.of([(0, 1, ())])).p_value[0] < SURE_DEPENDENCE)


def fails(table: NoisyCounts, functions: ReleasedFunctions, cause: str, effect: str) -> bool:
    """Tell whether residuals of the effect visibly spread more in some places of the cause than in others.

    Squares of residuals are compared with the cause and with its distance from the middle. Noise and chance in the rows
    are allowed for, and so is that columns are known by bins.
    """
    counts = table.counts if table.columns == (cause, effect) else table.counts.T
    middles = (2.0 * np.arange(BINS) + 1.0) / BINS - 1.0
    function = functions.function(effect, (cause,))
    fitted, edges = (function.values(places[:, None]) for places in (middles, (2.0 * np.arange(BINS + 1)) / BINS - 1.0))
    squares = (middles - fitted[:, None]) ** 2 - (np.diff(edges)[:, None] ** 2) / 12.0
    rows = max(float(counts.sum()), 1.0)

    def mean(values: Floats) -> float:
        return float((counts * values).sum()) / rows

    squares = squares - mean(squares)
    for place in (middles, middles**2):
        across = np.broadcast_to(place[:, None], counts.shape)
        products = squares * (across - mean(across))
        size = math.sqrt(max(mean(squares**2) * mean((across - mean(across)) ** 2), 1e-12))
        chance = max(mean(products**2), 0.0) / rows + table.count_variance * float((products**2).sum()) / rows**2
        found = abs(mean(products))
        if found > VISIBLE_CORRELATION * size and found > VISIBLE_DEVIATIONS * math.sqrt(chance):
            return True
    return False


def exceeds_straight_lines(
    found: NoisyDifference, functions: ReleasedFunctions, table: NoisyCounts, slots: int, settings: DirectionSettings
) -> bool:
    """Tell whether a difference is larger than straight lines with normal noise would give.

    They are drawn with the released means, spreads and correlation, are counted with noise like the rows, and have no
    direction: what they give is chance, and error of the regressions.
    """
    rng = np.random.default_rng(1)  # post-processing: the same release gives the same answer
    x, y = functions.columns
    law = functions.line(x, y)
    larger = 0
    for _ in range(STRAIGHT_DRAWS):
        rows = np.clip(rng.multivariate_normal(*law, slots), -1.0, 1.0)
        bins = np.minimum(((rows + 1.0) / 2.0 * BINS).astype(np.intp), BINS - 1)
        counts = np.bincount(bins[:, 0] * BINS + bins[:, 1], minlength=BINS**2) * table.lattice
        noise = rng.laplace(0.0, math.sqrt(float(table.variance) / 2.0), BINS**2)
        drawn = msgspec.structs.replace(table, values=tuple(np.rint(counts + noise).astype(int).tolist()))
        difference = _score_both_ways(rows, functions_from_table(drawn, DEGREE), settings)
        larger += abs(difference + rng.laplace(0.0, found.scale)) >= abs(found.value)
    return larger <= MOST_LARGER


def _score_both_ways(rows: Floats, functions: ReleasedFunctions, settings: DirectionSettings) -> float:
    """Return the difference that the curator would release of these rows, without noise."""
    nothing = np.empty((0, len(rows)), dtype=np.intp)
    column, rest = (kernel_features(settings.bandwidth, reach) for reach in (COLUMN_REACH, RESIDUAL_REACH))
    scores = []
    for cause, effect in ((0, 1), (1, 0)):
        function = functions.function(functions.columns[effect], (functions.columns[cause],))
        causes, residuals = rows[:, cause], rows[:, effect] - function.values(rows[:, [cause]])
        if settings.score is Score.SPEARMAN:
            scores.append(residual_rank_score(causes, residuals))
        else:
            scores.append(float(root_hsic(column.map(causes), rest.map(residuals), nothing)[0]))
    return scores[0] - scores[1]


def _narrow(schema: Schema, x: str, y: str) -> Schema:
    """Return the schema of the two columns alone, counted in bins of equal width.

    Columns that no additive noise model fits are refused, and pairs whose direction is known.
    """
    if x == y:
        raise MethodError(f"both columns are {x!r}; name two different ones")
    columns = {}
    for name in (x, y):
        if name not in schema.columns:
            raise MethodError(f"the schema has no column {name!r}; its columns are {', '.join(schema.columns)}")
        column = schema.columns[name]
        if not isinstance(column, Numeric):
            raise MethodError(
                f"column {name!r} is not numeric, and the additive noise model is about numbers; choose numeric "
                "columns, or use `discover`"
            )
        # a missing value takes its declared number, and so falls into that number's bin
        number = column.missing_value
        columns[name] = msgspec.structs.replace(column, bins=BINS, missing=number, center=None, spread=None)
    knowledge = schema_knowledge(schema)
    possible = [arc for arc in ((x, y), (y, x)) if knowledge.allows(*arc)]
    if len(possible) < 2:
        known = f"{possible[0][0]} → {possible[0][1]} is the only direction" if possible else "neither direction is"
        raise MethodError(
            f"the schema's background knowledge already answers this: {known} that it allows. Nothing was spent; take "
            "that knowledge out of the schema to ask the rows."
        )
    return schema.narrow(columns)


# the question as runs and ledgers know methods
QUESTION: Final = Method(
    "direction",
    "which of two numeric columns is the cause",
    "Kusner, Sun, Sridharan and Weinberger, Private causal inference, AISTATS 2016",
    "two numeric columns",
    "two releases",
    DirectionSettings,
    # two or three Laplace events are cheapest by plain addition
    accounting=lambda budget, schema, settings, knowledge: PureFilter(budget),
    check=lambda schema, knowledge: None,  # columns were checked by name already
)

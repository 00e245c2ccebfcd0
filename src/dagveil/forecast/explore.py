"""What a budget would buy: the expected skeleton F1 over epsilon, from synthetic tables of the same schema.

Schema, nominal rows and the arguments decide everything; no row is read, and nothing is spent.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from scipy.special import stdtrit

from dagveil._version import __version__
from dagveil.data.schema import Schema, load_schema
from dagveil.errors import DataError, MethodError, SchemaError, UnreviewedSchemaError
from dagveil.files import Document, SavedRecord
from dagveil.forecast import choose
from dagveil.forecast.detection import find_weakest
from dagveil.forecast.recommendation import Curve, Point, Recommendation, recommend
from dagveil.forecast.synthetic import STRENGTH, SyntheticLaw
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Amount, Budget
from dagveil.progress import Progress, silent
from dagveil.runs.run import LedgerPlace, UnnamedLedger, find_left, schema_knowledge

EXPLORATION_VERSION = 1  # version of the JSON; readers refuse newer ones
EPSILONS = ("0.1", "0.3", "1", "3", "10")  # budgets that are explored unless others are named
WANTED_F1 = 0.9
MODELS = 10  # synthetic tables
MOST_MODELS = 1000
SECONDS = 300.0  # processor seconds that an exploration may take, by the forecast
CONFIDENCE = 0.95  # of the intervals of means


class Exploration(SavedRecord, frozen=True):
    """Curves of expected accuracy, one for each method, and what they recommend.

    `rows`, `models`, `density`, `strength` and `seed` are those of the synthetic tables. `left_out` has methods that
    fit but would take too long, by the forecast, and `unfit` those that cannot take such tables or budgets, and why.
    """

    format: Literal["dagveil-exploration"]
    version: int
    software: str
    dataset: str
    columns: int
    nominal_rows: int
    delta: str
    rows: int
    models: int
    density: float
    strength: float
    seed: int
    curves: tuple[Curve, ...]
    left_out: tuple[str, ...]
    unfit: dict[str, str]
    recommendation: Recommendation
    notes: tuple[str, ...]

    @property
    def table(self) -> tuple[dict[str, Any], ...]:
        """One row for each method and epsilon, ready for a data frame."""
        return tuple(
            {
                "method": curve.method,
                **msgspec.structs.asdict(point),
                "epsilon": float(point.epsilon),
                "weakest": point.weakest.typical,
            }
            for curve in self.curves
            for point in curve.points
        )

    def to_svg(self) -> str:
        """Draw the curves."""
        return self._draw("draw_exploration")

    def to_html(self) -> str:
        """Write a page that stands alone: curves, words and numbers."""
        return self._draw("render_exploration")

    def save(self, path: str | Path) -> None:
        """Write a file; its ending says what: .json, .svg or .html."""
        path = Path(path)
        writers = {".json": self.to_json, ".svg": self.to_svg, ".html": self.to_html}
        path.write_text(writers[check_ending(path)]().rstrip("\n") + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        """Show curves and words in a notebook."""
        return self._draw("draw_exploration_inline")

    def _draw(self, function: str) -> str:
        # drawings lie above this layer, and are imported only here
        drawn: str = getattr(import_module("dagveil.report.exploration"), function)(self)
        return drawn


def check_ending(path: str | Path) -> str:
    """Return the ending of a file that an exploration can be written to."""
    ending = Path(path).suffix.lower()
    if ending not in (".json", ".svg", ".html"):
        raise MethodError(
            f"{Path(path).name!r}: an exploration is written as .svg, .html or .json; choose one of these"
        )
    return ending


def explore(
    schema: Schema | str | Path,
    epsilons: Sequence[Amount] = EPSILONS,
    delta: Amount = "1e-6",
    *,
    methods: Sequence[str] | None = None,
    wanted_f1: float = WANTED_F1,
    degree: float | None = None,
    strength: float = STRENGTH,
    models: int = MODELS,
    rows: int | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
    workers: int = 1,
    knowledge: Knowledge | None = None,
    ledger: LedgerPlace = UnnamedLedger.DEFAULT,
    progress: Progress = silent,
) -> Exploration:
    """Draw synthetic tables of a schema, run the methods that fit, and say what each epsilon buys.

    - `schema`: columns, levels, bounds and nominal rows; or the path of a schema.toml. No rows are needed.
    - `epsilons`, `delta`: budgets to explore.
    - `methods`: names; None takes every method that fits and does not take too long.
    - `wanted_f1`: accuracy of the skeleton that a budget is sought for.
    - `degree`: edges per column of synthetic graphs; None takes 1.5, or half of all pairs if that is less.
    - `strength`: mean strength of synthetic edges.
    - `models`: number of synthetic tables.
    - `rows`: rows of the real table; None takes the schema's nominal number.
    - `seed`: seed of all draws: the same seed gives the same curves.
    - `seconds`: processor seconds, by the forecast with shipped constants: beyond them slow methods are left out, then
      rows.
    - `workers`: processes.
    - `knowledge`: background knowledge; None takes the schema's.
    - `ledger`: as in `measure_source`: not more is recommended than is left of the lifetime budget. Nothing is written
      to it.
    - `progress`: told how many runs are done.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> columns = {name: Boolean(outside="false") for name in "abcd"}
    >>> schema = Schema(dataset="clinic", columns=columns, reviewed=True, nominal_rows=2000)
    >>> found = explore(schema, [0.1, 3], methods=["measure"], models=3)
    >>> low, high = (row["f1"] for row in found.table)
    >>> low < high
    True
    """
    schema = schema if isinstance(schema, Schema) else load_schema(schema)
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    nominal = _check(schema, wanted_f1, models, rows, seed, seconds, workers)
    law = SyntheticLaw(degree, strength)
    density = law.density(len(schema.columns))
    if not epsilons:
        raise MethodError("no epsilon is named; give at least one, for example 1")
    by_epsilon = {budget.epsilon: budget for budget in (Budget.of(epsilon, delta) for epsilon in epsilons)}
    budgets = tuple(by_epsilon[epsilon] for epsilon in sorted(by_epsilon))
    left = find_left(ledger, schema.dataset)
    if left is not None and left < budgets[0].epsilon:
        raise MethodError(
            f"epsilon {float(left):.4g} is left of the lifetime budget of {schema.dataset!r}, less than any that is "
            "explored; explore smaller ones (--epsilons), or another ledger (--ledger)"
        )
    fitting, unfit = _choose_methods(schema, knowledge, budgets, methods)
    tried = [method_named(name) for name in fitting]
    public = schema, knowledge, tried, budgets, models, nominal, seconds
    effort = choose.fit_time_limit(*public, may_leave_out=methods is None)
    scaled = tuple(choose.scale_budget(budget, nominal, effort.rows) for budget in budgets)
    trials = choose.Trials(schema, knowledge, law, effort, scaled, models, seed)
    outcomes = choose.run_trials(trials, workers, progress)
    curves = _draw_curves(schema, nominal, effort.methods, budgets, outcomes)
    return Exploration(
        format="dagveil-exploration",
        version=EXPLORATION_VERSION,
        software=__version__,
        dataset=schema.dataset,
        columns=len(schema.columns),
        nominal_rows=nominal,
        delta=str(budgets[0].delta),
        rows=effort.rows,
        models=models,
        density=density,
        strength=strength,
        seed=seed,
        curves=curves,
        left_out=effort.left_out,
        unfit=unfit,
        recommendation=recommend(curves, wanted_f1, schema, budgets[0].delta, nominal, left),
        notes=_describe_effort(effort, nominal, models, seconds),
    )


def _check(
    schema: Schema, wanted_f1: float, models: int, rows: int | None, seed: int, seconds: float, workers: int
) -> int:
    """Refuse what cannot be explored; return the number of rows."""
    if not schema.reviewed:
        raise UnreviewedSchemaError(
            f"the schema of {schema.dataset!r} is unreviewed: its levels and bounds were read from the data, and what "
            "is explored with them is shown. Check them and set reviewed = true."
        )
    if not 0.0 < wanted_f1 <= 1.0:
        raise MethodError(f"the wanted F1 is {wanted_f1:g}; choose a number above 0 and at most 1, for example 0.9")
    if not 2 <= models <= MOST_MODELS:
        raise MethodError(f"models is {models}; choose between 2 and {MOST_MODELS}: an interval needs two")
    if not 0.0 < seconds < math.inf or workers < 1 or seed < 0:
        raise MethodError("seconds must be above 0, workers at least 1, and the seed at least 0")
    nominal = schema.nominal_rows if rows is None else rows
    if nominal is None:
        raise SchemaError(
            "the number of rows is unknown: set nominal_rows in the schema, or give a number (--rows); none is read"
        )
    if nominal < 1:
        raise MethodError(f"rows is {nominal}; give at least 1")
    return nominal


def _choose_methods(
    schema: Schema, knowledge: Knowledge, budgets: tuple[Budget, ...], named: Sequence[str] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the methods to try, and why others cannot be tried."""
    if named is not None:
        if not named:
            raise MethodError("no method is named; `dagveil methods` lists them")
        for name in named:
            choose.check_method(method_named(name), schema, knowledge, budgets)
        return list(dict.fromkeys(named)), {}
    fits = choose.fitting_methods(schema, knowledge, budgets)
    fitting = [name for name, refusal in fits.items() if refusal is None]
    if not fitting:
        raise MethodError(f"no method fits this schema at these budgets; measure says: {fits['measure']}")
    return fitting, {name: refusal for name, refusal in fits.items() if refusal is not None}


def _draw_curves(
    schema: Schema,
    rows: int,
    methods: tuple[str, ...],
    budgets: tuple[Budget, ...],
    outcomes: Sequence[choose.TrialOutcome],
) -> tuple[Curve, ...]:
    weakest = [find_weakest(schema, budget, rows) for budget in budgets]
    curves = []
    for method in methods:
        points = []
        for place, budget in enumerate(budgets):
            here = [outcome for outcome in outcomes if (outcome.method, outcome.place) == (method, place)]
            failure = next((outcome.failure for outcome in here if outcome.failure is not None), None)
            order = choose.most_common_order([outcome.order for outcome in here if outcome.order is not None])
            scores = [outcome.f1 for outcome in here if outcome.f1 is not None]
            mean = low = high = None
            if failure is None:
                # the ends of Student's interval, inside [0, 1]
                mean, runs = float(np.mean(scores)), len(scores)
                reach = stdtrit(runs - 1, 0.5 + CONFIDENCE / 2.0) * np.std(scores, ddof=1) / math.sqrt(runs)
                low, high = max(0.0, mean - float(reach)), min(1.0, mean + float(reach))
            points.append(Point(budget.epsilon, mean, low, high, order, weakest[place], failure))
        curves.append(Curve(method, tuple(points)))
    return tuple(curves)


def _describe_effort(effort: choose.TimeLimit, nominal: int, models: int, seconds: float) -> tuple[str, ...]:
    notes = [
        f"Means over {models} synthetic tables of {effort.rows} rows, with 95 % intervals. Graphs and strengths come "
        "from a public law; real ones may be easier or harder. No row was read, and nothing was spent."
    ]
    if effort.rows < nominal:
        notes.append(
            f"Synthetic tables have {effort.rows} rows instead of {nominal}, and epsilon was multiplied by "
            f"{nominal / effort.rows:.3g} for them, so that noise keeps its share: with the nominal rows the forecast "
            f"exceeds {seconds:g} seconds. Sampling matters a little more than it will."
        )
    if effort.left_out:
        notes.append(
            f"Left out, because they would take too long by the forecast: {', '.join(effort.left_out)}. Name them, or "
            "allow more seconds, to see them."
        )
    if effort.seconds > seconds:
        notes.append(f"The forecast was {effort.seconds:.0f} processor seconds, and nothing more could be left out.")
    return tuple(notes)


def _check_exploration(found: Exploration) -> None:
    """Refuse curves that no exploration draws."""
    epsilons = [[point.epsilon for point in curve.points] for curve in found.curves]
    shares = [found.density, found.recommendation.wanted_f1, found.recommendation.f1]
    for curve in found.curves:
        for point in curve.points:
            weak = point.weakest
            shares += [s for s in (point.f1, point.low, point.high, weak.typical, weak.worst) if s is not None]
    fits = bool(epsilons) and bool(epsilons[0]) and all(row == epsilons[0] for row in epsilons)
    fits = fits and all(0 < epsilon <= 10**9 for epsilon in (*epsilons[0], found.recommendation.epsilon))
    if not (fits and epsilons[0] == sorted(epsilons[0]) and all(0.0 <= share <= 1.0 for share in shares)):
        raise DataError("the curves of this exploration do not fit together, so it is damaged; explore again")


_DOCUMENT = Document(
    Exploration,
    "dagveil-exploration",
    EXPLORATION_VERSION,
    "a dagveil exploration",
    "the JSON of an exploration",
    "`dagveil plan --explore`",
    "explore again",
    check=_check_exploration,
)


def load_exploration(path: str | Path) -> Exploration:
    """Read an exploration from a file."""
    return _DOCUMENT.open(path)

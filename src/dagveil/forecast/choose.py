"""The method `auto`: trial runs on synthetic tables, whose graphs are known, choose from public facts alone."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from dagveil.data.schema import Schema, load_schema
from dagveil.errors import DagveilError, MethodError
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.evidence.bundle import Candidate, Choice
from dagveil.forecast.synthetic import SyntheticLaw, SyntheticTable, make_synthetic
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import METHODS, Method, method_named
from dagveil.privacy.budget import Amount, Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.release import NoisyCounts, NoisyInteractions
from dagveil.progress import Progress, silent
from dagveil.runs.cost import estimate_cost, work_of_run
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.machine_speed import Speed
from dagveil.runs.run import schema_knowledge
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

MADE_CELL = 1.5e-7  # seconds to make one synthetic cell
FEWEST_ROWS = 10_000  # rows below which synthetic tables are not cut


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """What is tried. `seconds` are processor seconds that are foreseen; what is `left_out` would take too long."""

    rows: int
    methods: tuple[str, ...]
    left_out: tuple[str, ...]
    seconds: float


def fit_time_limit(
    schema: Schema,
    knowledge: Knowledge,
    methods: Sequence[Method],
    budgets: Sequence[Budget],
    models: int,
    rows: int,
    limit: float,
    *,
    may_leave_out: bool,
) -> TimeLimit:
    """Leave out the slowest methods, then cut rows, until the forecast is within the limit.

    The first method is never left out, and none is that was asked for by name.
    """

    def forecast(names: Sequence[Method], n_rows: int) -> float:
        runs = sum(forecast_run(schema, knowledge, method, budget, n_rows) for method in names for budget in budgets)
        return models * (runs + MADE_CELL * n_rows * len(schema.columns))

    kept = list(methods)
    fewest = min(rows, FEWEST_ROWS)
    while may_leave_out and len(kept) > 1 and forecast(kept, rows) > limit:
        slowest = max(kept[1:], key=lambda method: forecast([method], rows))
        if forecast([slowest], fewest) <= limit / len(kept):
            break  # it is the rows that take long
        kept.remove(slowest)
    while rows > fewest and forecast(kept, rows) > limit:
        rows = max(fewest, rows // 2)
    names = {method.name for method in kept}
    left_out = tuple(method.name for method in methods if method.name not in names)
    return TimeLimit(rows, tuple(method.name for method in kept), left_out, forecast(kept, rows))


def forecast_run(schema: Schema, knowledge: Knowledge, method: Method, budget: Budget, rows: int) -> float:
    """Return the processor seconds of one run on a table in memory, without redraws."""
    weight = 1.0
    if method.release is None or method.name not in METHODS:
        weight = method.relative_time
        method = METHODS["measure"]
    settings = method.read_settings(None)
    accounting = method.accounting(budget, schema, settings, knowledge)
    sized = msgspec.structs.replace(schema, nominal_rows=rows)
    work = work_of_run(sized, method, accounting, settings, knowledge)
    cost = estimate_cost(replace(work, noise=NoiseKind.EXACT, held=True), Speed())
    # the program has started already
    return weight * (cost.seconds - cost.steps[0].seconds)


STAGE = "trial runs on synthetic tables"  # what progress is told


@dataclass(frozen=True, slots=True)
class Trials:
    """Runs on synthetic tables, one for each model. Every method runs at every budget, with one seed of its noise."""

    schema: Schema
    knowledge: Knowledge
    law: SyntheticLaw
    effort: TimeLimit
    budgets: tuple[Budget, ...]
    models: int
    seed: int


class TrialOutcome(msgspec.Struct, frozen=True):
    """What came of one run: its skeleton's F1, the largest order of released tables, or why it failed."""

    method: str
    place: int
    f1: float | None = None
    order: int | None = None
    failure: str | None = None


def run_trials(trials: Trials, workers: int, progress: Progress) -> list[TrialOutcome]:
    """Run all of them, in one process or in several; the outcomes are the same."""
    total = trials.models * len(trials.effort.methods) * len(trials.budgets)
    done: list[TrialOutcome] = []

    def tell(further: int) -> None:
        progress(STAGE, len(done) + further, total)

    tell(0)
    if workers <= 1 or trials.models <= 1:
        for model in range(trials.models):
            done += run_trial(trials, model, tell)
            tell(0)
        return done
    # spawned, not forked: a fork would copy the state of threads and generators
    with ProcessPoolExecutor(min(workers, trials.models), mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(run_trial, trials, model) for model in range(trials.models)]:
            done += future.result()
            tell(0)
    return done


def run_trial(trials: Trials, model: int, told: Callable[[int], None] = lambda done: None) -> list[TrialOutcome]:
    """Run every method at every budget on one synthetic table."""
    key = (trials.seed, model)
    rng = np.random.default_rng(key)
    made = make_synthetic(trials.schema, trials.knowledge, trials.law, trials.effort.rows, rng)
    # the same draws at every budget: what differs along a curve is the budget alone
    seed = int(np.random.SeedSequence((*key, 1)).generate_state(1)[0])
    outcomes: list[TrialOutcome] = []
    for method in trials.effort.methods:
        for place, budget in enumerate(trials.budgets):
            outcomes.append(_run(made, trials.knowledge, method, place, budget, seed))
            told(len(outcomes))
    return outcomes


def most_common_order(orders: Sequence[int]) -> int | None:
    """Return the order that most runs had; the smaller one if two are as common."""
    counts = Counter(orders)
    return min(counts, key=lambda order: (-counts[order], order)) if counts else None


def _run(
    made: SyntheticTable, knowledge: Knowledge, method: str, place: int, budget: Budget, seed: int
) -> TrialOutcome:
    table = made.table
    asked = (table, table.schema, budget.epsilon, budget.delta)
    run: Any = {"method": method, "knowledge": knowledge, "noise": NoiseKind.SEEDED, "seed": seed, "ledger": None}
    order = None
    try:
        if method_named(method).release is None:
            result = discover(*asked, **run)
        else:
            evidence = measure_source(*asked, **run)
            # columns that a released table joins; a matrix of moments joins pairs
            tables = (NoisyCounts, NoisyInteractions)
            sizes = (len(one.columns) if isinstance(one, tables) else 2 for one in evidence.releases)
            order = max(sizes, default=None)
            result = search_evidence(evidence, SearchSettings(redraws=0), knowledge=knowledge)
    except DagveilError as error:
        return TrialOutcome(method, place, failure=str(error))
    return TrialOutcome(method, place, skeleton_f1(result.graph.cpdag, made.dag), order)


AUTO_SEED = 1  # the seed of every choice: public, so that anyone can repeat it
AUTO_MODELS = 5  # synthetic tables by which a method is chosen
AUTO_SECONDS = 5.0  # processor seconds that a choice may take, by the forecast
# means of F1 that differ by no more than this are a tie; `measure` wins ties, then what the catalogue lists first
TIE = 0.01
DEFAULT = "measure"  # what is taken where nothing can be tried


def fitting_methods(schema: Schema, knowledge: Knowledge, budgets: tuple[Budget, ...]) -> dict[str, str | None]:
    """Return every method of dagveil, with None if it takes such tables and budgets, and otherwise why it does not."""
    found: dict[str, str | None] = {}
    for name, method in METHODS.items():
        try:
            check_method(method, schema, knowledge, budgets)
            found[name] = None
        except DagveilError as error:
            found[name] = str(error)
    return found


def check_method(method: Method, schema: Schema, knowledge: Knowledge, budgets: tuple[Budget, ...]) -> None:
    """Refuse a method that could not run with its own settings at one of these budgets."""
    if method.release is None and method.ask is None:
        raise MethodError(f"{method.name} has no sound calibration, so there is nothing to try")
    settings = method.read_settings(None)
    method.check_schema(schema, knowledge)
    for budget in budgets:
        method.accounting(budget, schema, settings, knowledge)


def choose_method(
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = "1e-6",
    *,
    knowledge: Knowledge | None = None,
    releasing_only: bool = False,
    progress: Progress = silent,
) -> Choice:
    """Choose a method for a run, before any row is read."""
    schema = schema if isinstance(schema, Schema) else load_schema(schema)
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    budget = Budget.of(epsilon, delta)
    rows = schema.nominal_rows
    fits = fitting_methods(schema, knowledge, (budget,))
    feasible = [
        METHODS[name]
        for name, refusal in fits.items()
        if refusal is None and (METHODS[name].release is not None or not releasing_only)
    ]
    if not feasible:
        raise MethodError(f"no method fits this schema and budget; {DEFAULT} says: {fits[DEFAULT]}")
    first = feasible[0].name
    if rows is None:
        why = "the schema declares no nominal number of rows, so nothing could be tried"
        return Choice(first, f"Method auto: {first}, the default; {why}.")
    effort = fit_time_limit(schema, knowledge, feasible, [budget], AUTO_MODELS, rows, AUTO_SECONDS, may_leave_out=True)
    if len(effort.methods) == 1:
        reason = "no other method fits" if len(feasible) == 1 else "trying others on so many columns takes too long"
        return Choice(first, f"Method auto: {first}; {reason}.", left_out=effort.left_out)
    scaled = (scale_budget(budget, rows, effort.rows),)
    trials = Trials(schema, knowledge, SyntheticLaw(), effort, scaled, AUTO_MODELS, AUTO_SEED)
    outcomes = run_trials(trials, 1, progress)
    scores = {
        name: [one.f1 for one in outcomes if one.method == name and one.f1 is not None] for name in effort.methods
    }
    tried = [Candidate(name, round(fmean(f1), 4)) for name, f1 in scores.items() if len(f1) == AUTO_MODELS]
    ranked = tuple(sorted(tried, key=lambda candidate: -candidate.f1))
    if not ranked:
        return Choice(first, f"Method auto: {first}, the default; no trial ended well.", left_out=effort.left_out)
    best = max(candidate.f1 for candidate in ranked)
    # ranked by F1 and then by the catalogue, whose first entry is `measure`
    tied = {candidate.method for candidate in ranked if candidate.f1 >= best - TIE - 1e-9}
    chosen = next(name for name in effort.methods if name in tied)
    why = _describe_choice(chosen, ranked, effort.rows, rows, budget)
    return Choice(chosen, why, ranked, effort.left_out, effort.rows, AUTO_MODELS, AUTO_SEED)


def check_auto(has_options: bool, calibration: Calibration) -> None:
    """Refuse what says something about a method that is yet to be chosen."""
    if calibration is not Calibration.SOUND:
        raise MethodError("auto chooses among sound methods; name the method that is to run as published")
    if has_options:
        raise MethodError(
            "auto chooses the method, so its settings cannot be given before; name a method, or leave "
            "the settings out (--set)"
        )


def scale_budget(budget: Budget, nominal: int, rows: int) -> Budget:
    """Return the budget at which fewer rows suffer as much from noise as the nominal ones do.

    Noise beside the rows goes with epsilon times rows. With delta above 0 a larger epsilon buys a little less than in
    proportion, so this is on the careful side.
    """
    return budget if rows == nominal else Budget(budget.epsilon * nominal / rows, budget.delta)


def _describe_choice(chosen: str, ranked: tuple[Candidate, ...], rows: int, nominal: int, budget: Budget) -> str:
    scores = {candidate.method: candidate.f1 for candidate in ranked}
    others = [f"{name} {f1:.2f}" for name, f1 in scores.items() if name != chosen]
    beside = f" ({', '.join(others)})" if others else ""
    fewer = "" if rows == nominal else f" in place of {nominal}, and epsilon raised in proportion"
    tie = f" Differences of at most {TIE:g} count as a tie." if scores[chosen] < max(scores.values()) else ""
    return (
        f"Method auto: {chosen}. At {budget.words}, on {AUTO_MODELS} synthetic tables of this schema with {rows} rows"
        f"{fewer}, its skeleton had a mean F1 of {scores[chosen]:.2f}{beside}.{tie} Schema, nominal rows and "
        "budget decided; no row was read."
    )

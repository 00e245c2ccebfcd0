"""The method `auto`: a trial on synthetic tables chooses, from schema, nominal rows and budget alone."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from dagveil.data.schema import Schema, load_schema
from dagveil.errors import DagveilError, MethodError
from dagveil.evidence.bundle import Candidate, Choice
from dagveil.forecast.synthetic import SyntheticLaw
from dagveil.forecast.trial_runs import TrialRun, fit_time_limit, run_trials
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import METHODS
from dagveil.methods.method import Method
from dagveil.privacy.budget import Amount, Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress, silent
from dagveil.runs.run import schema_knowledge

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
    trials = [
        TrialRun(schema, knowledge, SyntheticLaw(), effort.rows, AUTO_SEED, model, effort.methods, scaled)
        for model in range(AUTO_MODELS)
    ]
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

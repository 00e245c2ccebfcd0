"""What a run would ask, how noisy its answers would be, and what it would take, from public facts alone."""

from __future__ import annotations

from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.methods.catalogue import method_named
from dagveil.plans.plan_file import MeasurementPlan
from dagveil.plans.planning import plan_measurement
from dagveil.plans.work import forecast_plan, work_at_site, work_of_search
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.cost import Cost, estimate_cost, tell_bytes, tell_seconds
from dagveil.runs.machine_speed import load_speed
from dagveil.runs.run import schema_knowledge
from dagveil.runs.work import work_of_run
from dagveil.studio.responses import PlanFacts, PlannedStage, PlannedStep

SHORTEST = 0.01
"""Seconds below which nobody cares."""

ADAPTIVE = (
    "This method chooses each question by the answers before it, so its questions are not known beforehand. It never "
    "spends more than the budget: it stops and returns what it has."
)
SINGLE = (
    "The stages are those of a plan that is fixed before any row is read. The run itself may choose its last questions "
    "by its first answers, within the same budget."
)


def foresee(schema: Schema, method: str, budget: Budget, redraws: int) -> PlanFacts:
    """Tell what a run would ask and take.

    Parameters
    ----------
    schema
        Reviewed.
    method
        Its name.
    budget
        Of the run.
    redraws
        Of the search that follows.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> columns = {name: Boolean(outside="false") for name in "abcdefghijkl"}
    >>> schema = Schema(dataset="study", columns=columns, reviewed=True, nominal_rows=1000)
    >>> [stage.stage for stage in foresee(schema, "measure", Budget.of(1, 1e-6), 50).stages]
    ['single columns', 'all pairs']
    """
    chosen = method_named(method)
    settings = chosen.read_settings({})
    knowledge = schema_knowledge(schema)
    chosen.check(schema, knowledge)
    accounting = chosen.accounting(budget, schema, settings, knowledge)
    words = [f"Accounting: {accounting.name}.", f"How it spends: {chosen.cost}."]
    plan: MeasurementPlan | None = None
    if chosen.release is None:
        words.append(ADAPTIVE)
    else:
        try:
            plan = plan_measurement(schema, budget.epsilon, budget.delta, method=method)
            words.append(SINGLE)
        except MethodError as error:
            words.append(f"No plan can be fixed beforehand: {error}.")
    work = work_of_run(schema, chosen, accounting, settings, knowledge, redraws=redraws)
    cost = estimate_cost(work, load_speed()[0]) if plan is None else _add_costs(plan, redraws)
    stages = [] if plan is None else _show_stages(plan)
    return PlanFacts(
        method=method,
        epsilon=str(budget.epsilon),
        delta=str(budget.delta),
        questions=None if plan is None else sum(stage.tables for stage in stages),
        noise="not known beforehand" if plan is None else plan.noise.value,
        stages=stages,
        steps=[
            PlannedStep(step=step.name, time=_tell_time(step.seconds), memory=tell_bytes(step.memory))
            for step in cost.steps
        ],
        words=words,
    )


def _tell_time(seconds: float) -> str:
    return tell_seconds(seconds) if seconds >= SHORTEST else f"under {tell_seconds(SHORTEST)}"


def _show_stages(plan: MeasurementPlan) -> list[PlannedStage]:
    return [
        PlannedStage(
            stage=stage.stage,
            share=float(stage.share),
            tables=stage.tables,
            numbers=stage.cells,
            noise=stage.noise,
            why=ask.why,
        )
        for stage, ask in zip(forecast_plan(plan), plan.asks, strict=True)
    ]


def _add_costs(plan: MeasurementPlan, redraws: int) -> Cost:
    """Put the steps on rows and those of the search together."""
    speed = load_speed()[0]
    site = estimate_cost(work_at_site(plan, plan.sites[0], NoiseKind.OPENDP), speed)
    search = estimate_cost(work_of_search(plan, redraws), speed)
    return Cost((*site.steps[:4], *search.steps[4:]))

"""One site's run by an agreed plan: the questions of the plan, its budget, and nothing else."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from msgspec.structs import replace

from dagveil.curator import Curator
from dagveil.data.schema import Schema, load_schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import EVIDENCE_VERSION, Evidence, Part, Stage, digest_releases
from dagveil.methods.measure_features import MeasureFeaturesSettings, describe_features
from dagveil.methods.measure_mixed import describe_mixed
from dagveil.methods.measure_moments import describe_moments, warn_of_moment_noise
from dagveil.methods.measure_tables import warn_of_noise
from dagveil.methods.method import method_named
from dagveil.plans import plan_file
from dagveil.plans.planning import work_at_site
from dagveil.privacy.noise.kind import DEFAULT_NOISE
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, NoisyMatrix, NoisyPairMoments, Release
from dagveil.progress import silent
from dagveil.runs.result import head
from dagveil.runs.run import RunOptions, open_run


def measure_planned(
    source: Any,
    plan: plan_file.MeasurementPlan | str | Path,
    site: str | None = None,
    *,
    schema: Schema | str | Path | None = None,
    dataset: str | None = None,
    **run: Unpack[RunOptions],
) -> Evidence:
    """Release what an agreed plan asks of one site.

    - `source`: the site's own rows, as in `measure_source`.
    - `plan`: what was agreed on, or its path.
    - `site`: name of this site in the plan; may be left out if there is one only.
    - `schema`: the site's own schema, which must declare the plan's columns. Its data set's name is that of the ledger.
    - `dataset`: name of the data set in the ledger, if the site takes the plan's schema as it is.
    - `run`: as in `measure_source`.
    """
    if not isinstance(plan, plan_file.MeasurementPlan):
        plan = plan_file.load_plan(plan)
    chosen_site = plan.site_named(site)
    own = site_schema(plan, chosen_site.nominal_rows, schema, dataset)
    method = method_named(plan.method)
    work = work_at_site(plan, chosen_site, DEFAULT_NOISE)
    progress = run.get("progress", silent)
    run["accept_draft"] = False  # a plan is followed on a schema that was reviewed
    budget = chosen_site.budget
    accounting = plan.noise.filter(budget)
    releases: list[Release] = []
    stages = []
    with open_run(source, own, budget, method, plan.digest(), accounting=accounting, work=work, run=run) as (
        prepared,
        curator,
    ):
        for done, ask in enumerate(plan.asks):
            progress("following the plan", done, len(plan.asks))
            answers = _ask(curator, ask)
            releases.extend(answers)
            cells = sum(len(answer.values) for answer in answers)
            deviation = noise_deviation(answers[-1])
            stages.append(Stage(ask.stage, len(plan_file.list_sets(ask)), cells, float(ask.share), deviation, ask.why))
        progress("following the plan", len(plan.asks), len(plan.asks))
    receipt = prepared.receipt(curator.events)
    told = tuple(releases)
    return Evidence(
        **head("dagveil-evidence", EVIDENCE_VERSION),
        method=plan.method,
        schema=own,
        plan=tuple(stages),
        findings=(
            f"Site {chosen_site.name!r} of the study {plan.name!r}, by the plan {plan.digest()[:12]}.",
            *_describe_asks(plan),
            *describe_noise(told, stages, chosen_site.nominal_rows),
        ),
        receipt=receipt,
        releases=told,
        study=plan.study,
        parts=(Part(chosen_site.name, digest_releases(told), chosen_site.nominal_rows, receipt),),
    )


def site_schema(
    plan: plan_file.MeasurementPlan, nominal_rows: int, schema: Schema | str | Path | None, dataset: str | None
) -> Schema:
    """Return the schema of a site: its own, checked against the plan's, or the plan's under the site's name."""
    if (schema is None) == (dataset is None):
        raise MethodError(
            "say what the ledger calls this site's table: give its own schema (--schema), or the name of the data set "
            "if the plan's schema is taken as it is (--dataset); one of the two"
        )
    if schema is None:
        return replace(plan.schema, dataset=dataset or "", nominal_rows=nominal_rows)
    own = schema if isinstance(schema, Schema) else load_schema(schema)
    plan_file.check_same_questions(own, plan.schema)
    return replace(own, nominal_rows=nominal_rows)


def noise_deviation(release: Release) -> float:
    """Return the deviation of the noise: in rows for counts, in scaled units for moments."""
    if isinstance(release, NoisyCounts):
        return math.sqrt(release.count_variance)
    if isinstance(release, NoisyInteractions):
        return math.sqrt(release.interaction_variance)
    if isinstance(release, NoisyMatrix | NoisyPairMoments):
        return release.deviation
    return math.sqrt(release.variance) / release.lattice


def describe_noise(releases: Sequence[Release], stages: Sequence[Stage], rows: int) -> list[str]:
    """Say what a reader should know about noise of this size beside so many rows."""
    last = releases[-1]
    if isinstance(last, NoisyMatrix):
        return warn_of_moment_noise(last.deviation, rows)
    # a cell of a pair of yes/no columns is a sum of a quarter of all cells of a joint table
    cells = len(last.values) / 4 if len(releases) == 1 else 1.0
    return warn_of_noise(stages[-1].noise_sd * math.sqrt(cells), rows)


def _describe_asks(plan: plan_file.MeasurementPlan) -> list[str]:
    """Say what a reader should know about the questions themselves."""
    told = []
    for ask in plan.asks:
        if isinstance(ask, plan_file.AskMoments):
            told.append(describe_moments(ask.rows))
        elif isinstance(ask, plan_file.AskFeatures):
            settings = method_named(plan.method).read_settings(plan.settings)
            assert isinstance(settings, MeasureFeaturesSettings)
            told += describe_features(ask.rows, settings)
        elif isinstance(ask, plan_file.AskMixed):
            told += describe_mixed(ask.rows, plan.schema)
    return told


def _ask(curator: Curator, ask: plan_file.Ask) -> tuple[Release, ...]:
    if isinstance(ask, plan_file.AskTables):
        return curator.count_tables(ask.sets, ask.share, ask.stage)
    if isinstance(ask, plan_file.AskMargins):
        return curator.margins(ask.columns, ask.share, ask.stage)
    if isinstance(ask, plan_file.AskInteractions):
        return curator.interactions(ask.sets, ask.share, ask.stage)
    return (curator.outer_products(ask.rows, ask.share, ask.stage),)

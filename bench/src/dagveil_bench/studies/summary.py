"""Means and intervals over the repetitions of a study, and what the study varies."""

import enum
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from scipy import special

from dagveil_bench.studies.jobs import Job, list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.trial import Outcome

CONFIDENCE = 0.95  # of the intervals


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its standard deviation, and the half-width of Student's interval around it."""

    runs: int
    mean: float
    deviation: float
    half_width: float


@dataclass(frozen=True, slots=True)
class Spot:
    """One combination of a study, over its repetitions; metrics without a number have no estimate.

    The study wants the `planned` runs, and the store has the `stored`, failed ones included.
    """

    data: str
    n_rows: int
    label: str
    calibration: str
    role: Role
    epsilon: float
    planned: int
    stored: int
    failures: tuple[str, ...]
    estimates: Mapping[Metric, Estimate]


class Axis(enum.Enum):
    """What a study varies."""

    BUDGET = "budget"  # several budgets; tables and panels for each data set and number of rows
    ROWS = "rows"  # one budget and one data set in several numbers of rows
    DATA = "data"  # one budget; tables and panels for each number of rows


def choose_axis(spots: Sequence[Spot]) -> Axis:
    """Return what the contenders of a study vary."""
    if len({spot.epsilon for spot in spots if spot.role is Role.CONTENDER}) != 1:
        return Axis.BUDGET
    several_rows = len({spot.n_rows for spot in spots}) > 1
    return Axis.ROWS if several_rows and len({spot.data for spot in spots}) == 1 else Axis.DATA


def summarise(study: Study, outcomes: Mapping[str, Outcome]) -> list[Spot]:
    """Average the stored runs of every combination of a study, in the order of the plan."""
    groups: dict[tuple[str, int, str, float], list[Job]] = {}
    jobs = list_jobs(study)
    for job in jobs:
        groups.setdefault((job.data, job.n_rows, job.label, job.epsilon), []).append(job)
    answers = [job for job in jobs if job.label == study.answered_by and outcomes.get(job.key, Outcome()).numbers]
    samples = {(job.data, job.n_rows, job.sample) for job in answers}
    counted = {job.key for job in jobs if not samples or (job.data, job.n_rows, job.sample) in samples}
    return [_summarise_one(each, outcomes, counted) for each in groups.values()]


def estimate_mean(values: Sequence[float]) -> Estimate:
    """Average numbers; a single one has no interval. Totals that publications report can be too large to add up."""
    count = len(values)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.mean(values))
        if count < 2:
            return Estimate(count, mean, math.nan, math.nan)
        deviation = float(np.std(values, ddof=1))
    quantile = float(special.stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    return Estimate(count, mean, deviation, quantile * deviation / math.sqrt(count))


def _summarise_one(jobs: Sequence[Job], outcomes: Mapping[str, Outcome], counted: AbstractSet[str]) -> Spot:
    """Average runs; those that are not `counted` are stored all the same."""
    found = [outcomes[job.key] for job in jobs if job.key in outcomes]
    averaged = [outcomes[job.key] for job in jobs if job.key in outcomes and job.key in counted]
    estimates = {}
    for metric in Metric:
        values = [number for outcome in averaged if not math.isnan(number := outcome.of(metric))]
        if values:
            estimates[metric] = estimate_mean(values)
    first = jobs[0]
    return Spot(
        data=first.data,
        n_rows=first.n_rows,
        label=first.label,
        calibration=first.calibration.value,
        role=first.role,
        epsilon=first.epsilon,
        planned=len(jobs),
        stored=len(found),
        failures=tuple(outcome.error for outcome in found if outcome.error is not None),
        estimates=estimates,
    )

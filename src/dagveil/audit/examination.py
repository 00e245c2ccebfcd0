"""The whole audit of one method: replays, the search for neighbours of its statistics, and attacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dagveil._version import __version__
from dagveil.audit.certificate import CERTIFICATE_VERSION, AttackLine, Certificate, ReplayLine, SensitivityLine
from dagveil.audit.distinguish import distinguish
from dagveil.audit.neighbours import DataKind, fitting_kinds, fitting_relations, make_pair
from dagveil.audit.replay import Replay, replay_method
from dagveil.audit.runs import AttackJob, Setting, attacker_for, collect_runs
from dagveil.audit.search import AuditedStatistic, Effort
from dagveil.audit.sensitivity import audited_statistics, search_statistic
from dagveil.methods.catalogue import Method
from dagveil.methods.measured import Progress, silent
from dagveil.methods.result import now
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.relation import Relation

STATISTICS_OF_DOORS: Final[Mapping[str, tuple[str, ...]]] = {
    "count_rows": ("number of rows",),
    "count_tables": ("tables of counts", "tables of counts, Laplace noise"),
    "magnitudes": ("counts by magnitude",),
    "interactions": ("interactions of pairs",),
    "moments": ("second moments",),
    "features": ("second moments of features",),
    "residual_moments": ("second moments of residuals of public functions",),
    "gradient": ("sum of clipped gradients",),
    "curvature": ("sum of clipped curvatures",),
    "answer": ("score in records",),
    "answer_from_sample": ("score in records",),
    "looks_independent": ("score in records",),
    "choose_number": ("score in records",),
    "choose_separation": ("score in records",),
    "answer_by_median": ("median of parts",),
    "permutation_bit": ("root HSIC, permuted", "root HSIC, pairs as they are", "residual of another slot"),
    "gcm": ("sums of residual products and of their squares", "sums of clipped residuals"),
    "hsic_difference": ("root HSIC, pairs as they are", "residual of another slot"),
    "rank_difference": ("rank score of residuals",),
}
"""The statistics behind each door that answers."""

NAMES_OF_STATISTICS: Final[Mapping[str, str]] = {
    "exact-distance": "exact distance",
    "reconciled-g": "votes of parts",
    "reconciled-chi-square": "votes of parts",
    "median-g": "votes of parts",
    "median-chi-square": "votes of parts",
}
"""Settings of methods whose statistic has another name here."""


def examine_method(
    method: Method,
    effort: Effort,
    budget: Budget,
    options: Mapping[str, Setting] | None = None,
    *,
    runs: int | None = None,
    seed: int = 0,
    folder: Path | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> Certificate:
    """Audit the sound calibration of a method.

    Parameters
    ----------
    method
        Which one.
    effort
        How many neighbours and runs are tried.
    budget
        The epsilon and delta that are claimed.
    options
        Settings of the method, by name.
    runs
        Runs on each table of an attack; None takes those of the effort.
    seed
        Runs and searches are reproducible.
    folder
        Where runs are kept, so that an audit that was stopped goes on; None keeps them in memory.
    workers
        Processes for the runs.
    progress
        Told what is being done.
    """
    chosen = dict(options or {})
    places = [(kind, relation) for kind in fitting_kinds(method) for relation in fitting_relations(method, kind)]
    replays = []
    for done, (kind, relation) in enumerate(places):
        progress("replays", done, len(places))
        replays.append(replay_method(method, make_pair(kind, relation), budget, chosen, seed))
    progress("replays", len(places), len(places))
    statistics = statistics_behind(method, replays, chosen)
    lines = []
    for done, statistic in enumerate(statistics):
        progress("neighbours", done, len(statistics))
        lines += [
            SensitivityLine.of(search_statistic(statistic, relation, effort.pairs, seed))
            for relation in statistic.relations
        ]
    progress("neighbours", len(statistics), len(statistics))
    attacks = []
    for kind, relation in _attacked(places, effort):
        job = AttackJob(
            method.name,
            kind,
            relation,
            str(budget.epsilon),
            str(budget.delta),
            tuple(sorted(chosen.items())),
            seed,
        )
        path = None if folder is None else folder / f"{method.name}-{kind.value}-{relation.value}.jsonl"
        first, second = collect_runs(job, runs or effort.runs, path, workers, _named(progress, kind, relation))
        attack = distinguish(first, second, attacker_for(job).names, float(budget.delta))
        attacks.append(AttackLine.of(kind, relation, attack))
    return Certificate(
        format="dagveil-audit",
        version=CERTIFICATE_VERSION,
        software=f"dagveil {__version__}",
        created=now(),
        method=method.name,
        options=chosen,
        effort=effort,
        epsilon=str(budget.epsilon),
        delta=str(budget.delta),
        replays=tuple(ReplayLine.of(replay) for replay in replays),
        statistics=tuple(lines),
        attacks=tuple(attacks),
    )


def statistics_behind(
    method: Method, replays: list[Replay], options: Mapping[str, Setting]
) -> tuple[AuditedStatistic, ...]:
    """Return the statistics whose sensitivity the method relied on: those of its doors, and the one of its settings."""
    wanted = {name for replay in replays for door, _ in replay.doors for name in STATISTICS_OF_DOORS[door]}
    statistic = getattr(method.read_settings(Calibration.SOUND, options), "statistic", None)
    if isinstance(statistic, str):
        wanted.add(NAMES_OF_STATISTICS.get(statistic, statistic))
    return tuple(one for one in audited_statistics() if one.name in wanted)


def _attacked(places: list[tuple[DataKind, Relation]], effort: Effort) -> list[tuple[DataKind, Relation]]:
    """Return the pairs that are attacked: small ones only, and one kind of columns in a quick audit."""
    small = [place for place in places if place[0] is not DataKind.MANY_LEVELS]
    return [place for place in small if effort is Effort.FULL or place[0] is small[0][0]]


def _named(progress: Progress, kind: DataKind, relation: Relation) -> Progress:
    def tell(stage: str, done: int, total: int) -> None:
        progress(f"{stage}, {kind.value}, {relation.value}", done, total)

    return tell

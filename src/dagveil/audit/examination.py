"""The whole audit of one method: replays, the search for neighbours of its statistics, and attacks."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dagveil._version import __version__
from dagveil.audit import neighbours
from dagveil.audit.attacks import (
    Attack,
    Membership,
    distinguish,
    find_reachable,
    infer_membership,
    membership_kind,
    membership_options,
)
from dagveil.audit.certificate import CERTIFICATE_VERSION, AttackLine, Certificate, ReplayLine
from dagveil.audit.doors import READERS
from dagveil.audit.published import PublishedAttacker, published_case, published_claim
from dagveil.audit.replay import Replay, replay_method
from dagveil.audit.runs import AttackJob, BlockStore, attacker_for, choose_conduct, collect_runs, work_through
from dagveil.audit.search import Effort, Finding
from dagveil.audit.sensitivity import audited_statistics, search_statistic
from dagveil.audit.transcript import Attacker
from dagveil.methods.method import Method
from dagveil.papers.publication import read_settings
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress, silent
from dagveil.runs.result import now

CHARGED_RUNS: Final = 10  # runs whose charges say what the best attack could prove; adaptive ones differ a little
AGAIN: Final = 1_000_000  # added to the seed of an attack that is done once more
# settings of methods whose statistic has another name here
NAMES_OF_STATISTICS: Final[Mapping[str, str]] = {
    "exact-distance": "exact distance",
    "reconciled-g": "votes of parts",
    "reconciled-chi-square": "votes of parts",
    "median-g": "votes of parts",
    "median-chi-square": "votes of parts",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How an audit is done; numbers that are None are those of the effort."""

    effort: Effort = Effort.QUICK
    runs: int | None = None  # on each table of an attack
    trials: int | None = None  # of membership inference
    seed: int = 0
    store: BlockStore | None = None  # keeps what is done, so that an audit that was stopped goes on
    workers: int = 1
    progress: Progress = silent
    pairs: int | None = None  # of neighbours of each statistic


def examine_method(
    method: Method,
    budget: Budget,
    options: neighbours.Options | None = None,
    plan: Plan | None = None,
    *,
    calibration: Calibration = Calibration.SOUND,
) -> Certificate:
    """Audit a method, quickly without a plan; of a run as published the publication's own claims are tried."""
    plan = plan or Plan()
    chosen = dict(options or {})
    read_settings(method, calibration, chosen)
    if calibration is not Calibration.SOUND:
        return examine_published(method, budget, chosen, plan, calibration)
    places = [
        (kind, relation)
        for kind in neighbours.fitting_kinds(method)
        for relation in neighbours.fitting_relations(method, kind)
    ]
    replays = []
    for done, (kind, relation) in enumerate(places):
        plan.progress("replays", done, len(places))
        replays.append(replay_method(method, neighbours.make_pair(kind, relation), budget, chosen, plan.seed))
    plan.progress("replays", len(places), len(places))
    attacks = [attack_case(method, budget, case, plan) for case in neighbours.attack_cases(method, plan.effort, chosen)]
    tried = method, budget, chosen, plan, calibration
    return _certify(
        *tried,
        relations=tuple(dict.fromkeys(relation for _, relation in places)),
        replays=tuple(msgspec.convert(replay, ReplayLine, from_attributes=True) for replay in replays),
        statistics=search_in_parallel(statistics_behind(method, replays, chosen), None, plan),
        attacks=tuple(attacks),
        memberships=tuple(_infer(method, budget, chosen, plan)),
    )


def _certify(
    method: Method, budget: Budget, options: neighbours.Options, plan: Plan, calibration: Calibration, **found: Any
) -> Certificate:
    return Certificate(
        format="dagveil-audit",
        version=CERTIFICATE_VERSION,
        software=f"dagveil {__version__}",
        created=now(),
        method=method.name,
        calibration=calibration,
        options=dict(options),
        effort=plan.effort,
        epsilon=str(budget.epsilon),
        delta=str(budget.delta),
        **found,
    )


def examine_published(
    method: Method, budget: Budget, options: neighbours.Options, plan: Plan, calibration: Calibration
) -> Certificate:
    """Audit one reading of a publication against what it states and its runs report."""
    case = published_case(method, options)
    job = _make_job(method, case, budget, plan.seed, calibration)
    attacker = attacker_for(job)
    assert isinstance(attacker, PublishedAttacker)
    runs = plan.runs or max(plan.effort.slow_runs, 1000)
    first, second = collect_runs(job, runs, plan.store, plan.workers, _named(plan.progress, job))
    attack = distinguish(first, second, attacker.names, attacker.reported_delta())
    claimed = float(max(first[:, 0].max(), second[:, 0].max()))
    claim = published_claim(method.name)
    tried = method, budget, options, plan, calibration
    return _certify(
        *tried,
        relations=(case.relation,),
        replays=(),
        statistics=search_in_parallel([one.name for one in claim.statistics], method.name, plan),
        attacks=(_write_attack(case, claimed, attack, None, pair=claim.words),),
        readings=attacker.list_readings(),
    )


def attack_case(method: Method, budget: Budget, case: neighbours.Case, plan: Plan) -> AttackLine:
    """Attack a method on one pair, and say what the best attack could have proved.

    An attack that proves more than is claimed is done once more, with fresh runs. The weaker outcome counts: luck does
    not come twice, and a flaw does.
    """
    runs = plan.runs or neighbours.count_runs(method, case, plan.effort)
    job = _make_job(method, case, budget, plan.seed)
    claimed, delta = float(budget.epsilon), float(budget.delta)
    attack = _attack(job, runs, plan)
    if attack.bound > claimed:
        again = _attack(_make_job(method, case, budget, plan.seed + AGAIN), runs, plan)
        attack = min(attack, again, key=lambda one: one.bound)
    attacker = attacker_for(job)
    assert isinstance(attacker, Attacker)
    reachable = max(find_reachable(events, attack.runs, delta) for events in attacker.list_charges(CHARGED_RUNS))
    return _write_attack(case, claimed, attack, reachable, conduct=choose_conduct(job, runs))


def _write_attack(
    case: neighbours.Case, claimed: float, attack: Attack, reachable: float | None, **more: Any
) -> AttackLine:
    facts = {**msgspec.structs.asdict(attack), **more}
    return AttackLine(case.kind, case.relation, dict(case.options), claimed, reachable=reachable, **facts)


def _attack(job: AttackJob, runs: int, plan: Plan) -> Attack:
    first, second = collect_runs(job, runs, plan.store, plan.workers, _named(plan.progress, job))
    return distinguish(first, second, attacker_for(job).names, float(job.budget.delta))


def _infer(method: Method, budget: Budget, options: neighbours.Options, plan: Plan) -> list[Membership]:
    kind = membership_kind(method)
    trials = plan.trials or (plan.effort.slow_trials if neighbours.is_slow(method) else plan.effort.trials)
    lines: list[Membership] = []
    for relation in neighbours.fitting_relations(method, kind):
        case = neighbours.Case(kind, relation, membership_options(method, options))
        job = _make_job(method, case, budget, plan.seed)
        lines += infer_membership(job, trials, plan.store, plan.workers, _named(plan.progress, job))
    return lines


def _make_job(
    method: Method, case: neighbours.Case, budget: Budget, seed: int, calibration: Calibration = Calibration.SOUND
) -> AttackJob:
    options = tuple(sorted(case.options.items()))
    amounts = str(budget.epsilon), str(budget.delta)
    return AttackJob(method.name, case.kind, case.relation, *amounts, options, seed, calibration)


def statistics_behind(method: Method, replays: list[Replay], options: neighbours.Options) -> set[str]:
    """Name the statistics whose sensitivity the method relied on: those of its doors, and the one of its settings."""
    wanted = {name for replay in replays for door, _ in replay.doors for name in READERS[door].statistics}
    statistic = getattr(method.read_settings(options), "statistic", None)
    if isinstance(statistic, str):
        wanted.add(NAMES_OF_STATISTICS.get(statistic, statistic))
    return wanted


class SearchTask(msgspec.Struct, frozen=True):
    """The search for the worst neighbours of one statistic; `published` names a method whose publication states it."""

    statistic: str
    published: str | None
    relation: Relation
    pairs: int
    seed: int


def run_search(task: SearchTask) -> Finding:
    """Do one search."""
    known = audited_statistics() if task.published is None else published_claim(task.published).statistics
    statistic = next(one for one in known if one.name == task.statistic)
    return search_statistic(statistic, task.relation, task.pairs, task.seed)


def search_in_parallel(names: Container[str], published: str | None, plan: Plan) -> tuple[Finding, ...]:
    """Search the worst neighbours of several statistics, under every relation that they are declared for."""
    known = audited_statistics() if published is None else published_claim(published).statistics
    tasks = [
        SearchTask(statistic.name, published, relation, plan.pairs or plan.effort.pairs, plan.seed)
        for statistic in known
        if statistic.name in names
        for relation in statistic.relations
    ]
    return tuple(work_through(tasks, run_search, Finding, plan.store, plan.workers, plan.progress, "neighbours"))


def _named(progress: Progress, job: AttackJob) -> Progress:
    return lambda stage, done, total: progress(f"{stage}, {job.kind.value}, {job.relation.value}", done, total)

"""Membership inference: was this record in the table? The rest of the table is unknown, but from a public model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.audit.cases import Setting
from dagveil.audit.membership_score import weigh_transcript
from dagveil.audit.neighbours import ROWS, DataKind, draw_rows, fitting_kinds, make_schema, odd_record, read_rows
from dagveil.audit.parallel import work_through
from dagveil.audit.recording import Exchange, Recording
from dagveil.audit.replay import RepeatableRun
from dagveil.audit.roc import (
    Interval,
    bound_auc,
    choose_threshold,
    fit_logistic,
    measure_advantage,
    measure_auc,
)
from dagveil.audit.runs import AttackJob, seed_run
from dagveil.audit.store import BlockStore
from dagveil.audit.transcript import Course, read_course, read_graph
from dagveil.data.memory import MemoryTable
from dagveil.errors import DataError
from dagveil.methods.asking import Asked
from dagveil.methods.catalogue import method_named
from dagveil.methods.method import Method
from dagveil.privacy.guessing import bound_advantage
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.relation import Relation
from dagveil.progress import Progress, silent

Floats = NDArray[np.float64]

REFERENCES: Final = 4
"""Tables of the model from which an attacker learns what answers are to be expected, with the record and without."""

BLOCK: Final = 20
"""Trials that are done and kept together; in every other one the record is a member."""

FEWEST_TRIALS: Final = 40

MOST_KNOWN: Final = 1_000
"""Courses of runs whose replays are remembered."""

ANSWERS: Final = "answers"
GRAPH: Final = "graph"


class MemberBlock(msgspec.Struct, frozen=True):
    """Some trials of a job."""

    job: AttackJob
    number: int


Trials = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """What an attacker made of the trials.

    Attributes
    ----------
    attacker
        What he saw: the answers, or the graph only.
    trials
        Judged ones.
    auc, advantage
        With 95 % intervals.
    auc_bound, advantage_bound
        The most that the claim allows.
    """

    attacker: str
    trials: int
    auc: Interval
    auc_bound: float
    advantage: Interval
    advantage_bound: float


class Suspect:
    """Someone who knows a record and the model of the population, and sees what a run told.

    Parameters
    ----------
    job
        What runs.
    """

    def __init__(self, job: AttackJob) -> None:
        self._job = job
        self._repeatable = RepeatableRun(method_named(job.method), job.relation, job.budget, dict(job.options))
        self._known: dict[Course, list[tuple[list[Exchange], list[Exchange]]]] = {}
        self._schema = make_schema(job.kind, job.relation, ROWS)
        self._target = odd_record(job.kind)
        self.columns = tuple(self._schema.columns)

    def __repr__(self) -> str:
        return f"Suspect({self._job.method}, {self._job.kind.value}, {self._job.relation.value})"

    def make_table(self, rng: np.random.Generator, is_member: bool) -> MemoryTable:
        """Draw a table from the model, with the record or without it."""
        rows = draw_rows(self._job.kind, ROWS, rng)
        # whoever is replaced is drawn too
        other = draw_rows(self._job.kind, 1, rng)
        if is_member:
            rows = np.vstack([rows, self._target])
        elif self._job.relation is Relation.REPLACE_ONE:
            rows = np.vstack([rows, other])
        return read_rows(rows, self._schema)

    @cached_property
    def references(self) -> list[tuple[MemoryTable, MemoryTable]]:
        """Tables of the attacker's own, without the record and with it."""
        return [
            (
                self.make_table(np.random.default_rng((self._job.seed, 7, number)), False),
                self.make_table(np.random.default_rng((self._job.seed, 7, number)), True),
            )
            for number in range(REFERENCES)
        ]

    def try_once(self, number: int) -> tuple[float, ...]:
        """Do one trial: whether the record was a member, how much the answers speak for it, and marks of the graph."""
        is_member = number % 2 == 0
        table = self.make_table(np.random.default_rng((self._job.seed, 8, number)), is_member)
        recording = Recording(noise_source(NoiseKind.SEEDED, seed_run(self._job.seed, 2, number)))
        result = self._repeatable.run(table, recording)
        known = self._replay(recording.exchanges)
        score = weigh_transcript(recording.exchanges, [pair[0] for pair in known], [pair[1] for pair in known])
        marks = read_graph(result.graph, self.columns) if isinstance(result, Asked) else ()
        return (float(is_member), score, *marks)

    def _replay(self, told: Sequence[Exchange]) -> list[tuple[list[Exchange], list[Exchange]]]:
        """Return the replays on all references; runs that asked the same have the same ones."""
        course = None if any(exchange.luck for exchange in told) else read_course(told)
        if course is not None and course in self._known:
            return self._known[course]
        known = [
            (self._repeatable.replay(without, told), self._repeatable.replay(with_record, told))
            for without, with_record in self.references
        ]
        if course is not None and len(self._known) < MOST_KNOWN:
            self._known[course] = known
        return known


@lru_cache(maxsize=2)
def _suspect_for(job: AttackJob) -> Suspect:
    return Suspect(job)


def run_trials(block: MemberBlock) -> Trials:
    """Do the trials of a block."""
    suspect = _suspect_for(block.job)
    return tuple(suspect.try_once(number) for number in range(block.number * BLOCK, (block.number + 1) * BLOCK))


def membership_options(method: Method, options: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the settings of the trials: those that concentrate the budget, below those that are given."""
    sharp = next((dict(case.options) for case in method.sharp), {})
    return {**sharp, **options}


def membership_kind(method: Method) -> DataKind:
    """Return the kind of tables that trials are drawn from."""
    return next(kind for kind in fitting_kinds(method) if kind in (DataKind.LEVELS, DataKind.NUMBERS))


def infer_membership(
    job: AttackJob, trials: int, store: BlockStore | None = None, workers: int = 1, progress: Progress = silent
) -> tuple[Membership, ...]:
    """Try so many times, half of them with the record, and say how well both attackers did.

    What an attacker fits, he fits on half of the trials. He is judged on the others.

    Parameters
    ----------
    job
        What runs, on which kind of tables.
    trials
        Rounded up to whole blocks.
    store, workers, progress
        As in `collect_runs`.
    """
    if trials < FEWEST_TRIALS:
        raise DataError(f"membership inference needs at least {FEWEST_TRIALS} trials, not {trials}")
    tasks = [MemberBlock(job, number) for number in range(-(-trials // BLOCK))]
    done = work_through(tasks, run_trials, Trials, store, workers, progress, "membership")
    rows = np.array([row for block in done for row in block], dtype=np.float64)
    found = [judge_scores(ANSWERS, rows[:, 0] > 0.5, rows[:, 1], job)]
    if rows.shape[1] > 2:
        is_member, marks = rows[:, 0] > 0.5, rows[:, 2:]
        weights = fit_logistic(marks[_fitted(len(rows))], is_member[_fitted(len(rows))])
        found.append(judge_scores(GRAPH, is_member, marks @ weights, job))
    return tuple(found)


def _fitted(trials: int) -> NDArray[np.bool_]:
    """Return which trials are fitted on: two of four, one of either kind."""
    return np.asarray(np.arange(trials) % 4 < 2)


def judge_scores(attacker: str, is_member: NDArray[np.bool_], scores: Floats, job: AttackJob) -> Membership:
    """Choose a threshold on half of the trials, judge on the others."""
    fitted = _fitted(len(scores))
    threshold = choose_threshold(scores[fitted & is_member], scores[fitted & ~is_member])
    members, others = scores[~fitted & is_member], scores[~fitted & ~is_member]
    epsilon, delta = float(job.budget.epsilon), float(job.budget.delta)
    return Membership(
        attacker,
        len(members) + len(others),
        measure_auc(members, others),
        bound_auc(epsilon, delta),
        measure_advantage(members, others, threshold),
        bound_advantage(epsilon, delta),
    )

"""Many runs of a method on two neighbouring tables: in parallel, and kept in a store that a later call goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.audit.batched_runs import FEWEST_RUNS, Conduct, FixedRun, find_fixed_run
from dagveil.audit.cases import Setting
from dagveil.audit.neighbours import DataKind, make_pair
from dagveil.audit.parallel import work_through
from dagveil.audit.published_runs import PublishedAttacker, make_published_pair
from dagveil.audit.store import BlockStore
from dagveil.audit.transcript import Attacker
from dagveil.methods.catalogue import method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.relation import Relation
from dagveil.progress import Progress, silent

BLOCK: Final = 50
"""Runs that are done and kept together, if there are not many."""

LARGE_BLOCK: Final = 1_000
"""The same, if there are."""

MANY_RUNS: Final = 5_000

Floats = NDArray[np.float64]


class AttackJob(msgspec.Struct, frozen=True):
    """What is attacked; two jobs that are equal have the same runs.

    Parameters
    ----------
    method
        Name of the method.
    kind, relation
        Which pair of neighbours.
    epsilon, delta
        The claim, as exact fractions in text.
    options
        Settings of the method, names and values.
    seed
        Runs are seeded by it, the table and their number, each for itself.
    calibration
        Sound, or as published.
    """

    method: str
    kind: DataKind
    relation: Relation
    epsilon: str
    delta: str
    options: tuple[tuple[str, Setting], ...] = ()
    seed: int = 0
    calibration: Calibration = Calibration.SOUND

    @property
    def budget(self) -> Budget:
        """The claim."""
        return Budget.of(self.epsilon, self.delta)


class AttackBlock(msgspec.Struct, frozen=True):
    """Some runs of a job on its first (0) or second (1) table."""

    job: AttackJob
    table: int
    number: int
    size: int = BLOCK
    conduct: Conduct = Conduct.EACH


Rows = tuple[tuple[float, ...], ...]


@lru_cache(maxsize=4)
def attacker_for(job: AttackJob) -> Attacker | PublishedAttacker:
    """Return the attacker of a job."""
    method = method_named(job.method)
    if job.calibration is Calibration.PAPER:
        return PublishedAttacker(method, make_published_pair(job.method, job.relation), job.budget, dict(job.options))
    return Attacker(method, make_pair(job.kind, job.relation), job.budget, dict(job.options))


def seed_run(seed: int, *place: int) -> int:
    """Return the seed of one run: long, and another one for every place.

    Examples
    --------
    >>> seed_run(0, 0, 1) != seed_run(0, 1, 0)
    True
    """
    words = np.random.SeedSequence(seed, spawn_key=place).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


@lru_cache(maxsize=4)
def fixed_run_for(job: AttackJob) -> FixedRun | None:
    """Return the course that all runs of a job take; None if there is no such course."""
    attacker = attacker_for(job)
    return find_fixed_run(attacker) if isinstance(attacker, Attacker) else None


def choose_conduct(job: AttackJob, runs: int) -> Conduct:
    """Choose how so many runs are done: together, where that is many and the method allows it."""
    return Conduct.TOGETHER if runs >= FEWEST_RUNS and fixed_run_for(job) is not None else Conduct.EACH


def run_block(block: AttackBlock) -> Rows:
    """Do the runs of a block: the features of each."""
    if block.conduct is Conduct.TOGETHER:
        fixed = fixed_run_for(block.job)
        assert fixed is not None
        # a longer place than that of a run, so that no seed comes twice
        seed = seed_run(block.job.seed, block.table, block.number, 1)
        return tuple(map(tuple, fixed.draw(block.table, block.size, seed).tolist()))
    attacker = attacker_for(block.job)
    source = attacker.pair.second if block.table else attacker.pair.first
    numbers = range(block.number * block.size, (block.number + 1) * block.size)
    return tuple(attacker.watch(source, seed_run(block.job.seed, block.table, run)) for run in numbers)


def collect_runs(
    job: AttackJob, runs: int, store: BlockStore | None = None, workers: int = 1, progress: Progress = silent
) -> tuple[Floats, Floats]:
    """Return the features of so many runs on either table, one row each; rounded up to whole blocks.

    Parameters
    ----------
    job
        What is attacked.
    runs
        On each table.
    store
        Keeps blocks as they are done. What it has of this job already is not done again.
    workers
        Processes.
    progress
        Told how many blocks are done.
    """
    size = BLOCK if runs < MANY_RUNS else LARGE_BLOCK
    conduct = choose_conduct(job, runs)
    tasks = [AttackBlock(job, table, number, size, conduct) for number in range(-(-runs // size)) for table in (0, 1)]
    # the noise of a block is drawn sooner than a process starts
    workers = 1 if conduct is Conduct.TOGETHER else workers
    done = work_through(tasks, run_block, Rows, store, workers, progress, "attack")
    first, second = (_join(done[table::2]) for table in (0, 1))
    return first, second


def _join(blocks: Sequence[Rows]) -> Floats:
    return np.array([row for rows in blocks for row in rows], dtype=np.float64)

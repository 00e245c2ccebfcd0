"""Many runs of a method on two neighbouring tables: in parallel, and kept in a file that a later call goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.audit.neighbours import DataKind, make_pair
from dagveil.audit.transcript import Attacker
from dagveil.errors import DataError
from dagveil.methods.catalogue import method_named
from dagveil.methods.measured import Progress, silent
from dagveil.privacy.budget import Budget
from dagveil.privacy.relation import Relation

BLOCK: Final = 50
"""Runs that are done and written together."""

FORMAT: Final = "dagveil-attack-1"

Floats = NDArray[np.float64]


Setting = str | tuple[str, ...]
"""The value of a setting, or several, as the command line gives them."""


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
    """

    method: str
    kind: DataKind
    relation: Relation
    epsilon: str
    delta: str
    options: tuple[tuple[str, Setting], ...] = ()
    seed: int = 0

    @property
    def budget(self) -> Budget:
        """The claim."""
        return Budget.of(self.epsilon, self.delta)


class _Block(msgspec.Struct, frozen=True):
    table: int
    number: int
    rows: tuple[tuple[float, ...], ...]


@lru_cache(maxsize=4)
def attacker_for(job: AttackJob) -> Attacker:
    """Return the attacker of a job."""
    pair = make_pair(job.kind, job.relation)
    return Attacker(method_named(job.method), pair, job.budget, dict(job.options))


def _run_block(job: AttackJob, table: int, number: int) -> _Block:
    """Do one block of runs on the first (0) or the second (1) table."""
    attacker = attacker_for(job)
    source = attacker.pair.second if table else attacker.pair.first
    rows = []
    for run in range(number * BLOCK, (number + 1) * BLOCK):
        words = np.random.SeedSequence(job.seed, spawn_key=(table, run)).generate_state(2, np.uint64)
        rows.append(attacker.watch(source, int(words[0]) << 64 | int(words[1])))
    return _Block(table, number, tuple(rows))


def collect_runs(
    job: AttackJob, runs: int, path: Path | None = None, workers: int = 1, progress: Progress = silent
) -> tuple[Floats, Floats]:
    """Return the features of so many runs on either table, one row each; rounded up to whole blocks.

    Parameters
    ----------
    job
        What is attacked.
    runs
        On each table.
    path
        A file that blocks are appended to as they are done. What it has of this job already is not done again.
    workers
        Processes.
    progress
        Told how many blocks are done.
    """
    blocks = -(-runs // BLOCK)
    done = {} if path is None else _load(path, job)
    todo = [(table, number) for number in range(blocks) for table in (0, 1) if (table, number) not in done]
    for block in _work(job, todo, workers):
        done[block.table, block.number] = block
        if path is not None:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(block) + b"\n")
        progress("attack", len(done), 2 * blocks)
    tables = [
        np.array([row for number in range(blocks) for row in done[table, number].rows], dtype=np.float64)
        for table in (0, 1)
    ]
    return tables[0], tables[1]


def _work(job: AttackJob, todo: Sequence[tuple[int, int]], workers: int) -> Iterator[_Block]:
    if workers <= 1 or len(todo) <= 1:
        for table, number in todo:
            yield _run_block(job, table, number)
        return
    # spawned, not forked: a fork would copy the state of threads and generators
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_run_block, job, *place) for place in todo]):
            yield future.result()


def _load(path: Path, job: AttackJob) -> dict[tuple[int, int], _Block]:
    """Read the blocks of an earlier call; a last line that was cut off is dropped, and its runs are done again."""
    header = FORMAT.encode() + b" " + msgspec.json.encode(job) + b"\n"
    if not path.exists() or path.stat().st_size == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(header)
        return {}
    content = path.read_bytes()
    if not content.startswith(header):
        raise DataError(f"{path} holds the runs of another attack; choose another file, or remove it")
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        path.write_bytes(whole)
    blocks = [msgspec.json.decode(line, type=_Block) for line in whole[len(header) :].splitlines()]
    return {(block.table, block.number): block for block in blocks}

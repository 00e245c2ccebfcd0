"""Many runs of a method on two neighbouring tables: in parallel, and kept in a store that a later call goes on with.

Where a method asks the same whatever it is told, it is asked once, and noise is drawn for all runs together.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil._version import __version__
from dagveil.audit.neighbours import DataKind, Setting, make_pair
from dagveil.audit.published import PublishedAttacker, make_published_pair
from dagveil.audit.recording import Draw, Exchange, NoiseLaw, Rule
from dagveil.audit.replay import Course, read_course
from dagveil.audit.search import Floats
from dagveil.audit.transcript import Attacker
from dagveil.errors import DataError
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress, silent

CHECKED: Final = 40  # runs on each table that are done one by one, before others are drawn together
FEWEST_RUNS: Final = 2_000  # fewer runs are done one by one in any case
_ADDED: Final = frozenset({Rule.WEIGHTED_SQUARES, Rule.SCALED_SIZES})  # answers that are an exact number plus noise
BLOCK: Final = 50  # runs that are done and kept together, if there are not many
LARGE_BLOCK: Final = 1_000  # the same, if there are
MANY_RUNS: Final = 5_000
Rows = tuple[tuple[float, ...], ...]


class Conduct(enum.Enum):
    """How the runs of an attack were done."""

    EACH = "each by itself"
    TOGETHER = "noise drawn for many runs at once"


@dataclass(frozen=True, slots=True, eq=False)
class FixedRun:
    """The one course that all runs of a method take."""

    draws: tuple[Draw, ...]
    places: NDArray[np.intp]  # which of the drawn numbers was added to each number that is told
    exact: tuple[Floats, Floats]  # the numbers without noise, on either table
    widths: Floats  # variances of Gaussian noise and scales of Laplace noise, as the attacker knows them
    is_laplace: NDArray[np.bool_]

    def draw(self, table: int, runs: int, seed: int) -> Floats:
        """Return the features of so many runs on the first (0) or second (1) table: both log-likelihood ratios."""
        source = noise_source(NoiseKind.SEEDED, seed)
        drawn = []
        for draw in self.draws:
            take = source.discrete_gaussian if draw.law is NoiseLaw.GAUSSIAN else source.discrete_laplace
            drawn.append(take(draw.width, draw.size * runs).reshape(runs, draw.size))
        told = self.exact[table] + np.hstack(drawn)[:, self.places]
        first, second = (told - exact for exact in self.exact)
        gaussian = (first**2 - second**2) / (2.0 * self.widths)
        ratios = np.where(self.is_laplace, (np.abs(first) - np.abs(second)) / self.widths, gaussian).sum(axis=1)
        return np.column_stack([ratios, np.zeros(runs)])


def find_fixed_run(attacker: Attacker) -> FixedRun | None:
    """Return the course that all runs take; None if they may differ, or if answers are more than exact plus noise.

    That is not taken for granted. Some runs on either table are done one by one. All must ask the same questions, and
    every number that they are told must be the exact one plus a number that the noise source drew.
    """
    if attacker.method.ask is not None:
        return None  # the graph is told too, and what is asked may follow from answers
    known: list[Sequence[Exchange]] = []
    course: Course | None = None
    draws: tuple[Draw, ...] = ()
    noise: list[Floats] = []
    numbers: list[Floats] = []
    for table in (0, 1):
        for number in range(CHECKED):
            _, told = attacker.run(attacker.tables[table], 2 * number + table)
            here, drawn = read_course(told), tuple(draw for exchange in told for draw in exchange.draws)
            if not known:
                course, draws, known = here, drawn, list(attacker.replay(told))
            if here is None or here != course or drawn != draws or not _only_adds(told):
                return None
            noise.append(_read(told) - _read(known[table]))
            numbers.append(np.concatenate([np.empty(0), *(draw.numbers for draw in drawn)]))
    places = _match(np.stack(noise), np.stack(numbers))
    if places is None:
        return None
    first, second = known
    rules = [exchange.exact.rule for exchange in first for _ in exchange.exact.values]
    widths = np.array([width for exchange in first for width in exchange.exact.widths])
    is_laplace = np.array([rule is Rule.SCALED_SIZES for rule in rules])
    return FixedRun(draws, places, (_read(first), _read(second)), widths, is_laplace)


def _only_adds(told: Sequence[Exchange]) -> bool:
    """Tell whether every answer is a number plus noise, and nothing else was random or refused."""
    return all(
        exchange.refusal is None
        and not exchange.luck
        and (exchange.exact.rule in _ADDED or (exchange.exact.rule is Rule.NOTHING and not exchange.draws))
        for exchange in told
    )


def _read(exchanges: Sequence[Exchange]) -> Floats:
    return np.array([value for exchange in exchanges for value in exchange.exact.values], dtype=np.float64)


def _match(noise: Floats, numbers: Floats) -> NDArray[np.intp] | None:
    """Return which drawn number was added to each answer, in all runs; None if one has none, or two share one."""
    known = {column.tobytes(): place for place, column in enumerate(np.ascontiguousarray(numbers.T + 0.0))}
    found = [known.get(column.tobytes()) for column in np.ascontiguousarray(noise.T + 0.0)]
    places = [place for place in found if place is not None]
    if len(known) < numbers.shape[1] or len(places) < len(found) or len(set(places)) < len(places):
        return None
    return np.array(places, dtype=np.intp)


class AttackJob(msgspec.Struct, frozen=True):
    """What is attacked, the claim in exact fractions; equal jobs have the same runs, each seeded by itself."""

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


@lru_cache(maxsize=4)
def attacker_for(job: AttackJob) -> Attacker | PublishedAttacker:
    """Return the attacker of a job."""
    method = method_named(job.method)
    if job.calibration is not Calibration.SOUND:
        pair = make_published_pair(job.method, job.relation)
        return PublishedAttacker(method, pair, job.budget, dict(job.options), job.calibration)
    return Attacker(method, make_pair(job.kind, job.relation), job.budget, dict(job.options))


def seed_run(seed: int, *place: int) -> int:
    """Return the seed of one run: long, and another one for every place."""
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
    """Return the features of so many runs on either table, in whole blocks; the store's are not done again."""
    size = BLOCK if runs < MANY_RUNS else LARGE_BLOCK
    conduct = choose_conduct(job, runs)
    tasks = [AttackBlock(job, table, number, size, conduct) for number in range(-(-runs // size)) for table in (0, 1)]
    # the noise of a block is drawn sooner than a process starts
    workers = 1 if conduct is Conduct.TOGETHER else workers
    done = work_through(tasks, run_block, Rows, store, workers, progress, "attack")
    first, second = (np.array([row for rows in done[table::2] for row in rows], dtype=np.float64) for table in (0, 1))
    return first, second


APPLICATION: Final = 0x64764155  # marks the file as the store of an audit
FORMAT: Final = "dagveil-audit-block-1"
WAITING: Final = 4  # tasks that are handed to each process ahead of time
Task = TypeVar("Task", bound=msgspec.Struct)
Content = TypeVar("Content")


class BlockStore:
    """Finished blocks by the task that they answer: in an SQLite file, which is made, or in memory."""

    def __init__(self, path: Path | None) -> None:
        try:
            self._connection = sqlite3.connect(":memory:" if path is None else path)
            mark = self._connection.execute("PRAGMA application_id").fetchone()[0]
            names = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")]
            if mark != APPLICATION and names:
                raise DataError(f"{path} is a database of another program; choose another file for the store")
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute("CREATE TABLE IF NOT EXISTS blocks (task TEXT PRIMARY KEY, content BLOB NOT NULL)")
            self._connection.commit()
        except sqlite3.Error as error:
            raise DataError(f"{path} cannot be the store of an audit: {error}; choose another file") from error

    def __enter__(self) -> BlockStore:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def get(self, task: str) -> bytes | None:
        """Return what was kept for a task; None if nothing was."""
        row = self._connection.execute("SELECT content FROM blocks WHERE task = ?", (task,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, task: str, content: bytes) -> None:
        """Keep the content of a task; it is on disk when this returns."""
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?)", (task, content))


def work_through(
    tasks: Sequence[Task],
    do: Callable[[Task], Content],
    kind: type[Content],
    store: BlockStore | None = None,
    workers: int = 1,
    progress: Progress = silent,
    stage: str = "",
) -> list[Content]:
    """Do the tasks that the store lacks; return what each gave, in order. Processes need a module's function."""
    keys = [_name(task) for task in tasks]
    done: dict[str, Content] = {}
    for key in dict.fromkeys(keys):
        content = None if store is None else store.get(key)
        if content is not None:
            done[key] = msgspec.json.decode(content, type=kind)
    todo = {key: task for key, task in zip(keys, tasks, strict=True) if key not in done}
    total = len(todo) + len(done)
    progress(stage, len(done), total)
    for key, result in _work(todo, do, workers):
        done[key] = result
        if store is not None:
            store.put(key, msgspec.json.encode(result))
        progress(stage, len(done), total)
    return [done[key] for key in keys]


def _name(task: msgspec.Struct) -> str:
    """Return what a task is kept under; another version of the program may answer otherwise."""
    return f"{FORMAT} {__version__} {type(task).__name__} {msgspec.json.encode(task).decode()}"


def _work(todo: dict[str, Task], do: Callable[[Task], Content], workers: int) -> Iterator[tuple[str, Content]]:
    if workers <= 1 or len(todo) <= 1:
        for key, task in todo.items():
            yield key, do(task)
        return
    # spawned, not forked: a fork would copy the state of threads and generators
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = iter(todo.items())
        futures: dict[Future[Content], str] = {}
        while True:
            for key, task in islice(waiting, WAITING * workers - len(futures)):
                futures[pool.submit(do, task)] = key
            if not futures:
                return
            future = next(as_completed(futures))
            yield futures.pop(future), future.result()

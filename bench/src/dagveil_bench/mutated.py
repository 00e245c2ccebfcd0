"""Mutated inputs for every reader: none may crash it, hang it, raise what nobody foresaw, or be charged for."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dagveil.errors import DagveilError
from dagveil.progress import Progress, silent
from dagveil_bench.mutations import Mutation
from dagveil_bench.studies.worker_pool import Lost, WorkerPool
from dagveil_bench.tables import write_table

MEMORY: Final = 8 * 2**30  # bytes of address space that a reader may take
READ, REFUSED, UNEXPECTED, CHARGED, CRASHED, HUNG = "read", "refused", "unexpected", "charged", "crashed", "hung"
FAILURES: Final = (UNEXPECTED, CHARGED, CRASHED, HUNG)


class ChargedError(Exception):
    """Budget was spent on an input that was refused."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of input: the end of its file's name, what returns a sound one, how it is damaged, and who reads it.

    Reading is as the program reads, and uses what was read.
    """

    suffix: str
    sample: Callable[[], bytes]
    mutate: Mutation
    read: Callable[[Path], object]


@dataclass(slots=True)
class Tally:
    """What became of mutated inputs: counts by reader and outcome, and the failures with an example of each."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Number of inputs that did what none may do."""
        return sum(counts[outcome] for counts in self.counts.values() for outcome in FAILURES)

    def note(self, reader: str, number: int, outcome: str, where: str) -> None:
        """Count one input."""
        self.counts.setdefault(reader, Counter())[outcome] += 1
        if outcome in FAILURES:
            first, times = self.failures.get((reader, outcome, where), (number, 0))
            self.failures[reader, outcome, where] = (first, times + 1)


def run_mutations(
    find_readers: Callable[[], Mapping[str, Reader]],
    count: int,
    seed: int,
    seconds: float,
    only: str | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Tally:
    """Read so many mutated inputs, each kind in turn or `only` one, in a process that may die.

    `find_readers` is a function that other processes can import. One input may take so many seconds; the first of each
    failure is kept in a folder.
    """
    readers = find_readers()
    names = [only] if only is not None else list(readers)
    tally = Tally(seed)
    with tempfile.TemporaryDirectory(prefix="dagveil-mutate-") as folder:
        place = Path(folder)
        for name in names:
            (place / f"{name}.sample").write_bytes(readers[name].sample())
        work = partial(_read_mutated, find_readers, place, seed)
        jobs = [(names[number % len(names)], number) for number in range(count)]
        for (name, number), found in WorkerPool[tuple[str, int], tuple[str, str]](work, 1, seconds).do(jobs):
            if number % 50 == 0:
                progress("mutated inputs", number, count)
            outcome, where = _name_loss(found, seconds) if isinstance(found, Lost) else found
            new = outcome in FAILURES and (name, outcome, where) not in tally.failures
            tally.note(name, number, outcome, where)
            if new and keep is not None:
                source = place / f"input{readers[name].suffix}"
                (keep / f"{name}-{outcome}-{number}{readers[name].suffix}").write_bytes(source.read_bytes())
    progress("mutated inputs", count, count)
    return tally


def write_tally(tally: Tally, command: str) -> str:
    """Return the counts as a table, and what failed where."""
    outcomes = (READ, REFUSED, *FAILURES)
    total: Counter[str] = sum(tally.counts.values(), Counter())
    rows = [
        (name, sum(counts.values()), *(counts[one] for one in outcomes))
        for name, counts in (*tally.counts.items(), ("all", total))
    ]
    parts = [f"{sum(total.values())} mutated inputs, seed {tally.seed}: `{command}`"]
    parts.append(write_table(("reader", "inputs", *outcomes), rows))
    if tally.failures:
        failed = [(*key, times, first) for key, (first, times) in sorted(tally.failures.items())]
        parts.append(write_table(("reader", "what", "where", "times", "first input"), failed))
    return "\n\n".join(parts)


def _name_loss(lost: Lost, seconds: float) -> tuple[str, str]:
    if lost.exit_code is None:
        return HUNG, f"more than {seconds:g} seconds"
    return CRASHED, f"exit code {lost.exit_code}"


def _read_mutated(
    find_readers: Callable[[], Mapping[str, Reader]], folder: Path, seed: int, job: tuple[str, int]
) -> tuple[str, str]:
    """Return what became of one input, and where."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name, number = job
    reader = find_readers()[name]
    sample = (folder / f"{name}.sample").read_bytes()
    source = folder / f"input{reader.suffix}"
    source.write_bytes(reader.mutate(sample, random.Random(f"{seed} {name} {number}")))
    return _try(reader, source)


def _try(reader: Reader, source: Path) -> tuple[str, str]:
    try:
        reader.read(source)
    except DagveilError:
        return REFUSED, ""
    except ChargedError as error:
        return CHARGED, str(error)
    except BaseException as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "dagveil" in frame.filename]
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "nowhere"
        return UNEXPECTED, f"{type(error).__name__} at {where}"
    return READ, ""

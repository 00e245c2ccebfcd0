"""Mutated inputs for every reader: none may crash it, hang it, raise what nobody foresaw, or be charged for.

Damaged and hostile inputs are made from sound ones: bytes flip, pieces vanish or return, values become odd ones.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import tomli_w

from dagveil.errors import DagveilError
from dagveil.progress import Progress, silent
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
            if not isinstance(found, Lost):
                outcome, where = found
            elif found.exit_code is None:
                outcome, where = HUNG, f"more than {seconds:g} seconds"
            else:
                outcome, where = CRASHED, f"exit code {found.exit_code}"
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


Mutation = Callable[[bytes, random.Random], bytes]

# what is put into bytes
_PIECES: Final = (
    *(b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r\n", b"\t", b'"', b"'", b"\\", b"\\u0000"),
    *(b"{", b"}", b"[", b"]", b"=", b":", b",", b";", b"#", b"//", b"/*", b"<", b">", b"<!--", b"&#0;", b"&#x110000;"),
    *(b"-1", b"0", b"1e308", b"1e999", b"-0.0", b"nan", b"inf", b"18446744073709551616", b"9" * 400, b"9" * 5000),
    *(b"null", b"true", b"[[[[[[[[", b"a.b.c.d = 1\n", b"[a.b]\n", b"\xe2\x80\xae", b"\x1b[2J", b"\x9b", b"=cmd|x"),
    *(b" -> ", b" -- ", b"label", b"id", b"node [", b"graph", b"digraph {", b"[" * 3000, b"{" * 3000, b"a." * 3000),
)
# what takes the place of a value in a document
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2, 3, 255, 2**31, 2**53 + 1, 2**63, -(2**63), 2**70, 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 1e-300, 1e300, -1e308, 0.1, 1.0000001, "", " ", "0", "1", "-1", "1/2", "0/1", "-1/2"),
    *(
        "1/0",
        "1e5",
        "9" * 300,
        "1/" + "7" * 300,
        "9" * 3999,
        "NaN",
        "inf",
        "sound",
        "paper",
        "program",
        "seeded",
        "other",
    ),
    *("\x00", "\x1b[2J", "\u202ea", "\ud7ff", "é" * 50, 'a"b', "a\\b", "=1+1", [], {}, [[]], [0], [""], {"": 0}),
)
_EDITS: Final = (1, 1, 1, 2, 4)  # how many edits of one input: most readers stop at the first that they see


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip bits, put pieces in, cut, repeat and move parts."""
    found = bytearray(content)
    for _ in range(rng.choice(_EDITS)):
        here = rng.randrange(len(found) + 1)
        there = min(len(found), here + rng.choice((1, 2, 8, 64, 1024)))
        match rng.randrange(8):
            case 0 | 1 if here < len(found):
                found[here] ^= 1 << rng.randrange(8)
            case 2 if here < len(found):
                found[here] = rng.randrange(256)
            case 3:
                found[here:here] = rng.choice(_PIECES)
            case 4:
                found[here:there] = rng.choice(_PIECES)
            case 5:
                del found[here:there]
            case 6:
                found[here:here] = found[here:there] * rng.choice((1, 2, 50))
            case 7 if rng.random() < 0.3:
                del found[here:]
    return bytes(found)


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """Edit values of a JSON document, and now and then its bytes."""
    if rng.random() < 0.25:
        return mutate_bytes(content, rng)
    return json.dumps(_edit(json.loads(content), rng)).encode("utf-8", "replace")


def mutate_toml(content: bytes, rng: random.Random) -> bytes:
    """Edit values of a TOML document, or its bytes."""
    if rng.random() < 0.5:
        return mutate_bytes(content, rng)
    try:
        return tomli_w.dumps(_edit(tomllib.loads(content.decode()), rng)).encode("utf-8", "replace")
    except (TypeError, ValueError, AttributeError):  # TOML has no null, and no document that is a list
        return mutate_bytes(content, rng)


def mutate_lines(content: bytes, rng: random.Random) -> bytes:
    """Shuffle, drop and repeat lines, or edit bytes."""
    if rng.random() < 0.7:
        return mutate_bytes(content, rng)
    lines = content.split(b"\n")
    for _ in range(rng.choice(_EDITS)):
        place = rng.randrange(len(lines))
        match rng.randrange(3):
            case 0:
                lines[place] = rng.choice(lines)
            case 1:
                lines.insert(place, rng.choice(lines) * rng.choice((1, 2, 20)))
            case _ if len(lines) > 1:
                del lines[place]
    return b"\n".join(lines)


def _edit(document: Any, rng: random.Random) -> Any:
    """Change a few values, keys or lengths of a document, in place where that is possible."""
    for _ in range(rng.choice(_EDITS)):
        places = list(_list_places(document))
        if not places:
            return rng.choice(_VALUES)
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1:
                other, place = rng.choice(places)
                holder[key] = json.loads(json.dumps(other[place]))  # a copy: no value may hold itself
            case 2 if isinstance(holder, list):
                holder.insert(key, holder[key])
            case 2:
                holder[rng.choice(("", "kind", "format", "\u202e", key + "x"))] = holder.pop(key)
            case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                with contextlib.suppress(OverflowError):
                    holder[key] = holder[key] * rng.choice((-1, 0, 2, 10**6, 10**20, 0.5)) + rng.choice((0, 1, -1))
            case _:
                holder[key] = rng.choice(_VALUES)
        document = json.loads(json.dumps(document))
    return document


def _list_places(value: Any) -> Any:
    """Yield every place of a value in a document, as the list or object that holds it and its key there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _list_places(value[key])

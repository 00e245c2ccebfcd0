"""Files that a command will write. One rule for all commands: nothing that was read or paid for is destroyed.

A file that the command reads, and the ledger, are refused as an output. A file that an earlier run paid for is kept
aside under another name. All others are replaced, in one step.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from dagveil.curator.journal import read_order
from dagveil.errors import DataError
from dagveil.runs.recovery import describe_stopped, save_whole

_BESIDE_LEDGER: Final = ("", "-journal", "-wal", "-shm")  # SQLite keeps these files beside its own
_SQLITE: Final = b"SQLite format 3\0"


def check_writable(
    *paths: Path, reads: Iterable[str | Path | None] = (), ledger: str | None = None, option: str = "-o"
) -> None:
    """Find out, before any budget is spent, whether all these files can be written, and should be.

    Folders are made. Existing files keep their content, and no new ones stay behind.

    What the command reads may be a folder or a pattern, which stands for its files; None is left out. `option` names
    the output, for the message.
    """
    read = [place for one in reads if one is not None for place in _list_files(str(one))]
    books = [] if ledger is None else _ledger_files(ledger)
    for path in paths:
        for others, what in ((read, "a file that this command reads"), (books, "the ledger")):
            if any(_is_same(path, other) for other in others):
                raise DataError(f"{path} is {what}; choose another place with {option}. Nothing was spent.")
        try:
            if path.is_symlink() and not path.exists():
                raise DataError(f"{path} is a link to nothing; remove it or choose another place with {option}.")
            if path.exists() and not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
                raise DataError(f"{path} is a pipe or a device, no file; choose another place with {option}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                with path.open("ab"):
                    pass
            part = Path(os.path.realpath(path)).with_name(f".part-{path.name}")
            with part.open("ab"):
                pass
            part.unlink()
        except OSError as error:
            raise DataError(
                f"cannot write {path}: {error.strerror}; choose another place with {option}. Nothing was spent."
            ) from error


def write_output(path: Path, content: bytes | Callable[[Path], Any]) -> None:
    """Write a file in one step: some bytes, or whatever a function writes. One that was paid for is kept aside."""
    if _is_database(path):
        raise DataError(f"{path} is the ledger, or another database; choose another place with -o.")
    if _is_paid(path):
        _keep_earlier(path)
    with save_whole(path) as part:
        if isinstance(content, bytes):
            part.write_bytes(content)
        else:
            content(part)


def write_paid(path: Path, save: Callable[[Path], Any], recovery: Path) -> None:
    """Write what has cost budget, and then let go of its recovery file."""
    try:
        write_output(path, save)
    except DataError as error:
        if recovery.exists():
            error.add_note(f"What was paid for is kept in {recovery}: the same command finishes it at no further cost.")
        raise
    recovery.unlink(missing_ok=True)


def name_recovery(output: Path) -> Path:
    """Return the file beside an output that keeps what a run released until the output is written."""
    return output.with_suffix(".recovery.jsonl")


def print_recovery(recovery: Path, *, goes_on: bool) -> None:
    """Say that a run stopped here, and what becomes of it."""
    if not recovery.exists():
        return
    order, answers = read_order(recovery)
    if goes_on:
        click.echo(f"going on with run {order.run}, which stopped: {answers} answers are in {recovery}", err=True)
    else:
        click.echo(describe_stopped(recovery, order), err=True)


def _list_files(text: str) -> Iterator[Path]:
    """Yield the files that a source names; a folder is walked."""
    path = Path(text)
    if path.is_dir():
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names if not name.endswith((".json", ".jsonl", ".html", ".svg")))
    elif glob.has_magic(text) and not path.exists():
        yield from map(Path, glob.iglob(text, recursive=True))
    else:
        yield path


def _ledger_files(place: str) -> list[Path]:
    if "://" in place:
        with suppress(ArgumentError):
            url = make_url(place)
            place = (url.database or "") if url.get_backend_name() == "sqlite" else ""
    return [Path(place + end).expanduser() for end in _BESIDE_LEDGER] if place else []


def _is_same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False


def _is_database(path: Path) -> bool:
    """Tell an SQLite file by its content: commands that know no ledger must spare one, too."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _is_paid(path: Path) -> bool:
    """Tell whether nothing else could give a file back: evidence, a direction, or what an adaptive run found."""
    if not path.is_file():
        return False
    named = path.suffix.lower() == ".json"
    try:
        with path.open("rb") as file:
            if not named and file.read(1) != b"{":
                return False
        head = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return named  # damaged, perhaps: whatever it was stays
    if not isinstance(head, dict) or head.get("receipt") is None:
        return False
    return head.get("format") != "dagveil-result" or head.get("questions") is not None


def _keep_earlier(path: Path) -> None:
    """Move what an earlier run wrote aside: it was paid for."""
    number = 1
    while (aside := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    click.echo(f"kept the {path.stem} of an earlier run as {aside}", err=True)

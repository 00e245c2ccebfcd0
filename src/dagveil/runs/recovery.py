"""Runs that can be finished after they stopped: what was released is kept in a file until its result is saved.

The same call with the same file goes on where the run stopped: answers that are kept are given again, and nothing is
charged twice (docs/proofs/recovery.md).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dagveil._version import __version__
from dagveil.curator import Curator
from dagveil.curator.journal import Journal, Order
from dagveil.errors import BudgetError, DataError, LedgerError
from dagveil.files import write_fraction
from dagveil.privacy.events import Event
from dagveil.privacy.ledger.account import RunState
from dagveil.privacy.ledger.ledger import LedgerRun
from dagveil.runs.result import now

if TYPE_CHECKING:
    from dagveil.runs.run import PreparedRun


@contextmanager
def save_whole(path: Path) -> Iterator[Path]:
    """Give a place to write to; what was written there then takes the file's place in one step.

    Whatever happens, `path` holds the old content or all of the new. A link stays, and what it points to is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with save_whole(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("whole")
    ...     os.listdir(folder)
    ['a.txt']
    """
    place = Path(os.path.realpath(path))
    part = place.with_name(f".part-{place.name}")
    try:
        try:
            yield part
            _sync(part)
            os.replace(part, place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        if os.name == "posix":
            _sync(place.parent)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; make room, or choose another place") from error


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def open_curator(run: PreparedRun, settings: object, recovery: str | Path | None) -> Iterator[Curator]:
    """Reserve a run, or take up one that stopped, and close it when all is released.

    The recovery file keeps what is released; None keeps nothing. Without a ledger and with seeded noise nothing is kept
    either: such a run can be repeated at no cost.
    """
    if recovery is None or not run.recorded or not run.noise.private:
        table = run.table()
        with run.reserve() as record:
            yield Curator(table, run.relation, run.accounting, record, run.noise)
        return
    path = Path(recovery)
    asked = _describe_order(run, settings)
    taken = _take_up(run, path, asked) if path.exists() else None
    if taken is None:
        table = run.table()
        taken = _begin(run, path, asked)
    else:
        try:
            # the records of a person that counted before count again
            table = run.table(bytes.fromhex(taken.journal.order.key))
        except BaseException:
            taken.journal.close()
            raise
    journal, number, curator = taken.journal, taken.record.id, None
    try:
        curator = Curator(table, run.relation, run.accounting, taken.record, run.noise, journal, taken.written)
        yield curator
        journal.sync()
    except BaseException as error:
        # a charge whose record failed may stand all the same, so the ledger is asked
        asked_for = run.accounting.spent or taken.written or (curator is not None and curator.events)
        if asked_for and _is_charged(run, number):
            journal.close()
            if isinstance(error, BudgetError) and error.args:
                error.args = (str(error).replace("nothing was drawn", "nothing more was drawn"), *error.args[1:])
            error.add_note(
                f"Run {number} stays open and what it released is kept in {path}: the same command finishes it at no "
                "further cost."
            )
        else:
            journal.remove()
            taken.close()
        raise
    journal.close()
    taken.close()


def _is_charged(run: PreparedRun, number: int) -> bool:
    try:
        return any(one.events for one in run.books.history(run.schema.dataset) if one.id == number)
    except LedgerError:
        return True  # perhaps: what cannot be looked up is kept


@dataclass(frozen=True, slots=True)
class _Taken:
    """A run that has begun, and its file."""

    record: LedgerRun
    journal: Journal
    written: Sequence[Event] = ()

    def close(self) -> None:
        """Close the run; one that stays open counts as much, so that is no reason to lose what was paid for."""
        try:
            self.record.close()
        except LedgerError:
            warnings.warn(
                f"run {self.record.id} could not be closed, since the ledger cannot be written just now; it stays "
                "open, and counts as if it were closed",
                stacklevel=4,
            )


def _describe_order(run: PreparedRun, settings: object) -> dict[str, str]:
    def write(value: object) -> str:
        return msgspec.json.encode(value, enc_hook=write_fraction, order="deterministic").decode()

    return {
        "software": f"dagveil {__version__}",
        "dataset": run.schema.dataset,
        "schema": run.schema.digest(),
        "method": run.method.name,
        "calibration": run.calibration.value,
        "settings": write(settings),
        "knowledge": write(run.knowledge),
        "epsilon": str(run.budget.epsilon),
        "delta": str(run.budget.delta),
    }


def _begin(run: PreparedRun, path: Path, asked: dict[str, str]) -> _Taken:
    record = run.reserve()
    try:
        started = next(one.started for one in run.books.history(record.dataset) if one.id == record.id)
        inner = getattr(run.books, "_books", run.books)
        order = Order(
            place=str(path.resolve()),
            run=record.id,
            started=started,
            ledger=str(getattr(getattr(inner, "_engine", None), "place", "in memory")),
            created=now(),
            asked=asked,
            key=run.key.hex(),
        )
        return _Taken(record, Journal.create(path, order))
    except BaseException:
        with suppress(LedgerError):
            record.close()
        raise


def _take_up(run: PreparedRun, path: Path, asked: dict[str, str]) -> _Taken | None:
    """Return the run that stopped; None if it never charged anything and was released since."""
    journal = Journal.reopen(path)
    try:
        order = journal.order
        if Path(order.place) != path.resolve():
            raise DataError(
                f"{path} is a copy of a recovery file: a run is finished from {order.place}. Put the file back there"
            )
        other = [name for name, value in asked.items() if order.asked.get(name) != value]
        if other:
            raise DataError(f"{describe_stopped(path, order)} This command differs in: {', '.join(other)}")
        found = next((one for one in run.books.history(run.schema.dataset) if one.id == order.run), None)
        if found is None or found.started != order.started:
            raise LedgerError(
                f"{describe_stopped(path, order)} This ledger does not have that run: name {order.ledger}"
            )
        if found.state is RunState.RELEASED:
            journal.remove()
            return None
        # all that a closed run released is kept, so nothing more is charged
        closed = found.state is RunState.CLOSED
        record = LedgerRun(run.books, order.run, run.schema.dataset, run.budget, closed)
        return _Taken(record, journal, found.events)
    except BaseException:
        journal.close()
        raise


def describe_stopped(path: Path, order: Order) -> str:
    """Say what a recovery file is, and what to do."""
    asked = order.asked
    return (
        f"{path} keeps what run {order.run} of {asked['method']} on {asked['dataset']!r} released before it stopped "
        f"(epsilon {asked['epsilon']}, begun {order.created}): repeat its command to finish it at no further cost, or "
        "delete the file to give that up."
    )

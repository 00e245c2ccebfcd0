"""The ledger in a database: a version, and entries that are only ever added. PostgreSQL's adds roles."""

from __future__ import annotations

import functools
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger import entries as log
from dagveil.privacy.ledger.account import Account, RunRecord, Terms, admit, check_name, price_run, tidy_name
from dagveil.privacy.ledger.accounts import Books, Head, Verdict, verify_entries
from dagveil.privacy.ledger.engine import POSTGRES_SCHEMA, LedgerEngine, open_engine
from dagveil.privacy.ledger.ledger import Append, Ledger, LedgerRun, closed_run, system_user

VERSION: Final = "3"
METADATA: Final = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
FACTS: Final = sa.Table(
    "dagveil_facts",
    METADATA,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
ENTRIES: Final = sa.Table(
    "dagveil_entries",
    METADATA,
    # two programs that both saw the same last entry cannot both add the next one
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("dataset", sa.String, nullable=False),
    sa.Column("run", _NUMBER),
    sa.Column("analyst", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("recorded", sa.String, nullable=False),
    sa.Column("previous", sa.String, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
)
sa.Index("dagveil_entries_by_dataset", ENTRIES.c.dataset, ENTRIES.c.kind)
sa.Index("dagveil_entries_by_run", ENTRIES.c.run)

_APPEND_ONLY: Final = (
    "CREATE TRIGGER dagveil_no_{name} BEFORE {name} ON dagveil_entries "
    "BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END"
)


def read_version(connection: sa.Connection) -> str | None:
    """Return the version of the ledger in a database, or None if there is none yet."""
    schema = POSTGRES_SCHEMA if connection.dialect.name == "postgresql" else None
    if not sa.inspect(connection).has_table(FACTS.name, schema=schema):
        return None
    found = connection.scalar(sa.select(FACTS.c.value).where(FACTS.c.name == "version"))
    return None if found is None else str(found)


def create_tables(connection: sa.Connection) -> None:
    """Make the tables; in SQLite with triggers that keep the history append-only, in PostgreSQL see roles.py."""
    METADATA.create_all(connection)
    if connection.dialect.name == "sqlite":
        for name in ("update", "delete"):
            connection.exec_driver_sql(_APPEND_ONLY.format(name=name))


def write_entry(connection: sa.Connection, entry: log.Entry) -> None:
    """Add an entry that is already made; LedgerError if the database did not take it."""
    fields = msgspec.structs.asdict(entry) | {"kind": entry.kind.value}
    if connection.execute(ENTRIES.insert().values(**fields)).rowcount == 0:
        raise LedgerError(
            "the ledger did not take an entry: something in its file keeps entries out. Nothing was drawn."
        )


def find_alteration(connection: sa.Connection) -> str | None:
    """Say what in an SQLite file is not as this program makes it: a trigger, a table, a type; None if all is."""
    if connection.dialect.name != "sqlite":
        return None
    found = _list_objects(connection)
    for name in sorted(found.keys() | _as_made().keys()):
        if found.get(name) != _as_made().get(name):
            what = "is missing" if name not in found else "was added" if name not in _as_made() else "was changed"
            return f"{name!r} in the ledger's file {what}"
    return None


def find_odd_types(connection: sa.Connection) -> str | None:
    """Say which entry of an SQLite file has a field of another type than this program writes."""
    if connection.dialect.name != "sqlite":
        return None
    texts = " OR ".join(f"typeof({column.name}) <> 'text'" for column in ENTRIES.c if column.name not in ("seq", "run"))
    odd = connection.scalar(
        sa.text(
            "SELECT min(seq) FROM dagveil_entries WHERE typeof(seq) <> 'integer' OR typeof(run) NOT IN "
            f"('integer', 'null') OR {texts}"
        )
    )
    return None if odd is None else f"entry {odd} has a field of another type than this program writes"


@functools.cache
def _as_made() -> dict[str, str]:
    """Return what a new SQLite ledger holds."""
    with sa.create_engine("sqlite://").connect() as connection:
        create_tables(connection)
        return _list_objects(connection)


def _list_objects(connection: sa.Connection) -> dict[str, str]:
    listing = connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    return {str(row.name): str(row.sql) for row in listing}


def memory_of(place: str) -> Path:
    """Return the file that remembers the ledger at a place."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return folder / "dagveil" / "heads" / hashlib.sha256(place.encode()).hexdigest()[:32]


def remember_head(place: str, head: Head) -> None:
    """Note the head of a ledger."""
    path = memory_of(place)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(f"{head} {place}\n", encoding="utf-8")
        draft.replace(path)


def recall_head(place: str) -> Head | None:
    """Return the head that was noted last, or None."""
    try:
        return Head.read(memory_of(place).read_text(encoding="utf-8").split()[0])
    except (OSError, IndexError, UnicodeDecodeError, LedgerError):
        return None


def lost_ledger(place: str, kept: Head, found: str) -> LedgerError:
    """Error for a ledger that is not the one that was charged here."""
    return LedgerError(
        f"the ledger {place} {found}, but it had {kept.seq} entries when it was last used on this computer: what was "
        "spent would be forgotten. Nothing was drawn. Restore the ledger. If it was given up on purpose, delete "
        f"{memory_of(place)}."
    )


_IS_CHARGE = ENTRIES.c.kind.in_([kind.value for kind in log.CHARGES])


def connect(url_or_path: str | Path, wait_seconds: float, analyst: str | None) -> Ledger:
    """Open the database, make or migrate the tables if need be, and check their version."""
    engine = open_engine(url_or_path, wait_seconds)
    if not engine.is_sqlite:
        from dagveil.privacy.ledger.roles import RoleLedger

        return RoleLedger.prepare(engine, analyst)
    return SqlLedger.prepare(engine, analyst)


class SqlLedger(Ledger):
    """The books in an SQLite file; made by ``Ledger.open``."""

    def __init__(self, engine: LedgerEngine, analyst: str) -> None:
        self._engine = engine
        self.analyst = analyst
        self.place = f"the SQLite file {engine.place}"

    @classmethod
    def prepare(cls, engine: LedgerEngine, analyst: str | None) -> SqlLedger:
        """Make or migrate the tables if need be, and check their version."""
        with engine.reading() as connection:
            found = read_version(connection)
        ledger = cls(engine, system_user() if analyst is None else log.check_analyst(analyst))
        if found is None:
            kept = recall_head(engine.identity)
            if kept is not None:
                raise lost_ledger(engine.identity, kept, "is gone or empty")
            with engine.writing() as connection:
                ledger._set_up(connection)
                found = read_version(connection)
        if found != VERSION:
            raise LedgerError(
                f"the ledger {engine.place} has version {found}, this program reads version {VERSION}; use the "
                "program that wrote it."
            )
        return ledger

    def _set_up(self, connection: sa.Connection) -> None:
        if read_version(connection) is None:  # once more, now that nobody else can write
            create_tables(connection)
            connection.execute(FACTS.insert().values(name="version", value=VERSION))
            # a random name keeps the digests of two ledgers apart
            name = msgspec.json.encode({"ledger": uuid.uuid4().hex}).decode()
            write_entry(connection, log.follow(None, log.EntryKind.BEGUN, "", None, self.analyst, name))

    def close(self) -> None:
        """Let go of connections."""
        self._engine.engine.dispose()

    def account(self, dataset: str) -> Account:
        """Account of one data set, recomputed from the entries."""
        dataset = tidy_name(dataset)
        with self._engine.reading() as connection:
            return read_books(connection, dataset).account(dataset)

    def history(self, dataset: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, oldest first, of one data set or of all."""
        with self._engine.reading() as connection:
            books = Books(_read(connection, sa.select(ENTRIES).where(_about(dataset))))
        return tuple(run.record() for _, run in sorted(books.runs.items()))

    def entries(self) -> tuple[log.Entry, ...]:
        """All entries, oldest first."""
        with self._engine.reading() as connection:
            return tuple(_read(connection, sa.select(ENTRIES)))

    def verify(self, kept: Head | None = None) -> Verdict:
        """Say whether the history is whole, without holding all of it in memory; the head noted here counts too."""
        with self._engine.reading() as connection:
            kept = kept or recall_head(self._engine.identity)
            verdict = verify_entries(_read(connection, sa.select(ENTRIES)), kept)
            problem = verdict.problem or find_alteration(connection) or find_odd_types(connection)
        return replace(verdict, problem=problem)

    def head(self) -> Head:
        """Return number and digest of the last entry."""
        with self._engine.reading() as connection:
            last = _last_entry(connection)
        if last is None:
            raise LedgerError(f"the ledger {self._engine.place} has no entries: it was emptied. Restore a backup.")
        return Head(last.seq, last.digest)

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets, sorted."""
        with self._engine.reading() as connection:
            names = connection.scalars(sa.select(ENTRIES.c.dataset).where(ENTRIES.c.dataset != "").distinct())
            return tuple(sorted(names))

    def reserve(
        self, dataset: str, budget: Budget, terms: Terms, accounting: str, method: str, software: str
    ) -> LedgerRun:
        """Reserve a run's whole budget in one atomic step, or raise BudgetExceededError."""
        dataset = check_name(dataset)
        body = log.reservation_body(budget, terms, accounting, method, software)
        price = price_run(budget, accounting)
        with self._engine.writing() as connection:
            self._lock(connection)
            self._check_remembered(connection)
            account = read_books(connection, dataset).account(dataset)
            admit(account, budget, price, terms, self.analyst)
            number = 1 + (connection.scalar(sa.select(sa.func.max(ENTRIES.c.run))) or 0)
            self._append(connection, log.EntryKind.RESERVE, dataset, number, body)
        self._note_head(limited=account.lifetime is not None)
        return LedgerRun(self, number, dataset, budget)

    def record_event(self, run_id: int, event: Event) -> None:
        """Write an event of an open run durably; LedgerError if the run is not open."""
        kind, body = log.charge(event)
        with self._engine.writing() as connection:
            self._lock(connection)
            dataset = _open_in(connection, run_id)
            if dataset is None:
                raise closed_run(run_id)
            self._append(connection, kind, dataset, run_id, body)

    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""
        with self._engine.writing() as connection:
            self._lock(connection)
            dataset = _open_in(connection, run_id)
            if dataset is not None:
                touched = connection.scalar(sa.select(sa.exists().where(ENTRIES.c.run == run_id, _IS_CHARGE)))
                kind = log.EntryKind.CLOSE if touched else log.EntryKind.RELEASE
                self._append(connection, kind, dataset, run_id, "{}")
        self._note_head()

    @contextmanager
    def _writing(self, dataset: str | None) -> Iterator[tuple[Books, Append]]:
        with self._engine.writing() as connection:
            self._lock(connection)
            yield read_books(connection, dataset), functools.partial(self._append, connection)

    def _note_head(self, limited: bool = False) -> None:
        """Remember on this computer how far the history has come, once a data set in it has a lifetime budget."""
        if limited or recall_head(self._engine.identity) is not None:
            remember_head(self._engine.identity, self.head())

    def _check_remembered(self, connection: sa.Connection) -> None:
        """Refuse a ledger that has lost entries which this computer has seen."""
        kept = recall_head(self._engine.identity)
        if kept is None:
            return
        digest = connection.scalar(sa.select(ENTRIES.c.digest).where(ENTRIES.c.seq == kept.seq))
        if digest != kept.digest:
            raise lost_ledger(self._engine.identity, kept, "has lost entries or is another one")

    def _lock(self, connection: sa.Connection) -> None:
        """Keep others from adding entries until the transaction ends; SQLite's writing transactions do so anyway."""

    def _append(self, connection: sa.Connection, kind: log.EntryKind, dataset: str, run: int | None, body: str) -> int:
        """Add an entry in the writing transaction, and return the number of its run."""
        altered = find_alteration(connection)
        if altered is not None:
            raise LedgerError(f"{altered}, so the ledger {self._engine.place} cannot be trusted; nothing was drawn.")
        write_entry(connection, log.follow(_last_entry(connection), kind, dataset, run, self.analyst, body))
        return 0 if run is None else run


def _about(dataset: str | None) -> sa.ColumnElement[bool]:
    return sa.true() if dataset is None else ENTRIES.c.dataset == tidy_name(dataset)


def read_books(connection: sa.Connection, dataset: str | None) -> Books:
    """Read the accounts; of each run's charges only the first, since more change no sum."""
    first = (
        sa.select(sa.func.min(ENTRIES.c.seq)).where(_about(dataset), _IS_CHARGE).group_by(ENTRIES.c.run, ENTRIES.c.kind)
    )
    return Books(
        _read(connection, sa.select(ENTRIES).where(_about(dataset), sa.or_(~_IS_CHARGE, ENTRIES.c.seq.in_(first))))
    )


def _read(connection: sa.Connection, wanted: sa.Select[Any]) -> Iterable[log.Entry]:
    for row in connection.execute(wanted.order_by(ENTRIES.c.seq)):
        try:
            # SQLite keeps what was put in by hand whatever its type
            kind, run = log.EntryKind(row.kind), None if row.run is None else int(row.run)
        except ValueError:
            kind, run = log.EntryKind.UNREADABLE, None
        texts = (row.analyst, row.body, row.recorded, row.previous, row.digest)
        yield log.Entry(int(row.seq), kind, str(row.dataset), run, *map(str, texts))


def _last_entry(connection: sa.Connection) -> log.Entry | None:
    last = sa.select(sa.func.max(ENTRIES.c.seq)).scalar_subquery()
    return next(iter(_read(connection, sa.select(ENTRIES).where(ENTRIES.c.seq == last))), None)


def _open_in(connection: sa.Connection, run_id: int) -> str | None:
    """Return the data set of a run if the run is open."""
    rows = connection.execute(sa.select(ENTRIES.c.kind, ENTRIES.c.dataset).where(ENTRIES.c.run == run_id, ~_IS_CHARGE))
    found = {row.kind: str(row.dataset) for row in rows}
    return found.get(log.EntryKind.RESERVE.value) if len(found) == 1 else None

"""Connections to the ledger's database, with durable commits and locks that wait only so long."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from dagveil.errors import BudgetExceededError, LedgerError, MissingExtraError

OWN_STATES: Final = "DV"  # PostgreSQL's error codes of postgres.sql begin so; their messages are for people
EXCEEDED: Final = "DV001"
NOT_OPEN: Final = "DV002"
NOT_ALLOWED: Final = "42501"
# on PostgreSQL the tables have a schema of their own, in which nobody else can make anything
POSTGRES_SCHEMA: Final = "dagveil"


class ClosedRunError(LedgerError):
    """A record in a run that is not open any more."""


class LedgerEngine:
    """Durable transactions, errors that say what to do; `identity` is one for all who open the ledger from here."""

    def __init__(self, engine: Engine, place: str, identity: str, wait_seconds: float) -> None:
        self.engine = engine
        self.place = place
        self.identity = identity
        self.wait_seconds = wait_seconds

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is an SQLite file."""
        return self.engine.dialect.name == "sqlite"

    def writing(self) -> AbstractContextManager[Connection]:
        """One durable transaction that may write; SQLite takes its write lock at once."""
        # whatever the server's default is: after waiting for a row's lock the sums must see what the other one wrote,
        # and a snapshot from before the lock would not
        return self._begin(
            {"dagveil_begin": "BEGIN IMMEDIATE"} if self.is_sqlite else {"isolation_level": "READ COMMITTED"}
        )

    @contextmanager
    def stating(self) -> Iterator[Connection]:
        """Statements that are each a durable transaction: the server commits without waiting for a slow client."""
        with self._explained(), self.engine.connect() as plain:
            yield plain.execution_options(isolation_level="AUTOCOMMIT")

    def reading(self) -> AbstractContextManager[Connection]:
        """One transaction that sees a single state of the ledger."""
        return self._begin({} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"})

    @contextmanager
    def _begin(self, options: dict[str, Any]) -> Iterator[Connection]:
        with self._explained(), self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            message = str(error.orig).strip()
            state = str(getattr(error.orig, "sqlstate", None) or "")
            text = message.splitlines()[0] if message else "no details"
            if state == EXCEEDED:
                raise BudgetExceededError(text) from error
            if state == NOT_OPEN:
                raise ClosedRunError(text) from error
            raise LedgerError(text if state.startswith(OWN_STATES) else self._explain(text, state)) from error

    def _explain(self, text: str, state: str) -> str:
        if "locked" in text or "lock timeout" in text:
            return (
                f"the ledger {self.place} is held by another process and did not become free in "
                f"{self.wait_seconds:g} s; nothing was drawn. Wait for the other run, or look for a process that hangs."
            )
        if state == NOT_ALLOWED:
            return (
                f"your role may not use the ledger {self.place} like this ({text}). Its owner lets a role spend with "
                "`dagveil budget grant ROLE`."
            )
        if "readonly" in text or "read-only" in text or "unable to open" in text:
            return f"the ledger {self.place} cannot be written ({text}); fix its permissions or move it."
        if "not a database" in text or "malformed" in text:
            return f"{self.place} is not a ledger ({text}); choose another file, or restore a backup."
        return f"the ledger {self.place} cannot be used: {text}. Check that the database runs and the address is right."


def open_engine(url_or_path: str | Path, wait_seconds: float) -> LedgerEngine:
    """Make an engine for a path, an sqlite:/// address or a postgresql:// address."""
    text = str(url_or_path)
    if isinstance(url_or_path, Path) or "://" not in text:
        return _open_sqlite(Path(text), wait_seconds)
    try:
        url = make_url(text)
    except ArgumentError:
        raise LedgerError("the ledger's address cannot be read; give a path or postgresql://user@host/name.") from None
    if url.get_backend_name() == "sqlite" and url.database:
        return _open_sqlite(Path(url.database), wait_seconds)
    if url.get_backend_name() != "postgresql":
        raise LedgerError(f"a ledger lives in SQLite or PostgreSQL, not in {url.get_backend_name()}.")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtraError("a PostgreSQL ledger needs psycopg: pip install 'dagveil[postgres]'.") from None
    engine = sqlalchemy.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        execution_options={"schema_translate_map": {None: POSTGRES_SCHEMA}},
        connect_args={
            "connect_timeout": max(2, int(wait_seconds)),
            # a network that swallows everything is noticed, too
            "tcp_user_timeout": max(2000, int(1000 * wait_seconds)),
            "keepalives_idle": max(2, int(wait_seconds)),
            "keepalives_interval": 2,
            "keepalives_count": 3,
        },
    )
    patience = int(1000 * wait_seconds)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.execute(
            # whatever the server's defaults are: after waiting for a lock the sums must see what the other one wrote
            # nobody's operators or functions but the system's
            "SET search_path TO pg_catalog, pg_temp; "
            "SET default_transaction_isolation TO 'read committed'; SET synchronous_commit TO 'on'; "
            # a program that the network cut off in the middle lets go of the ledger
            f"SET lock_timeout TO {patience}; SET idle_in_transaction_session_timeout TO {patience}"
        )
        connection.commit()

    identity = url.set(drivername="postgresql", username=None, password=None, query={}).render_as_string()
    return LedgerEngine(engine, url.render_as_string(hide_password=True), identity, wait_seconds)


def _open_sqlite(path: Path, wait_seconds: float) -> LedgerEngine:
    path = path.expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"the folder {path.parent} cannot be made ({error.strerror}); choose another.") from error
    if path.is_dir():
        raise LedgerError(f"the ledger {path} is a folder; give the name of a file.")
    with suppress(OSError):  # SQLite says what is wrong
        path.touch(mode=0o600)  # names of data sets and analysts are for its owner
    # the folder too: SQLite keeps its journal beside the file
    for place in (path, path.parent):
        if place.exists() and not os.access(place, os.R_OK | os.W_OK):
            raise LedgerError(f"{place} cannot be written; fix its permissions or put the ledger elsewhere.")
    engine = sqlalchemy.create_engine(
        sqlalchemy.URL.create("sqlite", database=str(path)), poolclass=NullPool, connect_args={"timeout": wait_seconds}
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we begin transactions ourselves
        # a byte that was changed by hand must not keep the rest from being read
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        # EXTRA also syncs the folder when the journal is removed: a commit survives a power cut
        cursor.execute("PRAGMA synchronous=EXTRA")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("dagveil_begin", "BEGIN"))

    return LedgerEngine(engine, str(path), str(path.resolve()), wait_seconds)

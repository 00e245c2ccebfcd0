"""The ledger on PostgreSQL, where an analyst's connection can add entries within budget and do nothing else.

The tables belong to the owner. Analysts call one function that runs with the owner's rights (postgres.sql), and which
notes the connected role as the author.
"""

from contextlib import suppress
from importlib.resources import files
from typing import Final

from sqlalchemy import Connection, bindparam, func, select, text

from dagveil.errors import BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger.account import RunState, Terms, admit, check_name, price_run
from dagveil.privacy.ledger.engine import POSTGRES_SCHEMA, ClosedRunError, LedgerEngine
from dagveil.privacy.ledger.entries import EntryKind, Member, charge, check_analyst, reservation_body, write_body
from dagveil.privacy.ledger.ledger import LedgerRun
from dagveil.privacy.ledger.store import SqlLedger, read_books, read_version

OLDEST_SERVER: Final = (13,)  # the first with gcd, which the sums need
_SET_UP_LOCK: Final = (
    0x64616776  # one key for PostgreSQL's advisory lock, so that two programs do not make tables at once
)
_APPEND: Final = text(
    f"SELECT run_number FROM {POSTGRES_SCHEMA}.dagveil_append(:kind, :dataset, CAST(:run AS bigint), :body)"
).bindparams(bindparam("run", None))
_RIGHTS: Final = (
    ("SELECT", f"{POSTGRES_SCHEMA}.dagveil_facts, {POSTGRES_SCHEMA}.dagveil_entries"),
    (
        "EXECUTE",
        f"FUNCTION {POSTGRES_SCHEMA}.dagveil_owns(), {POSTGRES_SCHEMA}.dagveil_lock(), "
        f"{POSTGRES_SCHEMA}.dagveil_append(text, text, bigint, text)",
    ),
)


class RoleLedger(SqlLedger):
    """The books on PostgreSQL; made by ``Ledger.open``."""

    @classmethod
    def prepare(cls, engine: LedgerEngine, analyst: str | None) -> SqlLedger:
        """Make or migrate the tables if need be, check their version, and note who is connected."""
        with engine.reading() as connection:
            role = str(connection.scalar(select(func.session_user())))
            version = connection.dialect.server_version_info or ()
        if analyst not in (None, role):
            raise LedgerError(
                f"the ledger {engine.place} notes the connected role, {role!r}, and not the name {analyst!r}; connect "
                "as that role."
            )
        if version < OLDEST_SERVER:
            raise LedgerError(
                f"the ledger {engine.place} needs PostgreSQL {OLDEST_SERVER[0]} or newer, and this is {version[0]}."
            )
        return super().prepare(engine, role)

    def _set_up(self, connection: Connection) -> None:
        connection.execute(select(func.pg_advisory_xact_lock(_SET_UP_LOCK)))
        if read_version(connection) is not None:
            return
        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {POSTGRES_SCHEMA}")
        self._check_schema(connection, "public")
        super()._set_up(connection)
        source = files(__package__).joinpath("postgres.sql").read_text(encoding="utf-8")
        # the driver reads a single per cent sign as a placeholder
        connection.exec_driver_sql(source.replace("%", "%%").replace("{schema}", POSTGRES_SCHEMA))

    def _check_schema(self, connection: Connection, role: str) -> None:
        """Refuse a schema of somebody else's, or one in which a role could put objects before the ledger's own."""
        owned = connection.scalar(
            text("SELECT pg_has_role(current_user, nspowner, 'MEMBER') FROM pg_namespace WHERE nspname = :name"),
            {"name": POSTGRES_SCHEMA},
        )
        open_to = connection.scalar(
            text("SELECT has_schema_privilege(:role, :name, 'CREATE')"), {"role": role, "name": POSTGRES_SCHEMA}
        )
        member = role != "public" and connection.scalar(
            text("SELECT pg_has_role(:role, nspowner, 'MEMBER') FROM pg_namespace WHERE nspname = :name"),
            {"role": role, "name": POSTGRES_SCHEMA},
        )
        if not owned or (open_to and not member):
            raise LedgerError(
                f"the schema {POSTGRES_SCHEMA} of the ledger {self._engine.place} is not yours alone: others could put "
                f"objects into it. Its owner takes that back with: REVOKE CREATE ON SCHEMA {POSTGRES_SCHEMA} FROM "
                f"{role}."
            )

    def grant(self, analyst: str) -> None:
        """Let a database role spend."""
        with self._engine.writing() as connection:
            if not connection.scalar(text("SELECT count(*) FROM pg_roles WHERE rolname = :name"), {"name": analyst}):
                raise LedgerError(
                    f"the database has no role {analyst!r}; an administrator makes one with: CREATE ROLE "
                    f"{_quote(connection, analyst)} LOGIN PASSWORD '…'."
                )
            self._append(connection, EntryKind.GRANT, "", None, write_body(Member(check_analyst(analyst))))
            self._check_schema(connection, analyst)
            role = _quote(connection, analyst)
            connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {POSTGRES_SCHEMA} TO {role}")
            for right, things in _RIGHTS:
                connection.exec_driver_sql(f"GRANT {right} ON {things} TO {role}")

    def revoke(self, analyst: str) -> None:
        """Take a grant back."""
        with self._engine.writing() as connection:
            if not connection.scalar(text("SELECT count(*) FROM pg_roles WHERE rolname = :name"), {"name": analyst}):
                raise LedgerError(f"the database has no role {analyst!r}; check the name.")
            self._append(connection, EntryKind.REVOKE, "", None, write_body(Member(analyst)))
            role = _quote(connection, analyst)
            for right, things in _RIGHTS:
                connection.exec_driver_sql(f"REVOKE {right} ON {things} FROM {role}")

    def reserve(
        self, dataset: str, budget: Budget, terms: Terms, accounting: str, method: str, software: str
    ) -> LedgerRun:
        """Reserve a run's whole budget in one atomic step of the server, or raise BudgetExceededError."""
        dataset = check_name(dataset)
        body = reservation_body(budget, terms, accounting, method, software)
        try:
            with self._engine.stating() as connection:
                self._check_remembered(connection)
                number = self._append(connection, EntryKind.RESERVE, dataset, None, body)
        except BudgetExceededError:
            # says what is left
            admit(self.account(dataset), budget, price_run(budget, accounting), terms, self.analyst)
            raise
        self._note_head(limited=True)
        return LedgerRun(self, number, dataset, budget)

    def abandon_untouched(self, dataset: str | None = None) -> int:
        """Release open runs that have no event, one by one, and return their number; analysts their own only."""
        released = 0
        with self._engine.reading() as connection:
            owns = bool(connection.scalar(text(f"SELECT {POSTGRES_SCHEMA}.dagveil_owns()")))
            runs = read_books(connection, dataset).runs.values()
        for run in runs:
            if run.state is RunState.OPEN and not run.charges and (owns or run.analyst == self.analyst):
                with suppress(ClosedRunError), self._engine.stating() as connection:  # ended or charged meanwhile
                    self._append(connection, EntryKind.RELEASE, "", run.number, "{}")
                    released += 1
        return released

    def record_event(self, run_id: int, event: Event) -> None:
        """Write an event of an open run durably; LedgerError if the run is not open."""
        kind, body = charge(event)
        with self._engine.stating() as connection:
            self._append(connection, kind, "", run_id, body)

    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""
        with suppress(ClosedRunError), self._engine.stating() as connection:
            self._append(connection, EntryKind.CLOSE, "", run_id, "{}")
        self._note_head()

    def _lock(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT {POSTGRES_SCHEMA}.dagveil_lock()")

    def _append(self, connection: Connection, kind: EntryKind, dataset: str, run: int | None, body: str) -> int:
        """Add an entry, and return the number of its run; the server checks it and fills in the rest."""
        row = {"kind": kind.value, "dataset": dataset, "run": run, "body": body}
        return int(connection.scalar(_APPEND, row) or 0)


def _quote(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)

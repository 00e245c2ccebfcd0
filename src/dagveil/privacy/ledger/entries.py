"""Entries of the ledger's history: frozen, numbered without gaps, and each bound to the one before it by a digest.

The digest is SHA-256 over the previous digest and all fields, each written as its length in bytes, a colon, itself and
a comma, so that no two entries share one text. PostgreSQL computes the same in postgres.sql.
"""

import datetime
import enum
import hashlib
from typing import Final

import msgspec

from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event, Unbounded, encode_event
from dagveil.privacy.ledger.account import Allowance, Terms, price_run

NOTHING_BEFORE: Final = "0" * 64  # stands before the first entry


class EntryKind(enum.Enum):
    """What an entry says."""

    BEGUN = "begun"  # the history begins; holds a random name, so that no two ledgers have the same digests
    BUDGET = "budget"  # the owner sets the lifetime budget of a data set
    LIMIT = "limit"  # the owner sets what one analyst may spend on a data set, or lifts the limit
    GRANT = "grant"  # the owner lets a database role spend
    REVOKE = "revoke"  # the owner takes that back
    RESERVE = "reserve"  # an analyst reserves the budget of a run
    CHARGE = "charge"  # an event of a run, written before its noise is drawn
    UNBOUNDED = "unbounded"  # the same for an event without a guarantee
    CLOSE = "close"  # a run with charges ends
    RELEASE = "release"  # a run without charges ends, and costs nothing
    UNREADABLE = "unreadable"  # stands for a kind that this program does not know; never written


CHARGES: Final = (EntryKind.CHARGE, EntryKind.UNBOUNDED)


class Entry(msgspec.Struct, frozen=True):
    """One entry."""

    seq: int  # from 1
    kind: EntryKind
    dataset: str  # empty for the first entry, grants and revocations
    run: int | None
    analyst: str  # who wrote it: the role on PostgreSQL, elsewhere the given name, empty where none was noted
    body: str  # the rest, as JSON
    recorded: str
    previous: str
    digest: str

    def compute_digest(self) -> str:
        """Compute what the digest must be."""
        run = "" if self.run is None else str(self.run)
        about = self.previous, str(self.seq), self.kind.value, self.dataset, run
        fields = (*about, self.analyst, self.body, self.recorded)
        chain = hashlib.sha256()
        for field in fields:
            content = field.encode(errors="surrogateescape")
            chain.update(b"%d:%b," % (len(content), content))
        return chain.hexdigest()

    @property
    def words(self) -> str:
        """The entry for people."""
        about = f" of run {self.run}" if self.run is not None else f" of {self.dataset}" if self.dataset else ""
        return f"entry {self.seq} ({self.kind.value}{about})"


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of a lifetime budget: exact fractions as text; rho only where runs are also composed."""

    epsilon: str
    delta: str
    rho: str | None = None


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of an analyst's limit; without amounts the limit is lifted."""

    analyst: str
    epsilon: str | None = None
    delta: str | None = None
    rho: str | None = None


class Reservation(msgspec.Struct, frozen=True):
    """Body of a run's reservation: what it may spend, what that counts, under which terms, and who asks."""

    epsilon: str
    delta: str
    rho: str
    failure: str
    relation: str
    unit: str
    accounting: str
    method: str
    software: str


class Member(msgspec.Struct, frozen=True):
    """Body of a grant or a revocation."""

    analyst: str


def follow(
    last: Entry | None,
    kind: EntryKind,
    dataset: str,
    run: int | None,
    analyst: str,
    body: str,
    recorded: str | None = None,
) -> Entry:
    """Make the entry that comes after another; `recorded` is now unless given."""
    seq, previous = (1, NOTHING_BEFORE) if last is None else (last.seq + 1, last.digest)
    open_entry = Entry(seq, kind, dataset, run, analyst, body, recorded or utc_now(), previous, "")
    return msgspec.structs.replace(open_entry, digest=open_entry.compute_digest())


def write_body(body: Amounts | Limit | Reservation | Member) -> str:
    """Write a body as JSON."""
    return msgspec.json.encode(body).decode()


def budget_body(lifetime: Allowance) -> str:
    """Write the body of a lifetime budget."""
    return write_body(Amounts(*_amounts(lifetime)))


def limit_body(analyst: str, limit: Allowance | None) -> str:
    """Write the body of an analyst's limit."""
    return write_body(Limit(analyst) if limit is None else Limit(analyst, *_amounts(limit)))


def _amounts(allowance: Allowance) -> tuple[str, str, str | None]:
    budget, rho = allowance.budget, allowance.rho
    return str(budget.epsilon), str(budget.delta), None if rho is None else str(rho)


def reservation_body(budget: Budget, terms: Terms, accounting: str, method: str, software: str) -> str:
    """Write the body of a reservation."""
    price = price_run(budget, accounting)
    amounts = str(price.epsilon), str(price.delta), str(price.rho), str(price.failure)
    return write_body(Reservation(*amounts, terms.relation.value, terms.unit, accounting, method, software))


def charge(event: Event) -> tuple[EntryKind, str]:
    """Return kind and body of an event's entry."""
    kind = EntryKind.UNBOUNDED if isinstance(event, Unbounded) else EntryKind.CHARGE
    return kind, encode_event(event).decode()


def check_analyst(analyst: str) -> str:
    """Refuse names that no analyst has."""
    if not analyst or analyst != analyst.strip() or not analyst.isprintable() or len(analyst) > 200:
        raise LedgerError("an analyst's name has 1 to 200 characters, all printable, and no blanks around it.")
    return analyst


def utc_now() -> str:
    """Time now, in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

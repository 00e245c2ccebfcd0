"""Whether a history is whole: numbers without gaps, digests that fit, and no entry that the rules forbid."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from dagveil.errors import BudgetError, LedgerError
from dagveil.privacy.accounting import filter_named
from dagveil.privacy.events import decode_event
from dagveil.privacy.filter import Filter
from dagveil.privacy.ledger.account import RunState, admit, admit_lifetime, admit_limit
from dagveil.privacy.ledger.accounts import BookedRun, Books, nonsense
from dagveil.privacy.ledger.composition import price_run
from dagveil.privacy.ledger.entries import NOTHING_BEFORE, Entry, EntryKind

_HEAD: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry's number and digest: kept elsewhere, it shows later whether anything up to it was changed.

    Examples
    --------
    >>> Head.read("7:" + "ab" * 32).seq
    7
    """

    seq: int
    digest: str

    @classmethod
    def read(cls, text: str) -> Head:
        """Read what `str` wrote."""
        found = _HEAD.fullmatch(text.strip().lower())
        if found is None:
            raise LedgerError("a head is the number of an entry, a colon and 64 hexadecimal digits; copy it whole.")
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found; ``problem`` is None if everything fits, otherwise it names the first misfit."""

    entries: int
    head: Head
    problem: str | None


def verify_entries(entries: Iterable[Entry], kept: Head | None = None) -> Verdict:
    """Go through a history from its first entry.

    Parameters
    ----------
    entries
        In the order of their numbers.
    kept
        A head that was noted earlier. Without it, a history that was cut off at its end, or written anew from some
        entry on, cannot be told from a true one.

    Examples
    --------
    >>> from dagveil.privacy.ledger.entries import follow
    >>> first = follow(None, EntryKind.BEGUN, "", None, "ann", "{}")
    >>> verify_entries([first]).problem is None
    True
    >>> verify_entries([first], Head(2, first.digest)).problem
    'the history ends with entry 1, but entry 2 was there when the head was noted: its end was cut off'
    """
    books = Books()
    spent: dict[int, Filter] = {}
    last = Head(0, NOTHING_BEFORE)
    try:
        for entry in entries:
            problem = _check_place(entry, last) or _check_rules(books, spent, entry) or _check_kept(entry, kept)
            if problem is not None:
                return Verdict(last.seq, last, problem)
            last = Head(entry.seq, entry.digest)
    except LedgerError as error:  # an entry that cannot even be read
        return Verdict(last.seq, last, str(error))
    problem = None
    if last.seq == 0:
        problem = "the history is empty, but a ledger has at least its first entry: it was emptied"
    elif kept is not None and kept.seq > last.seq:
        problem = (
            f"the history ends with entry {last.seq}, but entry {kept.seq} was there when the head was noted: its end "
            "was cut off"
        )
    return Verdict(last.seq, last, problem)


def _check_place(entry: Entry, last: Head) -> str | None:
    """Say how an entry does not follow the one before it."""
    if entry.seq != last.seq + 1:
        missing = f"entry {last.seq + 1} is" if entry.seq == last.seq + 2 else f"entries from {last.seq + 1} on are"
        return f"{entry.words} follows entry {last.seq}: {missing} missing"
    if entry.compute_digest() != entry.digest:
        return f"{entry.words} does not fit its own digest: it was changed"
    if entry.previous != last.digest:
        return f"{entry.words} does not follow entry {last.seq}: one of the two was changed or put in its place"
    if (entry.kind is EntryKind.BEGUN) != (entry.seq == 1):
        return f"{entry.words} is out of place: a history begins once, with its first entry"
    return None


def _check_kept(entry: Entry, kept: Head | None) -> str | None:
    """Say how an entry is not the one that was noted earlier."""
    if kept is None or kept.seq != entry.seq or kept.digest == entry.digest:
        return None
    return (
        f"{entry.words} is not the one whose digest was noted: it or one before it was changed, and the digests were "
        "computed anew; or the head is another ledger's"
    )


def _check_rules(books: Books, spent: dict[int, Filter], entry: Entry) -> str | None:
    """Apply an entry, and say how it breaks the rules that the program keeps."""
    try:
        if entry.kind is EntryKind.RESERVE:
            before = books.account(entry.dataset)
            books.apply(entry)
            assert entry.run is not None
            run = books.runs[entry.run]
            if price_run(run.budget, run.accounting) != run.price:
                raise nonsense(entry, "it does not count what its epsilon and delta are worth")
            admit(before, run.budget, run.price, run.terms, entry.analyst)
            return None
        if entry.run is not None:
            run = books.named_run(entry)
            if run.state is not RunState.OPEN:
                raise nonsense(entry, "its run had ended")
            if entry.kind is EntryKind.RELEASE and run.charges:
                raise nonsense(entry, "a run with charges cannot be released")
            if entry.kind is EntryKind.CLOSE and not run.charges:
                raise nonsense(entry, "a run without charges is released, not closed")
            if entry.kind is EntryKind.CHARGE:
                _check_charge(spent, run, entry)
        before = books.account(entry.dataset)
        books.apply(entry)
        account = books.account(entry.dataset)
        if entry.kind is EntryKind.BUDGET and account.lifetime is not None:
            admit_lifetime(before, account.lifetime)
        if entry.kind is EntryKind.LIMIT:
            for share in account.shares:
                if share.limit is not None:
                    admit_limit(account, share.analyst, share.limit)
    except BudgetError as error:
        return f"{entry.words} breaks the rules: {error}"
    return None


def _check_charge(spent: dict[int, Filter], run: BookedRun, entry: Entry) -> None:
    """Charge the run's events again, and refuse what its reservation does not cover."""
    if run.number not in spent:
        spent[run.number] = filter_named(run.accounting, run.budget)
    try:
        event = decode_event(entry.body)
    except msgspec.MsgspecError as error:
        raise nonsense(entry, "its content cannot be read") from error
    spent[run.number].charge(event)

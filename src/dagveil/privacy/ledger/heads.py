"""Heads of ledgers that were charged on this computer, kept beside no ledger: a ledger that vanished or shrank shows.

Each ledger has a small file in the user's folder for state. Where that folder cannot be written nothing is remembered.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from dagveil.errors import LedgerError
from dagveil.privacy.ledger.verification import Head


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

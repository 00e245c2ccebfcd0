"""The ledger of a run that names none: the same for the command line and for Python."""

from __future__ import annotations

import enum
import os
from fractions import Fraction
from pathlib import Path
from typing import Final

from dagveil.data.schema import Schema
from dagveil.privacy.ledger.ledger import WAIT_SECONDS, Ledger

LEDGER_VARIABLE: Final = "DAGVEIL_LEDGER"


class UnnamedLedger(enum.Enum):
    """What the argument `ledger` is where a call leaves it out. None is another answer: no ledger."""

    DEFAULT = "default_ledger()"

    def __repr__(self) -> str:
        return self.value


LedgerPlace = Ledger | str | Path | UnnamedLedger | None
"""A ledger, its path or URL, the default one, or none."""


def default_ledger() -> str:
    """Return the ledger that is used when none is named: $DAGVEIL_LEDGER, or a file in the user's data folder."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return os.environ.get(LEDGER_VARIABLE) or str(folder / "dagveil" / "ledger.sqlite")


def open_private(place: str, wait_seconds: float = WAIT_SECONDS) -> Ledger:
    """Open a ledger; a new one is for its owner alone."""
    before = os.umask(0o077)
    try:
        return Ledger.open(place, wait_seconds)
    finally:
        os.umask(before)


def find_left(ledger: LedgerPlace, dataset: str) -> Fraction | None:
    """Return the epsilon that is left of a data set's lifetime budget; None where no ledger or no budget is known."""
    if ledger is UnnamedLedger.DEFAULT:
        ledger = default_ledger()
    if isinstance(ledger, str | Path):
        # to look is not to make one
        ledger = Ledger.open(ledger) if "://" in str(ledger) or Path(ledger).exists() else None
    if ledger is None or (account := ledger.account(dataset)).budget is None:
        return None
    return Fraction(0) if account.left is None else account.left.epsilon


def open_books(ledger: LedgerPlace, schema: Schema) -> Ledger | None:
    """Open the ledger of a run; None if nothing is to be recorded: at the caller's word, or by default if public."""
    if ledger is UnnamedLedger.DEFAULT:
        return None if schema.public else open_private(default_ledger())
    return ledger if ledger is None or isinstance(ledger, Ledger) else Ledger.open(ledger)

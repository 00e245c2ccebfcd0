"""Runs that stopped: which of them can be finished, and what becomes of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dagveil.privacy.ledger.account import RunRecord
from dagveil.privacy.ledger.ledger import Ledger

RECOVERY: Final = "recovery.jsonl"
"""Keeps what a run released until it is saved, as at the command line."""

PAID: Final = ("evidence.json", "result.json")
"""What a run saves; once one of them is there, nothing is left to recover."""


def is_kept(place: Path, run: RunRecord | None) -> bool:
    """Say whether a run was charged and only its recovery file has what it released.

    Parameters
    ----------
    place
        The folder of the job's files.
    run
        Its run in the ledger, if there is one.
    """
    saved = any((place / name).exists() for name in PAID)
    return run is not None and bool(run.events) and not saved and (place / RECOVERY).exists()


def settle_run(books: Ledger, number: int, place: Path) -> None:
    """Close a run whose process is at its end, unless it can be finished.

    An untouched run is released. A run whose evidence is saved needs its recovery file no more.
    """
    run = next((one for one in books.history() if one.id == number), None)
    if is_kept(place, run):
        return
    books.close_run(number)
    (place / RECOVERY).unlink(missing_ok=True)

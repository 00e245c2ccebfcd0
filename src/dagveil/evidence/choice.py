"""Which method was chosen for a run, and why, where nobody named one."""

from __future__ import annotations

import msgspec


class Candidate(msgspec.Struct, frozen=True):
    """A method that was rehearsed: the mean of its skeleton's F1 on made-up tables."""

    method: str
    f1: float


class Choice(msgspec.Struct, frozen=True):
    """The method that public facts chose.

    Parameters
    ----------
    method
        Name of the chosen one.
    why
        In words.
    candidates
        What was rehearsed, best first; empty if nothing was.
    left_out
        Methods that fit the schema but would have taken too long to rehearse.
    rows, models, seed
        Rows of each made-up table, how many there were, and their public seed.
    """

    method: str
    why: str
    candidates: tuple[Candidate, ...] = ()
    left_out: tuple[str, ...] = ()
    rows: int = 0
    models: int = 0
    seed: int = 0

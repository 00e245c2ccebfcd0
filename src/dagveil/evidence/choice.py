"""Which method was chosen for a run, and why, where nobody named one."""

from __future__ import annotations

import msgspec

AUTO = "auto"
"""Stands for a method where one may be chosen."""


class Candidate(msgspec.Struct, frozen=True):
    """A method that was tried: the mean of its skeleton's F1 on synthetic tables."""

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
        What was tried, best first; empty if nothing was.
    left_out
        Methods that fit the schema but would have taken too long to run_trial.
    rows, models, seed
        Rows of each synthetic table, how many there were, and their public seed.
    """

    method: str
    why: str
    candidates: tuple[Candidate, ...] = ()
    left_out: tuple[str, ...] = ()
    rows: int = 0
    models: int = 0
    seed: int = 0

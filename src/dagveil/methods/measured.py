"""What the rounds of a measuring method hand back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dagveil.evidence.bundle import Stage
from dagveil.privacy.release import Release

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Releases, the plan as it was carried out, and what a reader should know about it."""

    releases: tuple[Release, ...]
    plan: tuple[Stage, ...]
    findings: tuple[str, ...]


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""

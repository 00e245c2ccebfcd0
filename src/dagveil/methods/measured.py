"""What the rounds of a measuring method hand back."""

from __future__ import annotations

from dataclasses import dataclass

from dagveil.evidence.bundle import Stage
from dagveil.privacy.release import Release


@dataclass(frozen=True, slots=True)
class Measured:
    """Releases, the plan as it was carried out, and what a reader should know about it."""

    releases: tuple[Release, ...]
    plan: tuple[Stage, ...]
    findings: tuple[str, ...]

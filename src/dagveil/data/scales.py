"""Levels that have an order which anyone can see: numbers, ranges of numbers, and common scales of words."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_SCALES: Final = (
    ("very low", "low", "medium", "high", "very high"),
    ("low", "moderate", "high"),
    ("low", "middle", "high"),
    ("small", "medium", "large"),
    ("none", "mild", "moderate", "severe"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("never", "former", "current"),
    ("very poor", "poor", "fair", "good", "very good", "excellent"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("i", "ii", "iii", "iv", "v"),
    ("sehr niedrig", "niedrig", "mittel", "hoch", "sehr hoch"),
    ("nie", "selten", "manchmal", "oft", "immer"),
)
_RANGE: Final = re.compile(r"\s*[<>≤≥]?\s*(\d+)\s*(?:[-–]\s*\d+|\+|to\s+\d+)?\s*", re.ASCII)
_FEWEST: Final = 3


def order_levels(levels: Collection[str]) -> tuple[str, ...] | None:
    """Put levels in order, lowest first; None where no order is seen, or two levels leave no choice.

    Examples
    --------
    >>> order_levels(["high", "Low", "medium"]), order_levels(["80+", "0-9", "10-19"]), order_levels(["f", "m", "x"])
    (('Low', 'medium', 'high'), ('0-9', '10-19', '80+'), None)
    """
    if len(levels) < _FEWEST:
        return None
    starts = {level: int(match[1]) for level in levels if (match := _RANGE.fullmatch(level))}
    if len(starts) == len(levels) and len(set(starts.values())) == len(levels):
        return tuple(sorted(levels, key=starts.__getitem__))
    words = {level.strip().casefold(): level for level in levels}
    for scale in _SCALES:
        if words.keys() <= set(scale) and len(words) == len(levels):
            return tuple(words[word] for word in scale if word in words)
    return None

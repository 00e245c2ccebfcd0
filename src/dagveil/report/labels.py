"""Names that fit their boxes: measured, and broken into lines or shortened."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from dagveil.text import clean_text

FONT_SIZE: Final = 13.0  # size of node names, in pixels
WIDEST_LINE: Final = 130.0  # a name wider than this is broken into lines
WIDEST_WORD: Final = 230.0  # a word wider than this is broken too
LONGEST_NAME: Final = 1500.0  # only a name wider than this, about 190 letters, is shortened
# after blanks and signs, and where a capital follows a small letter
_BREAKS: Final = re.compile(r"(?<=[\s_./,;:-])(?![\s_./,;:-])|(?<=[a-z\u00df-\u00ff])(?=[A-Z\u00c0-\u00de])")

_NARROW: Final = frozenset("fijltrI.,:;'|!()[]{}\"`/\\ ")
_WIDE: Final = frozenset("mwMW@%&…")


def measure(text: str) -> float:
    """Estimate the width of a text in pixels, rather too wide than too narrow."""
    return FONT_SIZE * sum(_width(character) for character in text)


def split_words(name: str) -> list[str]:
    """Split a name after each place where a line may end."""
    return [word for word in _BREAKS.split(clean_text(name)) if word]


def break_lines(name: str) -> tuple[str, ...]:
    """Break a name into lines, whole words first; a name is shortened only if it is very long."""
    lines = [""]
    for word in split_words(shorten(name, LONGEST_NAME)):
        if lines[-1] and measure((lines[-1] + word).rstrip()) > WIDEST_LINE:
            lines.append("")
        whole = measure(word.rstrip()) <= WIDEST_WORD
        for piece in (word,) if whole else word:
            if lines[-1] and not whole and measure(lines[-1] + piece) > WIDEST_LINE:
                lines.append("")
            lines[-1] += piece
    return tuple(line.strip() for line in lines)


def shorten(name: str, widest: float) -> str:
    """Cut out the middle of a long name, because the ends tell columns apart."""
    text = clean_text(name)
    if measure(text) <= widest:
        return text
    kept = 2
    while measure(_cut(text, kept + 1)) <= widest:
        kept += 1
    return _cut(text, kept)


def _cut(text: str, kept: int) -> str:
    return f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"


def _width(character: str) -> float:
    """Width of a character in units of the font size, for a wide system font."""
    if unicodedata.combining(character):
        return 0.0
    if character in _NARROW:
        return 0.40
    if character in _WIDE or unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.70 if character.isupper() else 0.61

"""Text that is safe to draw: cleaned of what XML forbids, measured, and broken into lines or shortened to fit."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

FONT_SIZE: Final = 13.0
"""Size of node names, in pixels."""

WIDEST_LINE: Final = 130.0
"""A name wider than this is broken into lines."""

WIDEST_WORD: Final = 230.0
"""A word wider than this is broken too."""

LONGEST_NAME: Final = 1500.0
"""Only a name wider than this, about 190 letters, is shortened."""

# after blanks and signs, and where a capital follows a small letter
_BREAKS: Final = re.compile(r"(?<=[\s_./,;:-])(?![\s_./,;:-])|(?<=[a-z\u00df-\u00ff])(?=[A-Z\u00c0-\u00de])")

_NARROW: Final = frozenset("fijltrI.,:;'|!()[]{}\"`/\\ ")
_WIDE: Final = frozenset("mwMW@%&…")
# Overrides and isolates can make a name read as another one, so they are shown instead of obeyed.
_TURNING: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean_text(text: str) -> str:
    r"""Replace characters that XML forbids or that turn the reading direction.

    Examples
    --------
    >>> clean_text("two\nlines\x00")
    'two lines�'
    """
    return "".join(_clean(character) for character in text)


def clean_lines(text: str) -> str:
    r"""Clean every line of a text, and keep the lines.

    Examples
    --------
    >>> clean_lines("one\n\x1b[2Jtwo\n")
    'one\n�[2Jtwo\n'
    """
    return "\n".join(clean_text(line) for line in text.split("\n"))


def measure(text: str) -> float:
    """Estimate the width of a text in pixels, rather too wide than too narrow.

    Examples
    --------
    >>> measure("lung") < measure("LUNG") < measure("肺がん腫")
    True
    """
    return FONT_SIZE * sum(_width(character) for character in text)


def split_words(name: str) -> list[str]:
    """Split a name after each place where a line may end.

    Examples
    --------
    >>> split_words("systolicPressure_before visit")
    ['systolic', 'Pressure_', 'before ', 'visit']
    """
    return [word for word in _BREAKS.split(clean_text(name)) if word]


def break_lines(name: str) -> tuple[str, ...]:
    """Break a name into lines, whole words first; a name is shortened only if it is very long.

    Examples
    --------
    >>> break_lines("lung"), break_lines("blood_pressure_before_the_visit_systolic")
    (('lung',), ('blood_pressure_', 'before_the_visit_', 'systolic'))
    """
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
    """Cut out the middle of a long name, because the ends tell columns apart.

    Examples
    --------
    >>> shorten("lung", 150), shorten("blood_pressure_before_the_visit_systolic", 150)
    ('lung', 'blood_pre…_systolic')
    """
    text = clean_text(name)
    if measure(text) <= widest:
        return text
    kept = 2
    while measure(_cut(text, kept + 1)) <= widest:
        kept += 1
    return _cut(text, kept)


def _cut(text: str, kept: int) -> str:
    return f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"


def _clean(character: str) -> str:
    if character in "\t\n\r\u2028\u2029":
        return " "
    code = ord(character)
    category = unicodedata.category(character)
    if category in ("Cc", "Cs") or character in _TURNING or code & 0xFFFE == 0xFFFE:
        return "\ufffd"
    return character


def _width(character: str) -> float:
    """Width of a character in units of the font size, for a wide system font."""
    if unicodedata.combining(character):
        return 0.0
    if character in _NARROW:
        return 0.40
    if character in _WIDE or unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.70 if character.isupper() else 0.61

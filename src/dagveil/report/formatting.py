"""Numbers, dates and names as people read them; budgets are rounded up, shares never to a false 0 or 100."""

import re
import unicodedata
from datetime import datetime
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final

from dagveil.privacy.budget import round_up
from dagveil.text import clean_text

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def write_epsilon(epsilon: Fraction) -> str:
    """Print epsilon, rounded up."""
    return round_up(epsilon, 4)


def write_delta(delta: Fraction) -> str:
    """Print delta in scientific notation, rounded up."""
    if delta == 0:
        return "0"
    context = Context(prec=2, rounding=ROUND_CEILING)
    shown = context.divide(Decimal(delta.numerator), Decimal(delta.denominator)).normalize(context)
    mantissa, exponent = f"{shown:e}".split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPT)
    return power if mantissa == "1" else f"{mantissa} × {power}"


def write_share(share: float | None) -> str:
    """Print a confidence as whole percent."""
    if share is None:
        return "–"
    percent = round(100 * share)
    if percent == 0 and share > 0:
        return "< 1 %"
    if percent == 100 and share < 1:
        return "> 99 %"
    return f"{percent} %"


def write_percent(share: float) -> str:
    """Print a share as percent for machines."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".")


def write_part(part: float) -> str:
    """Print a part of the budget with one decimal."""
    if 0 < part < 0.0005:
        return "< 0.1 %"
    return f"{100 * part:.1f}".removesuffix(".0") + " %"


def write_count(count: int | None) -> str:
    """Print a whole number in groups of three."""
    return "–" if count is None else f"{count:,}".replace(",", "\u202f")


def write_number(number: float | None) -> str:
    """Print a measured number with three significant digits."""
    if number is None:
        return "–"
    if abs(number) >= 1000:
        return write_count(round(number))
    return f"{number:.3g}"


def write_date(stamp: str) -> str:
    """Print a time stamp; text that is no time stamp stays as it is."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    zone = "" if moment.tzinfo is None else " UTC" if not moment.utcoffset() else f" UTC{moment:%z}"
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}, {moment:%H:%M}{zone}"


def write_plural(count: int, noun: str) -> str:
    """Print a count with its noun."""
    return f"{write_count(count)} {noun}" if count == 1 else f"{write_count(count)} {noun}s"


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

"""Which texts stand for which levels, and how numbers are written to be compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dagveil.data.column import MISSING_LABEL, OTHER_LABEL, OWN_LEVEL, Boolean, LevelColumn

_TRUE: Final = ("true", "t", "yes", "1")
_FALSE: Final = ("false", "f", "no", "0")
_LARGEST_EXACT_INTEGER: Final = 2**53


def spell_levels(column: LevelColumn) -> Mapping[str, int]:
    """Give every accepted text with the position of the level that it stands for.

    A truth value in the data has the text "true" or "false"; a level called True or TRUE accepts it too.

    Examples
    --------
    >>> spell_levels(Boolean())["YES"]
    1
    """
    spellings: dict[str, int] = {}
    if not isinstance(column, Boolean):
        spellings.update((level, position) for position, level in enumerate(column.levels))
        for word in ("true", "false"):
            for level in (word.capitalize(), word.upper()):
                if level in column.levels:
                    spellings.setdefault(word, spellings[level])
        return spellings
    for position, words in enumerate((_FALSE, _TRUE)):
        for word in words:
            spellings.update(dict.fromkeys((word, word.upper(), word.capitalize()), position))
    return spellings


def place_codes(column: LevelColumn) -> tuple[int, ...]:
    """Give the code of every level, then the code of outside values, then that of missing values.

    Examples
    --------
    >>> from dagveil.data.column import Categorical
    >>> place_codes(Categorical(levels=("a", "b"), outside="b", missing="own-level"))
    (0, 1, 1, 2)
    """
    labels = column.labels
    outside = labels.index(OTHER_LABEL if column.outside == OWN_LEVEL else column.outside)
    if column.missing is None:
        missing = outside
    else:
        missing = labels.index(MISSING_LABEL if column.missing == OWN_LEVEL else column.missing)
    return (*range(len(column.levels)), outside, missing)


def spell_number(number: float) -> str:
    """Write a number as levels name it: whole numbers without a point, others with the fewest digits.

    Examples
    --------
    >>> spell_number(3.0), spell_number(0.1)
    ('3', '0.1')
    """
    if abs(number) < _LARGEST_EXACT_INTEGER and number == int(number):
        return str(int(number))
    return repr(number)


def is_integer_text(text: str) -> bool:
    """Say whether a level is the text of a whole number."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 25 and str(int(text)) == text


def is_float_text(text: str) -> bool:
    """Say whether a level is the text of a number."""
    try:
        number = float(text)
    except ValueError:
        return False
    return number == number and spell_number(number) == text

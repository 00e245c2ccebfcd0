"""Which texts stand for which levels, and how numbers are written to be compared with them."""

from __future__ import annotations

import decimal
import re
from collections.abc import Mapping
from typing import Final

from dagveil.data.column import (
    FALSE_WORDS,
    MISSING_LABEL,
    OTHER_LABEL,
    OWN_LEVEL,
    TRUE_WORDS,
    Boolean,
    LevelColumn,
)

_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", flags=re.ASCII)
_LONGEST_PLAIN: Final = 400


def spell_levels(column: LevelColumn) -> Mapping[str, int]:
    """Give every accepted text with the position of the level that it stands for; words for missing ones come last.

    Positions are those of `place_codes`. A truth value in the data has the text "true" or "false"; a level called True
    or TRUE accepts it too.

    Examples
    --------
    >>> spell_levels(Boolean())["YES"]
    1
    """
    if isinstance(column, Boolean):
        spellings = dict.fromkeys(FALSE_WORDS, 0) | dict.fromkeys(TRUE_WORDS, 1)
    else:
        spellings = {level: position for position, level in enumerate(column.levels)}
    for level, texts in (column.spellings or {}).items():
        spellings.update(dict.fromkeys(texts, column.levels.index(level)))
    spellings.update(dict.fromkeys(column.missing_words or (), len(column.levels) + 1))
    for word in ("true", "false"):
        for text in (word.capitalize(), word.upper()):
            if text in spellings:
                spellings.setdefault(word, spellings[text])
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
    # adding zero turns -0.0 into 0.0
    return repr(float(number) + 0.0).removesuffix(".0")


def spell_decimal(number: decimal.Decimal) -> str:
    """Write a decimal as levels name it: plainly, without closing zeros, whatever its scale.

    Examples
    --------
    >>> spell_decimal(decimal.Decimal("0.30")), spell_decimal(decimal.Decimal("1E+2"))
    ('0.3', '100')
    """
    if not number.is_finite():
        return spell_number(float(number))
    if number == 0:
        return "0"
    if abs(number.adjusted()) > _LONGEST_PLAIN:
        # far beyond the longest level; the plain text could fill the memory
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").removesuffix(".") if "." in text else text


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


def is_decimal_text(text: str) -> bool:
    """Say whether a level is the plain text of a decimal."""
    return _PLAIN_DECIMAL.fullmatch(text) is not None and spell_decimal(decimal.Decimal(text)) == text

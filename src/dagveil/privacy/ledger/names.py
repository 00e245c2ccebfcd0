"""Names of data sets: two that look alike must not have two budgets."""

from __future__ import annotations

import unicodedata
from typing import Final

from dagveil.errors import LedgerError

_LOOK_ALIKES: Final = str.maketrans(
    # Cyrillic, Greek and rare Latin letters that are drawn like common Latin ones, as capitals or as small letters
    "аеорсухіјѕԁһӏԛԝвкмнт" + "αβεζηικμνορτυχ" + "ıɩɑɡ",
    "aeopcyxijsdhlqwbkmht" + "abezhikmvoptyx" + "iiag",
)
MOST_CHARACTERS: Final = 200


def tidy_name(name: str) -> str:
    """Return the form in which a data set's name is kept: compatible characters as one, small letters, single blanks.

    Examples
    --------
    >>> tidy_name(" Visits of  2024 ")
    'visits of 2024'
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def check_name(name: str) -> str:
    """Return the tidy name of a data set; LedgerError for one that could be taken for another.

    Examples
    --------
    >>> check_name("Clinic")
    'clinic'
    """
    tidy = tidy_name(name)
    if not tidy or len(tidy) > MOST_CHARACTERS:
        raise LedgerError(f"the name of a data set has 1 to {MOST_CHARACTERS} characters; choose another.")
    if not tidy.isprintable() or any(unicodedata.category(letter) in ("Cf", "Co", "Cn", "Cs") for letter in tidy):
        raise LedgerError("the name of a data set has a character that cannot be seen; write it again by hand.")
    scripts = {unicodedata.name(letter, "UNKNOWN").split()[0] for letter in tidy if letter.isalpha()}
    read = tidy.translate(_LOOK_ALIKES)
    if len(scripts - {"CJK", "HIRAGANA", "KATAKANA"}) > 1 or (read != tidy and read.isascii()):
        raise LedgerError(
            f"the name {tidy!r} has letters that look like those of another alphabet, so that two data sets could be "
            "taken for one; choose a name that cannot be misread."
        )
    return tidy

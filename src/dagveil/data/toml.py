"""TOML from files that anyone may have written: bounded before it is parsed, and every failure is a sentence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from dagveil.errors import DagveilError

MOST_CHARACTERS: Final = 16 * 2**20
"""A schema of thousands of columns is smaller."""

MOST_PARTS: Final = 64
"""Parts of a dotted key: the parser's time grows with their square."""

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'[^']*'")
_BETWEEN_KEYS: Final = re.compile(r"[,={}\[\]#]")


def parse_toml(text: str, error: type[DagveilError], what: str) -> dict[str, Any]:
    """Return a TOML document, or raise an error of the given kind that says what is wrong with it.

    Parameters
    ----------
    text
        The document.
    error
        What is raised.
    what
        Is read, such as "the schema".

    Examples
    --------
    >>> from dagveil.errors import SchemaError
    >>> parse_toml("a.b = 1", SchemaError, "the schema")
    {'a': {'b': 1}}
    """
    if len(text) > MOST_CHARACTERS:
        raise error(f"{what} has {len(text)} characters, and at most {MOST_CHARACTERS} are read; make it shorter")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") >= MOST_PARTS and _has_long_key(line):
            raise error(f"line {number} of {what} has a key of more than {MOST_PARTS} parts; write it with fewer dots")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise error(f"{what} is not valid TOML: {problem}") from None
    except RecursionError:
        raise error(f"{what} has too many brackets within each other; write it flatter") from None
    except ValueError:
        raise error(f"{what} has a number with more digits than can be read; write a shorter one") from None


def load_toml(path: str | Path, error: type[DagveilError], what: str, hint: str) -> dict[str, Any]:
    """Read a TOML file; `hint` says what a readable one holds, or where it comes from.

    Parameters
    ----------
    path
        Of the file.
    error, what
        As in `parse_toml`.
    hint
        What to do next if there is no such file.
    """
    return parse_toml(read_text(path, error, what, hint), error, f"{what} in {path}")


def read_text(path: str | Path, error: type[DagveilError], what: str, hint: str) -> str:
    """Return the text of a file, of which no more is read than is ever parsed."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return file.read(MOST_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise error(f"{what} in {path} is not encoded as UTF-8; save it as UTF-8") from None
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "this is no path"
        raise error(f"cannot read {path}: {reason}; {hint}") from problem


def _has_long_key(line: str) -> bool:
    pieces = _BETWEEN_KEYS.split(_QUOTED.sub("", line))
    return any(piece.count(".") >= MOST_PARTS for piece in pieces)

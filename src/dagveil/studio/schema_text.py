"""The text of a schema.toml as the studio shows and takes it: where a mistake stands, and what a draft may show."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

import tomli_w

from dagveil.data.draft import DATES
from dagveil.data.schema import Schema, schema_from_toml, schema_to_toml
from dagveil.errors import SchemaError

OUTLINE: Final = (
    "# Levels and bounds of the draft were read from the data, so they are not shown here. Declare what is public\n"
    "# knowledge, and set reviewed = true. To leave a column out, delete its section and name it under ignore.\n"
)

_LOOK: Final = re.compile(r'# look at ("(?:[^"\\]|\\.)*"): (.*)')
_KEY: Final = re.compile(r"\s*([A-Za-z_]+)\s*=")
_TO_DECLARE: Final = {"categorical": "levels", "ordinal": "levels", "numeric": "bounds"}

_DOUBTS: Final = (
    ("dates or times", DATES),
    (
        "spellings of",
        "a level has several spellings: make them the same in the data, or declare `spellings` in the text",
    ),
    ("became levels", "too many different texts to be levels: group them in the data, or leave the column out"),
    ("in these rows", "it hardly varies in these rows: is it the column that you meant?"),
    ("missing values", "it has missing values: say where they go"),
)
_UNFIT: Final = "looks like names of records or persons: left out"
_OTHER: Final = "something is odd about it: `dagveil schema draft` at the command line says what"


def read_schema(text: str) -> Schema:
    """Read a schema, or say on which line it is wrong."""
    try:
        return schema_from_toml(text)
    except SchemaError as error:
        line = _find_line(text, str(error))
        raise SchemaError(str(error) if line is None else f"line {line}: {error}") from None


def is_same_text(text: str, content: bytes) -> bool:
    """Say whether a text is that of a file, as far as an editor can tell: not by its line ends or byte order mark."""
    try:
        return _lines(content.decode("utf-8-sig")) == _lines(text)
    except UnicodeDecodeError:
        return False


def outline_draft(draft: Schema) -> str:
    """Return a draft without anything that was read from cells: what is left is for a person to fill in."""
    document: dict[str, Any] = tomllib.loads(schema_to_toml(draft))
    document["columns"] = {
        name: {"kind": column["kind"], **({wanted: []} if (wanted := _TO_DECLARE.get(column["kind"])) else {})}
        for name, column in document["columns"].items()
    }
    return OUTLINE + tomli_w.dumps(document)


def write_draft(draft: Schema, doubts: Mapping[str, str]) -> str:
    """Return the text of a draft, with what to look at in its first lines; these hold no cell and no count."""
    text = schema_to_toml(draft)
    header, _, rest = text.partition("\n")
    looks = [
        f"# look at {json.dumps(name)}: {_describe(doubt, name in draft.ignore)}" for name, doubt in doubts.items()
    ]
    return "\n".join([header, *looks, rest])


def read_doubts(text: str) -> dict[str, str]:
    """Return what `write_draft` wrote about columns."""
    found = {}
    for line in text.split("\n"):
        if not line.startswith("#"):
            break
        if look := _LOOK.fullmatch(line):
            found[str(json.loads(look[1]))] = look[2]
    return found


def _describe(doubt: str, left_out: bool) -> str:
    """Say a doubt without the values and counts that it may quote."""
    known = next((words for part, words in _DOUBTS if part in doubt), None)
    if left_out:
        return DATES if known == DATES else _UNFIT
    return known or _OTHER


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _find_line(text: str, message: str) -> int | None:
    """Return the line that an error is about, as far as it can be found."""
    if " line " in message or message.startswith("line "):
        return None  # it says so itself
    place: tuple[str, ...] = ()
    section: int | None = None
    for number, line in enumerate(_lines(text).split("\n"), start=1):
        if line.lstrip().startswith("["):
            place = _read_header(line)
            if _is_about(message, place) and section is None:
                section = number
        elif _is_about(message, place) and (key := _KEY.match(line)) and key[1] in _words(message, place):
            return number
    return section


def _words(message: str, place: tuple[str, ...]) -> set[str]:
    return set(re.split(r"[^A-Za-z_]+", message.removeprefix(".".join(place))))


def _read_header(line: str) -> tuple[str, ...]:
    try:
        inner: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    place: list[str] = []
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        place.append(name)
    return tuple(place)


def _is_about(message: str, place: tuple[str, ...]) -> bool:
    if place[:1] == ("columns",):
        return len(place) > 1 and message.startswith(f"columns.{place[1]}: ")
    return len(place) == 1 and (message.startswith(f"{place[0]}.") or f"`{place[0]}" in message)

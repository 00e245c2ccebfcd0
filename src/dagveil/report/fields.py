"""Typed reading of decoded JSON: each miss says which field, and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dagveil.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object and its place in the file, for error messages.

    Unknown fields are left alone. Messages name the field and never its content.

    Examples
    --------
    >>> Record({"name": "measure"}, "method").text("name")
    'measure'
    """

    content: Mapping[str, Any]
    place: str

    @classmethod
    def of(cls, value: Any, place: str) -> Record:
        """Wrap a JSON object."""
        if not isinstance(value, Mapping):
            raise DataError(f"{place} is {_kind(value)} where an object is needed; {_ADVICE}")
        return cls(value, place)

    def text(self, name: str, default: str | None = None) -> str:
        """Read a string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of strings; empty if it is missing."""
        values = self._list(name)
        for value in values:
            if not isinstance(value, str):
                raise self._wrong(name, value, "a list of texts")
        return values

    def whole(self, name: str) -> int | None:
        """Read a whole number from 0 up; None if it is missing."""
        value = self.content.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(name, value, "a whole number from 0 up")
        return value

    def number(self, name: str) -> float | None:
        """Read a finite number; None if it is missing."""
        value = self.content.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(name, value, "a finite number")
        return float(value)

    def share(self, name: str) -> float | None:
        """Read a number from 0 to 1; None if it is missing."""
        value = self.number(name)
        if value is not None and not 0 <= value <= 1:
            raise DataError(f"{self.place}.{name} lies outside 0 to 1; {_ADVICE}")
        return value

    def truth(self, name: str) -> bool:
        """Read a truth value; false if it is missing."""
        value = self.content.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "a truth value")
        return value

    def fraction(self, name: str) -> Fraction:
        """Read an exact fraction from 0 up, written as text."""
        value = self._get(name, None)
        try:
            return read_amount(Fraction, value)
        except ValueError:
            raise self._wrong(name, value, 'an exact fraction from 0 up, such as "1/2",') from None

    def record(self, name: str) -> Record:
        """Read an object inside this one."""
        return Record.of(self._get(name, None), f"{self.place}.{name}")

    def records(self, name: str) -> tuple[Record, ...]:
        """Read a list of objects; empty if it is missing."""
        return tuple(Record.of(value, f"{self.place}.{name}[{i}]") for i, value in enumerate(self._list(name)))

    def _get(self, name: str, default: Any) -> Any:
        value = self.content.get(name, default)
        if value is None:
            raise DataError(f"{self.place} has no field {name!r}; {_ADVICE}")
        return value

    def _list(self, name: str) -> tuple[Any, ...]:
        value = self.content.get(name, ())
        if not isinstance(value, list | tuple):
            raise self._wrong(name, value, "a list")
        return tuple(value)

    def _wrong(self, name: str, value: Any, needed: str) -> DataError:
        return DataError(f"{self.place}.{name} is {_kind(value)} where {needed} is needed; {_ADVICE}")


def read_amount(kind: type, value: Any) -> Fraction:
    """Decode hook for msgspec: text becomes a fraction from 0 up, or ValueError.

    Stricter than `Fraction`, which would spend all memory on "1e999999999".

    Examples
    --------
    >>> read_amount(Fraction, "3/4")
    Fraction(3, 4)
    """
    if kind is not Fraction or isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("not an amount")
    if not _AMOUNT.fullmatch(str(value)):
        raise ValueError("an amount is written as p or p/q")
    return Fraction(value)


_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+|/0*[1-9][0-9]*)?")
_ADVICE = "give a result.json that dagveil wrote, unchanged"


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "a text", list: "a list", tuple: "a list"}
    return kinds.get(type(value), "an object")

"""Exact fractions in JSON, as text "p/q"; the hooks that every frozen record of the program shares."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_FRACTION: Final = re.compile(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,4000})?")


def write_fraction(value: Any) -> Any:
    """Encode hook for msgspec: a Fraction becomes "p/q"."""
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(f"cannot write {type(value).__name__} as JSON")


def read_fraction(kind: type, value: Any) -> Any:
    """Decode hook for msgspec: "p/q" becomes a Fraction."""
    if kind is Fraction:
        return parse_fraction(value)
    raise NotImplementedError(f"cannot read {kind.__name__} from JSON")


def parse_fraction(value: Any) -> Fraction:
    """Read "p/q" or "p"; nothing else, since exponents such as 1e999999999 would take all memory.

    Examples
    --------
    >>> parse_fraction("3/4")
    Fraction(3, 4)
    """
    if not isinstance(value, str) or _FRACTION.fullmatch(value) is None:
        raise ValueError("an exact fraction is written as text, p/q, in digits")
    return Fraction(value)


def encode(value: Any) -> bytes:
    """Write a record as JSON.

    Examples
    --------
    >>> encode({"epsilon": Fraction(1, 10)})
    b'{"epsilon":"1/10"}'
    """
    return msgspec.json.encode(value, enc_hook=write_fraction)


def decode(content: bytes | str, kind: type[T]) -> T:
    """Read a record from JSON.

    Examples
    --------
    >>> decode(b'["1/10"]', list[Fraction])
    [Fraction(1, 10)]
    """
    return msgspec.json.decode(content, type=kind, dec_hook=read_fraction)

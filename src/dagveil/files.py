"""Files of JSON: documents with a format and a version, and exact fractions in them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from dagveil.errors import DagveilError, DataError

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


def encode_json(value: Any) -> bytes:
    """Write a record as JSON.

    Examples
    --------
    >>> encode_json({"epsilon": Fraction(1, 10)})
    b'{"epsilon":"1/10"}'
    """
    return msgspec.json.encode(value, enc_hook=write_fraction)


def decode_json(content: bytes | str, kind: type[T]) -> T:
    """Read a record from JSON.

    Examples
    --------
    >>> decode_json(b'["1/10"]', list[Fraction])
    [Fraction(1, 10)]
    """
    return msgspec.json.decode(content, type=kind, dec_hook=read_fraction)


MOST_BYTES: Final = 2**30
"""Files larger than this are not read: no release is."""

SEAL: Final = "seal"
"""Field of the seal in a file."""


_DOCUMENTS: Final[dict[type, Document[Any]]] = {}  # by the kind of record, those that are written with a seal


class SavedRecord(msgspec.Struct, frozen=True):
    """A record that is written as JSON, with a seal if its kind of file has one."""

    def to_json(self) -> str:
        """Write it as JSON."""
        document = _DOCUMENTS.get(type(self))
        return msgspec.json.format(encode_json(self) if document is None else document.write(self), indent=2).decode()

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Document(Generic[T]):
    """One kind of file.

    - `kind`: of the record in it.
    - `format`, `version`: what its first fields must say.
    - `noun`: of what is in it, for messages.
    - `file`: name of such a file with its article.
    - `writer`: who writes it.
    - `remedy`: what to do with a damaged one.
    - `error`: for another version and for damage.
    - `sealed`: whether the file carries a seal.
    - `check`: refuses a record that contradicts itself.
    """

    kind: type[T]
    format: str
    version: int
    noun: str
    file: str
    writer: str
    remedy: str
    error: type[DagveilError] = DataError
    sealed: bool = False
    check: Callable[[T], None] = lambda record: None

    def __post_init__(self) -> None:
        _DOCUMENTS[self.kind] = self

    def open(self, path: str | Path) -> T:
        """Read the record in a file."""
        return self.read(self.load(path))

    def write(self, record: T) -> bytes:
        """Write a record as JSON, sealed if this kind of file is."""
        content = encode_json(record)
        if not self.sealed:
            return content
        return msgspec.json.encode(seal(msgspec.json.decode(content)))

    def read(self, text: str | bytes) -> T:
        """Read the record back, or say why it cannot be read."""
        if len(text) > MOST_BYTES:
            raise DataError(f"this has {len(text)} bytes, and {self.file} has at most {MOST_BYTES}; give one")
        try:
            head = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise DataError(f"this is not JSON; give {self.file} that {self.writer} wrote") from error
        if not isinstance(head, dict) or head.get("format") != self.format:
            raise DataError(f"this JSON is not {self.noun}; give {self.file} that {self.writer} wrote")
        if head.get("version") != self.version:
            raise self.error(
                f"this is {self.noun} of format version {str(head.get('version'))[:20]}, and this program reads "
                f"{self.version}; use the dagveil that wrote it, or a newer one"
            )
        if self.sealed:
            self._check_seal(head)
        try:
            record = decode_json(text, self.kind)
            self.check(record)
        except DagveilError:
            raise
        except msgspec.ValidationError as error:
            raise self.error(f"this is {self.noun} that is damaged: {error}; {self.remedy}") from error
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            # what a forged record trips over need not be a message for people
            raise self.error(f"this is {self.noun} that is damaged: its numbers do not fit; {self.remedy}") from error
        return record

    def load(self, path: str | Path) -> bytes:
        """Return what is in a file."""
        try:
            with Path(path).open("rb") as file:
                return file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "this is no path"
            raise DataError(f"cannot read {path}: {reason}; give the path of {self.file}") from error

    def _check_seal(self, head: dict[str, Any]) -> None:
        if SEAL not in head:
            raise self.error(
                f"this is {self.noun} without a seal: an older dagveil wrote it, or someone took the seal away; "
                f"{self.remedy}"
            )
        if seal(head) != head:
            raise self.error(
                f"this is {self.noun} that was changed after it was written: its seal does not fit; ask for the file "
                f"as it was written, or {self.remedy}"
            )


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its seal, whatever seal it had. The order of keys counts, since columns have one.

    Examples
    --------
    >>> seal({"a": 1, "b": 2})["seal"] == seal({"a": 1, "b": 2, "seal": ""})["seal"]
    True
    """
    bare = {key: value for key, value in content.items() if key != SEAL}
    return {**bare, SEAL: hashlib.sha256(msgspec.json.encode(bare)).hexdigest()}

"""Files of the program: JSON that says what it is and in which version, read back with errors that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from dagveil.errors import DagveilError, DataError
from dagveil.privacy import fraction_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Document(Generic[T]):
    """One kind of file.

    Attributes
    ----------
    kind
        Of the record in it.
    format, version
        What its first fields must say.
    noun
        Of what is in it, for messages.
    file
        Name of such a file with its article.
    writer
        Who writes it.
    remedy
        What to do with a damaged one.
    error
        For another version and for damage.
    """

    kind: type[T]
    format: str
    version: int
    noun: str
    file: str
    writer: str
    remedy: str
    error: type[DagveilError] = DataError

    def read(self, text: str | bytes) -> T:
        """Read the record back, or say why it cannot be read."""
        try:
            head = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"this is not JSON; give {self.file} that {self.writer} wrote") from error
        if not isinstance(head, dict) or head.get("format") != self.format:
            raise DataError(f"this JSON is not {self.noun}; give {self.file} that {self.writer} wrote")
        if head.get("version") != self.version:
            raise self.error(
                f"this is {self.noun} of format version {head.get('version')}, and this program reads {self.version}; "
                "use the dagveil that wrote it, or a newer one"
            )
        try:
            return fraction_json.decode(text, self.kind)
        except msgspec.ValidationError as error:
            raise self.error(f"this is {self.noun} that is damaged: {error}; {self.remedy}") from error

    def load(self, path: str | Path) -> bytes:
        """Return what is in a file."""
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}; give the path of {self.file}") from error

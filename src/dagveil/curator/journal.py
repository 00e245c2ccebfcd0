"""A run's released answers, on disk before anyone is told them: what was paid for outlives the process.

One JSON line says which run it is, then comes one line per answer, each with a digest that also covers the lines
before. It holds what was released and nothing else: no exact number and no noise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from dagveil.errors import DataError
from dagveil.files import decode_json, encode_json
from dagveil.privacy.events import Event

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

JOURNAL_VERSION: Final = 1
WIDTH: Final = len(str(-(2**63)))  # characters of a value; the longest takes all of them


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Which run a journal belongs to; `asked` is what has to be the same to go on with it."""

    format: Literal["dagveil-recovery"] = "dagveil-recovery"
    version: int = JOURNAL_VERSION
    place: str
    run: int
    started: str
    ledger: str
    created: str
    asked: dict[str, str]
    key: str = ""  # decides which records of a person count; it tells nothing about them


class Kept(msgspec.Struct, frozen=True):
    """One answer: what it was charged, a digest of what was asked, what was released, and the digest of the line."""

    events: tuple[Event, ...]
    question: str
    values: tuple[int, ...]
    digest: str


class Journal:
    """The file of one run; only one process at a time has it open."""

    def __init__(self, path: Path, handle: int, order: Order, answers: Sequence[Kept], digest: str) -> None:
        self.path = path
        self.order = order
        self.answers = tuple(answers)
        self._handle = handle
        self._digest = digest
        self._waiting = False

    @classmethod
    def create(cls, path: Path, order: Order) -> Journal:
        """Make the file, for the owner's eyes only; it must not exist."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise DataError(f"cannot make the recovery file {path}: {error.strerror}; choose another output") from error
        try:
            _lock(handle, path)
            content = encode_json(order) + b"\n"
            journal = cls(path, handle, order, (), _chain("", content))
            journal._write(content)
            _sync_folder(path.parent)
        except BaseException:
            os.close(handle)
            path.unlink(missing_ok=True)
            raise
        return journal

    @classmethod
    def reopen(cls, path: Path) -> Journal:
        """Take up the file of a run that stopped; a last line that was not written to its end is taken away."""
        if fcntl is None:
            raise DataError(f"this system cannot tell whether a process is at work on {path}; finish the run elsewhere")
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError as error:
            raise DataError(f"cannot open the recovery file {path}: {error.strerror}; fix its permissions") from error
        try:
            _lock(handle, path)
            with os.fdopen(os.dup(handle), "rb") as file:
                order, answers, digest, length = _read(file.read(), path)
            os.ftruncate(handle, length)
            os.lseek(handle, 0, os.SEEK_END)
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle, order, answers, digest)

    def add(self, events: Sequence[Event], question: str, values: Sequence[int]) -> None:
        """Write an answer, and durably if it was charged; others wait for `sync`."""
        body = encode_json((tuple(events), question, tuple(values)))
        digest = _chain(self._digest, body)
        # lines have a public length: whether a disk is full must not depend on what was drawn
        padded = ",".join(f"{value:>{WIDTH}}" for value in values)
        head = encode_json(Kept(tuple(events), question, (), digest))
        self._write(head.replace(b'"values":[]', f'"values":[{padded}]'.encode()) + b"\n", durably=bool(events))
        self._digest = digest

    def sync(self) -> None:
        """Make durable what is not: a next charge may tell of it."""
        if self._waiting:
            self._write(b"")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

    def remove(self) -> None:
        """Let go of the file and delete it: nothing was paid for."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _write(self, content: bytes, *, durably: bool = True) -> None:
        start = os.lseek(self._handle, 0, os.SEEK_CUR)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            if durably:
                os.fsync(self._handle)
            self._waiting = not durably
        except OSError as error:
            os.ftruncate(self._handle, start)
            os.lseek(self._handle, start, os.SEEK_SET)
            raise DataError(
                f"cannot write the recovery file {self.path}: {error.strerror}; the last answer was not told to "
                "anybody. Make room"
            ) from error


def read_order(path: Path) -> tuple[Order, int]:
    """Return whose file this is, and how many answers it keeps."""
    try:
        order, answers, _, _ = _read(path.read_bytes(), path)
    except OSError as error:
        raise DataError(f"cannot read the recovery file {path}: {error.strerror}; fix its permissions") from error
    return order, len(answers)


def digest_question(asked: object) -> str:
    """Return a short digest of what was asked, which is public."""
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


def _read(content: bytes, path: Path) -> tuple[Order, list[Kept], str, int]:
    """Return whose file it is, the answers that are whole, the last digest and where the last whole line ends."""
    head, mark, rest = content.partition(b"\n")
    try:
        order = decode_json(head, Order)
    except (msgspec.DecodeError, ValueError):
        mark = b""
    if not mark or order.version != JOURNAL_VERSION:
        raise DataError(
            f"{path} is no recovery file that this program can read; move it away if nothing in it is needed"
        )
    digest, length = _chain("", head + mark), len(head) + 1
    answers: list[Kept] = []
    for line in rest.split(b"\n")[:-1]:
        try:
            kept = decode_json(line, Kept)
        except (msgspec.DecodeError, ValueError):
            break
        if kept.digest != _chain(digest, encode_json((kept.events, kept.question, kept.values))):
            break
        answers.append(kept)
        digest = kept.digest
        length += len(line) + 1
    if content.count(b"\n", length) > 1:
        raise DataError(f"{path} is damaged before its end: line {len(answers) + 2} does not fit; restore a backup")
    return order, answers, digest, length


def _chain(digest: str, content: bytes) -> str:
    return hashlib.sha256(digest.encode() + content).hexdigest()


def _lock(handle: int, path: Path) -> None:
    """Keep other processes from going on with a run that is still at work."""
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DataError(f"another process is at work on {path}; wait for it, or choose another output") from None


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""Files that are whole or not there: written beside their place, made durable, and then given their name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagveil.errors import DataError


@contextmanager
def save_whole(path: Path) -> Iterator[Path]:
    """Give a place to write to; what was written there then takes the file's place in one step.

    Whatever happens, `path` holds the old content or all of the new. A link stays, and what it points to is replaced.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with save_whole(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("whole")
    ...     os.listdir(folder)
    ['a.txt']
    """
    place = Path(os.path.realpath(path))
    part = place.with_name(f".part-{place.name}")
    try:
        try:
            yield part
            _sync(part)
            os.replace(part, place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        if os.name == "posix":
            _sync(place.parent)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; make room, or choose another place") from error


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

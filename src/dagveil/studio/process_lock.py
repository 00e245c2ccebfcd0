"""Whether a process lives: it holds a lock on a file, which the system lets go when it dies, however it dies.

Unlike a process number such a lock is never taken for that of another process, and it does not outlive the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagveil.errors import DataError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]


def take_lock(path: Path) -> int | None:
    """Take the lock of a file and return its descriptor, or None if another process holds it.

    The lock belongs to the descriptor: a child process that inherits it goes on holding the lock.
    """
    if fcntl is None:  # pragma: no cover - Windows
        raise DataError("the studio needs a system with file locks, such as Linux or macOS")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_held(path: Path) -> bool:
    """Say whether a living process holds the lock of a file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "alive")
    ...     handle = take_lock(place)
    ...     before = is_held(place)
    ...     os.close(handle)
    ...     before, is_held(place)
    (True, False)
    """
    if not path.exists():
        return False
    handle = take_lock(path)
    if handle is None:
        return True
    os.close(handle)
    return False


@contextmanager
def holding(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock, or refuse."""
    handle = take_lock(path)
    if handle is None:
        raise DataError(refusal)
    try:
        yield
    finally:
        os.close(handle)

"""Where finished pieces of an audit are kept, so that one that was killed goes on."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Final

from dagveil.errors import DataError

APPLICATION: Final = 0x64764155
"""Marks the file as the store of an audit."""


class BlockStore:
    """Finished blocks by the task that they answer: in one SQLite file, or in memory only.

    Parameters
    ----------
    path
        The file; it is made if there is none. None keeps nothing beyond this process.

    Examples
    --------
    >>> with BlockStore(None) as store:
    ...     store.put("task", b"content")
    ...     store.get("task"), store.get("another")
    (b'content', None)
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(":memory:" if path is None else path)
            mark = self._connection.execute("PRAGMA application_id").fetchone()[0]
            names = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")]
            if mark != APPLICATION and names:
                raise DataError(f"{path} is a database of another program; choose another file for the store")
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute("CREATE TABLE IF NOT EXISTS blocks (task TEXT PRIMARY KEY, content BLOB NOT NULL)")
            self._connection.commit()
        except sqlite3.Error as error:
            raise DataError(f"{path} cannot be the store of an audit: {error}; choose another file") from error

    def __repr__(self) -> str:
        return f"BlockStore({'memory' if self._path is None else self._path.name})"

    def __enter__(self) -> BlockStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, task: str) -> bytes | None:
        """Return what was kept for a task; None if nothing was."""
        row = self._connection.execute("SELECT content FROM blocks WHERE task = ?", (task,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, task: str, content: bytes) -> None:
        """Keep the content of a task; it is on disk when this returns."""
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?)", (task, content))

"""Tasks of an audit, done in parallel and kept as they are done, so that an audit that was killed goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import msgspec

from dagveil._version import __version__
from dagveil.errors import DataError
from dagveil.progress import Progress, silent

APPLICATION: Final = 0x64764155  # marks the file as the store of an audit
FORMAT: Final = "dagveil-audit-block-1"
WAITING: Final = 4  # tasks that are handed to each process ahead of time
Task = TypeVar("Task", bound=msgspec.Struct)
Content = TypeVar("Content")


class BlockStore:
    """Finished blocks by the task that they answer: in an SQLite file, which is made, or in memory."""

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


def work_through(
    tasks: Sequence[Task],
    do: Callable[[Task], Content],
    kind: type[Content],
    store: BlockStore | None = None,
    workers: int = 1,
    progress: Progress = silent,
    stage: str = "",
) -> list[Content]:
    """Do the tasks that the store lacks; return what each gave, in order. Processes need a module's function."""
    keys = [_name(task) for task in tasks]
    done: dict[str, Content] = {}
    for key in dict.fromkeys(keys):
        content = None if store is None else store.get(key)
        if content is not None:
            done[key] = msgspec.json.decode(content, type=kind)
    todo = {key: task for key, task in zip(keys, tasks, strict=True) if key not in done}
    total = len(todo) + len(done)
    progress(stage, len(done), total)
    for key, result in _work(todo, do, workers):
        done[key] = result
        if store is not None:
            store.put(key, msgspec.json.encode(result))
        progress(stage, len(done), total)
    return [done[key] for key in keys]


def _name(task: msgspec.Struct) -> str:
    """Return what a task is kept under; another version of the program may answer otherwise."""
    return f"{FORMAT} {__version__} {type(task).__name__} {msgspec.json.encode(task).decode()}"


def _work(todo: dict[str, Task], do: Callable[[Task], Content], workers: int) -> Iterator[tuple[str, Content]]:
    if workers <= 1 or len(todo) <= 1:
        for key, task in todo.items():
            yield key, do(task)
        return
    # spawned, not forked: a fork would copy the state of threads and generators
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = iter(todo.items())
        futures: dict[Future[Content], str] = {}
        while True:
            for key, task in islice(waiting, WAITING * workers - len(futures)):
                futures[pool.submit(do, task)] = key
            if not futures:
                return
            future = next(as_completed(futures))
            yield futures.pop(future), future.result()

"""Tasks of an audit, done in parallel and kept as they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Final, TypeVar

import msgspec

from dagveil._version import __version__
from dagveil.audit.store import BlockStore
from dagveil.progress import Progress, silent

FORMAT: Final = "dagveil-audit-block-1"

WAITING: Final = 4
"""Tasks that are handed to each process ahead of time."""

Task = TypeVar("Task", bound=msgspec.Struct)
Content = TypeVar("Content")


def work_through(
    tasks: Sequence[Task],
    do: Callable[[Task], Content],
    kind: type[Content],
    store: BlockStore | None = None,
    workers: int = 1,
    progress: Progress = silent,
    stage: str = "",
) -> list[Content]:
    """Do all tasks that the store does not have yet; return what each gave, in order.

    Parameters
    ----------
    tasks
        What is to be done; two that are equal give the same.
    do
        Does one task; for several processes it must be a function of a module.
    kind
        What that returns; it is kept as JSON.
    store
        Has what was done before, and gets what is done now.
    workers
        Processes.
    progress, stage
        Told how many tasks are done, under this name.
    """
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
        is_empty = False
        while futures or not is_empty:
            while not is_empty and len(futures) < WAITING * workers:
                following = next(waiting, None)
                if following is None:
                    is_empty = True
                else:
                    futures[pool.submit(do, following[1])] = following[0]
            if futures:
                future = next(as_completed(futures))
                yield futures.pop(future), future.result()

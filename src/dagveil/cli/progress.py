"""Progress bars on the terminal's error stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from dagveil.cli.stopping import INTERRUPT
from dagveil.progress import Progress as Report

PAUSE = 60.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def show_progress(*, lines: bool = False) -> Iterator[Report]:
    """Give a callback that draws one bar per stage.

    If the error stream is not a terminal it is silent, or writes a line a minute for work that takes hours.
    """
    console = Console(stderr=True)
    if lines and not console.is_terminal:
        yield _Lines().report
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            INTERRUPT.check()
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report


class _Lines:
    """Progress for a log: a line now and then, with the time left."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        """Write a line if the last one is old."""
        now = time.monotonic()
        if done == 0:
            self._began = self._told = now
        elif now - self._told >= PAUSE:
            self._told = now
            left = (now - self._began) / done * (total - done) / 60.0
            click.echo(f"{stage}: {done} of {total}, about {left:.0f} minutes left", err=True)

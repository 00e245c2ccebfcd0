"""Groups whose commands are imported when they are needed, so that other commands start quickly."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from importlib import import_module
from typing import Any

import click

from dagveil.cli.failure import PlainGroup


class LazyGroup(PlainGroup):
    """A group whose modules register their commands when the first of them is asked for.

    Parameters
    ----------
    modules
        Names of modules that add commands to this group when they are imported.
    """

    def __init__(self, *arguments: Any, modules: Sequence[str] = (), **options: Any) -> None:
        self._modules = list(modules)
        self._commands: MutableMapping[str, click.Command] = {}
        super().__init__(*arguments, **options)

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """Commands by name; asking for them imports their modules."""
        while self._modules:
            # taken off first: the module asks for the commands itself when it adds to them
            import_module(self._modules.pop(0))
        return self._commands

    @commands.setter
    def commands(self, value: MutableMapping[str, click.Command]) -> None:
        self._commands = value

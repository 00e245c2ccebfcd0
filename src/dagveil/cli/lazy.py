"""Groups whose commands are imported when they are needed, so that other commands and help start quickly."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click

from dagveil.cli.failure import PlainGroup

COMMANDS: Final = "dagveil.commands"
"""Entry point group in which other distributions add commands."""


class LazyGroup(PlainGroup):
    """A group that knows its commands by name and one line of help.

    Parameters
    ----------
    table
        By name of a command, the module that defines it under this name (with underscores), and its line of help.
    added
        Commands that another distribution brings by entry point: their line of help, and what to install.
    """

    def __init__(
        self,
        *arguments: Any,
        table: Mapping[str, tuple[str, str]],
        added: Mapping[str, tuple[str, str]] | None = None,
        **options: Any,
    ) -> None:
        self._table, self._added = table, added or {}
        super().__init__(*arguments, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the commands in the order of the table."""
        return [*self._table, *self._added]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name in self._table:
            command: click.Command = getattr(import_module(self._table[cmd_name][0]), cmd_name.replace("-", "_"))
            return command
        if cmd_name not in self._added:
            return None
        found = find_entry(cmd_name)
        if found is None:
            raise click.UsageError(f"`dagveil {cmd_name}` is not installed; {self._added[cmd_name][1]}")
        loaded: click.Command = found.load()
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        lines = [(name, text) for name, (_, text) in self._table.items()]
        lines += [(name, text) for name, (text, _) in self._added.items()]
        with formatter.section("Commands"):
            formatter.write_dl(lines)


def find_entry(name: str) -> EntryPoint | None:
    """Return the entry point of a command that another distribution brings."""
    return next(iter(entry_points(group=COMMANDS, name=name)), None)

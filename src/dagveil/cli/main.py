"""The entry point `dagveil`."""

import io
import os
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click

from dagveil._version import __version__
from dagveil.cli.failure import PlainGroup

COMMANDS: Final = "dagveil.commands"  # entry point group in which other distributions add commands


class LazyGroup(PlainGroup):
    """A group that knows its commands by name and one line of help.

    `table` has by name of a command the module that defines it under this name (with underscores), and its line of
    help; `added` has commands that another distribution brings by entry point: their line of help, and what to install.
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


FIRST_RUN = """\b
A first run:
  dagveil schema draft patients.csv -o schema.toml   (then review schema.toml)
  dagveil budget set patients --epsilon 3
  dagveil discover patients.csv --schema schema.toml --epsilon 1 -o out
No data yet? `dagveil sample asia -o asia.csv` generates a public example table and its schema.
"""

TABLE: Final = {
    "start": ("dagveil.cli.start", "Answer some plain questions, and get a folder to begin with."),
    "schema": ("dagveil.cli.schema", "Declare what is public about a table."),
    "budget": ("dagveil.cli.budget", "Set and show the lifetime budget of a data set."),
    "plan": ("dagveil.cli.plan", "Fix what will be asked, and what it will cost, before any row is read."),
    "discover": ("dagveil.cli.discover", "Discover the causal graph of a table or of released evidence."),
    "measure": ("dagveil.cli.discover", "Release noisy evidence about a table, to search at no cost."),
    "combine": ("dagveil.cli.plan", "Add the evidence of several custodians who followed one plan."),
    "direction": ("dagveil.cli.effect", "Find which of two numeric columns is the cause."),
    "effect": ("dagveil.cli.effect", "Say what changing one column does to another, from a result."),
    "local": ("dagveil.cli.local", "Randomise records before they leave the person."),
    "methods": ("dagveil.cli.methods", "List all methods, or describe one in detail."),
    "report": ("dagveil.cli.report", "Draw the report and the graph of a result again."),
    "certify": ("dagveil.cli.report", "Write what a person needs to sign a release, and check it."),
    "compare": ("dagveil.cli.report", "Compare a result with a known graph or with another result."),
    "tables": ("dagveil.cli.tables", "Show released evidence as tables with standard errors."),
    "synthesize": ("dagveil.cli.tables", "Draw synthetic rows from released evidence."),
    "export": ("dagveil.cli.report", "Write the graph of a result for another program."),
    "studio": (
        "dagveil.cli.host",
        "Open a web application on this machine: budgets, schemas, plans, runs, results.",
    ),
    "audit": ("dagveil.cli.audit", "Try to break a method's guarantee."),
    "sample": ("dagveil.cli.tables", "Generate public example data from a known network."),
    "doctor": ("dagveil.cli.host", "Tell what is installed, and what answers."),
    "completion": ("dagveil.cli.completion", "Print a script that completes commands in a shell."),
}

ADDED: Final = {
    "bench": (
        "Measure dagveil on data whose truth is known.",
        "install it from the repository with: pip install ./bench",
    )
}


@click.group(
    cls=LazyGroup,
    table=TABLE,
    added=ADDED,
    epilog=FIRST_RUN,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="dagveil")
def group() -> None:
    """Causal graph discovery from sensitive tables, under differential privacy."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # an arrow that the terminal cannot write must not end a run that has spent its budget
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = lambda message, *_, **__: click.echo(f"Warning: {message}", err=True)
    if "_DAGVEIL_COMPLETE" in os.environ:
        import_module("dagveil.cli.completion")  # it completes file names too
    group(prog_name="dagveil")


if __name__ == "__main__":
    main()

"""The entry point `dagveil`."""

from __future__ import annotations

import io
import sys
import warnings

import click

from dagveil._version import __version__
from dagveil.cli.audit import audit
from dagveil.cli.bench_group import bench
from dagveil.cli.budget import budget
from dagveil.cli.combine import combine
from dagveil.cli.compare import compare
from dagveil.cli.completion import completion
from dagveil.cli.direction import direction
from dagveil.cli.discover import discover, measure
from dagveil.cli.export import export
from dagveil.cli.failure import PlainGroup
from dagveil.cli.local import local
from dagveil.cli.methods import methods
from dagveil.cli.plan import plan
from dagveil.cli.report import report
from dagveil.cli.sample import sample
from dagveil.cli.schema import schema
from dagveil.cli.studio import studio

FIRST_RUN = """\b
A first run:
  dagveil schema draft patients.csv -o schema.toml   (then review schema.toml)
  dagveil budget set patients --epsilon 3
  dagveil discover patients.csv --schema schema.toml --epsilon 1 -o out
Nothing at hand? `dagveil sample asia -o asia.csv` makes public data with their schema.
"""


@click.group(cls=PlainGroup, epilog=FIRST_RUN, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dagveil")
def group() -> None:
    """Causal graph discovery from sensitive tables, under differential privacy."""


for command in (
    schema,
    budget,
    plan,
    discover,
    measure,
    combine,
    direction,
    local,
    methods,
    report,
    compare,
    export,
    studio,
    audit,
    sample,
    bench,
    completion,
):
    group.add_command(command)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # an arrow that the terminal cannot write must not end a run that has spent its budget
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = lambda message, *_, **__: click.echo(f"Warning: {message}", err=True)
    group(prog_name="dagveil")


if __name__ == "__main__":
    main()

"""The entry point `dagveil`."""

from __future__ import annotations

import os
import sys

import click

from dagveil._version import __version__
from dagveil.cli.bench import bench
from dagveil.cli.budget import budget
from dagveil.cli.discover import discover, measure
from dagveil.cli.report import report
from dagveil.cli.sample import sample
from dagveil.cli.schema import schema
from dagveil.errors import DagveilError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dagveil")
def group() -> None:
    """Causal graph discovery from sensitive tables, under differential privacy."""


for command in (schema, measure, discover, report, budget, sample, bench):
    group.add_command(command)


def main() -> None:
    """Run the command line; errors are one sentence, never a data value."""
    try:
        group(standalone_mode=False)
    except DagveilError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except click.exceptions.Abort:
        click.echo("stopped; what was already charged stays charged", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except Exception as error:
        if os.environ.get("DAGVEIL_DEBUG"):
            raise
        # a traceback or message of a library may hold values of the rows
        click.echo(
            f"error: something unexpected went wrong ({type(error).__name__}). Its message is withheld because it may "
            "hold data; set DAGVEIL_DEBUG=1 to see it, and please report it without data.",
            err=True,
        )
        sys.exit(3)


if __name__ == "__main__":
    main()

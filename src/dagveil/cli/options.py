"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dagveil.data.schema import Schema, load_schema
from dagveil.methods.settings import ArrowRule, SearchSettings
from dagveil.privacy.ledger.book import Ledger
from dagveil.privacy.noise.kind import NoiseKind

LEDGER_VARIABLE = "DAGVEIL_LEDGER"


def default_ledger() -> str:
    """Return the ledger that is used when none is named."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return str(folder / "dagveil" / "ledger.sqlite")


ledger_option = click.option(
    "--ledger",
    envvar=LEDGER_VARIABLE,
    default=default_ledger,
    metavar="PATH|URL",
    help=f"SQLite file, or postgresql:// URL for teams; also {LEDGER_VARIABLE}.  [default: in your home folder]",
)

schema_option = click.option("--schema", "schema_path", metavar="SCHEMA.toml", help="Public facts about the columns.")


def run_options(command: Any) -> Any:
    """Add the options of a run that spends budget."""
    for option in reversed(
        (
            schema_option,
            click.option("--epsilon", help="Privacy budget of this run, for example 1."),
            click.option("--delta", default="1e-6", show_default=True, help="Probability that epsilon does not hold."),
            ledger_option,
            click.option(
                "--noise",
                type=click.Choice([kind.value for kind in NoiseKind]),
                default=NoiseKind.OPENDP.value,
                show_default=True,
                help="Where noise comes from; seeded is for tests and never private.",
            ),
            click.option("--seed", type=int, help="Only with --noise seeded."),
            click.option("--accept-draft", is_flag=True, help="Use an unreviewed schema; the receipt will say so."),
        )
    ):
        command = option(command)
    return command


def search_options(command: Any) -> Any:
    """Add the options of the search, which cost nothing."""
    for option in reversed(
        (
            click.option("--marginal-level", type=float, help="Keep a pair below this marginal p-value."),
            click.option("--conditional-level", type=float, help="A set separates above this p-value."),
            click.option("--largest-order", type=int, help="Size of the largest conditioning set."),
            click.option(
                "--arrows",
                type=click.Choice([rule.value for rule in ArrowRule]),
                default=ArrowRule.EVIDENCE.value,
                show_default=True,
                help="How arrows are found.",
            ),
            click.option("--redraws", type=int, default=50, show_default=True, help="Redraws for edge confidence."),
            click.option("--knowledge", "knowledge_path", metavar="FILE.toml", help="Other background knowledge."),
        )
    ):
        command = option(command)
    return command


def search_settings(
    marginal_level: float | None,
    conditional_level: float | None,
    largest_order: int | None,
    arrows: str,
    redraws: int,
) -> SearchSettings:
    """Collect the search options."""
    return SearchSettings(marginal_level, conditional_level, largest_order, ArrowRule(arrows), redraws)


def require_schema(path: str | None) -> Schema:
    """Load the schema, or say how to get one."""
    if path is None:
        raise click.UsageError(
            "a run needs --schema SCHEMA.toml; `dagveil schema draft FILE -o schema.toml` writes a first one"
        )
    return load_schema(path)


def open_ledger(place: str) -> Ledger:
    """Open the ledger."""
    return Ledger.open(place)

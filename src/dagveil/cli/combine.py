"""`dagveil combine`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import open_console, print_receipt, print_written
from dagveil.plans.combine import combine_evidence
from dagveil.text import clean_text


@click.command(short_help="Add the evidence of several custodians who followed one plan.")
@click.argument("files", nargs=-1, required=True, metavar="EVIDENCE.json...")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="combined.json",
    show_default=True,
    help="Output file for the combined evidence.",
)
def combine(files: tuple[str, ...], output: str) -> None:
    """Add evidence that several sites released by the same plan, at no cost and without any rows.

    Counts, moments and the variances of their noise add up. Every site's receipt stands for itself and is kept. Files
    of other plans, and a second file of the same site, are refused.
    """
    path = Path(output)
    check_writable(path, reads=files)
    combined = combine_evidence(files)
    write_output(path, combined.save)
    console = open_console()
    for finding in combined.findings:
        console.print(clean_text(finding))
    console.print()
    print_receipt(combined.receipt)
    print_written([path], f"Next: `dagveil discover {shlex.quote(str(path))}` finds one graph from all of it.")

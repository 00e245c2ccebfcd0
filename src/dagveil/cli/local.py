"""`dagveil local`: plan and show a protocol, and discover the graph behind reports."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from pyarrow import csv
from rich.table import Column, Table

from dagveil.cli import output as terminal
from dagveil.cli.device import collect, export, randomise, send
from dagveil.cli.failure import PlainGroup
from dagveil.cli.options import (
    SEARCH_NAMES,
    choice_option,
    level_options,
    option,
    refuse_given,
    require_schema,
    search_settings,
)
from dagveil.errors import DataError
from dagveil.graphs.exchange.formats import to_tetrad, write_marks
from dagveil.graphs.pag import Mark
from dagveil.local.law import REDRAWS, Rule, recover_law
from dagveil.local.pairwise import PairRule
from dagveil.local.planning import load_priors, plan_protocol
from dagveil.local.protocol import Figures, Form, Mechanism, Protocol, load_protocol, success_with_priors
from dagveil.local.record import ComponentWise, Norm, Split
from dagveil.local.reports import LineFormat, check_labels
from dagveil.privacy.budget import exact, round_up
from dagveil.report.model import build_model
from dagveil.runs import local as discovery
from dagveil.runs.run import check_reviewed, load_knowledge
from dagveil.text import clean_text

SHOWN_CELLS = 64  # cells of a law that are printed; a file has them all


@click.group(cls=PlainGroup, short_help="Randomise records before they leave the person.")
def local() -> None:
    """Local privacy: records are randomised before they leave the person, so nobody needs to be trusted.

    \b
    plan       how records are randomised, and what that promises (everyone)
    randomise  a record, or a stream of them (a person's device)
    send       reports to a collector (a person's device)
    collect    reports over HTTP (a collector)
    recover    the joint law of some columns (an analyst)
    discover   the causal graph behind them (an analyst)
    """  # noqa: D301


@local.command(short_help="Plan how records are randomised, and print what that promises.")
@option("schema_path --schema SCHEMA.toml", "Levels and bins of the columns, all public.")
@option(
    "--mechanism",
    "Randomised response, or the bounded geometric mechanism, whose reports stay near the truth.",
    type=click.Choice([mechanism.value for mechanism in Mechanism]),
    required=True,
)
@choice_option("--form", Form.COMPONENT_WISE, "Noise for each column, or for the product of all columns at once.")
@option("--epsilon NUMBER", "Largest epsilon of one report; this or --truth.")
@option("--truth P", "Probability that the true record is reported; this or --epsilon.")
@choice_option("--split", Split.UNIFORM, "How columns share epsilon: evenly, or in proportion to their levels.")
@choice_option(
    "--norm", Norm.MANHATTAN, "Distance between records, for combined geometric noise and for metric privacy."
)
@option("--accept-draft", "Use an unreviewed schema as it is; receipts will say so.")
@option("-o --output FILE", "Where the protocol goes.", default="protocol.json")
@option("--force", "Replace an existing protocol.")
def plan(
    schema_path: str | None,
    mechanism: str,
    form: str,
    epsilon: str | None,
    truth: float | None,
    split: str,
    norm: str,
    accept_draft: bool,
    output: str,
    force: bool,
) -> None:
    """Write a protocol: a public file from which devices randomise, collectors check and analysts recover.

    It states the exact epsilon of a report, that of each column, how often an attacker guesses right, and the exact
    parameter of metric privacy beside the published formula's.
    """
    if (epsilon is None) == (truth is None):
        raise click.UsageError("give either --epsilon or --truth, one of the two")
    path = Path(output)
    if path.exists() and not force:
        raise DataError(f"{path} exists, and reports may depend on it; choose another output, or --force to replace it")
    schema = require_schema(schema_path)
    check_reviewed(schema, accept_draft=accept_draft)
    terminal.check_writable(path, reads=(schema_path,))
    amount = None if epsilon is None else exact(epsilon, "epsilon")
    how: dict[str, Any] = {"split": Split(split), "norm": Norm(norm)}
    protocol = plan_protocol(schema, Mechanism(mechanism), Form(form), epsilon=amount, truth=truth, **how)
    terminal.write_output(path, protocol.save)
    print_protocol(protocol)
    hint = f"Next: give {path} to everyone; `dagveil local randomise --protocol {path}` uses it."
    terminal.print_written([path], hint)


@local.command(short_help="Print what a protocol promises.")
@click.argument("protocol", metavar="PROTOCOL.json")
@option(
    "priors_path --priors FILE.toml",
    "What an attacker knows before: shares of labels, [column] by [column]. Even where nothing is said.",
)
def show(protocol: str, priors_path: str | None) -> None:
    """Print what a protocol promises, computed again from its probabilities."""
    loaded = load_protocol(protocol)
    print_protocol(loaded, load_priors(priors_path, loaded) if priors_path else None)


for _command in (randomise, send, collect, export):
    local.add_command(_command)


@local.command(short_help="Recover the joint law of some columns from collected reports.")
@click.argument("reports", metavar="REPORTS")
@option("protocol_path --protocol FILE", "With which the reports were made.", required=True)
@option("--columns NAMES", "Columns of the law, separated by commas.", required=True)
@choice_option(
    "--by",
    Rule.INVERSE,
    "Inverse of the channel: no bias, exact variance. IBU (iterative Bayesian update): the likeliest law, never "
    "negative.",
)
@option("--redraws", "Redraws behind the standard errors of ibu.", type=click.IntRange(0), default=REDRAWS)
@option("-o --output FILE.csv", "Also write the law to this file.")
def recover(reports: str, protocol_path: str, columns: str, by: str, redraws: int, output: str | None) -> None:
    """Recover how true values are distributed behind REPORTS: a collector's store (.db), or labels (.parquet, .csv).

    Nothing is spent: every report has been paid for by whoever sent it.
    """
    protocol = load_protocol(protocol_path)
    names = [name.strip() for name in columns.split(",")]
    if output:
        terminal.check_writable(Path(output), reads=(reports, protocol_path))
        labels = {column.name: column.labels for column in protocol.columns if column.name in names}
        check_labels(LineFormat.CSV, labels)
    law = recover_law(reports, protocol, names, Rule(by), redraws=redraws)
    table = law.to_table()
    terminal.say(f"{protocol.schema.dataset}: shares of true values behind {terminal.count(law.n_reports, 'report')}")
    shown = Table(*map(clean_text, names), *(Column(name, justify="right") for name in ("share", "standard error")))
    for line in table.slice(0, SHOWN_CELLS).to_pylist():
        error = line["standard error"]
        numbers = (f"{line['share']:.4f}", "" if math.isnan(error) else f"{error:.4f}")
        shown.add_row(*(clean_text(line[name]) for name in names), *numbers)
    terminal.open_console().print(shown)
    if (hidden := table.num_rows - SHOWN_CELLS) > 0:
        terminal.say(f"and {terminal.count(hidden, 'more cell')}; -o FILE.csv writes all")
    if output:
        terminal.write_output(Path(output), lambda part: csv.write_csv(table, part))
        terminal.print_written([Path(output)], "Every line is a cell: labels, its share, its standard error.")


@local.command(short_help="Discover the causal graph behind collected reports.")
@click.argument("reports", metavar="REPORTS")
@option("protocol_path --protocol FILE", "With which the reports were made.", required=True)
@choice_option(
    "--algorithm",
    discovery.Algorithm.PC,
    "PC, FCI (allows for hidden common causes; the graph is a PAG), greedy equivalence search, max-min hill "
    "climbing, or MCMC over orders.",
)
@choice_option("--pairs", PairRule, "Find the direction of each pair of columns by this rule, in place of a graph.")
@choice_option(
    "--tests",
    discovery.ReportTests.TABLES,
    "Tests on tables of levels, or on partial correlations of the levels' scores.",
)
@choice_option(
    "--by",
    Rule,
    "How the channel is undone: in every test (inverse), or once, by the iterative Bayesian update of the law "
    "(ibu).  [default: inverse; for --pairs ibu]",
)
@option("--blind", "Ignore the channel, for comparison: the answers are then wrong.")
@level_options
@option(
    "-o --output FOLDER",
    "Folder for result.json, graph.svg and report.html; of FCI result.json and graph.txt, of pairs result.json.",
    default="dagveil-out",
)
def discover(
    reports: str,
    protocol_path: str,
    algorithm: str,
    pairs: str | None,
    tests: str,
    by: str | None,
    blind: bool,
    knowledge_path: str | None,
    output: str,
    **search: Any,
) -> None:
    """Discover the causal graph behind REPORTS: a collector's store (.db), or labels (.parquet, .csv).

    Tests and scores know the channel. Nothing is spent: every report has been paid for by whoever sent it.
    """
    if blind and by:
        raise click.UsageError("--blind ignores the channel, and --by says how it is undone; give one of the two")
    chosen = discovery.Algorithm(algorithm)
    if (pairs or chosen is discovery.Algorithm.FCI) and knowledge_path:
        raise click.UsageError("rules for pairs and FCI take no background knowledge: leave out --knowledge")
    if pairs:
        why = "rules for pairs search no graph, have no levels and draw nothing again: leave out {}"
        refuse_given(click.get_current_context(), (*SEARCH_NAMES, "algorithm", "tests"), why)
    updated = by == Rule.IBU.value or (pairs and not by)
    sight = discovery.Sight.BLIND if blind else discovery.Sight.UPDATED if updated else discovery.Sight.AWARE
    folder = Path(output)
    others = () if pairs else ("graph.txt",) if chosen is discovery.Algorithm.FCI else ("graph.svg", "report.html")
    written = [folder / name for name in ("result.json", *others)]
    settings = search_settings(search)
    knowledge = load_knowledge(knowledge_path) if knowledge_path else None
    protocol = load_protocol(protocol_path)
    terminal.check_writable(*written, reads=(reports, protocol_path, knowledge_path))
    with terminal.show_progress() as progress:
        options: dict[str, Any] = {"sight": sight, "progress": progress}
        if pairs:
            directions = discovery.direct_report_pairs(reports, protocol, PairRule(pairs), **options)
        else:
            options["tests"] = discovery.ReportTests(tests)
            if chosen is discovery.Algorithm.FCI:
                pag = discovery.find_report_pag(reports, protocol, settings, **options)
            else:
                options |= {"algorithm": chosen, "knowledge": knowledge}
                result = discovery.discover_reports(reports, protocol, settings, **options)
    if pairs:
        terminal.write_output(written[0], directions.save)
        terminal.open_console().print(f"Directions by {pairs}", _direction_table(directions), sep="\n")
        terminal.print_findings(directions.findings, directions.receipt)
        terminal.print_written(written, "Every pair has a direction: a rule that is wrong is wrong without saying so.")
    elif chosen is discovery.Algorithm.FCI:
        terminal.write_output(written[0], pag.save)
        terminal.write_output(written[1], to_tetrad(pag.graph).encode())
        title = "Partial ancestral graph; o may be an arrowhead or a tail"
        terminal.open_console().print(title, _pag_table(pag), sep="\n")
        terminal.print_findings(pag.findings, pag.receipt)
        terminal.print_written(written, f"{written[1]} is Tetrad's text, which causal-learn reads too.")
    else:
        terminal.write_output(written[0], result.save)
        terminal.write_pages(build_model(result), written[2], written[1])
        terminal.print_result(result)
        terminal.print_written(written, f"Next: open {written[2]} in a browser.")


def _direction_table(found: discovery.ReportDirections) -> Table:
    table = Table("cause", "", "effect", Column("score", justify="right"))
    for pair in found.pairs:
        ends = (pair.first, pair.second) if pair.cause in (pair.first, None) else (pair.second, pair.first)
        sign = "→" if pair.cause else "?"
        table.add_row(clean_text(ends[0]), sign, clean_text(ends[1]), f"{abs(pair.score):.4g}")
    return table


def _pag_table(found: discovery.ReportPag) -> Table:
    table = Table("from", "", "to", *([Column("edge confidence", justify="right")] if found.confidence else []))
    for place, edge in enumerate(found.edges):
        edge = edge.turned() if edge.mark_at_second is Mark.TAIL else edge
        shares = [f"{found.confidence[place]:.0%}"] if found.confidence else []
        table.add_row(clean_text(edge.first), write_marks(edge), clean_text(edge.second), *shares)
    return table


def print_protocol(protocol: Protocol, priors: Sequence[NDArray[np.float64]] | None = None) -> None:
    """Print what a protocol's weights give as a table, the whole record last; guesses for these priors."""
    split = "" if protocol.split is None else f", epsilon split {protocol.split.value}"
    how = f"{protocol.mechanism.value} noise, {protocol.form.value}{split}, {protocol.norm.value}-norm"
    headings = ("levels", "epsilon", "guessed right", "by chance", "metric, exact", "as published", "ratio")
    columns = (Column(heading, justify="right") for heading in headings)
    table = Table("column", *columns, title=clean_text(f"{protocol.schema.dataset}: {how}"), title_justify="left")
    known = [np.full(levels, 1.0 / levels) for levels in protocol.levels] if priors is None else priors
    record = protocol.record_figures
    if priors is not None:
        record = replace(record, success=success_with_priors(protocol.channel, priors))
    for place, (column, figures) in enumerate(zip(protocol.columns, protocol.column_figures, strict=True)):
        if priors is not None and isinstance(protocol.channel, ComponentWise):
            figures = replace(figures, success=protocol.channel.channels[place].success(known[place]))
        told = _write_figures(figures, float(known[place].max()))
        table.add_row(clean_text(column.name), str(len(column.labels)), *told)
    table.add_section()
    table.add_row("record", "", *_write_figures(record, math.prod(float(prior.max()) for prior in known)))
    terminal.open_console().print(table)
    if priors is not None:
        terminal.say("An attacker knows these priors, column by column; by chance is what they tell without a report.")
    epsilon = protocol.record_figures.epsilon or 0.0
    terminal.say(
        f"One report has epsilon {round_up(epsilon, 4)} and delta 0, whoever collects it. Repeated reports of one "
        f"person add up: two have {round_up(2 * epsilon, 4)}."
    )
    if protocol.form is Form.COMBINED:
        terminal.say("Columns of a combined channel have no epsilon of their own: one column moves it as much as all.")
    terminal.say(f"protocol digest {protocol.digest()}")


def _write_figures(figures: Figures, chance: float) -> tuple[str, ...]:
    epsilon, metric, published = (
        "" if bound is None else round_up(bound, 4) for bound in (figures.epsilon, figures.metric, figures.published)
    )
    success = "" if figures.success is None else f"{figures.success:.3g}"
    return epsilon, success, f"{chance:.3g}", metric, published, "" if figures.ratio is None else f"{figures.ratio:.2f}"

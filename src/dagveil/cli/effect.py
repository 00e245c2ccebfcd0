"""`dagveil effect` and `dagveil direction`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dagveil.cli import options as shared
from dagveil.cli import output as terminal
from dagveil.cli.failure import stoppable
from dagveil.cli.options import choice_option, option, read_order, run_options
from dagveil.effects.answer import Effect, Estimate, PossibleEffect, Release, describe_readings
from dagveil.graphs.exchange.formats import load_graph
from dagveil.methods.pcd import RegressionRule
from dagveil.runs.direction import DirectionSettings, Score, find_direction
from dagveil.runs.effects import effect as find_effect
from dagveil.runs.effects import load_discovery, measure_effect
from dagveil.runs.run import load_knowledge
from dagveil.text import clean_text

_FREE_NAMES = ("redraws", "width")
_FORMS = {
    "table": "from the table of all of them",
    "additive": "additive form, from pairs",
    "linear": "linear, from moments",
}


@click.command(short_help="Say what changing one column does to another, from a result.")
@click.argument("file", metavar="RESULT|FILE")
@option("--cause COLUMN", "The column that would be changed.", required=True)
@option("outcome --effect COLUMN", "The column that would follow.", required=True)
@option(
    "--adjust LIST", "Columns to adjust for, with commas.  [default: those that tell the effect best, by the graph]"
)
@option("graph_path --graph GRAPH", "A graph in place of the result's: .dot, .gml, .txt, …")
@option("knowledge_path --knowledge FILE.toml", "Background knowledge that directs edges.")
@option(
    "--redraws INTEGER",
    "Draw graph and effect again so often, at no cost, for an interval that counts how the graph was chosen.",
    type=click.IntRange(0, 10_000),
    default=0,
)
@option(
    "--width SHARE",
    "Say which epsilon would give an interval so wide (0.02 is two points), if its tables were released.",
)
@option("--evidence FILE", "The evidence that was searched.  [default: evidence.json beside the result]")
@option("source --from RESULT", "The result whose graph counts, if FILE is a table.")
@shared.run_options
@option("as_json --json", "Print the answer as JSON.")
@option("-o --output FOLDER", "Folder for effect.json and, if rows were read, evidence.json.")
@click.pass_context
@stoppable
def effect(
    context: click.Context,
    /,
    file: str,
    cause: str,
    outcome: str,
    adjust: str | None,
    graph_path: str | None,
    knowledge_path: str | None,
    redraws: int,
    width: float | None,
    evidence: str | None,
    source: str | None,
    as_json: bool,
    output: str | None,
    **run: Any,
) -> None:
    """Say what changing one column does to another.

    RESULT is the folder that `dagveil discover` wrote, or its result.json with evidence.json beside it: then the answer
    is free and never sees the rows. Or FILE is a table, with --from RESULT: then exactly the tables that the effect
    needs are released, which spends --epsilon.
    """
    asked: dict[str, Any] = {
        "knowledge": load_knowledge(knowledge_path) if knowledge_path else None,
        "adjust": None if adjust is None else shared.read_list(adjust),
        "graph": None if graph_path is None else load_graph(graph_path),
    }
    if source is None:
        why = "an effect from released evidence needs no rows and costs nothing: leave out {}, or add --from RESULT"
        shared.refuse_given(context, shared.RUN_NAMES, why)
        written = [] if output is None else [Path(output) / "effect.json"]
        terminal.check_writable(*written, reads=(graph_path, knowledge_path, evidence))
        result, searched = load_discovery(file, evidence)
        asked |= {"evidence": searched, "redraws": redraws, "width": width}
        with terminal.show_progress() as progress:
            found = find_effect(result, cause, outcome, progress=progress, **asked)
        for path in written:
            terminal.write_output(path, found.save)
    else:
        shared.refuse_given(context, _FREE_NAMES, "{} belong to a free answer: ask the result, without rows")
        folder = Path(output or "dagveil-effect")
        written = [folder / "effect.json", folder / "evidence.json"]
        recovery = folder / "recovery.jsonl"
        result, searched = load_discovery(source, evidence)
        order = read_order(file, tuple(written), recovery, run, reads=(source, graph_path, knowledge_path, evidence))
        with terminal.show_progress() as progress:
            public = (order.schema, result, cause, outcome, order.budget.epsilon, order.budget.delta)
            asked |= {**order.options, "evidence": searched, "progress": progress}
            found, released = measure_effect(order.rows, *public, **asked)
        terminal.write_paid(written[1], released.save, recovery)
        terminal.write_output(written[0], found.save)
        order.print_account()
    if as_json:
        click.echo(found.to_json())
        return
    _print(found)
    if found.receipt is not None:
        terminal.print_findings((), found.receipt)
    else:
        if found.release is not None:
            _print_offer(found, found.release, file)
        click.echo("This answer cost nothing.")
    if written:
        terminal.print_written(written, "")


def _print(found: Effect) -> None:
    terminal.say(found.sentence)
    for readings in found.alike:
        one = readings[0]
        terminal.say("", _describe(readings, found))
        if one.form != "nothing" and one.contrasts and one.contrasts[0].level:
            terminal.open_console().print(_tabulate(one, found))
        elif one.form != "nothing" and one.contrasts:
            terminal.say(f"per unit of {found.cause}: {_write(one.contrasts[0].estimate, 1.0)}")
        terminal.say(*one.notes)
    terminal.say("", *([] if found.redrawn is None else [_describe_redraws(found)]), *found.settles, *found.notes)
    options = ["--knowledge FILE.toml gives what you know"] if found.settles else []
    if found.redrawn is None and found.receipt is None and found.possible[0].parents is not None:
        options.append("--redraws 200 draws graph and effect again")
    if options:
        terminal.say(f"At no cost, {' and '.join(options)}.")


def _describe(readings: Sequence[PossibleEffect], found: Effect) -> str:
    one, parents = readings[0], describe_readings(readings, found.cause)
    if one.form == "nothing":
        return f"{parents}: nothing, since {one.why}."
    if one.form == "unanswered":
        return f"{parents}: no answer, since {one.why}."
    given = f"adjusted for {', '.join(one.adjust)}" if one.adjust else "nothing to adjust for"
    return f"{parents} ({given}; {_FORMS[one.form]}):"


def _tabulate(one: PossibleEffect, found: Effect) -> Table:
    first = one.contrasts[0].instead
    headings = (f"{found.cause} set to", f"{found.effect} =", "%, with 95 % interval", f"points more than at {first}")
    table = Table(*map(clean_text, headings), title_justify="left")
    moved = {(each.level, each.outcome): each.estimate for each in one.contrasts}
    for each in one.probabilities:
        change = "" if each.level == first else _write(moved.get((each.level, each.outcome)), 100.0, signed=True)
        table.add_row(clean_text(each.level), clean_text(each.outcome), _write(each.estimate, 100.0), change)
    return table


def _write(estimate: Estimate | None, scale: float, *, signed: bool = False) -> str:
    if estimate is None:
        return "hidden by noise"
    form = ".4g" if scale == 1.0 else "+.2f" if signed else ".2f"
    value, low, high = (format(scale * number, form) for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high})"


def _describe_redraws(found: Effect) -> str:
    drawn = found.redrawn
    if drawn is None or drawn.interval is None:
        return "Redrawn graphs ask for tables that this evidence does not have, so there is no interval from redraws."
    scale, unit = (100.0, " points") if found.main.level else (1.0, "")
    low, high = scale * drawn.interval.low, scale * drawn.interval.high
    return (
        f"Graph and effect drawn again {drawn.redraws} times: 95 % between {low:+.3g} and {high:+.3g}{unit}; "
        f"in {drawn.nothing:.0%} of redraws some reading of the graph says nothing happens."
    )


def _print_offer(found: Effect, offer: Release, file: str) -> None:
    """Say which release would answer."""
    names = ", ".join(" × ".join(one) for one in offer.tables)
    epsilon = "0.5" if offer.epsilon is None else f"{offer.epsilon:.2g}"
    if offer.width is not None and offer.reason is not None:
        terminal.say(f"No epsilon for an interval {offer.width:g} wide can be told: {offer.reason}.")
        return
    elif offer.epsilon is not None:
        terminal.say(f"A release of {names} with epsilon {epsilon} gives an interval {offer.width:g} wide.")
    else:
        terminal.say(f"A release of {names} would tell more; --width 0.02 says which epsilon it takes.")
    command = ["dagveil", "effect", "FILE", "--schema", "SCHEMA.toml", "--from", file]
    command += ["--cause", found.cause, "--effect", found.effect, "--epsilon", epsilon]
    terminal.say(f"To measure it: `{shlex.join(command)}`.")


@click.command(short_help="Find which of two numeric columns is the cause.")
@click.argument("file")
@option("--columns X,Y", "Two numeric columns, with a comma between them.", required=True)
@run_options
@choice_option("--score", Score.HSIC, "How the dependence of a residual on the other column is scored.")
@choice_option(
    "--regression",
    RegressionRule.RELEASED,
    "Polynomials from a noisy table that is released first, or kernel ridge regression on the rows.",
)
@option("-o --output FILE", "Where the answer goes.", default="direction.json")
@stoppable
def direction(file: str, columns: str, score: str, regression: str, output: str, **run: Any) -> None:
    """Find which of two numeric columns of FILE, a table (CSV, TSV, Parquet, Feather, Arrow), is the cause.

    The additive noise model is fitted both ways; the way whose residual looks more independent wins. This spends the
    budget.
    """
    x, y = _two_names(columns)
    path = Path(output)
    settings = DirectionSettings(score=Score(score), regression=RegressionRule(regression))
    recovery = terminal.name_recovery(path)
    order = read_order(file, (path,), recovery, run)
    with terminal.show_progress() as progress:
        public = (order.schema, x, y, order.budget.epsilon, order.budget.delta)
        found = find_direction(order.rows, *public, settings=settings, progress=progress, **order.options)
    terminal.write_paid(path, found.save, recovery)
    order.print_account()
    if found.doubt is not None:
        terminal.say(
            f"No direction: {found.doubt}.",
            "Background knowledge, such as which was measured first, may settle it: `tiers` in the schema.",
        )
    else:
        terminal.say(f"{found.cause} → {found.effect}, confidence {found.confidence:.0%}")
    if found.difference is not None and found.noise_scale is not None:
        terminal.say(f"difference of scores {found.difference:.4g}, scale of its noise {found.noise_scale:.4g}")
    terminal.print_findings([found.meaning], found.receipt)
    terminal.print_written([path], "Next: `dagveil discover` finds the graph of all columns.")


def _two_names(columns: str) -> tuple[str, str]:
    """Split the names."""
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2 or not all(names):
        raise click.UsageError(f"--columns takes two names with a comma between them, such as x,y; got {columns!r}")
    return names[0], names[1]

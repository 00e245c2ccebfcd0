"""`dagveil plan`, runs by an agreed plan (`dagveil measure --plan`), and `dagveil combine`."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table

from dagveil.cli import options as shared
from dagveil.cli import output as terminal
from dagveil.cli.options import list_given, option, read_list, read_order, refuse_given
from dagveil.data.engine import Engine
from dagveil.data.machine import available_memory
from dagveil.data.schema import Schema
from dagveil.errors import InvalidBudgetError
from dagveil.evidence.bundle import Evidence
from dagveil.forecast.detection import describe_visibility
from dagveil.forecast.explore import EPSILONS, MODELS, SECONDS, WANTED_F1, Exploration, check_ending, explore
from dagveil.forecast.synthetic import EDGES_PER_COLUMN, STRENGTH
from dagveil.plans import planning
from dagveil.plans.combine import combine_evidence
from dagveil.plans.plan_file import AskMatrix, MeasurementPlan, PlannedSite, load_plan
from dagveil.plans.site_run import measure_planned, site_schema
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import DEFAULT_NOISE, NoiseKind
from dagveil.report.exploration import tabulate
from dagveil.report.formatting import write_epsilon, write_number
from dagveil.runs.cost import describe_bytes, describe_seconds, estimate_cost, suggest
from dagveil.runs.machine_speed import load_speed, measure_speed, save_speed
from dagveil.search.settings import SearchSettings
from dagveil.text import clean_text

_exploring_options = shared.option_group(
    option(
        "exploring --explore",
        "Show what accuracy each epsilon would buy, on synthetic tables of this schema, and recommend one.",
    ),
    option("--epsilons LIST", "Budgets to explore.", default=",".join(EPSILONS)),
    option("--methods LIST", "Methods to explore.  [default: all that fit and are not slow]"),
    option("--wanted-f1 SHARE", "Accuracy to reach.", default=WANTED_F1),
    option(
        "--degree NUMBER",
        f"Edges per column of synthetic graphs.  [default: {EDGES_PER_COLUMN:g}, or half of all pairs]",
        type=float,
    ),
    option("--strength NUMBER", "Mean strength of synthetic edges, about a correlation.", default=STRENGTH),
    option("--models INTEGER", "Synthetic tables to draw.", default=MODELS),
    option("--rows INTEGER", "Rows to expect.  [default: the schema's nominal rows]"),
    option("--seed INTEGER", "Random seed for the synthetic tables.", type=click.IntRange(0), default=0),
    option("--seconds NUMBER", "Processor time that the exploration may take by the forecast.", default=SECONDS),
    option("--workers INTEGER", "Processes.", type=click.IntRange(1), default=1),
    shared.ledger_option,
)
_EXPLORING_NAMES = (
    *("ledger", "epsilons", "methods", "wanted_f1", "degree", "strength", "models", "rows", "seed", "seconds"),
    "workers",
)
# options of a plan that fixes questions
_FIXING_NAMES = ("epsilon", "method", "options", "sites", "tables", "rounds", "second", "redraws", "noise", "engine")

# what the plan of a first round fixes for the second one
_SECOND_NAMES = ("epsilon", "delta", "method", "options", "sites", "tables", "rounds")


def run_exploration(path: str, schema: Schema, delta: str, output: str | None, chosen: dict[str, Any]) -> None:
    """Explore, print what was found, and write it. Curves go to the output: an SVG, HTML or JSON file."""
    if output:
        check_ending(output)
    epsilons, names = read_list(chosen.pop("epsilons")), chosen.pop("methods")
    chosen["methods"] = None if names is None else read_list(names)
    with terminal.show_progress() as progress:
        found = explore(schema, epsilons, delta, progress=progress, **chosen)
    if output:
        terminal.write_output(Path(output), found.save)
    print_exploration(found)
    if output:
        advice = found.recommendation
        # an epsilon that does not even reach what was wanted is no advice to follow blindly
        step, epsilon = (
            ("", write_epsilon(advice.epsilon)) if advice.reached else ("choose an E you can promise, ", "E")
        )
        command = ["dagveil", "discover", "DATA", "--schema", path, "--epsilon", epsilon, "--method", advice.method]
        terminal.print_written([Path(output)], clean_text(f"Next: {step}`{shlex.join(command)}`."))


def print_exploration(found: Exploration) -> None:
    """Print the curves as a table, and what they say."""
    points = found.curves[0].points
    epsilons = (Column(write_epsilon(point.epsilon), justify="right") for point in points)
    title = f"{found.dataset}: expected skeleton F1 by epsilon, with 95 % intervals"
    table = Table("method", *epsilons, title=clean_text(title), title_justify="left")
    for name, cells in tabulate(found.curves):
        table.add_row(clean_text(name), *cells)
    table.add_section()
    table.add_row(f"weakest {points[0].weakest.scale} seen", *(write_number(point.weakest.typical) for point in points))
    terminal.open_console().print(table)
    failures = [
        f"{curve.method} at epsilon {write_epsilon(point.epsilon)}: {point.failure}"
        for curve in found.curves
        for point in curve.points
        if point.failure is not None
    ]
    terminal.say(*found.recommendation.words, *found.notes, *failures)


@click.command(short_help="Fix what will be asked, and what it will cost, before any row is read.")
@click.argument("schema_file", required=False, metavar="[SCHEMA.toml]")
@option("schema_path --schema SCHEMA.toml", "Levels, bounds and public facts of all sites.")
@option("--epsilon NUMBER", "Privacy budget of each site's run, for example 1.")
@option("--delta NUMBER", "The other half of that budget.", default="1e-6")
@shared.releasing_options
@option(
    "sites --site NAME[=ROWS[,EPSILON[,DELTA]]]",
    "A custodian, with a public number of rows and, if it differs, its budget. May be given several times.  "
    "[default: one site, with the schema's name and nominal rows]",
    multiple=True,
)
@shared.choice_option(
    "--tables",
    planning.TableRule.AUTO,
    "Pairs only, or all three-way tables besides; auto decides by the noise that these would have.",
)
@option(
    "--rounds INTEGER",
    "2 keeps a part of the budget for a second round, which --second plans.",
    type=click.IntRange(1, 2),
    default=1,
)
@option(
    "--second PLAN.json COMBINED.json",
    "Plan the second round of a study from the sum of its first; schema, sites and budgets are the plan's.",
    nargs=2,
)
@option(
    "--redraws INTEGER",
    "Redraws of the search, for the forecast.",
    type=click.IntRange(0),
    default=SearchSettings().redraws,
)
@shared.choice_option("--noise", DEFAULT_NOISE, "Where noise will come from, for the forecast.", NoiseKind.SEEDED)
@shared.choice_option("--engine", Engine.MEMORY, "Where rows will be counted, for the forecast.", Engine.AUTO)
@option("--calibrate", "Benchmark this machine first, and save the results for later plans.")
@option(
    "-o --output FILE",
    "Write the plan, for `dagveil measure --plan`; with --explore the curves, as .svg, .html or .json.",
)
@option(
    "pair --effect CAUSE EFFECT",
    "Say which epsilon gives an interval of the wanted width for this effect; with --width.",
    nargs=2,
)
@option("--width SHARE", "Wanted width of that interval: 0.02 is two points.")
@option("--adjust LIST", "Columns that the effect will be adjusted for, with commas.")
@_exploring_options
@click.pass_context
def plan(
    context: click.Context,
    /,
    schema_file: str | None,
    schema_path: str | None,
    epsilon: str | None,
    delta: str,
    method: str,
    options: tuple[str, ...],
    sites: tuple[str, ...],
    tables: str,
    rounds: int,
    second: tuple[str, str] | None,
    redraws: int,
    noise: str,
    engine: str,
    calibrate: bool,
    output: str | None,
    exploring: bool,
    pair: tuple[str, str] | None,
    width: float | None,
    adjust: str | None,
    **chosen: Any,
) -> None:
    """Fix the questions of a measurement, with shares, budgets and sites, before any row is read.

    Shows how many questions there are, how noisy their answers will be, and what time and memory they will take on this
    machine. With -o the plan goes to a file: custodians who may not pool their rows follow it with `dagveil measure
    --plan`, and `dagveil combine` adds what they release.

    With --explore nothing is fixed: methods are tried on synthetic tables of the schema, and it says which method and
    which epsilon would reach the wanted accuracy. No row is ever read.

    With --effect and --width nothing is fixed either: it says which epsilon the tables of one effect need.
    """
    if schema_file is not None and schema_path is not None:
        raise click.UsageError("the schema is given twice; drop either --schema or the positional argument")
    schema_path = schema_path or schema_file
    if pair is not None:
        why = "the width of an effect needs a schema, --adjust and --delta alone; leave out {}"
        shared.refuse_given(context, (*_FIXING_NAMES, *_EXPLORING_NAMES, "exploring", "output"), why)
        if width is None:
            raise click.UsageError("--effect needs --width, for example --width 0.02 for two points")
        _print_width(schema_path or "", shared.require_schema(schema_path), pair, read_list(adjust or ""), width, delta)
        return
    shared.refuse_given(context, ("width", "adjust"), "these belong to --effect CAUSE EFFECT; add it, or leave out {}")
    if exploring:
        why = "an exploration tries several budgets and methods; give --epsilons and --methods, and leave out {}"
        shared.refuse_given(context, _FIXING_NAMES, why)
    else:
        shared.refuse_given(context, _EXPLORING_NAMES, "these belong to --explore; add it, or leave out {}")
    if calibrate:
        click.echo(f"wrote {save_speed(measure_speed())}: the constants of this machine")
        if schema_path is None and epsilon is None:
            return
    if exploring:
        if output:
            terminal.check_writable(Path(output), reads=(schema_path,))
        run_exploration(schema_path or "", shared.require_schema(schema_path), delta, output, chosen)
        return
    if second is not None:
        why = "the plan of the first round decides that: leave out {}"
        shared.refuse_given(context, ("schema_file", "schema_path", *_SECOND_NAMES), why)
        made = planning.plan_second_round(*second)
    elif epsilon is None:
        raise click.UsageError("a plan needs --epsilon, for example --epsilon 1; or explore several (--explore)")
    else:
        schema = shared.require_schema(schema_path)
        rules: dict[str, Any] = {"tables": planning.TableRule(tables), "rounds": rounds}
        rules["options"] = shared.read_options(options)
        rules["sites"] = [_read_site(text, schema, Budget.of(epsilon, delta)) for text in sites]
        made = planning.plan_measurement(schema, epsilon, delta, method=method, **rules)
    if output:
        terminal.check_writable(Path(output), reads=(schema_path, *(second or ())))
        terminal.write_output(Path(output), made.save)
    by_rule = second is None and rounds == 1 and planning.TableRule(tables) is planning.TableRule.AUTO and not options
    # for plans of one site whose questions the formulas know
    known = len(made.sites) == 1 and made.method in ("measure", "measure-ges") and len(made.schema.columns) > 1
    if by_rule and known:
        terminal.say(*describe_visibility(made.schema, made.sites[0].budget, made.sites[0].nominal_rows))
    _print_plan(made)
    _print_cost(made, redraws, NoiseKind(noise), Engine(engine))
    if output:
        first = made.sites[0].name
        named = shlex.join(["dagveil", "measure", "DATA", "--plan", output, "--site", first, "--schema", "SCHEMA.toml"])
        terminal.print_written(
            [Path(output)], clean_text(f"Next, at each site: `{named}`. Digest of the plan: {made.digest()}")
        )


def _print_width(path: str, schema: Schema, pair: tuple[str, str], adjust: list[str], width: float, delta: str) -> None:
    """Say which epsilon gives the wanted width, from public facts."""
    from dagveil.effects.parents import check_pair
    from dagveil.effects.width import PLANNED, epsilon_for_width
    from dagveil.methods.measure import is_numeric
    from dagveil.runs.effects import epsilon_for_slope

    check_pair(schema.columns, *pair)
    names = (*pair, *adjust)
    table = " × ".join(names)
    if is_numeric(schema.narrow({name: column for name, column in schema.columns.items() if name in names})):
        wanted, told_as = epsilon_for_slope(schema, names, *pair, width, delta), f"moments of {table}"
    else:
        wanted = epsilon_for_width(schema, *pair, [frozenset(adjust)], width, delta)
        told_as = f"the table of {table}"
    if wanted.epsilon is None:
        terminal.say(f"No epsilon gives an interval {width:g} wide from {told_as}: {wanted.reason}.")
        return
    command = ["dagveil", "effect", "FILE", "--schema", path, "--from", "RESULT", "--cause", pair[0]]
    command += ["--effect", pair[1], "--epsilon", f"{wanted.epsilon:.3g}"]
    terminal.say(
        f"epsilon {wanted.epsilon:.3g} gives a 95 % interval {width:g} wide for the effect of {pair[0]} on {pair[1]}, "
        f"from {told_as} with {schema.nominal_rows} rows.",
        PLANNED if told_as.startswith("the table") else "Before a row is read, columns count as independent.",
        f"Next: `{shlex.join(command)}`.",
    )


def _read_site(text: str, schema: Schema, budget: Budget) -> PlannedSite:
    """Read NAME=ROWS,EPSILON,DELTA; what is left out is the schema's or the plan's."""
    name, _, facts = text.partition("=")
    rows, *amounts = [part.strip() for part in facts.split(",")]
    if len(amounts) > 2 or not name.strip() or not ((rows.isascii() and rows.isdigit()) or not rows):
        raise click.UsageError(f"--site takes NAME=ROWS,EPSILON,DELTA, for example --site north=20000; got {text!r}")
    nominal = int(rows) if rows else schema.nominal_rows
    if nominal is None:
        raise click.UsageError(f"--site {name}: give its public number of rows, NAME=ROWS, or declare nominal_rows")
    own = Budget.of(amounts[0] if amounts else budget.epsilon, amounts[1] if len(amounts) > 1 else budget.delta)
    return PlannedSite(name.strip(), own.epsilon, own.delta, nominal)


def _print_plan(plan: MeasurementPlan) -> None:
    foreseen = planning.forecast_plan(plan)
    several = len(plan.sites) > 1
    asked = terminal.count(sum(stage.tables for stage in foreseen), "question")
    title = f"{plan.name}: {asked} to {terminal.count(len(plan.sites), 'site')}, {plan.method}"
    noises = ("noise at a site", "together") if several else ("noise",)
    headings = (Column(heading, justify="right") for heading in ("share", "tables", "numbers", *noises))
    table = Table("stage", *headings, title=clean_text(title), title_justify="left")
    for stage in foreseen:
        low, high = min(stage.site_noise), max(stage.site_noise)
        own = f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
        cells = [stage.stage, f"{float(stage.share):.4g}", str(stage.tables), str(stage.cells), own]
        table.add_row(*cells, *([f"{stage.noise:.4g}"] if several else []))
    terminal.open_console().print(table)
    counted = "rows" if plan.schema.person is None else "persons"
    sites = [f"site {site.name}: {site.budget.words}, {site.nominal_rows} nominal {counted}" for site in plan.sites]
    terminal.say(*sites, *(f"site {site.name}, second round: {site.budget.words}" for site in plan.second))
    sums = any(isinstance(ask, AskMatrix) for ask in plan.asks)
    scaled = " (for sums of products, of columns in units of their spread)" if sums else ""
    terminal.say(f"noise: {plan.noise.value}; the table has the standard deviation per number, in rows{scaled}")
    for ask in plan.asks:
        if isinstance(ask, AskMatrix):
            rows = ask.rows.rows
            told = f"rounded to {rows.bits} binary places, so that sums of up to {rows.max_rows():.2g} rows are exact"
            terminal.say(f"{ask.stage}: {told}")


def _print_cost(plan: MeasurementPlan, redraws: int, noise: NoiseKind, engine: Engine) -> None:
    speed, measured = load_speed()
    largest = max(plan.sites, key=lambda site: site.nominal_rows)
    at_site = replace(planning.work_at_site(plan, largest, noise), engine=engine)
    searching = planning.work_of_search(plan, redraws)
    numbers = (Column(name, justify="right") for name in ("time", "memory"))
    title = f"expected on this machine, {engine.value} engine, one core"
    table = Table("step", *numbers, title=title, title_justify="left")
    site_cost, search_cost = estimate_cost(at_site, speed), estimate_cost(searching, speed)
    where = ", at the largest site" if len(plan.sites) > 1 else ""
    for step in site_cost.steps[:4]:
        table.add_row(f"{step.name}{where}", describe_seconds(step.seconds), describe_bytes(step.memory))
    for step in search_cost.steps[4:]:
        table.add_row(step.name, describe_seconds(step.seconds), describe_bytes(step.memory))
    terminal.open_console().print(table)
    shipped = "from shipped constants; `dagveil plan --calibrate` measures this machine in a few seconds"
    terminal.say("from constants measured on this machine" if measured else shipped)
    if (room := available_memory()) is not None:
        terminal.say(f"available memory: {describe_bytes(room)}")
        for cost, work in ((site_cost, at_site), (search_cost, searching)):
            if cost.memory > room:
                advice = suggest(work, speed, room)
                click.echo(f"Warning: {describe_bytes(cost.memory)} will not fit here. {advice}", err=True)


def measure_by_plan(
    context: click.Context,
    file: str,
    output: Path,
    recovery: Path,
    plan_path: str,
    site: str | None,
    dataset: str | None,
    run: dict[str, Any],
) -> tuple[Evidence, Callable[[], None]]:
    """Refuse whatever is not the plan's, then release what it asks for; return also what tells the account."""
    refuse_given(context, ("method", "options", "accept_draft"), "the plan decides that: leave out {}")
    plan = load_plan(plan_path)
    chosen = plan.site_named(site)
    # the plan's own budget may be repeated
    epsilon = chosen.epsilon if run["epsilon"] is None else run["epsilon"]
    own = Budget.of(epsilon, run["delta"] if list_given(context, ("delta",)) else chosen.delta)
    if own != chosen.budget:
        raise InvalidBudgetError(
            f"the plan gives site {chosen.name!r} {chosen.budget.words}, and {own.words} was asked for; leave "
            "--epsilon and --delta out, or agree on another plan"
        )
    schema = site_schema(plan, chosen.nominal_rows, run["schema_path"], dataset)
    order = read_order(file, (output,), recovery, run, reads=(plan_path,), schema=schema, budget=chosen.budget)
    with terminal.show_progress() as progress:
        evidence = measure_planned(order.rows, plan, chosen.name, schema=schema, progress=progress, **order.options)
    return evidence, order.print_account


@click.command(short_help="Add the evidence of several custodians who followed one plan.")
@click.argument("files", nargs=-1, required=True, metavar="EVIDENCE.json...")
@option("-o --output FILE", "Output file for the combined evidence.", default="combined.json")
@option(
    "--shared-columns", "Allow different plans: add what they have in common, and name the columns that are left out."
)
@option(
    "--site-column NAME",
    "Add a column of this name for the site: its children in the graph are what differs between sites.",
)
def combine(files: tuple[str, ...], output: str, shared_columns: bool, site_column: str | None) -> None:
    """Add evidence that several sites released by the same plan, at no cost and without any rows.

    Counts, moments and the variances of their noise add up. Every site's receipt stands for itself and is kept. Files
    of other plans, and a second file of the same site, are refused. Where sites differ beyond noise and chance, the
    columns are named.
    """
    path = Path(output)
    terminal.check_writable(path, reads=files)
    combined = combine_evidence(files, shared_columns=shared_columns, site_column=site_column)
    terminal.write_output(path, combined.save)
    terminal.print_findings(combined.findings, combined.receipt)
    terminal.print_written([path], f"Next: `dagveil discover {shlex.quote(str(path))}` finds one graph from all of it.")

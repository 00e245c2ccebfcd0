"""`dagveil bench list | run | table | plot | export`: studies that are data."""

from pathlib import Path

import click

from dagveil.cli.output import check_writable, count, show_progress, write_output
from dagveil.runs.recovery import save_whole
from dagveil_bench.commands.group import bench, workers_option
from dagveil_bench.studies.datasets import data_plugins
from dagveil_bench.studies.figure import draw_study
from dagveil_bench.studies.jobs import FILTERS, list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.page import Form, figure_name, write_page
from dagveil_bench.studies.plan import Study
from dagveil_bench.studies.reading import check_metrics_of, default_store, load_study, parse_study, shipped_studies
from dagveil_bench.studies.results import PARQUET, open_results, results_beside, write_results
from dagveil_bench.studies.runner import run_plan, take_over
from dagveil_bench.studies.store import Store
from dagveil_bench.studies.summary import summarise

store_argument = click.argument("store", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
metric_option = click.option(
    "--metric",
    "metrics",
    type=click.Choice([metric.value for metric in Metric]),
    multiple=True,
    help="Metric in place of the study's; may be repeated.",
)


@bench.command("list", short_help="List the studies that come with dagveil.")
def list_studies() -> None:
    """List the studies that come with dagveil, and the data sets of plug-ins."""
    for name, text in shipped_studies().items():
        study = parse_study(text)
        quick = study.miniature()
        source = study.reproduces.partition(":")[0]
        runs = f"{len(list_jobs(study))} runs; --quick: {len(list_jobs(quick))}"
        click.echo(f"{name}: {study.title}. {source} ({runs})")
    added, broken = data_plugins().load_all()
    for name in added:
        click.echo(f"data set {name} of {data_plugins().origin(name)}")
    for reason in broken.values():
        click.echo(f"Warning: {reason}.", err=True)


@bench.command(short_help="Run a study; an interrupted study resumes where it stopped.")
@click.argument("study")
@click.option(
    "--store", metavar="FILE", help="SQLite file that keeps every run. The study's name with .sqlite if not given."
)
@workers_option
@click.option(
    "--only",
    metavar="NAME=VALUE",
    multiple=True,
    help=f"Run a part: {', '.join(FILTERS)}; may be repeated. Values of one name are alternatives.",
)
@click.option("--quick", is_flag=True, help="Run the study's miniature, into a store of its own.")
@click.option("--retry", is_flag=True, help="Run again what failed.")
@click.option(
    "--from",
    "origins",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    help="Take over runs that the study has in common with another store, or its Parquet file; may be repeated.",
)
def run(
    study: str,
    store: str | None,
    workers: int,
    only: tuple[str, ...],
    quick: bool,
    retry: bool,
    origins: tuple[str, ...],
) -> None:
    """Run a study: a TOML file, or the name of one that comes with dagveil.

    Every run is stored when it ends. The same command goes on where a stopped or killed one was. When all is done, a
    Parquet file beside the store has the results.
    """
    plan = load_study(study)
    plan = plan.miniature() if quick else plan
    path = Path(store or default_store(plan))
    results = results_beside(path)
    check_writable(path, results, option="--store")
    with Store(path, create=True) as kept:
        for origin in origins:
            with open_results(origin) as other:
                taken = take_over(plan, kept, other)
            reason = (
                "" if taken else ": all that the study has in common with it, by seed, δ, rows and settings, are here"
            )
            click.echo(f"{count(taken, 'run')} taken over from {origin}{reason}")
        try:
            with show_progress(lines=True) as progress:
                tally = run_plan(plan, kept, workers, progress, _read_only(only), retry=retry)
        except KeyboardInterrupt:
            click.echo(f"Stopped. Finished runs are in {path}; the same command goes on from there.", err=True)
            raise click.exceptions.Exit(130) from None
        write_results(kept, results)
    click.echo(
        f"{tally.done} runs done, {tally.before} of {tally.total} were stored before, {tally.failed} failed. "
        f"All are in {results}; `dagveil bench table {results}` shows them."
    )
    if tally.strangers:
        click.echo(
            f"{count(tally.strangers, 'stored run')} of another seed, delta, source or setting are not counted: the "
            "study has changed since."
        )
    if tally.changes:
        click.echo(f"Warning: means are over runs of different versions: {'; '.join(tally.changes)}.", err=True)
    if tally.failed:
        click.echo(f"Why runs failed, most often: {tally.reason}. --retry runs them again.", err=True)
        raise click.exceptions.Exit(1)


@bench.command(short_help="Write the tables of a stored study.")
@store_argument
@click.option(
    "--form",
    type=click.Choice([form.value for form in Form]),
    default=Form.MARKDOWN.value,
    help="csv is one long table with every metric.",
)
@metric_option
@click.option("-o", "--output", metavar="FILE", help="Write to this file in place of the terminal.")
def table(store: str, form: str, metrics: tuple[str, ...], output: str | None) -> None:
    """Write the tables of a study from its store or Parquet FILE; one that is still running has its means so far.

    A page in Markdown shows the figures that lie in its folder.
    """
    beside = Path(output).parent if output is not None else None
    with open_results(store) as kept:
        plan = kept.study()
        spots = summarise(plan, kept.outcomes())
        chosen = _choose_metrics(plan, metrics)
        drawn = [each for each in Metric if beside is not None and (beside / figure_name(plan, each)).exists()]
        page = write_page(plan, spots, kept.sessions(), Form(form), chosen, Path(store).name, drawn)
    if output is None:
        click.echo(page)
        return
    check_writable(Path(output), reads=(store,))
    write_output(Path(output), f"{page}\n".encode())


@bench.command(short_help="Draw the figures of a stored study.")
@store_argument
@metric_option
@click.option("-o", "--output", metavar="FOLDER", required=True, help="Folder of the SVG files.")
def plot(store: str, metrics: tuple[str, ...], output: str) -> None:
    """Draw the figures of a study from its store or Parquet FILE: a metric over ε, with intervals, ceilings, floors."""
    with open_results(store) as kept:
        plan = kept.study()
        spots = summarise(plan, kept.outcomes())
    for path in draw_study(plan, spots, output, _choose_metrics(plan, metrics)):
        click.echo(f"wrote {path}")


@bench.command(short_help="Write all runs of a stored study as Parquet or CSV.")
@store_argument
@click.option("-o", "--output", metavar="FILE", required=True, help="A .parquet or .csv file.")
def export(store: str, output: str) -> None:
    """Write all runs of a store or Parquet FILE, one row each, with seeds and errors, for other programs.

    `is_planned` tells runs that the study still has from those of an earlier form of it. The plan, and versions and
    hardware of each session, are in the metadata of a Parquet file.
    """
    path = Path(output)
    if path.suffix not in (".csv", PARQUET):
        raise click.UsageError(f"the output {path.name} must end in .csv or .parquet")
    check_writable(path, reads=(store,))
    with open_results(store) as kept, save_whole(path) as part:
        written = write_results(kept, part)
    click.echo(f"wrote {count(written, 'run')} to {path}")


def _choose_metrics(plan: Study, names: tuple[str, ...]) -> list[Metric]:
    chosen = [metric for name in names for metric in Metric if metric.value == name]
    check_metrics_of(plan.task, chosen)
    return chosen


def _read_only(only: tuple[str, ...]) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for item in only:
        name, mark, value = item.partition("=")
        if not mark or not value:
            raise click.UsageError(f"--only takes NAME=VALUE, for example --only data=asia; got {item!r}")
        chosen.setdefault(name.strip(), []).append(value.strip())
    return chosen

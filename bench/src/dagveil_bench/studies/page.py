"""A study as a page: tables in Markdown or LaTeX, or one long CSV table for other programs."""

import csv
import enum
import io
import math
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dagveil_bench.studies.machine import list_changes
from dagveil_bench.studies.metrics import OF_ANSWERS, OF_BUDGETS, Metric, Task
from dagveil_bench.studies.plan import QUICK, Entry, Role, Study
from dagveil_bench.studies.reading import default_store, shipped_studies
from dagveil_bench.studies.results import PARQUET
from dagveil_bench.studies.store import Session
from dagveil_bench.studies.summary import CONFIDENCE, Axis, Estimate, Spot, choose_axis
from dagveil_bench.tables import write_table

# columns of the CSV table
HEAD = (
    *("data", "rows", "method", "calibration", "role", "epsilon", "metric"),
    *("runs", "failed", "mean", "deviation", "half_width", "published"),
)
_TEX = {
    "\\": r"\textbackslash{}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}


class Form(enum.Enum):
    """How tables are written."""

    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table: what it shows, of which part of the study, its heads, and its rows."""

    metric: str
    place: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: what stands over it, and which runs are in it."""

    head: str
    data: str
    n_rows: int
    epsilon: float


def write_page(
    study: Study,
    spots: Sequence[Spot],
    sessions: Sequence[Session],
    form: Form,
    metrics: Sequence[Metric] = (),
    store: str = "",
    drawn: Collection[Metric] = (),
) -> str:
    """Write the tables of a study, from its averages and the calls of the runner.

    Chosen metrics stand in place of the study's; CSV has all unless some are chosen. The commands on the page name the
    `store`, or the study's own if it is empty. Markdown shows the figures of metrics that were drawn beside it.
    """
    if form is Form.CSV:
        return write_csv(study, spots, metrics or tuple(Metric))
    chosen = metrics or study.metrics
    if form is Form.LATEX:
        return "\n\n".join(write_latex(sheet) for metric in chosen for sheet in list_sheets(study, spots, metric))
    parts = [
        f"# {study.title}",
        *([study.reproduces] if study.reproduces else []),
        *_describe_study(study, spots, sessions, store or default_store(study)),
    ]
    for metric in chosen:
        sheets = [sheet for sheet in list_sheets(study, spots, metric) if sheet.rows]
        parts += [f"## {metric.title}", *([] if sheets else ["No run has it."])]
        parts += [f"![{metric.title}]({figure_name(study, metric)})"] if metric in drawn else []
        for sheet in sheets:
            parts += [f"### {sheet.place}", write_table(sheet.heads, sheet.rows)]
        parts.append(describe_defeats(study, spots, metric))
    return "\n\n".join(part for part in (*parts, *_describe_failures(spots)) if part)


def figure_name(study: Study, metric: Metric) -> str:
    """Name the file of a metric's figure."""
    return f"{study.name}-{metric.value}.svg"


def list_sheets(study: Study, spots: Sequence[Spot], metric: Metric) -> list[Sheet]:
    """Lay one metric out: methods over budgets, over numbers of rows, or over data sets, whatever the study varies."""
    budgets = sorted({spot.epsilon for spot in spots if spot.role is Role.CONTENDER})
    parts = dict.fromkeys((spot.data, spot.n_rows) for spot in spots)
    name = study.task.axis
    layouts: dict[str, list[_Column]] = {}
    match choose_axis(spots):
        case Axis.BUDGET:
            for data, n_rows in parts:
                columns = [_Column(f"{name} = {epsilon:g}", data, n_rows, epsilon) for epsilon in budgets]
                layouts[f"{data}, {n_rows} rows"] = columns
        case Axis.ROWS:
            data = spots[0].data
            columns = [_Column(f"{n_rows} rows", data, n_rows, budgets[0]) for _, n_rows in parts]
            layouts[f"{data}, {name} = {budgets[0]:g}"] = columns
        case Axis.DATA:
            for data, n_rows in parts:
                column = _Column(data, data, n_rows, budgets[0])
                layouts.setdefault(f"{name} = {budgets[0]:g}, {n_rows} rows", []).append(column)
    sheets = [_lay_out(study, spots, metric, columns, place) for place, columns in layouts.items()]
    return [sheet for sheet in sheets if sheet.rows]


def write_latex(sheet: Sheet) -> str:
    r"""Write a table for LaTeX, without packages.

    >>> print(write_latex(Sheet("F1", "asia", ("method", "ε = 1"), (("a_b", "0.9 ± 0.1"),))))
    \begin{table}
    \caption{F1: asia}
    \begin{tabular}{lr}
    \hline
    method & $\varepsilon$ = 1 \\
    \hline
    a\_b & 0.9 $\pm$ 0.1 \\
    \hline
    \end{tabular}
    \end{table}
    """
    lines = [" & ".join(map(_escape, line)) + r" \\" for line in (sheet.heads, *sheet.rows)]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_escape(f'{sheet.metric}: {sheet.place}')}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(sheet.heads) - 1)}}}",
            r"\hline",
            lines[0],
            r"\hline",
            *lines[1:],
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def write_csv(study: Study, spots: Sequence[Spot], metrics: Sequence[Metric]) -> str:
    """Write one line for each combination and metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for spot in spots:
        for metric in metrics:
            estimate = spot.estimates.get(metric)
            printed = find_printed(study, spot.label, metric, spot.data, spot.epsilon, spot.n_rows)
            if estimate is None and printed is None:
                continue
            what = (spot.data, spot.n_rows, spot.label, spot.calibration, spot.role.value, spot.epsilon, metric.value)
            found = (0, "", "", "") if estimate is None else _write_numbers(estimate)
            writer.writerow((*what, found[0], len(spot.failures), *found[1:], "" if printed is None else printed))
    return text.getvalue().rstrip("\n")


def find_printed(study: Study, label: str, metric: Metric, data: str, epsilon: float, n_rows: int) -> float | None:
    """Return the published figure beside a number of ours, if there is one."""
    figures = (p.at(data, epsilon, n_rows) for p in study.published if p.method == label and p.metric is metric)
    return next((figure for figure in figures if figure is not None), None)


def is_shown(role: Role, metric: Metric) -> bool:
    """Tell whether a metric means something for a role: floors have no seconds, and budgets of ceilings no meaning."""
    return metric not in OF_BUDGETS if role is Role.CEILING else role is Role.CONTENDER or metric in OF_ANSWERS


def write_number(value: float, digits: int) -> str:
    """Write a number with so many digits after the point, and a very large one in short."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3g}"


def _lay_out(study: Study, spots: Sequence[Spot], metric: Metric, columns: Sequence[_Column], place: str) -> Sheet:
    """Set methods over columns; a column with published figures has them beside it."""
    found = {(s.label, s.data, s.n_rows, s.epsilon if s.role is Role.CONTENDER else math.inf): s for s in spots}
    present = {(column.data, column.n_rows) for column in columns}
    roles = {s.label: s.role for s in spots if (s.data, s.n_rows) in present}
    labels = [label for label, role in roles.items() if is_shown(role, metric)]
    heads = ["method"]
    cells: list[list[str]] = []
    for column in columns:
        mine = []
        for label in labels:
            at = column.epsilon if roles[label] is Role.CONTENDER else math.inf
            mine.append(_write_spot(found.get((label, column.data, column.n_rows, at)), metric))
        heads.append(column.head)
        cells.append(mine)
        theirs = [find_printed(study, label, metric, column.data, column.epsilon, column.n_rows) for label in labels]
        if any(figure is not None for figure in theirs):
            heads.append("published")
            cells.append(["" if figure is None else f"{figure:g}" for figure in theirs])
    rows = [(label, *(cell[i] for cell in cells)) for i, label in enumerate(labels)]
    return Sheet(metric.title, place, tuple(heads), tuple(row for row in rows if any(row[1:])))


def _write_spot(spot: Spot | None, metric: Metric) -> str:
    if spot is None:
        return ""
    estimate = spot.estimates.get(metric)
    if estimate is None:
        return "failed" if spot.failures and len(spot.failures) == spot.stored else ""
    text = write_number(estimate.mean, metric.digits)
    if not math.isnan(estimate.half_width):
        text += f" ± {write_number(estimate.half_width, metric.digits)}"
    return f"{text} ({len(spot.failures)} failed)" if spot.failures else text


def _write_numbers(estimate: Estimate) -> tuple[int, str, str, str]:
    numbers = (estimate.mean, estimate.deviation, estimate.half_width)
    return (estimate.runs, *("" if math.isnan(n) else f"{n:.6g}" for n in numbers))  # type: ignore[return-value]


def _describe_study(study: Study, spots: Sequence[Spot], sessions: Sequence[Session], store: str) -> list[str]:
    planned, stored = sum(s.planned for s in spots), sum(s.stored for s in spots)
    samples = "each on a sample of its own" if not study.samples else f"on {study.samples} samples"
    samples += "; samples are the same for every method and budget"
    delta = f", δ = {study.delta:g}"
    if study.task is Task.LOCAL:
        samples, delta = "all of the same records; reports are the same for every method", ""
    name = study.name.removesuffix(QUICK)
    command = shlex.quote(name if name in shipped_studies() else f"{name}.toml")
    command += "" if name == study.name else " --quick"
    kept = store.removesuffix(PARQUET) + ".sqlite" if store.endswith(PARQUET) else store
    command += "" if kept == default_store(study) else f" --store {shlex.quote(kept)}"
    lines = [
        f"{stored} of {planned} runs are stored. Repetitions: {study.repetitions}, {samples}. "
        f"Seed {study.seed}{delta}. ± is the half-width of Student's "
        f"{CONFIDENCE:.0%} interval for the mean. Noise is seeded, so that runs can be repeated. Columns called "
        "published hold figures of others. Written by",
        f"    dagveil bench run {command}\n    dagveil bench table {shlex.quote(store)}",
    ]
    for session in {str((s.software, s.hardware)): s for s in sessions}.values():
        software = ", ".join(f"{name} {version}" for name, version in session.software.items())
        hardware = ", ".join(f"{name}: {what}" for name, what in session.hardware.items())
        lines.append(f"Run with {software}; {hardware}; {session.workers} processes.")
    notes = [] if name == study.name else ["This is a miniature; the notes below are about the whole study."]
    notes += study.notes
    changes = list_changes([session.software for session in sessions])
    notes += [f"Means are over runs of different versions: {'; '.join(changes)}."] if changes else []
    notes += [
        f"{entry.title}: the budget is given to it as `{entry.budget_setting}`; its total is what it reports."
        for entry in study.methods
        if entry.budget_setting is not None and entry.role is Role.CONTENDER
    ]
    notes += [
        f"{entry.title}{_place(entry)}: {entry.repetitions} repetitions, because a run takes long."
        for entry in study.methods
        if entry.repetitions is not None and entry.repetitions < study.repetitions
    ]
    if study.answered_by:
        notes.append(f"Means are over the samples on which {study.answered_by} has an answer.")
    notes += [
        f"{data.title}: {data.repetitions} repetitions."
        for data in study.data_sets
        if data.repetitions is not None and data.repetitions < study.repetitions
    ]
    notes += _describe_missing(spots, study.task.axis)
    notes += dict.fromkeys(f"Published under {p.metric.title!r}: {p.source}." for p in study.published)
    return [*lines, *(["\n".join(f"- {note}" for note in notes)] if notes else [])]


def _place(entry: Entry) -> str:
    parts = [", ".join(entry.data), ", ".join(map(str, entry.rows)) + " rows" if entry.rows else ""]
    return "".join(f", {part}" for part in parts if part)


def _describe_missing(spots: Sequence[Spot], axis: str) -> list[str]:
    """Say of which rows of the tables not all repetitions are stored, and how many are."""
    cells: dict[tuple[str, str], list[Spot]] = {}
    for spot in spots:
        cells.setdefault((spot.label, f"{spot.data}, {spot.n_rows} rows"), []).append(spot)
    places: dict[tuple[str, str], list[str]] = {}
    for (label, place), all_budgets in cells.items():
        missing = [spot for spot in all_budgets if spot.stored < spot.planned]
        if not missing:
            continue
        counts = sorted({spot.stored for spot in missing})
        span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0] or "none")
        span += f" of {missing[0].planned} repetitions"
        if len(missing) < len(all_budgets):
            span += f" at {axis} = {', '.join(f'{spot.epsilon:g}' for spot in missing)}"
        places.setdefault((label, span), []).append(place)
    return [f"{label}: {span} on {'; '.join(where)}." for (label, span), where in places.items()]


def _describe_failures(spots: Sequence[Spot]) -> list[str]:
    counted = Counter((spot.label, spot.data, spot.n_rows, error) for spot in spots for error in spot.failures)
    if not counted:
        return []
    lines = [
        f"- {label} on {n_rows} rows of {data}, {count} {'run' if count == 1 else 'runs'}: {error}"
        for (label, data, n_rows, error), count in counted.most_common()
    ]
    return ["## Failed runs", "\n".join(lines)]


def _escape(text: str) -> str:
    return "".join(_TEX.get(mark, mark) for mark in text.replace("`", ""))


# metrics that are listed: the more, the better, and neither the complete nor the empty graph wins them
RANKED = frozenset({Metric.SKELETON_F1, Metric.CPDAG_F1})


@dataclass(frozen=True, slots=True)
class Defeat:
    """A cell in which a contender has a higher mean than the champion.

    It is clear if the difference exceeds the sum of the half-widths of both intervals.
    """

    champion: Spot
    rival: Spot
    is_clear: bool


def list_defeats(study: Study, spots: Sequence[Spot], metric: Metric) -> list[Defeat]:
    """Return the cells where contenders are above the champion, the best of each cell first."""
    found = []
    for own in spots:
        if own.label != study.champion or metric not in own.estimates:
            continue
        mine = own.estimates[metric]
        rivals = [
            spot
            for spot in spots
            if spot.role is Role.CONTENDER
            and (spot.data, spot.n_rows, spot.epsilon) == (own.data, own.n_rows, own.epsilon)
            and metric in spot.estimates
            and spot.estimates[metric].mean > mine.mean
        ]
        rivals.sort(key=lambda spot: -spot.estimates[metric].mean)
        for rival in rivals:
            theirs = rival.estimates[metric]  # a width that is nan is exceeded by nothing
            found.append(Defeat(own, rival, theirs.mean - mine.mean > mine.half_width + theirs.half_width))
    return found


def describe_defeats(study: Study, spots: Sequence[Spot], metric: Metric) -> str:
    """Say where the champion is not the highest, in Markdown; nothing where the study has no champion."""
    if not study.champion or metric not in RANKED:
        return ""
    cells = [spot for spot in spots if spot.label == study.champion and metric in spot.estimates]
    defeats = list_defeats(study, spots, metric)
    if not defeats:
        return f"`{study.champion}` has the highest mean in all {len(cells)} cells." if cells else ""
    lost = {id(defeat.champion) for defeat in defeats}
    clear = {id(defeat.champion) for defeat in defeats if defeat.is_clear}
    lines = [_tell(defeat, metric, study) for defeat in defeats]
    return "\n".join(
        [
            f"`{study.champion}` has not the highest mean in {len(lost)} of {len(cells)} cells, in {len(clear)} of "
            "them by more than both half-widths together:",
            "",
            *lines,
        ]
    )


def _tell(defeat: Defeat, metric: Metric, study: Study) -> str:
    own, rival = defeat.champion, defeat.rival
    means = [f"{spot.estimates[metric].mean:.3f}" for spot in (rival, own)]
    rows = f", {own.n_rows} rows" if len(study.rows) > 1 else ""
    how = "beyond both intervals" if defeat.is_clear else "within the intervals"
    if any(math.isnan(spot.estimates[metric].half_width) for spot in (own, rival)):
        how = "one run has no interval"
    place = f"{own.data}, {study.task.axis} = {own.epsilon:g}{rows}"
    return f"- {place}: {rival.label} {means[0]}, {own.label} {means[1]}; {how}"

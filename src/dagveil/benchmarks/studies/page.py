"""A study as a page: tables in Markdown or LaTeX, or one long CSV table for other programs."""

from __future__ import annotations

import csv
import enum
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dagveil.benchmarks.studies.metrics import OF_BUDGETS, OF_GRAPHS, Metric
from dagveil.benchmarks.studies.plan import QUICK, Role, Study
from dagveil.benchmarks.studies.store import Session
from dagveil.benchmarks.studies.summary import CONFIDENCE, Estimate, Spot

HEAD = (
    "data",
    "rows",
    "method",
    "calibration",
    "role",
    "epsilon",
    "metric",
    "runs",
    "failed",
    "mean",
    "deviation",
    "half_width",
    "published",
)
"""Columns of the CSV table."""

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
    """One table: what stands over it, its heads, and its rows."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def write_page(
    study: Study, spots: Sequence[Spot], sessions: Sequence[Session], form: Form, metrics: Sequence[Metric] = ()
) -> str:
    """Write the tables of a study.

    Parameters
    ----------
    study
        The plan.
    spots
        Its averages.
    sessions
        Calls of the runner.
    form
        Markdown, LaTeX or CSV.
    metrics
        In place of the study's; CSV has all of them unless some are chosen.
    """
    if form is Form.CSV:
        return write_csv(study, spots, metrics or tuple(Metric))
    sheets = [sheet for metric in metrics or study.metrics for sheet in list_sheets(study, spots, metric)]
    if form is Form.LATEX:
        return "\n\n".join(write_latex(sheet) for sheet in sheets)
    parts = [
        f"# {study.title}",
        *([study.reproduces] if study.reproduces else []),
        *_tell_study(study, spots, sessions),
    ]
    title = ""
    for sheet in sheets:
        metric, _, place = sheet.title.partition(": ")
        if metric != title:
            parts.append(f"## {metric}")
            title = metric
        parts += [*([f"### {place}"] if place else []), write_markdown(sheet)]
    return "\n\n".join(part for part in (*parts, *_tell_failures(spots)) if part)


def list_sheets(study: Study, spots: Sequence[Spot], metric: Metric) -> list[Sheet]:
    """Lay one metric out: methods over budgets for each data set, or over data sets if there is one budget."""
    budgets = sorted({spot.epsilon for spot in spots if spot.role is Role.CONTENDER})
    sheets = []
    if len(budgets) == 1:
        for n_rows in dict.fromkeys(spot.n_rows for spot in spots):
            labels = dict.fromkeys(spot.data for spot in spots if spot.n_rows == n_rows)
            columns = [(label, label, budgets[0]) for label in labels]
            place = f"ε = {budgets[0]:g}, {n_rows} rows"
            sheets.append(_lay_out(study, [s for s in spots if s.n_rows == n_rows], metric, columns, place))
    else:
        for data, n_rows in dict.fromkeys((spot.data, spot.n_rows) for spot in spots):
            columns = [(f"ε = {epsilon:g}", data, epsilon) for epsilon in budgets]
            chosen = [s for s in spots if (s.data, s.n_rows) == (data, n_rows)]
            sheets.append(_lay_out(study, chosen, metric, columns, f"{data}, {n_rows} rows"))
    return [sheet for sheet in sheets if sheet.rows]


def write_markdown(sheet: Sheet) -> str:
    """Write a table in Markdown.

    Examples
    --------
    >>> print(write_markdown(Sheet("F1: asia", ("method", "ε = 1"), (("measure", "0.9"),))))
    | method | ε = 1 |
    |---|---|
    | measure | 0.9 |
    """
    lines = [sheet.heads, *sheet.rows]
    text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([text[0], "|---" * len(sheet.heads) + "|", *text[1:]])


def write_latex(sheet: Sheet) -> str:
    r"""Write a table for LaTeX, without packages.

    Examples
    --------
    >>> print(write_latex(Sheet("F1: asia", ("method", "ε = 1"), (("a_b", "0.9 ± 0.1"),))))
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
            rf"\caption{{{_escape(sheet.title)}}}",
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
            printed = find_printed(study, spot.label, metric, spot.data, spot.epsilon)
            if estimate is None and printed is None:
                continue
            what = (spot.data, spot.n_rows, spot.label, spot.calibration, spot.role.value, spot.epsilon, metric.value)
            found = (0, "", "", "") if estimate is None else _write_numbers(estimate)
            writer.writerow((*what, found[0], len(spot.failures), *found[1:], "" if printed is None else printed))
    return text.getvalue().rstrip("\n")


def find_printed(study: Study, label: str, metric: Metric, data: str, epsilon: float) -> float | None:
    """Return the published figure beside a number of ours, if there is one."""
    figures = (p.at(data, epsilon) for p in study.published if p.method == label and p.metric is metric)
    return next((figure for figure in figures if figure is not None), None)


def is_shown(role: Role, metric: Metric) -> bool:
    """Tell whether a metric means something for a role: floors have no seconds, and budgets of ceilings no meaning."""
    return metric not in OF_BUDGETS if role is Role.CEILING else role is Role.CONTENDER or metric in OF_GRAPHS


def write_number(value: float, digits: int) -> str:
    """Write a number with so many digits after the point, and a very large one in short.

    Examples
    --------
    >>> write_number(0.125, 2), write_number(1.7e300, 2)
    ('0.12', '1.7e+300')
    """
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3g}"


def _lay_out(
    study: Study, spots: Sequence[Spot], metric: Metric, columns: Sequence[tuple[str, str, float]], place: str
) -> Sheet:
    """Set methods over columns of (head, data set, budget); a column with published figures has them beside it."""
    found = {(s.label, s.data, s.epsilon if s.role is Role.CONTENDER else math.inf): s for s in spots}
    roles = {s.label: s.role for s in spots}
    labels = [label for label, role in roles.items() if is_shown(role, metric)]
    heads = ["method"]
    cells: list[Callable[[str], str]] = []

    def ours(data: str, epsilon: float) -> Callable[[str], str]:
        def write(label: str) -> str:
            at = epsilon if roles[label] is Role.CONTENDER else math.inf
            return _write_spot(found.get((label, data, at)), metric)

        return write

    def theirs(data: str, epsilon: float) -> Callable[[str], str]:
        def write(label: str) -> str:
            figure = find_printed(study, label, metric, data, epsilon)
            return "" if figure is None else f"{figure:g}"

        return write

    for head, data, epsilon in columns:
        heads.append(head)
        cells.append(ours(data, epsilon))
        if any(find_printed(study, label, metric, data, epsilon) is not None for label in labels):
            heads.append("published")
            cells.append(theirs(data, epsilon))
    rows = [(label, *(write(label) for write in cells)) for label in labels]
    return Sheet(f"{metric.title}: {place}", tuple(heads), tuple(row for row in rows if any(row[1:])))


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


def _tell_study(study: Study, spots: Sequence[Spot], sessions: Sequence[Session]) -> list[str]:
    planned, stored = sum(s.planned for s in spots), sum(s.stored for s in spots)
    samples = "each on a sample of its own" if not study.samples else f"on {study.samples} samples"
    name = study.name.removesuffix(QUICK)
    command = name if name == study.name else f"{name} --quick"
    lines = [
        f"{stored} of {planned} runs are stored. Repetitions: {study.repetitions}, {samples}; samples are the same for "
        f"every method and budget. Seed {study.seed}, δ = {study.delta:g}. ± is the half-width of Student's "
        f"{CONFIDENCE:.0%} interval for the mean. Noise is seeded, so that runs can be repeated. Columns called "
        "published hold figures of others. Written by",
        f"    dagveil bench run {command}\n    dagveil bench table {study.name}.sqlite",
    ]
    for session in {str((s.software, s.hardware)): s for s in sessions}.values():
        software = ", ".join(f"{name} {version}" for name, version in session.software.items())
        hardware = ", ".join(f"{name}: {what}" for name, what in session.hardware.items())
        lines.append(f"Run with {software}; {hardware}; {session.workers} processes.")
    notes = list(study.notes)
    notes += [
        f"{entry.title}: the budget is given to it as `{entry.budget_setting}`; its total is what it reports."
        for entry in study.methods
        if entry.budget_setting is not None and entry.role is Role.CONTENDER
    ]
    notes += dict.fromkeys(f"Published under {p.metric.title!r}: {p.source}." for p in study.published)
    return [*lines, *(["\n".join(f"- {note}" for note in notes)] if notes else [])]


def _tell_failures(spots: Sequence[Spot]) -> list[str]:
    counted = Counter((spot.label, error) for spot in spots for error in spot.failures)
    if not counted:
        return []
    lines = [f"- {label}, {count} runs: {error}" for (label, error), count in counted.most_common()]
    return ["## Failed runs", "\n".join(lines)]


def _escape(text: str) -> str:
    plain = re.sub(r"`", "", text)
    return "".join(_TEX.get(mark, mark) for mark in plain)

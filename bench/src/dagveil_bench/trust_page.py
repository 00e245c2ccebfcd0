"""The page of `dagveil bench trust`: a table for each question, with its target."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from dagveil_bench.tables import write_table
from dagveil_bench.trust import DELTA, LIKELY, SHARES, Cell, Study, compare_confidence, rate_pairs
from dagveil_bench.trust_tables import LOOSE, SMALL, STRICT, Pair, TrustTable, strongest

STRONGEST: Final = 10  # edges whose stability is told
MOST_SHUFFLED: Final = 0.5
LEAST_PRECISION: Final = 0.85
LEAST_KEPT: Final = 0.95
LEAST_RANK: Final = 0.9
MOST_ERROR: Final = 0.1

KEPT_EPSILON: Final = 1.0  # budget from which on the strongest edges must be kept,
KEPT_ROWS: Final = 5000  # on tables of at least so many rows
_SMALL: Final = 1e-9


@dataclass(slots=True)
class Target:
    """A target of the page, and how many cells meet it; the others are printed in bold."""

    question: str
    words: str
    met: int = 0
    cells: int = 0

    def judge(self, text: str, *, met: bool) -> str:
        """Count a cell and return its text."""
        self.met += met
        self.cells += 1
        return text if met else f"**{text}**"


def trust_page(study: Study, command: str) -> str:
    """Write the page of the study."""
    shuffled = Target("edges when every column is shuffled, mean", f"≤ {MOST_SHUFFLED:g}")
    precision = Target("precision against strict PC, mean", f"≥ {LEAST_PRECISION:g}")
    kept = Target(
        f"runs that keep each of the {STRONGEST} strongest edges, where ε ≥ {KEPT_EPSILON:g} and rows ≥ {KEPT_ROWS}",
        f"≥ {LEAST_KEPT:.0%}",
    )
    rank = Target("rank correlation of stated confidence with fresh runs", f"≥ {LEAST_RANK:g}")
    error = Target("mean absolute error of stated confidence", f"≤ {MOST_ERROR:g}")
    questions = [
        *_describe_shuffled(study, shuffled),
        *_describe_precision(study, precision),
        *_describe_strongest(study, kept),
        *_describe_confidence(study, rank, error),
    ]
    targets = [(t.question, t.words, f"{t.met} of {t.cells}") for t in (shuffled, precision, kept, rank, error)]
    return "\n\n".join(
        [
            "# How far graphs of real tables may be believed",
            f"{study.runs} runs per cell, δ = {DELTA}, exact discrete noise (seeded, for repeatability), default "
            "settings. What misses its target is in bold. Nobody knows the true graphs: PC of causal-learn on the same "
            "rows, without privacy, stands in. **This page is not private**: it tells of exact rows. Written by",
            f"    {command}",
            write_table(("question", "target", "cells that meet it"), targets),
            _describe_tables(study),
            *questions,
        ]
    )


def _describe_tables(study: Study) -> str:
    lines = []
    for table in study.tables:
        reference = study.references[table.name]
        test = "Fisher's z" if table.test == "fisherz" else "χ²"
        edges = (len(reference.strict), len(reference.loose), len(reference.small))
        lines.append((table.name, *map(str, (table.rows.n_rows, len(table.schema.columns), test, *edges))))
    head = ("table", "rows", "columns", "reference", f"its edges at {STRICT:g}", f"at {LOOSE:g}", "with small sets")
    return write_table(head, lines)


def _describe_shuffled(study: Study, target: Target) -> list[str]:
    def tell(cell: Cell) -> str:
        mean = float(np.mean(cell.shuffled))
        text = f"{mean:.2f}{_deviation(cell.shuffled)}, {max(cell.shuffled)}"
        return target.judge(text, met=mean <= MOST_SHUFFLED + _SMALL)

    return [
        "## Does an empty truth give an empty graph?",
        f"Edges found when every column is shuffled by itself: mean ± standard error, largest. Target {target.words}.",
        _by_epsilon(study, tell),
    ]


def _describe_precision(study: Study, target: Target) -> list[str]:
    columns = {table.name: len(table.schema.columns) for table in study.tables}

    def tell(cell: Cell) -> str:
        truth = study.references[cell.table].strict
        rates = [rate_pairs(run.drawn, truth, columns[cell.table]) for run in cell.runs]
        precisions = [rate.precision for rate in rates]
        mean, recall = float(np.mean(precisions)), float(np.mean([rate.recall for rate in rates]))
        edges = np.mean([len(run.drawn) for run in cell.runs])
        text = f"{mean:.2f}{_deviation(precisions)} / {recall:.2f}, {edges:.1f}"
        return target.judge(text, met=mean >= LEAST_PRECISION - _SMALL)

    def tell_other(name: str, cell: Cell) -> str:
        truth = getattr(study.references[cell.table], name)
        rates = [rate_pairs(run.drawn, truth, columns[cell.table]) for run in cell.runs]
        means = (np.mean([getattr(rate, name) for rate in rates]) for name in ("precision", "recall", "f1"))
        return " / ".join(f"{mean:.2f}" for mean in means)

    return [
        "## Are its edges those of strict PC?",
        f"Precision ± standard error / recall of the skeleton against PC at {STRICT:g}, and the mean number of edges. "
        f"A graph without edges has precision 1. Target: precision {target.words}.",
        _by_epsilon(study, tell),
        f"Against PC at {LOOSE:g}, for information: precision / recall / F1.",
        _by_epsilon(study, partial(tell_other, "loose")),
        f"Against PC at {STRICT:g} with sets of at most {SMALL} columns, as `measure` has them, for information.",
        _by_epsilon(study, partial(tell_other, "small")),
    ]


def _describe_strongest(study: Study, target: Target) -> list[str]:
    edges = {t.name: strongest(t, study.references[t.name].strict, STRONGEST) for t in study.tables}
    rows = {table.name: table.rows.n_rows for table in study.tables}

    def tell(cell: Cell) -> str:
        shares = [cell.share_drawn(edge) for edge in edges[cell.table]]
        if not shares:
            return ""
        text = f"{np.mean(shares):.0%}, {min(shares):.0%}"
        if cell.epsilon < KEPT_EPSILON or rows[cell.table] < KEPT_ROWS:
            return text
        return target.judge(text, met=min(shares) >= LEAST_KEPT - _SMALL)

    parts = [
        "## Are the strongest edges kept?",
        f"The {STRONGEST} edges of strict PC with the largest marginal χ² (correlation, for numbers): share of runs "
        f"that have them, mean and least. Target: every edge in {target.words} of runs at ε ≥ {KEPT_EPSILON:g} where "
        f"there are {KEPT_ROWS} rows or more.",
        _by_epsilon(study, tell),
        "Edge by edge, strongest first: share of runs, in per cent, for "
        f"ε = {', '.join(f'{epsilon:g}' for epsilon in dict.fromkeys(cell.epsilon for cell in study.cells))}.",
    ]
    return parts + [_describe_edges(study, table, edges[table.name]) for table in study.tables if edges[table.name]]


def _describe_edges(study: Study, table: TrustTable, edges: Sequence[Pair]) -> str:
    own = [cell for cell in study.cells if cell.table == table.name]
    contenders = list(dict.fromkeys(cell.contender for cell in own))
    lines = []
    for edge in edges:
        shares = {
            name: ", ".join(f"{100 * cell.share_drawn(edge):.0f}" for cell in own if cell.contender == name)
            for name in contenders
        }
        lines.append((" – ".join(sorted(edge)), *shares.values()))
    return write_table((table.name, *contenders), lines)


def _describe_confidence(study: Study, rank: Target, error: Target) -> list[str]:
    columns = {table.name: tuple(table.schema.columns) for table in study.tables}
    lines = []
    for cell in study.cells:
        found = compare_confidence(cell, columns[cell.table])
        ranked = rank.judge(_number(found.rank), met=found.pairs == 0 or found.rank >= LEAST_RANK - _SMALL)
        ranked += f" ({_number(found.best_rank)})"
        wrong = error.judge(_number(found.error), met=found.error <= MOST_ERROR + _SMALL)
        wrong += f" ({_number(found.best_error)})"
        groups = [f"{_number(mean)} ({count})" for count, mean in found.groups]
        lines.append(
            (
                cell.table,
                cell.contender,
                f"{cell.epsilon:g}",
                str(found.pairs),
                ranked,
                wrong,
                _number(found.single_error),
                _number(found.likely_error),
                *groups,
            )
        )
    heads = [
        "0" if upper == 0.0 else f"{lower:g} to {upper:g}" for lower, upper in zip((0.0, *SHARES), SHARES, strict=False)
    ]
    return [
        "## Does stated confidence agree with fresh runs?",
        f"The confidence of every pair beside the share of all {study.runs} searches that find it, with fresh noise on "
        "the same rows. "
        f"Over pairs with either above 0: Spearman's correlation (target {rank.words}) and the mean absolute error "
        f"(target {error.words}) of the mean stated confidence, in brackets what {study.runs} runs would show on "
        "average if it were exactly right. For information: the error of what a single run states, the error of pairs "
        f"with either at {LIKELY:g} or above, and the mean stated confidence of all pairs by their share of fresh runs "
        "(how many pairs).",
        write_table(("table", "method", "ε", "pairs", "rank", "error", "single run", "likely pairs", *heads), lines),
    ]


def _by_epsilon(study: Study, tell: Callable[[Cell], str]) -> str:
    epsilons = list(dict.fromkeys(cell.epsilon for cell in study.cells))
    lines: dict[tuple[str, str], list[str]] = {}
    for cell in study.cells:
        lines.setdefault((cell.table, cell.contender), []).append(tell(cell))
    heads = ("table", "method", *(f"ε = {epsilon:g}" for epsilon in epsilons))
    return write_table(heads, [(*key, *texts) for key, texts in lines.items()])


def _deviation(values: Sequence[float]) -> str:
    return f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.2f}" if len(values) > 1 else ""


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"

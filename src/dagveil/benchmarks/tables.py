"""Results of studies as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dagveil.benchmarks.speed import Timing
from dagveil.benchmarks.utility import Summary


def pivot(
    summaries: Sequence[Summary],
    row: Callable[[Summary], str],
    column: Callable[[Summary], str],
    value: Callable[[Summary], str],
    corner: str,
) -> str:
    """Lay summaries out with one row and one column per key, in order of appearance."""
    rows = list(dict.fromkeys(row(s) for s in summaries))
    columns = list(dict.fromkeys(column(s) for s in summaries))
    cells = {(row(s), column(s)): value(s) for s in summaries}
    lines = [f"| {corner} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {r} | " + " | ".join(cells.get((r, c), "") for c in columns) + " |" for r in rows]
    return "\n".join(lines)


def utility_page(summaries: Sequence[Summary], command: str, title: str) -> str:
    """Write the page of a utility study on networks."""

    def by_network(value: Callable[[Summary], str]) -> str:
        return pivot(summaries, lambda s: f"{s.cell.epsilon:g}", lambda s: s.cell.source, value, "ε")

    first = summaries[0]
    return "\n\n".join(
        [
            f"# {title}",
            f"n = {first.cell.n_rows}, add/remove, δ = {first.cell.delta:g}, {first.runs} runs per cell, `measure` "
            "with its default settings, exact discrete noise (seeded, for repeatability). Written by",
            f"    {command}",
            "## Skeleton F1 against the true network (± standard error)",
            by_network(lambda s: f"{s.mean.f1:.3f} ± {s.f1_error:.3f}"),
            "## Marked-edge F1 of the CPDAG",
            by_network(lambda s: f"{s.mean.marked_f1:.2f}"),
            "## Structural Hamming distance of the CPDAG",
            by_network(lambda s: f"{s.mean.shd:.1f}"),
            "## Arrow precision (arrows found that are compelled in the truth)",
            by_network(lambda s: f"{s.arrow_precision:.2f}" if s.mean.arrows else "none found"),
        ]
    )


def numeric_page(summaries: Sequence[Summary], command: str, title: str) -> str:
    """Write the page of a study on linear Gaussian networks."""

    def table(value: Callable[[Summary], str]) -> str:
        return pivot(
            summaries,
            lambda s: f"{s.cell.source}, n = {s.cell.n_rows}",
            lambda s: f"ε = {s.cell.epsilon:g}",
            value,
            "model, nodes, sparseness",
        )

    return "\n\n".join(
        [
            f"# {title}",
            f"Add/remove, δ = {summaries[0].cell.delta:g}, {summaries[0].runs} runs per cell. Written by",
            f"    {command}",
            "## Skeleton F1 (± standard error)",
            table(lambda s: f"{s.mean.f1:.2f} ± {s.f1_error:.2f}"),
            "## True positive rate / false positive rate / true discovery rate of the skeleton",
            table(lambda s: f"{s.mean.tpr:.2f} / {s.mean.fpr:.3f} / {s.mean.tdr:.2f}"),
        ]
    )


def speed_page(runs: Sequence[Timing], loading: Sequence[Timing], command: str) -> str:
    """Write the page of a speed comparison: seconds, and how many times slower each peer is."""
    ours = [timing for timing in runs if timing.program.startswith("dagveil")]
    peers = [timing for timing in runs if not timing.program.startswith("dagveil")]
    cases = list(dict.fromkeys(timing.case for timing in runs))
    seconds = {(timing.case, timing.program): timing.seconds for timing in (*runs, *loading)}
    programs = list(dict.fromkeys(timing.program for timing in runs))
    lines = ["| program | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    lines += [f"| {p} | " + " | ".join(f"{seconds[c, p]:.3f} s" for c in cases) + " |" for p in programs]
    ratios = ["| ratio | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for mine in dict.fromkeys(timing.program for timing in ours):
        for peer in dict.fromkeys(timing.program for timing in peers):
            cells = [f"{seconds[c, peer] / seconds[c, mine]:.0f} ×" for c in cases]
            ratios.append(f"| {peer} / {mine} | " + " | ".join(cells) + " |")
    plain, counted = loading
    loads = [
        f"| {plain.case} | seconds | ratio |",
        "|---|---|---|",
        f"| {plain.program} | {plain.seconds:.2f} | 1 |",
        f"| {counted.program} | {counted.seconds:.2f} | {counted.seconds / plain.seconds:.2f} |",
    ]
    return "\n\n".join(
        [
            "# Speed",
            "Whole runs on the same rows in one process, best of several tries: ours counts, draws noise, searches "
            "and orients under differential privacy; the peers run their non-private PC with the χ² test. Seconds "
            "depend on the machine, ratios hardly do. Written by",
            f"    {command}",
            "\n".join(lines),
            "\n".join(ratios),
            "## Loading",
            "Dictionary-encoded Parquet, as `pyarrow.parquet.read_table` reads it, against reading it and counting "
            "every pair of columns.",
            "\n".join(loads),
        ]
    )

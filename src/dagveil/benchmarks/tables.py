"""Results of studies as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

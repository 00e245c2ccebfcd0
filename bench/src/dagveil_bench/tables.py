"""Results of studies as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dagveil.examples.networks import NETWORK_NAMES, load_network
from dagveil.privacy.receipt import Calibration
from dagveil_bench.faithful import AUTHORS_SECONDS, EXACT_F1, EXACT_QUESTIONS, FIGURES, TOTALS, Comparison
from dagveil_bench.speed import Timing
from dagveil_bench.utility import Cell, Summary


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


def methods_page(summaries: Sequence[Summary], command: str) -> str:
    """Write the page that sets the sound methods beside each other, and beside what was published."""
    first = summaries[0]
    parts = [
        "# Methods side by side",
        f"n = {first.cell.n_rows}, add/remove, δ = {first.cell.delta:g}, {first.runs} runs per cell on the same "
        "samples for every method, sound and with its default settings where nothing else is said. Every total was "
        "fixed before the run. Written by",
        f"    {command}",
    ]
    for epsilon in dict.fromkeys(s.cell.epsilon for s in summaries):
        chosen = [s for s in summaries if s.cell.epsilon == epsilon]
        parts.append(f"## Skeleton F1 at ε = {epsilon:g} (± standard error)")
        table = pivot(
            chosen,
            lambda s: _name_method(s.cell),
            lambda s: s.cell.source,
            lambda s: f"{s.mean.f1:.2f} ± {s.f1_error:.2f}",
            "method",
        )
        if any(s.cell.source in NETWORK_NAMES for s in chosen):
            table += "\n" + _floor([s.cell.source for s in chosen])
        if epsilon in TOTALS:
            networks = list(dict.fromkeys(s.cell.source for s in chosen))
            place = TOTALS.index(epsilon)
            for method, figures in FIGURES.items():
                if method not in {s.cell.method for s in chosen}:
                    continue
                cells = [figures.get(network, (None,) * 3)[place] for network in networks]
                shown = " | ".join("" if figure is None else f"{figure:.2f}" for figure in cells)
                table += f"\n| {method} as published, claimed | {shown} |"
        parts.append(table)
    parts.append("## Questions put to the rows")
    parts.append(
        pivot(
            [s for s in summaries if s.mean.questions],
            lambda s: f"{_name_method(s.cell)}, ε = {s.cell.epsilon:g}",
            lambda s: s.cell.source,
            lambda s: f"{s.mean.questions:.0f}",
            "method",
        )
    )
    parts.append(
        "The figures as published come from the authors' programs at a *reported* ε of about this size, which those "
        "programs do not support; `dagveil bench faithful` sets ours beside them."
    )
    return "\n\n".join(parts)


def _name_method(cell: Cell) -> str:
    """Name a method with what was chosen for it."""
    parts = [f"{name}={value}" for name, value in cell.options]
    if cell.calibration is Calibration.PAPER:
        parts.append("as published")
    return f"`{cell.method}`" + (f" ({', '.join(parts)})" if parts else "")


def _floor(sources: Sequence[str]) -> str:
    """Write the row of the complete graph, which needs no data; the empty graph scores 0."""
    cells = []
    for source in dict.fromkeys(sources):
        if source not in NETWORK_NAMES:
            cells.append("")
            continue
        dag = load_network(source).dag()
        pairs = len(dag.nodes) * (len(dag.nodes) - 1) // 2
        cells.append(f"{2 * len(dag.edges) / (len(dag.edges) + pairs):.2f}")
    return "| the complete graph | " + " | ".join(cells) + " |"


def faithful_page(comparisons: Sequence[Comparison], quiet: Sequence[Summary], command: str) -> str:
    """Write the page that compares the `paper` calibrations with figures of the authors' programs."""
    rows = [
        "| method | network | reported ε wanted | ours reports | ours, F1 | over samples | authors' program | gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in comparisons:
        rows.append(
            f"| `{c.cell.method}` | {c.cell.source} | {c.wanted:g} | {c.reported:.3g} | "
            f"{c.mean:.2f} ± {c.deviation:.2f} | {min(c.means):.2f} to {max(c.means):.2f} | "
            f"{c.theirs:.2f} | {c.gap:+.1f} |"
        )
    near = sum(abs(c.gap) <= 2.0 for c in comparisons)
    first = comparisons[0]
    exact = [
        "| method | network | F1 | PC of the authors | questions | PC of the authors, one sample |",
        "|---|---|---|---|---|---|",
    ]
    for s in quiet:
        kendall = s.cell.method != "em-pc" and s.cell.method != "curate"
        f1 = f"{EXACT_F1[s.cell.source]:.2f}" if kendall and s.cell.source in EXACT_F1 else ""
        questions = EXACT_QUESTIONS.get(s.cell.source, "") if kendall else ""
        exact.append(
            f"| `{s.cell.method}` | {s.cell.source} | {s.mean.f1:.2f} ± {s.f1_error:.2f} | {f1} | "
            f"{s.mean.questions:.0f} ({s.fewest:.0f} to {s.most:.0f}) | {questions} |"
        )
    return "\n\n".join(
        [
            "# Faithful to the papers",
            "`--calibration paper` with the constants of the published programs, n = 100000, "
            f"{len(first.means)} samples, {first.runs} runs on each. The authors' programs were measured on one sample "
            "per network with 10 to 20 runs (Sachs 4 to 24), so their figure should look like the mean of one of our "
            "samples. ± is the deviation of such means, and the gap counts our mean's distance from their figure in "
            "standard errors of that difference: "
            f"{near} of {len(comparisons)} lie within two. Written by",
            f"    {command}",
            "## At the reported ε of the published figures",
            "\n".join(rows),
            "## At a very large ε",
            "Here noise no longer matters: `svt-pc` and `priv-pc` are the authors' PC with Kendall's p-value at 0.10, "
            "question for question; `curate` the same at 0.05 with its margin; `em-pc` uses the G test. The number of "
            "questions of one sample depends on which chance dependences it has, so the range over our samples stands "
            "beside the mean. `priv-pc` asks what passes the sieve twice.",
            "\n".join(exact),
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


def methods_speed_page(timings: Sequence[Timing], command: str) -> str:
    """Write the page that times every method beside a non-private peer and the authors' programs."""
    cases = list(dict.fromkeys(timing.case for timing in timings))
    seconds = {(timing.case, timing.program): timing.seconds for timing in timings}
    peer = timings[0].program
    heads = [f"{case}, {what}" for case in cases for what in ("seconds", f"{peer} / ours")]
    lines = ["| program | " + " | ".join(heads) + " | authors' program on Asia |", "|---" * (len(heads) + 2) + "|"]
    for program in dict.fromkeys(timing.program for timing in timings):
        cells = []
        for case in cases:
            spent = seconds[case, program]
            cells += [f"{spent:.3f}", f"{seconds[case, peer] / spent:.1f} ×"]
        method = program.removeprefix("dagveil ").partition(",")[0]
        theirs = AUTHORS_SECONDS.get(method, {}).get("asia")
        lines.append(f"| {program} | " + " | ".join(cells) + f" | {'' if theirs is None else f'{theirs:g} s'} |")
    return "\n\n".join(
        [
            "# Speed of every method",
            "Whole runs on the same rows in one process, the best of several tries, OpenDP's noise: counting, asking, "
            "noise, search and arrows, beside causal-learn's non-private PC with the χ² test. Seconds depend on the "
            "machine and its other work, ratios much less. The last column has CPU seconds of the authors' programs "
            "for one run at a very large ε, on another machine. Written by",
            f"    {command}",
            "\n".join(lines),
        ]
    )


def tell_ratio(ratio: float) -> str:
    """Write how many times longer something takes.

    Examples
    --------
    >>> tell_ratio(34.7), tell_ratio(0.678)
    ('35 ×', '0.68 ×')
    """
    return f"{ratio:.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"


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
            cells = [tell_ratio(seconds[c, peer] / seconds[c, mine]) for c in cases]
            ratios.append(f"| {peer} / {mine} | " + " | ".join(cells) + " |")
    plain, *others = loading
    loads = [
        f"| {plain.case} | seconds | ratio |",
        "|---|---|---|",
        f"| {plain.program} | {plain.seconds:.2f} | 1 |",
        *(f"| {other.program} | {other.seconds:.2f} | {other.seconds / plain.seconds:.2f} |" for other in others),
    ]
    return "\n\n".join(
        [
            "# Speed",
            "Whole runs on the same rows in one process, best of several tries: ours counts, draws noise, searches "
            "and orients under differential privacy; the peers run their non-private PC with the χ² test, and so does "
            "dagveil's own exact PC, one question at a time and without arrows. Seconds are processor seconds. They "
            "depend on the machine, ratios less, if nothing else runs on it. Written by",
            f"    {command}",
            "\n".join(lines),
            "\n".join(ratios),
            "## Loading",
            "Dictionary-encoded Parquet, as `pyarrow.parquet.read_table` reads it, against reading it and counting "
            "every pair of columns, and against a whole private run with the memory engine. Seconds by the clock.",
            "\n".join(loads),
        ]
    )

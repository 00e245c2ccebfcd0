"""The study of local privacy as a page and as a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from dagveil.evaluation.weighted_accuracy import WeightedAccuracy, weigh_decisions
from dagveil_bench.local_data import load_study_data
from dagveil_bench.local_pairs import PAIR_SETS
from dagveil_bench.local_study import NOISY, PUBLISHED, Mechanism, Outcome, Setting

_GEOMETRIC: Final = "Geometric above k-RR at equal p_max"
_COLUMNS: Final = "Component-wise above combined at equal p_max"

COMPARED: Final = (
    (_GEOMETRIC, "geometric − k-RR, component-wise", Mechanism.GEOMETRIC_COLUMNS, Mechanism.RESPONSE_COLUMNS),
    (_GEOMETRIC, "geometric − k-RR, combined", Mechanism.GEOMETRIC_COMBINED, Mechanism.RESPONSE_COMBINED),
    (_COLUMNS, "component-wise − combined, k-RR", Mechanism.RESPONSE_COLUMNS, Mechanism.RESPONSE_COMBINED),
    (_COLUMNS, "component-wise − combined, geometric", Mechanism.GEOMETRIC_COLUMNS, Mechanism.GEOMETRIC_COMBINED),
    (
        "Geometric above k-RR at equal ε",
        "geometric − k-RR, component-wise, equal ε",
        Mechanism.GEOMETRIC_MATCHED,
        Mechanism.RESPONSE_COLUMNS,
    ),
)
"""The publication's two findings, each in two forms; the last row holds ε equal in place of p_max."""

CHOICES: Final = """\
- Bins are uniform in a range that is taken for public: whole numbers around the logarithms of Sachs's cells, round
  inches for heights, three deviations each way for simulated columns, least and greatest value for pairs.
- Sachs's cells are the second of nine conditions, the one with 902 cells. One edge of the shipped graph, PIP2 → PIP3,
  closes a cycle and is turned.
- A column of a pair with u distinct values has u/10 bins, at least 2. Pairs with more rows are cut down to a random
  part.
- Columns share ε of randomised response by their numbers of levels, and geometric noise gives each column the same
  probability of the truth. Distances of combined geometric noise are Euclidean.
- PC and FCI have Fisher's z or, for PC, χ² with sets of at most 2 columns. GES has BIC with a factor on its penalty.
  Chains over orders have 600 steps, start from the skeleton of GES and are repeated at most 3 times.
- SHD counts missing, redundant and reversed edges. An edge without direction is not reversed.
- "Geo C-wise at the ε of k-RR C-wise" is not in the publication."""

HEAD: Final = ("data", "algorithm", "mechanism", "p_max", "epsilon", "run", "seed", "shd", "f1", "accuracy", "weight")


def family_of(algorithm: str) -> str:
    """Return an algorithm's name without its constant.

    Examples
    --------
    >>> family_of("pc-fisher-0.05"), family_of("order-mcmc-bge"), family_of("reci")
    ('pc-fisher', 'order-mcmc-bge', 'reci')
    """
    name, _, last = algorithm.rpartition("-")
    return name if last.replace(".", "").isdigit() else algorithm


def choose_constants(outcomes: Sequence[Outcome]) -> list[str]:
    """Return for each family the algorithm that did best without noise, as the publication chooses."""
    quiet = [o for o in outcomes if o.setting.mechanism is Mechanism.NONE]
    best: dict[str, Outcome] = {}
    for outcome in quiet:
        rival = best.setdefault(family_of(outcome.algorithm), outcome)
        if (outcome.shd, -outcome.f1) < (rival.shd, -rival.f1):
            best[family_of(outcome.algorithm)] = outcome
    return [outcome.algorithm for outcome in best.values()]


def local_csv(outcomes: Sequence[Outcome]) -> str:
    """Write one line for each run of each algorithm; pairs are joined, with the median ε and no seed of one pair."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    joined: dict[tuple[Setting, str, int], list[Outcome]] = {}
    for o in outcomes:
        joined.setdefault((o.setting, o.algorithm, o.run), []).append(o)
    for (setting, algorithm, run), mine in joined.items():
        epsilon = float(np.median([o.epsilon for o in mine]))
        start = [setting.data, algorithm, setting.mechanism.value, f"{setting.truth:g}", f"{epsilon:.4f}", run]
        if setting.data in PAIR_SETS:
            writer.writerow([*start, "", "", "", f"{_accuracy(mine):.4f}", f"{sum(o.weight for o in mine):.4f}"])
        else:
            writer.writerow([*start, mine[0].seed, f"{mine[0].shd:g}", f"{mine[0].f1:.4f}", "", ""])
    return text.getvalue()


def local_page(outcomes: Sequence[Outcome], command: str, figures: Mapping[str, str], file: str | None) -> str:
    """Write the page.

    Parameters
    ----------
    outcomes
        Of the study.
    command
        That wrote it.
    figures
        File of each data set's figure.
    file
        Name of the CSV file; None if none is written.
    """
    data = list(dict.fromkeys(o.setting.data for o in outcomes))
    by_data = {name: [o for o in outcomes if o.setting.data == name] for name in data}
    runs = max(o.run for o in outcomes) + 1
    pairs = [name for name in data if name in PAIR_SETS]
    intro = (
        f"Records are cut into public uniform bins and randomised, {runs} times; known algorithms then run on the "
        "reports as if they were records. p_max is the probability that the true *record* is reported, so all "
        "mechanisms are equally safe from an attacker who takes every record for equally likely. They are far from "
        "equal in ε, which is below."
    )
    parts = ["# Nine algorithms under local privacy", intro + " Written by", f"    {command}"]
    parts += ["## Data", _data_table(by_data)]
    parts += ["## Choices", CHOICES]
    parts += ["## Exact ε of local privacy, per record", _epsilon_table(by_data)]
    parts += ["## The two findings of the publication", _findings(by_data)]
    for name in data:
        parts.append(f"## {name}")
        if name in figures:
            parts.append(f"![{name}: results by mechanism and p_max]({figures[name]})")
        parts += [_pair_tables(by_data[name]) if name in pairs else _graph_tables(by_data[name])]
    if file:
        parts.append(f"Every run, with its seed, is in [{file}]({file}).")
    return "\n\n".join(parts)


def _data_table(by_data: Mapping[str, Sequence[Outcome]]) -> str:
    lines = ["| data | columns | rows | bins | edges | records |", "|---|---|---|---|---|---|"]
    for name, mine in by_data.items():
        if name in PAIR_SETS:
            setting, count = mine[0].setting, len({o.item for o in mine})
            weight = sum({o.item: o.weight for o in mine}.values())
            kind = "cause-effect pairs of Tübingen, from cdt" if name == "pairs" else "simulated pairs"
            lines.append(
                f"| {name} | 2 | at most {setting.most_rows} | 2 to {setting.most_bins} | 1 | "
                f"{count} {kind}; weights add up to {weight:.1f} |"
            )
        else:
            study = load_study_data(name)
            rows, columns = study.codes.shape
            lines.append(
                f"| {name} | {columns} | {rows} | {study.levels[0]} | {len(study.truth.edges)} | {study.origin} |"
            )
    return "\n".join(lines)


def _epsilon_table(by_data: Mapping[str, Sequence[Outcome]]) -> str:
    truths = _truths([o for mine in by_data.values() for o in mine])
    lines = ["| mechanism | p_max | " + " | ".join(by_data) + " |", "|---" * (len(by_data) + 2) + "|"]
    for mechanism in NOISY:
        for truth in truths:
            cells = []
            for mine in by_data.values():
                found = [o.epsilon for o in mine if o.setting.mechanism is mechanism and o.setting.truth == truth]
                cells.append(f"{float(np.median(found)):.1f}" if found else "")
            lines.append(f"| {mechanism.value} | {truth:g} | " + " | ".join(cells) + " |")
    note = "" if not set(by_data) & set(PAIR_SETS) else "\n\nFor pairs, the median over pairs."
    return "\n".join(lines) + note


def _findings(by_data: Mapping[str, Sequence[Outcome]]) -> str:
    lines = ["| difference | " + " | ".join(by_data) + " |", "|---" * (len(by_data) + 1) + "|"]
    details = []
    counted: dict[str, list[int]] = {}
    for finding, label, one, other in COMPARED:
        cells, signs = [], []
        for name, mine in by_data.items():
            if name in PAIR_SETS:
                gap = _difference(mine, one, other, _accuracy)
                cells.append("" if gap is None else f"accuracy {_signed(gap, 3)}")
                signs += [] if gap is None else [_sign(gap)]
            else:
                chosen = set(choose_constants(mine))
                mine = [o for o in mine if o.algorithm in chosen]
                shd = _difference(mine, one, other, lambda found: float(np.mean([o.shd for o in found])))
                f1 = _difference(mine, one, other, lambda found: float(np.mean([o.f1 for o in found])))
                cells.append("" if shd is None or f1 is None else f"SHD {_signed(shd, 2)}; F1 {_signed(f1, 3)}")
                signs += [] if shd is None else [-_sign(shd)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
        counted.setdefault(finding, []).extend(signs)
        ratios = _epsilon_ratios([o for mine in by_data.values() for o in mine], one, other)
        if ratios:
            details.append(f"{label}: {min(ratios):.1f} to {max(ratios):.1f}")
    text = (
        "Differences of means over all values of p_max and the algorithms of the tables below, ± the standard error "
        "over runs. A lower SHD is better, a higher F1 or accuracy is better."
    )
    verdicts = [
        f"- **{finding}**: confirmed in {signs.count(1)} of {len(signs)} comparisons, contradicted in "
        f"{signs.count(-1)}, undecided in {signs.count(0)}."
        for finding, signs in counted.items()
        if signs
    ]
    rule = "A comparison is decided by SHD or accuracy, if the difference exceeds two standard errors:"
    ratios_text = "How many times as large the first one's ε is as the second one's: " + "; ".join(details) + "."
    return "\n\n".join([text, "\n".join(lines), rule, "\n".join(verdicts), ratios_text])


def _epsilon_ratios(outcomes: Sequence[Outcome], one: Mechanism, other: Mechanism) -> list[float]:
    """Return the ratio of ε of two mechanisms for every data set and p_max; for pairs, of their medians."""
    found: dict[tuple[str, float, Mechanism], list[float]] = {}
    for o in outcomes:
        found.setdefault((o.setting.data, o.setting.truth, o.setting.mechanism), []).append(o.epsilon)
    return [
        float(np.median(values) / np.median(found[data, truth, other]))
        for (data, truth, mechanism), values in found.items()
        if mechanism is one and (data, truth, other) in found
    ]


def _graph_tables(mine: Sequence[Outcome]) -> str:
    truths = _truths(mine)
    chosen = choose_constants(mine)
    edges = len(load_study_data(mine[0].setting.data).truth.edges)
    shown = ", ".join(f"{truth:g}" for truth in truths)
    parts = [
        f"Means for p_max = {shown}, one after another. Each family has the constant that did best without noise. The "
        f"empty graph has SHD {edges} and F1 0."
    ]
    present = [m for m in NOISY if any(o.setting.mechanism is m for o in mine)]
    for title, digits in (("SHD", 1), ("Skeleton F1", 2)):
        lines = [
            f"| {title} | no noise | " + " | ".join(m.value for m in present) + " |",
            "|---" * (len(present) + 2) + "|",
        ]
        for algorithm in chosen:
            found = [o for o in mine if o.algorithm == algorithm]
            cells = []
            for mechanism, levels in [(Mechanism.NONE, [1.0]), *((m, truths) for m in present)]:
                means = []
                for truth in levels:
                    cell = [o for o in found if (o.setting.mechanism, o.setting.truth) == (mechanism, truth)]
                    values = [o.shd if title == "SHD" else o.f1 for o in cell]
                    means.append(f"{np.mean(values):.{digits}f}" if values else "")
                cells.append(" / ".join(means))
            lines.append(f"| {algorithm} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _pair_tables(mine: Sequence[Outcome]) -> str:
    truths = _truths(mine)
    algorithms = list(dict.fromkeys(o.algorithm for o in mine))
    lines = ["| weighted accuracy | p_max | " + " | ".join(algorithms) + " |", "|---" * (len(algorithms) + 2) + "|"]
    for mechanism, levels in [(Mechanism.NONE, [1.0]), *((m, truths) for m in PUBLISHED)]:
        for truth in levels:
            cells = []
            for algorithm in algorithms:
                accuracy = pair_accuracy(mine, algorithm, mechanism, truth)
                cells.append(f"{accuracy.share:.2f} ({accuracy.low:.2f} to {accuracy.high:.2f})")
            lines.append(f"| {mechanism.value} | {truth:g} | " + " | ".join(cells) + " |")
    text = (
        "Mean over runs, with the 95 % interval of Clopper and Pearson; the weights add up to the number of "
        "independent decisions. A coin has 0.50. Where two columns have fewer than 1/p_max cells, reports are blind."
    )
    return text + "\n\n" + "\n".join(lines)


def pair_accuracy(
    outcomes: Sequence[Outcome], algorithm: str, mechanism: Mechanism, truth: float, confidence: float = 0.95
) -> WeightedAccuracy:
    """Return the weighted accuracy over pairs, each with its mean over runs."""
    right: dict[str, list[float]] = {}
    weights: dict[str, float] = {}
    for o in outcomes:
        if (o.algorithm, o.setting.mechanism, o.setting.truth) == (algorithm, mechanism, truth):
            right.setdefault(o.item, []).append(o.right)
            weights[o.item] = o.weight
    return weigh_decisions([float(np.mean(r)) for r in right.values()], list(weights.values()), confidence)


def _difference(
    outcomes: Sequence[Outcome], one: Mechanism, other: Mechanism, mean: Callable[[Sequence[Outcome]], float]
) -> tuple[float, float] | None:
    """Return the mean difference over runs and its standard error; None where a mechanism was not run."""
    by_run: dict[tuple[int, Mechanism], list[Outcome]] = {}
    for o in outcomes:
        by_run.setdefault((o.run, o.setting.mechanism), []).append(o)
    runs = sorted({run for run, mechanism in by_run if mechanism is one} & {r for r, m in by_run if m is other})
    if not runs:
        return None
    gaps = [mean(by_run[run, one]) - mean(by_run[run, other]) for run in runs]
    error = float(np.std(gaps, ddof=1) / math.sqrt(len(gaps))) if len(gaps) > 1 else math.nan
    return float(np.mean(gaps)), error


def _accuracy(found: Sequence[Outcome]) -> float:
    return float(np.average([o.right for o in found], weights=[o.weight for o in found]))


def _sign(gap: tuple[float, float]) -> int:
    value, error = gap
    return int(np.sign(value)) if abs(value) > 2.0 * error else 0


def _signed(gap: tuple[float, float], digits: int) -> str:
    return f"{gap[0]:+.{digits}f} ± {gap[1]:.{digits}f}".replace("-", "−")


def _truths(outcomes: Sequence[Outcome]) -> list[float]:
    return sorted({o.setting.truth for o in outcomes if o.setting.mechanism is not Mechanism.NONE})

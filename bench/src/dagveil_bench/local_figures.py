"""Figures 1 to 5 of the study of local privacy, drawn again as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dagveil.errors import MissingExtraError
from dagveil_bench.local_pairs import PAIR_SETS
from dagveil_bench.local_study import NOISY, PUBLISHED, Mechanism, Outcome
from dagveil_bench.local_tables import choose_constants, pair_accuracy


def draw_figures(outcomes: Sequence[Outcome], stem: Path) -> dict[str, str]:
    """Draw one figure for each data set beside the page; return the file name of each.

    Parameters
    ----------
    outcomes
        Of the study.
    stem
        Path of the page without its ending; figures get it with the data set's name.
    """
    files = {}
    for name in dict.fromkeys(o.setting.data for o in outcomes):
        mine = [o for o in outcomes if o.setting.data == name]
        path = stem.with_name(f"{stem.name}-{name}.svg")
        figure = _draw_pairs(mine) if name in PAIR_SETS else _draw_graphs(mine)
        # no date and fixed identifiers: the same outcomes give the same file
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
        files[name] = path.name
    return files


def _draw_graphs(mine: Sequence[Outcome]) -> Any:
    """SHD by mechanism and p_max: one colour per algorithm, a dot per run, a line through the means."""
    algorithms = choose_constants(mine)
    truths = sorted({o.setting.truth for o in mine if o.setting.mechanism is not Mechanism.NONE})
    present = [m for m in NOISY if any(o.setting.mechanism is m for o in mine)]
    figure, axes = _panels(len(present))
    for axis, mechanism in zip(axes, present, strict=True):
        for number, algorithm in enumerate(algorithms):
            found = [o for o in mine if o.algorithm == algorithm]
            shift = 0.1 * (number - (len(algorithms) - 1) / 2)
            groups = [
                [o.shd for o in found if (o.setting.mechanism, o.setting.truth) == (mechanism, truth)]
                for truth in truths
            ]
            quiet = [o.shd for o in found if o.setting.mechanism is Mechanism.NONE]
            columns = [*groups, quiet]
            means = [float(np.mean(values)) if values else np.nan for values in columns]
            places = np.arange(len(columns)) + shift
            (line,) = axis.plot(places, means, "-", linewidth=1, label=algorithm)
            across = np.repeat(places, [len(values) for values in columns])
            axis.plot(across, np.concatenate(columns), "o", markersize=2.5, color=line.get_color())
        axis.set_xticks(range(len(truths) + 1), [*(f"{truth:g}" for truth in truths), "none"])
        axis.set_title(_wrap(mechanism), fontsize=8)
        axis.set_xlabel("p_max", fontsize=8)
    axes[0].set_ylabel("SHD", fontsize=8)
    axes[-1].legend(fontsize=6, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _draw_pairs(mine: Sequence[Outcome]) -> Any:
    """Weighted accuracy by mechanism and p_max, with 95 % whiskers and 80 % bodies."""
    algorithms = list(dict.fromkeys(o.algorithm for o in mine))
    truths = sorted({o.setting.truth for o in mine if o.setting.mechanism is not Mechanism.NONE})
    cells = [(Mechanism.NONE, 1.0), *((m, t) for m in PUBLISHED for t in truths)]
    figure, axes = _panels(len(algorithms))
    for axis, algorithm in zip(axes, algorithms, strict=True):
        for place, (mechanism, truth) in enumerate(cells):
            wide = pair_accuracy(mine, algorithm, mechanism, truth)
            body = pair_accuracy(mine, algorithm, mechanism, truth, 0.8)
            colour = f"C{list(Mechanism).index(mechanism)}"
            axis.plot([place, place], [wide.low, wide.high], "-", linewidth=1, color=colour)
            axis.plot([place, place], [body.low, body.high], "-", linewidth=5, alpha=0.5, color=colour)
            axis.plot([place], [wide.share], "o", markersize=3, color=colour)
        axis.axhline(0.5, linewidth=0.5, color="grey")
        names = [m.value if m is Mechanism.NONE else f"{m.value} {t:g}" for m, t in cells]
        axis.set_xticks(range(len(cells)), names, rotation=90)
        axis.set_title(algorithm, fontsize=8)
    axes[0].set_ylabel("weighted accuracy", fontsize=8)
    return figure


def _panels(count: int) -> tuple[Any, Any]:
    """Return a figure with so many panels in a row that share their scale."""
    try:
        backend = import_module("matplotlib.figure")
        settings = import_module("matplotlib").rcParams
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install './bench[plots]'") from error
    settings["svg.hashsalt"] = "dagveil"
    settings["svg.fonttype"] = "none"
    figure = backend.Figure(figsize=(2.2 * count, 2.6))
    axes = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for axis in axes:
        axis.tick_params(labelsize=7)
    return figure, axes


def _wrap(mechanism: Mechanism) -> str:
    return mechanism.value.replace(" at ", "\nat ")

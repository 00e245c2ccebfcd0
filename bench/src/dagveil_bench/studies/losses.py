"""Where a study's champion is not the best: a list, so that nobody has to look for what a headline leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.summary import Estimate, Spot

RANKED = frozenset({Metric.SKELETON_F1, Metric.CPDAG_F1})
"""Metrics that are listed: the more, the better, and neither the complete nor the empty graph wins them."""


@dataclass(frozen=True, slots=True)
class Defeat:
    """A cell in which a contender has a higher mean than the champion.

    Attributes
    ----------
    champion, rival
        Their averages.
    is_clear
        Whether the difference exceeds the sum of the half-widths of both intervals.
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
        found += [Defeat(own, rival, _is_clear(mine, rival.estimates[metric])) for rival in rivals]
    return found


def tell_defeats(study: Study, spots: Sequence[Spot], metric: Metric) -> str:
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


def _is_clear(own: Estimate, rival: Estimate) -> bool:
    widths = own.half_width + rival.half_width
    return not math.isnan(widths) and rival.mean - own.mean > widths

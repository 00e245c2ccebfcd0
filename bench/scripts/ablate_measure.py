"""Change one constant or rule of `measure` at a time and score it: how the defaults were chosen.

Run as `python bench/scripts/ablate_measure.py bench/results/ablation.md`. Takes a few minutes on two cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from dagveil.methods import measure, measure_tables
from dagveil.runs import search as evidence_search
from dagveil.search.constraint.skeleton import RemovalOrder, SkeletonSettings
from dagveil_bench.studies.jobs import Job, list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.plan import Entry, Study
from dagveil_bench.studies.trial import run_job

NETWORKS = ("cancer", "earthquake", "survey", "asia", "sachs", "child", "alarm", "random 15 0.2")
EPSILONS = (0.1, 1.0, 10.0)
RUNS = 12
SEED = 2


def _search(**changes: object) -> Callable[[], None]:
    """Change search constants, for planning and for the final search."""

    def apply() -> None:
        measure.TABLE_SEARCH = replace(SkeletonSettings(), **changes)

    return apply


def _order(order: RemovalOrder) -> Callable[[], None]:
    """Use one removal order for every kind of evidence."""

    def apply() -> None:
        evidence_search.search_defaults = lambda tests: replace(measure.TABLE_SEARCH, removal_order=order)

    return apply


def _rounds(**changes: object) -> Callable[[], None]:
    """Change constants of the rounds."""

    def apply() -> None:
        for name, value in changes.items():
            setattr(measure_tables, name, value)

    return apply


VARIANTS: dict[str, Callable[[], None]] = {
    "defaults": lambda: None,
    "first round 0.3 of the budget": _rounds(PAIRS_SHARE=Fraction(3, 10)),
    "first round 0.7": _rounds(PAIRS_SHARE=Fraction(7, 10)),
    "screen 0.05": _rounds(SCREEN=0.05),
    "screen 0.5": _rounds(SCREEN=0.5),
    "three-way tables always": _rounds(ENOUGH_EFFICIENCY=0.0),
    "three-way tables never": _rounds(ENOUGH_EFFICIENCY=2.0, FINE_NOISE=0.0),
    "no second chance for three-way tables": _rounds(FINE_NOISE=0.0),
    "most convincing separation first, always": _order(RemovalOrder.MOST_CONVINCING),
    "weakest edge first, always": _order(RemovalOrder.WEAKEST_EDGE),
    "marginal level 0.003": _search(marginal_level=0.003),
    "marginal level 0.03": _search(marginal_level=0.03),
    "conditional level 0.0001": _search(conditional_level=0.0001),
    "conditional level 0.01": _search(conditional_level=0.01),
    "4 sets per edge": _search(sets_per_edge=4),
    "16 sets per edge": _search(sets_per_edge=16),
    "order 1 only": _search(largest_order=1),
}


STUDY = Study(
    name="ablation",
    title="Ablation of measure",
    data=NETWORKS,
    methods=(Entry("measure", settings={"plan": "pairs"}),),
    budgets=EPSILONS,
    rows=(100_000,),
    repetitions=RUNS,
    seed=SEED,
)


def _score(variant: str, job: Job) -> float:
    VARIANTS[variant]()
    return run_job(job).of(Metric.SKELETON_F1)


def main(output: Path) -> None:
    """Score every variant and write the table."""
    lines = [
        "# Ablation of `measure`",
        "",
        f"Mean skeleton F1 over {', '.join(NETWORKS)} ({RUNS} runs each, n = 100 000, δ = 1e-6), `plan=pairs`,",
        "one change at a time; the same rows and the same noise seeds for every variant. Written by",
        "",
        f"    python scripts/ablate_measure.py {output}",
        "",
        "| variant | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---" * (len(EPSILONS) + 1) + "|",
    ]
    for variant in VARIANTS:
        cells = []
        # a fresh pool for each variant: a change must not outlive it
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            for epsilon in EPSILONS:
                jobs = [job for job in list_jobs(STUDY) if job.epsilon == epsilon]
                cells.append(f"{np.mean(list(pool.map(partial(_score, variant), jobs, chunksize=2))):.3f}")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

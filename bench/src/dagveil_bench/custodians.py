"""What it costs that rows may not be pooled: graphs from the added evidence of several sites, beside the pooled run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from zlib import crc32

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evaluation.skeleton import skeleton_f1
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import load_network
from dagveil.examples.simulate import network_schema, sample_codes
from dagveil.graphs.dag import Dag
from dagveil.plans.combine import combine_evidence
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

POOLED = 0
"""Stands for the pooled run, which chooses its later questions by what it has released: `measure` as it is."""


@dataclass(frozen=True, slots=True)
class Task:
    """One sample of one network with one budget, dealt out to several numbers of sites."""

    network: str
    rows: int
    epsilon: float
    sites: tuple[int, ...]
    run: int
    seed: int


@dataclass(frozen=True, slots=True)
class Line:
    """Mean F1 of the skeleton over runs, and its standard error; `sites` is `POOLED` for the pooled run."""

    network: str
    epsilon: float
    sites: int
    f1: float
    error: float


def run_custodians(
    networks: Sequence[str],
    epsilons: Sequence[float],
    sites: Sequence[int],
    rows: int,
    runs: int,
    seed: int,
    workers: int,
    told: Progress,
) -> list[Line]:
    """Score the pooled run and the runs of several sites, on the same samples.

    Parameters
    ----------
    networks, epsilons, sites
        What to try; each site has the whole epsilon, since its people are at no other site.
    rows
        Of all sites together.
    runs, seed, workers, told
        As in `dagveil_bench.utility.run_study`.
    """
    tasks = [
        Task(network, rows, epsilon, tuple(sites), run, seed)
        for network, epsilon, run in product(networks, epsilons, range(runs))
    ]
    found: dict[tuple[str, float, int], list[float]] = {}
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for done, (task, scores) in enumerate(zip(tasks, pool.map(run_task, tasks), strict=True), start=1):
            for count, f1 in scores.items():
                found.setdefault((task.network, task.epsilon, count), []).append(f1)
            told("runs", done, len(tasks))
    return [
        Line(*key, float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))) if runs > 1 else 0.0)
        for key, values in found.items()
    ]


def run_task(task: Task) -> dict[int, float]:
    """Return the F1 of the skeleton by number of sites, `POOLED` for the pooled run."""
    network = load_network(task.network)
    key = [task.seed, task.run, crc32(task.network.encode()), int(task.epsilon * 1_000_000)]
    rng = np.random.default_rng(key)
    codes = sample_codes(network, task.rows, rng)
    schema = network_schema(network, task.rows)
    truth = network.dag()
    table = MemoryTable.from_codes(codes, schema)
    noise = int(rng.integers(2**61))
    pooled = measure_source(table, schema, task.epsilon, noise=NoiseKind.SEEDED, seed=noise, ledger=None)
    scores = {POOLED: _score(pooled, truth)}
    for count in task.sites:
        scores[count] = _score(measure_sites(codes, schema, task.epsilon, count, noise), truth)
    return scores


def measure_sites(
    codes: Mapping[str, NDArray[np.uint8]], schema: Schema, epsilon: float, count: int, seed: int
) -> Evidence:
    """Deal rows out to sites of equal size, let each follow one plan, and add what they release."""
    rows = len(next(iter(codes.values())))
    cuts = np.linspace(0, rows, count + 1).astype(int)
    sizes = {f"site {k + 1}": int(cuts[k + 1] - cuts[k]) for k in range(count)}
    plan = plan_measurement(schema, epsilon, sites=sizes)
    released = []
    for k, name in enumerate(sizes):
        own = replace(schema, dataset=name, nominal_rows=sizes[name])
        part = MemoryTable.from_codes({column: array[cuts[k] : cuts[k + 1]] for column, array in codes.items()}, own)
        released.append(
            measure_planned(part, plan, name, schema=own, noise=NoiseKind.SEEDED, seed=seed + k, ledger=None)
        )
    return combine_evidence(released) if count > 1 else released[0]


def _score(evidence: Evidence, truth: Dag) -> float:
    return skeleton_f1(search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag, truth)


def custodians_page(lines: Sequence[Line], rows: int, runs: int, command: str) -> str:
    """Write the page of the study."""
    parts = [
        "# Several custodians",
        f"{rows} rows in all, dealt out to sites of equal size; add/remove, δ = 10⁻⁶, {runs} runs per cell, exact "
        "discrete noise (seeded, for repeatability). Every site has the whole ε: nobody is at two sites. *Pooled* is "
        "`measure` on all rows, which chooses its later questions by what it has released. *1 site* follows a fixed "
        "plan on all rows. "
        "Skeleton F1 against the true network (± standard error). Written by",
        f"    {command}",
    ]
    for network in dict.fromkeys(line.network for line in lines):
        own = [line for line in lines if line.network == network]
        counts = list(dict.fromkeys(line.sites for line in own))
        heads = ["pooled" if count == POOLED else f"{count} site{'s' if count > 1 else ''}" for count in counts]
        table = ["| ε | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for epsilon in dict.fromkeys(line.epsilon for line in own):
            cells = {line.sites: f"{line.f1:.3f} ± {line.error:.3f}" for line in own if line.epsilon == epsilon}
            table.append(f"| {epsilon:g} | " + " | ".join(cells[count] for count in counts) + " |")
        parts += [f"## {network.capitalize()}", "\n".join(table)]
    parts += [
        "## How to read it",
        "With K sites the noise in every sum has √K times the deviation of one site's: that of one site at ε/√K. A "
        "fixed plan cannot look where it pays: at large ε it asks for all three-way tables where `measure` asks for "
        "the few that matter, and where noise would drown them all it asks for pairs alone. Edges then stay that only "
        "a test given other columns removes, so a larger ε need not help.",
    ]
    return "\n\n".join(parts)

"""PC that knows the channel beside PC that does not, on the same reports, and the size of both tests.

Reports are drawn as counts from their exact law, the law of records sent through the channel. That is the same as
drawing records and randomising each, and it costs no more for more records.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.evaluation.skeleton import rate_skeleton
from dagveil.evidence.questions import Independence, Questions
from dagveil.examples.networks import Network
from dagveil.examples.simulate import random_network
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.local.linear_reports import LinearReportEvidence
from dagveil.local.record import ComponentWise, Split, Undo, component_wise_geometric, component_wise_response
from dagveil.local.recovery import apply_to_axes
from dagveil.local.reports import ReportEvidence, Reports
from dagveil.progress import Progress
from dagveil.search.constraint.skeleton import SkeletonSettings, find_skeleton

Floats = NDArray[np.float64]

NODES: Final = 5
SPARSENESS: Final = 0.4
LEVELS: Final = (3, 5)
"""Fewest and most levels of a column."""

SIZE_EPSILON: Final = 6.0
"""Per record of three columns with three levels, for the size of the tests."""

SIZE_LEVEL: Final = 0.05


class Statistic(enum.Enum):
    """Which test of independence, on which kind of columns."""

    CHI_SQUARE = "χ²"
    """Levels without order; each case of the parents has probabilities of its own."""

    LINEAR = "Fisher-z"
    """Levels in order; the mean of a column is linear in its parents."""


class Noise(enum.Enum):
    """Channel of each column."""

    RESPONSE = "k-RR"
    GEOMETRIC = "geometric"


class View(enum.Enum):
    """What a test takes reports for."""

    AWARE = "knows the channel"
    BLIND = "blind"


@dataclass(frozen=True, slots=True)
class AwareSetting:
    """What is run: a test, a channel, its ε per record, and how many records report."""

    statistic: Statistic
    noise: Noise
    epsilon: float
    n_records: int


@dataclass(frozen=True, slots=True)
class AwareOutcome:
    """One graph, found twice from the same reports; the channel's exact ε is `epsilon`."""

    setting: AwareSetting
    view: View
    run: int
    epsilon: float
    false_edges: int
    missed: int
    f1: float


@dataclass(frozen=True, slots=True)
class Size:
    """How often a test at level 0.05 rejected x ⊥ y given z, which is true."""

    statistic: Statistic
    noise: Noise
    view: View
    n_records: int
    rejected: float
    repeats: int

    @property
    def error(self) -> float:
        """Standard error of a test that keeps its level."""
        return float(np.sqrt(SIZE_LEVEL * (1.0 - SIZE_LEVEL) / self.repeats))


def list_aware_settings(epsilons: Sequence[float], sizes: Sequence[int]) -> list[AwareSetting]:
    """Return every combination."""
    if any(not epsilon > 0.0 for epsilon in epsilons) or any(n < 10 for n in sizes):
        raise MethodError("epsilons must be positive, and at least 10 records must report")
    return [AwareSetting(*parts) for parts in product(Statistic, Noise, epsilons, sizes)]


def run_aware_study(
    settings: Sequence[AwareSetting], runs: int, seed: int, workers: int, told: Progress
) -> list[AwareOutcome]:
    """Run each setting on so many random graphs; a run has the same graph in all settings of a test."""
    outcomes: list[AwareOutcome] = []
    jobs = [(setting, runs, seed) for setting in settings]
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for done, found in enumerate(pool.map(_run_job, jobs, chunksize=1), start=1):
            outcomes += found
            told("settings", done, len(jobs))
    return outcomes


def run_aware(setting: AwareSetting, run: int, seed: int) -> list[AwareOutcome]:
    """Draw a graph and reports, and search them with and without knowledge of the channel."""
    drawn = np.random.default_rng([seed, run, crc32(setting.statistic.name.encode())])
    dag, law = random_law(setting.statistic, drawn)
    channel = make_component_channel(setting.noise, law.shape, setting.epsilon)
    key = f"{setting.statistic.name} {setting.noise.name} {setting.epsilon:g} {setting.n_records}"
    rng = np.random.default_rng([seed, run, crc32(key.encode())])
    reports = draw_reports(law, channel, setting.n_records, rng)
    settings = SkeletonSettings(largest_order=NODES - 2)
    outcomes = []
    for view in View:
        evidence = make_evidence(setting.statistic, view, dag.nodes, channel, reports)
        skeleton = find_skeleton(evidence, settings, Knowledge.none())
        pairs = frozenset(frozenset((dag.nodes[x], dag.nodes[y])) for x, y in skeleton.edges())
        rates = rate_skeleton(Cpdag(dag.nodes, frozenset(), pairs), dag)
        outcomes.append(AwareOutcome(setting, view, run, channel.epsilon(), rates.extra, rates.missed, rates.f1))
    return outcomes


def measure_size(n_records: int, repeats: int, seed: int) -> list[Size]:
    """Return how often each test rejects on x ← z → y, with three levels each and means that are linear in z."""
    likely = 0.6 * np.eye(3) + 0.4 / 3.0
    law = np.einsum("zx,zy->xyz", likely, likely) / 3.0
    question = Questions.of([(0, 1, (2,))])
    sizes = []
    for noise in Noise:
        channel = make_component_channel(noise, (3, 3, 3), SIZE_EPSILON)
        rng = np.random.default_rng([seed, n_records, crc32(noise.name.encode())])
        rejected = dict.fromkeys(product(Statistic, View), 0)
        for _ in range(repeats):
            reports = draw_reports(law, channel, n_records, rng)
            for statistic, view in rejected:
                evidence = make_evidence(statistic, view, ("x", "y", "z"), channel, reports)
                rejected[statistic, view] += bool(evidence.test(question).p_value[0] < SIZE_LEVEL)
        for (statistic, view), count in rejected.items():
            sizes.append(Size(statistic, noise, view, n_records, count / repeats, repeats))
    return sizes


def random_law(statistic: Statistic, rng: np.random.Generator) -> tuple[Dag, Floats]:
    """Return a random graph and the joint law of its columns, one axis each.

    Examples
    --------
    >>> dag, law = random_law(Statistic.LINEAR, np.random.default_rng(0))
    >>> len(dag.nodes), law.ndim, round(float(law.sum()), 9)
    (5, 5, 1.0)
    """
    network = random_network(NODES, SPARSENESS, rng, LEVELS)
    tables = network.tables if statistic is Statistic.CHI_SQUARE else _linear_tables(network, rng)
    levels = [len(network.levels[node]) for node in network.nodes]
    cells = dict(zip(network.nodes, np.indices(levels), strict=True))
    law = np.ones(levels)
    for node in network.nodes:
        law *= tables[node][(*(cells[parent] for parent in network.parents[node]), cells[node])]
    return network.dag(), law


@lru_cache(maxsize=1000)
def make_component_channel(noise: Noise, levels: tuple[int, ...], epsilon: float) -> ComponentWise:
    """Return a channel for each column; the columns share ε equally."""
    make = component_wise_response if noise is Noise.RESPONSE else component_wise_geometric
    return make(levels, epsilon, Split.UNIFORM)


def draw_reports(law: Floats, channel: ComponentWise, n_records: int, rng: np.random.Generator) -> Reports:
    """Draw the counts of reports of so many records."""
    seen = apply_to_axes(law, [column.matrix for column in channel.channels])
    counts = rng.multinomial(n_records, (seen / seen.sum()).reshape(-1)).reshape(seen.shape)
    return Reports(np.argwhere(counts > 0).astype(np.int64), counts[counts > 0].astype(np.float64))


def make_evidence(
    statistic: Statistic, view: View, columns: tuple[str, ...], channel: ComponentWise, reports: Reports
) -> Independence:
    """Return the test with the channel undone, or with reports taken for records."""
    undo = channel.undo() if view is View.AWARE else Undo(tuple(np.eye(k) for k in channel.levels))
    if statistic is Statistic.CHI_SQUARE:
        return ReportEvidence(columns, channel.levels, reports, undo)
    return LinearReportEvidence(columns, reports, undo, tuple(np.arange(float(k)) for k in channel.levels))


def aware_page(outcomes: Sequence[AwareOutcome], sizes: Sequence[Size], command: str) -> str:
    """Write the page."""
    runs = len({o.run for o in outcomes})
    rows = [
        "| test | noise | ε | n | false edges, aware | blind | missed, aware | blind | F1, aware | blind |",
        "|---" * 10 + "|",
    ]
    for setting in dict.fromkeys(o.setting for o in outcomes):
        cells = []
        for field, digits in (("false_edges", 2), ("missed", 2), ("f1", 3)):
            for view in View:
                values = [float(getattr(o, field)) for o in outcomes if (o.setting, o.view) == (setting, view)]
                error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
                cells.append(f"{np.mean(values):.{digits}f} ± {error:.{digits}f}")
        start = f"| {setting.statistic.value} | {setting.noise.value} | {setting.epsilon:g} | {setting.n_records} | "
        rows.append(start + " | ".join(cells) + " |")
    lines = ["| test | noise | n | aware rejects | blind rejects | standard error at 0.05 |", "|---" * 6 + "|"]
    found = {(size.statistic, size.noise, size.n_records, size.view): size for size in sizes}
    for statistic, noise, n in dict.fromkeys((size.statistic, size.noise, size.n_records) for size in sizes):
        aware, blind = (found[statistic, noise, n, view] for view in (View.AWARE, View.BLIND))
        start = f"| {statistic.value} | {noise.value} | {n} | {aware.rejected:.3f} | {blind.rejected:.3f} | "
        lines.append(start + f"{aware.error:.3f} |")
    within = sum(abs(s.rejected - SIZE_LEVEL) <= 2.0 * s.error for s in sizes if s.view is View.AWARE)
    return "\n\n".join(
        [
            "# Discovery that knows the channel",
            "The same reports, searched twice by the same skeleton search: once with tests that undo the channel, "
            f"once with the same tests on reports as if they were records. Each line has {runs} random graphs of "
            f"{NODES} columns with {LEVELS[0]} to {LEVELS[1]} levels, and a channel for each column; columns share ε "
            "equally. It is that of local privacy, exact, per record. ± is the standard error over graphs. Written by",
            f"    {command}",
            "## Skeletons",
            "\n".join(rows),
            "A blind test finds x and y dependent given z when z was randomised: the report of z does not hold all "
            "that z explains. More records only show these false edges more clearly. The price of knowing is power: on "
            "few records and a small ε the aware tests miss more edges, and the blind search can have the higher F1.",
            "## Size of the tests",
            f"x ← z → y with three levels each, ε = {SIZE_EPSILON:g} per record: how often a test at level "
            f"{SIZE_LEVEL:g} rejects x ⊥ y given z, which is true, over {sizes[0].repeats} samples. A test that keeps "
            f"its level is within two standard errors of {SIZE_LEVEL:g} on most lines: the aware ones are on {within} "
            f"of {len(sizes) // 2}.",
            "\n".join(lines),
        ]
    )


def _linear_tables(network: Network, rng: np.random.Generator) -> dict[str, Floats]:
    """Return binomial tables whose success probability is linear in the parents' codes."""
    tables = {}
    for node in network.nodes:
        parents = network.parents[node]
        sizes = [len(network.levels[parent]) for parent in parents]
        weights = rng.uniform(0.5, 1.0, len(parents)) * rng.choice([-1.0, 1.0], len(parents))
        weights *= 0.9 / max(np.abs(weights).sum(), 0.9)
        success = np.full(sizes, 0.5)
        for weight, size, cell in zip(weights, sizes, np.indices(sizes), strict=True):
            success = success + weight * (cell / (size - 1) - 0.5)
        steps = len(network.levels[node]) - 1
        law = np.ones((*sizes, 1))
        for _ in range(steps):
            stays, rises = law * (1.0 - success[..., None]), law * success[..., None]
            law = np.concatenate([stays, np.zeros((*sizes, 1))], axis=-1)
            law[..., 1:] += rises
        tables[node] = law
    return tables


def _run_job(job: tuple[AwareSetting, int, int]) -> list[AwareOutcome]:
    setting, runs, seed = job
    return [outcome for run in range(runs) for outcome in run_aware(setting, run, seed)]

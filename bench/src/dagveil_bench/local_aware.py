"""PC that knows the channel beside PC that does not, on the same reports, and the size of both tests.

Reports are drawn as counts from their exact law, the law of records sent through the channel. That is the same as
drawing records and randomising each, and it costs no more for more records.
"""

import enum
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.evidence.questions import Independence, Questions
from dagveil.examples.networks import Network
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.local.law import apply_to_axes
from dagveil.local.record import ComponentWise, Split, Undo, component_wise_geometric, component_wise_response
from dagveil.local.reports import LinearReportEvidence, ReportEvidence, Reports
from dagveil.search.constraint.skeleton import SkeletonSettings, find_skeleton
from dagveil_bench.drawn_tables import random_network
from dagveil_bench.levels import LEVEL

Floats = NDArray[np.float64]

NODES: Final = 5
SPARSENESS: Final = 0.4
LEVELS: Final = (3, 5)  # fewest and most levels of a column


class Statistic(enum.Enum):
    """Which test of independence, on which kind of columns."""

    CHI_SQUARE = "chi-square"  # levels without order; each case of the parents has probabilities of its own
    LINEAR = "linear"  # Fisher's z; levels in order, and the mean of a column is linear in its parents


class Noise(enum.Enum):
    """Channel of each column."""

    RESPONSE = "response"
    GEOMETRIC = "geometric"


class View(enum.Enum):
    """What a test takes reports for: it knows the channel, or takes them for records."""

    AWARE = "aware"
    BLIND = "blind"


@dataclass(frozen=True, slots=True)
class ReportSource:
    """What reports: columns of a random graph, or x ← z → y for the size of a test of x ⊥ y given z, which is true."""

    statistic: Statistic
    noise: Noise
    is_null: bool

    def draw_law(self, rng: np.random.Generator) -> tuple[Dag, Floats]:
        """Return the graph and the joint law of its columns; that of a null has three levels and means linear in z."""
        if not self.is_null:
            return random_law(self.statistic, rng)
        likely = 0.6 * np.eye(3) + 0.4 / 3.0
        law = np.einsum("zx,zy->xyz", likely, likely) / 3.0
        return Dag(("x", "y", "z"), frozenset({("z", "x"), ("z", "y")})), law


def read_reports(text: str) -> ReportSource:
    """Read a test, a channel and perhaps "null".

    Examples
    --------
    >>> read_reports("linear geometric null").is_null
    True
    """
    match text.split():
        case [("chi-square" | "linear") as test, ("response" | "geometric") as noise, *rest] if rest in (
            [],
            ["null"],
        ):
            return ReportSource(Statistic(test), Noise(noise), bool(rest))
    raise MethodError(
        f"{text!r} needs one of chi-square, linear, one of response, geometric, and for the size of the test the word "
        "null"
    )


def open_reports(source: ReportSource, view: View, epsilon: float, n_records: int, seed: int) -> Independence:
    """Draw a law and reports, the same for both views, and return the test that asks them."""
    dag, law = source.draw_law(np.random.default_rng(seed))
    channel = make_component_channel(source.noise, law.shape, epsilon)
    reports = draw_reports(law, channel, n_records, np.random.default_rng([seed, round(epsilon * 1e6)]))
    return make_evidence(source.statistic, view, dag.nodes, channel, reports)


def find_pairs(evidence: Independence) -> Cpdag:
    """Return the skeleton that a search of all orders finds."""
    skeleton = find_skeleton(evidence, SkeletonSettings(largest_order=NODES - 2), Knowledge.none())
    names = evidence.columns
    return Cpdag(names, frozenset(), frozenset(frozenset((names[x], names[y])) for x, y in skeleton.edges()))


def rejects_null(evidence: Independence) -> bool:
    """Tell whether a test at level 0.05 rejects x ⊥ y given z."""
    return bool(evidence.test(Questions.of([(0, 1, (2,))])).p_value[0] < LEVEL)


def random_law(statistic: Statistic, rng: np.random.Generator) -> tuple[Dag, Floats]:
    """Return a random graph and the joint law of its columns, one axis each."""
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

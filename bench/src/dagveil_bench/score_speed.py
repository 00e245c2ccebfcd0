"""How fast `measure-ges` is: beside causal-learn's GES on the same rows, and on many numeric columns.

Every program runs in a process of its own, so that its peak of memory is its own. Seconds are CPU seconds, so that
waiting for other work does not count. Nothing here asserts a time.
"""

from __future__ import annotations

import enum
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dagveil.data.machine import peak_memory
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evaluation.comparison import marked_edge_f1, skeleton_f1
from dagveil.examples import networks
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.peers import import_peer, keep_quiet
from dagveil_bench.speed import LONG
from dagveil_bench.tables import write_table

METHOD = "measure-ges"
PEER = "causal-learn GES, BDeu"
DELTA = 1e-6
SEED = 1  # of the rows; noise is drawn as in any other run
EDGES_PER_NODE = 2.0


class Peer(enum.Enum):
    """What ours is compared with."""

    CAUSAL_LEARN = "causal-learn"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One program on one table: CPU seconds of each stage in its best try, and scores of skeleton and marked edges.

    Megabytes are the peak of the process, with the rows and all libraries.
    """

    case: str
    program: str
    stages: tuple[tuple[str, float], ...]
    f1: float
    marked_f1: float
    megabytes: float

    @property
    def seconds(self) -> float:
        """Seconds of all stages."""
        return sum(seconds for _, seconds in self.stages)


@dataclass(frozen=True, slots=True)
class Found:
    """What one try found, and how long its stages took."""

    graph: Cpdag
    stages: tuple[tuple[str, float], ...]


def run_network(name: str, n_rows: int, epsilon: float, tries: int) -> Outcome:
    """Run ours on rows of a network."""
    network = networks.load_network(name)
    codes = networks.sample_codes(network, n_rows, np.random.default_rng(SEED))
    schema = networks.network_schema(network, n_rows)
    run = _ours(lambda: MemoryTable.from_codes(codes, schema), schema, epsilon)
    return _rate(f"{name}, {n_rows} rows", f"dagveil {METHOD}", run, tries, network.dag())


def run_peer(name: str, n_rows: int) -> Outcome:
    """Run causal-learn's GES, which is not private, on the same rows."""
    ges = import_peer("causallearn.search.ScoreBased.GES").ges
    network = networks.load_network(name)
    codes = networks.sample_codes(network, n_rows, np.random.default_rng(SEED))
    rows = np.column_stack(list(codes.values())).astype(np.int64)

    def run() -> Found:
        start = time.process_time()
        found = ges(rows, score_func="local_score_BDeu")
        seconds = time.process_time() - start
        return Found(read_marks(found["G"].graph, network.nodes), (("all", seconds),))

    return _rate(f"{name}, {n_rows} rows", PEER, run, 1, network.dag())


def run_gaussian(n_nodes: int, n_rows: int, epsilon: float, tries: int) -> Outcome:
    """Run ours on rows of a random linear Gaussian model with two edges per node."""
    rng = np.random.default_rng(SEED)
    model = networks.random_linear_gaussian(n_nodes, min(1.0, 2.0 * EDGES_PER_NODE / (n_nodes - 1)), rng)
    rows = networks.sample_linear_gaussian(model, n_rows, rng)
    schema = networks.gaussian_schema(model, n_rows)
    columns = dict(zip(model.nodes, rows.T, strict=True))
    run = _ours(lambda: MemoryTable.from_source(columns, schema), schema, epsilon)
    return _rate(f"{n_nodes} numeric columns, {n_rows} rows", f"dagveil {METHOD}", run, tries, model.dag())


def read_marks(marks: Any, nodes: Sequence[str]) -> Cpdag:
    """Read causal-learn's matrix of marks: −1 is a tail and 1 a head, at the row's node on the edge to the column's."""
    directed, undirected = set(), set()
    for i in range(len(nodes)):
        for j in range(i):
            mine, other = marks[i, j], marks[j, i]
            if mine == -1 and other == -1:
                undirected.add(frozenset((nodes[i], nodes[j])))
            elif mine == -1 and other == 1:
                directed.add((nodes[i], nodes[j]))
            elif mine == 1 and other == -1:
                directed.add((nodes[j], nodes[i]))
    return Cpdag(tuple(nodes), frozenset(directed), frozenset(undirected))


def time_scores(
    network: str,
    n_rows: int,
    n_nodes: int,
    sizes: Sequence[int],
    epsilon: float,
    tries: int,
    peer: Peer,
    told: Progress,
) -> list[Outcome]:
    """Run every program, one after the other, and tell `told` after each.

    Ours and the peer get `n_rows` of a network; ours also linear Gaussian models of `n_nodes` columns in several sizes.
    The best of so many tries counts, after one that does not.
    """
    jobs: list[tuple[Any, ...]] = [(run_network, network, n_rows, epsilon, tries)]
    if peer is Peer.CAUSAL_LEARN:
        jobs.append((run_peer, network, n_rows))
    jobs += [(run_gaussian, n_nodes, size, epsilon, tries) for size in sizes]
    outcomes = []
    for done, (run, *arguments) in enumerate(jobs, start=1):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            outcomes.append(pool.submit(run, *arguments).result())
        told("programs", done, len(jobs))
    return outcomes


def score_speed_page(outcomes: Sequence[Outcome], epsilon: float, command: str) -> str:
    """Write the page: seconds by stage, ratios, scores and memory."""
    heads = ("rows", "program", "seconds", "of which", "peer / ours", "skeleton F1", "marked-edge F1", "peak MB")
    lines = []
    peers = {outcome.case: outcome.seconds for outcome in outcomes if outcome.program == PEER}
    for outcome in outcomes:
        stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in outcome.stages)
        ratio = f"{peers[outcome.case] / outcome.seconds:.0f} ×" if outcome.case in peers else ""
        cells = [outcome.case, outcome.program, f"{outcome.seconds:.2f}", stages if len(outcome.stages) > 1 else ""]
        cells += [ratio, f"{outcome.f1:.3f}", f"{outcome.marked_f1:.3f}", f"{outcome.megabytes:.0f}"]
        lines.append(cells)
    return "\n\n".join(
        [
            f"# Speed of {METHOD}",
            f"`{METHOD}` at ε = {epsilon:g}, δ = {DELTA:g}, from a table in memory to a graph, one sample each, the "
            f"best of several tries where one takes less than {LONG:g} seconds. The peer is not private, has the same "
            "rows and runs once. Loading turns arrays into a table, measuring counts and draws OpenDP's noise, "
            "searching is post-processing. Numeric rows come from a linear Gaussian model with about "
            f"{EDGES_PER_NODE:g} edges per node and effects between 0.1 and 1, of which weak ones drown in noise. "
            "Every program ran in a process of its own; its peak of memory includes the rows and all libraries. "
            "Seconds are CPU time, so that waiting for other work does not count. Written by",
            f"    {command}",
            write_table(heads, lines),
        ]
    )


def _ours(load: Callable[[], MemoryTable], schema: Schema, epsilon: float) -> Callable[[], Found]:
    def run() -> Found:
        marks = [time.process_time()]
        table = load()
        marks.append(time.process_time())
        evidence = measure_source(table, schema, epsilon, DELTA, method=METHOD, ledger=None)
        marks.append(time.process_time())
        result = search_evidence(evidence, SearchSettings(redraws=0))
        marks.append(time.process_time())
        stages = zip(("loading", "measuring", "searching"), np.diff(marks).tolist(), strict=True)
        return Found(result.graph.cpdag, tuple(stages))

    return run


def _rate(case: str, program: str, run: Callable[[], Found], tries: int, truth: Dag) -> Outcome:
    """Keep the best try; the first one of several only warms up, unless it was long."""
    with keep_quiet():
        best = run()
        for _ in range(tries if tries > 1 else 0):
            if _total(best) > LONG:
                break
            best = min(best, run(), key=_total)
    f1, marked_f1 = skeleton_f1(best.graph, truth), marked_edge_f1(best.graph, truth.cpdag())
    return Outcome(case, program, best.stages, f1, marked_f1, peak_memory() / 2**20)


def _total(found: Found) -> float:
    return sum(seconds for _, seconds in found.stages)

"""One run of a study: sample, discover or test or search, score, and what it took."""

import math
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from dagveil.evaluation.comparison import mark_f1, skeleton_f1
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes, sample_table
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.pag import MixedGraph
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration, bound_advantage
from dagveil.runs.discovery import discover
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.custodians import count_sites, measure_shifted, measure_sites, read_shifted, search_shifted
from dagveil_bench.drawn_tables import draw_table
from dagveil_bench.exact_searches import EXACT_SEARCHES, search_exactly
from dagveil_bench.hidden_causes import HiddenSample
from dagveil_bench.levels import LEVEL, TESTS, design_named, draw_design
from dagveil_bench.local_aware import View, find_pairs, open_reports, read_reports, rejects_null
from dagveil_bench.local_source import count_wrong_edges, load_records, randomise, read_source, search_reports
from dagveil_bench.peers import read_seconds
from dagveil_bench.persons import TRIALS, UNITS, attack, draw_visits, search_visits
from dagveil_bench.studies.datasets import sample_source
from dagveil_bench.studies.jobs import COIN, COMPLETE, Job
from dagveil_bench.studies.machine import read_peak, reset_peak
from dagveil_bench.studies.metrics import OF_MARGINS, OF_SKELETONS, Metric, Task, score_graph, spent_epsilon
from dagveil_bench.studies.plan import Role
from dagveil_bench.synthesis import AIM, FRESH_ROWS, TRUE_ROWS, draw_rows, margin_errors, plain_pc

Product = TypeVar("Product")

LONGEST_ERROR = 500  # characters of an error that the store keeps


class Outcome(msgspec.Struct, frozen=True):
    """What came of a run: numbers, or the error that ended it."""

    numbers: dict[str, float] = {}
    error: str | None = None

    def of(self, metric: Metric) -> float:
        """Return one number; NaN if the run has none."""
        return self.numbers.get(metric.column, math.nan)


def run_job(job: Job) -> Outcome:
    """Run once. An error is an outcome: one bad cell must not end a night's work.

    Seconds count from the encoded rows or reports to the answer; drawing and encoding them is not part of a run.
    """
    try:
        return Outcome(
            {metric.column: value for metric, value in _RUNS[job.task](job).items() if not math.isnan(value)}
        )
    except Exception as error:
        return Outcome(error=describe_failure(error))


def describe_failure(error: BaseException) -> str:
    """Say an error in one line; rows of studies are public, so its text may be kept."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"


def _discover(job: Job) -> Mapping[Metric, float]:
    rng = np.random.default_rng(job.sample_seed)
    if job.method in EXACT_SEARCHES:
        drawn = draw_table(job.source, job.n_rows, rng)
        found, costs = _weigh(lambda: search_exactly(job.method, drawn.rows, job.settings))
        return {**score_graph(found, drawn.dag), **costs}
    table, dag = sample_source(job.source, job.n_rows, rng)
    if job.role is Role.FLOOR:
        return score_graph(_floor(job, dag), dag)
    searched = job.calibration is Calibration.SOUND and method_named(job.method).release is not None
    result, costs = _weigh(
        lambda: discover(
            *(table, table.schema, job.epsilon, job.delta),
            method=job.method,
            calibration=job.calibration,
            options=job.settings,
            settings=SearchSettings(redraws=job.redraws) if searched else None,
            noise=NoiseKind.SEEDED,
            seed=job.noise_seed,
            ledger=None,
        )
    )
    # a publication may count its tests in a way of its own
    counted = None if result.reported is None else result.reported.tests
    asked = result.questions if counted is None else counted
    return {
        **score_graph(result.graph.cpdag, dag),
        Metric.QUESTIONS: math.nan if asked is None else float(asked),
        Metric.EPSILON_SPENT: spent_epsilon(result.receipt),
        Metric.EPSILON_REPORTED: math.nan if result.reported is None else result.reported.epsilon,
        **costs,
    }


def _test(job: Job) -> Mapping[Metric, float]:
    if job.role is Role.FLOOR:
        return {Metric.REJECTED: LEVEL}
    columns = draw_design(job.n_rows, np.random.default_rng(job.sample_seed))
    question, budget = design_named(job.source).question, Budget.of(job.epsilon, job.delta)
    noise = np.random.default_rng(job.noise_seed)
    rejected, costs = _weigh(lambda: TESTS[job.method](columns, question, budget, noise))
    return {Metric.REJECTED: float(rejected), **costs}


def _search(job: Job) -> Mapping[Metric, float]:
    source = read_source(job.source)
    if job.method == COIN:
        return {Metric.ACCURACY: 0.5}
    if job.role is Role.FLOOR:
        dag = load_records(source.data, job.n_rows).truth
        graph = MixedGraph.of(_floor(job, dag))
        return {Metric.WRONG_EDGES: float(count_wrong_edges(graph, dag)), Metric.SKELETON_F1: skeleton_f1(graph, dag)}
    truth = None if job.role is Role.CEILING else job.epsilon
    reports = randomise(source, truth, job.n_rows, job.sample_seed)
    scores, costs = _weigh(lambda: search_reports(job.method, reports, job.noise_seed))
    return {
        Metric.WRONG_EDGES: scores.wrong_edges,
        Metric.SKELETON_F1: scores.f1,
        Metric.ACCURACY: scores.accuracy,
        Metric.RECORD_EPSILON: scores.epsilon if math.isfinite(scores.epsilon) else math.nan,
        **costs,
    }


def _share(job: Job) -> Mapping[Metric, float]:
    network = load_network(job.source)
    if job.role is Role.FLOOR:
        return _score_floor(job, network)
    codes = sample_codes(network, job.n_rows, np.random.default_rng(job.sample_seed))
    schema, (count, rounds) = network_schema(network, job.n_rows), count_sites(job.method)

    def work() -> Cpdag:
        evidence = measure_sites(codes, schema, job.epsilon, job.delta, count, job.noise_seed, rounds)
        return search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag

    found, costs = _weigh(work)
    return {**score_graph(found, network.dag()), **costs}


def _score_floor(job: Job, network: Network) -> Mapping[Metric, float]:
    return score_graph(_floor(job, network.dag()), network.dag())


def _shift(job: Job) -> Mapping[Metric, float]:
    network, changed = read_shifted(job.source)
    if job.role is Role.FLOOR:
        return _score_floor(job, network)
    released, nodes = measure_shifted(network, changed, job.n_rows, job.epsilon, job.delta, job.plain_seed)
    (found, told), costs = _weigh(lambda: search_shifted(job.method, released, nodes))
    return {**score_graph(found, network.dag()), **told, **costs}


def _protect(job: Job) -> Mapping[Metric, float]:
    network = load_network(job.source)
    if job.role is Role.FLOOR:
        return _score_floor(job, network)
    visits = draw_visits(network, job.n_rows, np.random.default_rng([job.n_rows, job.plain_seed]))
    found, costs = _weigh(
        lambda: search_visits(network, visits, job.method, job.n_rows, job.epsilon, job.delta, job.plain_seed)
    )
    return {**score_graph(found, network.dag()), **costs}


def _attack(job: Job) -> Mapping[Metric, float]:
    trials = range(job.sample * TRIALS, (job.sample + 1) * TRIALS)
    budget = Budget.of(job.epsilon, job.delta)
    network = load_network(job.source)
    advantage, costs = _weigh(lambda: attack(network, job.method, job.n_rows, budget, job.seed, trials))
    bound = bound_advantage(job.epsilon, job.delta) if UNITS[job.method] else 1.0
    return {Metric.ADVANTAGE: advantage, Metric.ADVANTAGE_BOUND: bound, **costs}


def _synthesise(job: Job) -> Mapping[Metric, float]:
    network = load_network(job.source)
    schema = network_schema(network, job.n_rows)
    table, fresh = (sample_table(network, job.n_rows, np.random.default_rng([job.plain_seed, k])) for k in (0, 1))
    drawn: pa.Table | None = {TRUE_ROWS: table, FRESH_ROWS: fresh}.get(job.method)
    costs: Mapping[Metric, float] = {}
    if drawn is None:
        seconds = read_seconds(job.settings) if job.method == AIM else None
        drawn, costs = _weigh(lambda: draw_rows(table, schema, job.epsilon, job.delta, job.plain_seed, seconds))
    if drawn is None:  # the peer was stopped
        return {}
    errors = {} if job.method == TRUE_ROWS else dict(zip(OF_MARGINS, margin_errors(table, drawn, schema), strict=True))
    return {Metric.SKELETON_F1: skeleton_f1(plain_pc(drawn, schema), network.dag()), **errors, **costs}


def _uncover(job: Job) -> Mapping[Metric, float]:
    rows = HiddenSample(job.source, job.n_rows, job.sample, job.plain_seed)
    seconds = read_seconds(job.settings)
    found, costs = _weigh(lambda: rows.search(job.method, job.epsilon, job.delta, job.redraws, seconds))
    if found is None:  # the peer was stopped
        return {}
    return {Metric.SKELETON_F1: skeleton_f1(found, rows.truth), Metric.MARK_F1: mark_f1(found, rows.truth), **costs}


def _read_reports(job: Job) -> Mapping[Metric, float]:
    source = read_reports(job.source)
    dag, _ = source.draw_law(np.random.default_rng(job.sample_seed))
    if job.role is not Role.FLOOR:
        evidence = open_reports(source, View(job.method), job.epsilon, job.n_rows, job.sample_seed)
        if source.is_null:
            rejected, costs = _weigh(lambda: rejects_null(evidence))
            return {Metric.REJECTED: float(rejected), **costs}
        found, costs = _weigh(lambda: find_pairs(evidence))
    elif source.is_null:
        return {Metric.REJECTED: LEVEL}
    else:
        found, costs = _floor(job, dag), {}
    return {metric: value for metric, value in score_graph(found, dag).items() if metric in OF_SKELETONS} | costs


_RUNS: Mapping[Task, Callable[[Job], Mapping[Metric, float]]] = {
    Task.GRAPH: _discover,
    Task.INDEPENDENCE: _test,
    Task.LOCAL: _search,
    Task.SITES: _share,
    Task.REPORTS: _read_reports,
    Task.SHIFTED_SITES: _shift,
    Task.PERSONS: _protect,
    Task.MEMBERSHIP: _attack,
    Task.SYNTHESIS: _synthesise,
    Task.HIDDEN_CAUSES: _uncover,
}


def _floor(job: Job, dag: Dag) -> Cpdag:
    return Cpdag.complete(dag.nodes) if job.method == COMPLETE else Cpdag.empty(dag.nodes)


def _weigh(work: Callable[[], Product]) -> tuple[Product, dict[Metric, float]]:
    """Do the work; return what came of it, and what it took."""
    reset_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    product = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return product, {Metric.CPU_SECONDS: cpu, Metric.WALL_SECONDS: wall, Metric.PEAK_MEMORY: read_peak()}

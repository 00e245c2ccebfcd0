"""How good the forecasts of `dagveil plan` are: predicted time and memory beside those of real runs."""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pyarrow import csv

from dagveil.data.machine import peak_memory
from dagveil.examples.networks import load_network, network_schema, sample_table
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.methods.method import METHODS
from dagveil.privacy.budget import Budget
from dagveil.progress import Progress
from dagveil.runs.cost import describe_bytes, describe_seconds, estimate_cost, work_of_run
from dagveil.runs.discovery import discover
from dagveil.runs.machine_speed import Speed
from dagveil.search.settings import SearchSettings
from dagveil_bench.tables import write_table

NETWORKS = ("cancer", "asia", "sachs", "child", "insurance", "alarm")  # six networks of the comparison


@dataclass(frozen=True, slots=True)
class Comparison:
    """Processor seconds and bytes of one run of `measure` from a CSV file: foreseen, and as they were."""

    network: str
    seconds: float
    real_seconds: float
    memory: float
    real_memory: float


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    network: str
    rows: int
    epsilon: float
    redraws: int


def compare_costs(cases: Sequence[Case], speed: Speed, told: Progress) -> list[Comparison]:
    """Foresee each case with the constants of this machine, then run it in a process of its own."""
    found = []
    method = METHODS["measure"]
    for done, case in enumerate(cases, start=1):
        schema = network_schema(load_network(case.network), case.rows)
        settings = method.read_settings(None)
        accounting = method.accounting(Budget.of(case.epsilon, "1e-6"), schema, settings, NO_KNOWLEDGE)
        work = work_of_run(schema, method, accounting, settings, NO_KNOWLEDGE, redraws=case.redraws)
        cost = estimate_cost(work, speed)
        # the other process has started and imported everything before its clock starts
        foreseen = cost.seconds - cost.steps[0].seconds
        # rows are made up here: that takes memory, and the run has none of it
        with TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            csv.write_csv(sample_table(load_network(case.network), case.rows, np.random.default_rng(1)), path)
            with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
                seconds, memory = pool.submit(run_case, case, path).result()
        found.append(Comparison(case.network, foreseen, seconds, cost.memory, memory))
        told("runs", done, len(cases))
    return found


def run_case(case: Case, path: Path) -> tuple[float, float]:
    """Run once on a CSV file, and return processor seconds and the most bytes that the process held."""
    schema = network_schema(load_network(case.network), case.rows)
    # libraries that are loaded at the first use are not the run's
    warm = network_schema(load_network("cancer"), 10)
    discover(
        sample_table(load_network("cancer"), 10, np.random.default_rng(1)),
        warm,
        case.epsilon,
        settings=SearchSettings(redraws=0),
        ledger=None,
    )
    start = time.process_time()
    discover(path, schema, case.epsilon, settings=SearchSettings(redraws=case.redraws), ledger=None)
    seconds = time.process_time() - start
    return seconds, peak_memory()


def cost_page(found: Sequence[Comparison], cases: Sequence[Case], command: str) -> str:
    """Write the page of the comparison."""
    first = cases[0]
    heads = ("network", "predicted time", "measured", "ratio", "predicted memory", "measured", "ratio")
    lines = []
    for one in found:
        times = (
            describe_seconds(one.seconds),
            describe_seconds(one.real_seconds),
            f"{one.seconds / one.real_seconds:.2f}",
        )
        memory = describe_bytes(one.memory), describe_bytes(one.real_memory), f"{one.memory / one.real_memory:.2f}"
        lines.append((one.network, *times, *memory))
    return "\n\n".join(
        [
            "# Forecasts of time and memory",
            f"`measure` on a CSV file of {first.rows} rows, ε = {first.epsilon:g}, {first.redraws} redraws, memory "
            "engine, one core. Time is processor time without the start of the program, with constants measured on "
            "this machine; memory is the most that the process held. Ratios near 1 are good. Written by",
            f"    {command}",
            write_table(heads, lines),
        ]
    )

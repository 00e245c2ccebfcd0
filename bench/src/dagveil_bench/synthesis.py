"""How close synthetic rows come to the rows behind the evidence: errors of margins, and the graph found in them."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import combinations
from types import FrameType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.schema import Schema
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.examples.networks import load_network, network_schema, sample_table
from dagveil.graphs.cpdag import Cpdag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.synthesis import synthesize
from dagveil_bench.peers import import_peer, keep_quiet
from dagveil_bench.tables import write_table

DELTA = "1e-6"

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows beside the true ones.

    `errors` are mean total variation distances of margins of one, two and three columns, `f1` that of the skeleton
    that plain PC finds in the rows, `seconds` those of the processor, from the true rows to the drawn ones.
    """

    errors: tuple[float, float, float]
    f1: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One run.

    - `f1_rows`: of plain PC on the true rows.
    - `fresh`: rows that were drawn afresh from the true network, which differ by chance alone.
    - `ours`: synthetic rows of dagveil.
    - `aim`: those of AIM; None if it was not asked for, or did not finish.
    """

    network: str
    f1_rows: float
    fresh: Drawn
    ours: Drawn
    aim: Drawn | None = None


def run_fidelity(network: str, rows: int, epsilon: float, seed: int, aim_seconds: float | None = None) -> Fidelity:
    """Measure a sample of a known network, draw as many synthetic rows, and compare the two."""
    known = load_network(network)
    schema = network_schema(known, rows)
    truth = known.dag()
    table, fresh = (sample_table(known, rows, np.random.default_rng([seed, part])) for part in (0, 1))

    def compared(drawn: pa.Table, seconds: float = 0.0) -> Drawn:
        return Drawn(margin_errors(table, drawn, schema), skeleton_f1(_plain_pc(drawn, schema), truth), seconds)

    began = time.process_time()
    evidence = measure_source(table, schema, epsilon, DELTA, ledger=None, noise=NoiseKind.SEEDED, seed=seed)
    drawn = synthesize(evidence, rows, seed=seed).table
    seconds = time.process_time() - began
    ours = compared(drawn.select(list(schema.columns)), seconds)
    aim = None
    if aim_seconds is not None:
        began = time.process_time()
        by_aim = draw_with_aim(table, rows, epsilon, seed, aim_seconds)
        seconds = time.process_time() - began
        aim = None if by_aim is None else compared(by_aim, seconds)
    return Fidelity(network, skeleton_f1(_plain_pc(table, schema), truth), compared(fresh), ours, aim)


def draw_with_aim(table: pa.Table, rows: int, epsilon: float, seed: int, seconds: float) -> pa.Table | None:
    """Draw rows with AIM as smartnoise-synth has it, with its defaults; None if it uses more processor time."""
    aim = import_peer("snsynth.aim", "aim")

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    np.random.seed(seed)  # noqa: NPY002 - the peer draws from NumPy's global generator
    usual = signal.signal(signal.SIGPROF, stop)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with keep_quiet(), redirect_stdout(StringIO()):
            made = aim.AIMSynthesizer(epsilon=epsilon, delta=float(DELTA))
            made.fit(table.to_pandas(), categorical_columns=table.column_names)
            drawn = made.sample(rows)
    except _OutOfTime:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, usual)
    return pa.Table.from_pandas(drawn, preserve_index=False).cast(table.schema)


class _OutOfTime(Exception):
    """The peer has used the processor time that it was given."""


def margin_errors(one: pa.Table, other: pa.Table, schema: Schema) -> tuple[float, float, float]:
    """Return the mean total variation distance of all margins of one, two and three columns."""
    first, second = (_encode(table, schema) for table in (one, other))
    sizes = [column.n_levels for column in schema.columns.values()]
    found = []
    for order in (1, 2, 3):
        distances = [
            float(np.abs(_law(first, sizes, chosen) - _law(second, sizes, chosen)).sum()) / 2.0
            for chosen in combinations(range(len(sizes)), order)
        ]
        found.append(float(np.mean(distances)))
    return found[0], found[1], found[2]


def _encode(table: pa.Table, schema: Schema) -> list[Codes]:
    place = {name: {label: code for code, label in enumerate(column.labels)} for name, column in schema.columns.items()}
    return [np.array([place[name][value] for value in table[name].to_pylist()]) for name in schema.columns]


def _law(codes: Sequence[Codes], sizes: Sequence[int], chosen: tuple[int, ...]) -> NDArray[np.float64]:
    cell, cells = np.zeros(len(codes[0]), dtype=np.int64), 1
    for column in chosen:
        cell = cell * sizes[column] + codes[column]
        cells *= sizes[column]
    return np.bincount(cell, minlength=cells) / len(cell)


def _plain_pc(table: pa.Table, schema: Schema) -> Cpdag:
    result = discover(table, schema, 1, method="pc", calibration=Calibration.NONE, ledger=None)
    return result.graph.cpdag


def compare_all(
    networks: Sequence[str], rows: int, epsilon: float, runs: int, told: Progress, aim_seconds: float | None = None
) -> list[Fidelity]:
    """Run each network several times."""
    found = []
    for done, (network, seed) in enumerate([(name, seed) for name in networks for seed in range(runs)]):
        told("drawing and comparing", done, len(networks) * runs)
        found.append(run_fidelity(network, rows, epsilon, seed, aim_seconds))
    told("drawing and comparing", len(found), len(found))
    return found


def synthesis_page(
    found: Sequence[Fidelity], rows: int, epsilon: float, command: str, aim_seconds: float | None = None
) -> str:
    """Write the page."""
    lines = []
    for network in dict.fromkeys(run.network for run in found):
        runs = [run for run in found if run.network == network]
        lines.append((network, "the true rows", *[""] * 3, f"{np.mean([run.f1_rows for run in runs]):.2f}", ""))
        lines.append((network, "fresh rows", *_means([run.fresh for run in runs])[:-1], ""))
        lines.append((network, "dagveil", *_means([run.ours for run in runs])))
        by_aim = [run.aim for run in runs if run.aim is not None]
        if by_aim:
            lines.append((network, "AIM", *_means(by_aim)))
        if aim_seconds is not None and len(by_aim) < len(runs):
            stopped = f"{len(runs) - len(by_aim)} of {len(runs)} stopped after {aim_seconds:g}"
            lines.append((network, "AIM", *[""] * 4, stopped))
    heads = ("network", "rows", "1-way", "2-way", "3-way", "F1", "seconds")
    runs_each = len(found) // max(len({run.network for run in found}), 1)
    return "\n".join(
        [
            "# Synthetic rows",
            "",
            "```text",
            command,
            "```",
            "",
            f"{rows} rows of each network, as many synthetic rows at ε = {epsilon:g}, δ = {DELTA}, means over "
            f"{runs_each} {'run' if runs_each == 1 else 'runs'}.",
            "",
            "Errors are mean total variation distances, from 0 to 1, between these and the true rows over all "
            "sets of one, two and three columns. Fresh rows come from the true network, and differ by "
            "chance alone. F1 is that of the skeleton that plain PC finds in the rows. "
            "Seconds are of the processor, from the true rows to the drawn ones.",
            "",
            write_table(heads, lines),
            *(_AIM_NOTE if aim_seconds is not None else ()),
        ]
    )


_AIM_NOTE = (
    "",
    "AIM (McKenna and others, 2022) is the one of smartnoise-synth on the package mbi, with its defaults: it measures "
    "pairs, and takes the levels from the rows.",
)


def _means(drawn: Sequence[Drawn]) -> tuple[str, ...]:
    errors = np.mean([each.errors for each in drawn], axis=0)
    f1, seconds = (float(np.mean([getattr(each, name) for each in drawn])) for name in ("f1", "seconds"))
    return (*(f"{error:.4f}" for error in errors), f"{f1:.2f}", f"{seconds:.2f}")

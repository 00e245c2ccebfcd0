"""How close synthetic rows come to the rows behind the evidence: errors of margins, and the graph found in them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.schema import Schema
from dagveil.graphs.cpdag import Cpdag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.synthesis import synthesize
from dagveil_bench.peers import finish_within, import_peer

OURS, AIM = "dagveil", "AIM"
TRUE_ROWS, FRESH_ROWS = "the true rows", "fresh rows"  # fresh ones are of the same network, and differ by chance alone

Codes = NDArray[np.int64]


def draw_rows(
    table: pa.Table, schema: Schema, epsilon: float, delta: float, seed: int, aim_seconds: float | None = None
) -> pa.Table | None:
    """Measure a table and draw as many synthetic rows; with AIM, in so many seconds, None if they do not suffice."""
    if aim_seconds is not None:
        return _draw_with_aim(table, epsilon, delta, seed, aim_seconds)
    evidence = measure_source(table, schema, epsilon, delta, ledger=None, noise=NoiseKind.SEEDED, seed=seed)
    return synthesize(evidence, table.num_rows, seed=seed).table.select(list(schema.columns))


def _draw_with_aim(table: pa.Table, epsilon: float, delta: float, seed: int, seconds: float) -> pa.Table | None:
    """Draw rows with AIM as smartnoise-synth has it, with its defaults."""
    aim = import_peer("snsynth.aim", "aim")
    np.random.seed(seed)  # noqa: NPY002 - the peer draws from NumPy's global generator

    def draw() -> pa.Table:
        made = aim.AIMSynthesizer(epsilon=epsilon, delta=delta)
        made.fit(table.to_pandas(), categorical_columns=table.column_names)
        return made.sample(table.num_rows)

    drawn = finish_within(seconds, draw)
    return None if drawn is None else pa.Table.from_pandas(drawn, preserve_index=False).cast(table.schema)


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


def plain_pc(table: pa.Table, schema: Schema) -> Cpdag:
    """Return the graph of PC on the rows, without privacy."""
    result = discover(table, schema, 1, method="pc", calibration=Calibration.NONE, ledger=None)
    return result.graph.cpdag

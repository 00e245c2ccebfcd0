"""How close synthetic rows come to the rows behind the evidence: errors of margins, and the graph found in them."""

from itertools import combinations

import numpy as np
import pyarrow as pa

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.graphs.cpdag import Cpdag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.synthesis import synthesize
from dagveil_bench.peers import finish_within, import_peer

OURS, AIM = "dagveil", "AIM"
TRUE_ROWS, FRESH_ROWS = "the true rows", "fresh rows"  # fresh ones are of the same network, and differ by chance alone


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
    tables = [MemoryTable.from_source(rows, schema) for rows in (one, other)]
    found = []
    for order in (1, 2, 3):
        distances = []
        for chosen in combinations(schema.columns, order):
            first, second = (table.counts(chosen).ravel() / table.n_rows for table in tables)
            distances.append(float(np.abs(first - second).sum()) / 2.0)
        found.append(float(np.mean(distances)))
    return found[0], found[1], found[2]


def plain_pc(table: pa.Table, schema: Schema) -> Cpdag:
    """Return the graph of PC on the rows, without privacy."""
    result = discover(table, schema, 1, method="pc", calibration=Calibration.NONE, ledger=None)
    return result.graph.cpdag

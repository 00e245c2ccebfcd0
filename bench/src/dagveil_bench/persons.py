"""Persons with 1 to 50 records: what an attacker learns about one, and what protecting persons costs in utility.

Each record follows a known network by itself; a person's records repeat the first one with a certain probability, so
that they are alike. Protected rows, one record of each person, weights, and truncation are run on the same rows.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from dagveil.curator import Curator
from dagveil.data.engine import choose_engine
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.examples.networks import Network, network_schema, sample_table
from dagveil.graphs.cpdag import Cpdag
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import GaussianFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.runs.discovery import discover
from dagveil_bench.levels import Unrecorded

MOST_RECORDS = 50
ALIKE = 0.7  # probability that a record repeats the first one of its person
TRUNCATED = 5  # records that truncation keeps of each person
TRIALS = 100  # of an attack, in each run
UNITS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"rows": {}, "one": {"person": "person"}, "weigh": {"person": "person", "records": "weigh"}}
)
"""What the schema says of persons, by what is protected."""
TRUNCATION = "truncate"
WAYS: Final = (*UNITS, TRUNCATION)


def draw_visits(network: Network, persons: int, rng: np.random.Generator) -> pa.Table:
    """Draw a table of 1 to 50 records per person."""
    sizes = rng.integers(1, MOST_RECORDS + 1, persons)
    owners = np.repeat(np.arange(persons), sizes)
    starts = np.cumsum(sizes) - sizes
    fresh = sample_table(network, len(owners), rng)
    own = np.arange(len(owners))
    repeated = np.where(rng.random(len(owners)) < ALIKE, starts[owners], own)
    return fresh.take(repeated).append_column("person", pa.array(owners))


def truncate(visits: pa.Table, most: int, rng: np.random.Generator) -> pa.Table:
    """Keep so many records of each person, at random."""
    shuffled = visits.take(rng.permutation(visits.num_rows))
    owners = shuffled["person"].to_numpy()
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(owners[order]) > 0]))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return shuffled.take(order[rank < most])


def declare(network: Network, rows: int, **persons: Any) -> Schema:
    """Return the schema of the visits."""
    return msgspec.structs.replace(network_schema(network, rows), **persons)


def search_visits(
    network: Network, visits: pa.Table, way: str, persons: int, epsilon: float, delta: float, seed: int
) -> Cpdag:
    """Discover the graph; rows are protected, or persons in one of the ways.

    Truncation gives each record so small a budget that a person with all the kept ones has the whole.
    """
    if way == TRUNCATION:
        visits = truncate(visits, TRUNCATED, np.random.default_rng(seed))
        epsilon /= TRUNCATED
        delta /= TRUNCATED * math.exp((TRUNCATED - 1) * epsilon)
    unit = UNITS.get(way, {})
    schema = declare(network, persons if unit else visits.num_rows, **unit)
    found = discover(visits, schema, epsilon, delta, ledger=None, noise=NoiseKind.SEEDED, seed=seed)
    return found.graph.cpdag


class _Silent:
    """Draws nothing, so that what a release would be without noise is known; the rest is that of a real source."""

    def __init__(self) -> None:
        self._real = noise_source(NoiseKind.SEEDED, seed=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def discrete_gaussian(self, variance: Fraction, size: int) -> Any:
        """Draw zeros."""
        return np.zeros(size, dtype=np.int64)


def attack(network: Network, unit: str, persons: int, budget: Budget, seed: int, noise_seeds: range) -> float:
    """Tell from margins and all pairs whether a person with 50 equal records is in a table of so many persons.

    The attacker knows all other records and the law of the noise, and goes by the likelihood ratio. Returns the
    advantage: true positives less false ones; 0 is chance, 1 is certainty.
    """
    rng = np.random.default_rng(seed)
    others = draw_visits(network, persons, rng)
    target = sample_table(network, 1, rng).take([0] * MOST_RECORDS)
    person = target.append_column("person", pa.array([persons] * MOST_RECORDS))
    schema = declare(network, persons, **UNITS[unit])
    key = bytes(32)
    tables = [choose_engine(rows).open(schema, key) for rows in (others, pa.concat_tables([others, person]))]
    without, added = (_release(table, schema, budget, _Silent()) for table in tables)
    moved = (added[0] - without[0]) / np.sqrt(without[1])
    guessed = []
    for trial in noise_seeds:
        inside = trial % 2
        seen, variances = _release(tables[inside], schema, budget, noise_source(NoiseKind.SEEDED, seed=trial))
        ratio = ((seen - without[0]) / np.sqrt(variances)) @ moved - 0.5 * (moved @ moved)
        guessed.append((ratio > 0) == inside)
    return 2 * float(np.mean(guessed)) - 1


def _release(table: Table, schema: Schema, budget: Budget, noise: Any) -> tuple[Any, Any]:
    curator = Curator(table, Relation.ADD_REMOVE, GaussianFilter(budget), Unrecorded(), noise)
    half = Fraction(1, 2)
    margins = curator.margins(list(schema.columns), half, "margins")
    pairs = curator.interactions(list(combinations(schema.columns, 2)), half, "pairs")
    values = [np.array(one.values, dtype=np.float64) / one.lattice for one in (*margins, *pairs)]
    variances = [np.full(len(one.values), float(one.variance) / one.lattice**2) for one in (*margins, *pairs)]
    return np.concatenate(values), np.concatenate(variances)

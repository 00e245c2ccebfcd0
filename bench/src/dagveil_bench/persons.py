"""Persons with 1 to 50 records: what an attacker learns about one, and what protecting persons costs in utility.

Each record follows a known network by itself; a person's records repeat the first one with a certain probability, so
that they are alike. Protected rows, one record of each person, weights, and truncation are run on the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dagveil.curator import Curator
from dagveil.data.engine import choose_engine
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.examples.networks import Network, network_schema, sample_table
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import Event, GaussianFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import bound_advantage
from dagveil.progress import Progress, silent
from dagveil.runs.discovery import discover

MOST_RECORDS = 50
ALIKE = 0.7  # probability that a record repeats the first one of its person
TRUNCATED = 5  # records that truncation keeps of each person
DELTA = Fraction(1, 10**6)


@dataclass(frozen=True, slots=True)
class Attack:
    """How often an attacker told that a person is in the table, and that a person is not."""

    words: str
    advantage: float
    deviation: float


@dataclass(frozen=True, slots=True)
class PersonStudy:
    """Skeleton F1 by way and number of persons, and attacks."""

    network: str
    epsilon: float
    runs: int
    trials: int
    scores: Mapping[str, Mapping[int, list[float]]]
    attacks: tuple[Attack, ...]


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


def run_persons(
    network: Network, sizes: list[int], epsilon: float, runs: int, trials: int, progress: Progress = silent
) -> PersonStudy:
    """Run all ways on the same tables, then attack a person with 50 records."""
    ways = list_ways(epsilon)
    scores: dict[str, dict[int, list[float]]] = {words: {} for words in ways}
    steps = [(size, run) for size in sizes for run in range(runs)]
    for done, (size, run) in enumerate(steps):
        progress("runs", done, len(steps))
        visits = draw_visits(network, size, np.random.default_rng([size, run]))
        for words, way in ways.items():
            found = way(network, visits, size, run)
            scores[words].setdefault(size, []).append(skeleton_f1(found, network.dag().cpdag()))
    attacks = tuple(
        attack(network, words, persons, epsilon, trials)
        for words, persons in (
            ("rows", {}),
            ("persons, one record", {"person": "person"}),
            ("persons, weights", {"person": "person", "records": "weigh"}),
        )
    )
    return PersonStudy(network.name, epsilon, runs, trials, scores, attacks)


Way = Callable[[Network, pa.Table, int, int], Any]


def list_ways(epsilon: float) -> dict[str, Way]:
    """Return what is compared, by name."""

    def search(source: pa.Table, schema: Schema, budget: tuple[float, float], seed: int) -> Any:
        options: Any = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": seed}
        return discover(source, schema, epsilon=budget[0], delta=budget[1], **options).graph.cpdag

    def by_persons(**rule: str) -> Way:
        def run(network: Network, visits: pa.Table, size: int, seed: int) -> Any:
            schema = declare(network, size, person="person", **rule)
            return search(visits, schema, (epsilon, float(DELTA)), seed)

        return run

    def by_rows(network: Network, visits: pa.Table, size: int, seed: int) -> Any:
        return search(visits, declare(network, visits.num_rows), (epsilon, float(DELTA)), seed)

    def by_truncation(network: Network, visits: pa.Table, size: int, seed: int) -> Any:
        kept = truncate(visits, TRUNCATED, np.random.default_rng(seed))
        share = epsilon / TRUNCATED
        delta = float(DELTA) / (TRUNCATED * math.exp((TRUNCATED - 1) * share))
        return search(kept, declare(network, kept.num_rows), (share, delta), seed)

    return {
        "rows protected, all records (no promise to persons)": by_rows,
        '`records = "one"`': by_persons(),
        '`records = "weigh"`': by_persons(records="weigh"),
        f"{TRUNCATED} records of each person, noise for {TRUNCATED}": by_truncation,
    }


class _Silent:
    """Draws nothing, so that what a release would be without noise is known; the rest is that of a real source."""

    def __init__(self) -> None:
        self._real = noise_source(NoiseKind.SEEDED, seed=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def discrete_gaussian(self, variance: Fraction, size: int) -> Any:
        """Draw zeros."""
        return np.zeros(size, dtype=np.int64)


class _Unrecorded:
    def record(self, event: Event) -> None:
        """Forget the event: these rows are made up."""


def attack(network: Network, words: str, persons: Mapping[str, Any], epsilon: float, trials: int) -> Attack:
    """Tell from margins and all pairs whether a person with 50 equal records is in a table of 2000 persons.

    The attacker knows all other records and the law of the noise, and goes by the likelihood ratio.
    """
    rng = np.random.default_rng(5)
    others = draw_visits(network, 2000, rng)
    target = sample_table(network, 1, rng).take([0] * MOST_RECORDS)
    person = target.append_column("person", pa.array([2000] * MOST_RECORDS))
    schema = declare(network, 2000, **persons)
    key = bytes(32)
    tables = [choose_engine(rows).open(schema, key) for rows in (others, pa.concat_tables([others, person]))]
    without, added = (_release(table, schema, epsilon, _Silent()) for table in tables)
    moved = (added[0] - without[0]) / np.sqrt(without[1])
    guessed = []
    for trial in range(trials):
        inside = trial % 2
        seen, variances = _release(tables[inside], schema, epsilon, noise_source(NoiseKind.SEEDED, seed=trial))
        ratio = ((seen - without[0]) / np.sqrt(variances)) @ moved - 0.5 * (moved @ moved)
        guessed.append((ratio > 0) == inside)
    right = float(np.mean(guessed))
    return Attack(words, 2 * right - 1, 2 * math.sqrt(right * (1 - right) / trials))


def _release(table: Table, schema: Schema, epsilon: float, noise: Any) -> tuple[Any, Any]:
    accounting = GaussianFilter(Budget.of(epsilon, float(DELTA)))
    curator = Curator(table, Relation.ADD_REMOVE, accounting, _Unrecorded(), noise)
    half = Fraction(1, 2)
    margins = curator.margins(list(schema.columns), half, "margins")
    pairs = curator.interactions(list(combinations(schema.columns, 2)), half, "pairs")
    values = [np.array(one.values, dtype=np.float64) / one.lattice for one in (*margins, *pairs)]
    variances = [np.full(len(one.values), float(one.variance) / one.lattice**2) for one in (*margins, *pairs)]
    return np.concatenate(values), np.concatenate(variances)


def persons_page(study: PersonStudy, command: str) -> str:
    """Write the page."""
    sizes = sorted({size for by_size in study.scores.values() for size in by_size})
    bound = bound_advantage(study.epsilon, float(DELTA))
    lines = [
        "# Persons with 1 to 50 records",
        "",
        f"Rows of {study.network}: each person has 1 to {MOST_RECORDS} records, all numbers equally likely; each "
        f"record follows the network by itself, and with probability {ALIKE:g} it repeats the person's first one. "
        f"ε = {study.epsilon:g}, δ = 1e-6, add/remove, `measure`.",
        "",
        f"    {command}",
        "",
        "## What an attacker learns about a person with 50 equal records",
        "",
        "The attacker knows all other records of 2000 persons, sees noisy margins and interactions of all pairs, and "
        f"goes by the likelihood ratio. Membership advantage: true positives less false ones, {study.trials} trials; "
        "0 is chance, 1 is certainty.",
        "",
        "| protected | advantage | bound for a person |",
        "|---|---|---|",
        *(
            f"| {one.words} | {one.advantage:.2f} ± {one.deviation:.2f} | {1 if one.words == 'rows' else bound:.2f} |"
            for one in study.attacks
        ),
        "",
        "## What it costs",
        "",
        f"Skeleton F1 against the network, mean and standard error of {study.runs} tables. Truncation gives each "
        f"record ε/{TRUNCATED}, so that a person with {TRUNCATED} records has ε.",
        "",
        f"| | {' | '.join(f'{size} persons' for size in sizes)} |",
        f"|---|{'---|' * len(sizes)}",
        *(
            f"| {words} | {' | '.join(_write(by_size[size]) for size in sizes)} |"
            for words, by_size in study.scores.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _write(scores: list[float]) -> str:
    error = float(np.std(scores, ddof=1)) / math.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return f"{np.mean(scores):.2f} ± {error:.2f}"

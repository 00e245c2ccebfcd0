"""What the tests of the curator share: rows, and filters, runs and noise that write down what happens."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

import numpy as np
import pytest

from dagveil.curator import Curator, gate
from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import LedgerError
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import DiscreteLaplace, Event, Filter, Unbounded
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source

AnyFilter = TypeVar("AnyFilter", bound=Filter)

ROWS = 300


def make_schema(**levels: int) -> Schema:
    columns = {name: Categorical(tuple(f"v{i}" for i in range(size)), "v0") for name, size in levels.items()}
    return Schema(dataset="asked", columns=columns, reviewed=True, nominal_rows=ROWS)


def make_rows(schema: Schema, n_rows: int, seed: int = 0) -> MemoryTable:
    """Return rows in which neighbouring columns are dependent."""
    rng = np.random.default_rng(seed)
    codes: dict[str, np.ndarray] = {}
    last = rng.random(n_rows)
    for name, column in schema.columns.items():
        last = np.where(rng.random(n_rows) < 0.4, last, rng.random(n_rows))
        codes[name] = (last * column.n_levels).astype(np.uint8)
    return MemoryTable.from_codes(codes, schema)


def open_curator(
    table: MemoryTable, accounting: Filter, relation: Relation = Relation.ADD_REMOVE, seed: int = 1
) -> Curator:
    """Return a curator with a ledger in memory and seeded noise."""
    terms = Terms.of(Relation.ADD_REMOVE, "one row")
    run = MemoryLedger().reserve("numbers", accounting.budget, terms, "pure accounting", "test", "test")
    return Curator(table, relation, accounting, run, noise_source(NoiseKind.SEEDED, seed))


def spy_on(accounting: AnyFilter, log: list[str]) -> AnyFilter:
    """Let a filter write down that it charged."""
    charge = accounting.charge

    def spied(event: Event) -> None:
        charge(event)
        log.append("charge")

    accounting.charge = spied
    return accounting


class SpyRun:
    def __init__(self, log: list[str], fails: bool = False) -> None:
        self.log = log
        self.fails = fails
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        if self.fails:
            raise LedgerError("the disk is full")
        self.events.append(event)
        self.log.append("record")


class SpyNoise:
    """Noise that is zero, and refuses to be drawn before the ledger holds the charge that pays for it."""

    name = "spy"
    private = True

    def __init__(self, log: list[str], run: SpyRun) -> None:
        self.log = log
        self.run = run
        self.drawn = 0

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        assert isinstance(self.run.events[-1], DiscreteLaplace)
        assert size == self.run.events[-1].draws
        return np.zeros(size, dtype=np.int64)

    def discrete_gaussian(self, variance: Fraction, size: int) -> np.ndarray:
        assert self.run.events, "noise was drawn before the ledger held its charge"
        event = self.run.events[-1]
        assert variance >= event.variance
        self.drawn += size
        assert self.drawn <= sum(event.draws for event in self.run.events if not isinstance(event, Unbounded))
        self.log.append("draw")
        return np.zeros(size, dtype=np.int64)


def capture_scores(monkeypatch: pytest.MonkeyPatch) -> list[list[Fraction]]:
    """Note what the exponential mechanism is given, in records, and choose the first."""
    seen: list[list[Fraction]] = []

    def choose(scores: list[Fraction], epsilon: Fraction, *rest: object) -> int:
        seen.append(scores)
        return 0

    monkeypatch.setattr(gate.exponential, "choose", choose)
    return seen

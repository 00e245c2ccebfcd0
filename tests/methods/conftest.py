"""Sampled tables, and runs of asking methods at a curator of their own, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import ndtr

from dagveil.curator import Curator, Question
from dagveil.data.memory import MemoryTable
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import method_named
from dagveil.papers.publication import PublishedAccess, read_settings, readings_of, require_reading
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent
from dagveil.statistics.kendall import Kendall
from dagveil.statistics.statistic import TableShape

Sampled = Callable[..., MemoryTable]

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")


@pytest.fixture(scope="session")
def sampled() -> Sampled:
    """Return a function that gives rows of a network, with public facts of their schema replaced on demand."""

    @cache
    def codes_of(name: str, n_rows: int) -> dict[str, np.ndarray]:
        return sample_codes(load_network(name), n_rows, np.random.default_rng(0))

    def make(name: str, n_rows: int, **facts: Any) -> MemoryTable:
        schema = msgspec.structs.replace(network_schema(load_network(name), n_rows), **facts)
        return MemoryTable.from_codes(codes_of(name, n_rows), schema)

    return make


@pytest.fixture(scope="session")
def ask_method() -> Callable[..., tuple[Asked, Curator]]:
    """Return a function that runs a sound asking method on a table with seeded noise."""

    def ask(
        method: str,
        table: MemoryTable,
        epsilon: object,
        delta: object = 1e-6,
        seed: int = 0,
        knowledge: Knowledge | None = None,
        make_curator: Callable[..., Curator] = Curator,
        **options: Any,
    ) -> tuple[Asked, Curator]:
        chosen = method_named(method)
        settings = chosen.read_settings(options)
        budget = Budget.of(epsilon, delta)
        knowledge = knowledge or Knowledge.none()
        accounting = chosen.accounting(budget, table.schema, settings, knowledge)
        run = MemoryLedger().reserve("asked", budget, TERMS, "pure accounting", method, "test")
        noise = noise_source(NoiseKind.SEEDED, seed)
        curator = make_curator(table, Relation(table.schema.relation), accounting, run, noise)
        assert chosen.ask is not None
        return chosen.ask(curator, knowledge, settings, silent), curator

    return ask


@pytest.fixture(scope="session")
def publish_method() -> Callable[..., Asked]:
    """Return a function that runs a reading of a publication on a table: the first, unless it is named."""

    def publish(
        method: str,
        table: MemoryTable,
        epsilon: object,
        seed: int = 0,
        knowledge: Knowledge | None = None,
        calibration: Calibration | None = None,
        **options: Any,
    ) -> Asked:
        chosen = method_named(method)
        calibration = calibration or next(iter(readings_of(method)))
        settings = read_settings(chosen, calibration, options)
        access = PublishedAccess(table, np.random.default_rng(seed))
        return require_reading(chosen, calibration).publish(
            access, Budget.of(epsilon, 0), knowledge or Knowledge.none(), settings, silent
        )

    return publish


@pytest.fixture(scope="session")
def exact_kendall() -> Callable[..., Callable[[Question], float]]:
    """Return a function that gives the p-value of every question, without noise: the program's, or the text's."""

    def tests_of(table: MemoryTable, reading: Calibration = Calibration.PROGRAM) -> Callable[[Question], float]:
        tests = PublishedAccess(table, np.random.default_rng(0))
        return tests.kendall if reading is Calibration.PROGRAM else lambda question: float(ndtr(-tests.score(question)))

    return tests_of


@pytest.fixture(scope="session")
def exact_scores() -> Callable[..., Callable[[Question, float], bool]]:
    """Return a function that decides questions as the sound methods would without noise, by Kendall's statistic."""

    def decide_by(table: MemoryTable) -> Callable[[Question, float], bool]:
        statistic = Kendall(table.n_rows)
        shares = {name: table.counts((name,)) / table.n_rows for name in table.schema.columns}

        def is_independent(question: Question, level: float = 0.01) -> bool:
            x, y, given = question
            counts = table.counts((*given, x, y))
            shape = TableShape(int(np.prod(counts.shape[:-2])), *counts.shape[-2:])
            ties = float(np.prod([1.0 - (shares[name] ** 3).sum() for name in (x, y)]))
            value = int(statistic.values(counts.reshape(shape)))
            return value <= statistic.critical_value(level, table.n_rows, shape, ties)

        return is_independent

    return decide_by

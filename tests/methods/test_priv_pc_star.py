"""`priv-pc-star`: sound, it is `measure` on numeric columns; as published, noise on the correlation matrix."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dagveil.data.memory import MemoryTable
from dagveil.errors import MethodError
from dagveil.examples.networks import gaussian_schema, random_linear_gaussian, sample_linear_gaussian
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import describe_sweep
from dagveil.papers.publication import PublishedAccess
from dagveil.papers.xu2017 import exact_correlations, published_covariance_sensitivity
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import discover, measure_source
from dagveil.search.constraint.pc import prune
from dagveil.search.settings import SearchSettings

SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 0}
NOTHING = Knowledge.none()
ROWS = 5000


@pytest.fixture(scope="module")
def rows() -> tuple[MemoryTable, np.ndarray]:
    rng = np.random.default_rng(0)
    model = random_linear_gaussian(6, 0.4, rng)
    sample = sample_linear_gaussian(model, ROWS, rng)
    schema = gaussian_schema(model, ROWS)
    return MemoryTable.from_source(dict(zip(schema.columns, sample.T, strict=True)), schema), sample


def test_other_columns_are_refused(sampled: Any) -> None:
    table = sampled("cancer", 100)
    with pytest.raises(MethodError, match="numeric columns without bins only"):
        discover(table, table.schema, 1, method="priv-pc-star", ledger=None)


def test_sound_is_measure(rows: tuple[MemoryTable, np.ndarray]) -> None:
    table, _ = rows
    quick = SearchSettings(redraws=0)
    ours, theirs = (
        discover(table, table.schema, 1, method=method, settings=quick, **SEEDED)
        for method in ("priv-pc-star", "measure")
    )
    assert ours.graph == theirs.graph
    assert ours.receipt == theirs.receipt
    assert ours.method.name == "priv-pc-star"
    assert measure_source(table, table.schema, 1, method="priv-pc-star", **SEEDED).method == "priv-pc-star"


def test_exact_correlations(rows: tuple[MemoryTable, np.ndarray]) -> None:
    table, sample = rows
    bounds = np.array([column.bounds for column in table.schema.columns.values()])
    inside = np.clip(sample, bounds[:, 0], bounds[:, 1])
    found = exact_correlations(PublishedAccess(table, np.random.default_rng(0)))
    assert np.abs(found - np.corrcoef(inside.T)).max() < 1e-3


def test_paper_without_noise_is_pc(rows: tuple[MemoryTable, np.ndarray], publish_method: Any) -> None:
    table, _ = rows
    columns = tuple(table.schema.columns)
    correlations = exact_correlations(PublishedAccess(table, np.random.default_rng(0)))

    def is_independent(question: tuple[str, str, tuple[str, ...]]) -> bool:
        x, y, given = question
        chosen = [columns.index(name) for name in (x, y, *given)]
        precision = np.linalg.inv(correlations[np.ix_(chosen, chosen)])
        partial = -precision[0, 1] / math.sqrt(precision[0, 0] * precision[1, 1])
        return 2 * norm.sf(math.sqrt(ROWS - len(given) - 3) * abs(math.atanh(partial))) >= 0.01

    sweep = prune(columns, is_independent, 4, NOTHING)
    asked = publish_method("priv-pc-star", table, 10**9)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions
    assert asked.reported == (1e9, 0.0)


def test_noise_that_leaves_no_covariance_is_no_crash(rows: tuple[MemoryTable, np.ndarray], publish_method: Any) -> None:
    for seed in range(5):
        assert publish_method("priv-pc-star", rows[0], 1e-4, seed=seed).graph.is_valid()


def test_ordinary_records_exceed_the_stated_sensitivity() -> None:
    """Take one standard normal record away: about one in seven changes the matrix by more than is stated."""
    rng = np.random.default_rng(0)
    columns, n_rows, tries = 4, 1000, 2000
    stated = published_covariance_sensitivity(columns, n_rows)
    upper = np.triu_indices(columns)
    exceeded = 0
    for record in rng.standard_normal((tries, columns)):
        moved = np.outer(record, record)[upper] / (n_rows - 1)
        exceeded += np.abs(moved).sum() > stated
    assert 0.05 < exceeded / tries < 0.35
    assert stated == 10 / 999
    assert len(list(combinations(range(columns), 2))) + columns == 10

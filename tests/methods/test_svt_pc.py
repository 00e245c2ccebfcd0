"""`svt-pc`: without noise it is PC, question for question; with noise every round is paid for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dagveil.curator import Curator
from dagveil.errors import BudgetExceededError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, describe_sweep
from dagveil.papers.publication import advanced_composition, largest_published_order
from dagveil.papers.wang2020 import SparseVector
from dagveil.privacy.events import SparseVectorRound
from dagveil.privacy.receipt import Calibration
from dagveil.search.constraint.pc import Traversal, prune

NETWORKS = ("asia", "cancer", "survey")
NOTHING = Knowledge.none()
Ask = Callable[..., tuple[Asked, Curator]]


@pytest.mark.parametrize("reading", [Calibration.PAPER, Calibration.PROGRAM])
@pytest.mark.parametrize("network", NETWORKS)
def test_as_published_without_noise_is_pc(
    network: str, reading: Calibration, sampled: Any, publish_method: Any, exact_kendall: Any
) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    p_value = exact_kendall(table, reading)
    largest = largest_published_order(20_000, len(columns))
    sweep = prune(columns, lambda question: p_value(question) >= 0.10, largest, NOTHING)
    options = {} if reading is Calibration.PAPER else {"round_epsilon": 1e9}
    asked = publish_method("svt-pc", table, 1e9, calibration=reading, **options)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions


@pytest.mark.parametrize("network", NETWORKS)
def test_sound_without_noise_is_pc(network: str, sampled: Any, ask_method: Ask, exact_scores: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    sweep = prune(columns, exact_scores(table), 2, NOTHING, Traversal.ONCE)
    asked, curator = ask_method("svt-pc", table, 1e6)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions
    removed = len(sweep.skeleton.separators)
    rounds = [event for event in curator.events if isinstance(event, SparseVectorRound)]
    # a round for each removed edge, and one more unless the last question removed one
    assert len(rounds) in (removed, removed + 1)
    assert asked.unanswered == ()


def test_the_last_round_is_paid_for(sampled: Any, ask_method: Ask) -> None:
    """Nothing is removed, and yet the round that never ended costs its epsilon: the publication charges nothing."""
    table = sampled("asia", 2000)
    asked, curator = ask_method("svt-pc", table, 1, statistic="g", slack=-1e6)
    assert len(asked.graph.directed) + len(asked.graph.undirected) == 28
    assert asked.questions > 28
    (event,) = curator.events
    assert isinstance(event, SparseVectorRound)
    assert curator.accounting.spent == curator.accounting.cost(event) > 0


def test_the_budget_is_divided_into_rounds(sampled: Any, ask_method: Ask) -> None:
    table = sampled("asia", 2000)
    for rounds in (1, 5):
        asked, curator = ask_method("svt-pc", table, 1, statistic="g", rounds=rounds, slack=1e6)
        # everything looks independent: every question ends a round, until the budget is spent
        assert len(curator.events) == asked.questions == rounds
        assert len(asked.unanswered) == 28 - rounds
        assert float(curator.accounting.spent / curator.accounting.total) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_publication_would_report(seed: int, sampled: Any, publish_method: Any) -> None:
    table = sampled("asia", 2000)
    asked = publish_method("svt-pc", table, 4, seed=seed, calibration=Calibration.PROGRAM)
    removed = 28 - len(asked.graph.directed) - len(asked.graph.undirected)
    epsilon, delta = asked.reported
    # a hit removes an edge; the round epsilon is the run's over twice the columns
    assert epsilon == pytest.approx(advanced_composition(4 / 16, removed, 1e-3))
    assert delta == 1e-3


def test_algorithm_5_stops_at_its_quota(sampled: Any, publish_method: Any) -> None:
    table = sampled("asia", 20_000)
    asked = publish_method("svt-pc", table, 1e9, quota=3)
    assert 28 - len(asked.graph.directed) - len(asked.graph.undirected) == 3
    assert asked.unanswered
    assert asked.reported == (1e9, 0.0)
    assert publish_method("svt-pc", table, 1, delta=1e-4).reported == (1.0, 1e-4)


@pytest.mark.parametrize(("delta", "scale"), [(0.0, 2 * 50 / 0.5), (1e-3, math.sqrt(32 * 50 * math.log(1000)) / 0.5)])
def test_the_noise_of_algorithm_5(delta: float, scale: float) -> None:
    """Pairs of 0 against a threshold of 0 pass half of the time; far ones by the tail of two Laplace laws."""
    vector = SparseVector(0.0, 50, 0.5, delta, 3.0, np.random.default_rng(0))
    assert vector.scale == pytest.approx(3.0 * scale)
    rng = np.random.default_rng(1)
    tries = [SparseVector(vector.scale, 1, 2.0, 0.0, vector.scale, rng).passes(0.0) for _ in range(20_000)]
    # P(Lap(2) - Lap(1) >= 1), by convolution
    assert np.mean(tries) == pytest.approx((4 * math.exp(-0.5) - math.exp(-1)) / 6, abs=0.012)
    for _ in range(50):
        assert vector.passes(math.inf)
    with pytest.raises(BudgetExceededError, match="quota"):
        vector.passes(0.0)

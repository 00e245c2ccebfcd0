"""`sampled-gaussian-pc`: without noise and sub-samples it is PC; every question is charged, and the plan is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from dagveil.curator import Curator
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, describe_sweep
from dagveil.papers.publication import largest_published_order
from dagveil.privacy.events import SubsampledGaussian
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover
from dagveil.search.constraint.pc import Traversal, prune

NETWORKS = ("asia", "cancer", "survey")
NOTHING = Knowledge.none()
Ask = Callable[..., tuple[Asked, Curator]]


@pytest.mark.parametrize("network", NETWORKS)
def test_sound_without_noise_is_pc(network: str, sampled: Any, ask_method: Ask, exact_scores: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    sweep = prune(columns, exact_scores(table), 2, NOTHING, Traversal.ONCE)
    asked, curator = ask_method("sampled-gaussian-pc", table, 1e6, rate=1, questions=200)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions
    assert sum(isinstance(event, SubsampledGaussian) for event in curator.events) == sweep.questions


@pytest.mark.parametrize("network", NETWORKS)
def test_paper_without_noise_is_pc(network: str, sampled: Any, publish_method: Any, exact_kendall: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    p_value = exact_kendall(table, Calibration.PAPER)
    largest = largest_published_order(20_000, len(columns))
    sweep = prune(columns, lambda question: p_value(question) >= 0.10, largest, NOTHING)
    asked = publish_method("sampled-gaussian-pc", table, 1e9, rate=1)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions


@pytest.mark.parametrize("statistic", ["g", "kendall"])
@pytest.mark.parametrize("questions", [1, 7])
def test_the_planned_questions_are_answered_and_no_more(
    statistic: str, questions: int, sampled: Any, ask_method: Ask
) -> None:
    table = sampled("asia", 2000)
    asked, curator = ask_method("sampled-gaussian-pc", table, 1, questions=questions, statistic=statistic)
    # margins may have been paid for before: the plan leaves them room
    assert questions <= asked.questions <= questions + 1
    assert asked.unanswered
    assert curator.accounting.spent <= curator.accounting.total
    # the room for margins is counted in whole questions, so a plan of one question leaves up to half
    assert curator.accounting.spent / curator.accounting.total > (0.8 if questions > 1 else 0.5)


def test_every_question_has_the_same_rate_and_noise(sampled: Any, ask_method: Ask) -> None:
    asked, curator = ask_method("sampled-gaussian-pc", sampled("asia", 2000), 1, statistic="g", rate=0.3)
    (event,) = set(curator.events)
    assert isinstance(event, SubsampledGaussian)
    assert float(event.rate) == 0.3
    deviation = math.sqrt(event.variance / event.squared_sensitivity)
    assert asked.plan[-1].noise_sd == pytest.approx(deviation, rel=1e-5)


def test_replaced_records_are_refused(sampled: Any) -> None:
    table = sampled("asia", 2000, relation="replace-one")
    with pytest.raises(MethodError, match="Poisson sub-samples, which are accounted for under add/remove"):
        discover(table, table.schema, 1, method="sampled-gaussian-pc", ledger=None)


@pytest.mark.parametrize("rate", [0, 1.5, -1])
def test_rates_that_are_none(rate: float, sampled: Any, ask_method: Ask) -> None:
    with pytest.raises(MethodError, match="rate"):
        ask_method("sampled-gaussian-pc", sampled("asia", 2000), 1, rate=rate)

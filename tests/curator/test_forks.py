"""A copy in a forked process must not spend, nor repeat noise: every part of a curator refuses there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dagveil.curator import Curator
from dagveil.data.column import Boolean, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    ApproximateZcdpFilter,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Filter,
    GaussianFilter,
    PureFilter,
    ZcdpFilter,
)
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import LaplaceBlocks
from dagveil.privacy.renyi import RenyiFilter
from dagveil.statistics.statistic import statistic_named

pytestmark = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no forks here")

EPSILON = Fraction(1, 10)
AB = ("a", "b", ())
TERMS = Terms.of(Relation.ADD_REMOVE, "one row")


def ask_in_forks(ask: Callable[[], object], workers: int = 4) -> list[str]:
    """Return what each forked process was told: an answer, or a refusal."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def work() -> None:
        try:
            queue.put(f"answered {ask()}")
        except BudgetError as refusal:
            queue.put(f"refused: {refusal}")

    children = [context.Process(target=work) for _ in range(workers)]
    for child in children:
        child.start()
    told = [queue.get() for _ in children]
    for child in children:
        child.join()
    return told


def open_curator(accounting: Filter) -> Curator:
    columns = {"a": Boolean("false"), "b": Boolean("false"), "x": Numeric((-1, 1)), "y": Numeric((-1, 1))}
    schema = Schema(dataset="forked", columns=columns, reviewed=True, nominal_rows=60)
    rng = np.random.default_rng(0)
    rows = {"a": rng.random(60) < 0.5, "b": rng.random(60) < 0.5, "x": rng.random(60), "y": rng.random(60)}
    run = MemoryLedger().reserve("forked", accounting.budget, TERMS, accounting.name, "test", "test")
    noise = noise_source(NoiseKind.EXACT)
    return Curator(MemoryTable.from_source(rows, schema), Relation.ADD_REMOVE, accounting, run, noise)


def test_an_interview_answers_in_its_own_process_only() -> None:
    curator = open_curator(PureFilter(Budget.of(1, 0)))
    interview = curator.ask_questions(statistic_named("kendall", 60))
    interview.answer(AB, EPSILON, "first")  # a block of draws is waiting now
    told = ask_in_forks(lambda: interview.answer(AB, EPSILON, "forked"))
    assert len(told) == 4
    assert all(words.startswith("refused: ") and "start a run of its own in each process" in words for words in told)
    interview.answer(AB, EPSILON, "second")
    assert [event.label for event in curator.events] == ["first", "second"]
    assert curator.accounting.spent == 2 * EPSILON


def test_every_way_to_ask_is_refused() -> None:
    curator = open_curator(GaussianFilter(Budget.of(1, 1e-6)))
    interview = curator.ask_questions(statistic_named("kendall", 60))
    sieve = interview.open_rounds(EPSILON, Fraction(1, 2), Fraction(1, 2), "round")
    laboratory = curator.ask_kernels(60)
    plan = MomentPlan(("x", "y"), (0.0, 0.0), (1.0, 1.0), 4.0, 1.0, 8)
    asking: list[Callable[[], object]] = [
        lambda: curator.count_rows(EPSILON),
        lambda: curator.interactions([("a", "b")], EPSILON, "pairs"),
        lambda: curator.outer_products(plan, EPSILON, "moments"),
        lambda: curator.ask_gradients(plan).gradient(np.zeros((2, 2)), 1.0, EPSILON, "gradient"),
        lambda: curator.open_as_published("no reason"),
        lambda: interview.choose_separation([(AB, 1.0)], EPSILON, "choice"),
        interview.flip_coin,
        lambda: sieve.looks_independent(AB, 1.0),
        lambda: laboratory.hsic_difference("x", "y", EPSILON, PUBLIC, 0.5, "difference"),
    ]
    for ask in asking:
        assert all(words.startswith("refused: ") for words in ask_in_forks(ask, 1))
    assert curator.events == ()
    assert curator.count_rows(EPSILON).values


class NoFunctions:
    """Stands for regressions; a fork must not come to them, or they predict nothing."""

    def function(self, target: str, given: tuple[str, ...]) -> object:
        class Zero:
            def values(self, rows: np.ndarray) -> np.ndarray:
                return np.zeros(len(rows))

        return Zero()


PUBLIC = NoFunctions()


def test_a_block_never_hands_out_a_draw_twice() -> None:
    blocks = LaplaceBlocks(noise_source(NoiseKind.EXACT))
    blocks.draw(Fraction(8))
    assert all(words.startswith("refused: ") for words in ask_in_forks(lambda: blocks.draw(Fraction(8))))
    blocks.draw(Fraction(8))


LAPLACE = DiscreteLaplace("one", 1, Fraction(1, 100))
GAUSSIAN = DiscreteGaussian("one", 1, Fraction(1), Fraction(10**6))


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (PureFilter, LAPLACE),
        (ZcdpFilter, GAUSSIAN),
        (ApproximateZcdpFilter, GAUSSIAN),
        (GaussianFilter, GAUSSIAN),
        (lambda budget: RenyiFilter(budget, 24), GAUSSIAN),
    ],
    ids=["pure", "zcdp", "approximate", "gaussian", "renyi"],
)
def test_filters_charge_in_their_own_process_only(make: Callable[[Budget], Filter], event: Event) -> None:
    accounting = make(Budget.of(1, 1e-6))
    told = ask_in_forks(lambda: accounting.charge(event), 2)
    assert all(words.startswith("refused: a filter was made in process") for words in told)
    accounting.charge(event)
    assert accounting.spent == accounting.cost(event)


def test_randomness_that_stays_inside_is_refused_too() -> None:
    """Sub-samples, parts and orders: copies would draw them apart from the run that is charged for them."""
    gate = open_curator(PureFilter(Budget.of(1, 0)))._gate
    drawing: list[Callable[[], object]] = [
        lambda: gate.keep_each(Fraction(1, 2), 8),
        lambda: gate.keep_some(4, 8),
        lambda: gate.deal(3, 8),
        lambda: gate.permute(8),
    ]
    for draw in drawing:
        assert all(words.startswith("refused: a curator was made in process") for words in ask_in_forks(draw, 1))
        draw()

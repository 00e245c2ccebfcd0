"""Adaptive questions at work: charged before noise meets a score, on fresh sub-samples, with the right chances."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import chisquare
from spies import ROWS, SpyRun, capture_scores, make_rows, make_schema, spy_on

from dagveil.curator import Curator, QuestionSession
from dagveil.curator.gate import Gate
from dagveil.curator.questions import RECORD, Question, Sample
from dagveil.errors import BudgetError, BudgetExceededError, LedgerError, MethodError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    ApproximateZcdpFilter,
    DiscreteLaplace,
    Filter,
    PureFilter,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
    ZcdpFilter,
)
from dagveil.privacy.mechanisms.subsampling import Sampling, amplify
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.reconciled import PartTest, Reconciled
from dagveil.statistics.statistic import Statistic, statistic_named

KENDALL = statistic_named("kendall", ROWS)
HALF = Fraction(1, 2)
both_relations = pytest.mark.parametrize("relation", Relation)


class LoggedNoise:
    """Seeded noise that writes down what was drawn, and passes for private."""

    name, private = "spy", True

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self._inner = noise_source(NoiseKind.SEEDED, 0)

    def __getattr__(self, name: str) -> object:
        inner = getattr(self._inner, name)
        if not name.startswith(("discrete", "uniform", "bernoulli")):
            return inner

        def draw(parameter: object, size: int) -> np.ndarray:
            self.log.append(name)
            return inner(parameter, size)

        return draw


def make_spied(
    accounting: Filter, statistic: Statistic = KENDALL, relation: Relation = Relation.ADD_REMOVE, fails: bool = False
) -> tuple[Curator, QuestionSession, list[str]]:
    log: list[str] = []
    table = make_rows(make_schema(a=2, b=2, c=2), ROWS)
    curator = Curator(table, relation, spy_on(accounting, log), SpyRun(log, fails), LoggedNoise(log))
    asked = curator.ask_questions(statistic)
    log.clear()  # records that were dealt out to parts
    return curator, asked, log


def open_gate(noise: Any) -> Gate:
    return Gate(pure(), Mock(), noise)


def pure(epsilon: object = 1) -> Filter:
    return PureFilter(Budget.of(epsilon, 0))


AB: Question = ("a", "b", ())
AC: Question = ("a", "c", ("b",))
VOTES = Reconciled(PartTest.G, 5)
ASKING: dict[str, tuple[Callable[[QuestionSession, Fraction], object], Callable[[], Filter], Statistic, list[str]]] = {
    "answer": (lambda asked, epsilon: asked.answer(AB, epsilon, "one"), pure, KENDALL, ["discrete_laplace"]),
    "median": (
        lambda asked, epsilon: asked.answer_by_median(AB, epsilon, Fraction(1, 10**7), "one"),
        lambda: ApproximateZcdpFilter(Budget.of(1, 1e-6)),
        VOTES,
        ["discrete_laplace"],
    ),
    "sample": (
        lambda asked, epsilon: asked.answer_from_sample(AB, HALF, 1 / (2 * epsilon), "one"),
        lambda: ZcdpFilter(Budget.of(4, 1e-6)),
        KENDALL,
        ["discrete_gaussian"],
    ),
    "sieve": (
        lambda asked, epsilon: asked.open_rounds(epsilon, HALF, Fraction(1), "one").looks_independent(AB, 3.0),
        pure,
        KENDALL,
        ["discrete_laplace", "discrete_laplace"],
    ),
    "number": (
        lambda asked, epsilon: asked.choose_number([[(AB, 3.0)], [(AC, 3.0)]], epsilon, "one"),
        pure,
        KENDALL,
        ["uniform_below"],
    ),
    "separation": (
        lambda asked, epsilon: asked.choose_separation([(AB, 3.0), (AC, 3.0)], epsilon, "one"),
        pure,
        KENDALL,
        ["uniform_below"],
    ),
}
every_way = pytest.mark.parametrize("way", ASKING)


class TestOrder:
    @every_way
    def test_charge_then_record_then_draw(self, way: str) -> None:
        ask, make_filter, statistic, draws = ASKING[way]
        curator, asked, log = make_spied(make_filter(), statistic)
        ask(asked, Fraction(1, 10))
        sampling = ["bernoulli"] if way == "sample" else []
        assert log == [*sampling, "charge", "record", *draws]
        assert len(curator.events) == asked.asked == 1
        assert curator.accounting.spent == curator.accounting.cost(curator.events[0]) > 0

    @every_way
    def test_a_refused_question_charges_and_draws_nothing(self, way: str) -> None:
        ask, make_filter, statistic, _ = ASKING[way]
        curator, asked, log = make_spied(make_filter(), statistic)
        with pytest.raises(BudgetExceededError, match="nothing was drawn"):
            ask(asked, Fraction(4))
        assert [word for word in log if word != "bernoulli"] == []
        assert curator.accounting.spent == 0
        assert curator.events == ()
        assert asked.asked == 0
        ask(asked, Fraction(1, 10))
        assert asked.asked == 1

    @every_way
    def test_no_noise_without_a_ledger_that_holds_the_charge(self, way: str) -> None:
        ask, make_filter, statistic, _ = ASKING[way]
        curator, asked, log = make_spied(make_filter(), statistic, fails=True)
        with pytest.raises(LedgerError, match="disk"):
            ask(asked, Fraction(1, 10))
        assert [word for word in log if word != "bernoulli"] == ["charge"]
        assert curator.accounting.spent > 0
        assert asked.asked == 0

    @pytest.mark.parametrize("way", ["answer", "number", "separation", "sieve"])
    def test_a_question_costs_its_epsilon(self, way: str) -> None:
        ask, make_filter, statistic, _ = ASKING[way]
        curator, asked, _ = make_spied(make_filter(), statistic)
        ask(asked, Fraction(1, 3))
        assert curator.accounting.spent == Fraction(1, 3)

    def test_refusals_that_rest_on_what_is_public(self) -> None:
        curator, asked, log = make_spied(pure(), relation=Relation.REPLACE_ONE)
        with pytest.raises(BudgetError, match="add/remove"):
            asked.answer_from_sample(AB, HALF, Fraction(100), "one")
        with pytest.raises(BudgetError, match="no median"):
            asked.answer_by_median(AB, HALF, Fraction(1, 10**7), "one")
        for rate, share in [(Fraction(0), HALF), (Fraction(2), HALF), (HALF, Fraction(0)), (HALF, Fraction(1))]:
            with pytest.raises(BudgetError, match="rate above 0"):
                asked.open_rounds(HALF, share, rate, "one")
        with pytest.raises(MethodError, match="reconciled-chi-square"):
            curator.ask_questions(statistic_named("chi-square", ROWS))
        assert log == []
        assert curator.accounting.spent == 0

    def test_an_interview_shows_no_rows(self) -> None:
        _, asked, _ = make_spied(pure())
        assert repr(asked).startswith("<dagveil.curator.questions.QuestionSession object")
        assert repr(asked._draw_sample(Fraction(1))) == "Sample(1 parts)"


class TestSieve:
    LOW, HIGH = -1e6, 1e6  # never and always independent

    def test_a_round_is_charged_when_it_starts_and_ends_with_a_hit(self) -> None:
        curator, asked, log = make_spied(pure(1))
        sieve = asked.open_rounds(Fraction(1, 4), HALF, Fraction(1), "round")
        spent = []
        for threshold in (self.LOW, self.LOW, self.HIGH, self.HIGH, self.LOW):
            assert sieve.looks_independent(AB, threshold) == (threshold == self.HIGH)
            spent.append(curator.accounting.spent)
        quarter = Fraction(1, 4)
        assert spent == [quarter, quarter, quarter, 2 * quarter, 3 * quarter]
        assert curator.events == (SparseVectorRound("round", quarter),) * 3
        assert log.count("charge") == log.count("record") == 3
        assert asked.asked == 5

    def test_a_refused_round_answers_nothing(self) -> None:
        curator, asked, _ = make_spied(pure(1))
        sieve = asked.open_rounds(Fraction(3, 4), HALF, Fraction(1), "round")
        assert sieve.looks_independent(AB, self.HIGH)
        for _ in range(2):
            with pytest.raises(BudgetExceededError):
                sieve.looks_independent(AB, self.HIGH)
        assert len(curator.events) == asked.asked == 1

    @both_relations
    def test_every_round_has_a_fresh_sub_sample(self, relation: Relation, monkeypatch: pytest.MonkeyPatch) -> None:
        _, asked, _ = make_spied(pure(10), relation=relation)
        drawn: list[Sample] = []
        read: list[Sample] = []
        draw, score = asked._draw_sample, asked._score

        def noting_draw(rate: Fraction) -> Sample:
            drawn.append(draw(rate))
            return drawn[-1]

        def noting_score(question: Question, sample: Sample) -> int:
            read.append(sample)
            return score(question, sample)

        monkeypatch.setattr(asked, "_draw_sample", noting_draw)
        monkeypatch.setattr(asked, "_score", noting_score)
        sieve = asked.open_rounds(Fraction(1, 10), HALF, Fraction(1, 3), "round")
        answers = [self.LOW, self.HIGH, self.LOW, self.LOW, self.HIGH, self.HIGH, self.LOW]
        for threshold in answers:
            sieve.looks_independent(AB, threshold)
        rounds = [0, 0, 1, 1, 1, 2, 3]
        assert [drawn.index(sample) for sample in read] == rounds
        assert len(drawn) == 4
        counts = [sample.table.counts(("a", "b", "c")).reshape(-1).tolist() for sample in drawn]
        assert len(set(map(tuple, counts))) == 4
        sizes = [sample.table.n_rows for sample in drawn]
        if relation is Relation.REPLACE_ONE:
            assert sizes == [ROWS // 3] * 4
        else:
            assert all(abs(size - ROWS / 3) < 5 * math.sqrt(ROWS * 2 / 9) for size in sizes)

    @both_relations
    @pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 3), Fraction(1)])
    def test_the_price_is_the_amplified_one(self, relation: Relation, rate: Fraction) -> None:
        curator, asked, _ = make_spied(pure(10), relation=relation)
        epsilon, share = Fraction(1, 10), Fraction(2, 5)
        sieve = asked.open_rounds(epsilon, share, rate, "round")
        sieve.looks_independent(AB, 0.0)
        (event,) = curator.events
        assert event == SparseVectorRound("round", epsilon)
        own = 1 / sieve.threshold_scale + 2 / sieve.question_scale
        assert 1 / sieve.threshold_scale == pytest.approx(float(share) * own)
        sampling = {Relation.ADD_REMOVE: Sampling.POISSON, Relation.REPLACE_ONE: Sampling.WITHOUT_REPLACEMENT}
        price = amplify(Budget(Fraction(own), Fraction(0)), rate, sampling[relation], relation).epsilon
        assert float(price) == pytest.approx(float(epsilon), rel=1e-6)
        assert own >= float(epsilon) * (1 - 1e-9)
        if rate < 1:
            assert own == pytest.approx(math.log1p(math.expm1(0.1) / float(rate)), rel=1e-6)

    def test_the_noise_has_the_scales_that_it_names(self) -> None:
        _, asked, _ = make_spied(pure(10**6))
        sieve = asked.open_rounds(Fraction(1), Fraction(2, 5), Fraction(1), "round")
        exact = asked._score(AB, asked._draw_sample(Fraction(1))) / RECORD
        tries = 3000
        # every question starts a round with this threshold, or goes on in one; only first questions count
        hits = []
        while len(hits) < tries:
            hits.append(sieve.looks_independent(AB, exact))
            while not hits[-1] and not sieve.looks_independent(AB, self.HIGH):
                pass
        # both noises are symmetric: even chances at the exact score
        assert abs(np.mean(hits) - 0.5) < 5 * 0.5 / math.sqrt(tries)
        assert sieve.threshold_scale == pytest.approx(2.5)
        assert sieve.question_scale == pytest.approx(2 / 0.6)


class TestAnswers:
    def test_laplace_noise_around_the_exact_score(self) -> None:
        curator, asked, _ = make_spied(pure(10**6))
        exact = asked._score(AC, asked._draw_sample(Fraction(1))) / RECORD
        answers = [asked.answer(AC, HALF, "one") for _ in range(4000)]
        off = np.array([answer.score for answer in answers]) - exact
        assert {round(answer.deviation, 5) for answer in answers} == {round(2 * math.sqrt(2), 5)}
        assert abs(off.mean()) < 5 * 2 * math.sqrt(2 / 4000)
        assert np.abs(off).mean() == pytest.approx(2.0, rel=0.1)
        assert curator.events[0] == DiscreteLaplace("one", 1, HALF)

    def test_gaussian_noise_around_scores_of_sub_samples(self) -> None:
        curator, asked, _ = make_spied(ZcdpFilter(Budget.of(10**6, 1e-6)))
        exact = asked._score(AB, asked._draw_sample(Fraction(1))) / RECORD
        answers = [asked.answer_from_sample(AB, Fraction(1), Fraction(9), "one") for _ in range(3000)]
        off = np.array([answer.score for answer in answers]) - exact
        assert abs(off.mean()) < 5 * 3 / math.sqrt(3000)
        assert off.std() == pytest.approx(3.0, rel=0.1)
        assert {round(answer.deviation, 4) for answer in answers} == {3.0}
        event = curator.events[0]
        assert isinstance(event, SubsampledGaussian)
        assert event.variance >= 9 * event.squared_sensitivity == 9 * RECORD**2

    def test_medians_lie_between_0_and_1(self) -> None:
        _, asked, _ = make_spied(ApproximateZcdpFilter(Budget.of(10**4, 1e-2)), VOTES)
        answers = [asked.answer_by_median(AB, Fraction(1, 10), Fraction(1, 10**5), "one") for _ in range(100)]
        assert 0.0 <= min(answers) < max(answers) <= 1.0

    def test_a_median_is_charged_with_its_delta(self) -> None:
        curator, asked, _ = make_spied(ApproximateZcdpFilter(Budget.of(1, 1e-6)), VOTES)
        asked.answer_by_median(AB, Fraction(1, 10), Fraction(1, 10**7), "one")
        assert curator.events == (SmoothLaplace("one", Fraction(1, 10), Fraction(1, 10**7)),)

    def test_coins_are_fair_and_free(self) -> None:
        curator, asked, _ = make_spied(pure())
        heads = sum(asked.flip_coin() for _ in range(4000))
        assert abs(heads - 2000) < 5 * math.sqrt(1000)
        assert curator.events == ()
        assert asked.asked == 0


class TestChoices:
    def test_the_number_runs_from_none_to_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = capture_scores(monkeypatch)
        _, asked, _ = make_spied(pure())
        exact = {
            question: Fraction(asked._score(question, asked._draw_sample(Fraction(1))), RECORD) for question in (AB, AC)
        }
        asked.choose_number([[(AB, 2.0)], [(AC, 5.0)]], HALF, "number")
        d = sorted((2 - exact[AB], 5 - exact[AC]), reverse=True)
        assert seen == [[-d[0], min(d[0], -d[1]), d[1]]]
        seen.clear()
        asked.choose_number([[(AB, 2.0), (AC, 5.0)]], HALF, "number")
        assert seen == [[-d[0], d[0]]]
        seen.clear()
        asked.choose_separation([(AB, 2.0), (AC, 5.0)], HALF, "separation")
        assert seen == [[2 - exact[AB], 5 - exact[AC]]]

    @pytest.mark.parametrize("way", ["number", "separation"])
    def test_probabilities(self, way: str) -> None:
        _, asked, _ = make_spied(pure(10**6))
        exact = {q: asked._score(q, asked._draw_sample(Fraction(1))) / RECORD for q in (AB, AC, ("b", "c", ()))}
        # thresholds that leave every outcome a fair chance
        near = [(q, exact[q] + shift) for q, shift in zip(exact, (1.0, -1.5, 0.25), strict=True)]
        if way == "number":
            d = [1.0, 0.25, -1.5]
            scores = [-d[0], min(d[0], -d[1]), min(d[1], -d[2]), d[2]]
            drawn = [asked.choose_number([[one] for one in near], Fraction(1), "n") for _ in range(2500)]
        else:
            scores = [1.0, -1.5, 0.25]
            drawn = [asked.choose_separation(near, Fraction(1), "s") for _ in range(2500)]
        weights = np.exp(np.array(scores) / 2)
        counted = Counter(drawn)
        observed = [counted[k] for k in range(len(scores))]
        assert sum(observed) == 2500
        assert chisquare(observed, 2500 * weights / weights.sum()).pvalue > 1e-4


class TestRows:
    def test_every_set_of_rows_is_equally_likely(self) -> None:
        noise = noise_source(NoiseKind.SEEDED, 0)
        found = Counter(tuple(np.flatnonzero(open_gate(noise).keep_some(2, 5)).tolist()) for _ in range(4000))
        assert len(found) == 10
        assert chisquare(list(found.values())).pvalue > 1e-4

    @pytest.mark.parametrize(("n_rows", "size"), list(product([0, 1, 4], [0, 1, 4])))
    def test_extreme_sizes(self, n_rows: int, size: int) -> None:
        if size <= n_rows:
            assert open_gate(noise_source(NoiseKind.SEEDED, 0)).keep_some(size, n_rows).sum() == size

    def test_a_tie_on_the_border_is_drawn_again(self) -> None:
        tickets = iter([[7, 7, 9], [7, 7, 3], [5, 2, 4]])

        class Tied:
            def uniform_below(self, bound: int, size: int) -> np.ndarray:
                return np.array(next(tickets))

        # one row of three: the first draw is tied at the border; the second is not, and row 2 has the lowest ticket
        assert open_gate(Tied()).keep_some(1, 3).tolist() == [False, False, True]
        assert open_gate(Tied()).keep_some(1, 3).tolist() == [False, True, False]

    def test_poisson_sub_samples_keep_each_record_by_itself(self) -> None:
        _, asked, _ = make_spied(pure())
        whole = asked._draw_sample(Fraction(1)).table
        assert whole.n_rows == ROWS
        sizes = [asked._draw_sample(Fraction(1, 5)).table.n_rows for _ in range(300)]
        assert np.mean(sizes) == pytest.approx(ROWS / 5, abs=5 * math.sqrt(ROWS * 0.16 / 300))
        assert np.var(sizes) == pytest.approx(ROWS * 0.16, rel=0.45)

    @both_relations
    def test_votes_deal_every_record_to_one_part(self, relation: Relation) -> None:
        _, asked, _ = make_spied(pure(), VOTES, relation)
        for rate in (Fraction(1), HALF):
            sample = asked._draw_sample(rate)
            assert len(sample.parts) == 5
            dealt = sum(part.counts(("a", "b", "c")) for part in sample.parts)
            assert (dealt == sample.table.counts(("a", "b", "c"))).all()
        assert asked._draw_sample(Fraction(1)) is asked._draw_sample(Fraction(1))

"""What one run told, as numbers that an attacker can use: he knows both tables and wants to know which one it was.

He knows the exact answers on both, and so how much the noisy ones speak for either.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dagveil.audit.neighbours import Pair
from dagveil.audit.recording import Exchange, Recording, Rule
from dagveil.audit.replay import Course, RepeatableRun, read_course
from dagveil.audit.search import Floats
from dagveil.curator import Question, QuestionSession
from dagveil.curator.gate import Gate
from dagveil.curator.pair_choices import Forest
from dagveil.data.table import Table
from dagveil.graphs.cpdag import Cpdag
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event, ExponentialChoice, PureFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.statistic import Statistic

NODES: Final = 400  # values of a threshold's noise, at equally likely places, that stand for all of them
_PLACES: Final = (np.arange(NODES) + 0.5) / NODES
_STANDARD: Final = np.where(_PLACES < 0.5, np.log(2.0 * _PLACES), -np.log(2.0 * (1.0 - _PLACES)))
ANSWER_FEATURES: Final = ("log-likelihood ratio of the answers", "log-likelihood ratio of the bits of sparse vectors")
SUB_SAMPLES: Final = 1000  # sub-samples from which an attacker learns how scores of a secret one are spread
MOST_KNOWN: Final = 10_000  # courses of runs whose log-likelihood ratios an attacker remembers


def compare_answers(told: Sequence[Exchange], first: Sequence[Exchange], second: Sequence[Exchange]) -> float:
    """Return how much answers with noise of their own speak for the second table, given both replays."""
    return float(
        sum(
            _compare(exchange, one, other)
            for exchange, one, other in zip(told, first, second, strict=True)
            if exchange.refusal is None and not exchange.luck and one.exact.values != other.exact.values
        )
    )


def _compare(told: Exchange, first: Exchange, second: Exchange) -> float:
    """Return the log-likelihood ratio of one answer; 0 where it has no simple form."""
    rule = first.exact.rule
    a, b, width = (np.array(part) for part in (first.exact.values, second.exact.values, first.exact.widths))
    if rule is Rule.RECORDS:
        return weigh_choice(told, second.exact.values) - weigh_choice(told, first.exact.values)
    x = np.array(told.exact.values)
    if rule is Rule.WEIGHTED_SQUARES:
        return float((((x - a) ** 2 - (x - b) ** 2) / (2.0 * width)).sum())
    if rule is Rule.SCALED_SIZES:
        return float(((np.abs(x - a) - np.abs(x - b)) / width).sum())
    return 0.0


def weigh_choice(told: Exchange, scores: Sequence[float]) -> float:
    """Return the log-likelihood of a choice of the exponential mechanism, or of several, if these were the scores."""
    epsilon = sum(float(event.epsilon) for event in told.events if isinstance(event, ExponentialChoice))
    exponents = epsilon * np.array(scores) / 2.0
    if told.door != "choose_forest":
        return float(exponents[told.answer] - logsumexp(exponents))
    pairs = list(told.asked[0])
    chosen = [pairs.index(pair) for pair in told.answer]
    forest = Forest(pairs)
    return sum(
        float(exponents[place] - logsumexp(exponents[forest.allowed(chosen[:turn])]))
        for turn, place in enumerate(chosen)
    )


def weigh_rounds(told: Sequence[Exchange], replay: Sequence[Exchange]) -> float:
    """Return the log-likelihood of all bits of sparse vectors, if the scores were those of a replay.

    The threshold's noise is the same in all questions of a round, so a round is one answer. Bits that come from
    sub-samples say nothing.
    """
    places = [place for place, one in enumerate(replay) if one.exact.rule is Rule.ROUND and told[place].refusal is None]
    if any(told[place].luck for place in places):
        return 0.0
    total = 0.0
    for together in _split_rounds(places, told):
        bits = np.array([bool(told[place].answer) for place in together])
        thresholds = np.array([float(told[place].asked[1]) for place in together])
        scores = np.array([replay[place].exact.values[0] for place in together])
        total += _weigh_round(bits, thresholds - scores, replay[together[0]].exact.widths)
    return total


def _split_rounds(places: Sequence[int], told: Sequence[Exchange]) -> Iterator[list[int]]:
    """Yield the questions of each round; it ends with the first that passes."""
    together: list[int] = []
    for place in places:
        together.append(place)
        if told[place].answer:
            yield together
            together = []
    if together:
        yield together


def _weigh_round(bits: NDArray[np.bool_], margins: Floats, widths: Sequence[float]) -> float:
    """Return the log-likelihood of a round's bits; margins say how far scores stay below the threshold."""
    threshold_scale, question_scale = widths[:2]
    beyond = (margins[:, None] + threshold_scale * _STANDARD) / question_scale
    tail = 0.5 * np.exp(-np.abs(beyond))
    # logarithms of tails, so that long rounds do not underflow
    passes = np.where(beyond < 0.0, tail, 1.0 - tail)
    logs = np.where(bits[:, None], np.log(np.maximum(passes, 1e-300)), np.log(np.maximum(1.0 - passes, 1e-300)))
    return float(logsumexp(logs.sum(axis=0)) - np.log(NODES))


def weigh_samples(told: float, variance: float, scores: Floats) -> float:
    """Return the log-density of a noisy score whose sub-sample is secret, from scores of many sub-samples."""
    return float(logsumexp(-((told - scores) ** 2) / (2.0 * variance)) - np.log(len(scores)))


@dataclass(frozen=True, slots=True, eq=False)
class Attacker:
    """Someone who knows both tables, and so the exact answers to whatever a run asked.

    He does not know random choices, such as who is in a sub-sample: of answers that depend on one he knows the law, or
    they are no use to him. Runs that asked the same have the same exact answers, so those are computed once.
    """

    method: Method
    pair: Pair
    budget: Budget
    options: Mapping[str, Any]
    _repeatable: RepeatableRun = field(init=False)
    _known: dict[tuple[Any, ...], tuple[Floats, Floats]] = field(default_factory=dict, init=False)
    _ratios: dict[Course, tuple[float, float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        trial = RepeatableRun(self.method, self.pair.relation, self.budget, self.options)
        object.__setattr__(self, "_repeatable", trial)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of a run. A graph that is computed from releases adds nothing to them."""
        if self.method.ask is None:
            return ANSWER_FEATURES
        return (*ANSWER_FEATURES, *name_edges(self.pair.schema.columns))

    def watch(self, table: Table, seed: int) -> tuple[float, ...]:
        """Let the method run on a table, and turn what it told into features."""
        result, told = self.run(table, seed)
        features = self._weigh(told)
        if not isinstance(result, Asked):
            return features
        return (*features, *read_graph(result.graph, tuple(self.pair.schema.columns)))

    @property
    def tables(self) -> tuple[Table, Table]:
        """Both tables."""
        return self.pair.first, self.pair.second

    def run(self, table: Table, seed: int) -> tuple[object, list[Exchange]]:
        """Let the method run on a table; return what it gave, and what it asked and was told."""
        recording = Recording(noise_source(NoiseKind.SEEDED, seed))
        return self._repeatable.run(table, recording), recording.exchanges

    def replay(self, told: Sequence[Exchange]) -> tuple[list[Exchange], list[Exchange]]:
        """Return the replays of a run on both tables, with the exact answers; known ones are not done again."""
        first, second = self._repeatable.replay_all(self.tables, told, read_course(told))
        return first, second

    def _weigh(self, told: Sequence[Exchange]) -> tuple[float, float]:
        """Return the log-likelihood ratios of all answers, and of the bits of sparse vectors alone."""
        # a run that was told bits and choices only is known by its course
        course = None if any(exchange.exact.values for exchange in told) else read_course(told)
        if course is not None and course in self._ratios:
            return self._ratios[course]
        first, second = self.replay(told)
        bits = weigh_rounds(told, second) - weigh_rounds(told, first)
        ratios = compare_answers(told, first, second) + bits + self._compare_samples(told), bits
        if course is not None and len(self._ratios) < MOST_KNOWN:
            self._ratios[course] = ratios
        return ratios

    def list_charges(self, runs: int) -> list[tuple[Event, ...]]:
        """Return what some runs on either table charge, each outcome once: adaptive runs differ."""
        charges = []
        for seed in range(runs):
            _, told = self.run(self.tables[seed % 2], seed)
            charges.append(tuple(event for exchange in told for event in exchange.events))
        return list(dict.fromkeys(charges))

    def _compare_samples(self, told: Sequence[Exchange]) -> float:
        """Return what answers from secret sub-samples say, if the statistic is public and so the same in all runs."""
        if self.pair.schema.nominal_rows is None:
            return 0.0
        ratio, statistic = 0.0, None
        for exchange in told:
            if exchange.door == "ask_questions":
                statistic = exchange.asked[0]
            if exchange.exact.rule is not Rule.SAMPLED or exchange.refusal is not None or statistic is None:
                continue
            question, rate = exchange.asked[:2]
            (answer,), (variance,) = exchange.exact.values, exchange.exact.widths
            one, other = self._scores_of_samples(statistic, question, rate)
            ratio += weigh_samples(answer, variance, other) - weigh_samples(answer, variance, one)
        return ratio

    def _scores_of_samples(self, statistic: Statistic, question: Question, rate: Fraction) -> tuple[Floats, Floats]:
        """Return exact scores of many sub-samples of both tables."""
        key = (statistic, question, rate)
        if key not in self._known:
            found = []
            for table in self.tables:
                noise = noise_source(NoiseKind.SEEDED, 0)
                gate = Gate(PureFilter(self.budget), Recording(noise), noise)
                session = QuestionSession(table, self.pair.relation, statistic, gate)
                scores = [session._score(question, session._draw_sample(rate)) for _ in range(SUB_SAMPLES)]
                found.append(np.array(scores, dtype=np.float64))
            self._known[key] = (found[0], found[1])
        return self._known[key]


def name_edges(columns: Iterable[str]) -> list[str]:
    """Return names of the marks of `read_graph`."""
    return [f"{x} {mark} {y}" for x, y in combinations(columns, 2) for mark in ("→", "←", "–")]


def read_graph(graph: Cpdag, columns: Sequence[str]) -> list[float]:
    """Return three marks for each pair of columns: whether an arrow goes there, comes back, or a line joins them."""
    found = []
    for x, y in combinations(columns, 2):
        marks = ((x, y) in graph.directed, (y, x) in graph.directed, frozenset((x, y)) in graph.undirected)
        found += [float(mark) for mark in marks]
    return found

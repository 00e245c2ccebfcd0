"""What one run told, as numbers that an attacker can use: he knows both tables and wants to know which one it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

import numpy as np

from dagveil.audit.likelihood import Floats, compare_answers, compare_rounds, weigh_samples
from dagveil.audit.neighbours import Pair
from dagveil.audit.replay import run_method
from dagveil.audit.tape import Exchange, Rule, Tape
from dagveil.curator import Interview, Question
from dagveil.data.table import Table
from dagveil.graphs.cpdag import Cpdag
from dagveil.methods.asking import Asked
from dagveil.methods.catalogue import Method
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.statistic import Statistic

ANSWER_FEATURES: Final = ("log-likelihood ratio of the answers", "log-likelihood ratio of the bits of sparse vectors")

SUB_SAMPLES: Final = 1000
"""Sub-samples from which an attacker learns how scores of a secret one are spread."""


@dataclass(frozen=True, slots=True, eq=False)
class Attacker:
    """Someone who knows both tables, and so the exact answers to whatever a run asked.

    He does not know random choices, such as who is in a sub-sample: of answers that depend on one he knows the law, or
    they are no use to him.

    Parameters
    ----------
    method, pair, budget, options
        What runs, on which tables.
    """

    method: Method
    pair: Pair
    budget: Budget
    options: Mapping[str, Any]
    _known: dict[tuple[Any, ...], tuple[Floats, Floats]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"Attacker({self.method.name}, {self.pair!r})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of a run. A graph that is computed from releases adds nothing to them."""
        if self.method.ask is None:
            return ANSWER_FEATURES
        edges = [f"{x} {mark} {y}" for x, y in combinations(self.pair.schema.columns, 2) for mark in ("→", "←", "–")]
        return (*ANSWER_FEATURES, *edges)

    def watch(self, table: Table, seed: int) -> tuple[float, ...]:
        """Let the method run on a table, and turn what it told into features."""
        tape = Tape(noise_source(NoiseKind.SEEDED, seed))
        result = self._run(table, tape)
        replays = [Tape(noise_source(NoiseKind.SEEDED, 0), tape.exchanges) for _ in range(2)]
        for known, replay in zip((self.pair.first, self.pair.second), replays, strict=True):
            self._run(known, replay)
        first, second = (replay.exchanges for replay in replays)
        bits = compare_rounds(tape.exchanges, first, second)
        ratio = compare_answers(tape.exchanges, first, second) + bits + self._compare_samples(tape.exchanges)
        features = (ratio, bits)
        if not isinstance(result, Asked):
            return features
        return (*features, *read_graph(result.graph, tuple(self.pair.schema.columns)))

    def list_charges(self, runs: int) -> list[tuple[Event, ...]]:
        """Return what some runs on either table charge, each outcome once: adaptive runs differ."""
        charges = []
        for seed in range(runs):
            tape = Tape(noise_source(NoiseKind.SEEDED, seed))
            self._run(self.pair.second if seed % 2 else self.pair.first, tape)
            charges.append(tuple(event for exchange in tape.exchanges for event in exchange.events))
        return list(dict.fromkeys(charges))

    def _compare_samples(self, told: Sequence[Exchange]) -> float:
        """Return what answers from secret sub-samples say, if the statistic is public and so the same in all runs."""
        if self.pair.schema.nominal_rows is None:
            return 0.0
        ratio, statistic = 0.0, None
        for exchange in told:
            if exchange.door == "interview":
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
            for table in (self.pair.first, self.pair.second):
                noise = noise_source(NoiseKind.SEEDED, 0)
                interview = Interview(table, self.pair.relation, statistic, lambda event: None, noise)
                scores = [interview._score(question, interview._draw_sample(rate)) for _ in range(SUB_SAMPLES)]
                found.append(np.array(scores, dtype=np.float64))
            self._known[key] = (found[0], found[1])
        return self._known[key]

    def _run(self, table: Table, tape: Tape) -> object:
        return run_method(self.method, table, self.pair.relation, self.budget, self.options, tape)


def read_graph(graph: Cpdag, columns: Sequence[str]) -> list[float]:
    """Return three marks for each pair of columns: whether an arrow goes there, comes back, or a line joins them."""
    found = []
    for x, y in combinations(columns, 2):
        marks = ((x, y) in graph.directed, (y, x) in graph.directed, frozenset((x, y)) in graph.undirected)
        found += [float(mark) for mark in marks]
    return found

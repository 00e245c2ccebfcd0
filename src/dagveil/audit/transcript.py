"""What one run told, as numbers that an attacker can use: he knows both tables and wants to know which one it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from scipy.special import logsumexp

from dagveil.audit.neighbours import Pair
from dagveil.audit.replay import run_method
from dagveil.audit.tape import Exchange, Rule, Tape
from dagveil.data.table import Table
from dagveil.graphs.cpdag import Cpdag
from dagveil.methods.asking import Asked
from dagveil.methods.catalogue import Method
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import ExponentialChoice
from dagveil.privacy.noise.kind import NoiseKind, noise_source

ANSWER_FEATURES: Final = ("log-likelihood ratio of the answers", "bits of the sparse vector")


@dataclass(frozen=True, slots=True, eq=False)
class Attacker:
    """Someone who knows both tables, and so the exact answers to whatever a run asked.

    He does not know random choices, such as who is in a sub-sample: answers that depend on one are no use to him.

    Parameters
    ----------
    method, pair, budget, options
        What runs, on which tables.
    """

    method: Method
    pair: Pair
    budget: Budget
    options: Mapping[str, Any]

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
        exact = [replay.exchanges for replay in replays]
        features = (_sum_ratios(tape.exchanges, *exact), _sum_bits(tape.exchanges, *exact))
        if not isinstance(result, Asked):
            return features
        return (*features, *_read_graph(result.graph, tuple(self.pair.schema.columns)))

    def _run(self, table: Table, tape: Tape) -> object:
        return run_method(self.method, table, self.pair.relation, self.budget, self.options, tape)


def _sum_ratios(told: Sequence[Exchange], first: Sequence[Exchange], second: Sequence[Exchange]) -> float:
    """Return by how much all answers together speak for the second table."""
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
        epsilon = sum(float(event.epsilon) for event in told.events if isinstance(event, ExponentialChoice))
        likelihoods = [epsilon * scores[told.answer] / 2 - logsumexp(epsilon * scores / 2) for scores in (a, b)]
        return float(likelihoods[1] - likelihoods[0])
    x = np.array(told.exact.values)
    if rule is Rule.WEIGHTED_SQUARES:
        return float((((x - a) ** 2 - (x - b) ** 2) / (2.0 * width)).sum())
    if rule is Rule.SCALED_SIZES:
        return float(((np.abs(x - a) - np.abs(x - b)) / width).sum())
    return 0.0


def _sum_bits(told: Sequence[Exchange], first: Sequence[Exchange], second: Sequence[Exchange]) -> float:
    """Return what the bits of sparse vectors say: the lower a score, the likelier it passes for independent."""
    rounds = [place for place, one in enumerate(first) if one.exact.rule is Rule.ROUND]
    if any(told[place].luck for place in rounds):
        return 0.0
    return sum(
        (first[place].exact.values[0] - second[place].exact.values[0]) * (1.0 if told[place].answer else -1.0)
        for place in rounds
    )


def _read_graph(graph: Cpdag, columns: Sequence[str]) -> list[float]:
    found = []
    for x, y in combinations(columns, 2):
        marks = ((x, y) in graph.directed, (y, x) in graph.directed, frozenset((x, y)) in graph.undirected)
        found += [float(mark) for mark in marks]
    return found

"""Deliberately flawed mechanisms: the audit must catch every one. Nothing outside of the tests may import this file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from dagveil.audit.search import AuditedStatistic, Found, Norm, RecordSearch, TableSearch
from dagveil.curator import Curator, Question
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method
from dagveil.papers.ma2022 import published_gradient_sensitivity
from dagveil.papers.publication import PUBLISHED_KENDALL_CONSTANT, published_scores
from dagveil.papers.xu2017 import greedy_distance
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import PureFilter
from dagveil.privacy.mechanisms.sparse_vector import SparseVector
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.kendall import Kendall

# --- statistics with a declared sensitivity that is too small -----------------------------------------------------


def look_at_published_kendall(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    """Priv-PC's conditional Kendall statistic at 200 rows and more, with the printed 4.5/√n."""
    rows = 200
    search = TableSearch(
        lambda tables: published_scores(tables)[:, None], (2, 2, 2), Norm.LARGEST, relation, fewest_rows=rows
    )
    return search.run(pairs, (rows + 5,), rng), PUBLISHED_KENDALL_CONSTANT / math.sqrt(rows)


def look_at_greedy_distance(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    """EM-PC's distance, which a greedy walk finds, with the printed sensitivity 1."""
    search = TableSearch(
        lambda tables: np.array([[float(greedy_distance(table, 2.706))] for table in tables]),
        (1, 2, 2),
        Norm.LARGEST,
        relation,
    )
    return search.run(pairs, (30, 60), rng), 1.0 if relation is Relation.ADD_REMOVE else 2.0


def look_at_mean_gradient(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    """NOLEAKS' gradient: the mean is clipped entry by entry, not the records."""
    columns, rows, clip = 3, 200, 2.0

    def measure(data: np.ndarray) -> np.ndarray:
        gradient = -(data.T @ data) / len(data)
        np.fill_diagonal(gradient, 0.0)
        return np.clip(gradient, -clip, clip).reshape(-1)

    search = RecordSearch(measure, columns, 6.0, Norm.SQUARES, relation)
    return search.run(pairs, (rows - 1,), rng), published_gradient_sensitivity(columns, rows, clip)


BROKEN_STATISTICS = (
    AuditedStatistic("published conditional Kendall", "twin", look_at_published_kendall),
    AuditedStatistic("greedy distance", "twin", look_at_greedy_distance),
    AuditedStatistic("mean-gradient clipping", "twin", look_at_mean_gradient, (Relation.REPLACE_ONE,)),
)

# --- methods whose control flow, charges or noise are wrong ---------------------------------------------------------


class UnchargedRounds(SparseVector):
    """Charges a round when it ends, so the last one is free."""

    def is_above(self, value: int, threshold: int) -> bool:
        if self._shift is None:
            self._shift = self._noise.draw(self._threshold_scale)
        above = int(value) + self._noise.draw(self._question_scale) >= threshold + self._shift
        if above:
            self._charge(self._event)
            self._shift = None
        return above


class GaussianRefresh(SparseVector):
    """Draws the threshold's noise from a Gaussian of the same variance."""

    def is_above(self, value: int, threshold: int) -> bool:
        if self._shift is None:
            self._charge(self._event)
            self._shift = int(self._noise._noise.discrete_gaussian(2 * self._threshold_scale**2, 1)[0])
        above = int(value) + self._noise.draw(self._question_scale) >= threshold + self._shift
        if above:
            self._shift = None
        return above


class FaintQuestions(SparseVector):
    """Draws a twentieth of the questions' noise."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._question_scale /= 20


class NoSettings(msgspec.Struct, frozen=True):
    """A twin has no settings."""


def make_method(name: str, ask: Callable[..., Asked]) -> Method:
    def accept(*facts: Any) -> None:
        """Take every schema."""

    def account(budget: Budget, *facts: Any) -> PureFilter:
        return PureFilter(budget)

    return Method(name, "a twin", None, "levels", "", NoSettings, account, accept, ask=ask)


def tell(curator: Curator, kept: Sequence[Question]) -> Asked:
    edges = frozenset(frozenset(question[:2]) for question in kept)
    return Asked(Cpdag(tuple(curator.schema.columns), frozenset(), edges), (), (), len(kept))


def sieve_method(name: str, vector: type[SparseVector]) -> Method:
    """PC's first order through a sieve; four rounds are afforded, three are started at most."""

    def ask(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: object) -> Asked:
        interview = curator.ask_questions(Kendall(40))
        epsilon = curator.accounting.total / 8
        sieve = interview.open_rounds(epsilon, Fraction(1, 2), Fraction(1), "round")
        own = (epsilon / 2, epsilon / 2, curator._gate._noise, curator._gate.charge, 2**20, "round", epsilon)
        sieve._vector = vector(*own)
        questions: list[Question] = [(x, y, ()) for x, y in combinations(curator.schema.columns, 2)]
        return tell(curator, [question for question in questions if not sieve.looks_independent(question, 1.0)])

    return make_method(name, ask)


def ask_with_wrong_relation(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: object) -> Asked:
    """Noise for add/remove neighbours, whatever the schema declares."""
    curator.relation = Relation.ADD_REMOVE
    curator.count_tables([("a", "b"), ("b", "c")], Fraction(1, 2), "tables")
    return tell(curator, [])


def ask_with_faint_noise(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: object) -> Asked:
    """Draws a twentieth of the noise that the answers tell of."""
    interview = curator.ask_questions(Kendall(40))
    blocks = curator._gate._laplace
    draw = blocks.draw
    blocks.draw = lambda scale: draw(scale / 20)  # type: ignore[method-assign]
    for x, y in combinations(curator.schema.columns, 2):
        interview.answer((x, y, ()), curator.accounting.total / 8, "question")
    return tell(curator, [])


def ask_with_local_noise(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: object) -> Asked:
    """Noise scaled to how far this table's own neighbours lie away: none at all if they do not (PCD's branch)."""
    counts = curator._table.counts(("a", "d"))
    noise = curator._gate._noise.discrete_laplace(Fraction(int(counts.min()) + 1), 1) if counts.min() else np.zeros(1)
    return tell(curator, [("a", "d", ())] if counts.max() + noise[0] > 0 else [])


def ask_with_a_peek(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: object) -> Asked:
    """Every answer has noise, but which question is asked depends on the number of rows."""
    names = ("a", "b") if curator._table.n_rows % 2 else ("b", "c")
    curator.count_tables([names], Fraction(1, 2), "a table")
    return tell(curator, [])


BROKEN_METHODS = (
    (sieve_method("uncharged last round", UnchargedRounds), "not charged"),
    (sieve_method("Gaussian threshold refresh", GaussianRefresh), "discrete Gaussian"),
    (sieve_method("faint noise of questions", FaintQuestions), "moved by"),
    (make_method("faint noise of answers", ask_with_faint_noise), "moved by"),
    (make_method("wrong relation", ask_with_wrong_relation), "moved by"),
    (make_method("local-sensitivity noise", ask_with_local_noise), "outside of a door"),
    (make_method("peek at the rows", ask_with_a_peek), "outside of a door"),
)
"""Flawed methods, and a part of what the replay must say about them."""

SOUND_SIEVE = sieve_method("sound sieve", SparseVector)

# --- mechanisms whose outputs tell two tables apart -----------------------------------------------------------------

Mechanism = Callable[[int, int], tuple[float, ...]]
"""From which table (0 or 1) and the number of the run to what comes out. The exact answers are 0 and 1."""


def release_with_one_seed(table: int, run: int) -> tuple[float, ...]:
    """Noise of the right scale, but the same in every run."""
    return (float(table + int(noise_source(NoiseKind.SEEDED, 7).discrete_laplace(Fraction(1), 1)[0])),)


def release_with_local_noise(table: int, run: int) -> tuple[float, ...]:
    """A p-value whose noise is scaled to its local sensitivity, which is 0 on the first table."""
    local = 1.0 if table else 0.0
    return (table + local * float(np.random.default_rng((table, run)).laplace()),)


def release_with_float_noise(table: int, run: int) -> tuple[float, ...]:
    """Inverse transform of a float, added to the answer as a float; beside the value, its number of binary places."""
    rng = np.random.default_rng((table, run))
    value = table + math.copysign(math.log(rng.random() or 1.0), rng.random() - 0.5)
    return value, float(math.log2(value.as_integer_ratio()[1]))


BROKEN_MECHANISMS: tuple[tuple[str, Mechanism], ...] = (
    ("seeded noise", release_with_one_seed),
    ("local-sensitivity noise", release_with_local_noise),
    ("float Laplace", release_with_float_noise),
)


def release_soundly(table: int, run: int) -> tuple[float, ...]:
    """The discrete Laplace mechanism with epsilon 1."""
    seed = 1_000_003 * run + table
    return (float(table + int(noise_source(NoiseKind.SEEDED, seed).discrete_laplace(Fraction(1), 1)[0])),)

"""Methods that ask adaptively: only answers steer them, the budget holds, and refusals come before the first charge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from dagveil.curator import Curator, Question, QuestionSession
from dagveil.curator.gate import Gate
from dagveil.data.column import Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import BudgetExceededError, MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import (
    ASKABLE,
    MEDIANS,
    Asked,
    Needs,
    ThresholdedQuestions,
    check_countable,
    check_statistic,
    check_tables,
    make_statistic,
    most_questions,
)
from dagveil.methods.method import METHODS, method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import Event, PureFilter
from dagveil.privacy.ledger.account import RunState, Terms
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.progress import silent
from dagveil.runs.discovery import discover
from dagveil.statistics.statistic import Statistic

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

ASKING = [name for name, method in METHODS.items() if method.ask and "statistic" in method.settings.__struct_fields__]
every_method = pytest.mark.parametrize("method", ASKING)
Ask = Callable[..., tuple[Asked, Curator]]
Log = list[tuple[str, tuple[object, ...], object, tuple[Event, ...]]]


def test_there_are_five_of_them() -> None:
    assert sorted(ASKING) == ["curate", "em-pc", "priv-pc", "sampled-gaussian-pc", "svt-pc"]


# --- record and replay ---

STEERING = (
    "answer",
    "answer_by_median",
    "answer_from_sample",
    "choose_number",
    "choose_separation",
    "flip_coin",
    "looks_independent",
)


class RecordingCurator(Curator):
    """Writes down every question with its answer and what it was charged."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.log: Log = []

    def count_tables(self, *asked: Any) -> Any:
        return self.note("count_tables", super().count_tables, asked)

    def ask_questions(self, statistic: Statistic) -> Any:
        return Noting(self, super().ask_questions(statistic))

    def note(self, name: str, ask: Callable[..., object], asked: tuple[Any, ...]) -> object:
        before = len(self.events)
        try:
            answer = ask(*asked)
        except BudgetExceededError as error:
            self.log.append((name, asked, error, self.events[before:]))
            raise
        self.log.append((name, asked, answer, self.events[before:]))
        return answer


class Noting:
    """An interview, or its sieve, whose answers are written down."""

    def __init__(self, curator: RecordingCurator, inner: Any) -> None:
        self._curator, self._inner = curator, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "open_rounds":
            return lambda *asked: Noting(self._curator, found(*asked))
        if name in STEERING:
            return lambda *asked: self._curator.note(name, found, asked)
        return found


class RowlessCurator:
    """Has no rows at all: it hands out what was written down, as long as the same is asked in the same order."""

    def __init__(self, real: RecordingCurator, accounting: Any) -> None:
        self.schema, self.relation, self.accounting = real.schema, real.relation, accounting
        self._log: Iterator[Any] = iter(real.log)
        self.events: list[Event] = []

    def count_tables(self, *asked: Any) -> object:
        return self.play("count_tables", asked)

    def ask_questions(self, statistic: Statistic) -> Playing:
        return Playing(self, statistic)

    def play(self, name: str, asked: tuple[Any, ...]) -> object:
        recorded_name, recorded, answer, events = next(self._log)
        assert (name, asked) == (recorded_name, recorded)
        for event in events:
            self.accounting.charge(event)
            self.events.append(event)
        if isinstance(answer, BudgetExceededError):
            raise answer
        return answer

    def is_finished(self) -> bool:
        return next(self._log, None) is None


class Playing:
    """An interview without rows: thresholds are computed from public facts, answers come from the record."""

    def __init__(self, curator: RowlessCurator, statistic: Statistic) -> None:
        nobody = {name: np.empty(0, dtype=np.uint8) for name in curator.schema.columns}
        empty = MemoryTable.from_codes(nobody, curator.schema)
        self._curator = curator
        gate = Gate(PureFilter(Budget.of(1, 0)), Mock(), noise_source(NoiseKind.SEEDED, 0))
        self._empty = QuestionSession(empty, curator.relation, statistic, gate)
        self.statistic = statistic
        self.asked = 0

    def critical_score(self, question: Question, *rest: float) -> float:
        return self._empty.critical_score(question, *rest)

    def open_rounds(self, *asked: Any) -> Any:
        sieve = self._empty.open_rounds(*asked)
        self.threshold_scale, self.question_scale = sieve.threshold_scale, sieve.question_scale
        return self

    def __getattr__(self, name: str) -> Any:
        if name not in STEERING:
            raise AttributeError(name)

        def play(*asked: Any) -> object:
            answer = self._curator.play(name, asked)
            self.asked += name != "flip_coin"
            return answer

        return play


CASES: dict[str, list[dict[str, Any]]] = {
    "em-pc": [{}, {"statistic": "g"}],
    "svt-pc": [{}, {"rounds": 4}, {"statistic": "reconciled-g"}],
    "priv-pc": [{}, {"rounds": 3}, {"rate": 0.5}, {"statistic": "median-g"}],
    "curate": [{}, {"margins": [0.9, 0.9]}, {"statistic": "median-chi-square"}],
    "sampled-gaussian-pc": [{}, {"questions": 5}],
}


@pytest.mark.parametrize(("method", "options"), [(name, options) for name in CASES for options in CASES[name]])
@pytest.mark.parametrize("nominal_rows", [2000, None])
def test_rows_steer_a_run_through_answers_alone(
    method: str, options: dict[str, Any], nominal_rows: int | None, sampled: Any, ask_method: Ask
) -> None:
    """Play every answer back to the method without any rows: it asks the same, spends the same, finds the same."""
    table = sampled("asia", 2000, nominal_rows=nominal_rows)
    for seed in range(2):
        asked, curator = ask_method(method, table, 1, seed=seed, make_curator=RecordingCurator, **options)
        assert isinstance(curator, RecordingCurator)
        assert curator.log
        chosen = method_named(method)
        settings = chosen.read_settings(options)
        accounting = chosen.accounting(Budget.of(1, 1e-6), table.schema, settings, Knowledge.none())
        rowless = RowlessCurator(curator, accounting)
        again = chosen.ask(rowless, Knowledge.none(), settings, silent)
        assert rowless.is_finished()
        assert again == asked
        assert tuple(rowless.events) == curator.events
        assert accounting.spent == curator.accounting.spent


def test_the_replay_would_notice_other_questions(sampled: Any, ask_method: Ask) -> None:
    """Turn one recorded answer round: the run must leave the record, or the replay would prove nothing."""
    table = sampled("asia", 2000)
    _, curator = ask_method("svt-pc", table, 1, make_curator=RecordingCurator)
    assert isinstance(curator, RecordingCurator)
    place = next(i for i, (name, _, answer, _) in enumerate(curator.log) if name == "looks_independent" and answer)
    name, asked, _, events = curator.log[place]
    curator.log[place] = (name, asked, False, events)
    chosen = method_named("svt-pc")
    settings = chosen.read_settings({})
    accounting = chosen.accounting(Budget.of(1, 1e-6), table.schema, settings, Knowledge.none())
    with pytest.raises((AssertionError, StopIteration)):
        chosen.ask(RowlessCurator(curator, accounting), Knowledge.none(), settings, silent)


# --- budgets ---


@pytest.mark.parametrize(
    ("method", "relation"),
    [(name, "add-remove") for name in ASKING] + [(name, "replace-one") for name in ASKING if "gaussian" not in name],
)
def test_no_run_passes_its_total(method: str, relation: str, sampled: Any, ask_method: Ask) -> None:
    table = sampled("cancer", 1000, relation=relation)
    fractions = []
    for epsilon, delta in [(0.02, 1e-6), (0.1, 1e-9), (1, 1e-6), (30, 1e-6), *([] if "gauss" in method else [(1, 0)])]:
        for seed in range(4):
            asked, curator = ask_method(method, table, epsilon, delta, seed)
            accounting = curator.accounting
            assert 0 < accounting.spent <= accounting.total
            assert sum((accounting.cost(event) for event in curator.events), Fraction(0)) == accounting.spent
            assert asked.graph.is_valid()
            assert asked.questions >= 0
            fractions.append(accounting.spent / accounting.total)
    assert max(fractions) > Fraction(1, 2)


@pytest.mark.parametrize(
    ("method", "options", "most"),
    [
        ("svt-pc", {"rounds": 2}, 2),
        ("priv-pc", {"rounds": 2}, 4),
        ("sampled-gaussian-pc", {"questions": 3}, 4),
    ],
)
def test_a_small_plan_ends_the_search_and_says_so(
    method: str, options: dict[str, int], most: int, sampled: Any, ask_method: Ask
) -> None:
    table = sampled("asia", 2000)
    for seed in range(3):
        asked, curator = ask_method(method, table, 1, seed=seed, statistic="g", **options)
        assert len(curator.events) <= most
        assert asked.unanswered
        assert curator.accounting.spent <= curator.accounting.total
        names = set(table.schema.columns)
        joined = {frozenset(edge) for edge in asked.graph.directed} | set(asked.graph.undirected)
        for x, y, order in asked.unanswered:
            assert {x, y} <= names
            assert order - asked.unanswered[0][2] in (0, 1)
            assert frozenset((x, y)) in joined
        (told,) = [finding for finding in asked.findings if "ended the search" in finding]
        assert all(" – ".join(sorted((x, y))) in told for x, y, _ in asked.unanswered)


@every_method
def test_required_and_excluded_pairs_are_not_asked_about(method: str, sampled: Any, ask_method: Ask) -> None:
    table = sampled("asia", 2000)
    knowledge = Knowledge((), frozenset([("asia", "tub"), ("tub", "asia")]), frozenset([("smoke", "lung")]))
    asked, curator = ask_method(method, table, 1, knowledge=knowledge, make_curator=RecordingCurator)
    assert isinstance(curator, RecordingCurator)
    pairs = set()
    for name, arguments, _, _ in curator.log:
        if name != "count_tables":
            pairs |= {frozenset(question[:2]) for question in find_questions(arguments)}
    assert len(pairs) > 10
    assert frozenset(("asia", "tub")) not in pairs
    assert frozenset(("smoke", "lung")) not in pairs
    assert ("smoke", "lung") in asked.graph.directed
    assert not {("asia", "tub"), ("tub", "asia")} & asked.graph.directed
    assert frozenset(("asia", "tub")) not in asked.graph.undirected


def find_questions(arguments: object) -> list[Question]:
    """Find (x, y, given) however deep it stands in a call's arguments."""
    if isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(arguments[0], str):
        return [arguments]
    if isinstance(arguments, list | tuple):
        return [question for part in arguments for question in find_questions(part)]
    return []


# --- refusals ---


def check_refused(table: MemoryTable, method: str, what: str, **options: Any) -> None:
    """Refused, nothing charged, and the reservation given back."""
    ledger = MemoryLedger()
    with pytest.raises(MethodError, match=what):
        discover(table, table.schema, 1, 1e-6, method=method, options=options, ledger=ledger, noise=NoiseKind.EXACT)
    account = ledger.account(table.schema.dataset)
    assert account.spent_epsilon == account.spending.reserved.epsilon == 0
    assert all(run.state is RunState.RELEASED and not run.events for run in ledger.history())


@every_method
@pytest.mark.parametrize("nominal_rows", [2000, None])
def test_chi_square_is_refused_before_anything_is_charged(method: str, nominal_rows: int | None, sampled: Any) -> None:
    table = sampled("cancer", 2000, nominal_rows=nominal_rows)
    check_refused(table, method, "chi-square cannot be asked about with noise", statistic="chi-square")


@pytest.mark.parametrize("method", ["svt-pc", "em-pc", "sampled-gaussian-pc"])
@pytest.mark.parametrize("statistic", MEDIANS)
def test_medians_are_refused_where_noise_must_be_fixed(method: str, statistic: str, sampled: Any) -> None:
    check_refused(sampled("cancer", 2000), method, "noise whose scale depends on the rows", statistic=statistic)


@every_method
def test_unknown_statistics_and_settings(method: str, sampled: Any) -> None:
    table = sampled("cancer", 2000)
    check_refused(table, method, "no statistic is called 'pearson'", statistic="pearson")
    check_refused(table, method, f"{method} \\(sound\\) has no setting 'colour'", colour="red")
    check_refused(table, method, "cannot be read", level="high")


@every_method
def test_tables_that_could_become_too_large(method: str) -> None:
    levels = tuple(f"v{i}" for i in range(200))
    schema = Schema(
        dataset="wide",
        columns={name: Categorical(levels, "v0") for name in "abcde"},
        reviewed=True,
        nominal_rows=100,
    )
    table = MemoryTable.from_codes({name: np.zeros(5, dtype=np.uint8) for name in "abcde"}, schema)
    option = {"order_shares": [1, 1, 1, 1]} if method == "em-pc" else {"largest_order": 3}
    check_refused(table, method, "questions of order 3 can need a table of 320000000000 cells", **option)


@every_method
def test_numbers_without_bins(method: str) -> None:
    columns = {"a": Numeric(bounds=(0, 1)), "b": Numeric(bounds=(0, 1), bins=4), "c": Numeric(bounds=(0, 1))}
    schema = Schema(dataset="numbers", columns=columns, reviewed=True)
    with pytest.raises(MethodError, match=r"a, c are numeric without bins; declare bins"):
        discover({name: [0.5] for name in "abc"}, schema, 1, method=method, ledger=None)


@every_method
def test_binned_numbers_are_counted(method: str, ask_method: Ask) -> None:
    columns = {name: Numeric(bounds=(0, 1), bins=3) for name in "abc"}
    schema = Schema(dataset="numbers", columns=columns, reviewed=True, nominal_rows=400)
    rng = np.random.default_rng(0)
    a = rng.random(400)
    table = MemoryTable.from_source({"a": a, "b": a, "c": rng.random(400)}, schema)
    asked, _ = ask_method(method, table, 100)
    assert asked.graph.undirected == {frozenset("ab")}
    assert asked.graph.directed == frozenset()


class TestSmallParts:
    def test_every_askable_statistic_can_be_made(self) -> None:
        for name in ASKABLE:
            made = make_statistic(name, 1000, 0.01)
            assert made.name == name.replace("median", "reconciled")
            assert made.parts == (41 if "reconciled" in made.name else 1)
            check_statistic(name, Needs.NOISY_VALUE)

    def test_one_column_is_no_graph(self) -> None:
        schema = Schema(dataset="one", columns={"a": Categorical(("x", "y"), "x")}, reviewed=True)
        with pytest.raises(MethodError, match="needs at least 2"):
            check_countable(schema)

    def test_negative_orders(self, sampled: Any) -> None:
        with pytest.raises(MethodError, match="choose 0 or more"):
            check_tables(sampled("cancer", 2000).schema, -1)

    def test_the_number_of_different_questions(self, sampled: Any) -> None:
        schema = sampled("cancer", 2000).schema
        assert [most_questions(schema, order) for order in range(4)] == [10, 40, 70, 80]

    @pytest.mark.parametrize(("statistic", "charged"), [("g", 0), ("kendall", 1), ("exact-distance", 1)])
    def test_margins_are_paid_for_only_where_they_are_needed(self, statistic: str, charged: int, sampled: Any) -> None:
        for nominal_rows, expected in ((2000, charged), (None, 1)):
            table = sampled("cancer", 2000, nominal_rows=nominal_rows)
            session, curator = self.open_session(table, statistic)
            assert len(curator.events) == expected
            assert session.share == pytest.approx(1.0 - 0.05 * expected)
            assert session.rows == pytest.approx(2000, abs=60)
            if expected:
                assert curator.accounting.spent == curator.accounting.total / 20

    def test_thresholds_follow_the_ties_of_the_columns(self, sampled: Any) -> None:
        table = sampled("cancer", 2000)
        session, _ = self.open_session(table, "kendall", epsilon=10**4)
        names = list(table.schema.columns)
        for x, y in [(names[0], names[1]), (names[2], names[4])]:
            even = []
            for name in (x, y):
                shares = table.counts((name,)) / 2000
                even.append(1 - float((shares**3).sum()))
            question = (x, y, ())
            plain = session.questions.critical_score(question, 0.01, 2000.0, even[0] * even[1])
            assert session.threshold(question) == pytest.approx(plain, rel=1e-3)
            assert session.threshold(question, 0.25) == pytest.approx(plain / 2, rel=1e-3)

    @pytest.mark.parametrize("statistic", ["g", "kendall"])
    def test_a_public_number_of_rows_is_taken_as_it_is(self, statistic: str) -> None:
        columns = {name: Categorical(("n", "y"), "n") for name in "ab"}
        schema = Schema(dataset="coins", columns=columns, reviewed=True)
        table = MemoryTable.from_codes({name: np.arange(731) % 2 for name in columns}, schema)
        session, curator = self.open_session(table, statistic, relation=Relation.REPLACE_ONE)
        assert session.rows == 731
        # ties are a secret still
        assert [event.label for event in curator.events] == ["one-way tables"] * (statistic == "kendall")
        assert [event.label for event in self.open_session(table, statistic)[1].events] == ["one-way tables"]

    @staticmethod
    def open_session(
        table: MemoryTable, statistic: str, epsilon: float = 1.0, relation: Relation = Relation.ADD_REMOVE
    ) -> tuple[ThresholdedQuestions, Curator]:
        budget = Budget.of(epsilon, 0)
        accounting = method_named("lap-mech").accounting(budget, table.schema, None, Knowledge.none())
        run = MemoryLedger().reserve("asked", budget, TERMS, "pure accounting", "test", "test")
        curator = Curator(table, relation, accounting, run, noise_source(NoiseKind.SEEDED, 0))
        return ThresholdedQuestions(curator, statistic, 0.01, 1, Needs.FIXED_NOISE), curator


def test_the_level_of_the_thresholds(ask_method: Ask) -> None:
    """Independent columns and almost no noise: a pair is kept about as often as the level says."""
    columns = {f"x{i}": Categorical(("n", "y"), "n") for i in range(30)}
    schema = Schema(dataset="coins", columns=columns, reviewed=True, nominal_rows=1000)
    rng = np.random.default_rng(0)
    table = MemoryTable.from_codes({name: rng.integers(0, 2, 1000).astype(np.uint8) for name in columns}, schema)
    for statistic in ("kendall", "g"):
        asked, _ = ask_method("svt-pc", table, 10**7, statistic=statistic, level=0.05, largest_order=0, slack=0)
        kept = len(asked.graph.directed) + len(asked.graph.undirected)
        assert abs(kept - 0.05 * 435) < 5 * np.sqrt(435 * 0.05 * 0.95)

"""Record and replay: every method, every pair of neighbours that it takes, and what the replay must notice."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from twins import NoSettings, make_method, tell

from dagveil.audit.doors import (
    AuditedCurator,
    AuditedGradients,
    AuditedKernels,
    AuditedPairs,
    AuditedQuestions,
    AuditedRounds,
    recorded,
)
from dagveil.audit.neighbours import AlignedTable, DataKind, Pair, fitting_kinds, fitting_relations, make_pair
from dagveil.audit.recording import Divergence, Exact, Recording, Rule
from dagveil.audit.replay import RepeatableRun, Replay, replay_method
from dagveil.curator import Curator
from dagveil.curator.kernel_questions import Ridge
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import AdditiveFunction
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import METHODS, method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import PureFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.kendall import Kendall

ONE = Budget.of(1, 0)
NOTHING = Exact(Rule.NOTHING)

PLACES = [
    (name, kind, relation)
    for name, method in METHODS.items()
    for kind in fitting_kinds(method)
    for relation in fitting_relations(method, kind)
]

VARIANTS: list[tuple[str, DataKind, int, dict[str, str]]] = [
    ("em-pc", DataKind.LEVELS, 40, {"statistic": "exact-distance"}),
    ("em-pc", DataKind.LEVELS, 40, {"statistic": "g"}),
    ("em-pc", DataKind.LEVELS, 800, {"statistic": "reconciled-g"}),
    ("svt-pc", DataKind.LEVELS, 40, {"statistic": "spearman"}),
    ("priv-pc", DataKind.LEVELS, 40, {"rate": "0.5"}),
    ("priv-pc", DataKind.LEVELS, 800, {"rate": "0.5", "statistic": "reconciled-chi-square"}),
    ("priv-pc", DataKind.LEVELS, 800, {"statistic": "median-chi-square"}),
    ("curate", DataKind.LEVELS, 800, {"statistic": "median-g"}),
    ("pcd", DataKind.NUMBERS, 40, {"test": "hsic"}),
    ("pcd", DataKind.NUMBERS, 40, {"test": "hsic", "regression": "ridge"}),
    ("pcd", DataKind.NUMBERS, 40, {"test": "partial"}),
]


def check(replay: Replay) -> None:
    assert replay.violations == ()
    assert 0.0 < replay.largest <= 1.0 + 1e-5  # something moved, so the pair is worth something
    assert dict(replay.doors)[replay.where] == replay.largest


@pytest.mark.parametrize(("name", "kind", "relation"), PLACES)
def test_every_method(name: str, kind: DataKind, relation: Relation) -> None:
    check(replay_method(method_named(name), make_pair(kind, relation), Budget.of(3, 1e-6)))


def test_every_method_is_replayed_under_every_relation_that_it_takes() -> None:
    assert {name for name, _, _ in PLACES} == set(METHODS)
    only_add_remove = {
        name for name in METHODS if {relation for one, _, relation in PLACES if one == name} == {Relation.ADD_REMOVE}
    }
    assert only_add_remove == {"sampled-gaussian-pc"}


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(("name", "kind", "rows", "options"), VARIANTS)
def test_settings(name: str, kind: DataKind, rows: int, options: dict[str, str], relation: Relation) -> None:
    replay = replay_method(method_named(name), make_pair(kind, relation, rows), Budget.of(20, 1e-6), options)
    assert replay.violations == ()
    assert replay.questions > 2


def test_a_replay_is_deterministic() -> None:
    pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
    first, second, other = (
        replay_method(method_named("svt-pc"), pair, Budget.of(3, 1e-6), seed=seed) for seed in (0, 0, 1)
    )
    assert first == second
    assert first != other


class Halved:
    """Public functions for questions about directions."""

    def function(self, target: str, given: tuple[str, ...]) -> AdditiveFunction:
        return AdditiveFunction(0.0, ((0.5,),) * len(given))


def ask_for_directions(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: object) -> Asked:
    laboratory = curator.ask_kernels(curator.schema.nominal_rows or 2)
    epsilon = curator.accounting.total / 4
    laboratory.rank_difference("a", "b", epsilon, Halved(), "ranks")
    laboratory.hsic_difference("a", "b", epsilon, Halved(), 0.5, "kernels")
    laboratory.hsic_difference("a", "c", epsilon, Ridge(0.1, 0.5), 0.5, "kernels, ridge")
    return tell(curator, [])


@pytest.mark.parametrize("relation", Relation)
def test_questions_about_directions(relation: Relation) -> None:
    check(replay_method(make_method("directions", ask_for_directions), make_pair(DataKind.NUMBERS, relation), ONE))


FREE = {"schema", "events", "relation", "accounting", "asked", "statistic", "slots"}
"""Public facts, which need no door."""


DOORS = [AuditedCurator, AuditedQuestions, AuditedRounds, AuditedGradients, AuditedKernels, AuditedPairs]


@pytest.mark.parametrize("audited", DOORS)
def test_every_door_is_on_tape(audited: type) -> None:
    """A door that is added to the curator must be added to the audit."""
    door = audited.__bases__[0]
    public = {name for name, member in vars(door).items() if callable(member) and not name.startswith("_")}
    # a paper calibration has no guarantee to audit; a critical score is computed from public facts alone
    assert public - set(vars(audited)) - FREE <= {"open_as_published", "critical_score"}


def test_a_door_without_a_reader_is_an_error_when_the_class_is_made() -> None:
    class WiderCurator(Curator):
        def largest_value(self, column: str) -> float:
            return 1.0

    class AuditedWiderCurator(WiderCurator):
        pass

    opened = {
        "ask_questions": AuditedQuestions,
        "ask_gradients": AuditedGradients,
        "ask_kernels": AuditedKernels,
        "open_pairs": AuditedPairs,
    }
    with pytest.raises(TypeError, match=r"WiderCurator\.largest_value would go unaudited"):
        recorded(**opened)(AuditedWiderCurator)
    del WiderCurator.largest_value
    assert recorded(**opened)(AuditedWiderCurator) is AuditedWiderCurator
    del opened["ask_kernels"]
    with pytest.raises(TypeError, match=r"WiderCurator\.ask_kernels"):
        recorded(**opened)(AuditedWiderCurator)


class TestNotices:
    """What a replay must see; the broken twins have more."""

    pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)

    def replay(self, ask: Any) -> Replay:
        return replay_method(make_method("flawed", ask), self.pair, Budget.of(4, 0))

    def test_a_result_that_depends_on_something_else(self) -> None:
        seen: list[int] = []

        def ask(curator: Curator, *rest: object) -> Asked:
            curator.count_rows(Fraction(1, 2))
            seen.append(1)
            return tell(curator, [("a", "b", ())] if len(seen) == 3 else [])

        assert any("result differs" in words for words in self.replay(ask).violations)

    def test_another_question(self) -> None:
        seen: list[int] = []

        def ask(curator: Curator, *rest: object) -> Asked:
            seen.append(1)
            curator.count_tables([("a", "b") if len(seen) < 3 else ("a", "c")], Fraction(1, 2), "table")
            return tell(curator, [])

        assert any("question 1 differs" in words for words in self.replay(ask).violations)

    @pytest.mark.parametrize("extra", [-1, 1])
    def test_more_or_fewer_questions(self, extra: int) -> None:
        seen: list[int] = []

        def ask(curator: Curator, *rest: object) -> Asked:
            seen.append(1)
            for _ in range(2 + (extra if len(seen) == 3 else 0)):
                curator.count_rows(Fraction(1, 4))
            return tell(curator, [])

        words = "ended after 1 questions" if extra < 0 else "was not asked on the first table"
        assert any(words in violation for violation in self.replay(ask).violations)

    def test_noise_that_depends_on_the_rows(self) -> None:
        def ask(curator: Curator, *rest: object) -> Asked:
            class Uneven:
                """A source whose scales know the number of rows."""

                def __getattr__(self, name: str) -> Any:
                    return getattr(curator._recording.noise, name)

                def discrete_laplace(self, scale: Fraction, size: int) -> Any:
                    return curator._recording.noise.discrete_laplace(scale * curator._table.n_rows, size)

            curator._gate._noise = Uneven()
            curator.count_rows(Fraction(1, 2))
            return tell(curator, [])

        assert any("noise depends on the rows" in words for words in self.replay(ask).violations)

    def test_a_secret_that_is_told_as_public(self) -> None:
        def ask(curator: Curator, *rest: object) -> Asked:
            curator.relation = Relation.REPLACE_ONE  # under which the number of rows would be public
            curator.count_rows(Fraction(1, 2))
            return tell(curator, [])

        assert self.replay(ask).largest == math.inf
        pair = make_pair(DataKind.LEVELS, Relation.REPLACE_ONE)
        held = replay_method(make_method("sound", ask), pair, Budget.of(4, 0))
        assert (held.violations, held.largest) == ((), 0.0)

    def test_a_statistic_that_moves_too_far(self) -> None:
        class Bold(Kendall):
            """A third of the sensitivity."""

            def sensitivity(self, relation: Relation, shape: Any) -> int:
                return Kendall.sensitivity(self, relation, shape) // 3

        def ask(curator: Curator, *rest: object) -> Asked:
            interview = curator.ask_questions(Bold(40))
            for question in [("a", "b", ()), ("a", "d", ()), ("b", "d", ()), ("b", "c", ("a",))]:
                interview.answer(question, Fraction(1, 2), "question")
            return tell(curator, [])

        replay = self.replay(ask)
        assert replay.largest > 1.0
        assert any(words.startswith("answer:") for words in replay.violations)


class TestTape:
    def test_answers_of_a_replay_are_those_of_the_tape(self) -> None:
        pair = make_pair(DataKind.LEVELS, Relation.REPLACE_ONE)
        told: list[object] = []

        def ask(curator: Curator, *rest: object) -> Asked:
            told.append(curator.count_tables([("a",)], Fraction(1, 2), "table"))
            return tell(curator, [])

        replay_method(make_method("told", ask), pair, ONE)
        assert told[0] == told[1] == told[2]

    def test_exact_answers_are_those_of_the_table(self) -> None:
        pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
        recordings = self.play(pair)
        for table, recording in zip((pair.first, pair.second), recordings[1:], strict=True):
            assert recording.exchanges[0].exact.values == tuple(table.counts(("a", "c")).reshape(-1).tolist())
        assert recordings[0].exchanges[0].exact.values != recordings[1].exchanges[0].exact.values

    def test_a_first_run_keeps_exact_scores_to_itself(self) -> None:
        recording = Recording(noise_source(NoiseKind.SEEDED, 0))
        pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
        for name in ("svt-pc", "em-pc"):
            RepeatableRun(method_named(name), pair.relation, Budget.of(3, 1e-6), None).run(pair.first, recording)
        secret = [one.exact for one in recording.exchanges if one.exact.rule in (Rule.ROUND, Rule.RECORDS)]
        assert len(secret) > 5
        assert all(exact.values == () for exact in secret)

    def test_rows_that_are_read_outside_of_a_door(self) -> None:
        pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
        recording = Recording(noise_source(NoiseKind.SEEDED, 0))
        curator = AuditedCurator(pair.first, pair.relation, PureFilter(ONE), recording)
        assert curator.schema == pair.schema
        curator.count_rows(Fraction(1, 2))
        assert recording.touched == []
        assert curator._table.n_rows == pair.first.n_rows
        assert recording.touched == ["n_rows"]

    def test_random_choices_are_kept_for_the_rows_that_are_shared(self) -> None:
        first = Recording(noise_source(NoiseKind.SEEDED, 3))
        first.ask("door", (), lambda: first.noise.bernoulli(Fraction(1, 2), 9), lambda answer, recording: NOTHING)
        for size in (8, 9, 10):
            again = Recording(noise_source(NoiseKind.SEEDED, 4), first.exchanges)
            drawn: list[np.ndarray] = []
            again.ask(
                "door",
                (),
                lambda again=again, drawn=drawn, size=size: drawn.append(again.noise.bernoulli(Fraction(1, 2), size)),
                lambda answer, recording: NOTHING,
            )
            shared = min(size, 9)
            assert drawn[0][:shared].tolist() == first.exchanges[0].answer[:shared].tolist()
            assert drawn[0][shared:].all()

    def test_choices_that_the_tape_does_not_have(self) -> None:
        first = Recording(noise_source(NoiseKind.SEEDED, 3))
        first.ask("door", (), lambda: first.noise.uniform_below(5, 9), lambda answer, recording: NOTHING)
        again = Recording(noise_source(NoiseKind.SEEDED, 4), first.exchanges)
        with pytest.raises(Divergence, match="20 random choices"):
            again.ask("door", (), lambda: again.noise.uniform_below(5, 20), lambda answer, recording: NOTHING)

    @staticmethod
    def play(pair: Pair) -> list[Recording]:
        recordings: list[Recording] = []
        for table in (pair.first, pair.first, pair.second):
            played = recordings[0].exchanges if recordings else None
            recordings.append(Recording(noise_source(NoiseKind.SEEDED, 0), played))
            curator = AuditedCurator(table, pair.relation, PureFilter(ONE), recordings[-1])
            curator.count_tables([("a", "c")], Fraction(1, 2), "table")
        return recordings


class TestPairs:
    @pytest.mark.parametrize("kind", DataKind)
    @pytest.mark.parametrize("relation", Relation)
    def test_one_record_makes_the_difference(self, kind: DataKind, relation: Relation) -> None:
        pair = make_pair(kind, relation)
        apart = np.abs(
            np.concatenate([pair.first.counts((name,)) - pair.second.counts((name,)) for name in pair.schema.columns])
        ).sum()
        if relation is Relation.ADD_REMOVE:
            assert pair.second.n_rows == pair.first.n_rows + 1
            assert apart == len(pair.schema.columns)
        else:
            assert pair.second.n_rows == pair.first.n_rows
            assert 0 < apart <= 2 * len(pair.schema.columns)

    def test_parts_of_an_aligned_table_are_those_of_its_parent(self) -> None:
        """The same rows land in a part, whatever order the engine keeps them in."""
        pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
        assert isinstance(pair.second, AlignedTable)
        everything = tuple(pair.schema.columns)
        whole = pair.second.split(2, lambda n_rows: np.zeros(n_rows, dtype=np.int64))
        slow = MemoryTable(pair.second._encoded, pair.schema).split(2, lambda n_rows: np.zeros(n_rows, dtype=np.int64))
        for one, other in zip(whole, slow, strict=True):
            assert one.counts(everything).tolist() == other.counts(everything).tolist()
        last = pair.second.thin(lambda n_rows: np.arange(n_rows) == n_rows - 1)
        difference = pair.second.counts(everything) - pair.first.counts(everything)
        assert last.counts(everything).tolist() == difference.tolist()

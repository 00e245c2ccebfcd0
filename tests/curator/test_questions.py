"""Scores in records: a search for neighbours that move one by more than a record, or a utility built from it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from spies import ROWS, capture_scores, make_rows, make_schema

from dagveil.curator import QuestionSession
from dagveil.curator.gate import Gate
from dagveil.curator.questions import RECORD, Question, Sample
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import PureFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.distance import ExactDistance
from dagveil.statistics.reconciled import PartTest, Reconciled
from dagveil.statistics.statistic import STATISTIC_NAMES, Statistic, TableShape, statistic_named

sys.path.append(str(Path(__file__).parents[1] / "statistics"))
from neighbours import all_tables, changes, largest_change, largest_change_of_all

KENDALL = statistic_named("kendall", ROWS)
HALF = Fraction(1, 2)
both_relations = pytest.mark.parametrize("relation", Relation)


class Counted:
    """A table that is nothing but its counts, by all columns in their order."""

    def __init__(self, schema: Schema, joint: np.ndarray) -> None:
        self.schema = schema
        self.n_rows = int(joint.sum())
        self._joint = joint

    def counts(self, columns: Sequence[str]) -> np.ndarray:
        names = list(self.schema.columns)
        axes = [names.index(name) for name in columns]
        summed = self._joint.sum(axis=tuple(axis for axis in range(self._joint.ndim) if axis not in axes))
        return summed.transpose([sorted(axes).index(axis) for axis in axes])


def open_gate() -> Gate:
    """Return a gate that affords everything and writes it down nowhere."""
    return Gate(PureFilter(Budget.of(10**9, 0)), Mock(), noise_source(NoiseKind.SEEDED, 0))


def ask_about(statistic: Statistic, schema: Schema, relation: Relation) -> QuestionSession:
    empty = MemoryTable.from_codes({name: np.empty(0, dtype=np.uint8) for name in schema.columns}, schema)
    return QuestionSession(empty, relation, statistic, open_gate())


class TestScores:
    """Theorem 1 of docs/proofs/scores-in-records.md, by a search for neighbours that break it."""

    @both_relations
    @pytest.mark.parametrize("name", STATISTIC_NAMES)
    @pytest.mark.parametrize(("shape", "most_rows"), [((1, 2, 2), 7), ((2, 2, 2), 4), ((1, 2, 3), 5), ((1, 3, 3), 3)])
    def test_every_small_table(
        self, name: str, shape: tuple[int, int, int], most_rows: int, relation: Relation
    ) -> None:
        measure = self.scores_of(statistic_named(name, 6), shape, relation)
        assert largest_change_of_all(measure, shape, most_rows, relation) <= RECORD

    @both_relations
    @pytest.mark.parametrize("name", STATISTIC_NAMES)
    @pytest.mark.parametrize("shape", [(1, 2, 2), (3, 2, 2), (1, 3, 3)])
    def test_adversarial_tables(self, name: str, shape: tuple[int, int, int], relation: Relation) -> None:
        measure = self.scores_of(statistic_named(name, ROWS), shape, relation)
        reached = largest_change(measure, shape, ROWS, relation, np.random.default_rng(0), starts=1)
        assert reached <= RECORD
        if name in ("kendall", "g") and shape == (1, 2, 2):  # the search is worth something
            assert reached > 0.8 * RECORD

    @both_relations
    def test_exact_distance(self, relation: Relation) -> None:
        statistic = ExactDistance(0.1, KENDALL)
        measure = self.scores_of(statistic, (1, 2, 2), relation)
        assert largest_change_of_all(measure, (1, 2, 2), 4, relation) == RECORD
        near = np.array([[[[30, 20], [20, 30]]], [[[27, 23], [22, 28]]], [[[60, 31], [4, 5]]]])
        for cores in near:
            assert changes(measure, cores, relation).max() <= RECORD
        larger = self.scores_of(statistic, (2, 2, 2), relation)
        assert largest_change_of_all(larger, (2, 2, 2), 3, relation) <= RECORD

    @both_relations
    @pytest.mark.parametrize("test", PartTest)
    def test_votes_with_the_same_split(self, test: PartTest, relation: Relation) -> None:
        """Unchanged records keep their parts; a record that comes, goes or is replaced does so in one part."""
        parts, rng = 5, np.random.default_rng(0)
        schema = make_schema(s=2, x=2, y=2)
        asked = ask_about(Reconciled(test, parts), schema, relation)

        def measure(stack: np.ndarray) -> np.ndarray:
            return np.array(
                [
                    asked._score(("x", "y", ("s",)), Sample(None, [Counted(schema, table) for table in dealt]))
                    for dealt in stack
                ]
            )

        worst = 0
        for size in (3, 12, 40):
            for alpha in (0.1, 0.5, 2.0):
                core = rng.multinomial(size, rng.dirichlet(np.full(8, alpha)), size=parts).reshape(parts, 2, 2, 2)
                # strong enough that single records decide about single votes
                worst = max(worst, int(changes(measure, core[None], Relation.ADD_REMOVE)[0]))
                before = measure(core[None])[0]
                for part in range(parts):
                    one = np.repeat(core[None], 8, axis=0)
                    one[:, part] += np.eye(8, dtype=np.int64).reshape(8, 2, 2, 2)
                    values = np.append(measure(one), before) if relation is Relation.ADD_REMOVE else measure(one)
                    worst = max(worst, int(values.max() - values.min()))
        assert worst == RECORD

    @staticmethod
    def scores_of(
        statistic: Statistic, shape: tuple[int, int, int], relation: Relation
    ) -> Callable[[np.ndarray], np.ndarray]:
        schema = make_schema(s=shape[0], x=shape[1], y=shape[2])
        asked = ask_about(statistic, schema, relation)
        question: Question = ("x", "y", ("s",))

        def measure(tables: np.ndarray) -> np.ndarray:
            return np.array(
                [asked._score(question, Sample(None, [Counted(schema, table)])) for table in tables.reshape(-1, *shape)]
            )

        return measure

    def test_the_order_of_columns_does_not_matter(self) -> None:
        schema = make_schema(a=2, b=3, c=2, d=3)
        asked = QuestionSession(
            make_rows(schema, 200),
            Relation.ADD_REMOVE,
            KENDALL,
            open_gate(),
        )
        fresh = [
            asked._score(question, asked._draw_sample(Fraction(1)))
            for question in [("a", "b", ("c", "d")), ("b", "a", ("d", "c")), ("b", "a", ("c", "d"))]
        ]
        assert len(set(fresh)) == 1
        assert fresh[0] > 0

    @both_relations
    def test_the_score_is_the_value_over_its_sensitivity(self, relation: Relation) -> None:
        schema = make_schema(s=2, x=3, y=2)
        table = make_rows(schema, 150)
        shape = TableShape(2, 3, 2)
        for name in STATISTIC_NAMES:
            statistic = statistic_named(name, ROWS)
            asked = QuestionSession(table, relation, statistic, open_gate())
            value = int(statistic.values(table.counts(("s", "x", "y"))))
            scored = asked._score(("x", "y", ("s",)), asked._draw_sample(Fraction(1)))
            assert scored == value * RECORD // statistic.sensitivity(relation, shape)


class Stretched:
    """The same statistic on a grid that is seven times as fine."""

    def __init__(self, inner: Statistic) -> None:
        self._inner = inner
        self.name, self.parts = inner.name, 1

    def values(self, tables: np.ndarray) -> np.ndarray:
        return 7 * self._inner.values(tables)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        return 7 * self._inner.sensitivity(relation, shape)

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        return 7 * self._inner.critical_value(level, rows, shape, ties)

    def refusal(self, relation: Relation) -> str | None:
        return None


class TestThresholds:
    @both_relations
    @pytest.mark.parametrize("name", STATISTIC_NAMES)
    def test_the_grid_of_a_statistic_changes_nothing(self, name: str, relation: Relation) -> None:
        schema = make_schema(s=2, x=3, y=2)
        one, other = (
            ask_about(statistic, schema, relation)
            for statistic in (statistic_named(name, ROWS), Stretched(statistic_named(name, ROWS)))
        )
        question: Question = ("x", "y", ("s",))
        assert one.critical_score(question, 0.01, 250.0, 0.6) == pytest.approx(
            other.critical_score(question, 0.01, 250.0, 0.6), rel=1e-12
        )
        sample = [Counted(schema, np.random.default_rng(0).integers(0, 30, (2, 3, 2)))]
        assert one._score(question, Sample(None, sample)) == other._score(question, Sample(None, sample))

    @both_relations
    @pytest.mark.parametrize("name", STATISTIC_NAMES)
    def test_scores_decide_as_the_statistic_does(self, name: str, relation: Relation) -> None:
        schema = make_schema(s=2, x=2, y=3)
        statistic = statistic_named(name, ROWS)
        asked = ask_about(statistic, schema, relation)
        question: Question = ("x", "y", ("s",))
        shape = TableShape(2, 2, 3)
        critical = asked.critical_score(question, 0.1, 200.0, 0.5)
        assert critical == asked.critical_score(("y", "x", ("s",)), 0.1, 200.0, 0.5)
        value = statistic.critical_value(0.1, 200.0, shape, 0.5)
        rng = np.random.default_rng(0)
        said = set()
        for _ in range(60):
            table = rng.multinomial(200, rng.dirichlet(np.full(12, 20.0))).reshape(2, 2, 3)
            exact = asked._score(question, Sample(None, [Counted(schema, table)]))
            says = int(statistic.values(table)) > value
            assert (exact > critical * RECORD) == says
            said.add(says)
        assert said == {True, False}


class TestChoices:
    OPTIONS = (
        ((("x", "y", ()), 0.7), (("x", "y", ("z",)), 1.3)),
        ((("x", "z", ()), 0.2), (("x", "z", ("y",)), 0.9)),
        ((("y", "z", ()), 0.5),),
    )

    @both_relations
    @pytest.mark.parametrize("name", ["kendall", "g"])
    def test_utilities_move_by_one_record_at_most(
        self, name: str, relation: Relation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schema = make_schema(x=2, y=2, z=2)
        seen = capture_scores(monkeypatch)

        def utilities(joint: np.ndarray) -> np.ndarray:
            seen.clear()
            asked = ask_about(statistic_named(name, 4), schema, relation)
            whole = asked._draw_sample(Fraction(1))
            # the interview's own sample, with these counts in place of its rows
            monkeypatch.setattr(asked, "_whole", Sample(whole.table, [Counted(schema, joint)]))
            asked.choose_number(self.OPTIONS, HALF, "number")
            asked.choose_separation([one for many in self.OPTIONS for one in many], HALF, "separation")
            return np.array([float(score) for scores in seen for score in scores])

        rng = np.random.default_rng(0)
        cores = [table.reshape(2, 2, 2) for n in range(3) for table in all_tables((2, 2, 2), n)]
        cores += [rng.multinomial(n, rng.dirichlet(np.full(8, 0.3))).reshape(2, 2, 2) for n in (20, 100, 300) * 12]
        worst = 0.0
        for core in cores:
            moved = np.array([utilities(core + one) for one in np.eye(8, dtype=np.int64).reshape(8, 2, 2, 2)])
            if relation is Relation.ADD_REMOVE:
                moved = np.abs(moved - utilities(core))
                worst = max(worst, float(moved.max()))
            else:
                worst = max(worst, float((moved.max(axis=0) - moved.min(axis=0)).max()))
        assert 0.5 < worst <= 1.0

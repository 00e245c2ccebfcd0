"""Columns that share one level explain each other's edges: any tree among them would fit, so none is drawn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dagveil.data.column import Categorical
from dagveil.data.schema import Schema
from dagveil.evidence.questions import Answers, Questions
from dagveil.graphs.cpdag import Dag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source
from dagveil.runs.result import Result
from dagveil.runs.search import search_evidence
from dagveil.search.constraint.skeleton import SkeletonSettings, find_explanations
from dagveil.search.settings import SearchRule, SearchSettings

ASKED = ("q1", "q2", "q3", "q4")
SCHEMA = Schema(
    dataset="survey",
    reviewed=True,
    nominal_rows=2000,
    columns={
        **dict.fromkeys(ASKED, Categorical(levels=("no", "yes", "not asked"), outside="no")),
        **dict.fromkeys("abc", Categorical(levels=("no", "yes"), outside="no")),
    },
)


@pytest.fixture(params=[SearchRule.TESTS, SearchRule.SCORE], ids=lambda rule: rule.value, scope="module")
def result(request: pytest.FixtureRequest) -> Result:
    """Half of the people were not asked four questions, whose answers are independent; a, b and c are a chain."""
    rng = np.random.default_rng(5)
    skipped = rng.random(2000) < 0.5
    rows = {
        name: np.where(skipped, "not asked", np.where(rng.random(2000) < 0.05, "yes", "no")).tolist() for name in ASKED
    }
    a = rng.random(2000) < 0.5
    b = np.where(rng.random(2000) < 0.85, a, ~a)
    c = np.where(rng.random(2000) < 0.85, b, ~b)
    rows |= {name: np.where(held, "yes", "no").tolist() for name, held in zip("abc", (a, b, c), strict=True)}
    evidence = measure_source(pa.table(rows), SCHEMA, 3, "1e-6", noise=NoiseKind.SEEDED, seed=3)
    return search_evidence(evidence, SearchSettings(search=request.param))


def test_columns_that_tell_the_same_are_not_joined(result: Result) -> None:
    drawn = result.graph.cpdag.skeleton()
    assert {frozenset("ab"), frozenset("bc")} <= drawn
    assert not [pair for pair in drawn if pair <= set(ASKED)]


def test_the_result_says_which_column_explains_an_edge(result: Result) -> None:
    told = [miss for miss in result.near_misses if miss.explained_by is not None]
    assert told
    for miss in told:
        assert miss.found
        assert {miss.source, miss.target, miss.explained_by} <= set(ASKED)
        assert miss.explained_by not in (miss.source, miss.target)
    words = f"{told[0].source} and {told[0].target} depend on each other, but {told[0].explained_by} could explain it"
    assert any(words in sentence for sentence in result.summary)


@pytest.mark.parametrize(
    ("depends_on_both", "p_value", "odds", "explains"),
    [
        pytest.param(True, 0.2, -3.0, True, id="independent"),
        pytest.param(True, 0.2, 0.0, True, id="a test that noise blinds"),
        pytest.param(True, 1e-3, 1.9, True, id="hardly dependent"),
        pytest.param(True, 1e-3, 2.1, False, id="clearly dependent"),
        pytest.param(True, 1e-9, 0.0, False, id="separated at no level"),
        pytest.param(False, 0.2, 0.0, False, id="apart from one end"),
    ],
)
def test_a_dependence_must_be_clear_given_each_column_that_could_explain_it(
    oracle: type, depends_on_both: bool, p_value: float, odds: float, explains: bool
) -> None:
    class Blurred(oracle):  # type: ignore[misc]
        def test(self, questions: Questions) -> Answers:
            found: Answers = super().test(questions)
            if not questions.order:
                return found
            return Answers(found.statistic, found.freedom, np.full(len(questions), p_value))

        def odds(self, questions: Questions) -> np.ndarray:
            return np.full(len(questions), odds)

    arcs = {("x", "y"), ("x", "z"), ("y", "z")} if depends_on_both else {("x", "y")}
    tests = Blurred(Dag(("x", "y", "z"), frozenset(arcs)))
    found = find_explanations(tests, SkeletonSettings(), [frozenset("xy")])
    assert found == ({frozenset("xy"): "z"} if explains else {})

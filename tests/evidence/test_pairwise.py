"""Missing values left out pair by pair: what tests then say, and that their level holds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from simulated_tables import EXACT, count
from test_mixed_evidence import release as release_mixed

from dagveil.data.mixed import MixedPlan
from dagveil.evidence import wald
from dagveil.evidence.blocks import covariance_from_mixed
from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.mixed import MixedEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable
from dagveil.evidence.wald import NO_SLACK

NAMES = ("x", "z", "y")
ALL = frozenset(NAMES)
GIVEN = Questions.of([(0, 2, (1,))])
ASKED = (Questions.of([(0, 1, ()), (1, 2, ()), (0, 2, ())]), GIVEN)


def draw(n: int, rng: np.random.Generator, share: float) -> dict[str, np.ndarray]:
    """Return codes of x ← z → y with three levels each, strongly joined, and −1 where a value is missing."""
    z = rng.integers(0, 3, n)
    x, y = (np.where(rng.random(n) < 0.7, z, rng.integers(0, 3, n)) for _ in range(2))
    return {name: np.where(rng.random(n) < share, -1, column) for name, column in zip(NAMES, (x, z, y), strict=True)}


def tables_of(codes: dict[str, np.ndarray], size: int, widest: int = 2) -> list[NoisyTable]:
    """Return exact tables; missing values are the last of `size` levels."""
    whole = {name: np.where(column < 0, size - 1, column) for name, column in codes.items()}
    sets = [names for width in range(2, widest + 1) for names in combinations(NAMES, width)]
    return [NoisyTable(names, count(whole, dict.fromkeys(NAMES, size), names), EXACT) for names in sets]


@pytest.mark.parametrize("widest", [2, 3])
def test_an_empty_level_that_is_left_out_changes_nothing(widest: int) -> None:
    codes = draw(5000, np.random.default_rng(1), 0.0)
    bare = marginal_evidence(NAMES, tables_of(codes, 3, widest))
    left_out = marginal_evidence(NAMES, tables_of(codes, 4, widest), pairwise=ALL)
    joint = JointEvidence(tables_of(codes, 3, 3)[-1])
    joint_left_out = JointEvidence(tables_of(codes, 4, 3)[-1], pairwise=ALL)
    for questions in ASKED:
        for one, other in ((bare, left_out), (joint, joint_left_out)):
            assert other.test(questions).freedom.tolist() == one.test(questions).freedom.tolist()
            np.testing.assert_allclose(other.test(questions).statistic, one.test(questions).statistic, rtol=1e-6)


def test_the_joint_table_tests_on_the_rows_that_have_all_values() -> None:
    codes = draw(5000, np.random.default_rng(2), 0.3)
    found = JointEvidence(tables_of(codes, 4, 3)[-1], pairwise=ALL)
    for questions in ASKED:
        for row in range(len(questions)):
            question = questions.select(np.array([row]))
            used = [NAMES[k] for k in (question.x[0], question.y[0], *question.given[0])]
            kept = np.all([codes[name] >= 0 for name in used], axis=0)
            rows = {name: np.maximum(column[kept], 0) for name, column in codes.items()}
            bare = JointEvidence(tables_of(rows, 3, 3)[-1])
            np.testing.assert_allclose(found.test(question).statistic, bare.test(question).statistic, rtol=1e-6)


def reject(evidence_of: str, runs: int, rng: np.random.Generator) -> float:
    """Return how often x and y are called dependent given z at a level of 5 %, with a third of values missing."""
    found = []
    for _ in range(runs):
        codes = draw(4000, rng, 1 / 3)
        if evidence_of == "pairs":
            evidence = marginal_evidence(NAMES, tables_of(codes, 4), pairwise=ALL)
        else:
            plan = MixedPlan(("x", "z", "y"), (4, 4, 4), (), (), (), (), 0.0, 1.0, 10)
            whole = [np.where(column < 0, 3, column).astype(float) for column in codes.values()]
            covariance = covariance_from_mixed(release_mixed(plan, whole, 1e-3, rng), NAMES, (), ALL)
            evidence = MixedEvidence(covariance, NO_SLACK)  # type: ignore[assignment]
        found.append(float(evidence.test(GIVEN).p_value[0]))
    return float(np.mean(np.array(found) < 0.05))


@pytest.mark.parametrize("evidence_of", ["pairs", "one matrix"])
def test_blocks_of_different_rows_keep_the_level(evidence_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wald, "LEFT_BEHIND", 0.0)
    rng = np.random.default_rng(3)
    # 300 runs at 5 %: 0.09 is more than three deviations away
    assert 0.01 < reject(evidence_of, 300, rng) < 0.09


@pytest.mark.parametrize("evidence_of", ["pairs", "one matrix"])
def test_without_what_fewer_rows_add_the_level_is_lost(evidence_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(x: tuple[np.ndarray, ...], y: tuple[np.ndarray, ...], lost: np.ndarray, n_rows: float) -> np.ndarray:
        return np.zeros((len(lost), 1, 1))

    monkeypatch.setattr(wald, "fewer_rows", nothing)
    monkeypatch.setattr(wald, "LEFT_BEHIND", 0.0)
    assert reject(evidence_of, 100, np.random.default_rng(4)) > 0.2


def test_numbers_that_are_missing_are_left_out_of_one_matrix() -> None:
    """Covariances are those of the rows that have both values, means included, and not of rows filled up."""
    rng = np.random.default_rng(5)
    n = 20_000
    a = rng.integers(0, 2, n)
    x = a + rng.standard_normal(n)
    y = 0.5 * x + rng.standard_normal(n)
    x[rng.random(n) < 0.1 + 0.4 * a] = np.nan
    code = np.where(rng.random(n) < 0.2, 2, a)
    plan = MixedPlan(("a",), (3,), ("x", "y"), (0.3, 0.1), (1.0, 1.0), (1, 1), 400.0, 1.0, 10, ("x",))
    released = release_mixed(plan, [code.astype(float), x, y], 1e-3, rng)
    found = covariance_from_mixed(released, ("a", "x", "y"), (), frozenset({"a", "x"}))
    assert found.sizes == (1, 1, 1)
    known = np.isfinite(x)
    np.testing.assert_allclose(found.matrix[1, 2], np.cov(x[known], y[known], bias=True)[0, 1], atol=5e-3)
    both = known & (code < 2)
    first = (code[both] == 0).astype(float)
    np.testing.assert_allclose(found.matrix[0, 1], np.cov(first, x[both], bias=True)[0, 1], atol=5e-3)
    assert found.lost is not None
    np.testing.assert_allclose(found.lost[0, 1], 1 / both.sum() - 1 / n, rtol=1e-3)
    filled = covariance_from_mixed(released, ("a", "x", "y"))
    assert filled.sizes == (2, 2, 1)
    assert filled.lost is None

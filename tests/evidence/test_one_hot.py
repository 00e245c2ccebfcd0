"""The one-hot covariance and the partial covariances on it, against plain formulas on whole tables."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from simulated_tables import EXACT, all_pairs, count, draw_codes, pooled_partial, release

from dagveil.evidence import pairs as pairs_module
from dagveil.evidence import triples as triples_module
from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.covariance import LEVELS_KEPT, OneHotCovariance, covariance_from_tables
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable
from dagveil.evidence.triples import TripleEvidence

LEVELS = {"a": 2, "b": 3, "c": 4, "d": 2}
N_ROWS = 4000


@pytest.fixture(scope="module")
def codes() -> dict[str, np.ndarray]:
    return draw_codes(N_ROWS, np.random.default_rng(1), LEVELS)


@pytest.fixture(scope="module")
def exact(codes: dict[str, np.ndarray]) -> PairEvidence:
    return marginal_evidence(list(LEVELS), release(codes, LEVELS, all_pairs(LEVELS), EXACT))


def one_hot(codes: dict[str, np.ndarray], name: str, levels: int) -> np.ndarray:
    """Indicators of all levels but the last."""
    return (codes[name][:, None] == np.arange(levels - 1)).astype(float)


def unwhiten(c: OneHotCovariance, x: int, y: int, block: np.ndarray) -> np.ndarray:
    a, b = int(c.size[x]), int(c.size[y])
    return c.root[x, :a, :a] @ block.reshape(a, b) @ c.root[y, :b, :b].T


def test_blocks_are_the_covariance_of_indicators(codes: dict[str, np.ndarray], exact: PairEvidence) -> None:
    c = exact.covariance
    assert c.n_rows == pytest.approx(N_ROWS)
    names = list(LEVELS)
    for i, j in permutations(range(len(names)), 2):
        left, right = (one_hot(codes, names[k], LEVELS[names[k]]) for k in (i, j))
        brute = (left - left.mean(axis=0)).T @ (right - right.mean(axis=0)) / N_ROWS
        a, b = left.shape[1], right.shape[1]
        np.testing.assert_allclose(unwhiten(c, i, j, c.blocks[i, j, :a, :b]), brute, atol=1e-12)
        own = (left - left.mean(axis=0)).T @ (left - left.mean(axis=0)) / N_ROWS
        np.testing.assert_allclose(c.root[i, :a, :a] @ c.root[i, :a, :a].T, own, atol=1e-12)
        np.testing.assert_allclose(c.whitener[i, :a, :a] @ c.root[i, :a, :a], np.eye(a), atol=1e-10)


def test_order_one_needs_no_triple(codes: dict[str, np.ndarray], exact: PairEvidence) -> None:
    """u from pair tables equals Σ_z (N_xyz − N_xz N_yz / N_z) / n from the three-way table."""
    names = list(LEVELS)
    for x, y, z in permutations(range(len(names)), 3):
        wald = exact.wald(Questions.of([(x, y, (z,))]))
        brute = pooled_partial(count(codes, LEVELS, (names[x], names[y], names[z])))[:-1, :-1]
        np.testing.assert_allclose(unwhiten(exact.covariance, x, y, wald.partial[0]), brute, atol=1e-11)


def test_sampling_covariance_is_the_stratified_one(codes: dict[str, np.ndarray], exact: PairEvidence) -> None:
    """Without noise C = Σ_z p_z D_{x|z} ⊗ D_{y|z} / n, written out stratum by stratum."""
    names = list(LEVELS)
    for x, y, z in permutations(range(len(names)), 3):
        xz, yz = (count(codes, LEVELS, (names[k], names[z])) for k in (x, y))
        brute = np.zeros(((LEVELS[names[x]] - 1) * (LEVELS[names[y]] - 1),) * 2)
        for level in range(LEVELS[names[z]]):
            px, py = (table[:-1, level] / table[:, level].sum() for table in (xz, yz))
            dx, dy = (np.diag(p) - np.outer(p, p) for p in (px, py))
            brute += xz[:, level].sum() / N_ROWS * np.kron(dx, dy) / N_ROWS
        wald = exact.wald(Questions.of([(x, y, (z,))]))
        a, b = int(exact.covariance.size[x]), int(exact.covariance.size[y])
        lift = np.kron(exact.covariance.root[x, :a, :a], exact.covariance.root[y, :b, :b])
        np.testing.assert_allclose(lift @ wald.covariance[0] @ lift.T, brute, atol=1e-10)


def test_joint_test_equals_brute_force_over_joint_strata(codes: dict[str, np.ndarray]) -> None:
    """u and C of an order-2 question against the four-way table that is never released."""
    triples = list(combinations(LEVELS, 3))
    evidence = marginal_evidence(list(LEVELS), release(codes, LEVELS, all_pairs(LEVELS) + triples, EXACT))
    assert isinstance(evidence, TripleEvidence)
    names = list(LEVELS)
    for x, y in combinations(range(4), 2):
        z1, z2 = (z for z in range(4) if z not in (x, y))
        questions = Questions.of([(x, y, (z1, z2))])
        assert evidence.joint(questions).all()
        full = count(codes, LEVELS, (names[x], names[y], names[z1], names[z2]))
        joint = full.reshape(*full.shape[:2], -1)
        assert joint.sum(axis=(0, 1)).min() >= 5  # nothing is merged
        wald = next(evidence._joint_walds(questions))[1]
        brute = pooled_partial(joint)[:-1, :-1]
        np.testing.assert_allclose(unwhiten(evidence.covariance, x, y, wald.partial[0]), brute, atol=1e-11)
        covariance = np.zeros((brute.size, brute.size))
        for z in range(joint.shape[2]):
            # cells are floored at half a row: no cell of this table is emptier
            px, py = (np.maximum(joint[:, :, z].sum(axis=axis), 0.5) for axis in (1, 0))
            px, py = px[:-1] / px.sum(), py[:-1] / py.sum()
            share = joint[:, :, z].sum() / N_ROWS
            covariance += share * np.kron(np.diag(px) - np.outer(px, px), np.diag(py) - np.outer(py, py)) / N_ROWS
        a, b = int(evidence.covariance.size[x]), int(evidence.covariance.size[y])
        lift = np.kron(evidence.covariance.root[x, :a, :a], evidence.covariance.root[y, :b, :b])
        np.testing.assert_allclose(lift @ wald.covariance[0] @ lift.T, covariance, atol=1e-10)
        statistic = brute.reshape(-1) @ np.linalg.solve(covariance, brute.reshape(-1))
        assert evidence.test(questions).statistic[0] == pytest.approx(statistic, rel=1e-6)


def test_joint_tests_see_what_main_effects_miss() -> None:
    """x = y = z₁ xor z₂ plus independent errors: dependent given main effects, independent given both."""
    rng = np.random.default_rng(9)
    n_rows = 20_000
    z1, z2 = rng.integers(0, 2, (2, n_rows))
    flips = rng.random((2, n_rows)) < 0.2
    codes = {"x": (z1 ^ z2) ^ flips[0], "y": (z1 ^ z2) ^ flips[1], "z1": z1, "z2": z2}
    levels = dict.fromkeys(codes, 2)
    question = Questions.of([(0, 1, (2, 3))])
    pairs = marginal_evidence(list(codes), release(codes, levels, all_pairs(levels), EXACT))
    assert pairs.test(question).p_value[0] < 1e-6
    triples = [("x", "z1", "z2"), ("y", "z1", "z2")]
    joint = marginal_evidence(list(codes), release(codes, levels, all_pairs(levels) + triples, EXACT))
    assert joint.test(question).p_value[0] > 0.001


def test_columns_with_many_levels_change_no_other_test(codes: dict[str, np.ndarray]) -> None:
    """Padding: blocks grow with the widest column, answers about the others stay."""
    rng = np.random.default_rng(3)
    narrow = marginal_evidence(list(LEVELS), release(codes, LEVELS, all_pairs(LEVELS), 4.0, np.random.default_rng(4)))
    levels = LEVELS | {"wide": 7}
    wide_codes = codes | {"wide": rng.integers(0, 7, N_ROWS)}
    tables = release(codes, LEVELS, all_pairs(LEVELS), 4.0, np.random.default_rng(4))
    # more noise: the new column's tables weigh next to nothing in the margins of the others
    tables += release(wide_codes, levels, [(name, "wide") for name in LEVELS], 4000.0)
    wide = marginal_evidence(list(levels), tables)
    assert wide.covariance.blocks.shape[2] > narrow.covariance.blocks.shape[2]
    for order in range(3):
        asked = [
            (x, y, given)
            for x, y in combinations(range(4), 2)
            for given in combinations([z for z in range(4) if z not in (x, y)], order)
        ]
        questions = Questions.of(asked)
        np.testing.assert_allclose(wide.test(questions).statistic, narrow.test(questions).statistic, rtol=1e-4)
        np.testing.assert_array_equal(wide.test(questions).freedom, narrow.test(questions).freedom)


def test_many_levels_are_merged_into_a_few() -> None:
    rng = np.random.default_rng(6)
    levels = {"x": 30, "y": 2}
    x = np.minimum(rng.geometric(0.25, 5000) - 1, 29)
    codes = {"x": x, "y": (rng.random(5000) < np.where(x == 0, 0.8, 0.3)).astype(int)}
    evidence = marginal_evidence(list(levels), release(codes, levels, all_pairs(levels), 4.0, rng))
    c = evidence.covariance
    assert c.size[0] + 1 <= LEVELS_KEPT
    merged = c.groups[0]
    assert merged.shape == (30,)
    # the most frequent levels stay apart
    assert len({int(merged[level]) for level in range(3)}) == 3
    assert evidence.test(Questions.of([(0, 1, ())])).p_value[0] < 1e-9


def test_pairs_that_were_not_measured_are_known_to_be_unknown(codes: dict[str, np.ndarray]) -> None:
    sets = [pair for pair in all_pairs(LEVELS) if pair != ("a", "d")]
    evidence = marginal_evidence(list(LEVELS), release(codes, LEVELS, sets, EXACT))
    asked = Questions.of([(0, 3, (1,)), (0, 1, (2,)), (0, 1, (3,)), (1, 2, (3,)), (1, 2, (0,))])
    # a model fills the pair in: it may be conditioned on, and is never asked about
    assert evidence.answers(asked).tolist() == [False, True, True, True, True]
    assert evidence.answers(Questions.of([(1, 2, (0, 3)), (0, 3, (1, 2))])).tolist() == [True, False]


def test_unmeasured_pairs_of_constant_columns_raise_no_warning() -> None:
    levels = {"a": 2, "b": 3, "one": 1}
    codes = draw_codes(500, np.random.default_rng(8), levels)
    evidence = marginal_evidence(list(levels), release(codes, levels, [("a", "b"), ("a", "one")], 4.0))
    with np.errstate(all="raise"):
        association = evidence.association()
    assert association[1, 2] == association[2, 1] == 0.0


def test_tables_are_averaged_by_inverse_variance() -> None:
    """Pair tables, a repetition in the other order and the margin of a triple become one table."""
    rng = np.random.default_rng(2)
    one = NoisyTable(("a", "b"), rng.random((2, 3)) * 100, 4.0)
    two = NoisyTable(("b", "a"), rng.random((3, 2)) * 100, 1.0)
    triple = NoisyTable(("c", "b", "a"), rng.random((5, 3, 2)) * 20, 2.0)
    weights = np.array([1 / 4.0, 1 / 1.0, 1 / 10.0])
    want = (
        one.counts * weights[0] + two.counts.T * weights[1] + triple.counts.sum(axis=0).T * weights[2]
    ) / weights.sum()
    evidence = marginal_evidence(["a", "b", "c"], [one, two, triple])
    c = evidence.covariance
    assert c.noise[0, 1] * c.n_rows**2 == pytest.approx(1 / weights.sum())
    assert c.noise[0, 2] * c.n_rows**2 == pytest.approx(2.0 * 3)
    assert c.noise[1, 2] * c.n_rows**2 == pytest.approx(2.0 * 2)
    pairs = {
        ("a", "b"): NoisyTable(("a", "b"), want, 1 / weights.sum()),
        ("a", "c"): NoisyTable(("a", "c"), triple.counts.sum(axis=1).T, 6.0),
        ("b", "c"): NoisyTable(("b", "c"), triple.counts.sum(axis=2).T, 4.0),
    }
    np.testing.assert_allclose(c.blocks, covariance_from_tables(["a", "b", "c"], pairs).blocks, atol=1e-12)


@pytest.mark.parametrize("part", ["noise", "sampling"])
def test_redraws_have_the_stated_variance(part: str) -> None:
    """Fresh noise has covariance V R_x ⊗ R_y, fresh sampling I/n for independent columns."""
    rng = np.random.default_rng(7)
    levels = {"x": 3, "y": 2, "z": 3}
    n_rows = 900.0
    p = {"x": np.array([0.5, 0.3, 0.2]), "y": np.array([0.6, 0.4]), "z": np.array([0.2, 0.2, 0.6])}
    tables = {(a, b): NoisyTable((a, b), n_rows * np.outer(p[a], p[b]), 50.0) for a, b in combinations(levels, 2)}
    covariance = covariance_from_tables(list(levels), tables)
    draw = covariance.with_noise if part == "noise" else covariance.with_sampling
    draws = np.array([draw(rng).blocks[0, 1, :2, :1].reshape(-1) for _ in range(6000)])
    centred = draws - covariance.blocks[0, 1, :2, :1].reshape(-1)
    if part == "noise":
        want = covariance.noise[0, 1] * np.kron(covariance.spread[0, :2, :2], covariance.spread[1, :1, :1])
    else:
        want = np.eye(2) / covariance.n_rows
    found = centred.T @ centred / len(centred)
    assert np.linalg.norm(found - want) < 0.06 * np.linalg.norm(want)
    assert np.abs(centred.mean(axis=0)).max() < 4 * np.sqrt(want.max() / len(centred))
    again = draw(rng)
    np.testing.assert_array_equal(again.blocks, again.blocks.transpose(1, 0, 3, 2))


@pytest.mark.parametrize("given", [(), (2,), (2, 3)])
def test_redrawn_statistics_scatter_around_what_is_more_than_noise(
    codes: dict[str, np.ndarray], given: tuple[int, ...]
) -> None:
    """On average T comes back, or the degrees of freedom if that is more: noise is not there twice."""
    sets = [*all_pairs(LEVELS), *combinations(LEVELS, 3)]
    evidence = marginal_evidence(list(LEVELS), release(codes, LEVELS, sets, 400.0, np.random.default_rng(3)))
    assert isinstance(evidence, TripleEvidence)
    questions = Questions.of([(0, 1, given)])
    released = evidence.test(questions)
    rng = np.random.default_rng(5)
    drawn = [evidence.redraw(rng) for _ in range(1500)]
    mean = np.mean([redrawn.test(questions).statistic for redrawn in drawn], axis=0)
    np.testing.assert_allclose(mean, np.maximum(released.statistic, released.freedom), rtol=0.08)
    again = drawn[0].test(questions).statistic
    np.testing.assert_array_equal(again, drawn[0].test(questions).statistic)


def mixed_evidence(variance: float = 20.0) -> tuple[PairEvidence, list[Questions]]:
    """Triples and pairs in any order of columns, some columns with merged levels, and questions of order 0 to 3."""
    rng = np.random.default_rng(12)
    levels = {"a": 2, "b": 11, "c": 4, "d": 9, "e": 3}
    codes = draw_codes(20_000, rng, levels)
    sets = [tuple(rng.permutation(columns).tolist()) for size in (2, 3) for columns in combinations(levels, size)]
    evidence = marginal_evidence(list(levels), release(codes, levels, sets[:-3], variance))
    asked = [
        Questions.of(
            [
                (x, y, given)
                for x, y in permutations(range(5), 2)
                for given in permutations([z for z in range(5) if z not in (x, y)], order)
            ]
        )
        for order in range(4)
    ]
    return evidence, asked


@pytest.mark.parametrize("order", range(4))
def test_questions_together_have_the_answers_of_questions_alone(order: int) -> None:
    evidence, asked = mixed_evidence()
    questions = asked[order]
    together = evidence.test(questions).statistic
    strength = evidence.strength(questions)
    joint = evidence.joint(questions)
    assert order != 2 or (joint.any() and not joint.all())
    for row in range(len(questions)):
        alone = questions.select(np.array([row]))
        wald = next(evidence._joint_walds(alone))[1] if order == 2 and joint[row] else evidence.wald(alone)
        assert together[row] == pytest.approx(wald.statistic()[0], rel=1e-8)
        if not (order == 2 and joint[row]):
            assert strength[row] == pytest.approx(float(wald.partial[0] @ wald.partial[0]), rel=1e-8, abs=1e-15)


def test_questions_that_were_asked_before_keep_their_answers() -> None:
    """Asked again in parts, in another order and with the ends swapped."""
    evidence, asked = mixed_evidence()
    rng = np.random.default_rng(1)
    for questions in asked[1:]:
        fresh, _ = mixed_evidence()
        want = fresh.test(questions).statistic
        for _ in range(3):
            rows = rng.permutation(len(questions))[: 2 * len(questions) // 3]
            swapped = Questions(questions.y[rows], questions.x[rows], questions.given[rows][:, ::-1])
            np.testing.assert_allclose(evidence.test(swapped).statistic, want[rows], rtol=1e-8)
    redrawn = evidence.redraw(rng)
    for order in (1, 2):
        first, second = (redrawn.test(asked[order]).statistic for _ in range(2))
        np.testing.assert_array_equal(first, second)
        swapped = Questions(asked[order].y, asked[order].x, asked[order].given[:, ::-1])
        np.testing.assert_array_equal(redrawn.test(swapped).statistic, first)


def test_small_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, asked = mixed_evidence()
    want = [(evidence.test(questions).statistic, evidence.strength(questions)) for questions in asked]
    for module in (pairs_module, triples_module):
        monkeypatch.setattr(module, "CELLS_PER_BATCH", 20_000)
    evidence, _ = mixed_evidence()
    for questions, (statistic, strength) in zip(asked, want, strict=True):
        np.testing.assert_allclose(evidence.test(questions).statistic, statistic, rtol=1e-8)
        np.testing.assert_allclose(evidence.strength(questions), strength, rtol=1e-8, atol=1e-15)


def test_joint_levels_are_whitened_without_a_factorisation() -> None:
    rng = np.random.default_rng(2)
    for size in (1, 2, 7):
        p = np.zeros((1, 9))
        p[0, [*range(size), 8]] = rng.dirichlet(np.ones(size + 1))
        inner = np.diag(p[0, :size]) - np.outer(p[0, :size], p[0, :size])
        found = triples_module._whitener(p)[0]
        np.testing.assert_allclose(found[:size, :size], np.linalg.inv(np.linalg.cholesky(inner)), rtol=1e-9, atol=1e-12)
        assert not found[size:].any()
        assert not found[:, size:].any()

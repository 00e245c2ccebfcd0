"""Independent columns with rare levels: pairs share the noise of their margins, and some are measured again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from simulated_tables import count

from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable, add_total
from dagveil.evidence.triples import TripleEvidence
from dagveil.search.constraint.skeleton import SkeletonSettings, bound_false_edges, count_discoveries

N_ROWS = 1500
SHAPES = (2, 3, 4) * 4
LEVELS = {f"c{k}": size for k, size in enumerate(SHAPES)}
PAIRS = list(combinations(range(len(SHAPES)), 2))
MARGINAL = Questions.of([(x, y, ()) for x, y in PAIRS])


def draw_uneven(rng: np.random.Generator, levels: dict[str, int], n_rows: int = N_ROWS) -> dict[str, np.ndarray]:
    """Independent columns whose levels beyond the first are rare."""
    shares = {size: np.array([1.0, *np.full(size - 1, 0.06)]) for size in levels.values()}
    return {name: rng.choice(size, n_rows, p=shares[size] / shares[size].sum()) for name, size in levels.items()}


def draw_interactions(
    codes: dict[str, np.ndarray], pairs: list[tuple[int, int]], deviation: float, rng: np.random.Generator
) -> list[NoisyTable]:
    names, tables = list(LEVELS), []
    for x, y in pairs:
        counts = count(codes, LEVELS, (names[x], names[y]))
        counts += deviation * rng.standard_normal(counts.shape)
        tables.append(NoisyTable((names[x], names[y]), counts, deviation**2))
    return tables


def measure_twice(rng: np.random.Generator, margins: float, first: float, second: float | None) -> PairEvidence:
    """Margins and all interactions; then those interactions again, with less noise, that looked dependent."""
    codes = draw_uneven(rng, LEVELS)
    total = NoisyTable((), np.array(N_ROWS + margins * rng.standard_normal()), margins**2)
    contrasts = []
    for name, size in LEVELS.items():
        counts = count(codes, LEVELS, (name,)) + margins * rng.standard_normal(size)
        contrasts.append(NoisyTable((name,), counts - counts.mean(), margins**2))
    singles = add_total(contrasts, total)
    interactions = draw_interactions(codes, PAIRS, first, rng)
    evidence = marginal_evidence(tuple(LEVELS), [], interactions, singles)
    if second is None:
        return evidence
    chosen = [pair for pair, p in zip(PAIRS, evidence.test(MARGINAL).p_value, strict=True) if p < 0.2]
    return marginal_evidence(tuple(LEVELS), [], interactions + draw_interactions(codes, chosen, second, rng), singles)


def test_pairs_that_are_measured_again_keep_their_level() -> None:
    """Margin noise is not averaged away by measuring a pair again; told that it were, the test rejects too often."""
    rng = np.random.default_rng(11)
    found = {"true": np.zeros(2), "understated": np.zeros(2)}
    runs = 60
    for _ in range(runs):
        evidence = measure_twice(rng, 60.0, 80.0, 30.0)
        c = evidence.covariance
        less = PairEvidence(replace(c, shared_noise=c.shared_noise / (80.0 / 30.0) ** 2))
        for name, tests in (("true", evidence), ("understated", less)):
            found[name] += [(tests.test(MARGINAL).p_value < level).sum() for level in (0.01, 0.001)]
    expected = runs * len(PAIRS) * np.array([0.01, 0.001])
    assert (found["true"] <= expected + 3.0 * np.sqrt(expected)).all(), found["true"] / expected
    assert (found["understated"] > 1.5 * expected).all(), found["understated"] / expected


def test_the_noise_of_a_block_is_that_of_its_interaction_and_margins() -> None:
    c = measure_twice(np.random.default_rng(17), 60.0, 80.0, 30.0).covariance
    for x, y in ((0, 1), (1, 2), (5, 3)):
        a, b = int(c.size[x]), int(c.size[y])
        ax, ay, lx, ly = c.spread[x, :a, :a], c.spread[y, :b, :b], c.shift[x, :a], c.shift[y, :b]
        sx, sy = c.shared_noise[[x, y]]
        own = (c.noise[x, y] + sx * sy) * np.kron(ax, ay)
        margins = sx * np.kron(ax, np.outer(ly, ly)) + sy * np.kron(np.outer(lx, lx), ay)
        whole = own + margins + c.total_noise * np.kron(np.outer(lx, lx), np.outer(ly, ly))
        places = np.array([x]), np.array([y])
        np.testing.assert_allclose(c.noise_between(*places, a, b)[0], whole, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(c.noise_between(*places, a, b, shared=False)[0], own, rtol=1e-10, atol=1e-14)


def test_noise_is_drawn_again_with_its_covariance_within_and_between_blocks() -> None:
    c = measure_twice(np.random.default_rng(18), 5.0, 6.0, None).covariance
    rng = np.random.default_rng(19)
    own = c.blocks[[0, 0], [1, 4], :1, :2]
    moved = np.array([c.with_noise(rng).blocks[[0, 0], [1, 4], :1, :2] - own for _ in range(4000)])
    first, second = moved[:, 0].reshape(4000, -1), moved[:, 1].reshape(4000, -1)
    stated = c.noise_between(np.array([0]), np.array([1]), 1, 2)[0]
    np.testing.assert_allclose(np.cov(first.T), stated, atol=0.1 * np.abs(stated).max())
    # two blocks of one column share its margin, and all share the number of rows
    ll = c.shift[0, 0] ** 2 * c.total_noise + c.shared_noise[0] * c.spread[0, 0, 0]
    shared = ll * np.outer(c.shift[1, :2], c.shift[4, :2])
    np.testing.assert_allclose(first.T @ second / 4000, shared, atol=0.1 * np.abs(shared).max())


def test_null_p_values_have_the_law_of_runs_without_dependence() -> None:
    """Also their clumps: one margin that errs makes many pairs of its column look dependent."""
    rng = np.random.default_rng(12)
    real = np.array([(measure_twice(rng, 80.0, 30.0, None).test(MARGINAL).p_value < 0.05).sum() for _ in range(250)])
    evidence = measure_twice(rng, 80.0, 30.0, None)
    drawn = (evidence.null_p_values(MARGINAL, 2000, rng) < 0.05).sum(axis=1)
    assert drawn.mean() == pytest.approx(real.mean(), abs=4.0 * real.std() / np.sqrt(len(real)))
    assert 0.6 < drawn.var() / real.var() < 1.6
    # pairs that err one by one would have the variance of a binomial law
    assert min(drawn.var(), real.var()) > 1.6 * 0.05 * 0.95 * len(PAIRS)


def test_shared_noise_lowers_the_share_of_false_edges() -> None:
    rng = np.random.default_rng(13)
    evidence = measure_twice(rng, 80.0, 30.0, None)
    c = evidence.covariance
    apart = PairEvidence(replace(c, shared_noise=np.zeros_like(c.shared_noise), total_noise=0.0))
    settings = SkeletonSettings(marginal_level=0.2, false_share=0.9)
    shares = {}
    for name, tests in (("shared", evidence), ("apart", apart)):
        chosen, expected = bound_false_edges(tests, settings, 0.5)
        assert expected <= 0.5
        shares[name] = chosen.false_share
        # on tables that the bound has not seen
        null = np.sort(tests.null_p_values(MARGINAL, 1000, rng), axis=1)
        assert count_discoveries(null, chosen.false_share).mean() < 0.7
    assert shares["shared"] < shares["apart"] < settings.false_share


def test_few_false_edges_lower_the_share() -> None:
    evidence = measure_twice(np.random.default_rng(14), 20.0, 30.0, None)
    shares = [bound_false_edges(evidence, SkeletonSettings(), bound)[0].false_share for bound in (0.5, 0.05, 0.01)]
    assert shares[0] > shares[1] > shares[2]


# --- redraws ----------------------------------------------------------------------------------------------------------


def noisy_tables(
    rng: np.random.Generator, levels: dict[str, int], sets: list[tuple[str, ...]], deviation: float, follow: float = 0.0
) -> list[NoisyTable]:
    """Tables with noise in every cell; a share of the rows of b copies a."""
    codes = draw_uneven(rng, levels, 4000)
    codes["b"] = np.where(rng.random(4000) < follow, codes["a"], codes["b"])
    tables = []
    for names in sets:
        counts = count(codes, levels, names)
        tables.append(NoisyTable(names, counts + deviation * rng.standard_normal(counts.shape), deviation**2))
    return tables


SIX, THREE = dict.fromkeys("abcd", 6), dict.fromkeys("abcd", 3)


def six_levels(rng: np.random.Generator, follow: float = 0.0) -> PairEvidence:
    return marginal_evidence(tuple(SIX), noisy_tables(rng, SIX, list(combinations("abcd", 2)), 60.0, follow))


def triples(rng: np.random.Generator, follow: float = 0.0) -> PairEvidence:
    sets = [*combinations("abcd", 2), *combinations("abcd", 3)]
    evidence = marginal_evidence(tuple(THREE), noisy_tables(rng, THREE, sets, 20.0, follow))
    assert isinstance(evidence, TripleEvidence)
    return evidence


def whole(rng: np.random.Generator, follow: float = 0.0) -> JointEvidence:
    return JointEvidence(noisy_tables(rng, THREE, [("a", "b", "c", "d")], 3.0, follow)[0])


@pytest.mark.parametrize(
    ("make", "given"),
    [(six_levels, ()), (triples, ()), (triples, (2, 3)), (whole, ()), (whole, (2,)), (whole, (2, 3))],
)
def test_redraws_of_independent_columns_look_independent(
    make: Callable[[np.random.Generator], PairEvidence | JointEvidence], given: tuple[int, ...]
) -> None:
    """Noise drawn again around noisy numbers would be there twice, and T about twice its degrees of freedom."""
    rng = np.random.default_rng([15, len(given)])
    question = Questions.of([(0, 1, given)])
    aimed, redrawn = [], []
    for _ in range(40):
        evidence = make(rng)
        found = evidence.test(question)
        aimed.append(max(found.statistic[0], found.freedom[0]))
        redrawn += [evidence.redraw(rng).test(question).statistic[0] for _ in range(5)]
    # noise twice would give 1.6 on 4 degrees of freedom, and 1.8 on 25
    assert np.mean(redrawn) < 1.35 * np.mean(aimed)


@pytest.mark.parametrize("make", [six_levels, triples, whole])
def test_redraws_give_the_statistic_back_on_average(
    make: Callable[[np.random.Generator, float], PairEvidence | JointEvidence],
) -> None:
    rng = np.random.default_rng(16)
    questions = Questions.of([(0, 1, ()), (0, 2, ())])
    aimed, redrawn = [], []
    for _ in range(10):
        evidence = make(rng, 0.5)
        found = evidence.test(questions)
        aimed.append(np.maximum(found.statistic, found.freedom))
        redrawn.append(np.mean([evidence.redraw(rng).test(questions).statistic for _ in range(15)], axis=0))
    ratio = np.mean(redrawn, axis=0) / np.mean(aimed, axis=0)
    np.testing.assert_allclose(ratio, 1.0, atol=0.15)
    assert np.mean(aimed, axis=0)[0] > 1.5 * found.freedom[0]

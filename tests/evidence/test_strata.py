"""Margins and strata of one table: sums, places and the pooled statistic against plain loops."""

from __future__ import annotations

import math
from itertools import combinations, permutations, product

import numpy as np
import pytest

from dagveil.evidence import strata
from dagveil.evidence import strata as margins_module
from dagveil.evidence.questions import Questions
from dagveil.evidence.strata import (
    AllMargins,
    AskedMargins,
    Levels,
    Margins,
    encode_questions,
    lay_out,
    lay_out_all,
    margins_of,
    pool_strata,
)

SHAPE = (2, 3, 1, 2, 4, 2)


def draw_counts() -> np.ndarray:
    return np.random.default_rng(4).normal(size=SHAPE)


@pytest.mark.parametrize("limit", [1, 40, 2**23])
def test_asked_margins_are_sums_however_little_is_remembered(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = draw_counts()
    monkeypatch.setattr(margins_module, "CELLS_REMEMBERED", limit)
    margins = AskedMargins(counts)
    for size in (4, 1, 2, 3, 6, 5, 2):
        for kept in combinations(range(6), size):
            gone = tuple(k for k in range(6) if k not in kept)
            np.testing.assert_allclose(margins.of(kept), counts.sum(axis=gone), atol=1e-12)
        remembered = list(margins._kept.values())
        assert sum(table.size for table in remembered) <= max(limit, remembered[-1].size)


def test_all_margins_are_sums() -> None:
    counts = draw_counts()
    margins = AllMargins(counts)
    for size in range(7):
        for kept in combinations(range(6), size):
            gone = tuple(k for k in range(6) if k not in kept)
            np.testing.assert_allclose(margins.of(kept), counts.sum(axis=gone), atol=1e-12)
    assert margins.cells[margins.nothing] == 0


@pytest.mark.parametrize("kind", [AllMargins, AskedMargins])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_cells_are_where_they_are_said_to_be(kind: type[AllMargins | AskedMargins], size: int) -> None:
    counts = draw_counts()
    margins: Margins = kind(counts)
    sets = [columns for k, columns in enumerate(permutations(range(6), size)) if k % 7 == 0]
    cells, first, stride = margins.locate(np.array(sets, dtype=np.intp))
    for columns, start, steps in zip(sets, first, stride, strict=True):
        plain = counts.sum(axis=tuple(k for k in range(6) if k not in columns))
        kept = sorted(columns)
        for code in product(*(range(SHAPE[k]) for k in columns)):
            place = start + sum(level * step for level, step in zip(code, steps, strict=True))
            ascending = tuple(code[columns.index(k)] for k in kept)
            assert cells[place] == pytest.approx(plain[ascending], abs=1e-12)


def test_small_tables_are_summed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(margins_of(draw_counts()), AllMargins)
    monkeypatch.setattr(margins_module, "CELLS_AT_ONCE", 3 * 4 * 2 * 3 * 5 * 3 - 1)
    assert isinstance(margins_of(draw_counts()), AskedMargins)


def plain_pool(
    tables: np.ndarray, variance: np.ndarray, merged: tuple[np.ndarray, np.ndarray], n_rows: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pool strata one after the other, axes z, x, y: the mean and its covariance, without the last levels."""
    _, a, b = tables.shape
    totals = tables.sum(axis=(1, 2))
    deviation = np.sqrt(variance * merged[0].sum() * merged[1].sum())
    above = np.maximum(totals - 4.0 * deviation, 0.0)
    weights = above / np.maximum(totals, 1e-300) if above.any() else np.ones(len(totals))
    held = np.maximum(totals, 0.0)
    if weights @ held > 0:
        weights = weights * held.sum() / (weights @ held)
    mean, covariance = np.zeros((a, b)), np.zeros((a * b, a * b))
    for table, noise, weight, rows in zip(tables, variance, weights, held, strict=True):
        shares = []
        for axis, (mine, other) in enumerate((merged, merged[::-1])):
            floor = np.maximum(np.sqrt(noise * mine * other.sum()), 0.5)
            margin = np.maximum(table.sum(axis=1 - axis), floor)
            shares.append(margin / margin.sum())
        lifts = [np.eye(len(p)) - np.outer(p, np.ones(len(p))) for p in shares]
        mean += weight * lifts[0] @ table @ lifts[1].T
        within = [np.diag(p) - np.outer(p, p) for p in shares]
        spread = [lift @ np.diag(g) @ lift.T for lift, g in zip(lifts, merged, strict=True)]
        covariance += weight**2 * (rows * np.kron(*within) + noise * np.kron(*spread))
    kept = [i * b + j for i in range(a - 1) for j in range(b - 1)]
    return mean[:-1, :-1].reshape(-1) / n_rows, covariance[np.ix_(kept, kept)] / n_rows**2


@pytest.mark.parametrize("noise", [0.5, 60.0])
@pytest.mark.parametrize("given", [(), (1,), (3, 1)])
@pytest.mark.parametrize("kind", [AllMargins, AskedMargins])
def test_pooling_is_one_stratum_after_the_other(
    noise: float, given: tuple[int, ...], kind: type[AllMargins | AskedMargins]
) -> None:
    """Columns stand for several declared levels each, so that cells carry different noise."""
    rng = np.random.default_rng(11)
    merged = [np.array([1.0, 2.0]), np.array([1.0, 1.0, 3.0]), np.array([2.0, 1.0, 1.0]), np.array([1.0, 4.0])]
    kept = np.array([len(of) for of in merged], dtype=np.intp)
    declared = np.array([int(of.sum()) for of in merged], dtype=np.intp)
    padded = np.zeros((4, 3))
    for row, of in zip(padded, merged, strict=True):
        row[: len(of)] = of
    counts = rng.poisson(rng.gamma(0.5, 40.0, size=kept)) + np.sqrt(noise) * rng.standard_normal(kept)
    question = Questions.of([(0, 2, given)])
    cells, layout = lay_out(question, Levels(kept, declared, padded), kind(counts))
    wald = pool_strata(cells[layout.place], layout, noise, 500.0)
    asked = (*sorted(given), 0, 2)
    rest = [k for k in range(4) if k not in asked]
    table = counts.sum(axis=tuple(rest)).transpose([sorted(asked).index(k) for k in (*given, 0, 2)])
    each = noise * math.prod(int(declared[k]) for k in rest)
    variance = np.array([each * math.prod(level) for level in product(*(merged[k] for k in given))])
    mean, covariance = plain_pool(table.reshape(-1, 2, 3), variance, (merged[0], merged[2]), 500.0)
    np.testing.assert_allclose(wald.partial[0], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(wald.covariance[0], covariance, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("seen", [True, False])
def test_strata_that_drown_do_not_count(seen: bool) -> None:
    """What rises above the noise is weighed; if nothing does, all strata count alike."""
    n = np.array([[1000.0], [100.0], [30.0], [-20.0]]) / (1 if seen else 100)
    weights = strata._weigh(n, np.full((4, 1), 10.0))
    if not seen:
        np.testing.assert_allclose(weights, 1.0)
        return
    assert weights[2:, 0].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(weights[1, 0] / weights[0, 0], 0.6 / 0.96)
    held = np.maximum(n, 0.0)
    np.testing.assert_allclose((weights * held).sum(), held.sum())


def test_every_small_question_is_laid_out_once() -> None:
    shape = (2, 3, 1, 2, 3)
    found: dict[int, list[int]] = {}
    for layout, codes_by_order in lay_out_all(shape):
        assert sum(map(len, codes_by_order)) == len(layout.x)
        for order, codes in enumerate(codes_by_order):
            found.setdefault(order, []).extend(codes.tolist())
    for order in range(3):
        asked = [
            (x, y, given)
            for x, y in combinations([0, 1, 3, 4], 2)
            for given in combinations([z for z in range(5) if z not in (x, y)], order)
        ]
        assert sorted(found[order]) == sorted(encode_questions(Questions.of(asked), 5).tolist())


def test_too_many_questions_are_not_laid_out() -> None:
    assert lay_out_all((2,) * 8)
    assert lay_out_all((2,) * 12) == ()
    assert lay_out_all((8,) * 6) == ()

"""Tests of any order from one noisy table of all columns.

The table of (x, y, S) is a sum of cells, so its noise is known exactly: independent in every cell, with the variance of
one cell times the number of cells that were added up. In each stratum z of S, U_z = (I − p1ᵀ) N_z (I − 1qᵀ) has the
covariance n D_p ⊗ D_q + s² R_p ⊗ R_q under independence. Strata are pooled before the quadratic form, with weights that
let those go which their noise drowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import EvidenceError
from dagveil.evidence.covariance import (
    OneHotCovariance,
    PairCounts,
    assemble_covariance,
    group_known,
    mean_total,
    merge_matrix,
)
from dagveil.evidence.pairs import CELLS_PER_BATCH, PairEvidence
from dagveil.evidence.questions import Answers, CovarianceEvidence, Questions
from dagveil.evidence.strata import (
    AllMargins,
    Layout,
    Levels,
    encode_questions,
    lay_out,
    lay_out_all,
    margins_of,
    pool_strata,
)
from dagveil.evidence.tables import NoisyTable
from dagveil.evidence.wald import Wald

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

ANSWERS_REMEMBERED = 2**16  # answers to questions of one order that there is room for


class JointEvidence(CovarianceEvidence[OneHotCovariance]):
    """Independence tests on one noisy table of counts of all columns.

    Every question is answered, and jointly. The covariance is that of the pairs.

    - `rows`: the number of rows, if it was measured on its own: a table without columns.
    - `pairwise`: columns whose last level, missing values, is left out of questions that they stand in.
    """

    def __init__(
        self, table: NoisyTable, rows: NoisyTable | None = None, pairwise: frozenset[str] = frozenset()
    ) -> None:
        if len(table.columns) < 2:
            raise EvidenceError(f"a joint table needs at least 2 columns, this one has {len(table.columns)}")
        self._table = table
        margins = margins_of(table.counts)
        ends = [margins.of((k,)) for k in range(table.counts.ndim)]
        declared = np.array(table.counts.shape, dtype=np.intp)
        end_variance = table.variance * (table.counts.size / declared)
        groups = tuple(
            group_known(end, variance, pairwise=name in pairwise)
            for name, end, variance in zip(table.columns, ends, end_variance, strict=True)
        )
        self._whole = not pairwise & set(table.columns)
        kept = np.array([int(of.max()) + 1 for of in groups], dtype=np.intp)
        merged = np.zeros((len(groups), max(2, *kept.tolist())))
        counts = table.counts
        for axis, of in enumerate(groups):
            merged[axis] = np.bincount(of[of >= 0], minlength=merged.shape[1])
            # what is left out stands behind the kept levels: other questions sum over it
            merge = merge_matrix(np.where(of < 0, kept[axis], of))
            if len(merge) < len(of):
                counts = np.moveaxis(np.tensordot(merge, counts, axes=(1, axis)), 0, axis)
        self._levels = Levels(kept, declared, merged)
        self._margins = margins if counts is table.counts else margins_of(counts)
        n_rows = max(float(ends[0].sum()), 1.0)
        pairs = self._count_pairs()
        covariance = assemble_covariance(table.columns, ends, end_variance, groups, pairs, n_rows)
        if rows is not None:
            told = max(float(rows.counts), 1.0) if rows.variance == 0 else mean_total([table, rows])
            covariance = replace(covariance, n_rows=told)
        super().__init__(covariance)
        self._pairs = PairEvidence(covariance)
        self._known: dict[int, Floats] = {}

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered jointly: all of them."""
        return np.ones(len(questions), dtype=bool)

    def association(self) -> Floats:
        """Return the χ² information of every pair, less what noise and sampling add to a square on average."""
        return self._pairs.association()

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Which columns leave next to nothing open about which."""
        return self._pairs.determined

    def strength(self, questions: Questions) -> Floats:
        """Return ‖u‖² of each question in whitened units, u being the weighted mean over strata."""
        return np.asarray(self._recall(questions)[2])

    def test(self, questions: Questions) -> Answers:
        """Test each question by its pooled Wald statistic."""
        statistic, p_value, _ = self._recall(questions)
        size = self.covariance.size
        return Answers(statistic, (size[questions.x] * size[questions.y]).astype(np.float64), p_value)

    def odds(self, questions: Questions) -> Floats:
        """Return the log Bayes factor of dependence for each question."""
        odds = np.zeros(len(questions))
        for rows, wald in self._walds(questions):
            odds[rows] = wald.odds(self.covariance.n_rows)
        return odds

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> Floats:
        """Return p-values as if nothing depended on anything; cells have noise of their own, so pairs share little."""
        return rng.random((draws, len(questions)))

    def power(self, questions: Questions) -> tuple[Floats, Floats]:
        """Return `Wald.power` of each question."""
        share, room = np.zeros(len(questions)), np.zeros(len(questions))
        for rows, wald in self._walds(questions):
            share[rows], room[rows] = wald.power(self.covariance.n_rows)
        return share, room

    def redraw(self, rng: np.random.Generator) -> JointEvidence:
        """Return evidence with fresh noise and fresh sampling around what was estimated."""
        return RedrawnJoint(self, rng)

    def _count_pairs(self) -> PairCounts:
        """Return all pair tables of kept levels."""
        left, right = np.triu_indices(len(self._levels.kept), 1)
        sets = np.column_stack([left, right])
        cells, first, stride = self._margins.locate(sets)
        level = np.arange(self._levels.merged.shape[1])
        there = level < self._levels.kept[:, None]
        place = first[:, None, None] + level[:, None] * stride[:, 0, None, None] + level * stride[:, 1, None, None]
        real = there[left][:, :, None] & there[right][:, None, :]
        variance = self._table.variance * (self._table.counts.size / self._levels.declared[sets].prod(axis=1))
        return PairCounts(left, right, np.where(real, cells[np.where(real, place, 0)], 0.0), variance)

    def _recall(self, questions: Questions) -> Floats:
        """Return statistic, p-value and strength of each question; searches ask for them again and again."""
        d, order = len(self.columns), questions.order
        if d ** (order + 2) > ANSWERS_REMEMBERED:
            return self._answer(questions)
        if not self._known:
            self._answer_small()
        if order not in self._known:
            self._known[order] = np.full((3, d ** (order + 2)), np.nan)
        known, code = self._known[order], encode_questions(questions, d)
        missing = np.isnan(known[0, code])
        if missing.any():
            known[:, code[missing]] = self._answer(questions.select(missing))
        return known[:, code]

    def _answer_small(self) -> None:
        """Answer all small questions at once, if they are few: that takes less time than a few of them do alone."""
        if not isinstance(self._margins, AllMargins) or (self._levels.kept < self._levels.declared).any():
            return
        d = len(self.columns)
        for layout, codes_by_order in lay_out_all(self._table.counts.shape):
            found, start = self._judge(self._margins.cells, layout), 0
            for order, codes in enumerate(codes_by_order):
                known = self._known.setdefault(order, np.full((3, d ** (order + 2)), np.nan))
                known[:, codes] = found[:, start : start + len(codes)]
                start += len(codes)

    def _answer(self, questions: Questions) -> Floats:
        """Compute statistic, p-value and strength of each question."""
        found = np.zeros((3, len(questions)))
        found[1] = 1.0  # a constant column depends on nothing
        for rows, cells, layout in self._batches(questions):
            found[:, rows] = self._judge(cells, layout)
        return found

    def _judge(self, cells: Floats, layout: Layout) -> Floats:
        """Return statistic, p-value and strength of each question of a layout."""
        whitener, wald = self.covariance.whitener, self._pool(cells, layout)
        a, b = len(layout.x_merged) - 1, len(layout.y_merged) - 1
        partial = wald.partial.reshape(-1, a, b)
        white = whitener[layout.x, :a, :a] @ partial @ whitener[layout.y, :b, :b].transpose(0, 2, 1)
        if a * b == 1:
            statistic = (wald.partial**2 / wald.covariance[:, 0])[:, 0]
            p_value = special.erfc(np.sqrt(statistic / 2))  # faster than χ² of one degree of freedom, and equal
        else:
            statistic = wald.statistic()
            p_value = special.chdtrc(float(a * b), statistic)
        return np.stack([statistic, p_value, np.einsum("qab,qab->q", white, white)])

    def _pool(self, cells: Floats, layout: Layout) -> Wald:
        n_rows = self.covariance.n_rows if self._whole else None
        return pool_strata(cells[layout.place], layout, self._table.variance, n_rows)

    def _walds(self, questions: Questions) -> Iterator[tuple[Positions, Wald]]:
        for rows, cells, layout in self._batches(questions):
            yield rows, self._pool(cells, layout)

    def _batches(self, questions: Questions) -> Iterator[tuple[Positions, Floats, Layout]]:
        """Yield rows of the batch and where their cells lie, x having no more levels than y, in groups of one shape.

        Questions about constant columns are left out.
        """
        levels = self._levels.kept
        swap = levels[questions.x] > levels[questions.y]
        x, y = np.where(swap, questions.y, questions.x), np.where(swap, questions.x, questions.y)
        strata, most = levels[questions.given].prod(axis=1), int(levels.max()) + 1
        shape = (strata * most + levels[x]) * most + levels[y]
        for kind in sorted(set(shape.tolist())):
            same = np.flatnonzero(shape == kind)
            a, b, z = int(levels[x[same[0]]]), int(levels[y[same[0]]]), int(strata[same[0]])
            step = max(1, CELLS_PER_BATCH // max(z * (a * a + b * b), (a * b) ** 2))
            # a column of one level is constant, and y has no fewer than x
            for start in range(0, len(same) if a > 1 else 0, step):
                rows = same[start : start + step]
                chosen = Questions(x[rows], y[rows], questions.given[rows])
                yield rows, *lay_out(chosen, self._levels, self._margins)


class RedrawnJoint(JointEvidence):
    """Evidence as fresh noise and fresh sampling could have made it, drawn as `RedrawnEvidence` draws it."""

    def __init__(self, source: JointEvidence, rng: np.random.Generator) -> None:
        vars(self).update(vars(source))
        self._source, self._rng = source, rng
        self._pairs = source._pairs.redraw(rng)
        self.covariance, self._known = self._pairs.covariance, {}

    def odds(self, questions: Questions) -> Floats:
        """Return about the log Bayes factor of dependence that the drawn statistic gives."""
        share, room = self._source.power(questions)
        return np.asarray((share * self._recall(questions)[0] - room) / 2)

    def _answer_small(self) -> None:
        pass

    def _answer(self, questions: Questions) -> Floats:
        released = self._source._recall(questions)
        size = self.covariance.size
        freedom = np.maximum(size[questions.x] * size[questions.y], 1).astype(np.float64)
        statistic = self._rng.noncentral_chisquare(freedom, np.maximum(released[0] - freedom, 0.0))
        p_value = np.where(released[1] == 1.0, 1.0, special.chdtrc(freedom, statistic))
        return np.stack([statistic, p_value, released[2]])

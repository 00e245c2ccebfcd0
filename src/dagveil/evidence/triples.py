"""Joint tests of order two from three-way tables.

A pair of conditioning columns becomes one column whose levels are the pair's cells; then the order-1 form applies,
with the three-way tables (x, z₁z₂) and (y, z₁z₂) in the place of pair tables. No four-way table is needed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.covariance import OneHotCovariance, merge_matrix
from dagveil.evidence.pairs import CELLS_PER_BATCH, Conditioned, PairEvidence, Rows
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable
from dagveil.evidence.wald import Conditioning, Regressions, Wald, distinct_rows, regress, whiten_within

Floats = NDArray[np.float64]

FEWEST_ROWS = 5.0  # joint cells expected to hold fewer rows than this are merged with the other rare ones

MUTE = 2.0
"""Rare cells are left out if they hold fewer rows together than this many deviations of the noise in a test of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _JointColumns:
    """A batch of g pairs of columns, each pair as one column with up to s + 1 levels, the last one last."""

    merge: Floats  # 1 for the level of each cell of the pair's padded table, shape (g, cells, s + 1)
    project: Floats  # whitened projection of the counts of the levels, shape (g, s, s + 1)
    sets: Conditioning


class _Stack:
    """Three-way tables in one flat array, found by the positions of their columns.

    - `places`: positions of the columns of each, shape (tables, 3).
    - `n_columns`: positions are below this.
    """

    def __init__(self, tables: Sequence[Floats], places: NDArray[np.intp], n_columns: int) -> None:
        shapes = np.array([table.shape for table in tables], dtype=np.intp)
        cells = shapes.prod(axis=1)
        strides = np.column_stack([shapes[:, 1] * shapes[:, 2], shapes[:, 2], np.ones_like(cells)])
        ascending = np.argsort(places, axis=1)
        keys = np.take_along_axis(places, ascending, axis=1) @ np.array([n_columns**2, n_columns, 1])
        self.order = np.argsort(keys)
        self._n_columns = n_columns
        self._keys = keys[self.order]
        self._starts = (np.cumsum(cells) - cells)[self.order]
        self._strides = np.take_along_axis(strides, ascending, axis=1)[self.order]
        self._flat = np.concatenate([table.reshape(-1) for table in tables])

    def find(self, x: NDArray[np.intp], pairs: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return where in the order of keys the tables of a column with ascending pairs are, and whether at all."""
        keys = np.sort(np.column_stack([x, pairs]), axis=1) @ np.array([self._n_columns**2, self._n_columns, 1])
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return rows, self._keys[rows] == keys

    def counts(self, x: NDArray[np.intp], pairs: NDArray[np.intp], levels: NDArray[np.intp], width: int) -> Floats:
        """Return tables of columns of one size with ascending pairs, in the shape (tables, levels of x, width²).

        - `width`: levels to which both columns of a pair are padded, with zeros.
        """
        rows, _ = self.find(x, pairs)
        first, second = pairs.T
        rank = np.column_stack([(x > first).astype(np.intp) + (x > second), first > x, 1 + (second > x)])
        strides = np.take_along_axis(self._strides[rows], rank.astype(np.intp), axis=1)
        steps = np.arange(width)
        inside = (steps < levels[first, None])[:, :, None] & (steps < levels[second, None])[:, None, :]
        cells = strides[:, 1, None, None] * steps[:, None] + strides[:, 2, None, None] * steps
        cells = np.where(inside, self._starts[rows, None, None] + cells, 0).reshape(len(x), 1, -1)
        along_x = strides[:, 0, None, None] * np.arange(levels[x[0]])[:, None]
        padding = inside.reshape(len(x), 1, -1)
        return np.where(padding, self._flat[np.where(padding, cells + along_x, 0)], 0.0)


class TripleEvidence(PairEvidence):
    """Pair evidence that answers order-2 questions jointly wherever the two triples were measured.

    - `covariance`: from all releases, the triples' margins included.
    - `pairs`: pair tables by set of names, for the joint margins.
    """

    def __init__(
        self,
        covariance: OneHotCovariance,
        triples: Mapping[frozenset[str], NoisyTable],
        pairs: Mapping[frozenset[str], NoisyTable],
    ) -> None:
        super().__init__(covariance)
        self.triples, self._pairs = triples, pairs
        self._merges = [merge_matrix(groups) for groups in covariance.groups]
        self._levels = np.array([len(merge) for merge in self._merges], dtype=np.intp)
        # whitened projection of the counts of a column's levels, whatever their number
        means = covariance.whitener @ covariance.probabilities[:, :-1, None]
        self._project = np.pad(covariance.whitener, ((0, 0), (0, 0), (0, 1))) - means
        d, position = len(covariance.columns), {name: i for i, name in enumerate(covariance.columns)}
        tables = list(triples.values())
        places = np.array([[position[name] for name in table.columns] for table in tables], dtype=np.intp)
        merged = [self._merge(table.counts, columns) for table, columns in zip(tables, places, strict=True)]
        self._stack = _Stack(merged, places, d)
        variance = np.array([table.variance for table in tables])
        self._variance = variance[self._stack.order]
        # the noisiest margin that a triple gives each pair: joint cells below it are not told apart
        self._noisiest = np.zeros((d, d))
        shapes = np.array([table.counts.shape for table in tables])
        for gone in range(3):
            first, second = np.delete(places.T, gone, axis=0)
            for pair in ((first, second), (second, first)):
                np.maximum.at(self._noisiest, pair, variance * shapes[:, gone])

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions have both of their triples."""
        if questions.order != 2:
            return super().joint(questions)
        pairs = np.sort(questions.given, axis=1)
        return self._stack.find(questions.x, pairs)[1] & self._stack.find(questions.y, pairs)[1]

    def all_walds(self, questions: Questions) -> Iterator[tuple[NDArray[np.intp], Wald]]:
        """Yield rows of the batch and what is known about them: jointly where possible, by main effects elsewhere."""
        joint = self.joint(questions) if questions.order == 2 else np.zeros(len(questions), dtype=bool)
        rows_joint, rows_main = np.flatnonzero(joint), np.flatnonzero(~joint)
        for rows, wald in self.walds(questions.select(rows_main)):
            yield rows_main[rows], wald
        for rows, wald in self._joint_walds(questions.select(rows_joint)):
            yield rows_joint[rows], wald

    def _joint_walds(self, questions: Questions) -> Iterator[tuple[NDArray[np.intp], Wald]]:
        """Yield rows of the batch and what is known about them, for columns of one size each."""
        step = max(1, CELLS_PER_BATCH // int(self._levels.max()) ** 4)
        for start in range(0, len(questions), step):
            chosen = questions.select(np.arange(start, min(start + step, len(questions))))
            place, pairs = distinct_rows(np.sort(chosen.given, axis=1))
            for rows, wald in self._pair_up(chosen, place, self._condition_jointly(pairs)):
                yield start + rows, wald

    def _condition_jointly(self, pairs: NDArray[np.intp]) -> Conditioned:
        """Prepare ascending pairs as conditioning sets."""
        c = self.covariance
        width = int(self._levels[pairs].max())
        joined = self._join_columns(pairs, width)

        def find_noise(x: Rows, place: Rows) -> Floats:
            return find_variance(x, place) / find_rows(x, place) ** 2

        def find_variance(x: Rows, place: Rows) -> Floats:
            return np.asarray(self._variance[self._stack.find(x, pairs[place])[0], None])

        def find_rows(x: Rows, place: Rows) -> Floats:
            """Return the rows in which a column and a pair are known, if these go together by chance."""
            if c.lost is None or joined.sets.lost is None:
                return np.full((len(x), 1), c.n_rows)
            return np.asarray(1.0 / (c.lost[x, x, None] + 1.0 / c.n_rows) / (1.0 + joined.sets.lost[place]))

        def regress_columns(x: Rows, place: Rows, a: int) -> Regressions:
            counts = self._stack.counts(x, pairs[place], self._levels, width) @ joined.merge[place]
            noise, rows, centred = find_noise(x, place), find_rows(x, place)[:, :, None], counts
            if c.lost is not None:
                rows = np.maximum(counts.sum(axis=(1, 2)), 0.5 * rows[:, 0, 0])[:, None, None]
                centred = counts - counts.sum(axis=2, keepdims=True) * counts.sum(axis=1, keepdims=True) / rows
            towards = self._project[x, :a, : a + 1] @ centred @ joined.project[place].transpose(0, 2, 1) / rows
            floored = np.maximum(counts, np.maximum(np.sqrt(find_variance(x, place)), 0.5)[:, :, None])
            within = whiten_within(c.whitener[x, :a, :a], floored[:, :a] / floored.sum(axis=1, keepdims=True))
            spreads = c.table_spread[x, :a, :a], c.spread[x, :a, :a]
            return regress(joined.sets, place, towards, *spreads, c.shift[x, :a], noise, within)

        return Conditioned(joined.sets, find_noise, regress_columns)

    def _join_columns(self, pairs: NDArray[np.intp], width: int) -> _JointColumns:
        """Make one column of each pair; cells that are too rare to be told apart become its last level."""
        c = self.covariance
        tables, variance = np.zeros((len(pairs), width, width)), np.empty(len(pairs))
        for row, (first, second) in enumerate(pairs.tolist()):
            # the combined pair table holds the triples' margins already
            table = self._pairs[frozenset((c.columns[first], c.columns[second]))]
            flip = table.columns[0] != c.columns[first]
            counts = self._merge(table.counts.T if flip else table.counts, (first, second))
            tables[row, : counts.shape[0], : counts.shape[1]] = counts
            variance[row] = table.cell_variance
        merged = np.zeros((len(self._merges), width))
        for column in np.unique(pairs).tolist():
            merged[column, : self._levels[column]] = self._merges[column].sum(axis=1)
        sizes = (merged[pairs[:, 0], :, None] * merged[pairs[:, 1], None, :]).reshape(len(pairs), -1)
        cells = tables.reshape(len(pairs), -1)
        known = sizes > 0
        noisiest = np.sqrt(self._noisiest[pairs[:, 0], pairs[:, 1]])
        kept = known & (cells >= np.maximum(noisiest, FEWEST_ROWS)[:, None])
        rare, n_rare = np.where(known & ~kept, cells, 0.0).sum(axis=1), (known & ~kept).sum(axis=1)
        # a stratum of rare cells that noise drowns would divide noise by noise: its rows are left out, and what they
        # could add to u, each at most 1/n, is allowed for
        drowned = (n_rare > 0) & (kept.sum(axis=1) > 1) & (rare < MUTE * noisiest * np.sqrt(n_rare))
        lost = (np.maximum(rare, 0.0) + np.sqrt(n_rare * variance)) / c.n_rows
        known = np.where(drowned[:, None], kept, known)
        # without a rare cell the last one takes the place of the last level
        size = kept.sum(axis=1) - (kept == known).all(axis=1)
        s = max(int(size.max()), 1)
        rank = np.cumsum(kept, axis=1) - 1
        level = np.where(kept & (rank < size[:, None]), rank, s)
        real = np.arange(s + 1) < size[:, None]
        real[:, s] = True
        merge = ((level[:, :, None] == np.arange(s + 1)) & known[:, :, None]).astype(np.float64)
        merged = (cells[:, None] @ merge)[:, 0]
        merged = np.maximum(merged, np.maximum(np.sqrt(variance), 1.0)[:, None]) * real
        p = merged / merged.sum(axis=1, keepdims=True)
        weights = (sizes[:, None] @ merge)[:, 0]
        whitener = _whitener(p)
        project = -np.repeat(whitener @ p[:, :s, None], s + 1, axis=2)
        project[:, :, :s] += whitener
        sets = Conditioning(
            inverse=np.broadcast_to(np.eye(s), (len(pairs), s, s)),
            spread=((project * weights[:, None]) @ project.transpose(0, 2, 1))[:, None],
            noise=np.zeros((len(pairs), 1, 1)),
            margin_noise=(weights * variance[:, None] / c.n_rows**2)[:, None],
            probabilities=p[:, None],
            whitener=whitener[:, None],
            shift=np.zeros((len(pairs), 1, s)),
            allowance=np.where(drowned, lost**2, 0.0),
            lost=None if c.lost is None else np.maximum(c.n_rows / cells.sum(axis=1) - 1.0, 0.0)[:, None],
        )
        return _JointColumns(merge, project, sets)

    def _merge(self, counts: Floats, columns: Iterable[int]) -> Floats:
        """Return the counts of these columns with their rarest levels merged."""
        for axis, column in enumerate(columns):
            merge = self._merges[column]
            if merge.shape[0] < merge.shape[1]:
                counts = np.moveaxis(np.tensordot(merge, counts, axes=(1, axis)), 0, axis)
        return counts


def _whitener(p: Floats) -> Floats:
    """Return the inverse Cholesky factor of diag(p) − ppᵀ without the last level, shape (g, s, s); padding has p = 0.

    An indicator less what the levels before it foretell is uncorrelated with them: its slope on each of them is p over
    what they leave, so no factorisation is needed.
    """
    left = np.cumsum(p[:, ::-1], axis=1)[:, ::-1]
    before, after = left[:, :-1], left[:, 1:]
    p = p[:, :-1]
    share = p / before
    variance = share * after
    scale = np.divide(1.0, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
    s = p.shape[1]
    lower = np.tril(np.broadcast_to(share[:, :, None], (len(p), s, s)), -1)
    return np.asarray((lower + np.eye(s)) * scale[:, :, None])

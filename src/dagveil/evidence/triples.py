"""Joint tests of order two from three-way tables.

A pair of conditioning columns becomes one column whose levels are the pair's cells; then the order-1 form applies,
with the three-way tables (x, z₁z₂) and (y, z₁z₂) in the place of pair tables. No four-way table is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.covariance import OneHotCovariance, merge_matrix, symmetric_root
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Answers, Questions
from dagveil.evidence.tables import NoisyTable
from dagveil.evidence.wald import Blocks, Wald, mix_strata, partial_covariance

Floats = NDArray[np.float64]

FEWEST_ROWS = 5.0
"""Joint cells expected to hold fewer rows than this are merged with the other rare ones."""


@dataclass(frozen=True, slots=True, eq=False)
class _Levels:
    """How the declared levels of a column are merged, and the whitened projection of its counts."""

    merge: Floats
    project: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _JointColumn:
    """Two columns as one: which cell belongs to which kept level, and what a covariance needs of it."""

    merge: Floats
    project: Floats
    whitener: Floats
    spread: Floats
    probabilities: Floats
    margin_noise: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _JointBlock:
    """Covariance of a column with a joint column, its noise, and the column's covariance inside each joint level."""

    block: Floats
    noise: float
    within: Floats


class TripleEvidence(PairEvidence):
    """Pair evidence that answers order-2 questions jointly wherever the two triples were measured.

    Parameters
    ----------
    covariance
        From all releases, the triples' margins included.
    triples
        Three-way tables by set of names.
    pairs
        Pair tables by set of names, for the joint margins.
    joint_pairs
        Blocks K_xy for joint tests; those of `covariance` unless this evidence was redrawn.
    jitter
        Draws sampling for the joint tests of redrawn evidence, whose tables carry fresh noise only.
    """

    def __init__(
        self,
        covariance: OneHotCovariance,
        triples: Mapping[frozenset[str], NoisyTable],
        pairs: Mapping[frozenset[str], NoisyTable],
        joint_pairs: Floats | None = None,
        jitter: np.random.Generator | None = None,
    ) -> None:
        super().__init__(covariance)
        self.triples = triples
        self._pairs = pairs
        self._joint_pairs = covariance.blocks if joint_pairs is None else joint_pairs
        self._jitter = jitter
        position = {name: i for i, name in enumerate(covariance.columns)}
        self._known = {frozenset(position[name] for name in names) for names in triples}
        # the noisiest margin that a triple gives each pair: joint cells below it are not told apart
        self._noisiest: dict[frozenset[int], float] = {}
        for table in triples.values():
            for gone, name in enumerate(table.columns):
                pair = frozenset(position[other] for other in table.columns if other != name)
                variance = table.variance * table.counts.shape[gone]
                self._noisiest[pair] = max(variance, self._noisiest.get(pair, 0.0))
        self._kept_levels: dict[int, _Levels] = {}
        self._columns: dict[tuple[int, int], _JointColumn] = {}
        self._blocks: dict[tuple[int, tuple[int, int]], _JointBlock] = {}

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions have both of their triples."""
        if questions.order != 2:
            return super().joint(questions)
        return np.array(
            [
                frozenset((x, z1, z2)) in self._known and frozenset((y, z1, z2)) in self._known
                for x, y, (z1, z2) in zip(
                    questions.x.tolist(), questions.y.tolist(), questions.given.tolist(), strict=True
                )
            ],
            dtype=bool,
        )

    def redraw(self, rng: np.random.Generator) -> TripleEvidence:
        """Return evidence with fresh noise and fresh sampling around this one."""
        noisy = self.covariance.with_noise(rng)
        triples = {
            names: replace(t, counts=t.counts + np.sqrt(t.variance) * rng.standard_normal(t.counts.shape))
            for names, t in self.triples.items()
        }
        return TripleEvidence(noisy.with_sampling(rng), triples, self._pairs, noisy.blocks, rng)

    def test(self, questions: Questions) -> Answers:
        """Test jointly where possible, by main effects elsewhere."""
        if questions.order != 2:
            return super().test(questions)
        questions = self._small_first(questions)
        joint = self.joint(questions)
        rows_joint, rows_main = np.flatnonzero(joint), np.flatnonzero(~joint)
        statistic = np.zeros(len(questions))
        main, both = questions.select(rows_main), questions.select(rows_joint)
        for rows in self._groups(main):
            statistic[rows_main[rows]] = self.wald(main.select(rows)).statistic()
        for rows in self._groups(Questions(both.x, both.y, both.given[:, :0])):
            statistic[rows_joint[rows]] = self.joint_wald(both.select(rows)).statistic()
        return self._judge(questions, statistic)

    def joint_wald(self, questions: Questions) -> Wald:
        """Return u and C of joint tests whose columns x have one size, and likewise y."""
        c = self.covariance
        x, y = questions.x, questions.y
        a, b, q = int(c.size[x[0]]), int(c.size[y[0]]), len(questions)
        pairs = [(min(z), max(z)) for z in questions.given.tolist()]
        columns = [self._column(pair) for pair in pairs]
        left = [self._block(int(i), pair) for i, pair in zip(x, pairs, strict=True)]
        right = [self._block(int(j), pair) for j, pair in zip(y, pairs, strict=True)]
        s = max(column.whitener.shape[0] for column in columns)
        xs, ys = np.zeros((q, a, 1, s)), np.zeros((q, b, 1, s))
        ss = np.broadcast_to(np.eye(s)[None, None, :, None, :], (q, 1, s, 1, s))
        spread, whitener = np.zeros((q, 1, s, s)), np.zeros((q, 1, s, s))
        margin, p = np.zeros((q, 1, s + 1)), np.zeros((q, 1, s + 1))
        x_within, y_within = np.zeros((q, s + 1, a, a)), np.zeros((q, s + 1, b, b))
        for row, (column, lx, ry) in enumerate(zip(columns, left, right, strict=True)):
            size = column.whitener.shape[0]
            levels = [*range(size), s]
            xs[row, :, 0, :size] = lx.block
            ys[row, :, 0, :size] = ry.block
            spread[row, 0, :size, :size] = column.spread
            whitener[row, 0, :size, :size] = column.whitener
            margin[row, 0, levels] = column.margin_noise
            p[row, 0, levels] = column.probabilities
            x_within[row, levels] = lx.within
            y_within[row, levels] = ry.within
        sampling = mix_strata(p[:, 0] / c.n_rows, x_within, y_within)
        wald = partial_covariance(
            Blocks(
                xy=self._joint_pairs[x, y, :a, :b],
                xs=xs,
                ys=ys,
                ss=ss,
                x_spread=c.spread[x, :a, :a],
                y_spread=c.spread[y, :b, :b],
                x_table_spread=c.table_spread[x, :a, :a],
                y_table_spread=c.table_spread[y, :b, :b],
                s_spread=spread,
                xy_noise=c.noise[x, y],
                xs_noise=np.array([[block.noise] for block in left]),
                ys_noise=np.array([[block.noise] for block in right]),
                ss_noise=np.zeros((q, 1, 1)),
                s_margin_noise=margin,
                s_probabilities=p,
                s_whitener=whitener,
                n_rows=c.n_rows,
                sampling=sampling,
            )
        )
        if self._jitter is None:
            return wald
        fresh = np.einsum("qij,qj->qi", symmetric_root(sampling), self._jitter.standard_normal((q, a * b)))
        return replace(wald, partial=wald.partial + fresh)

    def _column(self, pair: tuple[int, int]) -> _JointColumn:
        if pair not in self._columns:
            self._columns[pair] = self._make_column(pair)
        return self._columns[pair]

    def _make_column(self, pair: tuple[int, int]) -> _JointColumn:
        c = self.covariance
        names = (c.columns[pair[0]], c.columns[pair[1]])
        # the combined pair table holds the triples' margins already
        margin = self._pairs[frozenset(names)].margin(names)
        first, second = self._levels(pair[0]), self._levels(pair[1])
        counts = (first.merge @ margin.counts @ second.merge.T).reshape(-1)
        sizes = np.outer(first.merge.sum(axis=1), second.merge.sum(axis=1)).reshape(-1)
        rare = counts < max(np.sqrt(self._noisiest[frozenset(pair)]), FEWEST_ROWS)
        keep = np.flatnonzero(~rare)
        groups = np.full(len(counts), len(keep), dtype=np.intp)
        groups[keep] = np.arange(len(keep))
        merge = merge_matrix(groups)
        merged = np.maximum(merge @ counts, max(np.sqrt(margin.cell_variance), 1.0))
        p = merged / merged.sum()
        r = len(p)
        weights = merge @ sizes
        whitener = np.linalg.inv(np.linalg.cholesky(np.diag(p[:-1]) - np.outer(p[:-1], p[:-1])))
        project = whitener @ (np.eye(r) - np.outer(p, np.ones(r)))[: r - 1]
        return _JointColumn(
            merge=merge,
            project=project,
            whitener=whitener,
            spread=(project * weights) @ project.T,
            probabilities=p,
            margin_noise=weights * margin.cell_variance / c.n_rows**2,
        )

    def _block(self, x: int, pair: tuple[int, int]) -> _JointBlock:
        key = (x, pair)
        if key not in self._blocks:
            self._blocks[key] = self._make_block(x, pair)
        return self._blocks[key]

    def _make_block(self, x: int, pair: tuple[int, int]) -> _JointBlock:
        c = self.covariance
        column, levels = self._column(pair), self._levels(x)
        names = (c.columns[x], c.columns[pair[0]], c.columns[pair[1]])
        table = self.triples[frozenset(names)].margin(names)
        first, second = self._levels(pair[0]), self._levels(pair[1])
        counts = levels.merge @ (first.merge @ table.counts @ second.merge.T).reshape(table.counts.shape[0], -1)
        counts = counts @ column.merge.T
        a = int(c.size[x])
        floored = np.maximum(counts, max(np.sqrt(table.variance), 0.5))
        conditional = (floored / floored.sum(axis=0))[:a].T
        within = conditional[..., None] * np.eye(a) - conditional[..., :, None] * conditional[..., None, :]
        white = c.whitener[x, :a, :a]
        return _JointBlock(
            block=levels.project @ counts @ column.project.T / c.n_rows,
            noise=table.variance / c.n_rows**2,
            within=white @ within @ white.T,
        )

    def _levels(self, x: int) -> _Levels:
        if x not in self._kept_levels:
            c = self.covariance
            a = int(c.size[x])
            p = np.append(c.probabilities[x, :a], c.probabilities[x, -1])
            project = c.whitener[x, :a, :a] @ (np.eye(a + 1) - np.outer(p, np.ones(a + 1)))[:a]
            self._kept_levels[x] = _Levels(merge_matrix(c.groups[x]), project)
        return self._kept_levels[x]

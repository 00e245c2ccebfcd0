"""Tests of any order from noisy pair tables alone.

Pooled over strata, Σ_z (N_xyz − N_xz N_yz / N_z) = N_xy − N_xz diag(1/N_z) N_zy is a function of pair tables, so tests
of order 1 need no triple table. Larger sets enter with their main effects: exact where E[x | S] or E[y | S] is additive
in S, and otherwise on the side of keeping an edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.covariance import OneHotCovariance
from dagveil.evidence.questions import Answers, Questions
from dagveil.evidence.wald import Blocks, Wald, mix_strata, partial_covariance, residual_strength

Floats = NDArray[np.float64]

CELLS_PER_BATCH = 4_000_000
"""Numbers that one batch may hold in its largest array: keeps memory flat whatever is asked."""


class PairEvidence:
    """Independence tests on a one-hot covariance.

    Parameters
    ----------
    covariance
        Estimated from released pair tables.
    """

    def __init__(self, covariance: OneHotCovariance) -> None:
        self.covariance = covariance

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""
        return self.covariance.columns

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell for which questions every pair table that they need was measured."""
        measured = self.covariance.measured
        known = measured[questions.x, questions.y].copy()
        for i in range(questions.order):
            known &= measured[questions.x, questions.given[:, i]] & measured[questions.y, questions.given[:, i]]
            for j in range(i):
                known &= measured[questions.given[:, i], questions.given[:, j]]
        return known

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered jointly: pairs hold the main effects of larger sets only."""
        return np.full(len(questions), questions.order < 2)

    def association(self) -> Floats:
        """Return the χ² information ‖K_xy‖² of every pair, less what noise and sampling add to a square on average."""
        c = self.covariance
        squares = np.einsum("ijab,ijab->ij", c.blocks, c.blocks)
        traces = np.trace(c.spread, axis1=1, axis2=2)
        noise = np.where(c.measured, c.noise, 0.0)
        added = noise * np.outer(traces, traces) + np.outer(c.size, c.size) / c.n_rows
        return np.where(c.measured, squares - added, 0.0)

    def strength(self, questions: Questions) -> Floats:
        """Return ‖u‖² of each question in whitened units."""
        questions = self._small_first(questions)
        out = np.zeros(len(questions))
        for rows in self._groups(questions):
            chosen = questions.select(rows)
            a, b = int(self.covariance.size[chosen.x[0]]), int(self.covariance.size[chosen.y[0]])
            xy = self.covariance.blocks[chosen.x, chosen.y, :a, :b]
            out[rows] = residual_strength(xy, *self._conditioning(chosen, a, b))
        return out

    def test(self, questions: Questions) -> Answers:
        """Test each question by its Wald statistic."""
        questions = self._small_first(questions)
        statistic = np.zeros(len(questions))
        for rows in self._groups(questions):
            statistic[rows] = self.wald(questions.select(rows)).statistic()
        return self._judge(questions, statistic)

    def _small_first(self, questions: Questions) -> Questions:
        """Swap x and y where x has more levels: answers do not change, and fewer groups have to be formed."""
        swap = self.covariance.size[questions.x] > self.covariance.size[questions.y]
        x, y = np.where(swap, questions.y, questions.x), np.where(swap, questions.x, questions.y)
        return Questions(x, y, questions.given)

    def _judge(self, questions: Questions, statistic: Floats) -> Answers:
        freedom = (self.covariance.size[questions.x] * self.covariance.size[questions.y]).astype(np.float64)
        p_value = np.where(freedom > 0, special.chdtrc(np.maximum(freedom, 1.0), statistic), 1.0)
        return Answers(statistic, freedom, p_value)

    def redraw(self, rng: np.random.Generator) -> PairEvidence:
        """Return evidence with fresh noise and fresh sampling around this one."""
        return PairEvidence(self.covariance.with_noise(rng).with_sampling(rng))

    def wald(self, questions: Questions) -> Wald:
        """Return u and C for questions whose columns x have one size, and likewise y."""
        return partial_covariance(self._gather(questions))

    def forecast_joint(
        self, questions: Questions, variance: float, effect: float, level: float
    ) -> tuple[Floats, Floats]:
        """Foresee joint tests of order 2 if three-way tables had cells of this variance.

        Parameters
        ----------
        questions
            Of order 2.
        variance
            Of one cell's noise.
        effect
            Size of the dependence, in whitened units, that `power` is about.
        level
            Level of the test.

        Returns
        -------
        efficiency, power
            Per question: the share of information that noise leaves, and the chance to see the effect.
        """
        efficiency, power = np.zeros(len(questions)), np.zeros(len(questions))
        for rows in self._groups(questions):
            chosen = questions.select(rows)
            levels = self.covariance.size[chosen.given] + 1
            # main effects stand in for the joint cells: summing the other column's levels adds their noise up
            noise = np.asarray(variance * levels[:, ::-1] / self.covariance.n_rows**2, dtype=np.float64)
            blocks = self._gather(chosen)
            spread = self.covariance.table_spread
            _, a, b = blocks.xy.shape
            s = blocks.xs.shape[3]
            wald = partial_covariance(
                replace(
                    blocks,
                    xs_noise=noise,
                    ys_noise=noise,
                    ss_noise=np.zeros_like(blocks.ss_noise),
                    x_table_spread=spread[chosen.x, :a, :a],
                    y_table_spread=spread[chosen.y, :b, :b],
                    s_spread=spread[chosen.given][:, :, :s, :s],
                )
            )
            efficiency[rows] = wald.efficiency()
            freedom = wald.partial.shape[1]
            shift = effect**2 * np.trace(np.linalg.inv(wald.covariance), axis1=1, axis2=2) / freedom
            power[rows] = 1.0 - special.chndtr(special.chdtri(freedom, level), freedom, shift)
        return efficiency, power

    def _groups(self, questions: Questions) -> Iterator[NDArray[np.intp]]:
        """Split a batch so that sizes agree and memory stays bounded, without questions about constant columns."""
        size = self.covariance.size
        key = size[questions.x] * (int(size.max()) + 1) + size[questions.y]
        live = (size[questions.x] > 0) & (size[questions.y] > 0)
        for value in np.unique(key[live]):
            rows = np.flatnonzero(live & (key == value))
            a, b = int(size[questions.x[rows[0]]]), int(size[questions.y[rows[0]]])
            step = max(1, CELLS_PER_BATCH // (a * b) ** 2)
            for start in range(0, len(rows), step):
                yield rows[start : start + step]

    def _conditioning(self, questions: Questions, a: int, b: int) -> tuple[Floats, Floats, Floats]:
        """Gather K_xS, K_yS and K_SS."""
        blocks, given = self.covariance.blocks, questions.given
        k, q = questions.order, len(questions)
        s = max(int(self.covariance.size[given].max()), 1) if k else 1
        xs = np.empty((q, a, k, s))
        ys = np.empty((q, b, k, s))
        ss = np.empty((q, k, s, k, s))
        for i in range(k):
            xs[:, :, i] = blocks[questions.x, given[:, i], :a, :s]
            ys[:, :, i] = blocks[questions.y, given[:, i], :b, :s]
            for j in range(k):
                ss[:, i, :, j] = blocks[given[:, i], given[:, j], :s, :s]
        return xs, ys, ss

    def _gather(self, questions: Questions) -> Blocks:
        c = self.covariance
        x, y, given = questions.x, questions.y, questions.given
        a, b = int(c.size[x[0]]), int(c.size[y[0]])
        xs, ys, ss = self._conditioning(questions, a, b)
        s = xs.shape[3]
        levels = np.r_[0:s, c.probabilities.shape[1] - 1]
        return Blocks(
            xy=c.blocks[x, y, :a, :b],
            xs=xs,
            ys=ys,
            ss=ss,
            x_spread=c.spread[x, :a, :a],
            y_spread=c.spread[y, :b, :b],
            x_table_spread=c.spread[x, :a, :a],
            y_table_spread=c.spread[y, :b, :b],
            s_spread=c.spread[given][:, :, :s, :s],
            xy_noise=c.noise[x, y],
            xs_noise=c.noise[x[:, None], given],
            ys_noise=c.noise[y[:, None], given],
            ss_noise=c.noise[given[:, :, None], given[:, None, :]],
            s_margin_noise=c.margin_noise[given][:, :, levels],
            s_probabilities=c.probabilities[given][:, :, levels],
            s_whitener=c.whitener[given][:, :, :s, :s],
            n_rows=c.n_rows,
            sampling=self._stratified(x, y, given[:, 0], a, b) if questions.order == 1 else None,
        )

    def _stratified(self, x: NDArray[np.intp], y: NDArray[np.intp], z: NDArray[np.intp], a: int, b: int) -> Floats:
        """Return Σ_z p_z D_{x|z} ⊗ D_{y|z} / n: the sampling covariance without assuming equal strata."""
        dx = self._within(x, z, a)
        dy = self._within(y, z, b)
        return mix_strata(self.covariance.probabilities[z] / self.covariance.n_rows, dx, dy)

    def _within(self, x: NDArray[np.intp], z: NDArray[np.intp], a: int) -> Floats:
        """Whitened covariance of x inside each level of z, shape (q, levels of z, a, a)."""
        c = self.covariance
        m = c.blocks.shape[2]
        px, pz = c.probabilities[x], c.probabilities[z]
        inner = c.root[x, :a, :a] @ c.blocks[x, z, :a] @ c.root[z].transpose(0, 2, 1)
        joint = np.empty((len(x), a + 1, m + 1))
        joint[:, :a, :m] = inner + px[:, :a, None] * pz[:, None, :m]
        joint[:, :a, m] = px[:, :a] - joint[:, :a, :m].sum(axis=2)
        joint[:, a] = pz - joint[:, :a].sum(axis=1)
        floor = np.maximum(np.sqrt(c.noise[x, z]), 0.5 / c.n_rows)
        joint = np.maximum(joint, floor[:, None, None])
        conditional = (joint / joint.sum(axis=1, keepdims=True))[:, :a].transpose(0, 2, 1)
        within = conditional[..., None] * np.eye(a) - conditional[..., :, None] * conditional[..., None, :]
        white = c.whitener[x, None, :a, :a]
        out: Floats = white @ within @ white.transpose(0, 1, 3, 2)
        return out

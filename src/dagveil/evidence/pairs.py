"""Tests of any order from noisy pair tables alone.

Pooled over strata, Σ_z (N_xyz − N_xz N_yz / N_z) = N_xy − N_xz diag(1/N_z) N_zy is a function of pair tables, so tests
of order 1 need no triple table. Larger sets enter with their main effects: exact where E[x | S] or E[y | S] is additive
in S, and otherwise on the side of keeping an edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.covariance import OneHotCovariance
from dagveil.evidence.questions import Answers, CovarianceEvidence, Questions
from dagveil.evidence.wald import (
    Conditioning,
    Regressions,
    Remainder,
    Wald,
    chi_square_tail,
    distinct_rows,
    invert_sets,
    marginal_wald,
    partial_covariance,
    regress,
    weigh,
    whiten_within,
)

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

CELLS_PER_BATCH = 4_000_000  # numbers that one batch may hold in its largest array: keeps memory flat whatever is asked


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """Prepared conditioning sets, and what is known of columns together with them."""

    conditioning: Conditioning
    # V of the tables of columns with the blocks of a set, given columns and the places of their sets
    noise: Callable[[Rows, Rows], Floats]
    # regresses columns of one size, given columns, the places of their sets, and the size
    regress: Callable[[Rows, Rows, int], Regressions]


class PairEvidence(CovarianceEvidence[OneHotCovariance]):
    """Independence tests on a one-hot covariance, estimated from released pair tables."""

    def __init__(self, covariance: OneHotCovariance) -> None:
        super().__init__(covariance)
        self._remembered: dict[int, tuple[NDArray[np.int64], Floats]] = {}

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell for which questions the table of x and y was measured, and all others that they need are known."""
        known = self.covariance.known
        answered = self.covariance.measured[questions.x, questions.y].copy()
        for i in range(questions.order):
            answered &= known[questions.x, questions.given[:, i]] & known[questions.y, questions.given[:, i]]
            for j in range(i):
                answered &= known[questions.given[:, i], questions.given[:, j]]
        return answered

    def association(self) -> Floats:
        """Return the χ² information ‖K_xy‖² of every pair, less what noise and sampling add to a square on average."""
        return self._association

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Which columns leave next to nothing open about which."""
        return self.covariance.determined()

    @cached_property
    def _association(self) -> Floats:
        c = self.covariance
        squares = np.einsum("ijab,ijab->ij", c.blocks, c.blocks)
        traces, shifts = np.trace(c.spread, axis1=1, axis2=2), (c.shift**2).sum(axis=1)
        noise = np.where(c.measured, c.noise, 0.0) + np.outer(c.shared_noise, c.shared_noise)
        margins = np.outer(c.shared_noise * traces, shifts)
        added = noise * np.outer(traces, traces) + margins + margins.T + c.total_noise * np.outer(shifts, shifts)
        added += np.outer(c.size, c.size) * (1.0 / c.n_rows + (0.0 if c.lost is None else c.lost))
        return np.where(c.measured, squares - added, np.where(c.known, squares, 0.0))

    def strength(self, questions: Questions) -> Floats:
        """Return ‖u‖² of each question in whitened units."""
        strength = np.zeros(len(questions))
        for rows, u in self._partials(questions):
            strength[rows] = np.einsum("qab,qab->q", u, u)
        return strength

    def _partials(self, questions: Questions) -> Iterator[tuple[Rows, Floats]]:
        """Yield rows of the batch and their u by main effects, padded."""
        c = self.covariance
        for rows in self._chunks(questions):
            chosen = questions.select(rows)
            u = c.blocks[chosen.x, chosen.y]
            if questions.order == 1:
                z = chosen.given[:, 0]
                u = u - c.blocks[chosen.x, z] @ c.blocks[z, chosen.y]
            elif questions.order > 1:
                place, sets = distinct_rows(chosen.given)
                s = self._widest(sets)
                inverse = invert_sets(self._between(sets, s))[place]
                to_x, to_y = (self._towards(end, chosen.given, u.shape[1], s) for end in (chosen.x, chosen.y))
                u = u - to_x @ inverse @ to_y.transpose(0, 2, 1)
            yield rows, u

    def test(self, questions: Questions) -> Answers:
        """Test each question by its Wald statistic."""
        statistic = self._recall(questions)[:, 0]
        freedom = (self.covariance.size[questions.x] * self.covariance.size[questions.y]).astype(np.float64)
        p_value = np.where(freedom > 0, special.chdtrc(np.maximum(freedom, 1.0), statistic), 1.0)
        return Answers(statistic, freedom, p_value)

    def _recall(self, questions: Questions) -> Floats:
        """Return T of each question, and with one conditioning column efficiency and odds besides, shape (q, 3).

        Those that were asked before are looked up: searches, arrows and redraws share many.
        """
        d, order = len(self.columns), questions.order
        if (order + 2) * math.log2(d) >= 62:  # numbers of questions would not fit into a word
            return self._compute(questions)
        ends = np.sort(np.column_stack([questions.x, questions.y]), axis=1)
        numbers = np.hstack([ends, np.sort(questions.given, axis=1)]) @ d ** np.arange(order + 2, dtype=np.int64)
        asked, found = self._remembered.get(order, (np.empty(0, dtype=np.int64), np.empty((0, 3))))
        place = np.searchsorted(asked, numbers)
        known = np.append(asked, -1)[place] == numbers
        recalled = np.vstack([found, np.zeros((1, 3))])[place]
        if not known.all():
            missing = np.flatnonzero(~known)
            new, first, again = np.unique(numbers[missing], return_index=True, return_inverse=True)
            answers = self._compute(questions.select(missing[first]))
            recalled[missing] = answers[again]
            if len(asked) + len(new) <= CELLS_PER_BATCH:
                place = np.argsort(np.concatenate([asked, new]), kind="stable")
                self._remembered[order] = np.append(asked, new)[place], np.concatenate([found, answers])[place]
        return recalled

    def _compute(self, questions: Questions) -> Floats:
        """Compute what `_recall` returns; nothing is known of constant columns."""
        found = np.zeros((len(questions), 3))
        for rows, wald in self.all_walds(self._small_first(questions)):
            found[rows, 0] = wald.statistic()
            if questions.order == 1:
                found[rows, 1], found[rows, 2] = wald.efficiency(), wald.odds(self.covariance.n_rows)
        return found

    def _ask_each(self, questions: Questions, ask: Callable[[Wald], Floats], *shape: int) -> Floats:
        """Return what is asked of the Wald statistic of each question, the last axis; 0 of constant columns."""
        found = np.zeros((*shape, len(questions)))
        for rows, wald in self.all_walds(self._small_first(questions)):
            found[..., rows] = ask(wald)
        return found

    def _small_first(self, questions: Questions) -> Questions:
        """Swap x and y where x has more levels: answers do not change, and fewer groups have to be formed."""
        swap = self.covariance.size[questions.x] > self.covariance.size[questions.y]
        x, y = np.where(swap, questions.y, questions.x), np.where(swap, questions.x, questions.y)
        return Questions(x, y, questions.given)

    def all_walds(self, questions: Questions) -> Iterator[tuple[Rows, Wald]]:
        """Yield rows of the batch and what is known about them, by the sharpest tables there are."""
        return self.walds(questions)

    def odds(self, questions: Questions) -> Floats:
        """Return the log Bayes factor of dependence for each question, against none or next to none."""
        if questions.order == 1:
            return self._recall(questions)[:, 2]
        odds, joint = np.zeros(len(questions)), self._compared(questions)
        alone = np.delete(np.arange(len(questions)), joint)
        odds[alone] = self._ask_each(questions.select(alone), lambda wald: wald.odds(self.covariance.n_rows))
        odds[joint] = self.remainder(questions.select(joint)).odds(self.covariance.n_rows)
        return odds

    def _compared(self, questions: Questions) -> Rows:
        """Return the questions that are judged by what a set leaves: main effects leave something by themselves."""
        return np.flatnonzero(self.joint(questions) & (questions.order > 1))

    def remainder(self, questions: Questions) -> Remainder:
        """Return what sets leave of the dependence that they leave without one of their columns.

        Of their columns, the one without which u is smallest.
        """
        questions = self._small_first(questions)
        q, m = len(questions), self.covariance.blocks.shape[2]
        before, smallest = np.zeros((q, m, m)), np.full(q, np.inf)
        for dropped in range(questions.order):
            smaller = Questions(questions.x, questions.y, np.delete(questions.given, dropped, axis=1))
            for rows, u in self._partials(smaller):
                size = np.einsum("qab,qab->q", u, u)
                less = size < smallest[rows]
                smallest[rows[less]], before[rows[less]] = size[less], u[less]
        left = np.zeros((3, q))
        for rows, wald in self.all_walds(questions):
            marginal = self.wald(Questions(questions.x[rows], questions.y[rows], questions.given[rows, :0]))
            a, b = self.covariance.size[[questions.x[rows[0]], questions.y[rows[0]]]]
            part = wald.compare(before[rows, :a, :b].reshape(len(rows), -1), marginal.covariance)
            left[:, rows] = part.share, part.information, part.whole
        return Remainder(*left)

    def power(self, questions: Questions) -> tuple[Floats, Floats]:
        """Return `Wald.power` of each question."""
        share, room = self._ask_each(questions, lambda wald: np.stack(wald.power(self.covariance.n_rows)), 2)
        return share, room

    def efficiency(self, questions: Questions) -> Floats:
        """Return the share of information that noise leaves to the test of each question."""
        return self._recall(questions)[:, 1] if questions.order == 1 else self._ask_each(questions, Wald.efficiency)

    def redraw(self, rng: np.random.Generator) -> PairEvidence:
        """Return evidence with fresh noise and fresh sampling around what was estimated."""
        return RedrawnEvidence(self, self.centre.redraw(rng), rng)

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> Floats:
        """Return p-values of marginal questions as if nothing depended on anything, shape (draws, questions).

        Noise that pairs share is drawn once for all of them.
        """
        c = self.covariance
        shared = c.draw_margins(rng, draws)
        total = np.sqrt(c.total_noise) * rng.standard_normal(draws)
        p_value = np.ones((draws, len(questions)))  # of questions about constant columns, too
        for rows, wald in self.walds(questions):
            x, y = questions.x[rows], questions.y[rows]
            a, b = int(c.size[x[0]]), int(c.size[y[0]])
            left, right = c.shift[x, :a], c.shift[y, :b]
            # of C, what each pair has to itself
            own = wald.sampling + c.noise_between(x, y, a, b, shared=False)
            if c.lost is not None:
                own = own + c.lost[x, y, None, None] * np.eye(a * b)
            whiten = np.linalg.inv(np.linalg.cholesky(wald.covariance))
            # what a pair has to itself, the noise of both margins, and that of the number of rows, side by side
            ways = [
                np.einsum("ij,qb->qibj", np.eye(a), right),
                np.einsum("qa,ij->qaij", left, np.eye(b)),
                np.einsum("qa,qb->qab", left, right)[..., None],
            ]
            moved = np.concatenate([way.reshape(len(rows), a * b, -1) for way in ways], axis=2)
            mixing = whiten @ np.concatenate([np.linalg.cholesky(own), moved], axis=2)
            step = max(1, CELLS_PER_BATCH // (len(rows) * mixing.shape[2]))
            for start in range(0, draws, step):
                part = slice(start, start + step)
                drawn = rng.standard_normal((len(shared[part]), len(rows), a * b))
                alike = np.broadcast_to(total[part, None, None], (*drawn.shape[:2], 1))
                parts = np.concatenate([drawn, shared[part, x, :a], shared[part, y, :b], alike], axis=2)
                white = parts.transpose(1, 0, 2) @ mixing.transpose(0, 2, 1)
                p_value[part, rows] = chi_square_tail(a * b, np.einsum("qti,qti->tq", white, white))
        return p_value

    def wald(self, questions: Questions) -> Wald:
        """Return u and C for questions whose columns x have one size, and likewise y."""
        return next(self.walds(questions))[1]

    def forecast_joint(
        self, questions: Questions, variance: float, effect: float, level: float
    ) -> tuple[Floats, Floats]:
        """Foresee joint tests of order 2 if three-way tables had cells of this variance.

        - `effect`: size of the dependence, in whitened units, that `power` is about.

        Returns per question the share of information that noise leaves, and the chance to see the effect.
        """
        questions = self._small_first(questions)
        efficiency, power = np.zeros(len(questions)), np.zeros(len(questions))
        for rows, wald in self.walds(questions, variance):
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

    def _chunks(self, questions: Questions) -> Iterator[NDArray[np.intp]]:
        """Split a batch so that what belongs to its sets and to its columns stays within memory."""
        m = self.covariance.blocks.shape[2]
        step = max(1, CELLS_PER_BATCH // (2 * (m + 1) * m * m * max(questions.order, 1) ** 2))
        for start in range(0, len(questions), step):
            yield np.arange(start, min(start + step, len(questions)))

    def walds(self, questions: Questions, variance: float | None = None) -> Iterator[tuple[Rows, Wald]]:
        """Yield rows of the batch and what is known about them, for columns of one size each.

        With a variance, three-way tables with such cells stand in for the pair tables with the conditioning set.
        """
        c = self.covariance
        for part in self._chunks(questions):
            chosen = questions.select(part)
            if questions.order:
                place, sets = distinct_rows(chosen.given)
                for rows, wald in self._pair_up(chosen, place, self._condition(sets, variance)):
                    yield part[rows], wald
                continue
            for rows in self._groups(chosen):
                x, y = chosen.x[rows], chosen.y[rows]
                a, b = int(c.size[x[0]]), int(c.size[y[0]])
                noise = c.noise_between(x, y, a, b)
                lost = None if c.lost is None else c.lost[x, y]
                yield part[rows], marginal_wald(c.blocks[x, y, :a, :b], noise, c.n_rows, lost)

    def _condition(self, sets: Rows, variance: float | None) -> Conditioned:
        """Prepare conditioning sets; parameters are those of `_walds`."""
        c = self.covariance
        s = self._widest(sets)
        levels = np.r_[0:s, c.probabilities.shape[1] - 1]
        spread = c.spread if variance is None else c.table_spread
        between = c.noise[sets[:, :, None], sets[:, None, :]]
        conditioning = Conditioning(
            inverse=invert_sets(self._between(sets, s)),
            spread=spread[sets][:, :, :s, :s],
            noise=between if variance is None else np.zeros_like(between),
            margin_noise=c.margin_noise[sets][:, :, levels],
            probabilities=c.probabilities[sets][:, :, levels],
            whitener=c.whitener[sets][:, :, :s, :s],
            shift=c.shift[sets][:, :, :s] if variance is None else np.zeros((*sets.shape, s)),
            lost=None if c.lost is None else c.n_rows * np.diag(c.lost)[sets],
        )

        def find_noise(x: Rows, place: Rows) -> Floats:
            given = sets[place]
            if variance is None:
                return c.noise[x[:, None], given]
            # main effects stand in for the joint cells: summing the other column's levels adds their noise up
            return np.asarray(variance * (c.size[given] + 1)[:, ::-1] / c.n_rows**2, dtype=np.float64)

        def regress_columns(x: Rows, place: Rows, a: int) -> Regressions:
            given = sets[place]
            within = self._within(x, given[:, 0], a, levels) if given.shape[1] == 1 else None
            spreads = spread[x, :a, :a], c.spread[x, :a, :a]
            towards = self._towards(x, given, a, s)
            return regress(conditioning, place, towards, *spreads, c.shift[x, :a], find_noise(x, place), within)

        return Conditioned(conditioning, find_noise, regress_columns)

    def _pair_up(self, questions: Questions, place: Rows, sets: Conditioned) -> Iterator[tuple[Rows, Wald]]:
        """Regress every column on every set that it is asked with, once, and join two regressions for each question.

        - `place`, `sets`: the conditioning set of each question, among these.
        """
        c, d, q = self.covariance, len(self.columns), len(questions)
        x, y = questions.x, questions.y
        keys, ends = np.unique(np.concatenate([place * d + x, place * d + y]), return_inverse=True)
        set_of, column = np.divmod(keys, d)
        size, position, regressions = c.size[column], np.zeros(len(keys), dtype=np.intp), {}
        for a in np.unique(size[size > 0]).tolist():  # nothing is asked about constant columns
            rows = np.flatnonzero(size == a)
            position[rows] = np.arange(len(rows))
            regressions[a] = sets.regress(column[rows], set_of[rows], a)
        left, right = position[ends[:q]], position[ends[q:]]
        noises = sets.noise(x, place), sets.noise(y, place)
        shared = c.shared_noise[x], c.shared_noise[y]
        lost = None if c.lost is None else (c.n_rows * c.lost[x, x], c.n_rows * c.lost[y, y])
        strata = noises[0].shape[1] == 1  # inside each level of a single block columns are known
        weights = weigh(sets.conditioning, place, c.noise[x, y], *noises, shared, c.n_rows, strata, lost)
        for rows in self._groups(questions):
            a, b = int(c.size[x[rows[0]]]), int(c.size[y[rows[0]]])
            pair = regressions[a].select(left[rows]), regressions[b].select(right[rows])
            yield rows, partial_covariance(c.blocks[x[rows], y[rows], :a, :b], *pair, weights.select(rows))

    def _widest(self, sets: NDArray[np.intp]) -> int:
        return max(int(self.covariance.size[sets].max()), 1)

    def _towards(self, x: NDArray[np.intp], given: NDArray[np.intp], a: int, s: int) -> Floats:
        """Gather K_xS, shape (q, a, ks)."""
        blocks = self.covariance.blocks[x[:, None], given, :a, :s]
        return blocks.transpose(0, 2, 1, 3).reshape(len(x), a, -1)

    def _between(self, sets: NDArray[np.intp], s: int) -> Floats:
        """Gather K_SS, shape (g, k, s, k, s)."""
        return self.covariance.blocks[sets[:, :, None], sets[:, None, :], :s, :s].transpose(0, 1, 3, 2, 4)

    def _within(self, x: NDArray[np.intp], z: NDArray[np.intp], a: int, levels: NDArray[np.intp]) -> Floats:
        """Whitened covariance of x inside these levels of z, the last one last, shape (q, levels, a, a)."""
        c, s = self.covariance, len(levels) - 1
        px, pz = c.probabilities[x, :a], c.probabilities[z][:, levels]
        joint = np.empty((len(x), a + 1, s + 1))
        inner = c.root[x, :a, :a] @ c.blocks[x, z, :a, :s] @ c.root[z, :s, :s].transpose(0, 2, 1)
        joint[:, :a, :s] = inner + px[:, :, None] * pz[:, None, :s]
        joint[:, :a, s] = px - joint[:, :a, :s].sum(axis=2)
        joint[:, a] = pz - joint[:, :a].sum(axis=1)
        joint = np.maximum(joint, np.maximum(np.sqrt(c.noise[x, z]), 0.5 / c.n_rows)[:, None, None])
        return whiten_within(c.whitener[x, :a, :a], joint[:, :a] / joint.sum(axis=1, keepdims=True))


class RedrawnEvidence(PairEvidence):
    """Evidence as fresh noise and fresh sampling could have made it.

    Blocks are drawn around estimates, with the noise that pairs share. Tests given columns are not computed from them:
    what an estimate leaves of x and y given S has the released noise in it, and would have it twice. Their statistics
    are drawn around the released ones, without what noise alone adds: from noncentral χ², T − freedom being the shift.
    """

    def __init__(self, source: PairEvidence, covariance: OneHotCovariance, rng: np.random.Generator) -> None:
        super().__init__(covariance)
        self._source, self._rng = source, rng

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions the released evidence can answer."""
        return self._source.answers(questions)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions the released evidence answers jointly."""
        return self._source.joint(questions)

    def odds(self, questions: Questions) -> Floats:
        """Return about the log Bayes factor that fresh noise could have given."""
        share, room = self._source.power(questions)
        odds: Floats = (share * self._recall(questions)[:, 0] - room) / 2
        joint = self._compared(questions)
        left = self._source.remainder(questions.select(joint)).redraw(self._rng)
        odds[joint] = left.odds(self.covariance.n_rows)
        return odds

    def efficiency(self, questions: Questions) -> Floats:
        """Return that of the released evidence."""
        return self._source.efficiency(questions)

    def _compute(self, questions: Questions) -> Floats:
        if not questions.order:
            return super()._compute(questions)
        released, found = self._source.test(questions), np.zeros((len(questions), 3))
        freedom = np.maximum(released.freedom, 1.0)
        found[:, 0] = self._rng.noncentral_chisquare(freedom, np.maximum(released.statistic - freedom, 0.0))
        return found

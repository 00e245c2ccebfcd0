"""Questions laid out as strata of one table of counts, and the Wald statistic that pools them.

Arrays have questions in their last axis, because sums over levels and strata are then sums of long rows.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Questions
from dagveil.evidence.wald import Wald

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

CELLS_AT_ONCE = 2**17  # cells of all marginal tables together up to which they are summed at once
CELLS_REMEMBERED = 2**23  # cells of marginal tables that are kept for the next question


class AllMargins:
    """All marginal tables inside one: every column has one more level, which stands for all of its levels."""

    def __init__(self, counts: Floats) -> None:
        wide = counts
        after = 1
        # the last column first: sums then run over longer and longer rows
        for levels in reversed(counts.shape):
            parts = wide.reshape(-1, levels, after)
            wide = np.empty((len(parts), levels + 1, after))
            wide[:, :-1] = parts
            np.add.reduce(parts, axis=1, out=wide[:, -1])
            after *= levels + 1
        self.cells = np.append(wide, 0.0)
        self._wide = self.cells[:-1].reshape([levels + 1 for levels in counts.shape])
        self._stride = np.array(self._wide.strides, dtype=np.intp) // self._wide.itemsize
        self._summed = self._stride * np.array(counts.shape, dtype=np.intp)
        self._total = int(self._summed.sum())

    @property
    def nothing(self) -> int:
        """Place of a cell without a count."""
        return len(self.cells) - 1

    def of(self, columns: tuple[int, ...]) -> Floats:
        """Sum out all columns but these, which are given in ascending order."""
        place: list[int | slice] = [-1] * self._wide.ndim
        for column in columns:
            place[column] = slice(-1)
        return np.asarray(self._wide[tuple(place)])

    def locate(self, sets: Positions) -> tuple[Floats, Positions, Positions]:
        """Tell where the margins of many sets lie.

        - `sets`: positions of columns, in any order, shape (sets, columns of each).

        Returns the cells in one row; for each set the place of its first cell; and how far the next level of each of
        its columns is from there, in the shape of `sets`.
        """
        return self.cells, self._total - self._summed[sets].sum(axis=1), self._stride[sets]


class AskedMargins:
    """Marginal tables as they are asked for; the last ones are remembered.

    A margin is summed from the margin with one more column, so that sets with a common beginning share most of the
    work: from a million cells, thousands of sets take little longer than the first.
    """

    def __init__(self, counts: Floats) -> None:
        self._all = tuple(range(counts.ndim))
        self._counts = counts
        self._kept: OrderedDict[tuple[int, ...], Floats] = OrderedDict()
        self._cells = 0

    def of(self, columns: tuple[int, ...]) -> Floats:
        """Sum out all columns but these, which are given in ascending order."""
        if columns == self._all:
            return self._counts
        if columns in self._kept:
            self._kept.move_to_end(columns)
            return self._kept[columns]
        gone = max(set(self._all) - set(columns))
        larger = tuple(sorted((*columns, gone)))
        margin: Floats = self.of(larger).sum(axis=larger.index(gone))
        self._kept[columns] = margin
        self._cells += margin.size
        while self._cells > CELLS_REMEMBERED and len(self._kept) > 1:
            self._cells -= self._kept.popitem(last=False)[1].size
        return margin

    def locate(self, sets: Positions) -> tuple[Floats, Positions, Positions]:
        """Tell where the margins of many sets lie."""
        order = np.argsort(sets, axis=1)
        ascending = np.take_along_axis(sets, order, axis=1)
        margins = [self.of(tuple(columns)) for columns in ascending.tolist()]
        levels = np.array(self._counts.shape, dtype=np.intp)[ascending]
        after = np.cumprod(levels[:, :0:-1], axis=1, dtype=np.intp)[:, ::-1]
        stride = np.ones_like(sets)
        np.put_along_axis(stride, order[:, :-1], after, axis=1)
        first = np.cumsum([0, *(margin.size for margin in margins[:-1])], dtype=np.intp)
        return np.concatenate([margin.reshape(-1) for margin in margins]), first, stride


Margins = AllMargins | AskedMargins  # sums of a table over all columns but some


def margins_of(counts: Floats) -> Margins:
    """Return the margins of a table."""
    together = math.prod(levels + 1 for levels in counts.shape)
    return AllMargins(counts) if together <= CELLS_AT_ONCE else AskedMargins(counts)


FEWEST_ROWS = 0.5
"""Margins inside a stratum are floored at this and at the deviation of their noise: neither may look empty."""

BARELY_SEEN = 4.0  # deviations of noise that the total of a stratum has to exceed before the stratum counts
CELLS_LAID_OUT = 2**15  # cells of all small questions together up to which they are answered at once
ORDERS_LAID_OUT = 3  # orders of small questions: 0, 1 and 2, which a search of tables asks


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Levels of the columns of a table."""

    kept: Positions  # number of levels after merging, shape (d,)
    declared: Positions  # number before, shape (d,)
    merged: Floats  # how many declared levels each kept one stands for, shape (d, most levels), zero in the padding


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the cells of q questions of one shape lie, x having no more levels than y."""

    # `x`, `y`: positions of the two columns, shape (q,)
    x: Positions
    y: Positions
    place: Positions  # of each cell among the cells of the margins, shape (levels of x, levels of y, strata, q)
    # declared cells that make one cell whose levels of x and y were not merged, shape (strata, q); 0 for strata that
    # only fill up
    summed: Floats
    # `x_merged`, `y_merged`: how many declared levels each level stands for, shapes (levels, q)
    x_merged: Floats
    y_merged: Floats


def lay_out(questions: Questions, levels: Levels, margins: Margins) -> tuple[Floats, Layout]:
    """Return the cells of the margins, and where those of questions with tables of one shape lie."""
    x, y, given = questions.x, questions.y, questions.given
    sets = np.column_stack([x, y, given])
    cells, place, stride = margins.locate(sets)
    x_stride, y_stride, *strides = stride.T
    # cells of columns that were summed out and of merged levels add their noise up
    summed = float(levels.declared.prod()) / levels.declared[sets].prod(axis=1)
    rest = np.arange(int(levels.kept[given[0]].prod()))[:, None]
    for column, step in zip(given.T, strides, strict=True):
        rest, level = np.divmod(rest, levels.kept[column])
        place = place + level * step
        summed = summed * levels.merged[column, level]
    a, b = int(levels.kept[x[0]]), int(levels.kept[y[0]])
    within = (np.arange(a)[:, None] * x_stride)[:, None] + np.arange(b)[:, None] * y_stride
    return cells, Layout(
        x=x,
        y=y,
        place=place.reshape(-1, len(x)) + within[:, :, None],
        summed=summed.reshape(-1, len(x)),
        x_merged=levels.merged[x, :a].T,
        y_merged=levels.merged[y, :b].T,
    )


def encode_questions(questions: Questions, d: int) -> Positions:
    """Return one number for each question about d columns, which x and y may change places in."""
    code = np.minimum(questions.x, questions.y) * d + np.maximum(questions.x, questions.y)
    for column in np.sort(questions.given, axis=1).T:
        code = code * d + column
    return code


@lru_cache(maxsize=8)
def lay_out_all(shape: tuple[int, ...]) -> tuple[tuple[Layout, list[Positions]], ...]:
    """Lay out all small questions about a table whose levels are all kept; none if there are too many.

    Returns for each shape of x and y where the cells of the questions lie, and the codes of those of each order, one
    order after the other in the layout. It hangs on the shape alone: redraws and further tables of the same schema
    share it.
    """
    d, most = len(shape), max(shape)
    numbers = [math.comb(d, 2) * math.comb(d - 2, order) for order in range(min(ORDERS_LAID_OUT, d - 1))]
    if sum(numbers) * most ** (len(numbers) + 1) > CELLS_LAID_OUT:
        return ()
    declared = np.array(shape, dtype=np.intp)
    levels = Levels(declared, declared, np.ones((d, most)))
    margins = AllMargins(np.zeros(shape))
    by_shape: dict[tuple[int, int], list[list[tuple[int, int, tuple[int, ...]]]]] = {}
    for order in range(len(numbers)):
        for pair in combinations(range(d), 2):
            x, y = sorted(pair, key=shape.__getitem__)
            if shape[x] > 1:
                asked = by_shape.setdefault((shape[x], shape[y]), [[] for _ in numbers])[order]
                asked.extend((x, y, given) for given in combinations([z for z in range(d) if z not in pair], order))
    return tuple(_fill_up([Questions.of(asked) for asked in orders], levels, margins) for orders in by_shape.values())


def _fill_up(orders: list[Questions], levels: Levels, margins: AllMargins) -> tuple[Layout, list[Positions]]:
    """Lay questions of several orders out in one shape: strata that are not there are empty and have no noise."""
    layouts, total = [], 0
    for questions in orders:
        n_strata = levels.kept[questions.given].prod(axis=1)
        for number in np.unique(n_strata):
            rows = np.flatnonzero(n_strata == number)
            layouts.append((total + rows, lay_out(questions.select(rows), levels, margins)[1]))
        total += len(questions)
    most = max(len(layout.summed) for _, layout in layouts)
    a, b = layouts[0][1].place.shape[:2]
    place = np.full((a, b, most, total), margins.nothing, dtype=np.intp)
    summed = np.zeros((most, total))
    for rows, layout in layouts:
        place[:, :, : len(layout.summed), rows] = layout.place
        summed[: len(layout.summed), rows] = layout.summed
    x, y = (np.concatenate([getattr(questions, end) for questions in orders]) for end in ("x", "y"))
    filled = Layout(x, y, place, summed, np.ones((a, total)), np.ones((b, total)))
    return filled, [encode_questions(questions, len(levels.kept)) for questions in orders]


def pool_strata(counts: Floats, layout: Layout, cell_variance: float, n_rows: float | None) -> Wald:
    """Return the weighted mean of U over strata, without the last levels of x and y, and its covariance.

    - `counts`: noisy counts in the shape of `layout.place`.
    - `n_rows`: number of rows, the unit of the mean; None takes those of each question.
    """
    variance = cell_variance * layout.summed
    deviation = np.sqrt(variance)
    x_margin, y_margin = counts.sum(axis=1), counts.sum(axis=0)
    n = x_margin.sum(axis=0)
    x_total, y_total = layout.x_merged.sum(axis=0), layout.y_merged.sum(axis=0)
    p = _shares(x_margin, deviation * np.sqrt(layout.x_merged * y_total)[:, None])
    q = _shares(y_margin, deviation * np.sqrt(layout.y_merged * x_total)[:, None])
    unit = np.maximum(n.sum(axis=0), 1.0) if n_rows is None else n_rows
    weights = _weigh(n, deviation * np.sqrt(x_total * y_total)) / unit
    # (I − p1ᵀ) N (I − 1qᵀ), N1 and 1ᵀN being the margins
    centred = counts[:-1, :-1] - p[:, None] * y_margin[:-1] - (x_margin[:-1] - p * n)[:, None] * q
    partial = (weights * centred).sum(axis=2)
    squares = weights**2
    sampling = _mix(squares * np.maximum(n, 0.0), _within(p), _within(q))
    noise = _mix(squares * variance, _spread(p, layout.x_merged), _spread(q, layout.y_merged))
    return Wald(partial.reshape(-1, partial.shape[-1]).T, sampling + noise, sampling)


def _weigh(n: Floats, deviation: Floats) -> Floats:
    """Weights of strata: what each holds above its noise, as a share of what it seems to hold; their mean row has 1.

    Where p and q are little but noise, n (p − p̂)(q − q̂)ᵀ is as large as U_z itself, and floors give it a direction. If
    no stratum stands out, all count alike: no question is refused. Shapes are (strata, q).
    """
    above = np.maximum(n - BARELY_SEEN * deviation, 0.0)
    weights = np.where(above.any(axis=0), above / np.maximum(n, 1e-300), 1.0)
    held = np.maximum(n, 0.0)
    mass = (weights * held).sum(axis=0)
    return np.asarray(weights * np.divide(held.sum(axis=0), mass, out=np.ones_like(mass), where=mass > 0))


def _shares(margin: Floats, deviation: Floats) -> Floats:
    """Level probabilities inside each stratum, none of them below what noise hides; without the last level."""
    floored = np.maximum(margin, np.maximum(deviation, FEWEST_ROWS))
    return np.asarray(floored[:-1] / floored.sum(axis=0))


def _within(p: Floats) -> Floats:
    """D_p = diag(p) − ppᵀ of each stratum."""
    within: Floats = -p[:, None] * p
    _diagonal(within)[...] += p
    return within


def _spread(p: Floats, merged: Floats) -> Floats:
    """R_p = (I − p1ᵀ) G (I − 1pᵀ) of each stratum, G counting merged levels."""
    g = merged[:-1, None]
    spread: Floats = p[:, None] * (p * merged.sum(axis=0) - g) - g[:, None] * p
    _diagonal(spread)[...] += g
    return spread


def _diagonal(matrices: Floats) -> Floats:
    """View of the diagonals of matrices in the first two axes."""
    return np.asarray(np.einsum("ii...->i...", matrices))


def _mix(weights: Floats, x_part: Floats, y_part: Floats) -> Floats:
    """Return Σ_z w_z X_z ⊗ Y_z of each question, questions first."""
    a, b, q = len(x_part), len(y_part), weights.shape[-1]
    mixed: Floats = np.einsum("ijzq,klzq->qikjl", weights * x_part, y_part)
    return mixed.reshape(q, a * b, a * b)

"""The door: the only object that holds rows.

It checks a question, computes the exact answer and hands it to its gate, which charges the filter, writes the charge to
the ledger, and only then draws noise. Killed at any moment, the ledger never holds less than what could have leaked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from dagveil.curator.gate import Gate, Integers, Record
from dagveil.curator.journal import Journal
from dagveil.curator.pair_choices import PairChoices
from dagveil.curator.questions import QuestionSession
from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.data.moments import FeaturePlan, MomentPlan, OuterProducts, ResidualPlan
from dagveil.data.schema import Schema
from dagveil.data.table import Table, table_shapes
from dagveil.data.weighed import ONLY_LINEAR, refine
from dagveil.errors import BudgetError, MethodError
from dagveil.privacy import release
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, Event, Filter, PureFilter, Unbounded
from dagveil.privacy.mechanisms.gaussian import lattice_for
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.noise.source import NoiseSource
from dagveil.statistics import contingency
from dagveil.statistics.moments import moments_squared_sensitivity, pair_moments_squared_sensitivity
from dagveil.statistics.statistic import Statistic

if TYPE_CHECKING:
    from dagveil.curator.kernel_questions import KernelQuestions
    from dagveil.curator.questions import GradientQuestions

ColumnSets: TypeAlias = Sequence[tuple[str, ...]]
Counts: TypeAlias = tuple[release.NoisyCounts, ...]
Centred: TypeAlias = tuple[release.NoisyInteractions, ...]
# cells that one question may release; more would take minutes of noise and gigabytes of JSON
MAX_RELEASED_CELLS = 20_000_000


class Curator:
    """Holds rows, answers with noise.

    The journal keeps what is released, so that a run that stopped can be finished; `written` is what the ledger holds
    of this run already.
    """

    def __init__(
        self,
        table: Table,
        relation: Relation,
        accounting: Filter,
        run: Record,
        noise: NoiseSource,
        journal: Journal | None = None,
        written: Sequence[Event] = (),
    ) -> None:
        self._table = table
        self._gate = Gate(accounting, run, noise, journal, written)
        self.relation = relation
        self.accounting = accounting

    @property
    def schema(self) -> Schema:
        """The public schema of the rows."""
        return self._table.schema

    @property
    def events(self) -> tuple[Event, ...]:
        """What was charged so far."""
        return self._gate.events

    def count_rows(self, share: Fraction) -> release.NoisyCounts:
        """Release the number of rows; where records are replaced it is public, so it is exact and free."""
        if self.relation is Relation.REPLACE_ONE:
            return self._public_rows()
        return self._release_counts([()], [self._weighed_rows()], share, "number of rows")[0]

    def count_tables(self, column_sets: ColumnSets, share: Fraction, label: str) -> Counts:
        """Release the tables of several sets of columns, all together for this share of the run's budget."""
        if not column_sets:
            return ()
        self._check_cells(label, table_shapes(self.schema, column_sets))
        return self._release_counts(column_sets, self._table.counts_many(list(column_sets)), share, label)

    def interactions(self, column_sets: ColumnSets, share: Fraction, label: str) -> Centred:
        """Release what tables of two or three columns hold beyond their margins, with noise equally sharp in counts."""
        levels = self._levels(column_sets)
        sensitivity = contingency.interactions_squared_sensitivity(self.relation, column_sets, levels)
        return self._release_centred(list(column_sets), sensitivity, share, label)

    def open_pairs(self, pairs: Sequence[tuple[str, str]]) -> PairChoices:
        """Return choices among these pairs, each charged to this curator's filter."""
        self._check_cells("choices of pairs", table_shapes(self.schema, pairs))
        return PairChoices(self._table, self.relation, pairs, self._gate)

    def margins(
        self, columns: Sequence[str], share: Fraction, label: str
    ) -> tuple[release.NoisyCounts | release.NoisyInteractions, ...]:
        """Release the number of rows, exact where it is public, and what one-way tables hold beyond it."""
        alone = [(name,) for name in columns]
        levels = self._levels(alone)
        sensitivity = contingency.margins_squared_sensitivity(self.relation, [levels[name] for name in columns])
        if self.relation is Relation.REPLACE_ONE:
            return (self._public_rows(), *self._release_centred(alone, sensitivity, share, label))
        total, *contrasts = self._release_centred([(), *alone], sensitivity, share, label)
        return (release.NoisyCounts((), (), total.lattice, total.variance, total.values), *contrasts)

    def magnitudes(
        self, centers: dict[str, float], exponents: range, share: Fraction
    ) -> tuple[release.NoisyMagnitudes, ...]:
        """Release, for each column, how far its values lie from a public centre, in powers of two."""
        exact = [self._table.magnitude_counts(name, center, exponents) for name, center in centers.items()]
        released = self._release_counts([(name,) for name in centers], exact, share, "sizes of numeric columns")
        return tuple(
            release.NoisyMagnitudes(name, center, exponents.start, counts.lattice, counts.variance, counts.values)
            for (name, center), counts in zip(centers.items(), released, strict=True)
        )

    @overload
    def outer_products(self, query: FeaturePlan, share: Fraction, label: str) -> release.NoisyFeatureMoments: ...
    @overload
    def outer_products(self, query: MixedPlan, share: Fraction, label: str) -> release.NoisyMixedMoments: ...
    @overload
    def outer_products(self, query: MomentPlan | ResidualPlan, share: Fraction, label: str) -> release.NoisyMoments: ...
    def outer_products(self, query: OuterProducts, share: Fraction, label: str) -> release.NoisyMatrix:
        """Release the second moments of clipped rows, of levels and features of them, or of residuals."""
        if self._table.lattice > 1:
            if not isinstance(query, FeaturePlan | MomentPlan):
                raise MethodError(ONLY_LINEAR)
            query = refine(query, self.schema.nominal_rows)
        rows = query.rows
        rows.check_reach()
        if isinstance(query, FeaturePlan | MixedPlan):
            size = 1 + rows.leading + len(rows.columns)
            self._check_cells(label, [(size * (size + 1) // 2,)])
        if isinstance(query, MixedPlan):
            self._check_levels(query)
        sensitivity = moments_squared_sensitivity(self.relation, query)
        noisy = self._release_symmetric(self._table.outer_products(query), sensitivity, share, label, query)
        ball = (rows.radius_squared, rows.constant, rows.bits)
        if isinstance(query, FeaturePlan):
            scales = query.columns, query.centers, query.reaches
            return release.NoisyFeatureMoments(*scales, query.basis.value, query.degree, *ball, *noisy)
        if isinstance(query, MixedPlan):
            names, scales = (query.levels, query.sizes, query.steps), (query.numbers, query.centers, query.widths)
            return release.NoisyMixedMoments(*names, *scales, query.degrees, *ball, *noisy, query.marked)
        return release.NoisyMoments(rows.columns, rows.centers, rows.spreads, *ball, *noisy)

    def pair_moments(self, query: MixedPairs, share: Fraction, label: str) -> release.NoisyPairMoments:
        """Release the second moments of chosen pairs of columns, of rows that are shrunk for them."""
        if self._table.lattice > 1:
            raise MethodError(ONLY_LINEAR)
        query.rows.check_reach()
        places = query.places()
        sizes = {name: place.stop - place.start for name, place in places.items()}
        shapes = tuple((sizes[x], sizes[y]) for x, y in query.pairs)
        self._check_cells(label, shapes)
        self._check_levels(query.plan)
        sensitivity = pair_moments_squared_sensitivity(self.relation, query)
        variance = self._gate.variance_for(sensitivity, share)
        whole = self._table.outer_products(query)
        exact = np.concatenate([whole[places[x], places[y]].reshape(-1) for x, y in query.pairs])
        event = DiscreteGaussian(label, len(exact), sensitivity, variance)
        noisy = self._gate.add_gaussian(exact, event, query)
        return release.NoisyPairMoments(query.pairs, shapes, query.plan.bits, variance, tuple(noisy.tolist()))

    def ask_questions(self, statistic: Statistic) -> QuestionSession:
        """Return adaptive questions, each charged; a statistic that is useless with noise is refused."""
        self._check_rows()
        reason = statistic.refusal(self.relation)
        if reason is not None:
            raise MethodError(f"{statistic.name} cannot be asked about with noise: {reason}")
        return QuestionSession(self._table, self.relation, statistic, self._gate)

    def ask_gradients(self, rows: MomentPlan) -> GradientQuestions:
        """Return gradient questions: adaptive gradients, each charged to this curator's filter."""
        from dagveil.curator.questions import GradientQuestions  # few methods ask for them

        self._check_rows()
        return GradientQuestions(self._table, self.relation, rows, self._gate)

    def ask_kernels(self, slots: int) -> KernelQuestions:
        """Return kernel questions: kernel questions on levelled rows, each charged to this curator's filter."""
        from dagveil.curator.kernel_questions import KernelQuestions

        self._check_rows()
        return KernelQuestions(self._table, self.relation, slots, self._gate)

    def open_as_published(self, reason: str) -> Table:
        """Hand the rows to a published program, after the ledger knows why its guarantee does not hold."""
        self._check_rows()
        self._gate.write(Unbounded("as published", reason))
        return self._table

    def _release_symmetric(
        self, exact: Integers, sensitivity: Fraction, share: Fraction, label: str, asked: object
    ) -> tuple[Fraction, Fraction, tuple[int, ...]]:
        """Release the upper triangle of a symmetric matrix: variance off the diagonal, twice that on it, values."""
        variance = self._gate.variance_for(sensitivity, share)
        diagonal_variance = self._gate.representable_variance(2 * variance)
        rows, columns = np.triu_indices(exact.shape[0])
        on_diagonal = rows == columns
        event = DiscreteGaussian(label, len(rows), sensitivity, variance)
        parts = ((diagonal_variance, on_diagonal), (variance, ~on_diagonal))
        values = self._gate.add_gaussian(exact[rows, columns], event, asked, *parts)
        return variance, diagonal_variance, tuple(values.tolist())

    def _release_counts(self, names: ColumnSets, exact: Sequence[np.ndarray], share: Fraction, label: str) -> Counts:
        amount = share * self.accounting.total
        if isinstance(self.accounting, PureFilter):
            return self._release_counts_by_laplace(names, exact, amount, label)
        lattice = self._refine_lattice(contingency.counts_squared_sensitivity(self.relation, len(names)), amount)
        sensitivity = contingency.counts_squared_sensitivity(self.relation, len(names), lattice)
        variance = self._gate.variance_for(sensitivity, share)
        flat = _flatten(exact)
        # the records of a person may stand in all cells
        own_cells = min(contingency.changed_cells(self.relation, len(names)), len(flat))
        changed = own_cells if self._table.lattice == 1 else None
        event = DiscreteGaussian(label, len(flat), sensitivity, variance, changed)
        noisy = self._gate.add_gaussian(flat * (lattice // self._table.lattice), event, tuple(names))
        return _cut(names, exact, noisy, lattice, variance)

    def _release_counts_by_laplace(
        self, names: ColumnSets, exact: Sequence[np.ndarray], epsilon: Fraction, label: str
    ) -> Counts:
        lattice = self._table.lattice
        sensitivity = contingency.counts_sensitivity(self.relation, len(names)) * lattice
        scale = self._gate.representable_scale(Fraction(sensitivity) / epsilon)
        flat = _flatten(exact)
        noisy = self._gate.add_laplace(flat, [DiscreteLaplace(label, len(flat), epsilon)], [scale], tuple(names))
        return _cut(names, exact, noisy, lattice, laplace_variance(scale))

    def _refine_lattice(self, squared_sensitivity: Fraction, amount: Fraction) -> int:
        """Return the lattice of a release: fine enough for its noise, and a multiple of the table's own."""
        own = self._table.lattice
        return own * -(-lattice_for(self.accounting, squared_sensitivity, amount) // own)

    def _weighed_rows(self) -> Integers:
        """Return the exact number of rows on the table's lattice."""
        return np.array(self._table.n_rows * self._table.lattice)

    def _check_rows(self) -> None:
        if self._table.lattice > 1:
            raise MethodError(ONLY_LINEAR)

    def _public_rows(self) -> release.NoisyCounts:
        rows = self._gate.release_public(self._table.n_rows, "number of rows")
        return release.NoisyCounts((), (), 1, Fraction(0), (rows,))

    def _levels(self, column_sets: ColumnSets) -> dict[str, int]:
        """Return the levels of these columns, after looking at names and sizes."""
        shapes = zip(column_sets, table_shapes(self.schema, column_sets), strict=True)
        return {name: size for columns, shape in shapes for name, size in zip(columns, shape, strict=True)}

    def _release_centred(self, column_sets: ColumnSets, sensitivity: Fraction, share: Fraction, label: str) -> Centred:
        """Release centred tables, all equally sharp in counts, where the squared sensitivity is theirs."""
        shapes = table_shapes(self.schema, column_sets)
        sizes = [math.prod(shape) for shape in shapes]
        self._check_cells(label, shapes)
        smallest = min(sizes)
        # in units of the smallest table's noise; columns with one level do not move at all
        weighted = sensitivity * smallest**2 or Fraction(1)
        lattice = self._refine_lattice(weighted, share * self.accounting.total)
        least = self._gate.variance_for(weighted * lattice**2, share)
        # every draw has at least its table's share of the least variance
        widen = self._gate.representable_variance
        variances = {size: widen(least * Fraction(size, smallest) ** 2) for size in set(sizes)}
        exact = np.concatenate(self._centred(column_sets, shapes, lattice))
        event = DiscreteGaussian(label, len(exact), weighted * lattice**2, least)
        owners = np.repeat(sizes, sizes)
        parts = [(variances[size], np.flatnonzero(owners == size)) for size in dict.fromkeys(sizes)]
        tables = np.split(self._gate.add_gaussian(exact, event, tuple(column_sets), *parts), np.cumsum(sizes)[:-1])
        return tuple(
            release.NoisyInteractions(columns, shape, lattice, variances[size], tuple(table.tolist()))
            for columns, shape, size, table in zip(column_sets, shapes, sizes, tables, strict=True)
        )

    def _centred(self, column_sets: ColumnSets, shapes: Sequence[tuple[int, ...]], lattice: int) -> list[Integers]:
        """Exact centred tables on the lattice, flat; those of one shape are centred together."""
        asked = [columns for columns in column_sets if columns]
        tables = iter(self._table.counts_many(asked))
        counts = [next(tables) if columns else self._weighed_rows() for columns in column_sets]
        found: dict[int, Integers] = {}
        finer = lattice // self._table.lattice
        for shape in dict.fromkeys(shapes):
            places = [place for place, other in enumerate(shapes) if other == shape]
            stack = finer * contingency.centre_counts(np.stack([counts[place] for place in places]))
            found.update(zip(places, stack.reshape(len(places), -1), strict=True))
        return [found[place] for place in range(len(counts))]

    def _check_levels(self, plan: MixedPlan) -> None:
        if self._levels([(name,) for name in plan.levels]) != plan.levels_by_name:
            raise MethodError("the numbers of levels in a mixed plan are not those of the schema; plan it again")

    def _check_cells(self, label: str, shapes: Sequence[tuple[int, ...]]) -> None:
        cells = sum(map(math.prod, shapes))
        if cells > MAX_RELEASED_CELLS:
            raise BudgetError(
                f"{label}: {len(shapes)} tables have {cells} cells together, the limit is {MAX_RELEASED_CELLS}; "
                "group levels in the schema, or leave columns out"
            )


def _flatten(tables: Sequence[np.ndarray]) -> Integers:
    return np.concatenate([table.reshape(-1) for table in tables]).astype(np.int64)


def _cut(names: ColumnSets, like: Sequence[np.ndarray], noisy: Integers, lattice: int, variance: Fraction) -> Counts:
    """Cut a long row of noisy values into tables of these shapes."""
    parts = np.split(noisy, np.cumsum([table.size for table in like])[:-1])
    return tuple(
        release.NoisyCounts(tuple(columns), table.shape, lattice, variance, tuple(part.tolist()))
        for columns, table, part in zip(names, like, parts, strict=True)
    )

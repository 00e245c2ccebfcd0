"""The curator's doors with a tape behind them: the same code, every call noted."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

from dagveil.audit.interview_doors import AuditedInterview
from dagveil.audit.number_doors import AuditedDescent, AuditedLaboratory
from dagveil.audit.readings import read_releases
from dagveil.audit.tape import Tape
from dagveil.curator import Curator, Interview
from dagveil.curator.descent import Descent
from dagveil.curator.laboratory import Laboratory
from dagveil.data.features import FeaturePlan
from dagveil.data.moments import MomentPlan
from dagveil.data.residuals import ResidualPlan
from dagveil.data.table import Table
from dagveil.privacy.filter import Filter
from dagveil.privacy.relation import Relation
from dagveil.privacy.release import NoisyCounts, NoisyFeatureMoments, NoisyInteractions, NoisyMagnitudes, NoisyMoments
from dagveil.statistics.statistic import Statistic


class WatchedTable:
    """A table that tells the tape whenever rows are read. The schema is public and may be read by anyone."""

    def __init__(self, table: Table, tape: Tape) -> None:
        self._table = table
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        if name != "schema":
            self._tape.touch(name)
        return getattr(self._table, name)


class AuditedCurator(Curator):
    """A curator whose every door is on tape."""

    def __init__(self, table: Table, relation: Relation, accounting: Filter, tape: Tape) -> None:
        super().__init__(cast(Table, WatchedTable(table, tape)), relation, accounting, tape, tape.noise)
        self._tape = tape

    def count_rows(self, share: Fraction) -> NoisyCounts:
        """Release the number of rows."""
        call = super().count_rows
        return self._tape.ask(
            "count_rows", (share,), lambda: call(share), lambda given, tape: read_releases((given,), tape)
        )

    def count_tables(
        self, column_sets: Sequence[tuple[str, ...]], share: Fraction, label: str
    ) -> tuple[NoisyCounts, ...]:
        """Release the tables of counts of several sets of columns."""
        call = super().count_tables
        if not column_sets:
            return ()
        asked = (tuple(column_sets), share, label)
        return self._tape.ask("count_tables", asked, lambda: call(column_sets, share, label), read_releases)

    def interactions(
        self, pairs: Sequence[tuple[str, str]], share: Fraction, label: str
    ) -> tuple[NoisyInteractions, ...]:
        """Release what the tables of pairs of columns hold beyond their margins."""
        call = super().interactions
        return self._tape.ask(
            "interactions", (tuple(pairs), share, label), lambda: call(pairs, share, label), read_releases
        )

    def margins(
        self, columns: Sequence[str], share: Fraction, label: str
    ) -> tuple[NoisyCounts | NoisyInteractions, ...]:
        """Release the number of rows, and what the one-way tables of columns hold beyond it."""
        call = super().margins
        return self._tape.ask(
            "margins", (tuple(columns), share, label), lambda: call(columns, share, label), read_releases
        )

    def magnitudes(self, centers: dict[str, float], exponents: range, share: Fraction) -> tuple[NoisyMagnitudes, ...]:
        """Release how far values lie from public centres."""
        call = super().magnitudes
        asked = (tuple(centers.items()), exponents, share)
        return self._tape.ask("magnitudes", asked, lambda: call(centers, exponents, share), read_releases)

    def moments(self, plan: MomentPlan, share: Fraction, label: str) -> NoisyMoments:
        """Release the second moments of clipped rows."""
        call = super().moments
        return self._tape.ask(
            "moments",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, tape: read_releases((given,), tape),
        )

    def features(self, plan: FeaturePlan, share: Fraction, label: str) -> NoisyFeatureMoments:
        """Release the second moments of public features of clipped columns."""
        call = super().features
        return self._tape.ask(
            "features",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, tape: read_releases((given,), tape),
        )

    def residual_moments(self, plan: ResidualPlan, share: Fraction, label: str) -> NoisyMoments:
        """Release the second moments of residuals of public functions."""
        call = super().residual_moments
        return self._tape.ask(
            "residual_moments",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, tape: read_releases((given,), tape),
        )

    def interview(self, statistic: Statistic) -> Interview:
        """Return an interview on tape, after the curator's own checks."""
        call = super().interview

        def make() -> Interview:
            call(statistic)  # refuses what the curator refuses
            return AuditedInterview(self._table, self.relation, statistic, self._gate, self._tape)

        return self._tape.open("interview", (statistic,), make)

    def descent(self, rows: MomentPlan) -> Descent:
        """Return a descent on tape."""
        return self._tape.open(
            "descent",
            (rows,),
            lambda: AuditedDescent(self._table, self.relation, rows, self.accounting, self._gate, self._tape),
        )

    def laboratory(self, slots: int) -> Laboratory:
        """Return a laboratory on tape."""
        return self._tape.open(
            "laboratory",
            (slots,),
            lambda: AuditedLaboratory(self._table, self.relation, slots, self._gate, self._tape),
        )

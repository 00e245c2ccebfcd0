"""The curator's doors with a recording behind them: the same code, every call noted."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

from dagveil.audit.exact_answers import read_releases
from dagveil.audit.number_doors import AuditedGradients, AuditedKernels
from dagveil.audit.question_doors import AuditedQuestions
from dagveil.audit.recording import Recording
from dagveil.curator import Curator, QuestionSession
from dagveil.curator.gradients import GradientQuestions
from dagveil.curator.kernel_questions import KernelQuestions
from dagveil.data.features import FeaturePlan
from dagveil.data.moments import MomentPlan
from dagveil.data.residuals import ResidualPlan
from dagveil.data.table import Table
from dagveil.privacy.filter import Filter
from dagveil.privacy.relation import Relation
from dagveil.privacy.release import NoisyCounts, NoisyFeatureMoments, NoisyInteractions, NoisyMagnitudes, NoisyMoments
from dagveil.statistics.statistic import Statistic


class WatchedTable:
    """A table that tells the recording whenever rows are read. The schema is public and may be read by anyone."""

    def __init__(self, table: Table, recording: Recording) -> None:
        self._table = table
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        if name != "schema":
            self._recording.touch(name)
        return getattr(self._table, name)


class AuditedCurator(Curator):
    """A curator whose every door is recorded."""

    def __init__(self, table: Table, relation: Relation, accounting: Filter, recording: Recording) -> None:
        super().__init__(cast(Table, WatchedTable(table, recording)), relation, accounting, recording, recording.noise)
        self._recording = recording

    def count_rows(self, share: Fraction) -> NoisyCounts:
        """Release the number of rows."""
        call = super().count_rows
        return self._recording.ask(
            "count_rows", (share,), lambda: call(share), lambda given, recording: read_releases((given,), recording)
        )

    def count_tables(
        self, column_sets: Sequence[tuple[str, ...]], share: Fraction, label: str
    ) -> tuple[NoisyCounts, ...]:
        """Release the tables of counts of several sets of columns."""
        call = super().count_tables
        if not column_sets:
            return ()
        asked = (tuple(column_sets), share, label)
        return self._recording.ask("count_tables", asked, lambda: call(column_sets, share, label), read_releases)

    def interactions(
        self, pairs: Sequence[tuple[str, str]], share: Fraction, label: str
    ) -> tuple[NoisyInteractions, ...]:
        """Release what the tables of pairs of columns hold beyond their margins."""
        call = super().interactions
        return self._recording.ask(
            "interactions", (tuple(pairs), share, label), lambda: call(pairs, share, label), read_releases
        )

    def margins(
        self, columns: Sequence[str], share: Fraction, label: str
    ) -> tuple[NoisyCounts | NoisyInteractions, ...]:
        """Release the number of rows, and what the one-way tables of columns hold beyond it."""
        call = super().margins
        return self._recording.ask(
            "margins", (tuple(columns), share, label), lambda: call(columns, share, label), read_releases
        )

    def magnitudes(self, centers: dict[str, float], exponents: range, share: Fraction) -> tuple[NoisyMagnitudes, ...]:
        """Release how far values lie from public centres."""
        call = super().magnitudes
        asked = (tuple(centers.items()), exponents, share)
        return self._recording.ask("magnitudes", asked, lambda: call(centers, exponents, share), read_releases)

    def moments(self, plan: MomentPlan, share: Fraction, label: str) -> NoisyMoments:
        """Release the second moments of clipped rows."""
        call = super().moments
        return self._recording.ask(
            "moments",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, recording: read_releases((given,), recording),
        )

    def features(self, plan: FeaturePlan, share: Fraction, label: str) -> NoisyFeatureMoments:
        """Release the second moments of public features of clipped columns."""
        call = super().features
        return self._recording.ask(
            "features",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, recording: read_releases((given,), recording),
        )

    def residual_moments(self, plan: ResidualPlan, share: Fraction, label: str) -> NoisyMoments:
        """Release the second moments of residuals of public functions."""
        call = super().residual_moments
        return self._recording.ask(
            "residual_moments",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, recording: read_releases((given,), recording),
        )

    def ask_questions(self, statistic: Statistic) -> QuestionSession:
        """Return a recorded question session, after the curator's own checks."""
        call = super().ask_questions

        def make() -> QuestionSession:
            call(statistic)  # refuses what the curator refuses
            return AuditedQuestions(self._table, self.relation, statistic, self._gate, self._recording)

        return self._recording.open("ask_questions", (statistic,), make)

    def ask_gradients(self, rows: MomentPlan) -> GradientQuestions:
        """Return recorded gradient questions."""
        return self._recording.open(
            "ask_gradients",
            (rows,),
            lambda: AuditedGradients(self._table, self.relation, rows, self.accounting, self._gate, self._recording),
        )

    def ask_kernels(self, slots: int) -> KernelQuestions:
        """Return recorded kernel questions."""
        return self._recording.open(
            "ask_kernels",
            (slots,),
            lambda: AuditedKernels(self._table, self.relation, slots, self._gate, self._recording),
        )

"""The rounds of `measure` for tables of counts.

First every pair that knowledge leaves open, with half of the budget: that pays for all tests of order 0 and 1. What
the rest buys most with is decided from what was released and from public noise scales: three-way tables for joint
tests of order 2 where their noise would leave power, the interesting pairs once more where it would not, or some of
both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from statistics import median

import numpy as np

from dagveil.curator import Curator
from dagveil.curator.curator import MAX_RELEASED_CELLS
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage, independence_from
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import Measured
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian
from dagveil.privacy.filter import tightest_filter
from dagveil.privacy.relation import Relation
from dagveil.privacy.release import NoisyCounts, NoisyInteractions
from dagveil.progress import Progress
from dagveil.search.constraint.skeleton import SkeletonSettings, candidate_sets, find_skeleton
from dagveil.statistics.contingency import counts_squared_sensitivity

SINGLES_SHARE = Fraction(1, 4)
"""Share of the budget for the margins of single columns, which every pair then shares."""

PAIRS_SHARE = Fraction(1, 2)
"""Share of what is left for the first round of pairs."""

SCREEN = 0.2
"""Pairs with a marginal p-value below this are worth measuring again."""

ENOUGH_EFFICIENCY = 0.05
"""Triples are measured at once if noise would leave their tests this share of the information."""

FINE_NOISE = 0.003
"""If pair noise is below this share of the rows, pairs come first and triples get a second chance."""

ENOUGH_POWER = 0.5
"""Triples get that chance if their median power against `POWER_EFFECT` reaches this."""

POWER_EFFECT = 0.1
"""Size of a dependence, in units of a correlation, that a joint test should see."""


class _Rounds:
    """State of one run: releases so far, and the evidence that they carry."""

    def __init__(self, curator: Curator, knowledge: Knowledge, settings: SkeletonSettings, progress: Progress) -> None:
        self.curator = curator
        self.knowledge = knowledge
        self.settings = settings
        self.progress = progress
        self.columns = tuple(curator.schema.columns)
        self.releases: list[NoisyCounts | NoisyInteractions] = []
        self.plan: list[Stage] = []

    def ask(self, sets: Sequence[tuple[str, ...]], share: Fraction, stage: str, why: str) -> None:
        """Measure these tables and note it in the plan."""
        self.progress(f"measuring {stage}", 0, len(sets))
        tables = self.curator.count_tables(sets, share, stage)
        self.releases.extend(tables)
        cells = sum(len(table.values) for table in tables)
        self.plan.append(Stage(stage, len(tables), cells, float(share), tables[0].count_variance ** 0.5, why))
        self.progress(f"measuring {stage}", len(sets), len(sets))

    def ask_margins(self, columns: Sequence[str], share: Fraction, stage: str, why: str) -> None:
        """Measure the number of rows and the margins of these columns, and note it in the plan."""
        self.progress(f"measuring {stage}", 0, len(columns))
        released = self.curator.margins(columns, share, stage)
        self.releases.extend(released)
        cells = sum(len(table.values) for table in released)
        sharpness = released[-1]
        assert isinstance(sharpness, NoisyInteractions)
        self.plan.append(Stage(stage, len(columns), cells, float(share), sharpness.interaction_variance**0.5, why))
        self.progress(f"measuring {stage}", len(columns), len(columns))

    def ask_pairs(self, pairs: Sequence[tuple[str, str]], share: Fraction, stage: str, why: str) -> None:
        """Measure the interactions of these pairs and note it in the plan."""
        self.progress(f"measuring {stage}", 0, len(pairs))
        tables = self.curator.interactions(pairs, share, stage)
        self.releases.extend(tables)
        cells = sum(len(table.values) for table in tables)
        self.plan.append(Stage(stage, len(tables), cells, float(share), tables[0].interaction_variance ** 0.5, why))
        self.progress(f"measuring {stage}", len(pairs), len(pairs))

    def evidence(self) -> PairEvidence:
        """Return tests on everything released so far."""
        evidence = independence_from(self.columns, tuple(self.releases))
        assert isinstance(evidence, PairEvidence)
        return evidence

    def promising_triples(self, evidence: PairEvidence) -> tuple[Questions, list[tuple[str, ...]]]:
        """Return the order-2 questions worth asking jointly, and the three-way tables that they need."""
        first_order = find_skeleton(evidence, replace(self.settings, largest_order=1), self.knowledge)
        candidates = candidate_sets(evidence, self.settings, first_order, self.knowledge, 2)
        triples = {tuple(sorted((end, *given))) for x, y, given in candidates for end in (x, y)}
        names = [tuple(evidence.columns[i] for i in triple) for triple in sorted(triples)]
        return Questions.of(candidates), names

    def worthwhile_pairs(self, evidence: PairEvidence) -> list[tuple[str, str]]:
        """Return the pairs whose marginal p-value is small; all measured ones if there are none."""
        x, y = np.triu_indices(len(evidence.columns), 1)
        questions = Questions(x, y, np.empty((len(x), 0), dtype=np.intp))
        questions = questions.select(evidence.answers(questions))
        small = evidence.test(questions).p_value < SCREEN
        chosen = questions.select(small) if small.any() else questions
        return [(evidence.columns[a], evidence.columns[b]) for a, b in zip(chosen.x, chosen.y, strict=True)]

    def triple_variance(self, n_tables: int, share: Fraction) -> float:
        """Return the variance of a cell if so many triples shared this much, from public facts alone."""
        return float(
            counts_squared_sensitivity(self.curator.relation, n_tables) / (share * self.curator.accounting.total)
        )


def measure_tables(curator: Curator, knowledge: Knowledge, settings: SkeletonSettings, progress: Progress) -> Measured:
    """Release pair tables and what helps most beyond them.

    - `curator`: the door to the rows.
    - `knowledge`: pairs that it excludes are never asked about.
    - `settings`: search constants, used to decide what to measure next.
    - `progress`: told about each round.
    """
    rounds = _Rounds(curator, knowledge, settings, progress)
    pairs = [(a, b) for a, b in combinations(rounds.columns, 2) if not knowledge.excludes(a, b)]
    findings = []
    if skipped := len(rounds.columns) * (len(rounds.columns) - 1) // 2 - len(pairs):
        findings.append(f"{skipped} pairs that background knowledge excludes were not measured.")
    if not pairs:
        return Measured((), (), (*findings, "Background knowledge leaves no pair open, so nothing was measured."))
    covered = [name for name in rounds.columns if any(name in pair for pair in pairs)]
    rounds.ask_margins(covered, SINGLES_SHARE, "single columns", "every pair shares these margins")
    share = 1 - SINGLES_SHARE
    first = share * PAIRS_SHARE
    rounds.ask_pairs(pairs, first, "all pairs", "they answer every question of order 0 and 1")
    rest = share - first
    findings.append(_spend_rest(rounds, rest))
    counted = rounds.releases[0].counts
    rows = curator.schema.nominal_rows or max(1.0, float(counted))
    findings.extend(warn_of_noise(rounds.plan[1].noise_sd, rows))
    return Measured(tuple(rounds.releases), tuple(rounds.plan), tuple(findings))


def warn_of_noise(noise: float, rows: float) -> list[str]:
    """Say so if the noise in a cell of a pair table is large beside the number of rows."""
    if noise <= rows / 20:
        return []
    return [
        f"Noise of {noise:.0f} rows per cell is large beside about {rows:.0f} rows: expect only strong edges. "
        "A larger epsilon, fewer columns or fewer levels would show more."
    ]


def _spend_rest(rounds: _Rounds, rest: Fraction) -> str:
    """Spend the second half of the budget where it helps, and say why."""
    evidence = rounds.evidence()
    questions, triples = rounds.promising_triples(evidence)
    if not triples:
        rounds.ask_pairs(
            rounds.worthwhile_pairs(evidence),
            rest,
            "pairs again",
            "no edge has two columns between its ends to condition on",
        )
        return "No three-way table was measured: no edge left open has two columns between its ends to condition on."
    efficiency, _ = _forecast(evidence, questions, rounds.triple_variance(len(triples), rest), rounds.settings)
    if efficiency >= ENOUGH_EFFICIENCY:
        rounds.ask(triples, rest, "three-way tables", f"their tests keep {efficiency:.0%} of the information")
        return f"{len(triples)} three-way tables were measured for joint tests of order 2."
    if rounds.plan[1].noise_sd / evidence.covariance.n_rows >= FINE_NOISE:
        rounds.ask_pairs(rounds.worthwhile_pairs(evidence), rest, "pairs again", "noise would drown three-way tables")
        return (
            f"{len(triples)} three-way tables were not measured: noise would leave their tests {efficiency:.1%} of the "
            "information. Tests of order 2 use main effects only."
        )
    rounds.ask_pairs(
        rounds.worthwhile_pairs(evidence), rest / 2, "pairs again", "sharper pairs leave fewer triples to ask for"
    )
    evidence = rounds.evidence()
    questions, triples = rounds.promising_triples(evidence)
    if triples:
        _, power = _forecast(evidence, questions, rounds.triple_variance(len(triples), rest / 2), rounds.settings)
        if power >= ENOUGH_POWER:
            rounds.ask(triples, rest / 2, "three-way tables", f"half of their tests have a power of {power:.0%}")
            return f"{len(triples)} three-way tables were measured for joint tests of order 2."
    rounds.ask_pairs(
        rounds.worthwhile_pairs(evidence), rest / 2, "pairs a third time", "noise would drown three-way tables"
    )
    return "No three-way table was measured: noise would leave its tests too little power."


def _forecast(
    evidence: PairEvidence, questions: Questions, variance: float, settings: SkeletonSettings
) -> tuple[float, float]:
    """Return the median efficiency and power of joint tests if three-way cells had this variance."""
    efficiencies, powers = evidence.forecast_joint(questions, variance, POWER_EFFECT, settings.conditional_level)
    return float(np.median(efficiencies)), float(np.median(powers))


QUIET_TRIPLES = 0.1
"""Three-way tables are asked for if noise in a cell, of all sites together, is at most this share of the rows that it
would hold if all cells were alike."""


def pays_for_triples(
    schema: Schema, triples: Sequence[tuple[str, ...]], share: Fraction, sites: Sequence[tuple[Budget, int]]
) -> bool:
    """Tell from public facts whether all three-way tables together would be told apart from noise.

    - `schema`: levels and relation.
    - `triples`: sets of three columns.
    - `share`: share of each site's budget that they would get.
    - `sites`: budget and nominal rows of each.
    """
    if not triples:
        return False
    cells = [math.prod(schema.columns[name].n_levels for name in three) for three in triples]
    if sum(cells) > MAX_RELEASED_CELLS:
        return False
    sensitivity = float(counts_squared_sensitivity(Relation(schema.relation), len(triples)))
    variance = sum(
        sensitivity / float(share * tightest_filter(budget, [DiscreteGaussian]).total) for budget, _ in sites
    )
    rows = sum(rows for _, rows in sites)
    return math.sqrt(variance) <= QUIET_TRIPLES * rows / median(cells)

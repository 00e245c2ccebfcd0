"""One run of `measure` on tables of counts: what it asked for so far, and the evidence that came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from dagveil.curator import Curator
from dagveil.evidence.bundle import Stage, independence_from
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable, add_total, read_tables
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.release import NoisyCounts, NoisyInteractions
from dagveil.progress import Progress
from dagveil.search.constraint.skeleton import Skeleton, SkeletonSettings, candidate_sets, find_skeleton
from dagveil.statistics.contingency import interactions_squared_sensitivity

Pair = tuple[str, str]

SCREEN = 0.2
"""Pairs with a marginal p-value below this are worth measuring again."""


class Rounds:
    """State of one run: releases so far, and the evidence that they carry."""

    def __init__(self, curator: Curator, knowledge: Knowledge, settings: SkeletonSettings, progress: Progress) -> None:
        self.curator = curator
        self.knowledge = knowledge
        self.settings = settings
        self.progress = progress
        self.columns = tuple(curator.schema.columns)
        self.releases: list[NoisyCounts | NoisyInteractions] = []
        self.plan: list[Stage] = []

    def ask_margins(self, columns: Sequence[str], share: Fraction) -> None:
        """Measure the number of rows and the margins of these columns."""
        self.progress("measuring single columns", 0, len(columns))
        released = self.curator.margins(columns, share, "single columns")
        self._note(released, len(columns), share, "single columns", "every pair shares these margins")

    def ask_interactions(self, sets: Sequence[tuple[str, ...]], share: Fraction, stage: str, why: str) -> None:
        """Measure the interactions of these pairs and triples."""
        self.progress(f"measuring {stage}", 0, len(sets))
        self._note(self.curator.interactions(sets, share, stage), len(sets), share, stage, why)

    def _note(
        self, released: Sequence[NoisyCounts | NoisyInteractions], tables: int, share: Fraction, stage: str, why: str
    ) -> None:
        """Keep what was released, and write it into the plan."""
        self.releases.extend(released)
        cells, sharpness = sum(len(table.values) for table in released), released[-1]
        assert isinstance(sharpness, NoisyInteractions)
        self.plan.append(Stage(stage, tables, cells, float(share), sharpness.interaction_variance**0.5, why))
        self.progress(f"measuring {stage}", tables, tables)

    def noise_of(self, sets: Sequence[tuple[str, ...]], share: Fraction) -> float:
        """Return the deviation of noise, in rows, if so much measured these, from public facts alone."""
        levels = {name: column.n_levels for name, column in self.curator.schema.columns.items()}
        squared = interactions_squared_sensitivity(self.curator.relation, sets, levels)
        return math.sqrt(squared / (share * self.curator.accounting.total))

    def margins(self) -> dict[str, NoisyTable]:
        """Return the one-way tables that were released."""
        tables = read_tables(self.releases)
        total = next(table for table in tables if not table.columns)
        return add_total([table for table in tables if len(table.columns) == 1], total)

    def evidence(self) -> PairEvidence:
        """Return tests on everything released so far."""
        evidence = independence_from(self.columns, tuple(self.releases))
        assert isinstance(evidence, PairEvidence)
        return evidence

    def promising_triples(
        self, evidence: PairEvidence, first_order: Skeleton
    ) -> tuple[Questions, list[tuple[str, ...]]]:
        """Return the order-2 questions worth asking jointly, and the three-way tables that they need.

        Triples with a pair that knowledge excludes are left out.
        """
        names = evidence.columns
        found = []
        triples: set[tuple[int, ...]] = set()
        for x, y, given in candidate_sets(evidence, self.settings, first_order, self.knowledge, 2):
            needed = [tuple(sorted((end, *given))) for end in (x, y)]
            if not any(
                self.knowledge.excludes(names[a], names[b]) for three in needed for a, b in combinations(three, 2)
            ):
                found.append((x, y, given))
                triples.update(needed)
        return Questions.of(found), [tuple(names[i] for i in triple) for triple in sorted(triples)]

    def first_skeleton(self, evidence: PairEvidence) -> Skeleton:
        """Return the skeleton of order 1 on what was released so far."""
        return find_skeleton(evidence, replace(self.settings, largest_order=1), self.knowledge)

    def worthwhile_pairs(self, evidence: PairEvidence) -> list[Pair]:
        """Return the pairs whose marginal p-value is small; all measured ones if there are none."""
        x, y = np.triu_indices(len(evidence.columns), 1)
        questions = Questions(x, y, np.empty((len(x), 0), dtype=np.intp))
        questions = questions.select(evidence.answers(questions))
        small = evidence.test(questions).p_value < SCREEN
        chosen = questions.select(small) if small.any() else questions
        return [(evidence.columns[a], evidence.columns[b]) for a, b in zip(chosen.x, chosen.y, strict=True)]

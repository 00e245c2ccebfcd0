"""The rounds of `measure` for tables of counts, and its loop for tables with many pairs.

Half of all pairs of a wide table are independent or depend through others. So pairs are chosen privately, one round
after the other, each for what its table holds beyond a model of what was measured so far. What is left of the budget
goes to three-way interactions where their noise would leave power, and to the pairs that decide arrows.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np

from dagveil.curator import Curator
from dagveil.curator.pair_choices import Expectation
from dagveil.evidence.bundle import Stage, independence_from
from dagveil.evidence.covariance import OneHotCovariance
from dagveil.evidence.implied import implied_blocks
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable, add_total, read_tables
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.release import NoisyCounts, NoisyInteractions
from dagveil.progress import Progress
from dagveil.search.constraint.arrows import unshielded
from dagveil.search.constraint.skeleton import (
    Skeleton,
    SkeletonSettings,
    candidate_sets,
    find_skeleton,
    list_neighbours,
)
from dagveil.statistics.contingency import interactions_squared_sensitivity

Pair = tuple[str, str]

SCREEN = 0.2  # pairs with a marginal p-value below this are worth measuring again


LAST_SHARE = Fraction(45, 100)  # share of what the margins leave for the last round
CHOICE_SHARE = Fraction(45, 100)  # share of what the loop spends on choices; the rest measures what was chosen
ROUNDS = 5  # rounds of the loop: the first spans a forest, the others follow the model
# three-way interactions are measured if their noise, as a share of the rows, is at most this
QUIET_INTERACTIONS = 0.004


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

    @cached_property
    def margins(self) -> dict[str, NoisyTable]:
        """The one-way tables; they are released first, and once."""
        tables = read_tables(self.releases)
        total = next(table for table in tables if not table.columns)
        return add_total([table for table in tables if len(table.columns) == 1], total)

    def evidence(self) -> PairEvidence:
        """Return tests on everything released so far."""
        evidence = independence_from(self.columns, tuple(self.releases), self.curator.schema.pairwise)
        assert isinstance(evidence, PairEvidence)
        return evidence


def promising_triples(
    evidence: PairEvidence, first_order: Skeleton, settings: SkeletonSettings, knowledge: Knowledge
) -> tuple[Questions, list[tuple[str, ...]]]:
    """Return the order-2 questions worth asking jointly, and the three-way tables that they need, if knowledge lets."""
    names = evidence.columns
    found = []
    triples: set[tuple[int, ...]] = set()
    for x, y, given in candidate_sets(evidence, settings, first_order, knowledge, 2):
        needed = [tuple(sorted((end, *given))) for end in (x, y)]
        if not any(knowledge.excludes(names[a], names[b]) for three in needed for a, b in combinations(three, 2)):
            found.append((x, y, given))
            triples.update(needed)
    return Questions.of(found), [tuple(names[i] for i in triple) for triple in sorted(triples)]


def first_skeleton(evidence: PairEvidence, settings: SkeletonSettings, knowledge: Knowledge) -> Skeleton:
    """Return the skeleton of order 1."""
    return find_skeleton(evidence, replace(settings, largest_order=1), knowledge)


def worthwhile_pairs(evidence: PairEvidence) -> list[Pair]:
    """Return the pairs whose marginal p-value is small; all measured ones if there are none."""
    questions = Questions.pairs(len(evidence.columns))
    questions = questions.select(evidence.answers(questions))
    small = evidence.test(questions).p_value < SCREEN
    chosen = questions.select(small) if small.any() else questions
    return [(evidence.columns[a], evidence.columns[b]) for a, b in zip(chosen.x, chosen.y, strict=True)]


def run_loop(rounds: Rounds, pairs: Sequence[Pair], share: Fraction, picks: int) -> list[str]:
    """Choose and measure pairs that knowledge leaves open, and then what decides separations and arrows: findings.

    The margins are measured already; no more pairs are chosen than `picks`.
    """
    choices = rounds.curator.open_pairs(pairs)
    loop = share * (1 - LAST_SHARE)
    measured: list[Pair] = []
    first = min(picks, len({name for pair in pairs for name in pair}) - 1)  # a tree that spans all columns
    paid = 0  # choices that a round was paid for: it may find fewer pairs that close no circle
    for number in range(ROUNDS):
        count = min(first if number == 0 else math.ceil((picks - first) / (ROUNDS - 1)), picks - paid)
        known = set(measured)
        left = [pair for pair in pairs if pair not in known]
        if count < 1 or not left:
            break
        paid += count
        part = loop * Fraction(count, picks)
        expected = _expect(rounds, left, measured)
        rounds.progress("choosing pairs", number, ROUNDS)
        chosen = choices.choose_forest(left, expected, count, part * CHOICE_SHARE, "choices of pairs")
        rounds.ask_interactions(
            chosen, part * (1 - CHOICE_SHARE), "chosen pairs", "they hold more than a model of those before"
        )
        measured += chosen
    told = (
        f"{len(measured)} of {len(pairs)} pairs were chosen privately and measured; the others are not joined: they "
        "seemed independent, or explained by those that were."
    )
    return [told, _spend_last(rounds, pairs, measured, share - loop)]


def _expect(rounds: Rounds, pairs: Sequence[Pair], measured: Sequence[Pair]) -> list[Expectation]:
    """Return what the margins, and a model of what was measured, say of each pair; those of one shape together."""
    margins = [table.counts for table in rounds.margins.values()]
    column = {name: i for i, name in enumerate(rounds.margins)}
    levels = np.array([len(counts) for counts in margins])
    rows = max(float(margins[0].sum()), 1.0)
    contrasts, shares = np.zeros((2, len(levels), levels.max()))
    for i, counts in enumerate(margins):
        contrasts[i, : len(counts)], shares[i, : len(counts)] = counts - counts.mean(), counts / rows
    spread = np.sqrt(np.maximum(1.0 - (np.clip(shares, 0.0, 1.0) ** 2).sum(axis=1), 0.0))
    place = np.full(len(levels), -1)  # among the columns that were measured
    if measured:
        evidence = rounds.evidence()
        c = evidence.covariance
        place[[column[name] for name in evidence.columns]] = np.arange(len(evidence.columns))
        # blocks of other pairs are filled in by one model; another first column gives another one, and which one
        # depends on what was released only
        models = [c.blocks, implied_blocks(evidence, len(measured) % len(c.columns))]
        lift = _lift(c)
    x, y = np.array([(column[first], column[second]) for first, second in pairs], dtype=np.intp).T
    slack = math.sqrt(rows) * spread[x] * spread[y]
    known = np.minimum(place[x], place[y]) >= 0
    kinds = np.stack([known, levels[x], levels[y]])
    expected = []
    for kind in np.unique(kinds, axis=1).T:
        places = np.flatnonzero((kinds == kind[:, None]).all(axis=0))
        first, second = x[places], y[places]
        a, b = levels[first[0]], levels[second[0]]
        centre = contrasts[first, :a, None] * contrasts[second, None, :b] / rows
        moves: tuple[np.ndarray, ...] = ()
        if known[places[0]]:
            at = place[first], place[second]
            up, down = lift[at[0], :a], lift[at[1], :b].transpose(0, 2, 1)
            moves = tuple(rows * up @ model[at] @ down for model in models)
        expected.append(Expectation(places.tolist(), centre, moves, slack[places]))
    return expected


def _lift(c: OneHotCovariance) -> np.ndarray:
    """Return the matrices from whitened directions of columns to their declared levels; merged ones share alike."""
    d, m = c.shift.shape
    inner = np.zeros((d, m + 1, m))
    inner[:, :m] = c.root
    inner[np.arange(d), c.size] = -c.root.sum(axis=1)
    lift = np.zeros((d, max(map(len, c.groups)), m))
    for i, groups in enumerate(c.groups):
        kept = groups >= 0
        sizes = np.maximum(np.bincount(groups[kept], minlength=m + 1), 1)
        lift[i, : len(groups)][kept] = (inner[i] / sizes[:, None])[groups[kept]]
    return lift


def find_open_ends(names: tuple[str, ...], skeleton: Skeleton) -> set[frozenset[str]]:
    """Return the pairs x, y of which x – z – y says something if they are measured: those not joined themselves."""
    neighbours = [set(near) for near in list_neighbours(skeleton.adjacency)]
    return {frozenset((names[x], names[y])) for x, _, y in unshielded(neighbours)}


def _spend_last(rounds: Rounds, pairs: Sequence[Pair], measured: list[Pair], share: Fraction) -> str:
    """Spend the last part of the budget on what decides separations and arrows, and say why."""
    evidence = rounds.evidence()
    names, skeleton = evidence.columns, first_skeleton(evidence, rounds.settings, rounds.knowledge)
    _, triples = promising_triples(evidence, skeleton, rounds.settings, rounds.knowledge)
    known = set(measured)
    left = {frozenset(pair): pair for pair in pairs if pair not in known}
    ends = find_open_ends(names, skeleton)
    inside = {frozenset(pair) for triple in triples for pair in combinations(triple, 2)}
    needed = [left[pair] for pair in left if pair in ends | inside]
    if triples and rounds.noise_of([*needed, *triples], share) <= QUIET_INTERACTIONS * evidence.covariance.n_rows:
        why = "joint tests of order 2, and pairs that decide arrows"
        rounds.ask_interactions([*needed, *triples], share, "three-way interactions", why)
        return f"{len(triples)} three-way interactions were measured for joint tests of order 2."
    arrows = [left[pair] for pair in left if pair in ends]
    edges = {frozenset((names[x], names[y])) for x, y in skeleton.edges()}
    again = [pair for pair in pairs if frozenset(pair) in edges]
    rounds.ask_interactions(
        [*arrows, *again] or measured, share, "edges again", "edges once more, and pairs that decide arrows"
    )
    if triples:
        return "No three-way table was measured: noise would leave its tests too little power."
    return "No three-way table was measured: no edge left open has two columns between its ends to condition on."

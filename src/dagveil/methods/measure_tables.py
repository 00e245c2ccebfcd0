"""The rounds of `measure` for tables of counts.

First every pair that knowledge leaves open, with half of the budget: that pays for all tests of order 0 and 1. What
the rest buys most with is decided from what was released and from public noise scales: three-way tables for joint
tests of order 2 where their noise would leave power, the interesting pairs once more where it would not, or some of
both.
"""

import enum
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from statistics import fmean, median

import numpy as np

from dagveil.curator import Curator
from dagveil.curator.curator import MAX_RELEASED_CELLS
from dagveil.data.schema import Schema
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure_loop
from dagveil.methods.measure_loop import CHOICE_SHARE, LAST_SHARE, Rounds, worthwhile_pairs
from dagveil.methods.method import Measured
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, ExponentialChoice, Filter, tightest_filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.skeleton import SkeletonSettings
from dagveil.statistics.contingency import counts_squared_sensitivity

SINGLES_SHARE = Fraction(1, 4)  # share of the budget for the margins of single columns, which every pair then shares
PAIRS_SHARE = Fraction(1, 2)  # share of what is left for the first round of pairs
ENOUGH_EFFICIENCY = 0.05  # triples are measured at once if noise would leave their tests this share of the information
FINE_NOISE = 0.003  # if pair noise is below this share of the rows, pairs come first and triples get a second chance
ENOUGH_POWER = 0.5  # triples get that chance if their median power against `POWER_EFFECT` reaches this
POWER_EFFECT = 0.1  # size of a dependence, in units of a correlation, that a joint test should see
# where choices blur by up to so much: pairs that the loop chooses per column, and how many there must be for each of
# them. In a small table nearly all pairs may matter, and the finer the noise, the less choosing saves.
PICKS = ((0.01, 3.0, 5), (0.1, 2.2, 2), (math.inf, 1.0, 2))
CLEAR_CHOICES = 0.001  # where choices blur by no more than this, all pairs are measured: noise is fine enough for that
QUIET_TRIPLES = 0.1
"""Three-way tables are asked for if noise in a cell, of all sites together, is at most this share of the rows that it
would hold if all cells were alike."""


class Plan(enum.Enum):
    """What is released about columns with levels."""

    # the joint table where it has less noise; otherwise all pairs where choices would cost more than they save
    AUTO = "auto"
    JOINT = "joint"  # the table of all columns, with Laplace noise
    PAIRS = "pairs"  # margins, interactions of all pairs, and then what looks worthwhile, with Gaussian noise
    LOOP = "loop"  # margins, and interactions of pairs that are chosen privately, one round after the other


def count_picks(schema: Schema, accounting: Filter, pairs: int, rows: float) -> tuple[int, bool]:
    """Return how many of so many pairs the loop would choose, and whether that is better than to measure all of them.

    From public facts, and the number of rows that is public or was released.
    """
    columns = [column.n_levels for column in schema.columns.values()]
    d, spread = len(columns), fmean(1 - 1 / levels for levels in columns)
    each = (1 - SINGLES_SHARE) * (1 - LAST_SHARE) * CHOICE_SHARE * accounting.total / math.ceil(2.2 * d)
    epsilon = float(epsilon_for(accounting, each, ExponentialChoice))
    # by how much of a correlation the best of all pairs is blurred, roughly
    blur = math.log(d * (d - 1) / 2) * spread * 2 / epsilon / max(1.0, rows)
    per_column, fewest = next((picks, fewest) for most, picks, fewest in PICKS if blur <= most)
    picks = min(math.ceil(per_column * d), pairs)
    return picks, blur > CLEAR_CHOICES and picks * fewest <= pairs


def measure_tables(
    curator: Curator, knowledge: Knowledge, settings: SkeletonSettings, progress: Progress, plan: Plan = Plan.AUTO
) -> Measured:
    """Release tables of pairs, all or chosen ones, and what helps most beyond them, as a search with these settings.

    Pairs that knowledge excludes are never asked about.
    """
    rounds = Rounds(curator, knowledge, settings, progress)
    pairs = [(a, b) for a, b in combinations(rounds.columns, 2) if not knowledge.excludes(a, b)]
    findings = []
    if skipped := len(rounds.columns) * (len(rounds.columns) - 1) // 2 - len(pairs):
        findings.append(f"{skipped} pairs that background knowledge excludes were not measured.")
    if not pairs:
        return Measured((), (), (*findings, "Background knowledge leaves no pair open, so nothing was measured."))
    covered = [name for name in rounds.columns if any(name in pair for pair in pairs)]
    rounds.ask_margins(covered, SINGLES_SHARE)
    share = 1 - SINGLES_SHARE
    picks, saves = count_picks(curator.schema, curator.accounting, len(pairs), float(rounds.releases[0].counts))
    if plan is Plan.LOOP or (plan is Plan.AUTO and saves):
        findings += measure_loop.run_loop(rounds, pairs, share, picks)
    else:
        first = share * PAIRS_SHARE
        rounds.ask_interactions(pairs, first, "all pairs", "they answer every question of order 0 and 1")
        findings.append(_spend_rest(rounds, share - first))
    rows = curator.schema.nominal_rows or max(1.0, float(rounds.releases[0].counts))
    findings += warn_of_noise(rounds.plan[1].noise_sd, rows)
    return Measured(tuple(rounds.releases), tuple(rounds.plan), tuple(findings))


def warn_of_noise(noise: float, rows: float) -> list[str]:
    """Say so if the noise in a cell of a pair table is large beside the number of rows."""
    told = (
        f"Noise of {noise:.0f} rows per cell is large beside about {rows:.0f} rows: expect only strong edges. "
        "A larger epsilon, fewer columns or fewer levels would show more."
    )
    return [told] if noise > rows / 20 else []


def _spend_rest(rounds: Rounds, rest: Fraction) -> str:
    """Spend the second half of the budget where it helps, and say why."""
    evidence = rounds.evidence()
    pairs = worthwhile_pairs(evidence)
    questions, triples = _ask_triples(rounds, evidence)
    if not triples:
        why = "no edge has two columns between its ends to condition on"
        rounds.ask_interactions(pairs, rest, "pairs again", why)
        return "No three-way table was measured: no edge left open has two columns between its ends to condition on."
    efficiency, _ = _forecast(evidence, questions, rounds.noise_of(triples, rest) ** 2, rounds.settings)
    measured = "{} three-way tables were measured for joint tests of order 2."
    if efficiency >= ENOUGH_EFFICIENCY:
        why = f"their tests keep {efficiency:.0%} of the information"
        rounds.ask_interactions(triples, rest, "three-way tables", why)
        return measured.format(len(triples))
    if rounds.plan[1].noise_sd / evidence.covariance.n_rows >= FINE_NOISE:
        rounds.ask_interactions(pairs, rest, "pairs again", "noise would drown three-way tables")
        return (
            f"{len(triples)} three-way tables were not measured: noise would leave their tests {efficiency:.1%} of the "
            "information. Tests of order 2 use main effects only."
        )
    rounds.ask_interactions(pairs, rest / 2, "pairs again", "sharper pairs leave fewer triples to ask for")
    evidence = rounds.evidence()
    questions, triples = _ask_triples(rounds, evidence)
    if triples:
        _, power = _forecast(evidence, questions, rounds.noise_of(triples, rest / 2) ** 2, rounds.settings)
        if power >= ENOUGH_POWER:
            why = f"half of their tests have a power of {power:.0%}"
            rounds.ask_interactions(triples, rest / 2, "three-way tables", why)
            return measured.format(len(triples))
    pairs = worthwhile_pairs(evidence)
    rounds.ask_interactions(pairs, rest / 2, "pairs a third time", "noise would drown three-way tables")
    return "No three-way table was measured: noise would leave its tests too little power."


def _ask_triples(rounds: Rounds, evidence: PairEvidence) -> tuple[Questions, list[tuple[str, ...]]]:
    first = measure_loop.first_skeleton(evidence, rounds.settings, rounds.knowledge)
    return measure_loop.promising_triples(evidence, first, rounds.settings, rounds.knowledge)


def _forecast(
    evidence: PairEvidence, questions: Questions, variance: float, settings: SkeletonSettings
) -> tuple[float, float]:
    """Return the median efficiency and power of joint tests if three-way cells had this variance."""
    efficiencies, powers = evidence.forecast_joint(questions, variance, POWER_EFFECT, settings.conditional_level)
    return float(np.median(efficiencies)), float(np.median(powers))


def pays_for_triples(
    schema: Schema, triples: Sequence[tuple[str, ...]], share: Fraction, sites: Sequence[tuple[Budget, int]]
) -> bool:
    """Tell from public facts whether three-way tables would be told apart from noise with this share of each budget."""
    cells = [math.prod(schema.columns[name].n_levels for name in three) for three in triples]
    if not cells or sum(cells) > MAX_RELEASED_CELLS:
        return False
    sensitivity = float(counts_squared_sensitivity(Relation(schema.relation), len(triples)))
    prices = [float(share * tightest_filter(budget, [DiscreteGaussian]).total) for budget, _ in sites]
    variance = sum(sensitivity / price for price in prices)
    rows = sum(rows for _, rows in sites)
    return math.sqrt(variance) <= QUIET_TRIPLES * rows / median(cells)

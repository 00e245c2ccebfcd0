"""A second round of a study: what it asks follows from the released sum of the first, so choosing costs nothing.

Both rounds together keep the budget that was agreed on: shares of mu squared add up (docs/proofs/custodians.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace

from dagveil._version import __version__
from dagveil.errors import EvidenceError, MethodError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.methods.measure import ROUND_SEARCH
from dagveil.methods.measure_loop import first_skeleton, promising_triples, worthwhile_pairs
from dagveil.methods.measure_tables import PAIRS_SHARE, SINGLES_SHARE
from dagveil.plans.plan_file import (
    AskInteractions,
    MeasurementPlan,
    PlannedSite,
    check_plan,
    check_same_questions,
    load_plan,
)
from dagveil.privacy.budget import Budget, Relation, epsilon_of_mu_squared, mu_squared_of
from dagveil.runs.result import now
from dagveil.runs.run import schema_knowledge
from dagveil.statistics.contingency import interactions_squared_sensitivity

FIRST_SHARE = SINGLES_SHARE + (1 - SINGLES_SHARE) * PAIRS_SHARE
"""Share of the budget, as mu squared, for margins and all pairs; the second round has the rest."""

QUIET_SUM = 0.0015
"""Three-way interactions are asked for if the noise of their sum, as a share of the rows, is at most this."""

DIGITS = 10**6  # epsilons of rounds are whole parts of this


def split_budgets(sites: Sequence[PlannedSite]) -> tuple[tuple[PlannedSite, ...], tuple[PlannedSite, ...]]:
    """Return the sites with the budgets of each round; both together cost no more than the whole budget."""
    first: list[PlannedSite] = []
    second: list[PlannedSite] = []
    for site in sites:
        if not site.delta:
            raise MethodError(
                f"two rounds share a budget by Gaussian accounting, which needs a delta; site {site.name!r} has 0"
            )
        whole = mu_squared_of(site.budget)
        for found, room in ((first, FIRST_SHARE * whole), (second, (1 - FIRST_SHARE) * whole)):
            steps = math.floor(epsilon_of_mu_squared(room, site.delta) * DIGITS)
            while steps > 0 and mu_squared_of(Budget(Fraction(steps, DIGITS), site.delta)) > room:
                steps -= 1
            if steps <= 0:
                raise MethodError(f"{site.budget.words} is too little for two rounds; plan one")
            found.append(replace(site, epsilon=Fraction(steps, DIGITS)))
    return tuple(first), tuple(second)


def plan_second_round(plan: MeasurementPlan | str | Path, combined: Evidence | str | Path) -> MeasurementPlan:
    """Plan the second round of a study from the sum of its first: post-processing, so that choosing costs nothing.

    Parameters
    ----------
    plan
        That of the first round, made with two rounds; or its path.
    combined
        What `combine_evidence` made of the first round, or its path. Sites without evidence in it have no second round.
    """
    plan = plan if isinstance(plan, MeasurementPlan) else load_plan(plan)
    combined = combined if isinstance(combined, Evidence) else load_evidence(combined)
    if not plan.second:
        raise MethodError("the plan leaves nothing for a second round; plan the first with two rounds (--rounds 2)")
    if combined.study is None or combined.study.plan != plan.digest():
        raise EvidenceError(
            "this evidence does not follow this plan, so it is no first round of it; give the plan's own"
        )
    check_same_questions(combined.schema, plan.schema)
    taking_part = {part.site for part in combined.parts}
    tests = combined.independence()
    assert isinstance(tests, PairEvidence)  # a first round has margins and pairs
    sites = tuple(site for site in plan.second if site.name in taking_part)
    made = replace(
        plan,
        software=__version__,
        created=now(),
        sites=sites,
        asks=(_choose(plan, tests, sites),),
        second=(),
        after=plan.digest(),
    )
    check_plan(made)
    return made


def _choose(plan: MeasurementPlan, tests: PairEvidence, sites: Sequence[PlannedSite]) -> AskInteractions:
    """Choose what the second round asks: three-way interactions where noise leaves power, or pairs again."""
    knowledge = schema_knowledge(plan.schema).within(tests.columns)
    skeleton = first_skeleton(tests, ROUND_SEARCH, knowledge)
    _, triples = promising_triples(tests, skeleton, ROUND_SEARCH, knowledge)
    levels = {name: column.n_levels for name, column in plan.schema.columns.items()}
    squared = interactions_squared_sensitivity(Relation(plan.schema.relation), triples, levels)
    noise = math.sqrt(sum(squared / mu_squared_of(site.budget) for site in sites))
    if triples and noise <= QUIET_SUM * tests.covariance.n_rows:
        why = "the first round leaves these questions of order 2 open"
        return AskInteractions("three-way interactions", Fraction(1), why, tuple(triples))
    why = "they depend on each other in the first round, or may"
    return AskInteractions("pairs again", Fraction(1), why, tuple(worthwhile_pairs(tests)))

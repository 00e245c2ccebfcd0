"""Custodians that differ: shared columns of different plans, the comparison of sites, and the site as a column."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from dagveil.data.column import Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError, SchemaError
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.evidence.moments import covariance_from_moments
from dagveil.graphs.cpdag import Dag
from dagveil.plans.combine import combine_evidence, compare_sites
from dagveil.plans.plan_file import MeasurementPlan
from dagveil.plans.planning import TableRule, plan_measurement, plan_second_round
from dagveil.plans.shared_columns import share_columns, stack_releases
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import check_receipt
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, NoisyMoments
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

ROWS = 6000
Rows = dict[str, NDArray[Any]]
LEVELS = Categorical(("low", "mid", "high"), "low")
CHAIN = tuple(f"c{k}" for k in range(8))
FEW = ("a", "b", "c")


def levels_schema(names: tuple[str, ...], **facts: Any) -> Schema:
    fields = {"dataset": "study", "columns": dict.fromkeys(names, LEVELS), "reviewed": True, "nominal_rows": ROWS}
    return Schema(**fields | facts)


def numbers_schema(names: tuple[str, ...]) -> Schema:
    columns = {name: Numeric(bounds=(-9.0, 9.0), center=0.0, spread=1.0) for name in names}
    return Schema(dataset="study", columns=columns, reviewed=True, nominal_rows=ROWS)


def draw_chain(names: tuple[str, ...], seed: int, changed: str | None = None) -> Rows:
    """Draw a chain of columns; one of them may hang on the one before it in another way."""
    rng = np.random.default_rng(seed)
    found: Rows = {}
    before = rng.integers(0, 3, ROWS)
    for name in names:
        kept = (before + 1) % 3 if name == changed else before
        before = np.where(rng.random(ROWS) < 0.6, kept, rng.choice(3, ROWS, p=[0.5, 0.3, 0.2]))
        found[name] = before.astype(np.uint8)
    return found


def follow(plan: MeasurementPlan, site: str, rows: Rows, seed: int) -> Evidence:
    own = replace(plan.schema, dataset=f"table of {site}", nominal_rows=ROWS)
    numeric = isinstance(next(iter(own.columns.values())), Numeric)
    table = MemoryTable.from_source(rows, own) if numeric else MemoryTable.from_codes(rows, own)
    return measure_planned(table, plan, site, schema=own, noise=NoiseKind.SEEDED, seed=seed, ledger=None)


def measure(names: tuple[str, ...], site: str, seed: int, changed: str | None = None, **plan: Any) -> Evidence:
    """Let a site follow a plan that only it follows."""
    schema = plan.pop("schema", levels_schema(names))
    made = plan_measurement(schema, 4, sites={site: ROWS}, **{"tables": TableRule.PAIRS} | plan)
    return follow(made, site, draw_chain(tuple(schema.columns), seed, changed), seed)


def released(evidence: Evidence) -> dict[tuple[str, ...], NoisyCounts | NoisyInteractions]:
    return {
        release.columns: release
        for release in evidence.releases
        if isinstance(release, NoisyCounts | NoisyInteractions)
    }


@pytest.fixture(scope="module")
def north() -> Evidence:
    return measure((*CHAIN, "income"), "north", 1)


@pytest.fixture(scope="module")
def south() -> Evidence:
    return measure((*reversed(CHAIN), "ward"), "south", 2)


class TestSharedColumns:
    def test_a_restriction_is_what_the_site_released_about_these_columns(
        self, north: Evidence, south: Evidence
    ) -> None:
        shared, _ = share_columns([north, south])
        for own, kept in zip((north, south), shared, strict=True):
            told = released(own)
            assert tuple(kept.schema.columns) == CHAIN
            assert len(kept.releases) == 1 + 8 + 28
            for columns, release in released(kept).items():
                turned = told.get(columns) or told[columns[::-1]]
                counts = turned.counts if turned.columns == columns else turned.counts.T
                assert np.array_equal(release.counts, counts)
                assert release.variance == turned.variance

    def test_their_sum_is_searched_and_says_what_was_left_out(self, north: Evidence, south: Evidence) -> None:
        combined = evidence_from_json(combine_evidence([north, south], shared_columns=True).to_json())
        assert any("left out: income (not at south), ward (not at north)" in line for line in combined.findings)
        assert tuple(combined.schema.columns) == CHAIN
        assert combined.schema.nominal_rows == 2 * ROWS
        assert [part.receipt for part in combined.parts] == [north.receipt, south.receipt]
        assert combined.table("c0", "c1").counts == pytest.approx(
            north.table("c0", "c1").counts + south.table("c0", "c1").counts
        )
        graph = search_evidence(combined, SearchSettings(redraws=0)).graph.cpdag
        assert graph.skeleton() == {frozenset(pair) for pair in pairwise(CHAIN)}

    def test_a_joint_table_is_summed_and_its_noise_with_it(self) -> None:
        one, other = measure((*FEW, "d"), "north", 1), measure(FEW, "south", 2)
        (joint,) = one.releases
        kept = share_columns([one, other])[0][0].releases[0]
        assert isinstance(joint, NoisyCounts)
        assert isinstance(kept, NoisyCounts)
        assert np.array_equal(kept.counts, joint.counts.sum(axis=3))
        assert kept.variance == 3 * joint.variance
        combined = combine_evidence([one, other], shared_columns=True)
        assert combined.table("a", "b").counts == pytest.approx(
            one.table("a", "b").counts + other.table("a", "b").counts
        )

    def test_moments_keep_rows_and_columns_in_common_units(self) -> None:
        rng = np.random.default_rng(3)
        sites = []
        for seed, (site, names) in enumerate({"north": ("x", "y", "u", "v", "w"), "south": ("y", "x")}.items()):
            made = plan_measurement(numbers_schema(names), 10, sites={site: ROWS})
            base = rng.normal(size=ROWS)
            numbers = {name: base + rng.normal(size=ROWS) for name in names}
            sites.append(follow(made, site, numbers, seed))
        shared, _ = share_columns(sites)
        moments = [item.releases[0] for item in shared]
        assert all(isinstance(release, NoisyMoments) and release.columns == ("x", "y") for release in moments)
        for own, release in zip(sites, moments, strict=True):
            assert isinstance(release, NoisyMoments)
            assert isinstance(own.releases[0], NoisyMoments)
            before, after = covariance_from_moments(own.releases[0]), covariance_from_moments(release)
            place = [before.columns.index(name) for name in ("x", "y")]
            assert after.matrix == pytest.approx(before.matrix[np.ix_(place, place)], rel=1e-6)
            assert after.n_rows == pytest.approx(before.n_rows)
        combined = combine_evidence(sites, shared_columns=True)
        rows = [covariance_from_moments(release).n_rows for release in moments]  # type: ignore[arg-type]
        sum_ = covariance_from_moments(combined.releases[0])  # type: ignore[arg-type]
        assert sum_.n_rows == pytest.approx(sum(rows))
        assert combined.findings[-1].startswith("What was released shows no difference")

    def test_questions_that_one_site_was_not_asked_are_left_out(self, south: Evidence) -> None:
        more = measure(CHAIN, "north", 1, tables=TableRule.TRIPLES)
        combined = combine_evidence([more, south], shared_columns=True)
        assert max(len(columns) for columns in released(combined)) == 2
        assert any("tables of 56 sets of shared columns" in line for line in combined.findings)

    def test_a_column_that_is_declared_otherwise_is_not_shared(self, north: Evidence) -> None:
        columns = dict.fromkeys(CHAIN, LEVELS) | {"c7": Categorical(("low", "high"), "low")}
        rows = draw_chain(CHAIN, 4)
        rows["c7"] = np.minimum(rows["c7"], 1)
        made = plan_measurement(levels_schema(CHAIN, columns=columns), 4, sites={"west": ROWS}, tables=TableRule.PAIRS)
        combined = combine_evidence([north, follow(made, "west", rows, 4)], shared_columns=True)
        assert tuple(combined.schema.columns) == CHAIN[:7]
        assert any("c7 (declared otherwise at some site)" in line for line in combined.findings)

    def test_knowledge_about_shared_columns_must_agree(self, north: Evidence) -> None:
        def other(**facts: Any) -> Evidence:
            return measure(CHAIN, "west", 4, schema=levels_schema((*CHAIN, "age"), **facts))

        kept = combine_evidence([north, other(tiers=(("age",),), forbidden=(("age", "c0"),))], shared_columns=True)
        assert (kept.schema.tiers, kept.schema.forbidden) == ((), ())
        with pytest.raises(SchemaError, match="differs in forbidden"):
            combine_evidence([north, other(forbidden=(("c1", "c0"),))], shared_columns=True)
        with pytest.raises(SchemaError, match="differs in relation"):
            combine_evidence([north, other(relation="replace-one")], shared_columns=True)

    def test_what_has_nothing_in_common_is_refused(self, north: Evidence, south: Evidence) -> None:
        with pytest.raises(EvidenceError, match=r"follows another plan.*\(--shared-columns\)"):
            combine_evidence([north, south])
        with pytest.raises(EvidenceError, match="share 1 columns that they declare alike, and no question about two"):
            combine_evidence([north, measure(("c0", *(f"x{k}" for k in range(8))), "west", 3)], shared_columns=True)
        with pytest.raises(EvidenceError, match="share 3 columns that they declare alike, and no question about two"):
            combine_evidence([north, measure(CHAIN[:3], "west", 3)], shared_columns=True)  # a joint table
        with pytest.raises(EvidenceError, match="'north' is given twice"):
            combine_evidence([north, north], shared_columns=True)
        changed = replace(south, releases=(replace(south.releases[0], values=(1,)), *south.releases[1:]))
        with pytest.raises(EvidenceError, match="changed after its release"):
            combine_evidence([north, changed], shared_columns=True)

    def test_features_cannot_be_restricted(self) -> None:
        rng = np.random.default_rng(1)
        sites = []
        for site, names in {"north": ("x", "y"), "south": ("x", "y", "z")}.items():
            made = plan_measurement(numbers_schema(names), 10, method="measure-features", sites={site: ROWS})
            sites.append(follow(made, site, {name: rng.normal(size=ROWS) for name in names}, 1))
        with pytest.raises(EvidenceError, match="cannot be restricted"):
            combine_evidence(sites, shared_columns=True)

    def test_a_second_round_goes_with_its_first(self) -> None:
        sites = {"north": ROWS, "south": ROWS}
        made = plan_measurement(levels_schema(CHAIN), 4, sites=sites, rounds=2)
        first = [follow(made, site, draw_chain(CHAIN, k), k) for k, site in enumerate(sites)]
        planned = plan_second_round(made, combine_evidence(first))
        second = [follow(planned, site, draw_chain(CHAIN, k), 10 + k) for k, site in enumerate(sites)]
        with pytest.raises(EvidenceError, match="add the rounds of each plan first"):
            combine_evidence([*first, *second], shared_columns=True)
        with pytest.raises(EvidenceError, match="no margins to compare"):
            compare_sites(second)
        with pytest.raises(SchemaError, match="only one of the two has site"):
            plan_second_round(made, combine_evidence(first, site_column="site"))
        both = combine_evidence([*first[::-1], *second], site_column="site")
        assert evidence_from_json(both.to_json()) == both
        assert both.schema.columns.keys() == {"site", *CHAIN}
        graph = search_evidence(both, SearchSettings(redraws=0)).graph.cpdag
        assert not any("site" in pair for pair in graph.skeleton())


def test_a_receipt_of_sites_with_other_deltas_states_the_total_of_its_promise() -> None:
    """The total of the site with the largest epsilon alone was up to nine times too small."""
    plans = {"loud": ("0.999", "1e-2", CHAIN), "strict": ("1", "1e-9", (*CHAIN, "q"))}
    sites = []
    for site, (epsilon, delta, names) in plans.items():
        asked = {"sites": {site: ROWS}, "tables": TableRule.PAIRS}
        plan = plan_measurement(levels_schema(names), epsilon, delta, **asked)
        sites.append(follow(plan, site, draw_chain(names, 8), 8))
    receipt = combine_evidence(sites, shared_columns=True).receipt
    assert receipt is not None
    assert (Fraction(receipt.epsilon), Fraction(receipt.delta)) == (1, Fraction("0.01"))
    parts = [site.receipt for site in sites if site.receipt is not None]
    assert Fraction(receipt.accounting_total) >= max(Fraction(part.accounting_total) for part in parts)
    check_receipt(receipt)


def test_two_rounds_of_one_site_are_combined_further() -> None:
    plan = plan_measurement(levels_schema(CHAIN), 4, sites={"one": ROWS}, rounds=2)
    first = follow(plan, "one", draw_chain(CHAIN, 1), 1)
    second = follow(plan_second_round(plan, first), "one", draw_chain(CHAIN, 1), 51)
    both = combine_evidence([first, second])
    other = measure((*CHAIN, "q"), "other", 9)
    combined = combine_evidence([evidence_from_json(both.to_json()), other], shared_columns=True)
    assert {part.site for part in combined.parts} == {"one", "other"}


def by_one_plan(changed: str | None, names: tuple[str, ...] = CHAIN, **plan: Any) -> list[Evidence]:
    """Let three sites follow one plan; at the last one a column may hang on the one before it in another way."""
    sites = dict.fromkeys(("north", "south", "west"), ROWS)
    made = plan_measurement(levels_schema(names), 4, sites=sites, **{"tables": TableRule.PAIRS} | plan)
    return [
        follow(made, site, draw_chain(names, 20 + k, changed if site == "west" else None), k)
        for k, site in enumerate(sites)
    ]


@pytest.fixture(scope="module")
def shifted() -> list[Evidence]:
    return by_one_plan("c3")


class TestAgreement:
    def test_sites_of_one_law_agree(self) -> None:
        sites = by_one_plan(None)
        assert combine_evidence(sites).findings[-1].startswith("What was released shows no difference")
        assert compare_sites(sites).differing_columns == ()
        assert compare_sites(sites).differing_pairs == ()

    def test_what_differs_is_named(self, shifted: list[Evidence]) -> None:
        found = compare_sites(shifted)
        assert "c3" in found.differing_columns
        assert not {"c0", "c1", "c2"} & set(found.differing_columns)
        assert ("c2", "c3") in found.differing_pairs
        assert all({"c0", "c1", "c2"} & set(pair) and set(pair) - {"c0", "c1", "c2"} for pair in found.differing_pairs)
        told = combine_evidence(shifted).findings[-1]
        assert told.startswith("The sites differ beyond noise and chance (5 %, by Holm's procedure).")
        assert "c2 – c3" in told

    def test_a_site_is_not_compared_with_itself(self, shifted: list[Evidence]) -> None:
        with pytest.raises(EvidenceError, match="given twice"):
            compare_sites([shifted[0], shifted[0]])


class TestSiteColumn:
    @pytest.mark.parametrize("names", [FEW, CHAIN], ids=["joint table", "pairs"])
    def test_its_tables_are_those_of_the_sites_side_by_side(self, names: tuple[str, ...]) -> None:
        sites = by_one_plan(None, names)
        combined = evidence_from_json(combine_evidence(sites, site_column="site").to_json())
        one, two = names[:2]
        for columns in ((one,), (one, two)):
            own = [site.table(*columns) for site in sites]
            found = combined.table("site", *columns)
            assert found.labels[0] == ("north", "south", "west")
            assert found.counts == pytest.approx(np.stack([table.counts for table in own]))
            # three-way tables have a mean of the noise in all directions
            assert found.standard_error == pytest.approx(own[0].standard_error, rel=0.05 if len(columns) > 1 else 1e-9)
        assert combined.table("site").counts == pytest.approx([site.table(one).total for site in sites])
        plain = combine_evidence(sites).table(one, two)
        assert combined.table(one, two).counts == pytest.approx(plain.counts)
        assert combined.table(one, two).standard_error == pytest.approx(plain.standard_error)

    @pytest.mark.parametrize("names", [FEW, CHAIN], ids=["joint table", "pairs"])
    def test_its_children_are_what_was_changed(self, names: tuple[str, ...]) -> None:
        changed = names[2]
        graph = search_evidence(
            combine_evidence(by_one_plan(changed, names), site_column="site"), SearchSettings(redraws=0)
        ).graph.cpdag
        assert {pair for pair in graph.skeleton() if "site" in pair} == {frozenset(("site", changed))}
        assert ("site", changed) in graph.directed
        assert Dag(names, frozenset(pairwise(names))).cpdag().skeleton() <= graph.skeleton()

    def test_where_sites_agree_it_has_none(self) -> None:
        graph = search_evidence(combine_evidence(by_one_plan(None), site_column="site"), SearchSettings(redraws=0))
        assert not any("site" in (edge.source, edge.target) for edge in graph.graph.edges)

    def test_the_loudest_site_speaks_for_all(self) -> None:
        loud = NoisyInteractions(("x",), (2,), 3, Fraction(90), (30, -30))
        quiet = NoisyInteractions(("x",), (2,), 1, Fraction(1), (4, -4))
        (stacked,) = stack_releases("site", [loud, quiet])
        assert isinstance(stacked, NoisyInteractions)
        assert (stacked.columns, stacked.shape) == (("site", "x"), (2, 2))
        assert stacked.interaction_variance == pytest.approx(loud.interaction_variance)
        apart = (loud.counts - quiet.counts) / 2
        assert stacked.counts == pytest.approx(np.stack([apart, -apart]))

    def test_public_numbers_of_rows_leave_something_to_divide_by(self) -> None:
        sites = dict.fromkeys(("north", "south"), ROWS)
        schema = levels_schema(CHAIN, relation="replace-one")
        made = plan_measurement(schema, 4, sites=sites, tables=TableRule.PAIRS)
        combined = combine_evidence(
            [follow(made, site, draw_chain(CHAIN, k), k) for k, site in enumerate(sites)], site_column="site"
        )
        graph = search_evidence(evidence_from_json(combined.to_json()), SearchSettings(redraws=1)).graph.cpdag
        assert not any("site" in pair for pair in graph.skeleton())
        assert combined.table("site").counts == pytest.approx([ROWS, ROWS])

    def test_what_has_no_site_column_is_refused(self, shifted: list[Evidence], north: Evidence) -> None:
        with pytest.raises(EvidenceError, match="a sum no longer tells its sites apart"):
            combine_evidence([combine_evidence(shifted[:2]), shifted[2]], site_column="site")
        with pytest.raises(EvidenceError, match="there is a column 'c1' already"):
            combine_evidence(shifted, site_column="c1")
        made = plan_measurement(numbers_schema(("x", "y")), 10, sites={"north": ROWS, "south": ROWS})
        rng = np.random.default_rng(1)
        numbers = [
            follow(made, site, {name: rng.normal(size=ROWS) for name in ("x", "y")}, 1) for site in ("north", "south")
        ]
        with pytest.raises(EvidenceError, match="has no coordinate in them"):
            combine_evidence(numbers, site_column="site")

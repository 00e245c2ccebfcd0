"""Several custodians with one plan: what a plan fixes, what a site may do with it, and what sums promise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import (
    BudgetError,
    DataError,
    EvidenceError,
    InvalidBudgetError,
    MethodError,
    SchemaError,
    UnreviewedSchemaError,
)
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.plans.combine import add_releases, combine_evidence
from dagveil.plans.plan_file import AskInteractions, MeasurementPlan, NoiseLaw, PlannedSite, load_plan, plan_from_json
from dagveil.plans.planning import TableRule, forecast_plan, plan_measurement, plan_second_round
from dagveil.plans.site_run import measure_planned, noise_deviation
from dagveil.privacy.budget import Budget, mu_squared_of
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyInteractions
from dagveil.runs.discovery import measure_source
from dagveil.runs.result import result_from_json
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

ROWS = 6000
SITES = {"north": 2000, "south": 4000}


def chain_schema(width: int = 10, **facts: Any) -> Schema:
    columns = {f"c{k}": Categorical(("low", "mid", "high"), "low") for k in range(width)}
    return Schema(**{"dataset": "study", "columns": columns, "reviewed": True, "nominal_rows": ROWS} | facts)


def number_schema(**facts: Any) -> Schema:
    columns = {name: Numeric(bounds=(-9.0, 9.0), center=0.0, spread=1.0) for name in "abcd"}
    return Schema(**{"dataset": "study", "columns": columns, "reviewed": True, "nominal_rows": ROWS} | facts)


def few_schema(**facts: Any) -> Schema:
    columns = {name: Boolean(outside="false") for name in "abc"}
    return Schema(**{"dataset": "study", "columns": columns, "reviewed": True, "nominal_rows": ROWS} | facts)


def chain_rows(schema: Schema, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Draw a chain of columns, each like the one before it half of the time."""
    rng = np.random.default_rng(seed)
    first = next(iter(schema.columns.values()))
    if isinstance(first, Numeric):
        numbers = rng.normal(size=(len(schema.columns), rows))
        for k in range(1, len(numbers)):
            numbers[k] = 0.7 * numbers[k - 1] + 0.7 * numbers[k]
        return dict(zip(schema.columns, numbers, strict=True))
    before = rng.integers(0, first.n_levels, rows)
    found = {}
    for name in schema.columns:
        before = np.where(rng.random(rows) < 0.6, before, rng.integers(0, first.n_levels, rows))
        found[name] = before.astype(np.uint8)
    return found


def release(plan: MeasurementPlan, site: str, *, seed: int | None = 1, **arguments: Any) -> Evidence:
    """Let a site follow the plan on rows of its own."""
    rows = chain_rows(plan.schema, plan.site_named(site).nominal_rows, sum(site.encode()))
    own = replace(plan.schema, dataset=f"table of {site}", nominal_rows=plan.site_named(site).nominal_rows)
    numeric = isinstance(next(iter(own.columns.values())), Numeric)
    table = MemoryTable.from_source(rows, own) if numeric else MemoryTable.from_codes(rows, own)
    noise = NoiseKind.EXACT if seed is None else NoiseKind.SEEDED
    return measure_planned(table, plan, site, schema=own, noise=noise, seed=seed, **{"ledger": None} | arguments)


@pytest.fixture(scope="module")
def plan() -> MeasurementPlan:
    return plan_measurement(chain_schema(), 20, sites=SITES, tables=TableRule.PAIRS)


@pytest.fixture(scope="module")
def north(plan: MeasurementPlan) -> Evidence:
    return release(plan, "north", seed=None)


@pytest.fixture(scope="module")
def south(plan: MeasurementPlan) -> Evidence:
    return release(plan, "south", seed=None)


class TestPlan:
    def test_it_survives_a_file(self, plan: MeasurementPlan, tmp_path: Path) -> None:
        plan.save(tmp_path / "plan.json")
        again = load_plan(tmp_path / "plan.json")
        assert again == plan
        assert again.digest() == plan.digest()

    def test_it_shows_itself_in_a_notebook(self, plan: MeasurementPlan) -> None:
        shown = plan._repr_html_()
        assert shown.count("<tr>") == 1 + len(plan.asks)
        assert all(site.name in shown for site in plan.sites)

    @pytest.mark.parametrize("schema", [number_schema(), few_schema()], ids=["numbers", "joint"])
    @pytest.mark.parametrize("method", ["measure", "measure-ges"])
    def test_every_kind_survives_json(self, schema: Schema, method: str) -> None:
        made = plan_measurement(schema, 1, method=method)
        assert plan_from_json(made.to_json()) == made

    def test_the_digest_is_that_of_what_is_asked(self, plan: MeasurementPlan) -> None:
        same = [replace(plan, created="another day"), replace(plan, software="another")]
        # facts of one site's own table are not part of what was agreed
        same.append(replace(plan, schema=replace(plan.schema, nominal_rows=1, public=True)))
        assert {other.digest() for other in same} == {plan.digest()}
        first, *rest = plan.asks
        others = [
            replace(plan, method="measure-ges"),
            replace(plan, settings={"plan": "pairs"}),
            replace(plan, noise=NoiseLaw.LAPLACE),
            replace(plan, sites=plan.sites[:1]),
            replace(plan, sites=(replace(plan.sites[0], epsilon=Fraction(1)), plan.sites[1])),
            replace(plan, asks=(replace(first, share=Fraction(1, 8)), *rest)),
            replace(plan, asks=(first,)),
            replace(plan, schema=replace(plan.schema, relation="replace-one")),
            replace(plan, schema=replace(plan.schema, unit="one visit")),
            replace(plan, schema=replace(plan.schema, dataset="another study")),
        ]
        assert len({plan.digest(), *(other.digest() for other in others)}) == len(others) + 1

    def test_shares_are_the_whole_budget(self) -> None:
        for schema in (chain_schema(), number_schema(), few_schema()):
            assert sum(ask.share for ask in plan_measurement(schema, 1).asks) == 1

    def test_three_way_tables_are_asked_for_where_noise_leaves_them_of_use(self) -> None:
        def last(epsilon: float, **sites: int) -> str:
            return plan_measurement(chain_schema(), epsilon, sites=sites).asks[-1].stage

        assert last(10, a=100_000) == "three-way interactions"
        assert last(0.01, a=100_000) == "all pairs"
        many = {f"s{k}": 100_000 // 200 for k in range(200)}
        assert plan_measurement(chain_schema(), 1, sites=many).asks[-1].stage == "all pairs"
        assert (
            plan_measurement(chain_schema(), 0.01, tables=TableRule.TRIPLES).asks[-1].stage == "three-way interactions"
        )

    def test_wide_tables_are_planned_by_pairs(self) -> None:
        wide = chain_schema(100)
        assert plan_measurement(wide, 100).asks[-1].stage == "all pairs"
        with pytest.raises(MethodError, match="161700 three-way tables"):
            plan_measurement(wide, 100, tables=TableRule.TRIPLES)

    def test_pairs_that_knowledge_excludes_are_not_asked_about(self) -> None:
        schema = chain_schema(4, forbidden=(("c0", "c1"), ("c1", "c0")))
        made = plan_measurement(schema, 1, options={"plan": "pairs"}, tables=TableRule.TRIPLES)
        asked = [set(names) for ask in made.asks[1:] for names in getattr(ask, "pairs", getattr(ask, "sets", ()))]
        assert asked
        assert not any({"c0", "c1"} <= names for names in asked)

    @pytest.mark.parametrize(
        ("schema", "arguments", "error", "words"),
        [
            (chain_schema(reviewed=False), {}, UnreviewedSchemaError, "a plan is public"),
            (chain_schema(nominal_rows=None), {}, SchemaError, "no nominal number of rows"),
            (chain_schema(), {"method": "em-pc"}, MethodError, "not known before its run"),
            (chain_schema(), {"method": "measure-notears"}, MethodError, "columns with levels"),
            (chain_schema(), {"method": "nonsense"}, MethodError, "no method is called"),
            (chain_schema(), {"options": {"plan": "x"}}, MethodError, "cannot be read"),
            (chain_schema(), {"sites": {"": 5}}, MethodError, "names of their own"),
            (chain_schema(), {"sites": {"a": 0}}, MethodError, "nominal rows"),
            (chain_schema(), {"delta": 0}, BudgetError, "delta"),
            (
                Schema(dataset="n", columns={n: Numeric(bounds=(0, 1)) for n in "ab"}, reviewed=True, nominal_rows=9),
                {},
                SchemaError,
                "no spread is declared",
            ),
        ],
    )
    def test_what_no_plan_can_fix_is_refused(
        self, schema: Schema, arguments: dict[str, Any], error: type[Exception], words: str
    ) -> None:
        with pytest.raises(error, match=words):
            plan_measurement(schema, 1, **arguments)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda text: text[:-9], "not JSON"),
            (lambda text: text.replace("dagveil-plan", "dagveil-result"), "not a dagveil plan"),
            (lambda text: text.replace('"version": 2', '"version": 3'), "format version 3"),
            (lambda text: text.replace('"3/4"', '"3"'), "at most 1 together"),
            (lambda text: text.replace('"3/4"', "0.75"), "damaged"),
            (lambda text: text.replace('"south"', '"north"'), "names of their own"),
            (lambda text: text.replace('"2000"', '"0"').replace('"epsilon": "20"', '"epsilon": "-1"'), "epsilon"),
        ],
    )
    def test_damaged_plans_are_refused(self, plan: MeasurementPlan, change: Callable[[str], str], words: str) -> None:
        text = change(plan.to_json())
        assert text != plan.to_json()
        with pytest.raises((DataError, MethodError, InvalidBudgetError), match=words):
            plan_from_json(text)


class TestSite:
    @pytest.mark.parametrize(
        "made",
        [
            plan_measurement(chain_schema(), 1, sites=SITES, tables=TableRule.TRIPLES),
            plan_measurement(number_schema(), 1, sites=SITES),
            plan_measurement(number_schema(), 20, method="measure-features", options={"degree": 2}, sites=SITES),
            plan_measurement(few_schema(), 1, sites=SITES),
            plan_measurement(chain_schema(relation="replace-one"), 1, sites=SITES),
        ],
        ids=["triples", "moments", "features", "joint", "replace-one"],
    )
    def test_noise_is_what_was_foreseen_and_the_budget_is_used(self, made: MeasurementPlan) -> None:
        evidence = release(made, "north")
        foreseen = forecast_plan(made)
        assert [stage.stage for stage in evidence.plan] == [stage.stage for stage in foreseen]
        for stage, told in zip(evidence.plan, foreseen, strict=True):
            assert stage.noise_sd == pytest.approx(told.site_noise[0], rel=0.01)
            assert (stage.tables, stage.cells) == (told.tables, told.cells)
        receipt = evidence.receipt
        used = Fraction(receipt.accounting_spent) / Fraction(receipt.accounting_total)
        assert 0.97 < used <= 1
        assert evidence_from_json(evidence.to_json()) == evidence

    def test_the_ledger_has_one_run_under_the_site_s_name(self, plan: MeasurementPlan) -> None:
        books = MemoryLedger()
        evidence = release(plan, "north", seed=None, ledger=books)
        account = books.account("table of north")
        assert (account.spent_epsilon, account.spending.spent.delta) == (20, Fraction(1, 10**6))
        assert evidence.receipt.dataset == "table of north"
        assert evidence.receipt.guaranteed

    @pytest.mark.parametrize(
        ("schema", "words"),
        [
            (chain_schema(9), "only one of the two has c9"),
            (
                chain_schema(columns=chain_schema().columns | {"c3": Categorical(("low", "high"), "low")}),
                "declares c3 otherwise",
            ),
            (chain_schema(relation="replace-one"), "differs in relation"),
            (chain_schema(unit="one visit"), "differs in unit"),
        ],
    )
    def test_another_schema_is_refused(self, plan: MeasurementPlan, schema: Schema, words: str) -> None:
        books = MemoryLedger()
        with pytest.raises(SchemaError, match=words):
            measure_planned({}, plan, "north", schema=schema, ledger=books)
        assert books.history() == ()

    def test_the_site_and_its_name_in_the_ledger_must_be_said(self, plan: MeasurementPlan) -> None:
        with pytest.raises(MethodError, match="2 sites; say which"):
            measure_planned({}, plan, schema=chain_schema(), ledger=None)
        with pytest.raises(MethodError, match="no site 'west'"):
            measure_planned({}, plan, "west", schema=chain_schema(), ledger=None)
        with pytest.raises(MethodError, match="what the ledger calls"):
            measure_planned({}, plan, "north", ledger=None)
        with pytest.raises(MethodError, match="what the ledger calls"):
            measure_planned({}, plan, "north", schema=chain_schema(), dataset="both", ledger=None)

    def test_the_order_of_columns_is_the_site_s_own(self) -> None:
        made = plan_measurement(few_schema(), 1)
        own = few_schema(columns=dict(reversed(few_schema().columns.items())))
        rows = {name: np.arange(100) % (k + 2) == 0 for k, name in enumerate("abc")}
        evidence = measure_planned(rows, made, schema=own, noise=NoiseKind.SEEDED, seed=1, ledger=None)
        same = measure_planned(rows, made, schema=few_schema(), noise=NoiseKind.SEEDED, seed=1, ledger=None)
        assert evidence.releases == same.releases

    def test_a_draft_is_refused(self, plan: MeasurementPlan) -> None:
        with pytest.raises(UnreviewedSchemaError):
            measure_planned({}, plan, "north", schema=chain_schema(reviewed=False), ledger=None)


class TestSum:
    def test_counts_are_those_of_all_rows_up_to_the_summed_noise(
        self, plan: MeasurementPlan, north: Evidence, south: Evidence
    ) -> None:
        combined = combine_evidence([north, south])
        codes = {
            name: np.concatenate([chain_rows(plan.schema, SITES[site], sum(site.encode()))[name] for site in SITES])
            for name in plan.schema.columns
        }
        exact = MemoryTable.from_codes(codes, plan.schema)
        far = []
        for release_, one, other in zip(combined.releases, north.releases, south.releases, strict=True):
            variances = [noise_deviation(each) ** 2 for each in (release_, one, other)]
            assert variances[0] == pytest.approx(variances[1] + variances[2], rel=1e-12)
            if len(release_.columns) > 1:
                continue
            assert isinstance(release_, NoisyCounts | NoisyInteractions)
            counts = exact.counts(release_.columns) if release_.columns else np.array(exact.n_rows)
            centred = counts - counts.mean() if release_.columns else counts
            far += list((release_.counts - centred).ravel() / variances[0] ** 0.5)
        assert len(far) == 1 + 30
        assert max(map(abs, far)) < 6
        assert 0.5 < np.std(far) < 1.6
        assert sum(isinstance(release_, NoisyInteractions) for release_ in combined.releases) == 10 + 45
        for stage, parts in zip(combined.plan, zip(north.plan, south.plan, strict=True), strict=True):
            assert stage.noise_sd**2 == pytest.approx(sum(part.noise_sd**2 for part in parts))

    def test_nominal_rows_add_and_the_graph_is_one(self, north: Evidence, south: Evidence) -> None:
        combined = evidence_from_json(combine_evidence([north, south]).to_json())
        assert combined.schema.nominal_rows == combined.receipt.nominal_rows == ROWS
        assert combined.schema.dataset == "study"
        result = search_evidence(combined, SearchSettings(redraws=2))
        found = {frozenset((edge.source, edge.target)) for edge in result.graph.edges}
        assert frozenset(("c0", "c1")) in found
        assert [part.site for part in result.parts] == ["north", "south"]
        assert [part.receipt for part in result.parts] == [north.receipt, south.receipt]
        assert result_from_json(result.to_json()) == result
        assert search_evidence(north, SearchSettings(redraws=0)).parts == ()

    def test_sums_of_sums_are_the_same_sum(self) -> None:
        made = plan_measurement(few_schema(), 1, sites={"a": 100, "b": 200, "c": 300})
        a, b, c = (release(made, site) for site in "abc")
        together, stepwise = combine_evidence([a, b, c]), combine_evidence([combine_evidence([a, b]), c])
        assert together.releases == stepwise.releases
        assert together.parts == stepwise.parts
        assert together.receipt == stepwise.receipt
        assert together.findings[:-1] == stepwise.findings[:-1]
        assert stepwise.findings[-1].startswith("Sites were not compared: some were added before.")

    def test_budgets_may_differ_and_the_receipt_says_what_holds(self) -> None:
        sites = [
            PlannedSite("a", Fraction(1), Fraction(1, 10**6), 100),
            PlannedSite("b", Fraction(3), Fraction(1, 10**7), 200),
        ]
        made = plan_measurement(chain_schema(unit="one patient"), 1, sites=sites)
        a, b = (release(made, site, seed=None) for site in "ab")
        combined = combine_evidence([a, b])
        assert a.plan[0].noise_sd > 2 * b.plan[0].noise_sd
        receipt = combined.receipt
        assert (receipt.epsilon, Fraction(receipt.delta)) == ("3", Fraction(1, 10**6))
        assert receipt.guaranteed
        words = " ".join(receipt.words())
        assert "no person is at more than one of the 2 sites" in words
        assert "up to epsilon 4 and delta 1.1e-6" in words
        assert {part.receipt.epsilon for part in combined.parts} == {"1", "3"}
        assert any("not recorded in any ledger" in warning for warning in receipt.warnings)

    def test_one_seeded_site_takes_the_promise_away(self, plan: MeasurementPlan, north: Evidence) -> None:
        combined = combine_evidence([north, release(plan, "south", seed=3)])
        assert north.receipt.guaranteed
        assert not combined.receipt.guaranteed
        assert combined.receipt.words()[0].startswith("No promise holds")

    def test_sites_that_are_missing_are_named(self) -> None:
        made = plan_measurement(few_schema(), 1, sites={"a": 100, "b": 200, "c": 300})
        combined = combine_evidence([release(made, "a"), release(made, "c")])
        assert combined.schema.nominal_rows == 400
        assert any("Without evidence so far: b." in finding for finding in combined.findings)

    def test_noise_is_judged_anew_and_other_findings_are_kept(self) -> None:
        made = plan_measurement(number_schema(), 0.01, sites=SITES)
        combined = combine_evidence([release(made, site) for site in SITES])
        loud = [finding for finding in combined.findings if finding.startswith("Noise of")]
        assert len(loud) == 1
        assert f"beside about {ROWS} rows" in loud[0]
        assert sum("Columns were scaled" in finding for finding in combined.findings) == 1


class TestRefusedSums:
    def test_the_same_release_twice(self, north: Evidence, south: Evidence) -> None:
        for files in ([north, north], [north, combine_evidence([north, south])]):
            with pytest.raises(EvidenceError, match=r"'north' is given twice, with the same release"):
                combine_evidence(files)

    def test_two_runs_of_one_site(self, plan: MeasurementPlan, north: Evidence) -> None:
        with pytest.raises(EvidenceError, match=r"'north' is given twice, with two releases"):
            combine_evidence([north, release(plan, "north", seed=None)])

    def test_one_release_under_two_names(self, north: Evidence) -> None:
        renamed = replace(north, parts=(replace(north.parts[0], site="south"),))
        with pytest.raises(EvidenceError, match="names of two sites"):
            combine_evidence([north, renamed])

    def test_another_plan(self, north: Evidence) -> None:
        other = plan_measurement(chain_schema(), 21, sites=SITES, tables=TableRule.PAIRS)
        with pytest.raises(EvidenceError, match="follows another plan"):
            combine_evidence([north, release(other, "south")])

    def test_evidence_that_follows_no_plan(self, north: Evidence) -> None:
        rows = chain_rows(chain_schema(), 500, 1)
        loose = measure_source(
            MemoryTable.from_codes(rows, chain_schema()), chain_schema(), 1, noise=NoiseKind.SEEDED, seed=1, ledger=None
        )
        with pytest.raises(EvidenceError, match="follows no agreed plan"):
            combine_evidence([north, loose])

    def test_evidence_that_was_changed(self, north: Evidence, south: Evidence) -> None:
        first = north.releases[0]
        changed = replace(north, releases=(replace(first, values=(1, *first.values[1:])), *north.releases[1:]))
        with pytest.raises(EvidenceError, match="changed after its release"):
            combine_evidence([changed, south])

    def test_one_file_is_no_sum(self, north: Evidence) -> None:
        with pytest.raises(EvidenceError, match="nothing to combine"):
            combine_evidence([north])


@pytest.fixture(scope="module")
def made() -> MeasurementPlan:
    return plan_measurement(chain_schema(), 20, sites=SITES, rounds=2)


@pytest.fixture(scope="module")
def first(made: MeasurementPlan) -> Evidence:
    return combine_evidence([release(made, site, seed=None) for site in SITES])


@pytest.fixture(scope="module")
def later(made: MeasurementPlan, first: Evidence) -> list[Evidence]:
    planned = plan_second_round(made, first)
    return [release(planned, site, seed=None) for site in SITES]


class TestTwoRounds:
    @pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1, 10])
    def test_both_rounds_together_stay_within_the_budget_and_use_it(self, epsilon: Fraction) -> None:
        made = plan_measurement(chain_schema(), epsilon, sites=SITES, rounds=2)
        whole = mu_squared_of(Budget.of(epsilon, 1e-6))
        for one, other in zip(made.sites, made.second, strict=True):
            spent = mu_squared_of(one.budget) + mu_squared_of(other.budget)
            assert Fraction(9999, 10_000) * whole < spent <= whole

    def test_a_file_keeps_the_split_and_the_digest_tells_it(self, made: MeasurementPlan, tmp_path: Path) -> None:
        made.save(tmp_path / "plan.json")
        assert load_plan(tmp_path / "plan.json") == made
        assert replace(made, second=()).digest() != made.digest()

    def test_what_is_asked_again_comes_from_the_released_sum(self, made: MeasurementPlan, first: Evidence) -> None:
        planned = plan_second_round(made, first)
        assert planned.after == made.digest()
        assert planned.sites == made.second
        (ask,) = planned.asks
        assert ask.share == 1
        assert isinstance(ask, AskInteractions)
        chain = {(f"c{k}", f"c{k + 1}") for k in range(9)}
        assert {pair for columns in ask.sets for pair in combinations(columns, 2)} > chain
        assert plan_second_round(made, first).digest() == planned.digest()

    def test_the_sum_holds_both_rounds_under_one_receipt(self, first: Evidence, later: list[Evidence]) -> None:
        both = combine_evidence([first, *later])
        assert both.releases == (*first.releases, *add_releases([item.releases for item in later]))
        assert [len(part.receipt.events) for part in both.parts] == [3, 3]
        assert Fraction(1999, 100) < Fraction(both.receipt.epsilon) <= 20
        assert Fraction(both.receipt.delta) == Fraction(1, 10**6)
        assert evidence_from_json(both.to_json()) == both  # its reader counts again what the events cost
        found = search_evidence(both, SearchSettings(redraws=0)).graph
        assert {frozenset((edge.source, edge.target)) for edge in found.edges} == {
            frozenset((f"c{k}", f"c{k + 1}")) for k in range(9)
        }

    def test_the_second_round_makes_pairs_sharper(self, first: Evidence, later: list[Evidence]) -> None:
        noise = [item.independence().covariance.noise for item in (first, combine_evidence([first, *later]))]  # type: ignore[union-attr]
        assert (noise[1] <= noise[0]).all()
        if len(later[0].releases[0].columns) == 2:
            assert noise[1][0, 1] < noise[0][0, 1]

    def test_each_round_is_a_run_in_the_ledger(self, made: MeasurementPlan, first: Evidence) -> None:
        ledger = MemoryLedger()
        for planned in (made, plan_second_round(made, first)):
            release(planned, "north", seed=None, ledger=ledger)
        account = ledger.account("table of north")
        assert account.spent_epsilon == made.sites[0].epsilon + made.second[0].epsilon
        assert account.runs == 2

    def test_rounds_that_do_not_go_together_are_refused(
        self, made: MeasurementPlan, first: Evidence, later: list[Evidence]
    ) -> None:
        with pytest.raises(EvidenceError, match="'south' took part in one round only"):
            combine_evidence([first, later[0]])
        with pytest.raises(EvidenceError, match="second round of a study alone"):
            search_evidence(later[0])
        with pytest.raises(EvidenceError, match="given twice"):
            combine_evidence([first, *later, later[0]])
        other = plan_measurement(chain_schema(), 21, sites=SITES, rounds=2)
        with pytest.raises(EvidenceError, match="the second round was planned after"):
            combine_evidence([*(release(other, site, seed=None) for site in SITES), *later])
        with pytest.raises(EvidenceError, match="does not follow this plan"):
            plan_second_round(other, first)
        with pytest.raises(EvidenceError, match="follows another plan"):
            combine_evidence([combine_evidence([first, *later]), first])

    def test_a_site_without_a_first_round_has_no_second(self, made: MeasurementPlan) -> None:
        planned = plan_second_round(made, release(made, "south", seed=None))
        with pytest.raises(MethodError, match="for the sites of the first alone"):
            planned.site_named("north")

    @pytest.mark.parametrize(
        ("schema", "arguments", "words"),
        [
            (few_schema(), {}, "nothing to ask"),
            (number_schema(), {}, "nothing to ask"),
            (chain_schema(), {"tables": TableRule.PAIRS}, "leave out the rule for tables"),
            (chain_schema(), {"rounds": 3}, "one round or two"),
        ],
    )
    def test_what_has_no_second_round_is_refused(self, schema: Schema, arguments: Any, words: str) -> None:
        with pytest.raises(MethodError, match=words):
            plan_measurement(schema, 1, sites=SITES, **{"rounds": 2} | arguments)

    def test_a_plan_of_one_round_has_no_second(self, plan: MeasurementPlan, north: Evidence) -> None:
        with pytest.raises(MethodError, match="leaves nothing for a second round"):
            plan_second_round(plan, north)

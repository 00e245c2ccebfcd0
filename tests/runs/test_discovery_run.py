"""Discovery end to end on sampled rows: the graph, the receipt, the budget, and searching the same evidence again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import (
    BudgetError,
    BudgetExceededError,
    DataError,
    EvidenceError,
    MethodError,
    SchemaError,
    UnreviewedSchemaError,
)
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.evidence.bundle import Evidence, evidence_from_json, independence_from, load_evidence
from dagveil.examples.networks import Network
from dagveil.files import seal
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, Unbounded, gaussian_cost
from dagveil.privacy.ledger import Ledger
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyInteractions
from dagveil.runs.discovery import discover, measure_source, search_evidence
from dagveil.runs.result import load_result, result_from_json
from dagveil.search.constraint.arrows import orient_by_evidence
from dagveil.search.constraint.skeleton import SkeletonSettings, find_skeleton
from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings
from dagveil.statistics.contingency import margins_squared_sensitivity

QUICK = SearchSettings(redraws=3)
SEEDED = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 7}
TABLES = {"plan": "pairs"}


@pytest.fixture(scope="module")
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture(scope="module")
def evidence(asia_table: MemoryTable, ledger: MemoryLedger) -> Evidence:
    return measure_source(asia_table, asia_table.schema, 1, 1e-6, options=TABLES, **SEEDED | {"ledger": ledger})


def same_graph(one: object, other: object) -> bool:
    """Compare results without the time at which they were written."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("graph", "near_misses", "confidence", "method", "plan", "findings", "receipt", "schema")
    )


class TestAsia:
    def test_the_skeleton_is_nearly_right(self, asia: Network, asia_table: MemoryTable) -> None:
        scores = []
        for seed in range(3):
            result = discover(
                asia_table,
                asia_table.schema,
                1,
                1e-6,
                settings=SearchSettings(redraws=0),
                noise=NoiseKind.SEEDED,
                seed=seed,
                ledger=None,
            )
            assert result.graph.cpdag.is_valid()
            scores.append(skeleton_f1(result.graph.cpdag, asia.dag()))
        assert np.mean(scores) >= 0.8

    def test_a_seeded_result_says_so(self, evidence: Evidence) -> None:
        result = search_evidence(evidence, QUICK)
        assert "seeded: not private" in result.receipt.warnings
        assert "seeded: not private" in result.to_json()
        assert any("seeded: not private" in sentence for sentence in result.receipt.words())

    def test_unseeded_results_carry_no_warning(self, boolean_schema: Callable[..., Schema]) -> None:
        schema = boolean_schema("a", "b", nominal_rows=4)
        rows = {"a": [True, False, True, False], "b": [True, False, False, False]}
        receipt = measure_source(rows, schema, 1, 1e-6, noise=NoiseKind.EXACT, ledger=MemoryLedger()).receipt
        assert receipt.warnings == ()
        assert receipt.guaranteed

    def test_a_run_without_a_ledger_says_so(self, boolean_schema: Callable[..., Schema]) -> None:
        rows = {"a": [True, False], "b": [True, False]}
        schema = boolean_schema("a", "b", nominal_rows=2)
        (warning,) = measure_source(rows, schema, 1, 1e-6, noise=NoiseKind.EXACT, ledger=None).receipt.warnings
        assert "not recorded in any ledger" in warning
        public = boolean_schema("a", "b", nominal_rows=2, public=True)
        assert measure_source(rows, public, 1, 1e-6, noise=NoiseKind.EXACT, ledger=None).receipt.warnings == ()

    def test_results_survive_json_bit_for_bit(self, evidence: Evidence, tmp_path: Path) -> None:
        result = search_evidence(evidence, QUICK)
        text = result.to_json()
        again = result_from_json(text)
        assert again == result
        assert again.to_json() == text
        result.save(tmp_path / "result.json")
        assert load_result(tmp_path / "result.json") == result
        assert again.graph.cpdag == result.graph.cpdag

    def test_evidence_survives_json_bit_for_bit(self, evidence: Evidence, tmp_path: Path) -> None:
        text = evidence.to_json()
        again = evidence_from_json(text)
        assert again == evidence
        assert again.to_json() == text
        evidence.save(tmp_path / "evidence.json")
        assert load_evidence(tmp_path / "evidence.json") == evidence

    def test_searching_again_gives_the_same_graph(self, evidence: Evidence, asia_table: MemoryTable) -> None:
        direct = discover(asia_table, asia_table.schema, 1, 1e-6, options=TABLES, settings=QUICK, **SEEDED)
        again = search_evidence(evidence_from_json(evidence.to_json()), QUICK)
        assert same_graph(direct, again)

    def test_other_thresholds_and_knowledge_cost_nothing(self, evidence: Evidence, ledger: MemoryLedger) -> None:
        before = ledger.history()
        plain = search_evidence(evidence, QUICK)
        harsh = search_evidence(evidence, SearchSettings(marginal_level=1e-300, redraws=0))
        assert len(harsh.graph.edges) < len(plain.graph.edges)
        flat = search_evidence(evidence, SearchSettings(largest_order=0, redraws=0))
        assert len(flat.graph.edges) > len(plain.graph.edges)
        first = plain.graph.edges[0]
        gone = frozenset({(first.source, first.target), (first.target, first.source)})
        other = search_evidence(evidence, QUICK, knowledge=Knowledge(forbidden=gone))
        assert frozenset((first.source, first.target)) not in other.graph.cpdag.skeleton()
        assert other.graph.family == "mpdag"
        usual = search_evidence(evidence, SearchSettings(arrows=ArrowRule.SEPARATING_SETS, redraws=0))
        assert usual.graph.cpdag.is_valid()
        assert usual.graph.cpdag.skeleton() == plain.graph.cpdag.skeleton()
        for result in (harsh, other, usual):
            assert result.receipt == plain.receipt
        assert ledger.history() == before

    def test_confidences_are_shares(self, evidence: Evidence) -> None:
        result = search_evidence(evidence, SearchSettings(redraws=8))
        for edge in result.graph.edges:
            assert edge.confidence is not None
            assert 0 <= edge.confidence <= 1
            assert round(edge.confidence * 8, 9) == round(edge.confidence * 8)
            assert edge.arrow_confidence is None or 0 <= edge.arrow_confidence <= 1
        found = result.graph.cpdag.skeleton()
        for miss in result.near_misses:
            assert frozenset((miss.source, miss.target)) not in found
            assert 0 < miss.confidence <= 1
        assert same_graph(result, search_evidence(evidence, SearchSettings(redraws=8)))
        bare = search_evidence(evidence, SearchSettings(redraws=0))
        assert all(edge.confidence is None for edge in bare.graph.edges)
        assert bare.near_misses == ()

    @settings(max_examples=8, deadline=None)
    @given(data=st.data())
    def test_the_order_of_columns_does_not_matter(self, data: st.DataObject, evidence: Evidence) -> None:
        columns = tuple(evidence.schema.columns)
        turned = tuple(data.draw(st.permutations(columns)))
        graphs = []
        for names in (columns, turned):
            tests = independence_from(names, evidence.releases)
            assert tests is not None
            skeleton = find_skeleton(tests, SkeletonSettings(), Knowledge.none())
            graph = orient_by_evidence(tests, skeleton, Knowledge.none())
            graphs.append((graph.directed, graph.undirected))
        assert graphs[0] == graphs[1]


class TestBudget:
    def test_the_total_is_never_exceeded(self, evidence: Evidence, ledger: MemoryLedger) -> None:
        receipt = evidence.receipt
        total, spent = Fraction(receipt.accounting_total), Fraction(receipt.accounting_spent)
        costs = [gaussian_cost(event) for event in receipt.events]
        assert all(cost is not None for cost in costs)
        assert sum(cost for cost in costs if cost is not None) == spent <= total
        # and hardly anything is left lying about
        assert spent > Fraction(99, 100) * total
        assert sum(stage.share for stage in evidence.plan) == pytest.approx(1.0)
        (run,) = ledger.history(evidence.schema.dataset)
        assert run.events[0] == Unbounded("seeded noise", "seeded: not private")
        assert run.events[1:] == receipt.events
        assert ledger.account(evidence.schema.dataset).unbounded
        assert ledger.account(evidence.schema.dataset).spent_epsilon == 1

    def test_every_release_is_paid_for(self, evidence: Evidence) -> None:
        draws = sum(event.draws for event in evidence.receipt.events)
        assert draws == sum(len(release.values) for release in evidence.releases)
        variances = {event.variance for event in evidence.receipt.events}
        assert min(release.variance for release in evidence.releases) in variances
        # tables are as sharp as their stage says, whatever their size
        told = {stage.noise_sd for stage in evidence.plan}
        for release in evidence.releases:
            assert isinstance(release, NoisyCounts | NoisyInteractions)
            size = math.prod(release.shape) if isinstance(release, NoisyInteractions) else 1
            deviation = math.sqrt(release.variance) / (release.lattice * size)
            assert any(deviation == pytest.approx(sd, rel=1e-5) for sd in told)

    @settings(max_examples=12, deadline=None)
    @given(st.floats(0.01, 20.0), st.sampled_from(["add-remove", "replace-one"]), st.sampled_from([None, 300]))
    def test_any_budget_holds(self, epsilon: float, relation: str, nominal: int | None) -> None:
        codes = np.random.default_rng(1).integers(0, 2, (4, 300))
        columns = {name: {"kind": "boolean", "outside": "false"} for name in "abcd"}
        schema = msgspec.convert(
            {"dataset": "tiny", "columns": columns, "reviewed": True, "relation": relation, "nominal_rows": nominal},
            Schema,
        )
        released = measure_source(
            dict(zip("abcd", codes, strict=True)), schema, epsilon, 1e-6, options=TABLES, **SEEDED
        )
        receipt = released.receipt
        assert 0 < Fraction(receipt.accounting_spent) <= Fraction(receipt.accounting_total)
        assert receipt.relation.value == relation
        assert ("the number of rows" in receipt.public_facts) == (relation == "replace-one")
        assert sum(stage.share for stage in released.plan) == pytest.approx(1.0)
        rows = released.releases[0]
        assert rows.columns == ()
        # public and exact where records are replaced, and otherwise with noise
        assert (rows.variance == 0 and rows.values == (300,)) == (relation == "replace-one")
        assert evidence_from_json(released.to_json()) == released

    def test_margins_are_charged_as_declared(self, asia_table: MemoryTable, evidence: Evidence) -> None:
        schema = msgspec.structs.replace(asia_table.schema, relation="replace-one")
        codes = {name: np.zeros(10, dtype=int) for name in schema.columns}
        other = measure_source(MemoryTable.from_codes(codes, schema), schema, 1, 1e-6, options=TABLES, **SEEDED)
        for released, relation, smallest in ((evidence, Relation.ADD_REMOVE, 1), (other, Relation.REPLACE_ONE, 2)):
            event, margin = released.receipt.events[0], released.releases[1]
            assert isinstance(event, DiscreteGaussian)
            assert isinstance(margin, NoisyInteractions)
            in_counts = event.squared_sensitivity / (margin.lattice * smallest) ** 2
            assert in_counts == margins_squared_sensitivity(relation, [2] * 8)

    def test_the_margins_count_the_rows(self, boolean_schema: Callable[..., Schema]) -> None:
        """No share of the budget is spent on that alone."""
        rows = {name: np.arange(500) % 2 == 0 for name in "ab"}
        released = measure_source(rows, boolean_schema("a", "b"), 1, 1e-6, options=TABLES, **SEEDED)
        assert released.receipt.events[0].label == "single columns"
        first = released.releases[0]
        assert isinstance(first, NoisyCounts)
        assert first.columns == ()
        assert abs(float(first.counts) - 500) < 6 * first.count_variance**0.5

    @pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
    def test_numbers_have_their_rows_counted_only_where_that_is_a_secret(self, relation: str) -> None:
        columns = {name: Numeric(bounds=(-5.0, 5.0), center=0.0, spread=1.0) for name in "ab"}
        schema = Schema(dataset="numbers", columns=columns, reviewed=True, relation=relation)
        rows = {name: np.random.default_rng(2).standard_normal(400) for name in "ab"}
        released = measure_source(rows, schema, 1, 1e-6, **SEEDED)
        labels = [event.label for event in released.receipt.events]
        assert labels == (["number of rows"] if relation == "add-remove" else []) + ["second moments"]
        assert sum(stage.share for stage in released.plan) == pytest.approx(1.0)
        declared = msgspec.structs.replace(schema, nominal_rows=400)
        assert [event.label for event in measure_source(rows, declared, 1, 1e-6, **SEEDED).receipt.events] == labels[
            -1:
        ]

    def test_a_ledger_without_room_refuses_before_anything_is_drawn(
        self, boolean_schema: Callable[..., Schema], tmp_path: Path
    ) -> None:
        books = Ledger.open(tmp_path / "ledger.db")
        books.set_budget("small", Budget.of("3/2", "1e-5"))
        rows = {name: np.arange(50) % 2 == 0 for name in "ab"}
        schema = boolean_schema("a", "b", nominal_rows=50)
        measure_source(rows, schema, 1, 1e-6, ledger=books, noise=NoiseKind.EXACT)
        with pytest.raises(BudgetExceededError, match="nothing was drawn"):
            measure_source(rows, schema, 1, 1e-6, ledger=books, noise=NoiseKind.EXACT)
        assert len(books.history("small")) == 1
        books.close()

    def test_seeded_noise_is_refused_where_a_budget_is_kept(self, boolean_schema: Callable[..., Schema]) -> None:
        books = MemoryLedger()
        books.set_budget("small", Budget.of(3, "1e-5"))
        rows, schema = {name: np.arange(50) % 2 == 0 for name in "ab"}, boolean_schema("a", "b", nominal_rows=50)
        for method in ("measure", "svt-pc"):
            with pytest.raises(MethodError, match="seeded noise claims no guarantee"):
                discover(rows, schema, 1, 1e-6, method=method, **SEEDED | {"ledger": books})
        assert books.history() == ()
        public = msgspec.structs.replace(schema, public=True)
        discover(rows, public, 1, 1e-6, method="svt-pc", **SEEDED | {"ledger": books})
        assert books.account("small").unbounded
        discover(rows, schema, 1, 1e-6, method="svt-pc", accept_no_guarantee=True, **SEEDED | {"ledger": books})
        assert len(books.history()) == 2

    def test_a_search_that_cannot_be_is_refused_before_the_charge(self, boolean_schema: Callable[..., Schema]) -> None:
        """From Python as from the command line."""
        books = MemoryLedger()
        rows, schema = {name: np.arange(50) % 2 == 0 for name in "ab"}, boolean_schema("a", "b", nominal_rows=50)
        wanted = SearchSettings(search=SearchRule.NOTEARS, redraws=0)
        with pytest.raises(MethodError, match="releases no second moments"):
            discover(rows, schema, 1, 1e-6, method="measure", settings=wanted, ledger=books, noise=NoiseKind.EXACT)
        assert books.history() == ()

    def test_delta_zero_is_refused_with_a_next_step(self, boolean_schema: Callable[..., Schema]) -> None:
        books = MemoryLedger()
        rows, schema = {"a": [True], "b": [True]}, boolean_schema("a", "b")
        with pytest.raises(BudgetError, match="delta"):
            measure_source(rows, schema, 1, 0, options=TABLES, **SEEDED | {"ledger": books})
        assert books.history() == ()
        joint = measure_source(rows, schema, 1, 0, **SEEDED | {"ledger": books})
        assert joint.receipt.accounting == "pure accounting"


class TestJointPlan:
    """Small domains: one table of all columns with Laplace noise."""

    def test_one_release_pays_for_everything(self, asia_table: MemoryTable) -> None:
        evidence = measure_source(asia_table, asia_table.schema, "1/2", 1e-6, **SEEDED)
        (event,) = evidence.receipt.events
        assert (type(event), event.epsilon, event.draws) == (DiscreteLaplace, Fraction(1, 2), 256)
        assert evidence.receipt.accounting_spent == evidence.receipt.accounting_total == "1/2"
        (table,) = evidence.releases
        assert table.columns == tuple(asia_table.schema.columns)
        assert float(table.variance) == pytest.approx(2 * 2**2, rel=0.03)

    def test_a_replaced_record_needs_twice_the_scale(self, asia_table: MemoryTable) -> None:
        schema = msgspec.structs.replace(asia_table.schema, relation="replace-one")
        codes = {name: np.zeros(10, dtype=int) for name in schema.columns}
        table = MemoryTable.from_codes(codes, schema)
        (released,) = measure_source(table, schema, "1/2", 1e-6, options={"plan": "joint"}, **SEEDED).releases
        assert float(released.variance) == pytest.approx(2 * 4**2, rel=0.01)

    def test_pairs_that_knowledge_excludes_are_not_released(self, asia_table: MemoryTable) -> None:
        names = list(asia_table.schema.columns)
        forbidden = frozenset({(names[0], names[1]), (names[1], names[0])})
        evidence = measure_source(
            asia_table, asia_table.schema, 1, 1e-6, knowledge=Knowledge(forbidden=forbidden), **SEEDED
        )
        assert evidence.receipt.accounting == "Gaussian accounting"

    def test_a_large_domain_takes_tables(self, boolean_schema: Callable[..., Schema]) -> None:
        names = [f"c{i}" for i in range(15)]
        rows = {name: np.arange(50) % 2 == 0 for name in names}
        evidence = measure_source(rows, boolean_schema(*names, nominal_rows=50), 1, 1e-6, **SEEDED)
        assert evidence.receipt.accounting == "Gaussian accounting"


ROWS = {"a": [True, False] * 20, "b": [True, False] * 20}


class TestSchema:
    def test_an_unreviewed_schema_is_refused(self, boolean_schema: Callable[..., Schema]) -> None:
        books = MemoryLedger()
        schema = boolean_schema("a", "b", reviewed=False, nominal_rows=40)
        with pytest.raises(UnreviewedSchemaError, match="reviewed = true"):
            discover(ROWS, schema, 1, 1e-6, **SEEDED | {"ledger": books})
        assert books.history() == ()
        assert books.datasets() == ()

    def test_an_accepted_draft_shows_in_the_receipt(self, boolean_schema: Callable[..., Schema]) -> None:
        schema = boolean_schema("a", "b", reviewed=False, nominal_rows=40)
        result = discover(ROWS, schema, 1, 1e-6, accept_draft=True, settings=QUICK, **SEEDED)
        assert any("unreviewed draft" in warning for warning in result.receipt.warnings)
        assert result.schema.reviewed is False

    def test_a_table_with_another_schema_is_refused(self, boolean_schema: Callable[..., Schema]) -> None:
        """The levels in use come from the table; the review, the relation and the receipt from the stated schema."""
        draft = boolean_schema("a", "b", reviewed=False, nominal_rows=40)
        table = MemoryTable.from_source(ROWS, draft)
        with pytest.raises(SchemaError, match="another schema"):
            measure_source(table, boolean_schema("a", "b", nominal_rows=40), 1, 1e-6, **SEEDED)


class TestDamage:
    def test_json_of_something_else(self, evidence: Evidence) -> None:
        result = search_evidence(evidence, SearchSettings(redraws=0))
        for text in ("", "{", "[]", '{"format": "other"}', b"\xff\xfe"):
            with pytest.raises(DataError):
                evidence_from_json(text)
            with pytest.raises(DataError):
                result_from_json(text)
        with pytest.raises(DataError, match="not dagveil evidence"):
            evidence_from_json(result.to_json())
        with pytest.raises(DataError, match="not a dagveil result"):
            result_from_json(evidence.to_json())

    def test_other_versions_are_refused(self, evidence: Evidence) -> None:
        newer = evidence.to_json().replace('"version":2', '"version":3', 1)
        with pytest.raises(EvidenceError, match="version 3"):
            evidence_from_json(newer)

    def test_damaged_evidence_is_refused(self, evidence: Evidence) -> None:
        edited = evidence.to_json().replace('"lattice":', '"grid":')
        with pytest.raises(EvidenceError, match="changed after it was written"):
            evidence_from_json(edited)
        with pytest.raises(EvidenceError, match="damaged"):
            evidence_from_json(json.dumps(seal(json.loads(edited))))

    def test_missing_files(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="No such file"):
            load_evidence(tmp_path / "none.json")
        with pytest.raises(DataError, match="No such file"):
            load_result(tmp_path / "none.json")

    @pytest.mark.parametrize(
        "change", [{"marginal_level": 0.0}, {"conditional_level": 1.0}, {"largest_order": 6}, {"redraws": -1}]
    )
    def test_settings_out_of_range(self, change: dict[str, float]) -> None:
        with pytest.raises(MethodError, match="choose"):
            SearchSettings(**change)

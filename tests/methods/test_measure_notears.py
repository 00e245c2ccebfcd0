"""`measure-notears`: one release, every search for free, and exact NOTEARS as its paper calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.column import Boolean, Numeric, Ordinal
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.evidence.moments import MomentEvidence
from dagveil.examples.networks import gaussian_schema, random_linear_gaussian, sample_linear_gaussian
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure_notears
from dagveil.papers import zheng2018
from dagveil.papers.publication import PublishedAccess
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.release import NoisyCounts, NoisyMagnitudes, NoisyMoments
from dagveil.progress import silent
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.result import load_result
from dagveil.runs.search import search_evidence
from dagveil.search.score.notears import Acyclicity, NotearsSettings, find_weights, weights_to_dag
from dagveil.search.settings import SearchRule, SearchSettings

SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 0}
QUICK = SearchSettings(redraws=3)
every_rule = pytest.mark.parametrize("rule", SearchRule)
KNOWLEDGE = Knowledge(
    tiers=(("x4", "x3"), ("x1", "x2", "x5")),
    forbidden=frozenset({("x1", "x2"), ("x2", "x1")}),
    required=frozenset({("x4", "x5")}),
)


def make_table(rows: int = 5000, **facts: Any) -> tuple[MemoryTable, np.ndarray]:
    model = random_linear_gaussian(5, 0.4, np.random.default_rng(0))
    sample = sample_linear_gaussian(model, rows, np.random.default_rng(1))
    schema = msgspec.structs.replace(gaussian_schema(model, rows), **facts)
    return MemoryTable.from_source(dict(zip(schema.columns, sample.T, strict=True)), schema), sample


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    table, _ = make_table()
    return measure_source(table, table.schema, 2, method="measure-notears", **SEEDED)


@pytest.fixture(scope="module")
def mixed() -> MemoryTable:
    """Return a chain low/middle/high → weight → ill, with rare scores."""
    rng = np.random.default_rng(0)
    size = rng.integers(0, 3, 6000)
    weight = np.array([-2.0, 0.0, 5.0])[size] + rng.normal(0, 2, 6000)
    ill = weight + rng.normal(0, 3, 6000) > 1.0
    schema = Schema(
        dataset="mixed",
        columns={
            "size": Ordinal(("low", "middle", "high"), "low", scores=(-2.0, 0.0, 5.0)),
            "weight": Numeric((-20, 20), center=1, spread=3.5),
            "ill": Boolean("false"),
        },
        reviewed=True,
        nominal_rows=6000,
    )
    names = np.array(["low", "middle", "high"])[size]
    return MemoryTable.from_source({"size": names, "weight": weight, "ill": ill}, schema)


class TestRelease:
    def test_numbers_need_moments_only(self, evidence: Evidence) -> None:
        (release,) = evidence.releases
        assert isinstance(release, NoisyMoments)
        assert len(evidence.receipt.events) == 1

    def test_levels_rows_and_sizes(self, mixed: MemoryTable) -> None:
        schema = msgspec.structs.replace(
            mixed.schema, nominal_rows=None, columns={**mixed.schema.columns, "weight": Numeric((-20, 20))}
        )
        rows = {"size": ["low", "high"] * 500, "weight": [1.0, 2.0] * 500, "ill": [True, False] * 500}
        ledger = MemoryLedger()
        found = measure_source(rows, schema, 1, method="measure-notears", ledger=ledger, noise=NoiseKind.EXACT)
        kinds = [type(release) for release in found.releases]
        assert kinds == [NoisyCounts, NoisyCounts, NoisyCounts, NoisyMagnitudes, NoisyMoments]
        assert sum(stage.share for stage in found.plan) == pytest.approx(1.0)
        assert any("public scores" in finding for finding in found.findings)
        assert ledger.account("mixed").spent_epsilon == 1
        assert found.receipt.guaranteed
        moments = found.releases[-1]
        assert isinstance(moments, NoisyMoments)
        assert moments.columns == tuple(schema.columns)

    def test_rare_levels_do_not_reach_far(self) -> None:
        column = Boolean("false")
        center, spread = measure_notears.widen_levels(column, 0.01, 0.0995)
        assert center == 0.01
        assert max(abs(number - center) for number in column.numbers) / spread == pytest.approx(2.0)
        assert measure_notears.widen_levels(column, 0.5, 0.5) == (0.5, 0.8)

    def test_what_is_charged_fits(self, mixed: MemoryTable) -> None:
        found = measure_source(mixed, mixed.schema, 1, method="measure-notears", noise=NoiseKind.EXACT, ledger=None)
        spent, total = float_of(found.receipt.accounting_spent), float_of(found.receipt.accounting_total)
        assert 0.98 * total < spent <= total


def float_of(text: str) -> float:
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)


class TestSearches:
    @every_rule
    def test_every_rule_is_free(self, rule: SearchRule, evidence: Evidence) -> None:
        found = search_evidence(evidence, SearchSettings(search=rule, redraws=3))
        assert found.method.settings["search"] == rule.value
        assert found.receipt == evidence.receipt
        truth = {frozenset(pair) for pair in (("x3", "x4"), ("x1", "x3"), ("x1", "x4"), ("x1", "x2"))}
        assert len(truth ^ found.graph.cpdag.skeleton()) <= 2

    def test_notears_is_the_default(self, evidence: Evidence) -> None:
        default = search_evidence(evidence, QUICK)
        assert default.method.settings["search"] == "notears"
        named = search_evidence(evidence, SearchSettings(search=SearchRule.NOTEARS, redraws=3))
        assert default.graph == named.graph

    @every_rule
    def test_json_is_searched_alike(self, rule: SearchRule, evidence: Evidence) -> None:
        settings = SearchSettings(search=rule, redraws=0)
        again = evidence_from_json(evidence.to_json())
        assert search_evidence(again, settings).graph == search_evidence(evidence, settings).graph

    @every_rule
    def test_knowledge_is_obeyed(self, rule: SearchRule, evidence: Evidence) -> None:
        graph = search_evidence(evidence, SearchSettings(search=rule, redraws=0), knowledge=KNOWLEDGE).graph.cpdag
        assert ("x4", "x5") in graph.directed
        assert frozenset(("x1", "x2")) not in graph.skeleton()
        assert all(KNOWLEDGE.allows(*arc) for arc in graph.directed)

    @every_rule
    def test_levels_take_part_by_their_scores(self, rule: SearchRule, mixed: MemoryTable) -> None:
        found = measure_source(mixed, mixed.schema, 5, method="measure-notears", **SEEDED)
        assert isinstance(found.independence(), MomentEvidence)
        graph = search_evidence(found, SearchSettings(search=rule, redraws=0)).graph.cpdag
        assert frozenset(("size", "weight")) in graph.skeleton()
        assert frozenset(("weight", "ill")) in graph.skeleton()

    def test_weak_edges_between_levels_are_found(self, sampled: Any) -> None:
        """Correlations of 0.03 to 0.1, far below what a threshold on weights would let through."""
        table = sampled("cancer", 100_000)
        found = measure_source(table, table.schema, 5, method="measure-notears", **SEEDED)
        graph = search_evidence(found, SearchSettings(redraws=0)).graph.cpdag
        assert graph.skeleton() == {frozenset(("Cancer", name)) for name in ("Pollution", "Smoker", "Xray", "Dyspnoea")}

    def test_moments_of_measure_will_do(self) -> None:
        table, _ = make_table()
        found = measure_source(table, table.schema, 2, **SEEDED)
        result = search_evidence(found, SearchSettings(search=SearchRule.NOTEARS, redraws=0))
        assert result.method.settings["search"] == "notears"
        assert len(result.graph.edges) >= 3

    @every_rule
    @pytest.mark.filterwarnings("error")
    def test_drowned_in_noise_it_still_ends(self, rule: SearchRule) -> None:
        """Noise far above the variances: neither they nor what is redrawn from them may turn negative."""
        table, _ = make_table(50)
        found = measure_source(table, table.schema, 0.01, method="measure-notears", **SEEDED)
        tests = found.independence()
        assert isinstance(tests, MomentEvidence)
        rng = np.random.default_rng(0)
        assert all((np.diag(tests.covariance.redraw(rng).matrix) > 0.0).all() for _ in range(50))
        search_evidence(found, SearchSettings(search=rule, redraws=20))

    @pytest.mark.parametrize("plan", ["joint", "pairs"])
    def test_tables_are_refused_with_a_next_step(self, plan: str, sampled: Any) -> None:
        table = sampled("cancer", 1000)
        found = measure_source(table, table.schema, 1, options={"plan": plan}, **SEEDED)
        with pytest.raises(EvidenceError, match=r"no second moments.* --method measure-notears, or search it by tests"):
            search_evidence(found, SearchSettings(search=SearchRule.NOTEARS))


class TestExact:
    def publish(self, table: MemoryTable, publish_method: Any, **options: Any) -> Any:
        return publish_method("measure-notears", table, 1, **options)

    @pytest.mark.parametrize("acyclicity", Acyclicity)
    def test_it_is_notears_on_the_rows(self, acyclicity: Acyclicity, publish_method: Any) -> None:
        table, sample = make_table()
        covariance = np.cov(sample, rowvar=False, bias=True)
        weights = find_weights(covariance, NotearsSettings(penalty=0.1, acyclicity=acyclicity))
        columns = tuple(table.schema.columns)
        arcs = frozenset((columns[i], columns[j]) for i, j in weights_to_dag(weights, 0.3))
        assert arcs
        asked = self.publish(table, publish_method, acyclicity=acyclicity.value)
        assert asked.graph == Dag(columns, arcs).cpdag()
        assert asked.reported is None
        assert asked.questions == 1

    def test_no_noise_is_drawn(self) -> None:
        class Silent:
            def __getattr__(self, name: str) -> Any:
                raise AssertionError(f"{name} was drawn")

        table, _ = make_table(500)
        access = PublishedAccess(table, Silent())  # type: ignore[arg-type]
        budget = Budget.of(1, 0)
        asked = zheng2018.publish_notears(access, budget, Knowledge.none(), zheng2018.ExactNotearsSettings(), silent)
        assert any("without noise" in finding for finding in asked.findings)

    def test_knowledge_is_obeyed(self, publish_method: Any) -> None:
        table, _ = make_table()
        graph = self.publish(table, publish_method, knowledge=KNOWLEDGE).graph
        assert ("x4", "x5") in graph.directed
        assert frozenset(("x1", "x2")) not in graph.skeleton()
        assert all(KNOWLEDGE.allows(*arc) for arc in graph.directed)

    @pytest.mark.parametrize("rule", zheng2018.NotearsRule)
    def test_an_empty_table(self, rule: zheng2018.NotearsRule) -> None:
        table, _ = make_table()
        empty = MemoryTable.from_source({name: np.zeros(0) for name in table.schema.columns}, table.schema)
        options = {"rule": rule.value}
        result = discover(
            empty,
            table.schema,
            1,
            method="measure-notears",
            calibration=Calibration.PAPER,
            options=options,
            ledger=None,
        )
        assert result.graph.edges == ()

    def test_the_rule_of_the_noise_is_a_ceiling_on_levels(self, publish_method: Any, sampled: Any) -> None:
        """Effects of levels are small in the units of the data: as published they stay below the threshold."""
        table = sampled("cancer", 100_000)
        truth = {frozenset(("Cancer", name)) for name in ("Pollution", "Smoker", "Xray", "Dyspnoea")}
        assert self.publish(table, publish_method).graph.skeleton() == frozenset()
        assert self.publish(table, publish_method, rule="noise").graph.skeleton() == truth

    def test_the_rule_of_the_noise_obeys_knowledge(self, publish_method: Any) -> None:
        table, _ = make_table()
        graph = self.publish(table, publish_method, rule="noise", knowledge=KNOWLEDGE).graph
        assert ("x4", "x5") in graph.directed
        assert all(KNOWLEDGE.allows(*arc) for arc in graph.directed)


def test_from_the_command_line(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.sqlite")

    def run(*words: str) -> str:
        done = CliRunner(env={"DAGVEIL_LEDGER": ledger}).invoke(group, list(words))
        assert done.exit_code == 0, done.output
        return done.output

    rows, schema, out = (str(tmp_path / name) for name in ("rows.csv", "rows.toml", "out"))
    run("sample", "cancer", "--rows", "500", "--seed", "1", "-o", rows)
    run(
        "discover",
        rows,
        "--schema",
        schema,
        "--epsilon",
        "1",
        "--method",
        "measure-notears",
        "--redraws",
        "2",
        "-o",
        out,
    )
    before = run("budget", "show")
    for rule in SearchRule:
        again = str(tmp_path / rule.value)
        output = run("discover", f"{out}/evidence.json", "--search", rule.value, "--redraws", "2", "-o", again)
        assert "This search cost nothing" in output
        result = load_result(tmp_path / rule.value / "result.json")
        assert (result.method.name, result.method.settings["search"]) == ("measure-notears", rule.value)
    assert run("budget", "show") == before
    run("measure", rows, "--schema", schema, "--epsilon", "1", "-o", f"{out}/tables.json")
    done = CliRunner(env={"DAGVEIL_LEDGER": ledger}).invoke(
        group, ["discover", f"{out}/tables.json", "--search", "notears", "-o", out]
    )
    assert done.exit_code == 2
    assert "--method measure-notears" in done.stderr

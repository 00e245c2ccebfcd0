"""The loop of `measure`: chosen pairs, what is filled in between them, copies of columns, and the search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema, save_schema
from dagveil.errors import EvidenceError, MethodError
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.evidence.implied import implied_blocks
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.events import DiscreteGaussian, ExponentialChoice
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyInteractions
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchRule, SearchSettings

SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 1}
QUICK = SearchSettings(redraws=0)


def sample(name: str, rows: int, seed: int = 0, **facts: Any) -> tuple[MemoryTable, Dag]:
    network = load_network(name)
    schema = msgspec.structs.replace(network_schema(network, rows), **facts)
    return MemoryTable.from_codes(sample_codes(network, rows, np.random.default_rng(seed)), schema), network.dag()


def measure(table: MemoryTable, epsilon: float, plan: str = "loop", **more: Any) -> Evidence:
    return measure_source(table, table.schema, epsilon, "1e-6", options={"plan": plan}, **SEEDED, **more)


def joined(evidence: Evidence, size: int = 2) -> set[frozenset[str]]:
    sets = [release.columns for release in evidence.releases if isinstance(release, NoisyInteractions)]
    return {frozenset(columns) for columns in sets if len(columns) == size}


@pytest.fixture(scope="module")
def child() -> tuple[Evidence, Dag]:
    table, dag = sample("child", 20_000)
    return measure(table, 1), dag


def test_the_loop_finds_the_graph_with_a_part_of_the_pairs(child: tuple[Evidence, Dag]) -> None:
    evidence, dag = child
    true, found = dag.cpdag().skeleton(), search_evidence(evidence, QUICK).graph.cpdag.skeleton()
    assert len(joined(evidence)) < 0.6 * 190
    assert 2 * len(true & found) / (len(true) + len(found)) > 0.9
    assert any("chosen privately" in finding for finding in evidence.findings)


def test_what_was_not_measured_is_never_an_edge_and_never_returns(child: tuple[Evidence, Dag]) -> None:
    evidence, _ = child
    result = search_evidence(evidence, SearchSettings(redraws=5))
    seen = {frozenset((edge.source, edge.target)) for edge in result.graph.edges}
    seen |= {frozenset((miss.source, miss.target)) for miss in result.near_misses}
    assert seen <= joined(evidence)


def test_choices_and_noise_are_charged_and_never_more_than_all(child: tuple[Evidence, Dag]) -> None:
    evidence, _ = child
    kinds = [type(event) for event in evidence.receipt.events]
    assert kinds.count(ExponentialChoice) == 5
    assert kinds.count(DiscreteGaussian) == 7
    assert evidence_from_json(evidence.to_json()) == evidence  # its receipt is priced anew


def test_evidence_whose_triple_lacks_a_pair_is_refused(child: tuple[Evidence, Dag]) -> None:
    evidence, _ = child
    triple = next(iter(joined(evidence, 3)))
    kept = tuple(
        release
        for release in evidence.releases
        if not isinstance(release, NoisyInteractions) or len(release.columns) != 2 or not set(release.columns) <= triple
    )
    with pytest.raises(EvidenceError, match="lacks its margins"):
        evidence_from_json(msgspec.structs.replace(evidence, releases=kept).to_json())


def test_knowledge_keeps_pairs_out_of_the_choices() -> None:
    table, dag = sample("child", 5_000)
    forbidden = [(a, b) for a, b in dag.edges if a == "Disease"]
    knowledge = Knowledge(forbidden=frozenset(arc for a, b in forbidden for arc in ((a, b), (b, a))))
    evidence = measure(table, 1, knowledge=knowledge)
    assert joined(evidence).isdisjoint(frozenset(arc) for arc in forbidden)


def test_replaced_records_have_a_loop_of_their_own_price() -> None:
    table, dag = sample("child", 20_000, relation="replace-one")
    found = search_evidence(measure(table, 2), QUICK).graph.cpdag.skeleton()
    assert len(found & dag.cpdag().skeleton()) > 15


@pytest.mark.parametrize(
    ("name", "rows", "epsilon", "loops"),
    [("alarm", 20_000, 1, True), ("child", 100_000, 10, False), ("sachs", 1_000_000, 10, False)],
)
def test_the_plan_follows_from_budget_rows_and_columns(name: str, rows: int, epsilon: float, loops: bool) -> None:
    table, _ = sample(name, rows)
    stages = [stage.stage for stage in measure(table, epsilon, "auto").plan]
    assert ("chosen pairs" in stages) == loops
    assert ("all pairs" in stages) != loops


def test_a_chain_implies_the_product_of_its_links() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 50_000)
    b = np.where(rng.random(50_000) < 0.8, a, 1 - a)
    c = np.where(rng.random(50_000) < 0.8, b, 1 - b)
    columns = {name: Categorical(levels=("no", "yes")) for name in "abc"}
    schema = Schema(dataset="chain", columns=columns, reviewed=True, nominal_rows=50_000)
    table = MemoryTable.from_codes({"a": a, "b": b, "c": c}, schema)
    knowledge = Knowledge(forbidden=frozenset({("a", "c"), ("c", "a")}))
    evidence = measure(table, 10, "pairs", knowledge=knowledge).independence()
    assert isinstance(evidence, PairEvidence)
    covariance = evidence.covariance
    assert not covariance.measured[0, 2]
    assert covariance.blocks[0, 2, 0, 0] == pytest.approx(0.36, abs=0.02)
    assert not evidence.answers(Questions.of([(0, 2, ())])).any()
    assert evidence.answers(Questions.of([(0, 1, (2,))])).all()


def test_a_model_stays_a_covariance_whatever_noise_says(child: tuple[Evidence, Dag]) -> None:
    evidence = child[0].independence()
    assert isinstance(evidence, PairEvidence)
    rng = np.random.default_rng(0)
    c = evidence.covariance
    noisy = c.blocks + np.where(c.measured[:, :, None, None], rng.normal(0.0, 0.5, c.blocks.shape), 0.0)
    contradicting = PairEvidence(replace(c, blocks=(noisy + noisy.transpose(1, 0, 3, 2)) / 2))
    for first in (None, 0, 7):
        blocks = implied_blocks(contradicting, first)
        d, m = len(c.columns), blocks.shape[2]
        flat = blocks.transpose(0, 2, 1, 3).reshape(d * m, d * m)
        np.testing.assert_allclose(flat, flat.T, atol=1e-12)
        assert np.linalg.eigvalsh(flat)[0] > -1e-9


def test_copies_are_named_and_one_of_them_keeps_the_edges() -> None:
    """Two copies of a hub: every test given one of them is void for the other, and cut the hub off before."""
    rng = np.random.default_rng(4)
    rows = 50_000
    hub = rng.integers(0, 3, rows)
    codes = {"hub": hub, "twin": (hub + 1) % 3}
    for k in range(4):
        codes[f"child{k}"] = np.where(rng.random(rows) < 0.7, hub, rng.integers(0, 3, rows))
    columns = {name: Categorical(levels=("x", "y", "z")) for name in codes}
    schema = Schema(dataset="copies", columns=columns, reviewed=True, nominal_rows=rows)
    evidence = measure(MemoryTable.from_codes(codes, schema), 10, "pairs")
    result = search_evidence(evidence, QUICK)
    found = result.graph.cpdag.skeleton()
    assert found == {frozenset(("hub", name)) for name in codes if name != "hub"}
    assert any("hub and twin carry the same information" in finding for finding in result.findings)


def test_auto_says_what_it_went_by(child: tuple[Evidence, Dag]) -> None:
    result = search_evidence(child[0], QUICK)
    assert result.method.settings["search"] == "auto"
    assert any("The search went by tests" in finding for finding in result.findings)
    tested = search_evidence(child[0], SearchSettings(redraws=0, search=SearchRule.TESTS)).graph.cpdag
    assert tested.skeleton() <= result.graph.cpdag.skeleton()


def test_columns_with_more_levels_than_tests_keep_are_named() -> None:
    rng = np.random.default_rng(5)
    many = tuple(f"v{k}" for k in range(20))
    columns = {"many": Categorical(levels=many), "few": Categorical(levels=("no", "yes"))}
    schema = Schema(dataset="wide", columns=columns, reviewed=True, nominal_rows=5000)
    codes = {"many": rng.integers(0, 20, 5000), "few": rng.integers(0, 2, 5000)}
    evidence = measure(MemoryTable.from_codes(codes, schema), 10, "pairs")
    (told,) = [finding for finding in search_evidence(evidence, QUICK).findings if "levels of" in finding]
    assert "many (12 of 21)" in told
    assert "few" not in told  # its empty level for other values is merged, and nothing is lost by that


def test_the_command_line_takes_the_plan(tmp_path: Any) -> None:
    table, _ = sample("asia", 2_000)
    rows = tmp_path / "rows.csv"
    levels = {name: np.array(column.levels) for name, column in table.schema.columns.items()}  # type: ignore[union-attr]
    codes = sample_codes(load_network("asia"), 2_000, np.random.default_rng(0))
    lines = [",".join(codes), *(",".join(row) for row in zip(*(levels[n][codes[n]] for n in codes), strict=True))]
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    save_schema(table.schema, tmp_path / "schema.toml")
    call = ["discover", str(rows), "--schema", str(tmp_path / "schema.toml"), "--epsilon", "1", "--delta", "1e-6"]
    call += ["--set", "plan=loop", "--redraws", "0", "--ledger", str(tmp_path / "ledger.sqlite"), "-o", str(tmp_path)]
    done = CliRunner().invoke(group, call)
    assert done.exit_code == 0, done.output
    assert "chosen pairs" in (tmp_path / "evidence.json").read_text(encoding="utf-8")


def test_triples_leave_out_pairs_that_knowledge_excludes() -> None:
    """Such a pair is filled in, so that sets may hold it; but no three-way interaction can be put together with it."""
    table, dag = sample("child", 100_000)
    arcs = sorted(dag.edges)[::3]
    knowledge = Knowledge(forbidden=frozenset(arc for a, b in arcs for arc in ((a, b), (b, a))))
    evidence = measure(table, 10, "pairs", knowledge=knowledge)
    excluded = {frozenset(arc) for arc in arcs}
    assert joined(evidence, 3)
    assert not any(pair <= triple for pair in excluded for triple in joined(evidence, 3))
    assert evidence_from_json(evidence.to_json()) == evidence
    assert search_evidence(evidence, QUICK, knowledge=knowledge).graph.cpdag.skeleton().isdisjoint(excluded)


def test_an_option_that_no_run_has_is_refused() -> None:
    table, _ = sample("asia", 100)
    with pytest.raises(MethodError, match="no option settings"):
        measure_source(table, table.schema, 1, settings={"plan": "loop"}, **SEEDED)  # type: ignore[call-arg]


@pytest.mark.parametrize("plan", ["loop", "auto"])
def test_knowledge_that_splits_the_columns_leaves_enough_for_the_last_round(plan: str) -> None:
    """A forest of several trees has fewer edges than columns less one: rounds are paid for what they were asked."""
    rng = np.random.default_rng(6)
    names = [f"c{k:02}" for k in range(20)]
    columns = {name: Categorical(levels=("no", "yes")) for name in names}
    schema = Schema(dataset="parts", columns=columns, reviewed=True, nominal_rows=2000)
    table = MemoryTable.from_codes({name: rng.integers(0, 2, 2000) for name in names}, schema)
    across = [(a, b) for a in names[:6] for b in names[6:]] + [("c00", name) for name in names[1:6]]
    knowledge = Knowledge(forbidden=frozenset(arc for a, b in across for arc in ((a, b), (b, a))))
    evidence = measure(table, 1, plan, knowledge=knowledge)
    assert any(stage.stage == "chosen pairs" for stage in evidence.plan)
    assert sum(stage.share for stage in evidence.plan) <= 1.0

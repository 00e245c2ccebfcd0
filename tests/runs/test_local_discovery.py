"""Discovery on reports: the graph behind the channel, the receipt, the blind comparison, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dagveil.data.column import Categorical, Numeric, Ordinal
from dagveil.data.schema import Schema
from dagveil.errors import DataError, MethodError
from dagveil.files import decode_json
from dagveil.graphs.knowledge import Knowledge
from dagveil.graphs.pag import Mark
from dagveil.local.device import NOT_PRIVATE, Device
from dagveil.local.pairwise import PairRule
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Form, Mechanism, Protocol
from dagveil.local.reports import report_score
from dagveil.local.store import label_reports
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import Receipt, Trust
from dagveil.report.html import render_report
from dagveil.report.model import build_model
from dagveil.runs.local import (
    Algorithm,
    ReportTests,
    Sight,
    direct_report_pairs,
    discover_reports,
    find_report_pag,
    level_scores,
    read_reports,
    report_evidence,
)
from dagveil.runs.result import Result, result_from_json
from dagveil.search.settings import SearchRule, SearchSettings

QUICK = SearchSettings(redraws=2)
SCHEMA = Schema(
    dataset="survey",
    reviewed=True,
    unit="one person",
    columns={name: Ordinal(("low", "middle", "high"), outside="low") for name in ("x", "y", "z", "w")},
)
CHAIN = {frozenset("xz"), frozenset("yz"), frozenset("wy")}
"""x ← z → y → w."""


def draw_rows(n: int) -> np.ndarray:
    rng = np.random.default_rng(4)

    def follow(cause: np.ndarray) -> np.ndarray:
        return np.where(rng.random(n) < 0.75, cause, rng.integers(0, 3, n))

    z = rng.integers(0, 3, n)
    x, y = follow(z), follow(z)
    return np.stack([x, y, z, follow(y)], axis=1)


def collect(mechanism: Mechanism, form: Form = Form.COMPONENT_WISE, n: int = 40_000) -> tuple[Protocol, pa.Table]:
    protocol = plan_protocol(SCHEMA, mechanism, form, truth=0.25)
    reports = protocol.channel.report(draw_rows(n), noise_source(NoiseKind.SEEDED, 1))
    return protocol, label_reports(reports, protocol)


def skeleton(result: Result) -> set[frozenset[str]]:
    return {frozenset((edge.source, edge.target)) for edge in result.graph.edges}


CASES = [
    (Mechanism.RESPONSE, Form.COMPONENT_WISE),
    (Mechanism.GEOMETRIC, Form.COMPONENT_WISE),
    (Mechanism.RESPONSE, Form.COMBINED),
]


@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each is not Algorithm.FCI])
@pytest.mark.parametrize("tests", list(ReportTests))
@pytest.mark.parametrize(("mechanism", "form"), CASES)
def test_the_graph_behind_the_channel_is_found(
    mechanism: Mechanism, form: Form, tests: ReportTests, algorithm: Algorithm
) -> None:
    protocol, reports = collect(mechanism, form)
    settings = SearchSettings(redraws=0)
    result = discover_reports(reports, protocol, settings, tests=tests, algorithm=algorithm)
    assert skeleton(result) == CHAIN
    assert result.method.settings["algorithm"] == algorithm.value


@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each is not Algorithm.FCI])
def test_no_algorithm_that_is_blind_finds_the_graph(algorithm: Algorithm) -> None:
    protocol, reports = collect(Mechanism.RESPONSE)
    found = discover_reports(
        reports, protocol, SearchSettings(redraws=0), algorithm=algorithm, tests=ReportTests.LINEAR, sight=Sight.BLIND
    )
    assert skeleton(found) != CHAIN


@pytest.mark.parametrize(("mechanism", "form"), [*CASES, (Mechanism.GEOMETRIC, Form.COMBINED)])
def test_the_updated_law_is_searched_whatever_the_mechanism(mechanism: Mechanism, form: Form) -> None:
    protocol, reports = collect(mechanism, form)
    found = discover_reports(reports, protocol, QUICK, sight=Sight.UPDATED)
    assert skeleton(found) >= CHAIN
    assert any("likeliest law" in finding for finding in found.findings)
    assert found.method.settings["channel"] == "undone by IBU"


@pytest.mark.parametrize(("mechanism", "form"), CASES)
def test_fci_finds_a_partial_ancestral_graph(mechanism: Mechanism, form: Form, tmp_path: Path) -> None:
    protocol, reports = collect(mechanism, form)
    found = find_report_pag(reports, protocol, QUICK)
    assert found.graph.skeleton() == CHAIN
    assert all(mark is Mark.CIRCLE for edge in found.edges for mark in edge[2:])
    assert len(found.confidence) == 3
    found.save(tmp_path / "pag.json")
    saved = msgspec.json.decode((tmp_path / "pag.json").read_bytes())
    assert [tuple(edge) for edge in saved["edges"]] == [(*edge[:2], "circle", "circle") for edge in found.edges]


def test_fci_sees_that_a_common_cause_is_hidden() -> None:
    """x → y ← h → z ← w without h: y and z have two arrowheads."""
    rng = np.random.default_rng(7)
    x, hidden, w = rng.integers(0, 3, (3, 60_000))
    mixed = [
        np.clip(side + hidden - 1 + rng.integers(-1, 2, len(x)) * (rng.random(len(x)) < 0.3), 0, 2) for side in (x, w)
    ]
    protocol = plan_protocol(SCHEMA, Mechanism.RESPONSE, Form.COMPONENT_WISE, truth=0.4)
    codes = np.stack([x, mixed[0], mixed[1], w], axis=1)
    reports = label_reports(protocol.channel.report(codes, noise_source(NoiseKind.SEEDED, 1)), protocol)
    found = find_report_pag(reports, protocol, SearchSettings(redraws=0)).graph
    assert found.mark("y", "z") is found.mark("z", "y") is Mark.ARROW


@pytest.mark.parametrize("rule", [PairRule.RECI, PairRule.ANM])
@pytest.mark.parametrize(("mechanism", "form"), [*CASES, (Mechanism.GEOMETRIC, Form.COMBINED)])
def test_rules_for_pairs_see_through_the_channel(mechanism: Mechanism, form: Form, rule: PairRule) -> None:
    rng = np.random.default_rng(3)
    cause = rng.uniform(-1.0, 1.0, 20_000)
    effect = cause**2 + rng.normal(0.0, 0.1, len(cause))
    column = Numeric(bounds=(-1.4, 1.4), bins=12)
    schema = Schema(dataset="pair", reviewed=True, unit="one person", columns={"effect": column, "cause": column})
    protocol = plan_protocol(schema, mechanism, form, truth=0.2)
    codes = np.stack([np.clip(((side + 1.4) / 2.8 * 12).astype(int), 0, 11) for side in (effect, cause)], axis=1)
    reports = label_reports(protocol.channel.report(codes, noise_source(NoiseKind.SEEDED, 1)), protocol)
    (pair,) = direct_report_pairs(reports, protocol, rule).pairs
    assert (pair.first, pair.second, pair.cause) == ("effect", "cause", "cause")
    blind = direct_report_pairs(reports, protocol, rule, sight=Sight.BLIND)
    assert abs(blind.pairs[0].score) < abs(pair.score)
    with pytest.raises(MethodError, match="choose ibu, or --blind"):
        direct_report_pairs(reports, protocol, rule, sight=Sight.AWARE)


def test_a_blind_search_finds_edges_that_do_not_exist_and_says_that_it_is_blind() -> None:
    protocol, reports = collect(Mechanism.RESPONSE)
    aware = discover_reports(reports, protocol, QUICK)
    blind = discover_reports(reports, protocol, QUICK, sight=Sight.BLIND)
    assert skeleton(blind) > CHAIN
    assert blind.method.name == "local, blind"
    assert blind.method.settings["channel"] == "ignored"
    assert any(finding.startswith("BLIND") for finding in blind.findings)
    assert "BLIND" in render_report(build_model(blind))
    assert not any("BLIND" in finding for finding in aware.findings)
    # the privacy is the same: only the tests are worse
    assert blind.receipt == aware.receipt


def test_the_receipt_states_local_privacy_and_the_report_says_it() -> None:
    protocol, reports = collect(Mechanism.GEOMETRIC, n=2000)
    result = discover_reports(reports, protocol, QUICK)
    receipt = result.receipt
    assert receipt.guaranteed
    assert receipt.trust is Trust.NOBODY
    assert float(Fraction(receipt.epsilon)) == protocol.epsilon
    assert receipt.delta == "0"
    words = " ".join(receipt.words())
    for part in (
        "randomised before leaving the person; nobody need be trusted",
        "per record, delta 0",
        "Per person: epsilon",
        "Repeated reports add up",
        "the number of reports, 2000",
        "which of two values one record has",
    ):
        assert part in words
    assert "is in the table" not in words
    page = render_report(build_model(result))
    assert "nobody need be trusted" in page
    assert "does not add up" not in page
    assert result_from_json(result.to_json()) == result
    # a receipt of before: it names nobody
    old = receipt.to_json().replace(b',"trust":"nobody"', b"")
    assert decode_json(old, Receipt).trust is Trust.CURATOR


def test_seeded_reports_promise_nothing() -> None:
    device = Device(plan_protocol(SCHEMA, Mechanism.RESPONSE, epsilon=8.0), noise_source(NoiseKind.SEEDED, 1))
    rows = [device.randomise({"x": "low", "y": "high", "z": "low", "w": "middle"}) for _ in range(30)]
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    assert NOT_PRIVATE in table.column_names
    result = discover_reports(table, device.protocol, QUICK)
    assert not result.receipt.guaranteed
    assert "not private" in render_report(build_model(result))


def test_knowledge_of_the_schema_and_of_the_analyst() -> None:
    protocol, reports = collect(Mechanism.RESPONSE)
    knowledge = Knowledge((("z",), ("x", "y"), ("w",)), frozenset(), frozenset())
    result = discover_reports(reports, protocol, SearchSettings(redraws=0), knowledge=knowledge)
    assert {(edge.source, edge.target) for edge in result.graph.edges} == {("z", "x"), ("z", "y"), ("y", "w")}
    assert result.graph.family == "mpdag"
    assert any("in place of the schema's" in finding for finding in result.findings)
    assert any("background knowledge" in fact for fact in result.receipt.public_facts)


def test_what_cannot_be_discovered_is_refused_with_the_next_step(tmp_path: Path) -> None:
    combined, reports = collect(Mechanism.GEOMETRIC, Form.COMBINED, n=500)
    with pytest.raises(MethodError, match=r"needs component-wise noise or combined randomised response.*--blind"):
        discover_reports(reports, combined, QUICK)
    assert discover_reports(reports, combined, QUICK, sight=Sight.BLIND).method.name == "local, blind"
    protocol, reports = collect(Mechanism.RESPONSE, n=10)
    with pytest.raises(MethodError, match="leave search out"):
        discover_reports(reports, protocol, SearchSettings(search=SearchRule.SCORE))
    with pytest.raises(MethodError, match="call find_report_pag"):
        discover_reports(reports, protocol, algorithm=Algorithm.FCI)
    knowledge = Knowledge((("z",), ("x", "y"), ("w",)), frozenset(), frozenset())
    with pytest.raises(MethodError, match="mcmc takes no background knowledge; choose pc or ges"):
        discover_reports(reports, protocol, algorithm=Algorithm.MCMC, knowledge=knowledge)
    many = Schema(dataset="wide", reviewed=True, columns={f"c{i}": Numeric(bounds=(0, 1), bins=10) for i in range(6)})
    wide = plan_protocol(many, Mechanism.RESPONSE, epsilon=20.0)
    rows = label_reports(np.zeros((9, 6), dtype=np.int64), wide)
    with pytest.raises(MethodError, match="1000000 different records are too many for the update"):
        discover_reports(rows, wide, QUICK, sight=Sight.UPDATED)
    with pytest.raises(DataError, match="there are no reports"):
        discover_reports(reports.slice(0, 0), protocol)
    with pytest.raises(DataError, match="cannot read"):
        discover_reports(reports, tmp_path / "protocol.json")
    assert len(discover_reports(reports, protocol, QUICK).graph.nodes) == 4


def test_penalties_without_a_channel_are_those_of_bic() -> None:
    protocol, _ = collect(Mechanism.RESPONSE, n=10)
    table = label_reports(np.random.default_rng(1).integers(0, 3, (5000, 4)), protocol)
    collected = read_reports(table, protocol)
    for tests, freedom in ((ReportTests.TABLES, 4), (ReportTests.LINEAR, 1)):
        exact = report_evidence(collected, protocol, Sight.BLIND, tests)
        score = report_score(exact)
        assert score.penalties[0, 1] == pytest.approx(freedom * np.log1p(5000), rel=0.01)
        noisy = report_score(report_evidence(collected, protocol, Sight.AWARE, tests))
        assert 0.0 < noisy.penalties[0, 1] < score.penalties[0, 1]
        assert score.score(0, ()) == 0.0


def test_scores_of_levels() -> None:
    assert level_scores(Categorical(("a", "b"), outside="own-level")).tolist() == [-1.0, 1.0, 0.0]
    assert level_scores(Ordinal(("a", "b", "c"), outside="a", scores=(0, 0, 10))).tolist() == [-1.0, -1.0, 1.0]
    assert level_scores(Categorical(("a",), outside="a")).tolist() == [0.0]
    numbers = level_scores(Numeric(bounds=(-1e300, 1e300), bins=3, missing="own-level"))
    assert numbers.tolist() == pytest.approx([-1.0, 0.0, 1.0, 0.0])

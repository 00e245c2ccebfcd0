"""Results with probabilities: where they are stated, graphs of likely edges, and refusals before a charge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dagveil as dv
from dagveil.data.memory import MemoryTable
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.files import seal
from dagveil.report.html import render_report
from dagveil.report.model import build_model
from dagveil.runs.discovery import measure_source
from dagveil.runs.result import Result, result_from_json
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

SEEDED = {"ledger": None, "noise": dv.NoiseKind.SEEDED, "seed": 4}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    network = load_network("survey")
    schema = network_schema(network, 10_000)
    table = MemoryTable.from_codes(sample_codes(network, 10_000, np.random.default_rng(1)), schema)
    return measure_source(table, schema, 0.2, "1e-6", **SEEDED)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(evidence: Evidence) -> Result:
    return search_evidence(evidence)


def test_edges_and_parents_have_probabilities_that_agree(result: Result) -> None:
    parents = {(one.cause, one.effect): one.probability for one in result.parents}
    assert result.graph.edges
    for edge in result.graph.edges:
        ahead, back = parents[edge.source, edge.target], parents[edge.target, edge.source]
        assert edge.probability == pytest.approx(ahead + back)
        assert edge.forward_probability == ahead
    assert [one.probability for one in result.parents] == sorted(parents.values(), reverse=True)
    expected = sum(1 - (edge.probability or 0) for edge in result.graph.edges)
    assert result.wrong_edges == pytest.approx(expected)
    assert result_from_json(result.to_json()) == result


@pytest.mark.parametrize("least", [0.05, 0.3, 0.85, 0.97])
def test_the_graph_at_a_probability_has_all_edges_that_reach_it(
    evidence: Evidence, result: Result, least: float
) -> None:
    likely: dict[frozenset[str], float] = {}
    for one in result.parents:
        pair = frozenset((one.cause, one.effect))
        likely[pair] = likely.get(pair, 0.0) + one.probability
    cut = search_evidence(evidence, SearchSettings(edges_at=least))
    assert cut.graph.cpdag.skeleton() == {pair for pair, probability in likely.items() if probability >= least}
    assert cut.parents == result.parents
    assert cut.wrong_edges == pytest.approx(sum(1 - p for p in likely.values() if p >= least))
    assert cut.method.settings["edges_at"] == least
    if cut.graph.edges:
        assert f"with a probability of at least {least:g}" in cut.summary[0]
        assert "expected to be false" in cut.summary[0]


def test_thresholds_give_different_graphs(evidence: Evidence) -> None:
    sizes = [len(search_evidence(evidence, SearchSettings(edges_at=at)).graph.edges) for at in (0.05, 0.95)]
    assert sizes[0] > sizes[1] > 0


def test_a_run_on_rows_draws_the_same_graph_as_a_search_of_its_evidence(evidence: Evidence) -> None:
    network = load_network("survey")
    codes = sample_codes(network, 10_000, np.random.default_rng(1))
    table = MemoryTable.from_codes(codes, evidence.schema)
    settings = SearchSettings(edges_at=0.5)
    run = dv.discover(table, evidence.schema, 0.2, "1e-6", settings=settings, **SEEDED)  # type: ignore[arg-type]
    assert run.graph == search_evidence(evidence, settings).graph


def test_shares_are_no_probability_where_calibration_was_not_shown(evidence: Evidence, result: Result) -> None:
    assert "not a probability" not in result.confidence.meaning
    assert "every common cause is a column" in result.confidence.probabilities
    for settings in (SearchSettings(redraws=5), SearchSettings(hidden_causes=True), SearchSettings(marginal_level=0.1)):
        other = search_evidence(evidence, settings)
        assert "not a probability that the edge is true: " in other.confidence.meaning
        assert (other.confidence.probabilities, other.wrong_edges, other.parents) == ("", None, ())
        assert all(edge.probability is None for edge in other.graph.edges)


def test_numbers_in_bins_have_no_probabilities() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    rows = {"x": x, "y": x + rng.normal(size=3000)}
    columns = {name: dv.Numeric(bounds=(-5, 5), bins=4) for name in rows}
    schema = dv.Schema(dataset="binned", reviewed=True, nominal_rows=3000, columns=columns)
    found = dv.discover(rows, schema, 1, "1e-6", **SEEDED)  # type: ignore[arg-type]
    assert [edge.probability for edge in found.graph.edges] == [None]
    assert "probabilities were checked on tables of levels and on tables of numbers" in found.confidence.meaning


def test_a_refused_graph_of_likely_edges_charges_nothing(tmp_path: Path, evidence: Evidence) -> None:
    ledger, settings = tmp_path / "ledger.sqlite", SearchSettings(edges_at=0.9)
    rows = MemoryTable.from_codes(sample_codes(load_network("survey"), 500, np.random.default_rng(2)), evidence.schema)
    with pytest.raises(
        MethodError, match="probabilities were checked for measure, not for measure-ges; nothing was charged"
    ):
        dv.discover(
            rows, evidence.schema, 1, method="measure-ges", settings=settings, ledger=ledger, noise=dv.NoiseKind.SEEDED
        )
    assert not ledger.exists()


def test_the_report_tells_probabilities_and_what_they_assume(evidence: Evidence, result: Result) -> None:
    page = render_report(build_model(result))
    assert "every common cause is a column" in page
    assert '<th scope="col" class="number">Probability</th>' in page
    plain = render_report(build_model(search_evidence(evidence, SearchSettings(redraws=5))))
    assert '<th scope="col" class="number">Probability</th>' not in plain
    cut = render_report(build_model(search_evidence(evidence, SearchSettings(edges_at=0.97))))
    assert "their probability is below 97 % or not known" in cut


def test_a_damaged_probability_is_refused(result: Result) -> None:
    written = json.loads(result.to_json())
    written["graph"]["edges"][0]["probability"] = 1.5
    with pytest.raises(dv.DagveilError, match="the edges of this result do not fit"):
        result_from_json(json.dumps(seal(written)))

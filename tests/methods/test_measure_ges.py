"""`measure-ges`: the releases of `measure` to the bit, searched by score; either search on either's evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.memory import MemoryTable
from dagveil.errors import MethodError
from dagveil.examples.networks import gaussian_schema, random_linear_gaussian, sample_linear_gaussian
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.result import load_result
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchRule, SearchSettings

SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 3}
BY_TESTS = SearchSettings(search=SearchRule.TESTS, redraws=0)
BY_SCORE = SearchSettings(search=SearchRule.SCORE, redraws=0)
NEITHER = SearchSettings(redraws=0)


@pytest.fixture(scope="module", params=["joint", "pairs", "moments"])
def case(request: pytest.FixtureRequest, sampled: Any) -> tuple[MemoryTable, dict[str, Any]]:
    """Return a table of each kind of release, and the options that ask for it."""
    if request.param != "moments":
        return sampled("cancer", 20_000), {"plan": request.param}
    model = random_linear_gaussian(6, 0.3, np.random.default_rng(0))
    schema = gaussian_schema(model, 5000)
    sample = sample_linear_gaussian(model, 5000, np.random.default_rng(1))
    return MemoryTable.from_source(dict(zip(schema.columns, sample.T, strict=True)), schema), {}


def test_the_releases_are_those_of_measure(case: tuple[MemoryTable, dict[str, Any]]) -> None:
    table, options = case
    one, other = (
        measure_source(table, table.schema, 1, method=method, options=options, **SEEDED)
        for method in ("measure", "measure-ges")
    )
    assert one.releases == other.releases
    assert one.plan == other.plan
    assert one.receipt.events == other.receipt.events
    assert (one.method, other.method) == ("measure", "measure-ges")


def test_either_search_on_either_evidence(case: tuple[MemoryTable, dict[str, Any]]) -> None:
    table, options = case
    tested, scored = (
        measure_source(table, table.schema, 1, method=method, options=options, **SEEDED)
        for method in ("measure", "measure-ges")
    )
    assert search_evidence(tested, NEITHER).graph == search_evidence(scored, BY_TESTS).graph
    assert search_evidence(scored, NEITHER).graph == search_evidence(tested, BY_SCORE).graph
    assert search_evidence(tested, NEITHER).method.settings["search"] == "auto"
    assert search_evidence(scored, NEITHER).method.settings["search"] == "score"


@pytest.mark.parametrize("settings", [BY_TESTS, BY_SCORE], ids=["tests", "score"])
def test_knowledge_is_obeyed(settings: SearchSettings, case: tuple[MemoryTable, dict[str, Any]]) -> None:
    table, options = case
    first, second, third, *rest = table.schema.columns
    knowledge = Knowledge(
        tiers=((third,), (first, second, *rest)),
        forbidden=frozenset({(first, second), (second, first)}),
        required=frozenset({(third, rest[0])}),
    )
    evidence = measure_source(table, table.schema, 1, method="measure-ges", options=options, **SEEDED)
    graph = search_evidence(evidence, settings, knowledge=knowledge).graph.cpdag
    assert (third, rest[0]) in graph.directed
    assert frozenset((first, second)) not in graph.skeleton()
    assert all(knowledge.allows(*arc) for arc in graph.directed)


def test_confidence_comes_from_the_same_search(sampled: Any) -> None:
    table = sampled("cancer", 20_000)
    result = discover(table, table.schema, 10, method="measure-ges", settings=SearchSettings(redraws=10), **SEEDED)
    assert result.confidence.redraws == 10
    assert result.graph.edges
    assert all(edge.confidence is not None and 0.0 <= edge.confidence <= 1.0 for edge in result.graph.edges)


def test_there_is_no_paper(sampled: Any) -> None:
    table = sampled("cancer", 100)
    ledger = MemoryLedger()
    with pytest.raises(MethodError, match="measure-ges is not from a publication and has no paper calibration"):
        discover(table, table.schema, 1, method="measure-ges", calibration=Calibration.PAPER, ledger=ledger)
    assert ledger.history() == ()


def test_from_the_command_line(tmp_path: Path) -> None:
    def run(*words: str) -> None:
        done = CliRunner(env={"DAGVEIL_LEDGER": str(tmp_path / "ledger.sqlite")}).invoke(group, list(words))
        assert done.exit_code == 0, done.output

    rows, schema = str(tmp_path / "rows.csv"), str(tmp_path / "rows.toml")
    run("sample", "cancer", "--rows", "2000", "--seed", "1", "-o", rows)
    options = ("--epsilon", "1", "--redraws", "2")
    run("discover", rows, "--schema", schema, *options, "--method", "measure-ges", "-o", str(tmp_path / "ges"))
    run("discover", rows, "--schema", schema, *options, "-o", str(tmp_path / "pc"))
    run("discover", str(tmp_path / "pc" / "evidence.json"), "--search", "score", "-o", str(tmp_path / "again"))
    told = [
        (result.method.name, result.method.settings["search"])
        for result in (load_result(tmp_path / folder / "result.json") for folder in ("ges", "pc", "again"))
    ]
    assert told == [("measure-ges", "score"), ("measure", "auto"), ("measure", "score")]

"""What `import dagveil` promises: the names, and the example of the first page on every kind of table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import dagveil as dv
from dagveil.examples.networks import Network, network_schema, sample_table
from dagveil.graphs.exchange.formats import to_causal_learn
from dagveil.runs.result import ResultEdge, ResultGraph

NAMES = [
    "Agreement",
    "ArrowRule",
    "Asked",
    "AskingSettings",
    "Boolean",
    "Budget",
    "Calibration",
    "Categorical",
    "Cpdag",
    "Dag",
    "DagveilError",
    "DatabaseTable",
    "DeploymentFacts",
    "DirectionSettings",
    "Effect",
    "Engine",
    "Evidence",
    "Exploration",
    "Installation",
    "Knowledge",
    "Ledger",
    "Measured",
    "Method",
    "Needs",
    "NoiseKind",
    "Numeric",
    "Ordinal",
    "Questions",
    "Receipt",
    "Result",
    "Schema",
    "SearchRule",
    "SearchSettings",
    "SharpCase",
    "Synthetic",
    "TableEstimate",
    "TableOne",
    "ThresholdedQuestions",
    "__version__",
    "asking_filter",
    "certify",
    "check_countable",
    "check_installation",
    "check_source",
    "choose_engine",
    "combine_evidence",
    "compare_sites",
    "default_ledger",
    "discover",
    "discover_reports",
    "draft_schema",
    "effect",
    "epsilon_for",
    "explore",
    "find_bounds",
    "find_direction",
    "find_doubts",
    "load_evidence",
    "load_result",
    "load_schema",
    "measure_effect",
    "measure_planned",
    "measure_source",
    "plan_measurement",
    "plan_second_round",
    "save_schema",
    "search_evidence",
    "synthesize",
    "verify_pack",
    "write_project",
    "write_report",
]
"""Adding a name is a decision; removing or renaming one breaks the programs of others."""

N_ROWS = 20_000
QUICK = dv.SearchSettings(redraws=2)


@pytest.fixture(scope="module")
def schema(asia: Network) -> dv.Schema:
    return network_schema(asia, N_ROWS)


@pytest.fixture(scope="module")
def table(asia: Network) -> object:
    return sample_table(asia, N_ROWS, np.random.default_rng(3))


@pytest.fixture(scope="module")
def result(table: object, schema: dv.Schema) -> dv.Result:
    """Return a result with directed and undirected edges: a large budget finds nearly the whole network."""
    return dv.discover(
        table, schema, epsilon=10, delta=1e-6, settings=QUICK, noise=dv.NoiseKind.SEEDED, seed=1, ledger=None
    )


class TestNames:
    def test_the_list_is_pinned(self) -> None:
        assert dv.__all__ == NAMES
        assert dv.__all__ == sorted(dv.__all__)

    @pytest.mark.parametrize("name", NAMES)
    def test_every_name_can_be_had(self, name: str) -> None:
        assert getattr(dv, name) is not None
        assert name == "__version__" or getattr(dv, name).__doc__

    def test_other_names_are_errors(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'fit'"):
            dv.fit  # noqa: B018

    def test_everything_raised_on_purpose_has_one_root(self) -> None:
        with pytest.raises(dv.DagveilError):
            dv.Budget.of(0, 0)
        with pytest.raises(dv.DagveilError):
            dv.load_schema("nowhere.toml")


def to_pandas(table: object, _: Path) -> object:
    pytest.importorskip("pandas")
    return table.to_pandas()  # type: ignore[attr-defined]


def to_polars(table: object, _: Path) -> object:
    return pytest.importorskip("polars").from_arrow(table)


def to_dict(table: object, _: Path) -> object:
    return table.to_pydict()  # type: ignore[attr-defined]


def to_csv(table: object, folder: Path) -> object:
    from pyarrow import csv

    csv.write_csv(table, folder / "asia.csv")
    return folder / "asia.csv"


def to_parquet(table: object, folder: Path) -> object:
    from pyarrow import parquet

    parquet.write_table(table, folder / "asia.parquet")
    return str(folder / "asia.parquet")


class TestFirstExample:
    @pytest.mark.parametrize("convert", [to_pandas, to_polars, to_dict, to_csv, to_parquet])
    def test_every_kind_of_table(
        self,
        convert: Callable[[object, Path], object],
        table: object,
        schema: dv.Schema,
        result: dv.Result,
        tmp_path: Path,
    ) -> None:
        frame = convert(table, tmp_path)
        seeded = {"noise": dv.NoiseKind.SEEDED, "seed": 1}
        found = dv.discover(frame, schema, epsilon=10, delta=1e-6, settings=QUICK, **seeded)
        assert found.graph == result.graph
        assert found.receipt == result.receipt

    def test_as_the_first_page_has_it(self, schema: dv.Schema) -> None:
        """Private noise, a charge in a ledger, and nothing else to say."""
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({name: ["yes", "no"] for name in schema.columns})
        found = dv.discover(frame, schema, epsilon=1, delta=1e-6, ledger=None)
        assert set(found.graph.to_networkx().nodes) == set(schema.columns)
        assert found.receipt.guaranteed
        assert found.receipt.warnings == ()

    def test_a_ledger_is_charged(self, schema: dv.Schema, tmp_path: Path) -> None:
        ledger = dv.Ledger.open(tmp_path / "ledger.sqlite")
        ledger.set_budget(schema.dataset, dv.Budget.of(1, 1e-5))
        rows = {name: ["yes", "no"] for name in schema.columns}
        dv.discover(rows, schema, epsilon=1, delta=1e-6, ledger=ledger, noise=dv.NoiseKind.EXACT, settings=QUICK)
        assert ledger.account(schema.dataset).left is None
        with pytest.raises(dv.DagveilError, match="nothing was drawn"):
            dv.discover(rows, schema, epsilon=1, delta=1e-6, ledger=ledger)
        ledger.close()

    def test_a_schema_by_its_path(self, schema: dv.Schema, tmp_path: Path) -> None:
        dv.save_schema(schema, tmp_path / "schema.toml")
        rows = {name: ["yes", "no"] for name in schema.columns}
        for path in (tmp_path / "schema.toml", str(tmp_path / "schema.toml")):
            found = dv.discover(
                rows, path, epsilon=1, delta=1e-6, noise=dv.NoiseKind.EXACT, settings=QUICK, ledger=None
            )
            assert found.schema.digest == schema.digest()

    def test_the_steps_one_by_one(self, table: object, schema: dv.Schema, result: dv.Result, tmp_path: Path) -> None:
        assert dv.check_source(table, schema).fits
        evidence = dv.measure_source(table, schema, 10, 1e-6, noise=dv.NoiseKind.SEEDED, seed=1, ledger=None)
        evidence.save(tmp_path / "evidence.json")
        found = dv.search_evidence(dv.load_evidence(tmp_path / "evidence.json"), QUICK)
        assert found.graph == result.graph
        found.save(tmp_path / "result.json")
        assert dv.load_result(tmp_path / "result.json") == found
        dv.write_report(found, tmp_path / "report.html")
        assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_drafting(self, table: object, schema: dv.Schema) -> None:
        draft = dv.draft_schema(table)
        assert not draft.reviewed
        assert list(draft.columns) == list(schema.columns)
        with pytest.raises(dv.DagveilError, match="unreviewed"):
            dv.discover(table, draft, epsilon=1, delta=1e-6, ledger=None)


class TestExchange:
    """Graphs go to other programs by the names of columns."""

    @pytest.fixture(params=["found", "made"])
    def graph(self, request: pytest.FixtureRequest, result: dv.Result) -> ResultGraph:
        """Return the graph that was found, and one with every kind of edge and difficult names."""
        if request.param == "found":
            assert result.graph.edges
            return result.graph
        edges = (ResultEdge("a & b", 'c "quoted"', "directed", 0.5, 0.5), ResultEdge('c "quoted"', "dé", "undirected"))
        return ResultGraph(("a & b", 'c "quoted"', "dé", "alone"), "cpdag", edges)

    @pytest.fixture
    def arcs(self, graph: ResultGraph) -> set[tuple[str, str, str]]:
        """Return (source, target, kind), an undirected edge both ways."""
        edges = {(edge.source, edge.target, str(edge.kind)) for edge in graph.edges}
        return edges | {(target, source, kind) for source, target, kind in edges if kind == "undirected"}

    def test_networkx(self, graph: ResultGraph, arcs: set[tuple[str, str, str]]) -> None:
        pytest.importorskip("networkx")
        exported = graph.to_networkx()
        assert list(exported.nodes) == list(graph.nodes)
        assert set(exported.edges(data="kind")) == arcs

    def test_dot(self, graph: ResultGraph) -> None:
        text = graph.to_dot()
        assert text.startswith("digraph")
        for name in graph.nodes:
            quoted = name.replace('"', '\\"')
            assert f'label="{quoted}"' in text
        assert text.count("->") == len(graph.edges)
        assert text.count("dir=none") == sum(edge.kind == "undirected" for edge in graph.edges)

    def test_graphml(self, graph: ResultGraph, arcs: set[tuple[str, str, str]]) -> None:
        space = {"g": "http://graphml.graphdrawing.org/xmlns"}
        root = ElementTree.fromstring(graph.export("graphml"))
        assert [node.get("id") for node in root.iterfind(".//g:node", space)] == list(graph.nodes)
        found = {
            (edge.get("source"), edge.get("target"), edge.findtext("g:data", namespaces=space))
            for edge in root.iterfind(".//g:edge", space)
        }
        assert found == arcs

    def test_causal_learn(self, graph: ResultGraph) -> None:
        pytest.importorskip("causallearn", reason="causal-learn is not installed")
        exported = to_causal_learn(graph.cpdag)
        assert exported.get_node_names() == list(graph.nodes)
        found = set()
        for edge in exported.get_graph_edges():
            ends = edge.get_node1().get_name(), edge.get_node2().get_name()
            marks = edge.get_endpoint1().name, edge.get_endpoint2().name
            found |= {(ends, marks), (ends[::-1], marks[::-1])}
        wanted = set()
        for edge in graph.edges:
            marks = ("TAIL", "ARROW" if edge.kind == "directed" else "TAIL")
            wanted |= {((edge.source, edge.target), marks), ((edge.target, edge.source), marks[::-1])}
        assert found == wanted

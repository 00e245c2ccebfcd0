"""`dv.effect` and `dv.measure_effect`: answers, what they refuse, and what they charge."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import dagveil as dv
from dagveil.data.records import Reducer
from dagveil.effects.width import epsilon_for_width
from dagveil.errors import DagveilError, EvidenceError, GraphError, KnowledgeError, MethodError
from dagveil.graphs.pag import Edge, Mark, MixedGraph
from dagveil.runs.effects import epsilon_for_slope, load_discovery
from dagveil.runs.result import ResultEdge

ROWS = 20_000


def simulate(seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    """z causes x and y, x causes y: 20 points more; m is behind x, and w stands alone."""
    rng = np.random.default_rng(seed)
    z = rng.random(rows) < 0.4
    x = rng.random(rows) < np.where(z, 0.7, 0.3)
    y = rng.random(rows) < 0.2 + 0.2 * x + 0.3 * z
    m = rng.random(rows) < np.where(x, 0.8, 0.2)
    return {"z": z, "x": x, "y": y, "m": m, "w": rng.random(rows) < 0.5}


TRUTH = dv.Dag(("z", "x", "y", "m", "w"), frozenset({("z", "x"), ("z", "y"), ("x", "y"), ("x", "m")}))


def make_schema(**changes: object) -> dv.Schema:
    columns = {name: dv.Boolean(outside="false") for name in TRUTH.nodes}
    known = {"dataset": "demo", "columns": columns, "reviewed": True, "nominal_rows": ROWS}
    return dv.Schema(**(known | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def evidence() -> dv.Evidence:
    return dv.measure_source(simulate(1), make_schema(), 1, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)


@pytest.fixture(scope="module")
def result(evidence: dv.Evidence) -> dv.Result:
    return dv.search_evidence(evidence, dv.SearchSettings(redraws=5))


class TestAnswers:
    def test_the_known_graph_gives_one_interval_that_holds_the_truth(
        self, result: dv.Result, evidence: dv.Evidence
    ) -> None:
        found = dv.effect(result, "x", "y", evidence=evidence, graph=TRUTH)
        (only,) = found.possible
        assert (only.form, only.adjust) == ("table", ("z",))
        assert found.union is not None
        assert found.union.low < 0.2 < found.union.high
        assert found.union.high - found.union.low < 0.05
        assert "Setting x to true instead of false would make y = true between 1" in found.sentence
        assert "points more likely" in found.sentence
        assert any("no unmeasured column" in note for note in found.notes)
        assert any("redraws" in note for note in found.notes)
        # every level of the effect is told, and laws add up
        laws = {one.level: 0.0 for one in only.probabilities}
        for one in only.probabilities:
            assert one.estimate is not None
            laws[one.level] += one.estimate.value
        assert list(laws.values()) == pytest.approx([1.0, 1.0])

    def test_a_reading_in_which_the_effect_is_a_cause_does_nothing(
        self, result: dv.Result, evidence: dv.Evidence
    ) -> None:
        line = dv.Cpdag(TRUTH.nodes, frozenset(), frozenset({frozenset("xm")}))
        found = dv.effect(result, "x", "m", evidence=evidence, graph=line)
        assert {one.form for one in found.possible} == {"table", "nothing"}
        assert found.sentence.endswith("or nothing if m causes x.")
        assert found.union is not None
        assert found.union.low == 0.0
        assert "background knowledge" in found.settles[0]
        settled = dv.effect(
            result, "x", "m", evidence=evidence, graph=line, knowledge=dv.Knowledge(required=frozenset({("x", "m")}))
        )
        assert len(settled.possible) == 1
        assert settled.settles == ()

    def test_no_path_is_no_effect_but_no_proof_of_none(self, result: dv.Result, evidence: dv.Evidence) -> None:
        found = dv.effect(result, "w", "y", evidence=evidence, graph=TRUTH)
        assert "does nothing" in found.sentence
        assert "the evidence alone would allow anything from" in found.sentence
        assert found.union is not None
        assert (found.union.low, found.union.high) == (0.0, 0.0)

    def test_a_graph_with_hidden_causes_gives_one_answer_for_all_that_it_stands_for(
        self, result: dv.Result, evidence: dv.Evidence
    ) -> None:
        # no hidden cause stands behind x → m: an arrow comes into x from w, which is not adjacent to m
        visible = MixedGraph(
            TRUTH.nodes,
            frozenset({Edge("w", "x", Mark.CIRCLE, Mark.ARROW), Edge("x", "m", Mark.TAIL, Mark.ARROW)}),
        )
        found = dv.effect(result, "x", "m", evidence=evidence, graph=visible)
        (only,) = found.possible
        assert (only.parents, only.form) == (None, "table")
        assert found.union is not None
        assert found.union.low < 0.6 < found.union.high
        assert "unmeasured causes are allowed for" in " ".join(found.notes)
        assert not any("no unmeasured column" in note or "edraws" in note for note in found.notes)
        backwards = dv.effect(result, "m", "x", evidence=evidence, graph=visible)
        assert backwards.sentence.startswith("By this graph, changing m does nothing to x: no path leads from m to x")
        paid, _ = dv.measure_effect(
            simulate(1), make_schema(), result, "x", "m", 1, evidence=evidence, graph=visible, ledger=None
        )
        assert paid.possible[0].parents is None

    @pytest.mark.parametrize(
        ("edges", "asked", "why"),
        [
            ({Edge("x", "m", Mark.CIRCLE, Mark.CIRCLE)}, {}, "does not tell whether x causes m"),
            ({Edge("x", "m", Mark.TAIL, Mark.ARROW)}, {}, "may share an unmeasured cause"),
            ({Edge("x", "m", Mark.TAIL, Mark.TAIL)}, {}, "selected"),
            ({Edge("m", "x", Mark.TAIL, Mark.ARROW)}, {"adjust": ["z"]}, "leave out --adjust"),
            ({Edge("m", "x", Mark.TAIL, Mark.ARROW)}, {"knowledge": dv.Knowledge()}, "--hidden-causes and --knowledge"),
            ({Edge("m", "x", Mark.TAIL, Mark.ARROW)}, {"redraws": 3}, "leave out --redraws"),
        ],
    )
    def test_where_hidden_causes_forbid_an_answer_the_reason_is_told(
        self, result: dv.Result, evidence: dv.Evidence, edges: set[Edge], asked: dict[str, object], why: str
    ) -> None:
        graph = MixedGraph(TRUTH.nodes, frozenset(edges))
        with pytest.raises(MethodError, match=why):
            dv.effect(result, "x", "m", evidence=evidence, graph=graph, **asked)  # type: ignore[arg-type]

    def test_pairs_alone_give_the_additive_form_and_an_offer(self, result: dv.Result) -> None:
        schema = make_schema(forbidden=(("w", "x"), ("x", "w")))
        pairs = dv.measure_source(
            simulate(1), schema, 3, options={"plan": "pairs"}, ledger=None, noise=dv.NoiseKind.SEEDED, seed=2
        )
        kept = msgspec.structs.replace(
            pairs, releases=tuple(one for one in pairs.releases if len(getattr(one, "columns", ())) < 3)
        )
        found = dv.effect(result, "x", "y", evidence=kept, graph=TRUTH)
        assert found.possible[0].form == "additive"
        assert "no interactions" in found.sentence
        assert any("additive form" in note for note in found.notes)
        assert found.release is not None
        assert found.release.tables == (("x", "y", "z"),)
        assert found.union is not None
        assert found.union.low < 0.2 < found.union.high

    def test_a_pair_that_was_not_measured_has_no_answer(self, result: dv.Result) -> None:
        schema = make_schema(forbidden=(("z", "x"), ("x", "z"), ("w", "m"), ("m", "w")))
        pairs = dv.measure_source(
            simulate(1), schema, 3, options={"plan": "pairs"}, ledger=None, noise=dv.NoiseKind.SEEDED, seed=2
        )
        releases = tuple(one for one in pairs.releases if not {"x", "z"} <= set(getattr(one, "columns", ())))
        found = dv.effect(
            result, "x", "y", evidence=msgspec.structs.replace(pairs, releases=releases), graph=TRUTH, width=0.05
        )
        assert found.possible[0].form == "unanswered"
        assert found.union is None
        assert "cannot say what changing x does to y: no table or moments of x × " in found.sentence
        assert found.release is not None
        assert found.release.tables == (("x", "y", "z"),)
        assert found.release.epsilon is not None

    def test_redraws_are_wider_and_repeat(self, result: dv.Result, evidence: dv.Evidence) -> None:
        found = dv.effect(result, "x", "y", evidence=evidence, redraws=20)
        again = dv.effect(result, "x", "y", evidence=evidence, redraws=20)
        assert found.redrawn == again.redrawn
        assert found.redrawn is not None
        assert found.redrawn.redraws == 20
        assert found.redrawn.interval is not None
        assert found.redrawn.interval.low < 0.2 < found.redrawn.interval.high

    def test_more_than_two_levels_are_all_told(self) -> None:
        rng = np.random.default_rng(3)
        x = rng.integers(0, 3, ROWS)
        y = np.where(rng.random(ROWS) < 0.2 * (1 + x), rng.integers(0, 4, ROWS), 3)
        levels = dv.Ordinal(levels=("0", "1", "2", "3"), outside="0")
        columns = {"x": dv.Ordinal(levels=("0", "1", "2"), outside="0"), "y": levels}
        schema = dv.Schema(dataset="demo", columns=columns, reviewed=True, nominal_rows=ROWS)
        rows = {"x": x.astype(str), "y": y.astype(str)}
        evidence = dv.measure_source(rows, schema, 1, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
        result = dv.search_evidence(evidence, dv.SearchSettings(redraws=0))
        graph = dv.Dag(("x", "y"), frozenset({("x", "y")}))
        (only,) = dv.effect(result, "x", "y", evidence=evidence, graph=graph).possible
        assert len(only.probabilities) == 12
        assert {(one.level, one.instead) for one in only.contrasts} == {("1", "0"), ("2", "0")}
        assert {one.outcome for one in only.contrasts} == {"0", "1", "2", "3"}

    def test_numbers_give_a_slope(self) -> None:
        rng = np.random.default_rng(4)
        z = rng.normal(size=ROWS)
        x = z + rng.normal(size=ROWS)
        y = 2.0 * x - 3.0 * z + rng.normal(size=ROWS)
        columns = {
            name: dv.Numeric(bounds=(-20, 20), center=0, spread=spread)
            for name, spread in (("z", 1), ("x", 1.4), ("y", 2))
        }
        schema = dv.Schema(dataset="demo", columns=columns, reviewed=True, nominal_rows=ROWS)
        rows = {"z": z, "x": x, "y": y}
        evidence = dv.measure_source(rows, schema, 2, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
        result = dv.search_evidence(evidence, dv.SearchSettings(redraws=0))
        graph = dv.Dag(("z", "x", "y"), frozenset({("z", "x"), ("z", "y"), ("x", "y")}))
        found = dv.effect(result, "x", "y", evidence=evidence, graph=graph)
        assert found.possible[0].form == "linear"
        assert found.union is not None
        assert found.union.low < 2.0 < found.union.high
        assert "One unit more of x would make y larger by" in found.sentence
        fresh, released = dv.measure_effect(
            rows, schema, result, "x", "y", 2, evidence=evidence, graph=graph, ledger=None,
            noise=dv.NoiseKind.SEEDED, seed=2,
        )  # fmt: skip
        assert fresh.union is not None
        assert fresh.union.low < 2.0 < fresh.union.high
        assert tuple(released.schema.columns) == ("z", "x", "y")

    def test_a_result_that_fits_no_dag_is_read_as_the_nearest(self, result: dv.Result, evidence: dv.Evidence) -> None:
        lines = [("m", "x"), ("x", "y"), ("y", "z"), ("m", "z")]
        edges = tuple(ResultEdge(*pair, "undirected") for pair in lines)
        square = msgspec.structs.replace(result, graph=msgspec.structs.replace(result.graph, edges=edges))
        found = dv.effect(square, "x", "y", evidence=evidence)
        assert any("nearest graph" in note for note in found.notes)
        with pytest.raises(GraphError, match="no DAG"):
            dv.effect(result, "x", "y", evidence=evidence, graph=square.graph.cpdag)

    def test_evidence_against_the_graph_is_said(self, result: dv.Result, evidence: dv.Evidence) -> None:
        empty = dv.Cpdag(TRUTH.nodes, frozenset(), frozenset())
        found = dv.effect(result, "x", "m", evidence=evidence, graph=empty)
        assert any("graph and evidence disagree here" in note for note in found.possible[0].notes)


class TestRefusals:
    def test_bad_names_and_sets(self, result: dv.Result, evidence: dv.Evidence) -> None:
        with pytest.raises(MethodError, match="both 'x'"):
            dv.effect(result, "x", "x", evidence=evidence)
        with pytest.raises(MethodError, match="no column is called 'q'"):
            dv.effect(result, "q", "x", evidence=evidence)
        with pytest.raises(MethodError, match="adjusting for m does not identify"):
            dv.effect(result, "x", "y", evidence=evidence, graph=TRUTH, adjust=["m"])
        with pytest.raises(MethodError, match="z would close it"):
            dv.effect(result, "x", "y", evidence=evidence, graph=TRUTH, adjust=[])
        assert dv.effect(result, "x", "y", evidence=evidence, graph=TRUTH, adjust=["z"]).union is not None

    def test_impossible_graphs_and_contradictions(self, result: dv.Result, evidence: dv.Evidence) -> None:
        circle = dv.Cpdag(TRUTH.nodes, frozenset({("x", "y"), ("y", "z"), ("z", "x")}), frozenset())
        with pytest.raises(GraphError, match="circle"):
            dv.effect(result, "x", "y", evidence=evidence, graph=circle)
        both = dv.Knowledge(required=frozenset({("x", "y")}), forbidden=frozenset({("x", "y")}))
        with pytest.raises(KnowledgeError, match="both required and forbidden"):
            dv.effect(result, "x", "y", evidence=evidence, knowledge=both)
        strange = dv.Dag(("x", "y", "q"), frozenset({("x", "y")}))
        with pytest.raises(MethodError, match="columns that the evidence lacks: q"):
            dv.effect(result, "x", "y", evidence=evidence, graph=strange)

    def test_a_result_without_evidence(self, result: dv.Result, tmp_path: Path) -> None:
        result.save(tmp_path / "result.json")
        with pytest.raises(EvidenceError, match="no evidence beside it"):
            dv.effect(tmp_path, "x", "y")

    def test_evidence_of_another_run(self, result: dv.Result, tmp_path: Path) -> None:
        result.save(tmp_path / "result.json")
        other = dv.measure_source(simulate(2), make_schema(), 2, ledger=None, noise=dv.NoiseKind.SEEDED, seed=9)
        other.save(tmp_path / "evidence.json")
        with pytest.raises(DagveilError, match="receipts differ"):
            load_discovery(tmp_path)


class TestMeasuring:
    def test_columns_made_of_events_may_be_left_out(self) -> None:
        rows = simulate(1, 2000) | {"who": np.arange(2000), "kind": np.array(["in", "out"] * 1000)}
        del rows["w"]
        events = {"w": Reducer("any", where={"kind": ("in",)})}
        schema = make_schema(person="who", reducers=events, nominal_rows=2000)
        evidence = dv.measure_source(rows, schema, 1, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
        result = dv.search_evidence(evidence, dv.SearchSettings(redraws=0))
        _, released = dv.measure_effect(rows, schema, result, "x", "y", 1, graph=TRUTH, ledger=None)
        assert not released.schema.reducers

    def test_exactly_the_tables_are_charged(self, result: dv.Result, tmp_path: Path) -> None:
        place = tmp_path / "ledger.sqlite"
        found, released = dv.measure_effect(
            simulate(1), make_schema(), result, "x", "y", "0.5", graph=TRUTH, ledger=place
        )
        assert [one.columns for one in released.releases] == [("x", "y", "z")]  # type: ignore[union-attr]
        assert found.receipt == released.receipt
        assert (found.receipt.epsilon, found.receipt.delta) == ("1/2", "0")
        assert found.union is not None
        assert found.union.low < 0.2 < found.union.high
        assert dv.Ledger.open(place).account("demo").spent_epsilon == 0.5

    def test_what_is_refused_spends_nothing(self, result: dv.Result, tmp_path: Path) -> None:
        place = tmp_path / "ledger.sqlite"
        rows = simulate(1)
        with pytest.raises(MethodError, match="does nothing to y"):
            dv.measure_effect(rows, make_schema(), result, "w", "y", 1, graph=TRUTH, ledger=place)
        with pytest.raises(MethodError, match="not the one that this result was found with"):
            dv.measure_effect(rows, make_schema(nominal_rows=7), result, "x", "y", 1, graph=TRUTH, ledger=place)
        with pytest.raises(MethodError, match="does not identify"):
            dv.measure_effect(rows, make_schema(), result, "x", "y", 1, graph=TRUTH, adjust=["m"], ledger=place)
        assert not place.exists() or dv.Ledger.open(place).account("demo").spent_epsilon == 0


class TestWidth:
    def test_the_epsilon_of_a_plan_gives_the_width(self) -> None:
        schema = make_schema()
        wanted = epsilon_for_width(schema, "x", "y", [frozenset("z")], 0.04)
        assert wanted.epsilon is not None
        rng = np.random.default_rng(1)
        graph = dv.Dag(TRUTH.nodes, frozenset({("z", "x"), ("z", "y"), ("x", "y")}))
        plain = dv.measure_source(simulate(1), schema, 1, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
        result = dv.search_evidence(plain, dv.SearchSettings(redraws=0))
        widths, held = [], []
        for seed in range(40):
            rows = {name: rng.random(ROWS) < 0.5 for name in TRUTH.nodes}
            found, _ = dv.measure_effect(
                rows, schema, result, "x", "y", repr(wanted.epsilon), graph=graph, ledger=None,
                noise=dv.NoiseKind.SEEDED, seed=seed,
            )  # fmt: skip
            assert found.union is not None
            widths.append(found.union.high - found.union.low)
            held.append(found.union.low <= 0.0 <= found.union.high)
        assert np.mean(widths) == pytest.approx(0.04, rel=0.1)
        assert np.mean(held) >= 0.85

    def test_the_epsilon_of_a_slope_gives_the_width(self) -> None:
        spreads = {"x": 1.0, "y": 3.0, "z": 1.0}
        columns = {name: dv.Numeric(bounds=(-30, 30), center=0, spread=spread) for name, spread in spreads.items()}
        schema = dv.Schema(dataset="demo", columns=columns, reviewed=True, nominal_rows=ROWS)
        wanted = epsilon_for_slope(schema, ("x", "y", "z"), "x", "y", 0.12)
        assert wanted.epsilon is not None
        rng = np.random.default_rng(1)
        graph = dv.Dag(("x", "y", "z"), frozenset({("z", "x"), ("z", "y"), ("x", "y")}))
        widths = []
        for seed in range(6):
            rows = {name: rng.normal(0.0, spread, ROWS) for name, spread in spreads.items()}
            evidence = dv.measure_source(rows, schema, 5, ledger=None, noise=dv.NoiseKind.SEEDED, seed=seed)
            result = dv.search_evidence(evidence, dv.SearchSettings(redraws=0))
            found, _ = dv.measure_effect(
                rows, schema, result, "x", "y", repr(wanted.epsilon), graph=graph, ledger=None,
                noise=dv.NoiseKind.SEEDED, seed=seed,
            )  # fmt: skip
            assert found.union is not None
            widths.append(found.union.high - found.union.low)
        assert np.mean(widths) == pytest.approx(0.12, rel=0.2)
        assert epsilon_for_slope(schema, ("x", "y"), "x", "y", 1e-4).epsilon is None
        with pytest.raises(MethodError, match="the width is 0"):
            epsilon_for_slope(schema, ("x", "y"), "x", "y", 0.0)

    def test_a_width_that_sampling_forbids(self) -> None:
        wanted = epsilon_for_width(make_schema(), "x", "y", [frozenset()], 0.001)
        assert wanted.epsilon is None
        assert "it would take about" in str(wanted.reason)

    def test_bad_widths(self) -> None:
        with pytest.raises(MethodError, match="the width is -1"):
            epsilon_for_width(make_schema(), "x", "y", [frozenset()], -1.0)
        with pytest.raises(MethodError, match="declare nominal_rows"):
            epsilon_for_width(make_schema(nominal_rows=None), "x", "y", [frozenset()], 0.1)

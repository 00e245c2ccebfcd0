"""`measure-features`: what it releases, what it chooses from public facts, and the graphs that it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.column import Boolean, Numeric
from dagveil.data.schema import Schema, save_schema
from dagveil.errors import EvidenceError, MethodError
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.evidence.mixed import FeatureEvidence, publishable_evidence
from dagveil.evidence.moments import MomentEvidence
from dagveil.files import seal
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.measure_features import LINEAR, choose_degree, choose_radius
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyFeatureMoments, NoisyMagnitudes, NoisyMoments
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.result import load_result
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchRule, SearchSettings
from dagveil_bench.nonlinear import nonlinear_schema, sample_nonlinear

SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 0}
QUICK = SearchSettings(redraws=3)
ROWS = 20_000


def draw_parabola(n_rows: int) -> dict[str, np.ndarray]:
    """Return a → b → c with parabolas, and d alone: nothing is correlated with its neighbour."""
    a, e, f, d = np.random.default_rng(1).uniform(-1.0, 1.0, (4, n_rows))
    b = 2 * a**2 - 0.67 + 0.3 * e
    return {"a": a, "b": b, "c": b**2 + 0.2 * f, "d": d}


def make_schema(n_rows: int = ROWS, **facts: Any) -> Schema:
    columns = {
        "a": Numeric(bounds=(-1, 1), center=0.0, spread=0.6),
        "b": Numeric(bounds=(-1, 2), center=0.0, spread=0.6),
        "c": Numeric(bounds=(-1, 4), center=0.5, spread=0.5),
        "d": Numeric(bounds=(-1, 1), center=0.0, spread=0.6),
    }
    whole: dict[str, Any] = {"dataset": "parabola", "columns": columns, "reviewed": True, "nominal_rows": n_rows}
    return Schema(**(whole | facts))


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return measure_source(draw_parabola(ROWS), make_schema(), 2, method="measure-features", **SEEDED)


class TestRelease:
    def test_one_matrix(self, evidence: Evidence) -> None:
        (released,) = evidence.releases
        assert isinstance(released, NoisyFeatureMoments)
        assert released.degree == 3
        assert released.centers == pytest.approx((0.0, 0.1, 0.5, 0.0))  # 0 ± 1.2 inside the bounds
        assert released.reaches == pytest.approx((1.0, 1.1, 1.0, 1.0))
        assert [stage.stage for stage in evidence.plan] == ["moments of features"]
        assert isinstance(evidence.independence(), FeatureEvidence)

    def test_json_comes_back(self, evidence: Evidence) -> None:
        again = evidence_from_json(evidence.to_json())
        assert again == evidence
        assert '"type":"feature-moments"' in evidence.to_json()

    def test_damaged_json_is_refused(self, evidence: Evidence) -> None:
        for change in ('"degree":2', '"degree":0', '"degree":-3'):
            with pytest.raises(EvidenceError, match="damaged"):
                evidence_from_json(json.dumps(seal(json.loads(evidence.to_json().replace('"degree":3', change)))))

    def test_without_nominal_rows_and_spreads(self) -> None:
        columns = {name: msgspec.structs.replace(c, spread=None) for name, c in make_schema().columns.items()}
        schema = make_schema(columns=columns, nominal_rows=None)
        found = measure_source(draw_parabola(ROWS), schema, 2, method="measure-features", **SEEDED)
        assert [type(release) for release in found.releases] == [
            NoisyCounts,
            *[NoisyMagnitudes] * 4,
            NoisyFeatureMoments,
        ]
        assert sum(stage.share for stage in found.plan) == pytest.approx(1.0)
        assert any("estimated privately" in text for text in found.findings)

    def test_too_few_rows_for_features(self) -> None:
        found = measure_source(draw_parabola(100), make_schema(100), 0.5, method="measure-features", **SEEDED)
        assert [type(release) for release in found.releases] == [NoisyMoments]
        assert LINEAR in found.findings
        assert isinstance(found.independence(), MomentEvidence)
        insisted = measure_source(
            draw_parabola(100), make_schema(100), 0.5, method="measure-features", options={"degree": 2}, **SEEDED
        )
        assert [type(release) for release in insisted.releases] == [NoisyFeatureMoments]
        assert any("expect only strong edges" in text for text in insisted.findings)

    def test_p_values_to_publish(self, evidence: Evidence) -> None:
        release = evidence.releases[0]
        assert isinstance(release, NoisyFeatureMoments)
        with pytest.raises(EvidenceError, match="degree=3 and radius=5"):
            publishable_evidence(release)
        assert any("were shrunk" in text for text in evidence.findings)
        options = {"degree": 3, "radius": 5, "reach": 10}
        whole = measure_source(
            draw_parabola(ROWS), make_schema(), 2, method="measure-features", options=options, **SEEDED
        )
        assert isinstance(whole.releases[0], NoisyFeatureMoments)
        assert publishable_evidence(whole.releases[0]).columns == ("a", "b", "c", "d")
        assert not any("were shrunk" in text for text in whole.findings)
        assert all(
            any("scores for the graph, not levels" in text for text in found.findings) for found in (evidence, whole)
        )


class TestSearch:
    def test_parabolas_are_found_where_moments_see_nothing(self, evidence: Evidence) -> None:
        found = search_evidence(evidence, QUICK)
        assert found.graph.cpdag.skeleton() == {frozenset("ab"), frozenset("bc")}
        linear = discover(draw_parabola(ROWS), make_schema(), 2, settings=QUICK, **SEEDED)
        assert frozenset("ab") not in linear.graph.cpdag.skeleton()

    def test_knowledge_is_kept(self, evidence: Evidence) -> None:
        knowledge = Knowledge(required=frozenset({("a", "d")}), forbidden=frozenset({("a", "b"), ("b", "a")}))
        graph = search_evidence(evidence, QUICK, knowledge=knowledge).graph.cpdag
        assert ("a", "d") in graph.directed
        assert frozenset("ab") not in graph.skeleton()

    @pytest.mark.parametrize("rule", [SearchRule.SCORE, SearchRule.NOTEARS])
    def test_other_searches_are_refused_with_a_reason(self, evidence: Evidence, rule: SearchRule) -> None:
        with pytest.raises(EvidenceError):
            search_evidence(evidence, SearchSettings(redraws=0, search=rule))

    def test_a_simulated_network(self) -> None:
        dag = Dag(tuple("abcdef"), frozenset({("a", "c"), ("b", "c"), ("c", "d"), ("e", "f")}))
        rows = sample_nonlinear(dag, 30_000, np.random.default_rng(3))
        found = discover(
            rows, nonlinear_schema(rows, 30_000), 4, method="measure-features", settings=QUICK, **SEEDED
        ).graph.cpdag
        missed = dag.skeleton() ^ found.skeleton()
        assert len(missed) <= 1


class TestChoices:
    def test_more_budget_and_rows_mean_more_features(self) -> None:
        for columns in (2, 5, 20, 100):
            degrees = [choose_degree(columns, rows, 0.05) for rows in (10, 1000, 10**5, 10**7, 10**9)]
            assert degrees == sorted(degrees)
            assert degrees[0] == 1
            assert degrees[-1] == 3
            radii = [choose_radius(3 * columns, rows, 0.05) for rows in (10, 1000, 10**5, 10**7, 10**9)]
            assert radii == sorted(radii)
            assert (radii[0], radii[-1]) == (0.75, 2.0)
        assert choose_degree(5, 1000, 5.0) >= choose_degree(50, 1000, 5.0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"degree": 0}, "degree"), ({"degree": 9}, "degree"), ({"radius": 0}, "radius"), ({"reach": -1}, "reach")],
    )
    def test_settings_out_of_range(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(MethodError, match=message):
            measure_source(draw_parabola(50), make_schema(50), 1, method="measure-features", options=options, **SEEDED)

    @pytest.mark.parametrize("column", [Boolean("false"), Numeric(bounds=(-1, 1), bins=3)])
    def test_other_columns_are_refused_with_a_next_step(self, column: Any) -> None:
        schema = make_schema(columns={**make_schema().columns, "d": column})
        with pytest.raises(MethodError, match=r"'d' is none; choose `measure`"):
            measure_source(draw_parabola(50), schema, 1, method="measure-features", **SEEDED)


def test_command_line(tmp_path: Path) -> None:
    rows = draw_parabola(3000)
    lines = [",".join(rows), *(",".join(map(repr, map(float, row))) for row in zip(*rows.values(), strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    save_schema(make_schema(3000), tmp_path / "schema.toml")
    arguments = ["--schema", str(tmp_path / "schema.toml"), "--epsilon", "8", "--ledger", str(tmp_path / "l.sqlite")]
    chosen = ["--method", "measure-features", "--set", "degree=2", "--set", "radius=1.5", "--redraws", "2"]
    done = CliRunner().invoke(
        group, ["discover", str(tmp_path / "rows.csv"), *arguments, *chosen, "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    result = load_result(tmp_path / "out" / "result.json")
    assert result.method.name == "measure-features"
    assert frozenset("ab") in result.graph.cpdag.skeleton()

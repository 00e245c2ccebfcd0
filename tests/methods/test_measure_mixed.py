"""`measure` on levels beside numbers: what it releases, what it chooses from public facts, and the graphs it finds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError, MethodError
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.evidence.mixed import MixedEvidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.files import seal
from dagveil.forecast.detection import find_weakest
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.measure_mixed import choose_degree, choose_radius, is_mixed, plan_mixed, trends_pay
from dagveil.plans.combine import combine_evidence
from dagveil.plans.plan_file import AskMixed, plan_from_json
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyMagnitudes, NoisyMixedMoments, NoisyPairMoments
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchRule, SearchSettings

SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 0}
ROWS = 20_000
NUMBER = Numeric(bounds=(-8, 8), center=0.0, spread=1.0)


def draw(n_rows: int, seed: int = 1) -> dict[str, Any]:
    """Return colour → x → smokes, x² → y, and z alone."""
    rng = np.random.default_rng(seed)
    colour = rng.integers(0, 3, n_rows)
    x = 0.8 * (colour - 1.0) + 0.8 * rng.standard_normal(n_rows)
    smokes = rng.random(n_rows) < 1.0 / (1.0 + np.exp(-1.5 * x))
    y = 0.7 * (x**2 - 1.0) + 0.7 * rng.standard_normal(n_rows)
    return {
        "colour": [("red", "blue", "green")[code] for code in colour],
        "x": x,
        "smokes": smokes,
        "y": y,
        "z": rng.standard_normal(n_rows),
    }


def make_schema(**facts: Any) -> Schema:
    columns = {
        "colour": Categorical(levels=("red", "blue", "green"), outside="red"),
        "x": NUMBER,
        "smokes": Boolean(outside="false"),
        "y": NUMBER,
        "z": NUMBER,
    }
    whole: dict[str, Any] = {"dataset": "both", "columns": columns, "reviewed": True, "nominal_rows": ROWS}
    return Schema(**(whole | facts))


TRUTH = {frozenset(pair) for pair in (("colour", "x"), ("x", "smokes"), ("x", "y"))}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return measure_source(draw(ROWS), make_schema(), 1, **SEEDED)


def test_one_matrix_is_released_and_shows_curved_effects(evidence: Evidence) -> None:
    (released,) = evidence.releases
    assert isinstance(released, NoisyMixedMoments)
    assert (released.levels, released.sizes, released.numbers) == (("colour", "smokes"), (3, 2), ("x", "y", "z"))
    assert released.degrees in ((2,) * 3, (3,) * 3)
    assert isinstance(evidence.independence(), MixedEvidence)
    result = search_evidence(evidence, SearchSettings(redraws=10))
    assert set(result.graph.cpdag.skeleton()) == TRUTH
    assert all((edge.confidence or 0.0) >= 0.7 for edge in result.graph.edges)
    assert result.false_edges is not None
    assert result.false_edges < 0.5


def test_evidence_is_written_and_read(evidence: Evidence) -> None:
    assert evidence_from_json(evidence.to_json()).releases == evidence.releases


@pytest.mark.parametrize(
    "changed", [{"sizes": (3, 3)}, {"steps": (0, 1)}, {"degrees": (1, 1, 1)}, {"widths": (1.0,)}, {"values": (1, 2)}]
)
def test_damaged_releases_are_refused(evidence: Evidence, changed: dict[str, Any]) -> None:
    broken = replace(evidence, releases=(replace(evidence.releases[0], **changed),))
    with pytest.raises(EvidenceError, match="damaged"):
        evidence_from_json(json.dumps(seal(json.loads(broken.to_json()))))


def test_missing_spreads_are_found_first() -> None:
    columns = make_schema().columns | {"z": Numeric(bounds=(-8, 8))}
    evidence = measure_source(draw(5000), make_schema(columns=columns), 1, **SEEDED)
    sizes, released = evidence.releases
    assert isinstance(sizes, NoisyMagnitudes)
    assert sizes.column == "z"
    assert isinstance(released, NoisyMixedMoments)


def test_numbers_with_bins_count_as_levels() -> None:
    columns = make_schema().columns | {"y": replace(NUMBER, bins=4)}
    (released,) = measure_source(draw(5000), make_schema(columns=columns), 1, **SEEDED).releases
    assert isinstance(released, NoisyMixedMoments)
    assert released.levels == ("colour", "smokes", "y")
    assert released.sizes == (3, 2, 4)
    everywhere = {name: replace(c, bins=3) if isinstance(c, Numeric) else c for name, c in columns.items()}
    schema = make_schema(columns=everywhere)
    assert not is_mixed(schema)
    tables = measure_source(draw(5000), schema, 1, **SEEDED).independence()
    assert not isinstance(tables, MixedEvidence)


def test_a_plan_of_tables_counts_numbers_in_bins() -> None:
    evidence = measure_source(draw(5000), make_schema(), 1, options={"plan": "pairs"}, **SEEDED)
    assert isinstance(evidence.independence(), PairEvidence)
    scored = measure_source(draw(5000), make_schema(), 1, method="measure-ges", **SEEDED)
    assert not any(isinstance(release, NoisyMixedMoments) for release in scored.releases)


def test_without_delta_the_joint_table_is_counted() -> None:
    (released,) = measure_source(draw(5000), make_schema(), 1, 0, **SEEDED).releases
    assert isinstance(released, NoisyCounts)


def test_a_search_by_score_is_refused_before_anything_is_charged() -> None:
    with pytest.raises(MethodError, match="measure-ges"):
        discover(draw(100), make_schema(), 1, settings=SearchSettings(search=SearchRule.SCORE), **SEEDED)


def test_constants_follow_from_public_facts() -> None:
    assert choose_degree(5.0, 5, 2_000, 0.001) == 1
    assert choose_degree(5.0, 5, 10_000, 0.06) == 2
    assert choose_degree(5.0, 5, 100_000, 4.0) == 3
    assert choose_radius(5.0, 5, 1, 1_000, 1e-4) == 0.75 * 5
    assert choose_radius(5.0, 5, 1, 10**6, 10.0) == 6.0 * 5
    assert choose_radius(5.0, 5, 3, 10**6, 10.0) == 5.0 * 3 * 5
    plan = plan_mixed(make_schema(), dict.fromkeys("xyz", 0.0), dict.fromkeys("xyz", 2.0), ROWS, 0.06)
    assert plan.widths == (4.0,) * 3
    assert plan.constant >= 1.0


def test_pairs_that_look_dependent_are_measured_again_where_noise_is_heavy() -> None:
    noisy = measure_source(draw(4000), make_schema(nominal_rows=4000), "0.05", **SEEDED)
    matrix, again = noisy.releases
    assert isinstance(matrix, NoisyMixedMoments)
    assert isinstance(again, NoisyPairMoments)
    assert [stage.share for stage in noisy.plan] == [0.6, 0.4]
    assert ("colour", "x") in again.pairs
    assert len(again.pairs) < 10
    tests = noisy.independence()
    assert isinstance(tests, MixedEvidence)
    noise = tests.covariance.noise
    assert noise[0, 1] < 0.9 * noise[0, 0]
    assert tests.redraw(np.random.default_rng(1)).columns == tests.columns
    assert evidence_from_json(noisy.to_json()).releases == noisy.releases
    broken = replace(noisy, releases=(matrix, replace(again, shapes=((1, 1),) * len(again.pairs))))
    with pytest.raises(EvidenceError, match="damaged"):
        evidence_from_json(json.dumps(seal(json.loads(broken.to_json()))))


def draw_grades(n_rows: int) -> tuple[dict[str, Any], Schema]:
    """Return grades a → x → b of seven levels, and c alone."""
    rng = np.random.default_rng(3)
    a, c = rng.integers(0, 7, (2, n_rows))
    x = 0.3 * (a - 3.0) + 0.8 * rng.standard_normal(n_rows)
    b = np.clip(np.round(3.0 + 1.2 * x + rng.standard_normal(n_rows)), 0, 6).astype(int)
    grade = Ordinal(levels=tuple("0123456"), outside="3")
    columns = {"a": grade, "x": NUMBER, "b": grade, "c": grade}
    source = {"a": a.astype(str), "x": x, "b": b.astype(str), "c": c.astype(str)}
    return source, make_schema(columns=columns, nominal_rows=n_rows)


def test_ordered_levels_enter_by_their_trend_where_noise_is_heavy() -> None:
    source, schema = draw_grades(3000)
    noisy = measure_source(source, schema, "0.1", **SEEDED)
    released = noisy.releases[0]
    assert isinstance(released, NoisyMixedMoments)
    assert (released.levels, released.numbers, released.degrees) == ((), ("x", "a", "b", "c"), (2, 1, 1, 1))
    assert released.centers[1:] == (3.0,) * 3
    assert released.widths[1:] == (2.0,) * 3
    assert any("by their trend: a, b, c" in finding for finding in noisy.findings)
    pairs = search_evidence(noisy, SearchSettings(redraws=0)).graph.cpdag.skeleton()
    assert pairs == {frozenset("ax"), frozenset("bx")}
    (quiet,) = measure_source(source, schema, 10, **SEEDED).releases
    assert isinstance(quiet, NoisyMixedMoments)
    assert quiet.levels == ("a", "b", "c")
    plan = plan_measurement(schema, "0.1")
    assert plan_from_json(plan.to_json()) == plan


def test_custodians_add_their_matrices() -> None:
    plan = plan_measurement(make_schema(), 1, sites={"north": 10_000, "south": 10_000})
    (ask,) = plan.asks
    assert isinstance(ask, AskMixed)
    plan = plan_from_json(plan.to_json())
    parts = [
        measure_planned(draw(10_000, seed), plan, site, dataset=site, **SEEDED)
        for seed, site in enumerate(("north", "south"))
    ]
    together = combine_evidence(parts)
    (released,) = together.releases
    assert isinstance(released, NoisyMixedMoments)
    assert 15_000 < released.matrix[0, 0] / released.constant**2 < 25_000
    assert set(search_evidence(together, SearchSettings(redraws=0)).graph.cpdag.skeleton()) == TRUTH


def test_the_forecast_falls_with_budget_and_rows() -> None:
    schema = make_schema()
    seen = [find_weakest(schema, Budget.of(epsilon, "1e-6"), ROWS).typical or 2.0 for epsilon in ("0.01", "0.1", "1")]
    assert seen == sorted(seen, reverse=True)
    assert find_weakest(schema, Budget.of(1, "1e-6"), 100 * ROWS).typical < seen[-1]


def ordered(n_rows: int, kind: type[Ordinal] | type[Categorical] = Ordinal) -> tuple[dict[str, Any], Schema]:
    """Return a chain a → b → c of six ordered levels each, d alone, and their schema."""
    rng = np.random.default_rng(4)
    drawn = {"a": rng.standard_normal(n_rows), "d": rng.standard_normal(n_rows)}
    drawn["b"] = drawn["a"] + 0.7 * rng.standard_normal(n_rows)
    drawn["c"] = drawn["b"] + 0.7 * rng.standard_normal(n_rows)
    rows = {
        name: np.digitize(drawn[name], np.quantile(drawn[name], np.arange(1, 6) / 6)).astype(str) for name in "abcd"
    }
    # a column of names keeps the joint table away
    rows["e"] = rng.integers(0, 20, n_rows).astype(str)
    columns: dict[str, Any] = {name: kind(levels=tuple("012345"), outside="0") for name in "abcd"}
    columns["e"] = Categorical(levels=tuple(map(str, range(20))), outside="0")
    return rows, Schema(dataset="steps", columns=columns, reviewed=True, nominal_rows=n_rows)


def test_ordered_levels_without_numbers_enter_by_trends_where_contrasts_would_not_be_seen() -> None:
    rows, schema = ordered(5000)
    evidence = measure_source(rows, schema, 0.2, "1e-6", **SEEDED)
    (matrix,) = [release for release in evidence.releases if isinstance(release, NoisyMixedMoments)]
    assert (matrix.numbers, matrix.levels) == (("a", "b", "c", "d"), ("e",))
    assert any("entered by their trend: a, b, c, d" in finding for finding in evidence.findings)
    assert not any("Numeric columns" in finding for finding in evidence.findings)
    result = search_evidence(evidence, SearchSettings(redraws=0))
    assert result.graph.cpdag.skeleton() >= {frozenset("ab"), frozenset("bc")}
    assert result.method.settings["conditional_level"] == 0.001


def test_trends_need_order_and_rows_and_heavy_noise() -> None:
    _, schema = ordered(5000)
    assert trends_pay(schema, 0.001, NO_KNOWLEDGE)
    assert not trends_pay(schema, 10.0, NO_KNOWLEDGE)
    assert not trends_pay(ordered(5000, Categorical)[1], 0.001, NO_KNOWLEDGE)
    assert not trends_pay(replace(schema, nominal_rows=None), 0.001, NO_KNOWLEDGE)
    assert not trends_pay(replace(schema, columns={**schema.columns, "n": NUMBER}), 0.001, NO_KNOWLEDGE)
    assert not trends_pay(replace(schema, nominal_rows=10**8), 0.001, NO_KNOWLEDGE)


def test_no_trends_where_a_pair_is_excluded_or_levels_are_left_out() -> None:
    """The matrix holds all pairs, and a trend has no place for a missing value that could be left out."""
    _, schema = ordered(5000)
    apart = Knowledge(forbidden=frozenset({("a", "b"), ("b", "a")}))
    assert not trends_pay(schema, 0.001, apart)
    gaps = {name: replace(column, missing="pairwise") for name, column in schema.columns.items() if name != "e"}
    gaps["e"] = schema.columns["e"]
    assert not trends_pay(replace(schema, columns=gaps), 0.001, NO_KNOWLEDGE)


def test_the_search_is_checked_for_what_knowledge_makes_of_the_release() -> None:
    """With an excluded pair tables are counted, so a score may search them; it was allowed, and the run took trends."""
    rows, schema = ordered(500)
    kept = {name: column for name, column in schema.columns.items() if name != "e"}
    schema = replace(schema, columns=kept, ignore=("e",))
    apart = Knowledge(forbidden=frozenset({("a", "b"), ("b", "a")}))
    for epsilon in (0.2, 1, 3, 6):
        evidence = measure_source(rows, schema, epsilon, "1e-6", knowledge=apart, **SEEDED)
        assert not any(isinstance(release, NoisyMixedMoments) for release in evidence.releases)
        search_evidence(evidence, SearchSettings(search=SearchRule.SCORE, redraws=0))


def test_where_records_are_replaced_the_route_and_the_plan_go_by_the_same_number_of_rows() -> None:
    rows, schema = ordered(20_000)
    evidence = measure_source(rows, replace(schema, relation="replace-one", nominal_rows=500), 0.2, "1e-6", **SEEDED)
    for release in evidence.releases:
        if isinstance(release, NoisyMixedMoments):
            assert release.numbers == ("a", "b", "c", "d")


def test_a_score_of_trends_is_refused_before_anything_is_charged() -> None:
    rows, schema = ordered(500)
    books = MemoryLedger()
    with pytest.raises(MethodError, match="nothing was charged"):
        discover(rows, schema, 0.2, "1e-6", settings=SearchSettings(search=SearchRule.SCORE), ledger=books)
    assert books.account("steps").spent_epsilon == 0


def test_missing_numbers_that_tests_leave_out_do_not_join_columns() -> None:
    """Whether x is known hangs on a, of which x is independent: a level or an indicator joins the two."""
    rng = np.random.default_rng(6)
    a, x = rng.integers(0, 2, ROWS), rng.standard_normal(ROWS)
    y = x + rng.standard_normal(ROWS)
    rows = {"a": a.astype(str), "x": np.where(rng.random(ROWS) < 0.05 + 0.4 * a, np.nan, x), "y": y}
    found = {}
    for missing in ("own-level", "pairwise"):
        columns: dict[str, Any] = {
            "a": Categorical(("0", "1"), "0"),
            "x": replace(NUMBER, missing=missing),
            "y": NUMBER,
        }
        schema = Schema(dataset="gaps", columns=columns, reviewed=True, nominal_rows=ROWS)
        evidence = measure_source(rows, schema, 2, "1e-6", **SEEDED)
        (matrix,) = [release for release in evidence.releases if isinstance(release, NoisyMixedMoments)]
        assert matrix.marked == ("x",)
        found[missing] = matrix, search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag.skeleton()
    assert found["own-level"][0] == found["pairwise"][0]
    assert found["pairwise"][1] == {frozenset("xy")}
    assert frozenset("ax") in found["own-level"][1]


def test_numbers_alone_have_one_matrix_if_missing_ones_are_marked() -> None:
    columns: dict[str, Any] = {"x": replace(NUMBER, missing="pairwise"), "y": NUMBER}
    assert is_mixed(Schema(dataset="d", columns=columns))
    assert not is_mixed(Schema(dataset="d", columns={**columns, "x": NUMBER}))

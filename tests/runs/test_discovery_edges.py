"""Discovery at its edges: knowledge, odd tables, numeric columns, mixed tables, many levels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import KnowledgeError, MethodError
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import LinearGaussian, gaussian_schema, sample_linear_gaussian
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.measure_moments import spread_of
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, NoisyMagnitudes, NoisyMoments
from dagveil.runs.discovery import discover, measure_source, search_evidence
from dagveil.runs.result import Result
from dagveil.runs.run import load_knowledge
from dagveil.search.settings import SearchSettings

SEEDED = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 3}
BARE = SearchSettings(redraws=0)
QUICK = SearchSettings(redraws=2)


def pairs_released(evidence: Evidence) -> set[frozenset[str]]:
    return {
        frozenset(pair)
        for release in evidence.releases
        if isinstance(release, NoisyCounts | NoisyInteractions)
        for pair in combinations(release.columns, 2)
    }


def neither_way(*pairs: str) -> frozenset[tuple[str, str]]:
    return frozenset(arc for a, b in pairs for arc in ((a, b), (b, a)))


def chain_rows(n_rows: int, names: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Booleans, each a noisy copy of the one before."""
    rng = np.random.default_rng(seed)
    rows = {names[0]: rng.random(n_rows) < 0.5}
    for before, name in pairwise(names):
        rows[name] = rows[before] ^ (rng.random(n_rows) < 0.15)
    return rows


class TestKnowledge:
    def test_excluded_pairs_have_no_released_table(self, asia_table: MemoryTable) -> None:
        names = list(asia_table.schema.columns)
        excluded = {frozenset(pair) for pair in list(combinations(names, 2))[::3]}
        knowledge = Knowledge(forbidden=frozenset(arc for pair in excluded for arc in (tuple(pair), tuple(pair)[::-1])))
        evidence = measure_source(asia_table, asia_table.schema, 10, 1e-6, knowledge=knowledge, **SEEDED)
        assert pairs_released(evidence)
        assert not pairs_released(evidence) & excluded
        assert any("excludes" in finding for finding in evidence.findings)
        result = search_evidence(evidence, QUICK, knowledge=knowledge)
        assert not result.graph.cpdag.skeleton() & excluded
        assert any("background knowledge" in fact for fact in evidence.receipt.public_facts)

    def test_fewer_pairs_get_less_noise(self, boolean_schema: Callable[..., Schema]) -> None:
        rows, schema = chain_rows(200, "abcd"), boolean_schema(*"abcd", nominal_rows=200)
        some = Knowledge(forbidden=neither_way("ac", "ad", "bd"))
        full, less = (
            measure_source(rows, schema, 1, 1e-6, knowledge=k, options={"plan": "pairs"}, **SEEDED)
            for k in (None, some)
        )
        assert less.plan[1].noise_sd < full.plan[1].noise_sd

    def test_evidence_may_be_searched_with_weaker_knowledge(self, boolean_schema: Callable[..., Schema]) -> None:
        """Pairs that were never measured have no answer: they stay out, silently."""
        rows, schema = chain_rows(3000, "abcd"), boolean_schema(*"abcd", nominal_rows=3000)
        evidence = measure_source(rows, schema, 5, 1e-6, knowledge=Knowledge(forbidden=neither_way("bc")), **SEEDED)
        result = search_evidence(evidence, QUICK, knowledge=Knowledge.none())
        assert frozenset("bc") not in result.graph.cpdag.skeleton()
        assert frozenset("ab") in result.graph.cpdag.skeleton()

    def test_unmeasured_pairs_raise_no_numeric_warning(self, boolean_schema: Callable[..., Schema]) -> None:
        rows, schema = chain_rows(3000, "abcd"), boolean_schema(*"abcd", nominal_rows=3000)
        evidence = measure_source(rows, schema, 5, 1e-6, knowledge=Knowledge(forbidden=neither_way("bc")), **SEEDED)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            search_evidence(evidence, QUICK, knowledge=Knowledge.none())

    def test_a_column_excluded_from_everything(self, boolean_schema: Callable[..., Schema]) -> None:
        """The budget is spent by then, so this must not end in an error."""
        rows, schema = chain_rows(1000, "abc"), boolean_schema(*"abc", nominal_rows=1000)
        result = discover(
            rows, schema, 5, 1e-6, knowledge=Knowledge(forbidden=neither_way("ab", "ac")), settings=QUICK, **SEEDED
        )
        assert result.graph.nodes == ("a", "b", "c")
        assert result.graph.cpdag.skeleton() == {frozenset("bc")}

    def test_no_pair_left_open_spends_nothing(self, boolean_schema: Callable[..., Schema]) -> None:
        books = MemoryLedger()
        schema = boolean_schema(*"ab", nominal_rows=100)
        result = discover(
            chain_rows(100, "ab"),
            schema,
            1,
            1e-6,
            knowledge=Knowledge(forbidden=neither_way("ab")),
            **SEEDED | {"ledger": books},
        )
        assert result.graph.edges == ()
        assert result.receipt.events == ()
        assert result.receipt.spent == "0 % of the run's budget"
        assert books.account("small").spent_epsilon == 0

    def test_knowledge_of_the_schema_is_used_unless_other_is_given(self, boolean_schema: Callable[..., Schema]) -> None:
        schema = boolean_schema(*"abc", nominal_rows=3000, tiers=(("c",), ("b",), ("a",)))
        evidence = measure_source(chain_rows(3000, "abc"), schema, 5, 1e-6, **SEEDED)
        own = search_evidence(evidence, BARE)
        assert own.graph.cpdag.directed == {("c", "b"), ("b", "a")}
        assert own.graph.family == "mpdag"
        other = search_evidence(evidence, BARE, knowledge=Knowledge.none())
        assert other.graph.cpdag.directed == frozenset()
        assert other.graph.family == "cpdag"

    @pytest.mark.parametrize(
        "knowledge",
        [
            Knowledge(required=frozenset({("a", "b"), ("b", "a")})),
            Knowledge(required=frozenset({("a", "b")}), forbidden=frozenset({("a", "b")})),
            Knowledge(tiers=(("a",), ("b",)), required=frozenset({("b", "a")})),
            Knowledge(forbidden=frozenset({("a", "nowhere")})),
        ],
    )
    def test_contradictions_reserve_nothing(self, knowledge: Knowledge, boolean_schema: Callable[..., Schema]) -> None:
        books = MemoryLedger()
        with pytest.raises(KnowledgeError):
            discover(
                chain_rows(50, "ab"), boolean_schema(*"ab"), 1, 1e-6, knowledge=knowledge, **SEEDED | {"ledger": books}
            )
        assert books.history() == ()

    def test_knowledge_files(self, tmp_path: Path) -> None:
        path = tmp_path / "knowledge.toml"
        path.write_text('tiers = [["a"], ["b", "c"]]\nforbidden = [["b", "c"]]\n', encoding="utf-8")
        want = Knowledge((("a",), ("b", "c")), frozenset({("b", "c")}))
        assert load_knowledge(path) == want
        path.write_text('[knowledge]\ntiers = [["a"], ["b", "c"]]\nforbidden = [["b", "c"]]\n', encoding="utf-8")
        assert load_knowledge(path) == want
        for text, match in [("tier = []", "unknown field"), ("forbidden = [['a']]", "pairs"), ("= 3", "TOML")]:
            path.write_text(text, encoding="utf-8")
            with pytest.raises(KnowledgeError, match=match):
                load_knowledge(path)
        with pytest.raises(KnowledgeError, match="No such file"):
            load_knowledge(tmp_path / "none.toml")


def check_result(result: Result, names: tuple[str, ...]) -> None:
    assert result.graph.nodes == names
    assert result.graph.cpdag.is_valid()
    assert Fraction(result.receipt.accounting_spent) <= Fraction(result.receipt.accounting_total)


class TestOddTables:
    def test_one_column_is_refused(self, boolean_schema: Callable[..., Schema]) -> None:
        books = MemoryLedger()
        with pytest.raises(MethodError, match="at least 2"):
            discover({"a": [True]}, boolean_schema("a"), 1, 1e-6, **SEEDED | {"ledger": books})
        assert books.history() == ()

    @pytest.mark.parametrize("n_rows", [0, 1])
    @pytest.mark.parametrize("nominal", [None, 1000])
    def test_hardly_any_rows(self, n_rows: int, nominal: int | None, boolean_schema: Callable[..., Schema]) -> None:
        rows = {name: np.zeros(n_rows, dtype=bool) for name in "abc"}
        schema = boolean_schema(*"abc", nominal_rows=nominal)
        check_result(discover(rows, schema, 1, 1e-6, settings=QUICK, **SEEDED), ("a", "b", "c"))

    @pytest.mark.parametrize("n_rows", [0, 1])
    @pytest.mark.parametrize("spread", [None, 1.0])
    def test_hardly_any_numbers(self, n_rows: int, spread: float | None) -> None:
        columns = {name: Numeric(bounds=(-5, 5), spread=spread) for name in "xy"}
        schema = Schema(dataset="none", columns=columns, reviewed=True)
        rows = {name: np.zeros(n_rows) for name in "xy"}
        check_result(discover(rows, schema, 1, 1e-6, settings=QUICK, **SEEDED), ("x", "y"))

    def test_constant_columns_have_no_edges(self) -> None:
        rows = chain_rows(2000, "abc") | {"still": np.zeros(2000, dtype=bool), "single": np.array(["u"] * 2000)}
        schema = Schema(
            dataset="still",
            columns={
                **{name: Boolean("false") for name in ("a", "b", "c", "still")},
                "single": Categorical(("u",), "u"),
            },
            reviewed=True,
            nominal_rows=2000,
        )
        result = discover(rows, schema, 20, 1e-3, settings=QUICK, **SEEDED)
        check_result(result, ("a", "b", "c", "still", "single"))
        touched = {name for edge in result.graph.edges for name in (edge.source, edge.target)}
        assert "single" not in touched
        assert {frozenset("ab"), frozenset("bc")} <= result.graph.cpdag.skeleton()

    def test_only_single_levels(self) -> None:
        schema = Schema(
            dataset="flat", columns={name: Categorical(("u",), "u") for name in "ab"}, reviewed=True, nominal_rows=9
        )
        result = discover({name: ["u"] * 9 for name in "ab"}, schema, 1, 1e-6, settings=QUICK, **SEEDED)
        assert result.graph.edges == ()

    def test_many_levels_are_merged(self) -> None:
        rng = np.random.default_rng(1)
        levels = tuple(f"v{k}" for k in range(25))
        cause = np.minimum(rng.geometric(0.3, 8000) - 1, 24)
        effect = np.where(rng.random(8000) < 0.5, cause % 12, rng.integers(0, 12, 8000))
        schema = Schema(
            dataset="levels",
            columns={
                "cause": Categorical(levels, "v0"),
                "effect": Categorical(levels[:12], "v0"),
                "other": Boolean("false"),
            },
            reviewed=True,
            nominal_rows=8000,
        )
        codes = {"cause": cause, "effect": effect, "other": rng.integers(0, 2, 8000)}
        result = discover(MemoryTable.from_codes(codes, schema), schema, 5, 1e-6, settings=QUICK, **SEEDED)
        check_result(result, ("cause", "effect", "other"))
        assert result.graph.cpdag.skeleton() == {frozenset(("cause", "effect"))}

    def test_noise_that_drowns_everything_is_said(self, boolean_schema: Callable[..., Schema]) -> None:
        schema = boolean_schema(*"abcd", nominal_rows=200)
        result = discover(chain_rows(200, "abcd"), schema, 0.01, 1e-6, settings=QUICK, **SEEDED)
        check_result(result, tuple("abcd"))
        assert any("large beside about 200 rows" in finding for finding in result.findings)


MODEL = LinearGaussian(
    ("x1", "x2", "x3", "x4"),
    np.array([[0, 0.8, 0, 0], [0, 0, 0.9, 0], [0, 0, 0, 0], [0, 0, 0.7, 0]], dtype=float),
    np.ones(4),
)


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    sample = sample_linear_gaussian(MODEL, 20_000, np.random.default_rng(2))
    return dict(zip(MODEL.nodes, sample.T, strict=True))


class TestNumbers:
    @pytest.mark.parametrize("declared", [True, False])
    def test_linear_models_are_found(self, rows: dict[str, np.ndarray], declared: bool) -> None:
        schema = gaussian_schema(MODEL, 20_000, declare_spread=declared)
        evidence = measure_source(rows, schema, 2, 1e-6, **SEEDED)
        kinds = [type(release) for release in evidence.releases]
        assert kinds == ([] if declared else [NoisyMagnitudes] * 4) + [NoisyMoments]
        assert [stage.stage for stage in evidence.plan] == ([] if declared else ["sizes of columns"]) + [
            "second moments"
        ]
        result = search_evidence(evidence, QUICK)
        check_result(result, MODEL.nodes)
        assert MODEL.dag().skeleton() <= result.graph.cpdag.skeleton()
        assert skeleton_f1(result.graph.cpdag, MODEL.dag()) >= 0.8

    def test_more_rows_do_not_make_it_worse(self) -> None:
        """Four columns, a large budget and 100 000 rows: noise is no excuse for an extra edge here."""
        extra = 0
        for seed in range(3):
            sample = sample_linear_gaussian(MODEL, 100_000, np.random.default_rng(seed))
            source = dict(zip(MODEL.nodes, sample.T, strict=True))
            result = discover(source, gaussian_schema(MODEL, 100_000), 10, 1e-6, settings=BARE, **SEEDED)
            extra += len(result.graph.cpdag.skeleton() - MODEL.dag().skeleton())
        assert extra <= 1

    def test_spreads_are_found_to_a_factor_of_two(self, rows: dict[str, np.ndarray]) -> None:
        schema = gaussian_schema(MODEL, 20_000, declare_spread=False)
        evidence = measure_source(rows, schema, 1, 1e-6, **SEEDED)
        for release in evidence.releases:
            if isinstance(release, NoisyMagnitudes):
                found = spread_of(release, 100.0)
                assert 0.5 < found / float(rows[release.column].std()) < 2.0

    def test_broken_numbers_break_nothing(self, rows: dict[str, np.ndarray]) -> None:
        broken = {name: values[:2000].copy() for name, values in rows.items()}
        broken["x1"][:5] = [np.nan, np.inf, -np.inf, 1e300, -1e300]
        for declared in (True, False):
            schema = gaussian_schema(MODEL, 2000, declare_spread=declared)
            check_result(discover(broken, schema, 5, 1e-6, settings=QUICK, **SEEDED), MODEL.nodes)

    def test_excluded_pairs_stay_out(self, rows: dict[str, np.ndarray]) -> None:
        knowledge = Knowledge(forbidden=frozenset({("x1", "x2"), ("x2", "x1")}))
        schema = gaussian_schema(MODEL, 20_000)
        result = discover(rows, schema, 2, 1e-6, knowledge=knowledge, settings=QUICK, **SEEDED)
        assert frozenset(("x1", "x2")) not in result.graph.cpdag.skeleton()

    def test_mixed_tables_can_be_counted_in_bins(self, rows: dict[str, np.ndarray]) -> None:
        mixed = dict(rows) | {"high": rows["x2"] + np.random.default_rng(3).standard_normal(20_000) > 0}
        schema = gaussian_schema(MODEL, 20_000)
        columns = {**schema.columns, "high": Boolean("false")}
        schema = Schema(dataset="mixed", columns=columns, reviewed=True, nominal_rows=20_000)
        evidence = measure_source(mixed, schema, 5, 1e-6, options={"plan": "pairs"}, **SEEDED)
        assert all(isinstance(release, NoisyCounts | NoisyInteractions) for release in evidence.releases)
        shapes = {
            name: size
            for release in evidence.releases
            for name, size in zip(release.columns, release.shape, strict=True)
        }
        assert shapes == {"x1": 4, "x2": 4, "x3": 4, "x4": 4, "high": 2}
        result = search_evidence(evidence, BARE)
        check_result(result, (*MODEL.nodes, "high"))
        assert {frozenset(("x2", "high")), frozenset(("x1", "x2"))} <= result.graph.cpdag.skeleton()

    def test_declared_bins_are_counted(self, rows: dict[str, np.ndarray]) -> None:
        columns = {name: Numeric(bounds=(-9, 9), bins=3) for name in ("x1", "x2")}
        schema = Schema(dataset="bins", columns=columns, reviewed=True, nominal_rows=20_000)
        evidence = measure_source(
            {name: rows[name] for name in columns}, schema, 5, 1e-6, options={"plan": "pairs"}, **SEEDED
        )
        rows, first, second, pair, *_ = evidence.releases
        assert [release.shape for release in (rows, first, second)] == [(), (3,), (3,)]
        assert isinstance(pair, NoisyInteractions)
        assert pair.shape == (3, 3)

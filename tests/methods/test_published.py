"""Paper calibrations: what they compute, that they claim nothing, and that the ledger and the receipt say so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2_contingency

from dagveil.data.column import Categorical, Ordinal
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.examples.networks import gaussian_schema, random_linear_gaussian, sample_linear_gaussian
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import METHODS
from dagveil.papers.publication import (
    PAPERS,
    PublishedAccess,
    advanced_composition,
    describe_published,
    g_p_value,
    g_test,
    largest_published_order,
    published_p_values,
    published_scores,
    readings_of,
    require_reading,
)
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Unbounded
from dagveil.privacy.ledger.account import RunState
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import NO_GUARANTEE, Calibration
from dagveil.runs.discovery import discover
from dagveil.runs.result import Result, load_result, result_from_json
from dagveil.search.constraint.pc import prune

PUBLISHED = list(PAPERS)
READINGS = [(name, calibration) for name in PUBLISHED for calibration in readings_of(name)]
every_published = pytest.mark.parametrize("method", PUBLISHED)
every_reading = pytest.mark.parametrize(("method", "calibration"), READINGS)


@pytest.fixture(scope="module")
def tables(sampled: Any) -> Any:
    """Return rows that a method can take, with facts of their schema on demand."""
    rng = np.random.default_rng(0)
    model = random_linear_gaussian(5, 0.4, rng)
    sample = sample_linear_gaussian(model, 1000, rng)

    def make(method: str, **facts: Any) -> MemoryTable:
        if method != "priv-pc-star":
            return sampled("cancer", 2000, **facts)
        schema = msgspec.structs.replace(gaussian_schema(model, 1000), **facts)
        return MemoryTable.from_source(dict(zip(schema.columns, sample.T, strict=True)), schema)

    return make


def run_published(
    table: MemoryTable, method: str, ledger: MemoryLedger, calibration: Calibration | None = None, **more: Any
) -> Result:
    return discover(
        table,
        table.schema,
        1,
        1e-6,
        method=method,
        calibration=calibration or next(iter(readings_of(method)), Calibration.PAPER),
        ledger=ledger,
        noise=NoiseKind.EXACT,
        **more,
    )


def test_all_but_measure_come_from_papers() -> None:
    assert sorted(PUBLISHED) == sorted(set(METHODS) - {"measure", "measure-ges", "measure-features"})


class TestNoGuarantee:
    @every_published
    def test_a_guarded_data_set_is_refused(self, method: str, tables: Any) -> None:
        table = tables(method, public=False)
        ledger = MemoryLedger()
        ledger.set_budget(table.schema.dataset, Budget.of(5, 1e-5))
        with pytest.raises(MethodError, match=r"has a lifetime budget, and the \w+ calibration claims no guarantee"):
            run_published(table, method, ledger)
        assert ledger.history() == ()
        assert not ledger.account(table.schema.dataset).unbounded

    @every_published
    def test_accepted_it_is_recorded_as_unbounded(self, method: str, tables: Any) -> None:
        table = tables(method, public=False)
        ledger = MemoryLedger()
        ledger.set_budget(table.schema.dataset, Budget.of(5, 1e-5))
        result = run_published(table, method, ledger, accept_no_guarantee=True)
        account = ledger.account(table.schema.dataset)
        assert account.unbounded
        assert "unbounded" in account.words
        (run,) = ledger.history()
        assert run.state is RunState.CLOSED
        assert [type(event) for event in run.events] == [Unbounded]
        assert not result.receipt.guaranteed

    @every_published
    def test_public_and_unguarded_data_sets(self, method: str, tables: Any) -> None:
        for public, guarded in ((True, True), (False, False)):
            table = tables(method, public=public)
            ledger = MemoryLedger()
            if guarded:
                ledger.set_budget(table.schema.dataset, Budget.of(5, 1e-5))
            assert not run_published(table, method, ledger).receipt.guaranteed
            assert ledger.account(table.schema.dataset).unbounded

    @every_reading
    def test_the_receipt_says_so_and_why(self, method: str, calibration: Calibration, tables: Any) -> None:
        result = run_published(tables(method), method, MemoryLedger(), calibration)
        receipt = result.receipt
        assert receipt.calibration is calibration
        assert not receipt.guaranteed
        words = receipt.words()
        assert words[0].lower().startswith(NO_GUARANTEE)
        assert words[1] == f"It follows {calibration.words}."
        assert require_reading(METHODS[method], calibration).flaw in words[2]
        assert not any("How strongly" in sentence for sentence in words)
        assert receipt.spent == "not known: nothing bounds it"
        assert result.questions is not None
        assert result.questions > 0
        if method == "measure-notears":
            # NOTEARS was never meant to be private: there is nothing to report
            assert result.reported is None
            assert any("read once, without noise" in finding for finding in result.findings)
            return
        assert result.reported is not None
        assert result.reported.epsilon >= 0
        assert any("would report epsilon" in finding and "does not hold" in finding for finding in result.findings)

    def test_sound_runs_report_nothing(self, tables: Any) -> None:
        table = tables("svt-pc")
        ledger = MemoryLedger()
        result = discover(table, table.schema, 1, method="svt-pc", ledger=ledger, noise=NoiseKind.EXACT)
        assert result.reported is None
        assert result.receipt.guaranteed
        assert not ledger.account(table.schema.dataset).unbounded

    def test_measure_has_no_paper(self, tables: Any) -> None:
        ledger = MemoryLedger()
        with pytest.raises(MethodError, match="not from a publication"):
            run_published(tables("svt-pc"), "measure", ledger)
        assert ledger.history() == ()


class TestJson:
    @pytest.mark.parametrize(
        ("method", "calibration"),
        [*READINGS, *((name, Calibration.SOUND) for name in PUBLISHED)],
    )
    def test_results_survive_bit_for_bit(
        self, method: str, calibration: Calibration, tables: Any, tmp_path: Path
    ) -> None:
        table = tables(method)
        result = discover(
            table, table.schema, 1, method=method, calibration=calibration, noise=NoiseKind.SEEDED, seed=0, ledger=None
        )
        text = result.to_json()
        assert result_from_json(text) == result
        assert result_from_json(text).to_json() == text
        result.save(tmp_path / "result.json")
        assert load_result(tmp_path / "result.json") == result

    @pytest.mark.parametrize("method", ["svt-pc", "priv-pc"])
    def test_a_report_without_end_is_still_json(self, method: str, tables: Any) -> None:
        """Advanced composition of a huge epsilon is no finite number."""
        options = {"round_epsilon": 5000}
        result = run_published(tables(method), method, MemoryLedger(), Calibration.PROGRAM, options=options)
        assert result_from_json(result.to_json()) == result
        assert result.reported is not None
        assert result.reported.epsilon > 1e300

    def test_unanswered_edges_survive(self, tables: Any) -> None:
        table = tables("svt-pc")
        options = {"rounds": 1, "statistic": "g", "slack": 1e6}
        result = discover(
            table, table.schema, 1, method="svt-pc", options=options, noise=NoiseKind.SEEDED, seed=0, ledger=None
        )
        assert len(result.unanswered) == 9
        again = result_from_json(result.to_json())
        assert again.unanswered == result.unanswered
        assert again.questions == result.questions == 1
        assert again.method.settings["rounds"] == 1


class TestFormulas:
    def test_g_against_scipy(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(20):
            table = rng.integers(1, 40, (1, 3, 4))
            expected = chi2_contingency(table[0], correction=False, lambda_="log-likelihood")
            statistic, freedom = g_test(table)
            assert statistic == pytest.approx(expected.statistic)
            assert freedom == expected.dof
            assert g_p_value(table) == pytest.approx(expected.pvalue)

    def test_strata_add_up_and_empty_levels_count(self) -> None:
        one, other = np.array([[30, 20], [20, 30]]), np.array([[5, 0], [0, 0]])
        both = np.stack([one, other])
        assert g_test(both)[0] == pytest.approx(g_test(one[None])[0])
        assert g_test(both)[1] == 2
        assert g_test(np.zeros((1, 2, 1), dtype=np.int64)) == (0.0, 0)
        assert g_p_value(np.zeros((1, 2, 1), dtype=np.int64)) == 1.0

    def test_advanced_composition(self) -> None:
        assert advanced_composition(0.3, 0, 1e-3) == 0.0
        expected = 0.3 * math.sqrt(2 * 7 * math.log(1000)) + 7 * 0.3 * (math.exp(0.3) - 1)
        assert advanced_composition(0.3, 7, 1e-3) == pytest.approx(expected)
        assert advanced_composition(1e4, 7, 1e-3) == math.inf

    @pytest.mark.parametrize(
        ("rows", "columns", "order"), [(100_000, 37, 11), (100_000, 8, 6), (1000, 8, 4), (10, 8, 0), (0, 8, 0)]
    )
    def test_the_largest_order(self, rows: int, columns: int, order: int) -> None:
        assert largest_published_order(rows, columns) == order

    def test_levels_are_ordered_by_name(self) -> None:
        """The published programs code levels by their names, whatever order the schema declares."""
        columns = {
            "size": Ordinal(("small", "medium", "large"), "small"),
            "answer": Categorical(("yes", "no"), "yes"),
        }
        schema = Schema(dataset="levels", columns=columns, reviewed=True)
        codes = {"size": np.array([0, 0, 1, 2, 2, 2]), "answer": np.array([0, 1, 1, 0, 0, 1])}
        tests = PublishedAccess(MemoryTable.from_codes(codes, schema), np.random.default_rng(0))
        # rows: large, medium, small; columns: no, yes
        assert tests.ordered_counts(("size", "answer", ())).tolist() == [[[1, 2], [1, 0], [1, 1]]]
        assert tests.ordered_counts(("answer", "size", ())).tolist() == [[[1, 1, 1], [2, 0, 1]]]
        expected = float(published_p_values(np.array([[[1, 2], [1, 0], [1, 1]]])))
        assert tests.kendall(("size", "answer", ())) == pytest.approx(expected)

    def test_infinite_reports_are_cut_off(self, tables: Any) -> None:
        schema = tables("svt-pc").schema
        sweep = prune(tuple(schema.columns), lambda question: True, 0, Knowledge.none())
        asked = describe_published(schema, sweep, Knowledge.none(), (math.inf, 0.5))
        assert asked.reported is not None
        assert math.isfinite(asked.reported[0])
        assert asked.reported[1] == 0.5


class TestAccess:
    def test_exact_counts_and_sub_samples(self, tables: Any) -> None:
        table = tables("svt-pc")
        access = PublishedAccess(table, np.random.default_rng(0))
        first, second, third = list(table.schema.columns)[:3]
        expected = table.counts((third, first, second))
        assert (access.exact_counts(first, second, (third,)) == expected.reshape(-1, *expected.shape[-2:])).all()
        assert access.n_rows == 2000
        assert access.exact_table().sum() == 2000
        parts = [access.subsample(300) for _ in range(3)]
        assert [part.n_rows for part in parts] == [300] * 3
        joints = [tuple(part.exact_table().reshape(-1).tolist()) for part in parts]
        assert len(set(joints)) == 3
        assert all((part.exact_table() <= access.exact_table()).all() for part in parts)
        assert repr(access).startswith("<dagveil.papers.publication.PublishedAccess object")

    @every_reading
    def test_a_seed_gives_the_same_run(self, method: str, calibration: Calibration, tables: Any) -> None:
        table = tables(method)
        runs = [
            discover(
                table,
                table.schema,
                1,
                method=method,
                calibration=calibration,
                noise=NoiseKind.SEEDED,
                seed=seed,
                ledger=None,
            )
            for seed in (0, 0, 1)
        ]
        assert runs[0].graph == runs[1].graph
        assert runs[0].questions == runs[1].questions
        assert runs[0].reported == runs[1].reported


def test_the_program_drops_blocks_whose_variance_it_takes_for_negative() -> None:
    """Ninety of a hundred rows tied: the right variance is above 0, that of src/Kendalltaua.py below."""
    heavy, plain = np.array([[90, 5], [5, 0]]), np.array([[40, 10], [10, 40]])
    x, y = heavy.sum(axis=1), heavy.sum(axis=0)

    def variance(share: float) -> float:
        """Return the textbook variance of C − D, with a share of its middle term."""
        n = 100
        pairs, triples, odd = ([sum(f(c) for c in counts) for counts in (x, y)] for f in TIES)
        middle = 2 * (pairs[0] / 2) * (pairs[1] / 2) / (n * (n - 1))
        last = triples[0] * triples[1] / (9 * n * (n - 1) * (n - 2))
        return (n * (n - 1) * (2 * n + 5) - sum(odd)) / 18 + share * middle + last

    assert variance(1.0) > 0 > variance(0.25)
    both = np.stack([heavy, plain])
    assert float(published_p_values(both)) == float(published_p_values(np.stack([plain, 0 * plain])))
    # without a conditioning set the program does not look at the variance
    assert 0 < float(published_p_values(heavy[None])) < 0.5
    assert float(published_scores(both, as_printed=True)) != pytest.approx(float(published_scores(both)))


TIES = (lambda c: c * (c - 1), lambda c: c * (c - 1) * (c - 2), lambda c: c * (c - 1) * (2 * c + 5))

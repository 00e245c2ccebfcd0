"""`pcd`: what is charged, what rows decide, what is found, and the published algorithm line by line."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from dagveil.curator import Curator
from dagveil.curator.kernel_questions import KernelQuestions
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import pcd
from dagveil.methods.asking import Asked
from dagveil.papers import zhang2023
from dagveil.papers.zhang2023 import Rcit, RcitSettings, exact_rcit, published_p_value_range
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover
from dagveil.search.constraint.pc import Traversal, prune

Ask = Callable[..., tuple[Asked, Curator]]
SOUND: list[dict[str, str]] = [
    {"test": "gcm"},
    {"test": "hsic"},
    {"test": "hsic", "regression": "ridge"},
    {"test": "partial"},
]
every_test = pytest.mark.parametrize("options", SOUND, ids=lambda options: "-".join(options.values()))


def make_rows(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a chain a → b → c that is not linear, and d, which stands alone."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, n)
    b = np.tanh(2 * a) + rng.uniform(-0.5, 0.5, n)
    c = np.exp(b) - 1 + rng.uniform(-0.5, 0.5, n)
    return {"a": a, "b": b, "c": c, "d": rng.uniform(-1, 1, n)}


def make_schema(n: int | None) -> Schema:
    bounds = {"a": (-1, 1), "b": (-1.5, 1.5), "c": (-1.5, 4), "d": (-1, 1)}
    columns = {name: Numeric(bounds=pair) for name, pair in bounds.items()}
    return Schema(dataset="chain", columns=columns, reviewed=True, nominal_rows=n)


def make_table(n: int = 600, seed: int = 0) -> MemoryTable:
    return MemoryTable.from_source(make_rows(n, seed), make_schema(n or None))


def skeleton(asked: Asked) -> set[str]:
    return {"".join(sorted(pair)) for pair in asked.graph.skeleton()}


class TestCharges:
    @every_test
    @pytest.mark.parametrize("epsilon", [0.01, 1, 30])
    def test_the_total_is_never_exceeded(self, options: dict[str, str], epsilon: float, ask_method: Ask) -> None:
        asked, curator = ask_method("pcd", make_table(200), epsilon, permutations=19, **options)
        accounting = curator.accounting
        assert 0 < accounting.spent <= accounting.total
        assert sum(accounting.cost(event) for event in curator.events) == accounting.spent
        released = options.get("regression") != "ridge"
        moments = [event for event in curator.events if isinstance(event, DiscreteGaussian)]
        answers = [event for event in curator.events if isinstance(event, DiscreteLaplace)]
        if options["test"] == "partial":
            answers, moments = moments[1:], moments[:1]
        assert len(moments) == released
        assert asked.questions > 0
        assert len(answers) == asked.questions * (3 if options["test"] == "gcm" else 1)

    @every_test
    @pytest.mark.parametrize("questions", [1, 4])
    def test_the_budget_is_divided_into_questions(
        self, options: dict[str, str], questions: int, ask_method: Ask
    ) -> None:
        asked, curator = ask_method("pcd", make_table(200), 1, questions=questions, permutations=19, **options)
        assert asked.questions == questions
        assert curator.accounting.spent > 0.999 * curator.accounting.total
        left = {frozenset(edge[:2]) for edge in asked.unanswered}
        assert left
        assert left <= {frozenset(pair) for pair in asked.graph.skeleton()}
        assert any("kept without the questions" in finding for finding in asked.findings)

    def test_the_moments_take_their_share(self, ask_method: Ask) -> None:
        _, curator = ask_method("pcd", make_table(200), 1)
        share = curator.accounting.cost(curator.events[0]) / curator.accounting.total
        assert float(share) == pytest.approx(float(pcd.MOMENTS_SHARE), rel=1e-3)
        assert share <= pcd.MOMENTS_SHARE

    def test_an_unknown_number_of_rows_is_counted_and_rounded_down(self, ask_method: Ask) -> None:
        table = MemoryTable.from_source(make_rows(600), make_schema(None))
        asked, curator = ask_method("pcd", table, 4)
        assert asked.plan[0].stage == "number of rows"
        assert curator.events[0].label == "number of rows"
        slots = int(asked.plan[-1].why.split(" on ")[1].split()[0])
        assert 600 - 7 * asked.plan[0].noise_sd < slots < 600

    def test_rows_are_capped(self, ask_method: Ask) -> None:
        asked, _ = ask_method("pcd", make_table(600), 4, rows=100, test="gcm")
        assert "on 100 rows" in asked.plan[-1].why

    @every_test
    def test_the_noise_of_a_question_is_told(self, options: dict[str, str], ask_method: Ask) -> None:
        asked, curator = ask_method("pcd", make_table(200), 4, permutations=19, **options)
        (event, *_) = (event for event in curator.events if event.label.startswith("question"))
        noise = (
            2**0.5 / event.epsilon
            if isinstance(event, DiscreteLaplace)
            else (event.variance / event.squared_sensitivity) ** 0.5
        )
        assert asked.plan[-1].noise_sd == pytest.approx(float(noise), rel=1e-3)


class TestFound:
    @pytest.mark.parametrize("options", [*SOUND[:2], SOUND[3]], ids=["gcm", "hsic", "partial"])
    def test_the_chain_at_a_large_epsilon(self, options: dict[str, str], ask_method: Ask) -> None:
        asked, _ = ask_method("pcd", make_table(1500), 200, level=0.01, **options)
        assert skeleton(asked) == {"ab", "bc"}

    def test_hsic_sees_what_leaves_no_covariance(self, ask_method: Ask) -> None:
        rng = np.random.default_rng(0)
        x = np.linspace(-1, 1, 800)
        rows = {"x": x, "y": x**2 + rng.uniform(-0.2, 0.2, 800)}
        schema = Schema(
            dataset="d",
            columns={"x": Numeric(bounds=(-1, 1)), "y": Numeric(bounds=(-0.5, 1.5))},
            reviewed=True,
            nominal_rows=800,
        )
        table = MemoryTable.from_source(rows, schema)
        found = [skeleton(ask_method("pcd", table, 100, test=test)[0]) for test in ("hsic", "gcm")]
        assert found == [{"xy"}, set()]

    def test_ridge_finds_strong_dependence_without_delta(self, ask_method: Ask) -> None:
        asked, curator = ask_method("pcd", make_table(1500), 200, delta=0, **SOUND[2])
        assert curator.accounting.name == "pure accounting"
        assert {"ab", "bc"} <= skeleton(asked)

    def test_knowledge_is_respected(self, ask_method: Ask) -> None:
        knowledge = Knowledge((), frozenset({("a", "b"), ("b", "a")}), frozenset({("a", "d")}))
        asked, _ = ask_method("pcd", make_table(600), 100, knowledge=knowledge)
        assert ("a", "d") in asked.graph.directed
        assert "ab" not in skeleton(asked)

    def test_levels_count_by_their_scores(self, sampled: Any, ask_method: Ask) -> None:
        asked, _ = ask_method("pcd", sampled("asia", 5000), 200, test="gcm")
        assert frozenset({"lung", "either"}) in asked.graph.skeleton()


class TestRefused:
    def test_released_moments_need_delta(self, ask_method: Ask) -> None:
        with pytest.raises(BudgetError, match="give a delta such as"):
            ask_method("pcd", make_table(100), 1, delta=0)

    def test_gcm_needs_released_functions(self, ask_method: Ask) -> None:
        with pytest.raises(MethodError, match="choose regression=released"):
            ask_method("pcd", make_table(100), 1, test="gcm", regression="ridge")

    def test_partial_takes_all_rows(self, ask_method: Ask) -> None:
        with pytest.raises(MethodError, match="partial sums over all rows"):
            ask_method("pcd", make_table(100), 1, rows=50)

    def test_too_few_permutations_cost_nothing(self) -> None:
        ledger = MemoryLedger()
        with pytest.raises(MethodError, match="choose at least 19 permutations"):
            discover(
                make_rows(100),
                make_schema(100),
                1,
                method="pcd",
                options={"test": "hsic", "permutations": 10},
                ledger=ledger,
            )
        assert ledger.history() == ()

    @pytest.mark.parametrize(
        "options", [{"bandwidth": 0}, {"level": 1}, {"rows": 1}, {"penalty": 0}, {"test": "kci"}, {"questions": 0}]
    )
    def test_values_out_of_range(self, options: dict[str, Any]) -> None:
        (name,) = options
        with pytest.raises(MethodError, match=f"a setting of pcd cannot be read: .*{name}"):
            discover(make_rows(100), make_schema(100), 1, method="pcd", options=options, ledger=None)


class Recorder(Curator):
    """Writes answers down, or plays them back, whatever the rows say."""

    tape: list[Any]
    playing = False

    def outer_products(self, *arguments: Any) -> Any:
        return self._pass(super().outer_products, *arguments)

    def ask_kernels(self, slots: int) -> KernelQuestions:
        laboratory = super().ask_kernels(slots)
        for name in ("gcm", "permutation_bit"):
            exact = getattr(laboratory, name)
            setattr(laboratory, name, lambda *arguments, exact=exact: self._pass(exact, *arguments))
        return laboratory

    def _pass(self, exact: Callable[..., Any], *arguments: Any) -> Any:
        answer = exact(*arguments)
        if self.playing:
            return self.tape.pop(0)
        self.tape.append(answer)
        return answer


@pytest.mark.parametrize("test", ["gcm", "hsic", "partial"])
def test_rows_decide_through_answers_only(test: str, ask_method: Ask) -> None:
    """Played the answers that other rows gave, the program goes the same way."""
    tape: list[Any] = []

    def recorder(*arguments: Any) -> Curator:
        curator = Recorder(*arguments)
        curator.tape = tape
        curator.playing = bool(tape)
        return curator

    options = {"test": test, "permutations": 19, "make_curator": recorder}
    first, _ = ask_method("pcd", make_table(300), 20, **options)
    other = MemoryTable.from_source({name: np.zeros(300) for name in "abcd"}, make_schema(300))
    second, _ = ask_method("pcd", other, 20, **options)
    assert tape == []
    assert msgspec.structs.asdict(second.plan[-1]) == msgspec.structs.asdict(first.plan[-1])
    assert (second.graph, second.findings, second.questions) == (first.graph, first.findings, first.questions)


class TestPaper:
    def test_without_noise_it_is_pc_with_rcit(self, publish_method: Any) -> None:
        table = make_table(300)
        rows = dict(zip("abcd", table.levelled_rows("abcd", 300).T, strict=True))
        rng = np.random.default_rng(0)

        def is_independent(question: Any) -> bool:
            x, y, given = question
            conditions = np.stack([rows[name] for name in given], axis=1) if given else None
            return exact_rcit(rows[x], rows[y], conditions, RcitSettings(), rng).p_value > 0.05

        sweep = prune("abcd", is_independent, 2, Knowledge.none(), Traversal.ONCE)
        asked = publish_method("pcd", table, 1, question_epsilon=1e9)
        assert skeleton(asked) == {"".join(sorted("abcd"[i] for i in pair)) for pair in sweep.skeleton.edges()}

    @pytest.mark.parametrize(
        ("score", "permuted", "removed", "charged"),
        [
            (0.0, [1.0] * 100, True, 0),  # far below all permuted scores: independent, and no noise
            (9.0, [1.0] * 100, False, 0),  # far above: dependent, and no noise
            (0.5, [0.4] * 50 + [0.501] * 50, None, 1),  # one record could turn it: noise, and epsilon is added
            (0.5, [0.4] * 95 + [0.499] * 3 + [0.6] * 2, None, 1),
        ],
    )
    def test_both_branches_as_printed(
        self,
        score: float,
        permuted: list[float],
        removed: bool | None,
        charged: int,
        publish_method: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        answer = Rcit(float(np.mean(score < np.array(permuted))), score, np.array(permuted), 0.5, 0.5, 0)
        monkeypatch.setattr(zhang2023, "exact_rcit", lambda *arguments: answer)
        n = 5000
        lowest, highest = published_p_value_range(answer, n, RcitSettings())
        touched = lowest <= 0.05 if answer.p_value > 0.05 else highest >= 0.05
        assert touched == bool(charged)
        rows = {name: column for name, column in make_rows(n).items() if name in "ab"}
        schema = msgspec.structs.replace(make_schema(n), columns={name: make_schema(n).columns[name] for name in "ab"})
        kept = set()
        for seed in range(20):
            asked = publish_method("pcd", MemoryTable.from_source(rows, schema), Fraction(1, 2), seed=seed)
            assert asked.reported == (0.5 * charged, 0.0)
            kept.add(bool(skeleton(asked)))
        assert kept == ({True, False} if removed is None else {not removed})

    def test_the_linear_form_and_the_order(self, publish_method: Any) -> None:
        asked = publish_method("pcd", make_table(300), 5, statistic="features", largest_order=0)
        assert asked.questions == 6
        assert asked.reported[1] == 0.0

    @pytest.mark.parametrize("n", [0, 1])
    def test_too_few_rows(self, n: int, publish_method: Any) -> None:
        with pytest.raises(MethodError, match="at least 2 rows"):
            publish_method("pcd", make_table(n), 1)

    def test_it_needs_consent_where_a_budget_is_kept(self) -> None:
        ledger = MemoryLedger()
        ledger.set_budget("chain", Budget.of(3, 1e-5))
        arguments: dict[str, Any] = {
            "method": "pcd",
            "calibration": Calibration.PAPER,
            "options": {"statistic": "features"},
            "ledger": ledger,
            "noise": NoiseKind.EXACT,
        }
        with pytest.raises(MethodError, match="claims no guarantee"):
            discover(make_rows(200), make_schema(200), 1, **arguments)
        assert ledger.history() == ()
        result = discover(make_rows(200), make_schema(200), 1, accept_no_guarantee=True, **arguments)
        assert not result.receipt.guaranteed
        assert ledger.account("chain").unbounded
        assert zhang2023.PCD_FLAW in str(result.receipt.events)

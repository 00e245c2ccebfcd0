"""`noleaks` and `curate-score`: what is charged, what rows decide, where the descent ends, and what is told."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.curator import Curator
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.errors import BudgetError, GraphError, KnowledgeError, MethodError
from dagveil.examples.networks import (
    gaussian_schema,
    load_network,
    random_linear_gaussian,
    sample_linear_gaussian,
)
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import noleaks
from dagveil.methods.asking import Asked
from dagveil.methods.noleaks import Schedule, epsilon_at, iterations_allowed
from dagveil.papers.ma2022 import NoleaksProgram, encode_rows, noleaks_weights
from dagveil.papers.publication import PublishedAccess, readings_of
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent
from dagveil.runs.discovery import discover
from dagveil.runs.result import load_result
from dagveil.search.score.notears import NotearsSettings, find_weights, measure_by_exponential, measure_loss

Ask = Callable[..., tuple[Asked, Curator]]
GRADIENT_METHODS = ("noleaks", "curate-score")
every_method = pytest.mark.parametrize("method", GRADIENT_METHODS)


def make_table(seed: int = 0, rows: int = 2000, nodes: int = 5, **facts: Any) -> MemoryTable:
    """Return rows of a fixed linear network, sampled by the seed."""
    model = random_linear_gaussian(nodes, 0.4, np.random.default_rng(0))
    schema = msgspec.structs.replace(gaussian_schema(model, rows), **facts)
    sample = sample_linear_gaussian(model, rows, np.random.default_rng(seed))
    return MemoryTable.from_source(dict(zip(schema.columns, sample.T, strict=True)), schema)


@pytest.fixture(scope="module")
def numbers() -> MemoryTable:
    return make_table()


def labels(curator: Curator) -> Counter[str]:
    return Counter(event.label for event in curator.events)


class TestCharges:
    @every_method
    @pytest.mark.parametrize(("iterations", "outer"), [(30, 5), (7, 3), (2, 5), (1, 1)])
    def test_a_gradient_for_each_iteration(
        self, method: str, iterations: int, outer: int, numbers: MemoryTable, ask_method: Ask
    ) -> None:
        asked, curator = ask_method(method, numbers, 1, iterations=iterations, outer=outer)
        counted = labels(curator)
        assert counted["gradient"] == iterations
        assert counted["curvature"] <= iterations
        assert asked.questions == sum(counted.values())
        assert set(counted) <= {"gradient", "curvature"}

    @every_method
    @pytest.mark.parametrize("epsilon", [0.01, 1, 20])
    def test_the_total_is_used_and_never_exceeded(
        self, method: str, epsilon: float, numbers: MemoryTable, ask_method: Ask
    ) -> None:
        for schedule in Schedule if method == "curate-score" else (None,):
            options = {} if schedule is None else {"schedule": schedule.value}
            _, curator = ask_method(method, numbers, epsilon, **options)
            accounting = curator.accounting
            assert accounting.spent == sum(accounting.cost(event) for event in curator.events)
            assert Fraction(98, 100) < accounting.spent / accounting.total <= 1

    def test_shares_rise_by_default(self, numbers: MemoryTable, ask_method: Ask) -> None:
        _, curator = ask_method("curate-score", numbers, 1)
        prices = [curator.accounting.cost(event) for event in curator.events if event.label == "gradient"]
        assert all(later > earlier for earlier, later in pairwise(prices))
        # additive: the last iteration's epsilon is almost twice the first one's, and prices go by squares
        assert float(prices[-1] / prices[0]) == pytest.approx((59 / 30) ** 2, rel=0.01)

    def test_uniform_shares(self, numbers: MemoryTable, ask_method: Ask) -> None:
        _, curator = ask_method("noleaks", numbers, 1)
        prices = [float(curator.accounting.cost(event)) for event in curator.events if event.label == "gradient"]
        assert max(prices) == pytest.approx(min(prices), rel=0.01)

    def test_rows_and_levels_are_paid_for(self, sampled: Any, ask_method: Ask) -> None:
        table = sampled("cancer", 2000, nominal_rows=None)
        _, curator = ask_method("noleaks", table, 1)
        counted = labels(curator)
        assert counted["one-way tables"] == counted["number of rows"] == 1
        assert curator.accounting.spent <= curator.accounting.total

    @every_method
    def test_tiny_budgets_end_well(self, method: str, numbers: MemoryTable, ask_method: Ask) -> None:
        options = {"schedule": "multiplicative"} if method == "curate-score" else {}
        asked, _ = ask_method(method, numbers, 1e-4, **options)
        assert asked.questions > 0

    @every_method
    def test_delta_is_needed(self, method: str, numbers: MemoryTable) -> None:
        ledger = MemoryLedger()
        with pytest.raises(BudgetError, match="delta above 0"):
            discover(numbers, numbers.schema, 1, 0, method=method, ledger=ledger)
        assert ledger.history() == ()


class RecordedDescent:
    """Writes answers down, or gives the ones written down before; notes what was asked."""

    def __init__(self, real: Any, tape: list[Any], playing: bool, asked: list[Any]) -> None:
        self.real, self.tape, self.playing, self.questions = real, tape, playing, asked
        self.asked = 0

    def _answer(self, name: str, *words: Any) -> Any:
        self.questions.append((name, np.asarray(words[0]).tolist(), words[1], words[2]))
        self.asked += 1
        if self.playing:
            return self.tape.pop(0)
        self.tape.append(getattr(self.real, name)(*words))
        return self.tape[-1]

    def gradient(self, *words: Any) -> Any:
        return self._answer("gradient", *words)

    def curvature(self, *words: Any) -> Any:
        return self._answer("curvature", *words)


def recorder(tape: list[Any], playing: bool, asked: list[Any]) -> type[Curator]:
    """Return a curator whose answers are recorded on a tape, or played from it."""

    class RecordedCurator(Curator):
        def ask_gradients(self, rows: MomentPlan) -> Any:
            asked.append(("rows", rows))
            return RecordedDescent(super().ask_gradients(rows), tape, playing, asked)

        def count_tables(self, *words: Any) -> Any:
            return self._play(lambda: super(RecordedCurator, self).count_tables(*words))

        def count_rows(self, *words: Any) -> Any:
            return self._play(lambda: super(RecordedCurator, self).count_rows(*words))

        def _play(self, ask: Callable[[], Any]) -> Any:
            if playing:
                return tape.pop(0)
            tape.append(ask())
            return tape[-1]

    return RecordedCurator


class TestReplay:
    """The program sees rows through noisy answers only: with the same answers it goes the same way on any rows."""

    @every_method
    @pytest.mark.parametrize("kind", ["numbers", "levels"])
    def test_frozen_answers_give_the_same_run(self, method: str, kind: str, sampled: Any, ask_method: Ask) -> None:
        if kind == "numbers":
            table, other = make_table(), make_table(seed=1, rows=300, nominal_rows=2000)
        else:
            table = sampled("cancer", 2000, nominal_rows=None)
            codes = {
                name: np.random.default_rng(5).integers(0, column.n_levels, 77)
                for name, column in table.schema.columns.items()
            }
            other = MemoryTable.from_codes(codes, table.schema)
        tape: list[Any] = []
        first: list[Any] = []
        asked, _ = ask_method(method, table, 1, make_curator=recorder(tape, False, first))
        assert len(tape) >= 31
        second: list[Any] = []
        again, curator = ask_method(method, other, 1, make_curator=recorder(tape, True, second))
        assert tape == []
        assert curator.events == ()
        assert again == asked
        assert second == first

    def test_other_answers_give_another_run(self, numbers: MemoryTable, ask_method: Ask) -> None:
        """The test above could not fail if answers did not matter."""
        runs = []
        for seed in (0, 1):
            questions: list[Any] = []
            ask_method("noleaks", numbers, 1, seed=seed, make_curator=recorder([], False, questions))
            runs.append(questions)
        assert runs[0] != runs[1]


class TestDescent:
    def test_without_noise_it_comes_near_exact_notears(self, ask_method: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
        """At a huge epsilon, and without clipping, the loss is nearly that of NOTEARS on the same rows."""
        table = make_table(rows=3000)
        found: list[np.ndarray] = []
        read = noleaks.read_graph

        def spy(columns: Any, weights: np.ndarray, *rest: Any) -> Any:
            found.append(weights)
            return read(columns, weights, *rest)

        monkeypatch.setattr(noleaks, "read_graph", spy)
        ask_method("noleaks", table, 1e8, iterations=200, outer=8, penalty=0.02, clip=1000)
        (weights,) = found
        plan = noleaks.row_plan(table.schema, {})
        moments = table.outer_products(plan)[1:, 1:] / 4.0**noleaks.BITS / table.n_rows
        exact = find_weights(moments, NotearsSettings(penalty=0.02)).matrix

        def objective(matrix: np.ndarray) -> float:
            return measure_loss(moments, matrix)[0] + 0.02 * float(np.abs(matrix).sum())

        assert measure_by_exponential(weights)[0] < 1e-3
        best, empty = objective(exact), objective(np.zeros_like(exact))
        assert best < 0.9 * empty
        assert objective(weights) < best + 0.05 * (empty - best)

    @pytest.mark.parametrize("seed", range(3))
    def test_exact_answers_lower_the_loss_from_round_to_round(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        covariance = random_linear_gaussian(6, 0.4, rng).covariance()
        forbidden = np.eye(6, dtype=bool)
        losses = []
        for iterations in (1, 5, 60):
            weights = noleaks.descend(
                6,
                lambda w, k: measure_loss(covariance, w)[1],
                lambda p, k: float(np.trace(p.T @ covariance @ p)),
                iterations,
                1,
                0.01,
                forbidden,
                silent,
            )
            price = noleaks._Lagrangian(0.01)
            losses.append(measure_loss(covariance, weights)[0] + price.value(weights))
        assert losses[0] > losses[1] > losses[2]

    def test_garbage_answers_end_in_finite_weights(self) -> None:
        rng = np.random.default_rng(0)
        weights = noleaks.descend(
            4,
            lambda w, k: rng.normal(0, 1e6, (4, 4)),
            lambda p, k: float(rng.normal(0, 1e6)),
            40,
            5,
            0.05,
            np.eye(4, dtype=bool),
            silent,
        )
        assert np.isfinite(weights).all()
        assert (np.diag(weights) == 0.0).all()

    def test_the_penalties_gradient(self) -> None:
        rng = np.random.default_rng(0)
        price = noleaks._Lagrangian(0.1, rho=3.0, alpha=0.7)
        weights, direction = rng.normal(0, 0.4, (2, 4, 4))
        step = 1e-6
        slope = (price.value(weights + step * direction) - price.value(weights - step * direction)) / (2 * step)
        assert slope == pytest.approx(float((price.gradient(weights) * direction).sum()), rel=1e-5)


class TestKnowledge:
    KNOWLEDGE = Knowledge(
        tiers=(("x4", "x3"), ("x1", "x2", "x5")),
        forbidden=frozenset({("x1", "x2"), ("x2", "x1")}),
        required=frozenset({("x4", "x5")}),
    )

    @every_method
    @pytest.mark.parametrize("epsilon", [0.1, 100])
    def test_it_is_obeyed(self, method: str, epsilon: float, numbers: MemoryTable, ask_method: Ask) -> None:
        asked, _ = ask_method(method, numbers, epsilon, knowledge=self.KNOWLEDGE)
        graph = asked.graph
        assert ("x4", "x5") in graph.directed
        assert frozenset(("x1", "x2")) not in graph.skeleton()
        for cause, effect in graph.directed:
            assert self.KNOWLEDGE.allows(cause, effect)
        assert all(
            self.KNOWLEDGE.allows(*pair) and self.KNOWLEDGE.allows(*pair[::-1]) for pair in map(tuple, graph.undirected)
        )

    @every_method
    def test_by_the_paper_too(self, method: str, numbers: MemoryTable, publish_method: Any) -> None:
        graph = publish_method(method, numbers, 10, knowledge=self.KNOWLEDGE).graph
        assert ("x4", "x5") in graph.directed
        assert frozenset(("x1", "x2")) not in graph.skeleton()

    def test_unknown_columns_cost_nothing(self, numbers: MemoryTable) -> None:
        ledger = MemoryLedger()
        with pytest.raises(KnowledgeError, match="unknown columns: x9"):
            discover(
                numbers,
                numbers.schema,
                1,
                method="noleaks",
                ledger=ledger,
                knowledge=Knowledge(forbidden=frozenset({("x9", "x1")})),
            )
        assert ledger.history() == ()


class TestTold:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({}, "get more"),
            ({"schedule": "exponential"}, "get more"),
            ({"schedule": "multiplicative"}, "get less budget than earlier ones: this schedule falls"),
            ({"schedule": "multiplicative", "initial": 0.5}, "get less"),
            ({"schedule": "multiplicative", "initial": 2.0}, "get more"),
            ({"schedule": "uniform"}, "the same budget"),
        ],
    )
    def test_the_direction(self, options: dict[str, Any], told: str, numbers: MemoryTable, ask_method: Ask) -> None:
        asked, curator = ask_method("curate-score", numbers, 1, iterations=4, outer=2, **options)
        assert sum(told in finding for finding in asked.findings) == 1
        prices = [curator.accounting.cost(event) for event in curator.events if event.label == "gradient"]
        assert ("more" in told) == (prices[-1] > prices[0] * Fraction(101, 100))
        assert ("less" in told) == (prices[-1] < prices[0] * Fraction(99, 100))

    def test_the_number_of_questions(self, numbers: MemoryTable, ask_method: Ask) -> None:
        asked, _ = ask_method("noleaks", numbers, 1, iterations=6)
        assert f"{asked.questions} questions were asked" in asked.findings[0]
        (stage,) = asked.plan
        assert "6 gradients, uniform schedule" in stage.why

    def test_one_column_is_refused(self) -> None:
        schema = msgspec.structs.replace(make_table().schema, columns={"x": Numeric((0, 1))})
        with pytest.raises(MethodError, match="at least 2"):
            discover({"x": [0.5]}, schema, 1, method="noleaks", ledger=None)


def best_by_truth(weights: np.ndarray, columns: tuple[str, ...], truth: Dag) -> float:
    """Return the largest skeleton F1 of thresholds in thousandths that leave no cycle, as the artifact scores."""
    wanted = {frozenset(edge) for edge in truth.edges}
    best = 0.0
    for threshold in np.arange(2000) / 1000:
        arcs = frozenset(
            (columns[i], columns[j]) for i, j in zip(*np.nonzero(np.abs(weights) > threshold), strict=True)
        )
        try:
            Dag(columns, arcs)
        except GraphError:
            continue
        found = {frozenset(arc) for arc in arcs}
        best = max(best, 2 * len(found & wanted) / max(1, len(found) + len(wanted)))
        if not arcs:
            break
    return best


class TestPublished:
    @pytest.mark.parametrize(
        ("network", "printed"), [("cancer", 1.0), ("earthquake", 1.0), ("survey", 0.91), ("asia", 0.93)]
    )
    def test_without_noise_the_artifact_finds_the_skeleton(self, network: str, printed: float, sampled: Any) -> None:
        table = sampled(network, 100_000)
        access = PublishedAccess(table, np.random.default_rng(0))
        weights, _, _ = noleaks_weights(access, 1.0, Knowledge.none(), NoleaksProgram(private=False), silent)
        truth = load_network(network).dag()
        assert best_by_truth(weights, tuple(table.schema.columns), truth) >= printed - 0.02

    def test_without_noise_nothing_is_reported(self, numbers: MemoryTable, publish_method: Any) -> None:
        asked = publish_method("noleaks", numbers, 1, calibration=Calibration.PROGRAM, private=False)
        assert asked.reported is None
        assert "No noise was drawn." in asked.findings

    def test_levels_are_coded_by_frequency(self, sampled: Any) -> None:
        coded = encode_rows(PublishedAccess(sampled("cancer", 2000), np.random.default_rng(0)))
        assert coded.mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-9)
        for column in coded.T:
            values, counts = np.unique(column, return_counts=True)
            low, high = values[np.argmax(counts)], values[np.argmin(counts)]
            # the middles of the shares [0, p] and [p, 1], times 20: always 10 apart
            assert high - low == pytest.approx(10.0)

    def test_noise_and_totals_of_the_artifact(self, numbers: MemoryTable, publish_method: Any) -> None:
        options = {"gradient_epsilon": 0.5, "rows": 200}
        asked = publish_method("noleaks", numbers, 3, **options)
        share = 200 / numbers.n_rows
        assert asked.reported == pytest.approx((asked.questions * 0.5 * share, asked.questions * 1e-4 * share))
        charged = publish_method("noleaks", numbers, 3, public_rows=0, gradient_epsilon=0.5, rows=numbers.n_rows)
        n = numbers.n_rows
        expected = charged.questions * 0.5 + (math.log((n + 1) / (n - 999)) if n >= 1000 else math.inf)
        assert charged.reported[0] == pytest.approx(expected)

    @pytest.mark.parametrize("schedule", Schedule)
    @pytest.mark.parametrize("total", [0.1, 1.0, 10.0])
    def test_curate_score_spends_its_whole_budget(
        self, schedule: Schedule, total: float, numbers: MemoryTable, publish_method: Any
    ) -> None:
        """Lemma 2's iterations, from a twentieth of the total; the exponential number is loose."""
        iterations = math.floor(iterations_allowed(schedule, total, total / 20) + 1e-9)
        asked = publish_method("curate-score", numbers, total, schedule=schedule.value, initial_share=0.05)
        assert asked.questions == iterations
        assert asked.reported == pytest.approx(
            (sum(epsilon_at(schedule, total / 20, k, iterations) for k in range(iterations)), iterations * 1e-4)
        )
        assert (0.55 if schedule is Schedule.EXPONENTIAL else 0.9) * total < asked.reported[0] <= total * (1 + 1e-9)

    def test_algorithm_2_divides_by_one_less(self, numbers: MemoryTable, publish_method: Any) -> None:
        options = {"iterations": 5, "initial_share": 0.1}
        asked = publish_method("curate-score", numbers, 1, to_the_end=True, **options)
        assert asked.reported[0] == pytest.approx(sum(0.1 ** (1 + k / 4) for k in range(5)))
        text = publish_method("curate-score", numbers, 1, **options)
        assert text.reported[0] == pytest.approx(sum(0.1 ** (1 + k / 5) for k in range(5)))

    @every_method
    def test_an_empty_table(self, method: str) -> None:
        table = make_table()
        empty = MemoryTable.from_source({name: np.zeros(0) for name in table.schema.columns}, table.schema)
        for calibration in (Calibration.SOUND, *readings_of(method)):
            result = discover(
                empty,
                table.schema,
                1,
                method=method,
                calibration=calibration,
                noise=NoiseKind.SEEDED,
                seed=0,
                ledger=None,
            )
            assert result.method.calibration == calibration.value


@pytest.mark.parametrize(
    ("method", "options"),
    [("noleaks", ()), *(("curate-score", ("--set", f"schedule={schedule.value}")) for schedule in Schedule)],
)
def test_from_the_command_line(method: str, options: tuple[str, ...], tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = CliRunner(env={"DAGVEIL_LEDGER": str(tmp_path / "ledger.sqlite")}).invoke(group, list(words))
        assert done.exit_code == 0, done.output
        return done.output

    rows, schema, out = (str(tmp_path / name) for name in ("rows.csv", "rows.toml", "out"))
    run("sample", "cancer", "--rows", "500", "--seed", "1", "-o", rows)
    output = run("discover", rows, "--schema", schema, "--epsilon", "1", "--method", method, *options, "-o", out)
    assert "questions were asked" in output
    result = load_result(tmp_path / "out" / "result.json")
    assert result.receipt.guaranteed
    assert result.method.settings.get("schedule") == (options[-1].partition("=")[2] if options else None)
    assert any("iterations get less" in finding for finding in result.findings) == ("multiplicative" in str(options))

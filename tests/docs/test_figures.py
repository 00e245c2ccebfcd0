"""Figures that the pages quote about published methods and about accounting are measured or computed here."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.methods.asking import make_statistic
from dagveil.methods.noleaks import Schedule, iterations_allowed
from dagveil.papers.bhattacharjee2024 import CONDUCTS
from dagveil.papers.publication import advanced_composition, published_p_value_sensitivity
from dagveil.papers.wang2020 import SMALLEST_RATE
from dagveil.papers.xu2017 import published_covariance_sensitivity
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteLaplace, ExponentialChoice, ZcdpFilter
from dagveil.privacy.mechanisms.laplace import PureEvent, filter_for
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover
from dagveil.statistics.statistic import TableShape

DOCS = Path(__file__).resolve().parents[2] / "docs"


def page(name: str) -> str:
    """Return a page as one line."""
    return " ".join((DOCS / name).read_text(encoding="utf-8").split())


def covariance_change(records: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum |x_i x_j| over the upper triangle: (n − 1) times what a record adds to a covariance matrix, in L1."""
    sizes = np.abs(records)
    return np.asarray((sizes.sum(axis=1) ** 2 + (sizes**2).sum(axis=1)) / 2.0)


def test_ordinary_records_exceed_the_sensitivity_of_priv_pc_star() -> None:
    columns, n_rows = 10, 10_000
    stated = published_covariance_sensitivity(columns, n_rows) * (n_rows - 1)
    records = np.random.default_rng(0).standard_normal((200_000, columns))
    share = float((covariance_change(records) > stated).mean())
    # five standard errors are 0.0042
    assert share == pytest.approx(0.167, abs=0.0045)
    assert f"{100 * round(share, 2):g} % of the records do" in page("methods/priv-pc-star.md")
    assert covariance_change(np.full((1, columns), 4.0))[0] == pytest.approx(16.0 * stated)


def laplace_below(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the distribution function of Laplace noise."""
    tail = 0.5 * np.exp(-np.abs(values) / scale)
    return np.where(values < 0.0, tail, 1.0 - tail)


def test_a_round_without_a_hit_loses_half_of_its_epsilon_and_is_reported_as_nothing() -> None:
    """The published SVT-PC at ε = 1: threshold noise 2S/ε, question noise 8S/ε, a hundred questions that all say no."""
    step = 0.002
    noise = np.arange(-200.0, 200.0, step)
    density = np.exp(-np.abs(noise) / 2.0) / 4.0
    chances = [float((density * laplace_below(noise - value, 8.0) ** 100).sum() * step) for value in (-1.0, 0.0)]
    assert math.log(chances[0] / chances[1]) == pytest.approx(0.5, abs=1e-3)
    assert advanced_composition(1.0, 0, 1e-3) == 0.0
    assert "its loss is 0.5 where a round has ε = 1" in page("methods/svt-pc.md")


@pytest.mark.parametrize("method", ["svt-pc", "curate"])
def test_a_published_run_that_keeps_every_edge_is_reported_as_nothing(method: str) -> None:
    schema = Schema(dataset="demo", columns={name: Boolean("false") for name in "ab"}, reviewed=True)
    same = np.arange(1000) % 2 == 0
    rows = {"a": same, "b": same}
    result = discover(
        rows, schema, 1000, method=method, calibration=Calibration.PROGRAM, noise=NoiseKind.SEEDED, seed=0, ledger=None
    )
    assert len(result.graph.edges) == 1
    assert result.questions is not None
    assert result.questions > 0
    assert result.reported is not None
    assert result.reported.epsilon == 0.0


def test_laplace_noise_on_counts_loses_twice_if_a_record_is_replaced() -> None:
    """Two cells move by 1 each; far out on the right side of both, the loss is 1/scale for each."""
    epsilon = 1.0
    before, after, seen = np.array([5.0, 5.0]), np.array([4.0, 6.0]), np.array([9.0, 1.0])
    loss = epsilon * (np.abs(seen - after) - np.abs(seen - before)).sum()
    assert loss == pytest.approx(2.0 * epsilon)
    assert "The loss is then 2ε" in page("methods/lap-mech.md")


def test_published_sensitivities_of_p_values() -> None:
    stated = f"{published_p_value_sensitivity(100_000):.4f}"
    assert f"{stated} at n = 100 000" in page("methods/svt-pc.md")
    assert f"states {stated} at n = 100 000" in page("methods/priv-pc.md")
    printed, programmed = (CONDUCTS[reading].constant for reading in (Calibration.PAPER, Calibration.PROGRAM))
    assert f"{printed:.3f}/√n, which is {printed / math.sqrt(100_000):.4f} at n = 100 000" in page("methods/curate.md")
    assert f"the program has {programmed:.4f}/√n" in page("methods/curate.md")
    factor = math.sqrt(1.0 / SMALLEST_RATE)
    assert f"that noise is {factor:.1f} times too small" in page("methods/priv-pc.md")


def test_the_curve_of_iterations() -> None:
    text = (DOCS / "methods/curate-score.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| ([\d.]+) \| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \|$", text)
    assert {float(initial) > 1.0 for _, initial, *_ in rows} == {True, False}
    for total, initial, *printed in rows:
        for schedule, number in zip(
            (Schedule.ADDITIVE, Schedule.EXPONENTIAL, Schedule.MULTIPLICATIVE), printed, strict=True
        ):
            assert int(iterations_allowed(schedule, float(total), float(initial)) + 1e-9) == int(number)


def fewest_for_zcdp(epsilon: str, event: PureEvent) -> int:
    budget = Budget.of(epsilon, "1e-6")
    return next(count for count in range(1, 1000) if isinstance(filter_for(budget, count, event), ZcdpFilter))


def test_from_how_many_questions_zcdp_is_chosen() -> None:
    text = (DOCS / "decisions" / "0014-pure-or-zcdp-by-number-of-questions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| (\d+) \| (\d+) \|$", text, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["0.1", "1", "10"]
    for epsilon, questions, choices in rows:
        assert fewest_for_zcdp(epsilon, DiscreteLaplace) == int(questions)
        assert fewest_for_zcdp(epsilon, ExponentialChoice) == int(choices)


def test_scores_of_two_even_columns() -> None:
    text = (DOCS / "methods" / "statistics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["kendall", "spearman", "g", "exact-distance"]
    n_rows, level, shape = 100_000, 0.01, TableShape(1, 2, 2)
    even = 1.0 - 2 * 0.5**3
    for name, *quoted in rows:
        statistic = make_statistic(name, n_rows, level)
        record = statistic.sensitivity(Relation.ADD_REMOVE, shape)
        computed = [statistic.critical_value(level, n_rows, shape, even**2) / record]
        for correlation in (0.0, 0.02, 0.1):
            alike = round(n_rows / 4 * (1 + correlation))
            other = n_rows // 2 - alike
            computed.append(int(statistic.values(np.array([[[alike, other], [other, alike]]]))) / record)
        assert [f"{value:.1f}" for value in computed] == quoted, name

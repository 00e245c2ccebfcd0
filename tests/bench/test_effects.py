"""Exact effects that the study of effects compares with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dagveil.errors import MissingExtraError
from dagveil.examples.networks import Network, load_network
from dagveil.graphs.cpdag import Dag
from dagveil_bench import real_effects
from dagveil_bench.effects import Case, choose_pairs, do_law, exact_answer, rival_widths, run_tables
from dagveil_bench.real_effects import effects_page


def do_by_summing(network: Network, cause: str, effect: str) -> np.ndarray:
    """The slow twin: the truncated product over all cells of the joint table."""
    names = list(network.nodes)
    shape = [len(network.levels[name]) for name in names]
    joint = np.ones(shape)
    for name in names:
        if name == cause:
            continue
        own = [*network.parents[name], name]
        order = np.argsort([names.index(one) for one in own])
        spread = [shape[i] if names[i] in own else 1 for i in range(len(names))]
        joint = joint * network.tables[name].transpose(order).reshape(spread)
    axes = tuple(i for i, name in enumerate(names) if name not in (cause, effect))
    law = joint.sum(axis=axes)
    return law if names.index(cause) < names.index(effect) else law.T


@pytest.mark.parametrize("name", ["asia", "cancer", "survey"])
def test_do_laws_are_those_of_the_truncated_product(name: str) -> None:
    network = load_network(name)
    for cause, effect in choose_pairs(network.dag(), 8, np.random.default_rng(1)):
        assert do_law(network, cause, effect) == pytest.approx(do_by_summing(network, cause, effect))


def test_pairs_lead_from_cause_to_effect() -> None:
    dag = Dag(("a", "b", "c"), frozenset({("a", "b")}))
    assert choose_pairs(dag, 5, np.random.default_rng(0)) == [("a", "b")]


def test_a_small_study_runs() -> None:
    case = Case(("cancer",), 2, 1, 1, 2000, 1.0, 2)
    tally, unknown = run_tables(case, lambda stage, done, total: None)
    assert {row[1] for row in tally.rows()} <= {"table", "additive", "fresh table"}
    assert unknown[0][0] == "cancer"
    assert exact_answer.__doc__


def test_rivals_pay_for_every_effect() -> None:
    one, many = rival_widths(10_000, 1.0, (1, 100))
    assert one[4] == many[4]
    assert float(many[5]) > 10 * float(one[5])


def test_a_table_of_the_challenge_is_read_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows, names = 3000, np.array(["A", "B"])
    x = rng.standard_normal(rows)
    treated = (rng.random(rows) < 1.0 / (1.0 + np.exp(-2.0 * x))).astype(int)
    base = 3.0 * x + rng.standard_normal(rows)
    texts = ["x_1,x_2", *(f"{value},{name}" for value, name in zip(x, rng.choice(names, rows), strict=True))]
    (tmp_path / "x.csv").write_text("\n".join(texts))
    drawn = [f"{z},{y},{y + 2.0},{y},{y + 2.0}" for z, y in zip(treated, base, strict=True)]
    (tmp_path / "zymu_1.csv").write_text("\n".join(["z,y0,y1,mu0,mu1", *drawn]))
    monkeypatch.setattr(real_effects, "find_challenge", lambda: tmp_path)
    table, truth = real_effects.read_challenge(1)
    assert list(table) == ["x_1", "treatment", "outcome"]  # the column of letters is no number
    assert truth == pytest.approx(2.0)
    assert table["outcome"] == pytest.approx(base + 2.0 * treated)
    found = real_effects.run_challenge(1, lambda stage, done, total: None, (1,))
    errors = {row[:2]: float(row[3]) for row in found}
    assert errors["nothing", "exact rows"] > 2.0  # confounded
    assert abs(errors["all covariates", "exact rows"]) < 0.2
    assert abs(errors["all covariates", "ε = 10"]) < 0.3


def test_a_missing_package_of_the_challenge_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Path:
        raise MissingExtraError(name)

    def run(stage: str, done: int, total: int) -> None:
        pytest.fail("something was run")

    monkeypatch.setattr(real_effects, "folder_of", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps causallib"):
        effects_page(Case(("cancer",), 1, 1, 0, 100, 1.0, 1), (real_effects.CHALLENGE,), "", run)

"""Exact effects that the study of effects compares with."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.examples.networks import Network, load_network
from dagveil.graphs.cpdag import Dag
from dagveil_bench.effects import Case, choose_pairs, do_law, exact_answer, rival_widths, run_tables


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

"""`lap-mech`: one joint table with Laplace noise, refused where the domain is large."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest

from dagveil.data.column import Categorical
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import describe_sweep
from dagveil.papers.publication import g_p_value
from dagveil.papers.xu2017 import JointTests
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import discover, measure_source
from dagveil.search.constraint.pc import prune
from dagveil.search.settings import SearchSettings

NOTHING = Knowledge.none()
SEEDED: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": 0}


@pytest.mark.parametrize(("relation", "scale"), [("add-remove", 2), ("replace-one", 4)])
def test_one_release_of_every_cell(relation: str, scale: int, sampled: Any) -> None:
    table = sampled("cancer", 2000, relation=relation)
    evidence = measure_source(table, table.schema, Fraction(1, 2), 0, method="lap-mech", **SEEDED)
    (release,) = evidence.releases
    assert release.columns == tuple(table.schema.columns)
    assert len(release.values) == 32
    assert evidence.receipt.events == (DiscreteLaplace("joint table", 32, Fraction(1, 2)),)
    assert evidence.receipt.accounting_spent == evidence.receipt.accounting_total == "1/2"
    # under replaced records two cells change, so the scale is 2/epsilon
    assert float(release.variance) == pytest.approx(2 * scale**2, rel=0.05)
    exact = table.counts(release.columns).reshape(-1)
    off = np.array(release.values) - exact
    assert np.abs(off).mean() == pytest.approx(scale, rel=0.6)
    assert (off[exact == 0] != 0).any()  # empty cells have noise as well


def test_it_finds_the_graph(asia: Any, sampled: Any) -> None:
    table = sampled("cancer", 20_000)
    result = discover(table, table.schema, 1, method="lap-mech", settings=SearchSettings(redraws=0), **SEEDED)
    assert result.method.name == "lap-mech"
    assert result.graph.cpdag.is_valid()
    assert result.questions is None


@pytest.mark.parametrize("epsilon", [50, 700, 10**6])
def test_a_large_epsilon_is_no_trouble(epsilon: int, sampled: Any) -> None:
    table = sampled("cancer", 2000)
    result = discover(table, table.schema, epsilon, method="lap-mech", settings=SearchSettings(redraws=2), **SEEDED)
    assert result.graph.cpdag.is_valid()


def test_a_large_domain_is_refused_with_its_size() -> None:
    levels = tuple(f"v{i}" for i in range(10))
    schema = Schema(
        dataset="wide", columns={f"c{i}": Categorical(levels, "v0") for i in range(8)}, reviewed=True, nominal_rows=10
    )
    ledger = MemoryLedger()
    with pytest.raises(MethodError, match=r"has 1e\+08 cells; the limit is 4194304.*measure"):
        discover({name: ["v1"] for name in schema.columns}, schema, 1, method="lap-mech", ledger=ledger)
    assert ledger.history() == ()


@pytest.mark.parametrize("network", ["asia", "cancer", "survey"])
def test_paper_without_noise_is_pc(network: str, sampled: Any, publish_method: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)

    def is_independent(question: tuple[str, str, tuple[str, ...]]) -> bool:
        x, y, given = question
        counts = table.counts((*given, x, y))
        return g_p_value(counts.reshape(-1, *counts.shape[-2:])) > 0.01

    sweep = prune(columns, is_independent, len(columns) - 2, NOTHING)
    asked = publish_method("lap-mech", table, 10**9)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions
    assert asked.reported == (1e9, 0.0)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 4), (2, 3, 2, 3, 1)])
def test_sums_that_pairs_share_give_the_test_of_each(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    joint = rng.poisson(3.0, shape) + rng.laplace(0.0, 2.0, shape)
    tests = JointTests(joint)
    axes = range(joint.ndim)
    for x, y in combinations(axes, 2):
        others = [axis for axis in axes if axis not in (x, y)]
        for given in chain.from_iterable(combinations(others, size) for size in range(len(others) + 1)):
            asked = [*given, x, y]
            table = joint.sum(axis=tuple(axis for axis in axes if axis not in asked), keepdims=True)
            order = (*asked, *(axis for axis in axes if axis not in asked))
            strata = table.transpose(order).reshape(-1, shape[x], shape[y])
            slow = g_p_value(np.maximum(strata, 0.0))
            assert tests.p_value(x, y, given) == tests.p_value(y, x, given[::-1]) == pytest.approx(slow, rel=1e-9)

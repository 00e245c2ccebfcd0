"""Weighted accuracy, Clopper and Pearson's interval, and the distance with reversals: against definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dagveil.errors import GraphError
from dagveil.evaluation.reversals import count_wrong_edges
from dagveil.evaluation.weighted_accuracy import clopper_pearson, weigh_decisions
from dagveil.graphs.dag import Dag
from dagveil.graphs.mixed import Edge, Mark, MixedGraph


@given(st.integers(1, 40), st.data())
def test_interval_is_that_of_the_binomial_test(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials))
    exact = stats.binomtest(hits, trials).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, trials) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_interval_covers_as_often_as_it_says() -> None:
    ends = [clopper_pearson(k, 20, 0.8) for k in range(21)]
    for share in np.linspace(0.05, 0.95, 19):
        inside = [low <= share <= high for low, high in ends]
        assert stats.binom.pmf(np.arange(21), 20, share)[inside].sum() >= 0.8 - 1e-9


def test_weights_count() -> None:
    accuracy = weigh_decisions([1.0, 0.0], [3.0, 1.0])
    assert accuracy.share == 0.75
    assert (accuracy.low, accuracy.high) == pytest.approx(clopper_pearson(3.0, 4.0))
    # six pairs of one source decide like a single one
    assert weigh_decisions([1.0] * 6, [1 / 6] * 6).low == pytest.approx(clopper_pearson(1.0, 1.0)[0])


def test_bad_decisions() -> None:
    with pytest.raises(GraphError, match="one for each"):
        weigh_decisions([1.0], [1.0, 1.0])
    with pytest.raises(GraphError, match="negative"):
        weigh_decisions([1.0, 1.0], [2.0, -1.0])
    with pytest.raises(GraphError, match="hits"):
        clopper_pearson(3.0, 2.0)


MARKS = st.sampled_from(list(Mark))


@given(st.dictionaries(st.sampled_from(["ab", "ac", "bc"]), st.tuples(MARKS, MARKS)))
def test_distance_pair_by_pair(edges: dict[str, tuple[Mark, Mark]]) -> None:
    truth = Dag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}))
    found = MixedGraph(("a", "b", "c"), frozenset(Edge(k[0], k[1], *marks) for k, marks in edges.items()))
    slow = int("ac" in edges)
    slow += 1 if "ab" not in edges else int(edges["ab"][0] is Mark.ARROW)
    slow += 1 if "bc" not in edges else int(edges["bc"][1] is Mark.ARROW)
    assert count_wrong_edges(found, truth) == slow

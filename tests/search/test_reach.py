from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.graphs.cpdag import list_bits
from dagveil.search.constraint.skeleton import _Reach


@given(st.integers(3, 9), st.floats(0.1, 0.6), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_looking_no_further_than_needed_changes_nothing(nodes, density, seed):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((nodes, nodes)) < density, 1)
    reach = _Reach(upper | upper.T)
    for _ in range(10):
        x, y = rng.choice(nodes, 2, replace=False).tolist()
        wanted = sum(1 << z for z in range(nodes) if z not in (x, y) and rng.random() < 0.3)
        assert reach.lie_between(x, y, wanted) == (wanted & ~reach.between(x, y) == 0)


@given(st.integers(3, 9), st.floats(0.1, 0.6), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_nodes_between_are_reached_from_both_ends(nodes, density, seed):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((nodes, nodes)) < density, 1)
    adjacency = upper | upper.T
    reach = _Reach(adjacency)

    def reached(start, without):
        seen = {start}
        while new := {z for v in seen for z in range(nodes) if adjacency[v, z] and z != without} - seen:
            seen |= new
        return seen

    for x in range(nodes):
        for y in range(nodes):
            if x != y:
                plain = reached(x, without=y) & reached(y, without=x)
                assert list_bits(reach.between(x, y)) == sorted(plain)

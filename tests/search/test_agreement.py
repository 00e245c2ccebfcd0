"""What most redraws support of a graph."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dagveil.graphs.cpdag import Cpdag, close
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.confidence import DRAWN, Shares, agree, break_circles, find_alternatives

NAMES = tuple("abcde")
COMPLETE = Cpdag.complete(NAMES)


def shares_of(redraws: int, arrows: dict[str, int], lines: dict[str, int] | None = None) -> Shares:
    """Shares in which, for example, {"ab": 3} has a → b three times."""
    adjacent: Counter[frozenset[str]] = Counter()
    for pair, times in [*arrows.items(), *(lines or {}).items()]:
        adjacent[frozenset(pair)] += times
    return Shares(redraws, adjacent, Counter({(pair[0], pair[1]): times for pair, times in arrows.items()}))


def test_an_edge_needs_four_fifths_of_the_redraws() -> None:
    graph = agree(COMPLETE, shares_of(10, {}, {"ab": 8, "bc": 7}))
    assert (graph.directed, graph.undirected) == (frozenset(), {frozenset("ab")})


def test_pairs_that_only_redraws_join_are_not_drawn() -> None:
    """The bound on false edges is one of the graph that was found."""
    found = Cpdag(NAMES, frozenset(), frozenset({frozenset("ab")}))
    assert agree(found, shares_of(10, {}, {"ab": 8, "bc": 9})).skeleton() == {frozenset("ab")}


def test_an_arrow_needs_one_half_of_all_redraws() -> None:
    """Not only of those with the edge: a → b came in 4 of 10, b → c and d → c in 5."""
    graph = agree(COMPLETE, shares_of(10, {"ab": 4, "bc": 5, "dc": 5}, {"ab": 4, "bc": 3, "dc": 3}))
    assert graph.directed == {("b", "c"), ("d", "c")}
    assert graph.undirected == {frozenset("ab")}


def test_an_arrow_that_nothing_founds_is_a_line() -> None:
    graph = agree(COMPLETE, shares_of(10, {"ab": 9}, {"bc": 9}))
    assert (graph.directed, graph.undirected) == (frozenset(), {frozenset("ab"), frozenset("bc")})
    known = Knowledge(tiers=(("a",), ("b", "c", "d", "e")))
    assert agree(COMPLETE, shares_of(10, {"ab": 9, "bc": 9}), known).directed == {("a", "b"), ("b", "c")}


def test_two_halves_are_a_line() -> None:
    graph = agree(COMPLETE, shares_of(10, {"ab": 5, "ba": 5}))
    assert (graph.directed, graph.undirected) == (frozenset(), {frozenset("ab")})


def test_the_weakest_arrow_of_a_circle_goes() -> None:
    assert break_circles(NAMES, {("a", "b"): 8, ("b", "c"): 6, ("c", "a"): 7}) == {("a", "b"), ("c", "a")}


def test_majorities_that_go_round_lose_the_weakest_arrow() -> None:
    graph = agree(COMPLETE, shares_of(10, {"ab": 8, "db": 8, "bc": 6, "ca": 7, "ea": 7}, {"bc": 2, "ca": 1, "ea": 1}))
    assert graph.directed == {("a", "b"), ("d", "b"), ("c", "a"), ("e", "a")}


def test_what_arrows_imply_stays_a_line_unless_half_of_the_redraws_have_it() -> None:
    graph = agree(COMPLETE, shares_of(10, {"ac": 7, "bc": 6, "cd": 4}, {"ac": 1, "bc": 2, "cd": 5}))
    assert (graph.directed, graph.undirected) == ({("a", "c"), ("b", "c")}, {frozenset("cd")})
    more = agree(COMPLETE, shares_of(10, {"ac": 7, "bc": 6, "cd": 5}, {"ac": 1, "bc": 2, "cd": 4}))
    assert more.directed == {("a", "c"), ("b", "c"), ("c", "d")}


def test_arrows_do_not_imply_one_that_redraws_rather_reverse() -> None:
    """a → c ← b implies c → d, and d → c came more often: then neither is believed."""
    graph = agree(COMPLETE, shares_of(10, {"ac": 7, "bc": 6, "cd": 2, "dc": 4}, {"ac": 1, "bc": 2, "cd": 3}))
    assert graph.directed == frozenset()


def test_columns_that_take_turns_are_alternatives() -> None:
    first, second = frozenset({frozenset("ab"), frozenset("bc")}), frozenset({frozenset("ac"), frozenset("bc")})
    skeletons = (first,) * 4 + (second,) * 4 + (frozenset({frozenset("bc")}),) * 2
    adjacent = Counter(pair for pairs in skeletons for pair in pairs)
    shares = Shares(10, adjacent, Counter(), skeletons)
    graph = agree(COMPLETE, shares)
    assert graph.skeleton() == {frozenset("bc")}
    assert find_alternatives(graph, shares) == [("a", "b", "c", 0.8)]
    apart = Shares(10, adjacent, Counter(), (first | second,) * 4 + (frozenset({frozenset("bc")}),) * 6)
    assert find_alternatives(graph, apart) == []


def test_without_redraws_the_search_has_the_word() -> None:
    found = Cpdag(NAMES, frozenset({("a", "b")}), frozenset())
    assert agree(found, Shares.none()) is found


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_majorities_hold_and_never_make_a_circle(redraws: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    adjacent: Counter[frozenset[str]] = Counter()
    directed: Counter[tuple[str, str]] = Counter()
    # every pair has its own leaning, so that majorities often go round
    leaning = rng.random((5, 5))
    for _ in range(redraws):
        for i in range(5):
            for j in range(i):
                kind = rng.choice(3, p=[0.1, 0.1, 0.8])
                if kind:
                    adjacent[frozenset((NAMES[i], NAMES[j]))] += 1
                if kind == 2:
                    arc = (i, j) if rng.random() < leaning[i, j] else (j, i)
                    directed[NAMES[arc[0]], NAMES[arc[1]]] += 1
    graph = agree(COMPLETE, Shares(redraws, adjacent, directed))
    implied = close(NAMES, graph.directed, graph.undirected)[0] - graph.directed
    assert all(directed[a, b] >= directed[b, a] for a, b in implied)
    assert graph.skeleton() == {pair for pair, times in adjacent.items() if times / redraws >= DRAWN}
    assert all(2 * directed[arc] >= redraws for arc in graph.directed)
    left = set(NAMES)
    while left:
        sources = {node for node in left if not any(b == node and a in left for a, b in graph.directed)}
        assert sources, graph.directed
        left -= sources


def test_an_edge_that_another_column_explains_is_not_drawn() -> None:
    shares = shares_of(10, {}, {"ab": 9, "bc": 9})
    assert agree(COMPLETE, shares, explained={frozenset("ab")}).skeleton() == {frozenset("bc")}

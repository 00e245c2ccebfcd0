"""Probabilities from shares of redraws: their order, their sums, what is known, and what nobody can say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dagveil.errors import MethodError
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.search.confidence import Shares
from dagveil.search.probabilities import FITTED, Probabilities, estimate_probabilities, list_unclear, weigh_edge
from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings

AB = frozenset("ab")
REDRAWS = 50


def shares(adjacent: int, forward: int = 0, backward: int = 0, redraws: int = REDRAWS) -> Shares:
    return Shares(redraws, Counter({AB: adjacent}), Counter({("a", "b"): forward, ("b", "a"): backward}))


def estimate(
    told: Shares, columns: int = 10, visible: float = 0.1, knowledge: Knowledge = NO_KNOWLEDGE
) -> Probabilities:
    names = tuple("abcdefghijklmnopqrstuvwxyz"[:columns])
    return estimate_probabilities(told, frozenset({AB}), names, visible, (), knowledge)


@pytest.mark.parametrize("visible", [0.0, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("columns", [2, 10, 1000])
def test_an_edge_that_returns_more_often_is_likelier(columns: int, visible: float) -> None:
    names = tuple(map(str, range(columns - 2)))
    said = [
        estimate_probabilities(shares(k), frozenset({AB}), ("a", "b", *names), visible).of_pair(AB)
        for k in range(REDRAWS + 1)
    ]
    assert said == sorted(said)  # type: ignore[type-var]
    assert len(set(said)) == REDRAWS + 1
    assert 0.0 < said[0] < said[-1] < 1.0  # type: ignore[operator]


def test_the_same_share_tells_less_where_noise_hides_more() -> None:
    likely = [estimate(shares(REDRAWS), visible=visible).of_pair(AB) for visible in (0.01, 0.1, 1.0)]
    assert likely == sorted(likely, reverse=True)  # type: ignore[type-var]
    assert len(set(likely)) == 3
    assert estimate(shares(45), visible=0.0) == estimate(shares(45), visible=0.01)


def test_an_edge_is_less_likely_among_more_columns() -> None:
    few, many = (estimate(shares(30), columns).of_pair(AB) for columns in (5, 25))
    assert few is not None
    assert many is not None
    assert few > many


def test_fewer_redraws_say_less() -> None:
    all_of_them = [estimate(shares(n, redraws=n)).of_pair(AB) for n in (20, 50, 500)]
    assert all_of_them == sorted(all_of_them)  # type: ignore[type-var]


@pytest.mark.parametrize(("forward", "backward"), [(0, 0), (40, 0), (25, 15), (10, 10), (0, 40)])
def test_the_two_directions_of_an_edge_add_up_to_it(forward: int, backward: int) -> None:
    likely = estimate(shares(40, forward, backward))
    ahead, back = likely.of_arrow("a", "b"), likely.of_arrow("b", "a")
    assert ahead is not None
    assert back is not None
    assert ahead + back == pytest.approx(likely.of_pair(AB))
    assert (ahead > back) == (forward > backward)
    turned = estimate(shares(40, backward, forward))
    assert turned.of_arrow("b", "a") == pytest.approx(ahead)


def test_an_edge_without_an_arrow_says_nothing_of_its_direction() -> None:
    likely = estimate(shares(40))
    assert likely.of_arrow("a", "b") == likely.of_arrow("b", "a")


def test_what_is_known_is_taken_as_true() -> None:
    plain = estimate(shares(40, 5, 30))
    forbidden = estimate(shares(40, 5, 30), knowledge=Knowledge(forbidden=frozenset({("b", "a")})))
    assert forbidden.of_arrow("b", "a") == 0.0
    assert forbidden.of_arrow("a", "b") == pytest.approx(plain.of_pair(AB))
    required = estimate(shares(40, 40), knowledge=Knowledge(required=frozenset({("a", "b")})))
    assert (required.of_arrow("a", "b"), required.of_pair(AB)) == (1.0, 1.0)


def test_nothing_is_said_of_pairs_that_nobody_joined() -> None:
    likely = estimate(shares(40))
    assert likely.of_pair(frozenset("ac")) is None
    assert likely.of_arrow("a", "c") is None


def test_edges_at_a_probability_are_those_that_have_it() -> None:
    parents = {("a", "b"): 0.5, ("b", "a"): 0.4, ("a", "c"): 0.85, ("c", "a"): 0.0}
    likely = Probabilities(parents)
    assert likely.likely(0.9) == {AB}
    assert likely.likely(0.85) == {AB, frozenset("ac")}
    assert likely.likely(0.91) == frozenset()


def test_copies_and_explained_edges_have_no_probability() -> None:
    pairs = {frozenset(pair) for pair in ("ab", "ac", "bc", "cd", "de")}
    unclear = list_unclear(pairs, copies={frozenset("ab")}, explained={frozenset("de"): "c"})
    # an edge of a, or of b, may belong to the other; that a and b hold the same is plain
    assert unclear == {frozenset(pair) for pair in ("ac", "bc", "de")}
    likely = estimate_probabilities(shares(40), frozenset(pairs), tuple("abcde"), 0.1, unclear)
    assert {frozenset(arc) for arc in likely.parents} == {AB, frozenset("cd")}


def test_facts_are_log_odds_that_noise_weakens() -> None:
    share, noise, columns = weigh_edge(shares(25), AB, 10, 0.5)
    assert (share, noise) == (0.0, 0.0)
    assert columns == pytest.approx(2.302585)
    assert FITTED.share > 0
    assert FITTED.noise < 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_causes": True}, "hidden causes"),
        ({"redraws": 19}, "19 redraws are too few"),
        ({"marginal_level": 0.05}, "usual levels"),
        ({"search": SearchRule.SCORE}, "usual levels"),
        ({"arrows": ArrowRule.SEPARATING_SETS}, "usual levels"),
    ],
)
def test_edges_at_needs_a_search_whose_calibration_was_shown(changed: dict[str, object], words: str) -> None:
    assert words in (SearchSettings(**changed).why_no_probabilities() or "")  # type: ignore[arg-type]
    with pytest.raises(MethodError, match=words):
        SearchSettings(edges_at=0.9, **changed)  # type: ignore[arg-type]


def test_edges_at_is_a_probability() -> None:
    for wrong in (0.0, 1.0, -0.5, 90.0, float("nan")):
        with pytest.raises(MethodError, match="choose a probability"):
            SearchSettings(edges_at=wrong)
    for more in ({}, {"redraws": 20}, {"search": SearchRule.AUTO}):
        settings = replace(SearchSettings(edges_at=0.9), **more)  # type: ignore[arg-type]
        assert settings.why_no_probabilities() is None

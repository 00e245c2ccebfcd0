from __future__ import annotations

from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.examples.networks import load_network
from dagveil.report.layout import (
    BOX_HEIGHT,
    Grid,
    Layout,
    Point,
    build_grid,
    count_crossings,
    keep_apart,
    order_nodes,
    place_graph,
    rank_nodes,
    reduce_crossings,
)

Edges = list[tuple[str, str]]


@st.composite
def graphs(draw: st.DrawFn, largest: int = 9) -> tuple[tuple[str, ...], Edges, Edges]:
    """Nodes, acyclic arrows and lines, at most one edge for each pair, nodes in any order."""
    order = [f"column{' long name' * (i % 5)}{i}" for i in range(draw(st.integers(1, largest)))]
    arrows, lines = [], []
    for pair in combinations(order, 2):
        kind = draw(st.sampled_from(("none", "none", "arrow", "line")))
        if kind == "arrow":
            arrows.append(pair)
        elif kind == "line":
            lines.append(pair)
    return tuple(draw(st.permutations(order))), arrows, lines


def boxes(layout: Layout) -> list[tuple[float, float, float, float]]:
    return [
        (at.x - width / 2, at.y - height / 2, at.x + width / 2, at.y + height / 2)
        for at, (width, height) in ((at, layout.boxes[name]) for name, at in layout.positions.items())
    ]


def check_drawing(layout: Layout) -> None:
    """No two boxes touch, all is inside the sheet, and no edge piece runs through a box on its way through a row."""
    for a, b in combinations(boxes(layout), 2):
        assert a[2] + 5 <= b[0] or b[2] + 5 <= a[0] or a[3] + 5 <= b[1] or b[3] + 5 <= a[1]
    for left, top, right, bottom in boxes(layout):
        assert left >= -0.01
        assert right <= layout.width + 0.01
        assert top >= -0.01
        assert bottom <= layout.height + 0.01
    for (source, target), route in layout.routes.items():
        assert all(-0.01 <= at.x <= layout.width + 0.01 for at in route)
        for name, at in ((source, route[0]), (target, route[-1])):
            centre = layout.positions[name]
            assert abs(at.x - centre.x) <= layout.boxes[name].width / 2
            assert abs(abs(at.y - centre.y) - layout.boxes[name].height / 2) < 0.01
        for at in route[1:-1]:
            assert not any(left < at.x < right and top <= at.y <= bottom for left, top, right, bottom in boxes(layout))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_are_apart_and_causes_stand_above_effects(graph: tuple[tuple[str, ...], Edges, Edges]) -> None:
    layout = place_graph(*graph)
    check_drawing(layout)
    assert set(layout.positions) == set(graph[0])
    assert set(layout.routes) == {*graph[1], *graph[2]}
    for source, target in graph[1]:
        assert layout.positions[source].y + BOX_HEIGHT < layout.positions[target].y
    for source, target in graph[2]:
        assert layout.positions[source].y != layout.positions[target].y


def test_a_cycle_is_drawn_too() -> None:
    layout = place_graph(("a", "b", "c"), [("a", "b"), ("b", "c"), ("c", "a")], [])
    check_drawing(layout)
    up = [edge for edge in layout.routes if layout.positions[edge[0]].y > layout.positions[edge[1]].y]
    assert len(up) == 1


@pytest.mark.parametrize("name", ["asia", "sachs", "child", "alarm", "insurance"])
def test_published_networks(name: str) -> None:
    dag = load_network(name).dag()
    check_drawing(place_graph(dag.nodes, sorted(dag.edges), []))


def test_a_crowded_graph_is_drawn_straight() -> None:
    nodes = tuple(f"x{i}" for i in range(60))
    layout = place_graph(nodes, list(combinations(nodes, 2)), [])
    assert len(layout.routes) == 60 * 59 // 2
    assert {len(route) for route in layout.routes.values()} == {2}


def test_nodes_without_edges_are_set_in_rows() -> None:
    layout = place_graph(tuple(f"column{i}" for i in range(40)), [], [])
    check_drawing(layout)
    assert layout.width <= 900
    assert len({at.y for at in layout.positions.values()}) > 1


def test_an_empty_graph() -> None:
    assert place_graph((), [], []).height == 0


def test_routes_run_from_source_to_target() -> None:
    layout = place_graph(("a", "b"), [("b", "a")], [])
    first, *_, last = layout.routes["b", "a"]
    assert isinstance(first, Point)
    assert first.y < last.y


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_order_puts_causes_first(graph: tuple[tuple[str, ...], Edges, Edges]) -> None:
    nodes, arrows, _ = graph
    order = order_nodes(nodes, arrows)
    assert sorted(order) == sorted(nodes)
    assert all(order.index(a) < order.index(b) for a, b in arrows)


def slow_crossings(grid: Grid) -> int:
    """Slow twin: compare every pair of edge pieces."""
    total = 0
    for upper, lower in pairwise(grid.layers):
        pieces = [(upper.index(a), lower.index(b)) for a in upper for b in grid.below[a]]
        total += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(pieces, 2))
    return total


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_crossings_against_all_pairs_and_never_more(graph: tuple[tuple[str, ...], Edges, Edges]) -> None:
    nodes, arrows, _ = graph
    order = order_nodes(nodes, arrows)
    grid = build_grid(order, arrows, rank_nodes(order, arrows))
    before = count_crossings(grid)
    assert before == slow_crossings(grid)
    spots = [sorted(layer) for layer in grid.layers]
    reduce_crossings(grid)
    assert [sorted(layer) for layer in grid.layers] == spots
    assert count_crossings(grid) == slow_crossings(grid) <= before


def test_two_layers_reach_the_fewest_crossings() -> None:
    upper, lower = ("a", "b", "c", "d"), ("p", "q", "r", "s")
    arrows = [("a", "s"), ("b", "r"), ("c", "q"), ("d", "p"), ("a", "r"), ("b", "q")]
    nodes = (*upper, *lower)
    grid = build_grid(nodes, arrows, {node: int(node in lower) for node in nodes})
    fewest = min(
        count_crossings(Grid(8, [list(range(4)), list(bottom)], grid.above, grid.below))
        for bottom in permutations(range(4, 8))
    )
    reduce_crossings(grid)
    assert count_crossings(grid) <= fewest


def cost(places: list[float], wishes: list[float], weights: list[float]) -> float:
    return sum(w * (p - x) ** 2 for p, x, w in zip(places, wishes, weights, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(0.1, 5), st.floats(1, 20)), min_size=1, max_size=6), st.data())
def test_keep_apart_is_feasible_and_no_small_move_is_better(
    spots: list[tuple[float, float, float]], data: st.DataObject
) -> None:
    wishes, weights = [s[0] for s in spots], [s[1] for s in spots]
    steps = [sum(s[2] for s in spots[:i]) for i in range(len(spots))]
    places = keep_apart(wishes, weights, steps)
    gaps = [b - a for a, b in pairwise(steps)]
    assert all(q - p >= gap - 1e-9 for (p, q), gap in zip(pairwise(places), gaps, strict=True))
    # Slow twin: the problem is convex, so a better feasible point would show up on the way to any feasible point.
    other = data.draw(st.lists(st.floats(0, 30), min_size=len(spots), max_size=len(spots)))
    start = data.draw(st.floats(-80, 80))
    rival = [start + steps[i] + sum(other[: i + 1]) for i in range(len(spots))]
    mixed = [0.99 * p + 0.01 * r for p, r in zip(places, rival, strict=True)]
    assert cost(places, wishes, weights) <= cost(mixed, wishes, weights) + 1e-6

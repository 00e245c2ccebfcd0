"""Horizontal places: each spot near its neighbours, none too close to the next in its layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from dagveil.report.layers import Grid, Spot

NODE_GAP: Final = 26.0
"""Free room between two boxes."""

LINE_GAP: Final = 16.0
"""Free room beside a passing edge."""

ROUNDS: Final = 24
"""Sweeps over all layers."""


def place_spots(grid: Grid, widths: Sequence[float]) -> list[float]:
    """Return the centre of each spot.

    Parameters
    ----------
    grid
        Spots in their final order.
    widths
        Width of each node's box; passing points have none.
    """
    centres = [0.0] * len(grid.above)
    steps = [_steps(grid, layer, widths) for layer in grid.layers]
    for layer, room in zip(grid.layers, steps, strict=True):
        for spot, x in zip(layer, room, strict=True):
            centres[spot] = x - room[-1] / 2
    depth = len(grid.layers)
    for sweep in range(ROUNDS):
        rows = range(depth) if sweep % 2 == 0 else range(depth - 1, -1, -1)
        for row in rows:
            _pull(grid, grid.layers[row], steps[row], centres)
    _straighten(grid, widths, centres)
    return centres


def keep_apart(wishes: Sequence[float], weights: Sequence[float], steps: Sequence[float]) -> list[float]:
    """Return the places closest to the wishes, in weighted squares, with at least the given steps between them.

    This is isotonic regression on wishes minus steps, solved by pooling adjacent violators.

    Parameters
    ----------
    wishes, weights
        Wished place of each spot and how much it counts.
    steps
        Smallest place of each spot if the first stood at 0.

    Examples
    --------
    >>> keep_apart([0.0, 0.0], [1.0, 1.0], [0.0, 10.0])
    [-5.0, 5.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for wish, weight, step in zip(wishes, weights, steps, strict=True):
        mean, mass, count = wish - step, weight, 1
        while pools and pools[-1][0] >= mean:
            other, more, members = pools.pop()
            mean = (mean * mass + other * more) / (mass + more)
            mass, count = mass + more, count + members
        pools.append((mean, mass, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    return [place + step for place, step in zip(flat, steps, strict=True)]


def _pull(grid: Grid, layer: list[Spot], steps: list[float], centres: list[float]) -> None:
    """Move the spots of one layer towards their neighbours."""
    wishes, weights = [], []
    for spot in layer:
        near = grid.above[spot] + grid.below[spot]
        pulls = [_pull_of(grid, spot, end) for end in near]
        weight = sum(pulls)
        wish = sum(p * centres[end] for p, end in zip(pulls, near, strict=True)) / weight if near else centres[spot]
        wishes.append(wish)
        weights.append(weight or 0.01)
    for spot, x in zip(layer, keep_apart(wishes, weights, steps), strict=True):
        centres[spot] = x


def _pull_of(grid: Grid, first: Spot, second: Spot) -> float:
    """How much an edge piece wants to be upright; the middle of a long edge most of all."""
    return (1.0, 2.0, 6.0)[(not grid.is_node(first)) + (not grid.is_node(second))]


def _straighten(grid: Grid, widths: Sequence[float], centres: list[float]) -> None:
    """Make the middle of each long edge upright where its neighbours leave room."""
    left: dict[Spot, Spot] = {}
    right: dict[Spot, Spot] = {}
    for layer in grid.layers:
        for a, b in pairwise(layer):
            right[a], left[b] = b, a
    for chain in grid.chains.values():
        middle = chain[1:-1]
        if len(middle) < 2:
            continue
        low = max((centres[left[s]] + _room(grid, left[s], s, widths) for s in middle if s in left), default=-1e9)
        high = min((centres[right[s]] - _room(grid, s, right[s], widths) for s in middle if s in right), default=1e9)
        if low <= high:
            x = min(max(sum(centres[s] for s in middle) / len(middle), low), high)
            for spot in middle:
                centres[spot] = x


def _steps(grid: Grid, layer: list[Spot], widths: Sequence[float]) -> list[float]:
    steps = [0.0]
    for left, right in pairwise(layer):
        steps.append(steps[-1] + _room(grid, left, right, widths))
    return steps


def _room(grid: Grid, left: Spot, right: Spot, widths: Sequence[float]) -> float:
    halves = sum(widths[spot] / 2 for spot in (left, right) if grid.is_node(spot))
    return halves + (NODE_GAP if grid.is_node(left) and grid.is_node(right) else LINE_GAP)

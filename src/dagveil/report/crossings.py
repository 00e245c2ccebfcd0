"""Order within layers: few crossings, by barycentres and swaps of neighbours."""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import pairwise
from typing import Final

from dagveil.report.layers import Grid, Spot

SWEEPS: Final = 24
"""Barycentre sweeps at most, down and up in turn."""

PATIENCE: Final = 6
"""Sweeps without a better order after which the search stops."""

SWAP_ROUNDS: Final = 6
"""Rounds of swapping neighbours in a layer."""


def reduce_crossings(grid: Grid) -> None:
    """Reorder the layers of a grid in place; the result never has more crossings than the first order."""
    best = [list(layer) for layer in grid.layers]
    fewest, waited = count_crossings(grid), 0
    for sweep in range(SWEEPS):
        if fewest == 0 or waited == PATIENCE:
            break
        _sort_by_barycentre(grid, downwards=sweep % 2 == 0)
        _swap_neighbours(grid)
        found = count_crossings(grid)
        waited += 1
        if found < fewest:
            fewest, waited, best = found, 0, [list(layer) for layer in grid.layers]
    grid.layers[:] = best


def count_crossings(grid: Grid) -> int:
    """Count the pairs of edge pieces that cross.

    Examples
    --------
    >>> from dagveil.report.layers import Grid
    >>> count_crossings(Grid(4, [[0, 1], [2, 3]], [[], [], [1], [0]], [[3], [2], [], []]))
    1
    """
    total = 0
    for upper, lower in pairwise(grid.layers):
        place = {spot: i for i, spot in enumerate(lower)}
        ends: list[int] = []
        for spot in upper:
            mine = [place[end] for end in grid.below[spot]]
            total += sum(len(ends) - bisect_right(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return total


def _sort_by_barycentre(grid: Grid, *, downwards: bool) -> None:
    near = grid.above if downwards else grid.below
    rows = range(1, len(grid.layers)) if downwards else range(len(grid.layers) - 2, -1, -1)
    for row in rows:
        fixed = grid.layers[row - 1 if downwards else row + 1]
        place = {spot: i for i, spot in enumerate(fixed)}
        layer = grid.layers[row]
        centre = {spot: sum(place[end] for end in near[spot]) / len(near[spot]) for spot in layer if near[spot]}
        # Spots without a neighbour in the fixed layer keep their place; the others are sorted around them.
        moved = iter(sorted((spot for spot in layer if spot in centre), key=centre.__getitem__))
        grid.layers[row] = [next(moved) if spot in centre else spot for spot in layer]


def _swap_neighbours(grid: Grid) -> None:
    for _ in range(SWAP_ROUNDS):
        better = False
        for row, layer in enumerate(grid.layers):
            up = {spot: i for i, spot in enumerate(grid.layers[row - 1])} if row else {}
            down = {spot: i for i, spot in enumerate(grid.layers[row + 1])} if row + 1 < len(grid.layers) else {}
            for i in range(len(layer) - 1):
                left, right = layer[i], layer[i + 1]
                gain = _gain(grid.above[left], grid.above[right], up) + _gain(grid.below[left], grid.below[right], down)
                if gain > 0:
                    layer[i], layer[i + 1] = right, left
                    better = True
        if not better:
            break


def _gain(left: list[Spot], right: list[Spot], place: dict[Spot, int]) -> int:
    """Crossings that go away when the left and the right spot change places."""
    return sum((place[a] > place[b]) - (place[a] < place[b]) for a in left for b in right)

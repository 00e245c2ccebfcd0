"""Neighbouring levels: the same evidence searched with stricter and looser tests, at no cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from dagveil.graphs.cpdag import Cpdag
from dagveil.progress import Progress
from dagveil.runs.result import ChangedEdge, Join, Variation
from dagveil.search.constraint.skeleton import SkeletonSettings

FACTORS: Final = (0.1, 10.0)
"""Levels are varied by these factors, one level at a time."""
MOST_LEVEL: Final = 0.5
"""A level is not raised above this: beyond it, a test that says nothing would count as a finding."""

_LEVELS: Final[tuple[Literal["marginal_level", "conditional_level"], ...]] = ("marginal_level", "conditional_level")


def vary_levels(
    graph: Cpdag, settings: SkeletonSettings, search: Callable[[SkeletonSettings], Cpdag], progress: Progress
) -> tuple[Variation, ...]:
    """Search again at neighbouring levels, and tell what differs from the graph.

    Parameters
    ----------
    graph
        What the search found at its own levels.
    settings
        Its levels.
    search
        The search at other levels, over the same evidence: post-processing, so it is free.
    progress
        Told after each search.
    """
    steps = [(name, factor * getattr(settings, name)) for name in _LEVELS for factor in FACTORS]
    steps = [(name, float(f"{value:.6g}")) for name, value in steps if value <= MOST_LEVEL]
    variations = []
    for done, (name, value) in enumerate(steps, start=1):
        other = search(replace(settings, **{name: value}))
        variations.append(Variation(name, value, compare_graphs(graph, other)))
        progress("searching at neighbouring levels", done, len(steps))
    return tuple(variations)


def compare_graphs(before: Cpdag, after: Cpdag) -> tuple[ChangedEdge, ...]:
    """List the pairs that two graphs join differently.

    Examples
    --------
    >>> empty = Cpdag.empty(("a", "b"))
    >>> compare_graphs(empty, Cpdag(("a", "b"), frozenset({("b", "a")}), frozenset()))
    (ChangedEdge(source='a', target='b', before='none', after='reversed'),)
    """
    changes = []
    for source, target in sorted(tuple(sorted(pair)) for pair in before.skeleton() | after.skeleton()):
        was, is_now = _join(before, source, target), _join(after, source, target)
        if was != is_now:
            changes.append(ChangedEdge(source, target, was, is_now))
    return tuple(changes)


def _join(graph: Cpdag, source: str, target: str) -> Join:
    if (source, target) in graph.directed:
        return "directed"
    if (target, source) in graph.directed:
        return "reversed"
    return "undirected" if frozenset((source, target)) in graph.undirected else "none"

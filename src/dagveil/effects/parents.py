"""Which sets of columns identify an effect: one for each parent set of the cause that a graph leaves possible.

M. Maathuis, M. Kalisch and P. Bühlmann, Estimating high-dimensional intervention effects from observational data
(2009): given its parents, the effect of a column is known, and a graph without all its arrows leaves few parent sets
open. The optimal set is that of L. Henckel, E. Perković and M. Maathuis, Graphical criteria for efficient total effect
estimation via adjustment in causal linear models (2022).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from dagveil.errors import GraphError, MethodError
from dagveil.graphs.adjustment import find_adjustment
from dagveil.graphs.cpdag import Cpdag, Dag, find_extension, list_by_end, reach, sort_topologically
from dagveil.graphs.pag import Mark, MixedGraph

MOST_PARENT_SETS: Final = 256  # more possible parent sets than this are no answer that anyone could read


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the graph around the cause."""

    # the parents of the cause in it; None if the answer holds whatever they are, hidden ones included
    parents: frozenset[str] | None
    turned: frozenset[tuple[str, str]]  # undirected edges of the cause, directed as this reading has them
    # sets of columns that identify the effect, the most efficient first; None if the effect is a cause
    adjustment: tuple[frozenset[str], ...] | None
    why_nothing: str | None = None  # why the effect is nothing in this reading, whatever the evidence says by itself
    dag: Dag | None = None  # a DAG of the class that has these parents; None for a PAG


def list_readings(graph: Cpdag, cause: str, effect: str) -> tuple[Reading, ...]:
    """List the possible parent sets of the cause, each with the sets that identify the effect given it.

    A set is possible if some DAG of the class has it: same skeleton, same arrows, no new unshielded collider.

    >>> line = Cpdag(("x", "y"), frozenset(), frozenset({frozenset("xy")}))
    >>> [(sorted(one.parents), one.why_nothing) for one in list_readings(line, "x", "y")]
    [([], None), (['y'], 'y causes x')]
    """
    check_pair(graph.nodes, cause, effect)
    check_graph(graph)
    known = {tail for tail, head in graph.directed if head == cause}
    loose = sorted(other for pair in graph.undirected if cause in pair for other in pair if other != cause)
    found = []
    for chosen in _cliques(graph, loose):
        parents = frozenset(known.union(chosen))
        if any(second not in graph.adjacent(first) for first in chosen for second in parents - {first}):
            continue  # that would be a new collider
        turned = frozenset((other, cause) if other in chosen else (cause, other) for other in loose)
        pairs = frozenset(pair for pair in graph.undirected if cause not in pair)
        edges = find_extension(graph.nodes, graph.directed | turned, pairs)
        if edges is None:
            continue
        found.append(_read(Dag(graph.nodes, edges), parents, turned, cause, effect))
        if len(found) > MOST_PARENT_SETS:
            raise MethodError(
                f"the graph leaves more than {MOST_PARENT_SETS} parent sets of {cause} possible, since {len(loose)} of "
                "its edges have no arrow; say which columns come first, with --knowledge FILE.toml that lists tiers"
            )
    return tuple(found)


def check_pair(names: Iterable[str], cause: str, effect: str) -> None:
    """Refuse a cause or effect that is no column, or both being the same."""
    names = tuple(names)
    for name in (cause, effect):
        if name not in names:
            raise MethodError(f"no column is called {name!r}; the columns are {', '.join(names)}. Nothing was spent")
    if cause == effect:
        raise MethodError(f"cause and effect are both {cause!r}; name two different columns. Nothing was spent")


def check_graph(graph: Cpdag) -> None:
    """Refuse a graph that no DAG has: no effect can be told from it."""
    if sort_topologically(graph.nodes, graph.directed) is None:
        raise GraphError(
            "the arrows of this graph run in a circle, so it identifies no effect; turn or remove one of them, or "
            "give --knowledge FILE.toml that does"
        )
    if not graph.is_extendable():
        raise GraphError(
            "no DAG has the arrows and lines of this graph, so it identifies no effect; search again with other "
            "levels, or give --knowledge FILE.toml that directs the edges in doubt"
        )


def explain_refusal(graph: Cpdag, cause: str, effect: str, adjust: frozenset[str]) -> str | None:
    """Say why adjusting for these columns does not identify the effect in every DAG of the class; None if it does."""
    check_pair(graph.nodes, cause, effect)
    for name in sorted(adjust):
        if name not in graph.nodes:
            return f"no column is called {name!r}; the columns are {', '.join(graph.nodes)}"
        if name in (cause, effect):
            return f"{name} is the cause or the effect itself"
    for reading in list_readings(graph, cause, effect):
        dag = reading.dag
        if dag is None or reading.adjustment is None or reading.why_nothing is not None:
            continue
        if forbidden := _forbidden(dag, cause, effect) & adjust:
            name = min(forbidden)
            return f"{name} may lie behind {cause}, on the way to {effect} or beyond: adjusting for it hides the effect"
        if not separates_back_doors(dag, cause, effect, adjust):
            missing = sorted(min(reading.adjustment, key=len) - adjust)
            names = f"; {', '.join(missing)} would close it" if missing else ""
            return f"a path from {cause} to {effect} that starts with an arrow into {cause} stays open{names}"
    return None


def read_pag(pag: MixedGraph, cause: str, effect: str) -> Reading:
    """Return what holds in every graph that a PAG stands for; refused where no adjustment finds the effect."""
    check_pair(pag.nodes, cause, effect)
    marks = [{edge.mark_at_first, edge.mark_at_second} for edge in pag.edges]
    if any(Mark.TAIL in ends and Mark.ARROW not in ends for ends in marks):
        raise MethodError(
            "rows may have been selected by what they cause, as a line in this graph says, and adjustment does not "
            "make up for that. Search the evidence again without --selection-bias. Nothing was spent"
        )
    found = find_adjustment(pag, cause, effect)
    if found.columns is None:
        raise MethodError(
            f"with hidden causes allowed for, the effect of {cause} on {effect} cannot be told by adjustment: "
            f"{found.reason}. Search the evidence again with background knowledge of what comes first, or without "
            "hidden causes. Nothing was spent"
        )
    why = found.reason.removesuffix(": no effect") if found.zero else None
    return Reading(None, frozenset(), None if found.zero else (found.columns,), why)


def _cliques(graph: Cpdag, names: list[str]) -> Iterable[tuple[str, ...]]:
    """Yield all sets of these columns that are adjacent to one another, the empty one first."""
    layer: list[tuple[str, ...]] = [()]
    while layer:
        yield from layer
        layer = [
            (*held, name)
            for held in layer
            for name in names
            if (not held or name > held[-1]) and all(name in graph.adjacent(other) for other in held)
        ]


def _read(dag: Dag, parents: frozenset[str], turned: frozenset[tuple[str, str]], cause: str, effect: str) -> Reading:
    if effect in parents:
        return Reading(parents, turned, None, f"{effect} causes {cause}", dag)
    if effect not in descendants(dag, cause):
        return Reading(parents, turned, (parents,), f"no arrows lead from {cause} to {effect}", dag)
    whole = (find_optimal_set(dag, cause, effect), parents)
    sets = dict.fromkeys(some for one in whole for some in (one, _prune(dag, cause, effect, one)))
    return Reading(parents, turned, tuple(sets), None, dag)


def _prune(dag: Dag, cause: str, effect: str, adjust: frozenset[str]) -> frozenset[str]:
    """Return a smallest subset, found by leaving out one column after the other, that still identifies the effect."""
    kept = adjust
    for name in sorted(adjust):
        if separates_back_doors(dag, cause, effect, kept - {name}):
            kept -= {name}
    return kept


def find_optimal_set(dag: Dag, cause: str, effect: str) -> frozenset[str]:
    """Return the parents of all columns between cause and effect, the effect included, but for those columns.

    It is the same in every DAG with the same parents of the cause, and no other set has a smaller variance.
    """
    around = frozenset(parent for node in _between(dag, cause, effect) for parent in dag.parents(node))
    return around - _forbidden(dag, cause, effect)


def descendants(dag: Dag, node: str) -> frozenset[str]:
    """Return the columns that arrows lead to from a node."""
    return frozenset(reach(dag.children(node), dag.children))


def _between(dag: Dag, cause: str, effect: str) -> frozenset[str]:
    return frozenset(x for x in descendants(dag, cause) if x == effect or effect in descendants(dag, x))


def _forbidden(dag: Dag, cause: str, effect: str) -> frozenset[str]:
    between = _between(dag, cause, effect)
    return between.union({cause}, *(descendants(dag, node) for node in between))


def separates_back_doors(dag: Dag, cause: str, effect: str, given: frozenset[str]) -> bool:
    """Tell whether a set without descendants on the way closes every path into the cause, by moralisation."""
    between = _between(dag, cause, effect)
    kept = frozenset(arc for arc in dag.edges if not (arc[0] == cause and arc[1] in between))
    parents = list_by_end(dag.nodes, ((child, parent) for parent, child in kept))
    old = reach((cause, effect, *given), parents.__getitem__)
    near: dict[str, set[str]] = {node: set() for node in old}
    for node in old:
        for parent in parents[node]:
            near[node].add(parent)
            near[parent].add(node)
        for one, other in combinations(parents[node], 2):
            near[one].add(other)
            near[other].add(one)
    return effect not in reach((cause,), lambda node: near[node] - given)

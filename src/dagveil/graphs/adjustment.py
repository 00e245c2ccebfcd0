"""Adjustment in PAGs: whether the effect of one column on another follows from data by adjustment, and for what.

The generalised adjustment criterion of E. Perković, J. Textor, M. Kalisch and M. H. Maathuis, Complete graphical
characterization and construction of adjustment sets in Markov equivalence classes of ancestral graphs, 2018. Rows are
taken not to be selected by what is studied.
"""

from dataclasses import dataclass

import numpy as np

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import nearest_extension
from dagveil.graphs.pag import (
    ARROW,
    CIRCLE,
    NONE,
    TAIL,
    Ends,
    MixedGraph,
    find_possible_ancestors,
    find_possible_descendants,
    read_ends,
)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """How the effect of a cause is found.

    - `columns`: to adjust for; None if no adjustment finds the effect.
    - `zero`: whether the graph says that there is no effect.
    """

    columns: frozenset[str] | None
    reason: str
    zero: bool = False


def find_adjustment(pag: MixedGraph, cause: str, effect: str) -> Adjustment:
    """Tell whether adjustment finds the effect in every graph that a PAG stands for, and give a set that does.

    Examples
    --------
    >>> from dagveil.graphs.pag import Edge, Mark
    >>> pag = MixedGraph(("x", "y"), frozenset({Edge("x", "y", Mark.CIRCLE, Mark.CIRCLE)}))
    >>> find_adjustment(pag, "x", "y").columns is None
    True
    """
    if cause == effect:
        raise GraphError(f"cause and effect are both {cause!r}; give two different columns")
    for name in (cause, effect):
        pag.adjacent(name)  # which refuses a name that the graph does not have
    place = {name: i for i, name in enumerate(pag.nodes)}
    ends, x, y = read_ends(pag), place[cause], place[effect]
    # nodes but x from which y may be reached, and those of them that follow x on such paths
    rest = ends.copy()
    rest[x, :] = rest[:, x] = NONE
    above = find_possible_ancestors(rest, (y,))
    first = [node for node in sorted(above) if ends[node, x] in (CIRCLE, TAIL) and ends[x, node] != TAIL]
    if not first:
        return Adjustment(
            frozenset(), f"no path leads from {cause} to {effect} along which it could cause it: no effect", zero=True
        )
    for node in first:
        name = pag.nodes[node]
        if ends[node, x] != TAIL or ends[x, node] != ARROW:
            return Adjustment(
                None,
                f"the graph does not tell whether {cause} causes {name}, where a path to {effect} begins; knowledge of "
                f"which of them comes first may settle it",
            )
        if not is_visible(ends, x, node):
            return Adjustment(
                None, f"{cause} and {name} may share an unmeasured cause, and a path to {effect} begins with them"
            )
    on_paths = find_possible_descendants(rest, first) & above
    forbidden = find_possible_descendants(ends, on_paths)
    chosen = find_possible_ancestors(ends, (x, y)) - forbidden - {x, y}
    if not _separates(_cut(_choose_mag(ends), x, on_paths), x, y, chosen):
        return Adjustment(
            None, f"no set of columns blocks all paths by which {cause} and {effect} depend without an effect"
        )
    return Adjustment(
        frozenset(pag.nodes[node] for node in chosen), f"adjustment finds the effect of {cause} on {effect}"
    )


def is_visible(ends: Ends, a: int, b: int) -> bool:
    """Tell whether no hidden cause can stand behind the arrow a → b.

    So it is if an edge or a path of colliders, all parents of b, comes into a from a node that is not adjacent to b.
    """
    waiting, seen = [a], {a}
    while waiting:
        node = waiting.pop()
        for before in np.flatnonzero(ends[:, node] == ARROW).tolist():
            if before in seen or before == b:
                continue
            if not ends[before, b]:
                return True
            # a link of the path: a collider that is a parent of b
            if ends[node, before] == ARROW and ends[b, before] == TAIL and ends[before, b] == ARROW:
                seen.add(before)
                waiting.append(before)
    return False


def _choose_mag(ends: Ends) -> Ends:
    """Return a MAG of a PAG: circles at tails of arrows become tails, lines of circles a DAG without new colliders."""
    mag = ends.copy()
    mag[(ends == CIRCLE) & (ends.T != CIRCLE)] = TAIL
    names = tuple(map(str, range(len(ends))))
    pairs = np.argwhere(np.triu((ends == CIRCLE) & (ends.T == CIRCLE))).tolist()
    for tail, head in nearest_extension(names, (), [frozenset((names[a], names[b])) for a, b in pairs]):
        mag[int(tail), int(head)], mag[int(head), int(tail)] = ARROW, TAIL
    return mag


def _cut(mag: Ends, x: int, on_paths: set[int]) -> Ends:
    """Take away the arrows by which x acts: what is left connects x with others for other reasons."""
    cut = mag.copy()
    for node in on_paths:
        if mag[node, x] == TAIL and mag[x, node] == ARROW:
            cut[node, x] = cut[x, node] = NONE
    return cut


def _separates(mag: Ends, x: int, y: int, given: set[int]) -> bool:
    """Tell whether a set m-separates two nodes, by a walk along open paths."""
    above = find_possible_ancestors(np.where(mag == CIRCLE, NONE, mag).astype(np.int8), given) if given else set()
    walks = [(x, node) for node in np.flatnonzero(mag[x]).tolist()]
    seen = set(walks)
    while walks:
        before, node = walks.pop()
        if node == y:
            return False
        for after in np.flatnonzero(mag[node]).tolist():
            collides = mag[before, node] == ARROW and mag[after, node] == ARROW
            opens = node in above if collides else node not in given
            if opens and (node, after) not in seen and after != x:
                seen.add((node, after))
                walks.append((node, after))
    return True

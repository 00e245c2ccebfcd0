"""Two graphs side by side: which edges are only in one, which are turned, and the usual scores."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.pag import Mark, MixedGraph, find_class

Graph: TypeAlias = Dag | Cpdag | MixedGraph


@dataclass(frozen=True, slots=True)
class SkeletonRates:
    """Rates of a found skeleton against the true one.

    A rate without cases is the rate of a search that made no such mistake: precision and recall are 1, fpr and
    omission are 0. So two empty graphs agree perfectly; nothing found where there is something has precision 1,
    recall 0 and F1 0.
    """

    hits: int
    extra: int
    missed: int
    absent: int

    @property
    def precision(self) -> float:
        """Share of the found edges that are true: also the true discovery rate."""
        return rate(self.hits, self.hits + self.extra, empty=1.0)

    @property
    def recall(self) -> float:
        """Share of the true edges that are found: also the true positive rate."""
        return rate(self.hits, self.hits + self.missed, empty=1.0)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 when both graphs have no edge."""
        return rate(2 * self.hits, 2 * self.hits + self.extra + self.missed, empty=1.0)

    @property
    def fpr(self) -> float:
        """False positive rate: share of the absent edges that are found."""
        return rate(self.extra, self.extra + self.absent, empty=0.0)

    @property
    def omission(self) -> float:
        """False omission rate: share of true edges among the pairs that were found apart."""
        return rate(self.missed, self.missed + self.absent, empty=0.0)


def rate_skeleton(found: Graph, truth: Graph) -> SkeletonRates:
    """Return hits, misses and all rates of a found skeleton."""
    check_same_nodes(found, truth)
    seen, real = found.skeleton(), truth.skeleton()
    n_pairs = len(truth.nodes) * (len(truth.nodes) - 1) // 2
    return SkeletonRates(len(seen & real), len(seen - real), len(real - seen), n_pairs - len(seen | real))


def skeleton_f1(found: Graph, truth: Graph) -> float:
    """Return the F1 score of the adjacent pairs; 1 when neither graph has an edge."""
    return rate_skeleton(found, truth).f1


def check_same_nodes(found: Graph, truth: Graph) -> None:
    """Refuse to compare graphs over different nodes."""
    lone = sorted(set(found.nodes) ^ set(truth.nodes))
    if lone:
        raise GraphError(
            f"{len(lone)} nodes are in one graph only: {', '.join(lone)}; compare graphs of the same nodes"
        )


def rate(cases: int, total: int, empty: float) -> float:
    """Return a share, or `empty` when there are no cases at all."""
    return cases / total if total else empty


def marked_edge_f1(found: Cpdag, truth: Cpdag) -> float:
    """Return the F1 score of the edges with their marks.

    An edge is a hit when it is in both graphs and of the same kind: directed the same way, or undirected in both.
    Every other edge of the found graph is a false one, and every other edge of the true graph a missed one. The score
    is 1 when neither graph has an edge.
    """
    check_same_nodes(found, truth)
    hits = len(found.directed & truth.directed) + len(found.undirected & truth.undirected)
    return rate(2 * hits, len(found.skeleton()) + len(truth.skeleton()), empty=1.0)


def mark_f1(found: MixedGraph, truth: MixedGraph) -> float:
    """Return the F1 score of the ends of edges: a hit is an end with the same mark in both graphs; 1 without edges.

    Examples
    --------
    >>> from dagveil.graphs.pag import Edge
    >>> found = MixedGraph(("a", "b"), frozenset({Edge("a", "b", Mark.TAIL, Mark.ARROW)}))
    >>> truth = MixedGraph(("a", "b"), frozenset({Edge("a", "b", Mark.CIRCLE, Mark.ARROW)}))
    >>> mark_f1(found, truth)
    0.5
    """
    check_same_nodes(found, truth)
    ends = [edge[:2] for edge in found.edges] + [edge.turned()[:2] for edge in found.edges]
    hits = sum(found.mark(*end) is truth.mark(*end) for end in ends)
    return rate(2 * hits, 2 * (len(found.edges) + len(truth.edges)), empty=1.0)


def read_as_pag(graph: Dag | Cpdag | MixedGraph, reading: Reading) -> MixedGraph:
    """Return a graph as a PAG: a DAG or CPDAG stands for all ancestral graphs with the same separations.

    A DAG that is read as it is drawn keeps its arrows.
    """
    if isinstance(graph, MixedGraph):
        return graph
    if isinstance(graph, Dag):
        return MixedGraph.of(graph) if reading is Reading.DRAWN else find_class(MixedGraph.of(graph))
    dag = graph.extension()
    if dag is None:
        raise GraphError("no DAG has these arrows and lines without a new collider, so no PAG stands for them")
    return find_class(MixedGraph.of(dag))


def arrow_precision(found: Cpdag, truth: Cpdag) -> float:
    """Return the share of the found arrows that are compelled in the truth; 1 when no arrow is found."""
    check_same_nodes(found, truth)
    return rate(len(found.directed & truth.directed), len(found.directed), empty=1.0)


def arrow_recall(found: Cpdag, truth: Cpdag) -> float:
    """Return the share of the truth's compelled arrows that are found; 1 when it has none."""
    check_same_nodes(found, truth)
    return rate(len(found.directed & truth.directed), len(truth.directed), empty=1.0)


def cpdag_shd(found: Cpdag, truth: Cpdag) -> int:
    """Return the structural Hamming distance: the number of pairs of nodes that are not joined in the same way.

    A pair counts 1 when it is adjacent in one graph only, when it is directed in one and undirected in the other, and
    when it is directed in opposite ways.
    """
    check_same_nodes(found, truth)
    return len({frozenset(arc) for arc in found.directed ^ truth.directed} | found.undirected ^ truth.undirected)


class Reading(enum.Enum):
    """What a DAG stands for in a comparison."""

    CLASS = "class"  # its Markov equivalence class: arrows that data alone cannot tell are undirected
    DRAWN = "drawn"  # itself, with all its arrows


@dataclass(frozen=True, slots=True)
class Difference:
    """A pair of nodes that is joined differently; ``here`` and ``there`` are "→", "←", "—" or "" for not at all.

    In PAGs also "↔", "o→", "←o", "o–o", "o—" and "—o".
    """

    first: str
    second: str
    here: str
    there: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one graph (here) differs from another (there), which counts as the truth in the scores.

    In PAGs `marked_f1` is of the ends of edges, and arrows are arrowheads. `marked` are edges with a direction in one
    graph only; in PAGs, all others with unlike marks.
    """

    skeleton: SkeletonRates
    shd: int
    marked_f1: float
    arrow_precision: float
    arrow_recall: float
    only_here: tuple[Difference, ...]
    only_there: tuple[Difference, ...]
    turned: tuple[Difference, ...]  # they point in opposite ways
    marked: tuple[Difference, ...]  # they have a direction in one graph only
    same: int


def compare_graphs(here: Graph, there: Graph, reading: Reading = Reading.CLASS) -> Comparison:
    """Compare two graphs of the same nodes; if one is a PAG, the other is read as one."""
    if isinstance(here, MixedGraph) or isinstance(there, MixedGraph):
        return _compare_pags(read_as_pag(here, reading), read_as_pag(there, reading))
    ours, theirs = read_as(here, reading), read_as(there, reading)
    return _list_differences(
        rate_skeleton(ours, theirs),
        (marked_edge_f1(ours, theirs), arrow_precision(ours, theirs), arrow_recall(ours, theirs)),
        _list_signs(ours),
        _list_signs(theirs),
    )


def _compare_pags(ours: MixedGraph, theirs: MixedGraph) -> Comparison:
    skeleton = rate_skeleton(ours, theirs)
    heads = [
        {
            (start, end)
            for edge in graph.edges
            for start, end in (edge[:2], edge.turned()[:2])
            if graph.mark(start, end) is Mark.ARROW
        }
        for graph in (ours, theirs)
    ]
    hits = len(heads[0] & heads[1])
    scores = mark_f1(ours, theirs), rate(hits, len(heads[0]), empty=1.0), rate(hits, len(heads[1]), empty=1.0)
    return _list_differences(skeleton, scores, _list_mark_signs(ours), _list_mark_signs(theirs))


def _list_differences(
    skeleton: SkeletonRates,
    scores: tuple[float, float, float],
    here: dict[tuple[str, str], str],
    there: dict[tuple[str, str], str],
) -> Comparison:
    found = [Difference(*pair, here.get(pair, ""), there.get(pair, "")) for pair in sorted(here.keys() | there)]
    unlike = [difference for difference in found if difference.here != difference.there]
    both = [difference for difference in unlike if difference.here and difference.there]
    opposite = [difference for difference in both if {difference.here, difference.there} == {"→", "←"}]
    return Comparison(
        skeleton,
        len(unlike),
        *scores,
        only_here=tuple(difference for difference in unlike if not difference.there),
        only_there=tuple(difference for difference in unlike if not difference.here),
        turned=tuple(opposite),
        marked=tuple(difference for difference in both if difference not in opposite),
        same=len(found) - len(unlike),
    )


def read_as(graph: Graph, reading: Reading) -> Cpdag:
    """Return a graph with directed and undirected edges for a comparison."""
    if isinstance(graph, MixedGraph):
        raise GraphError(
            "this graph has edges with circles or two arrowheads; only directed and undirected edges can be compared"
        )
    if isinstance(graph, Cpdag):
        return graph
    return graph.cpdag() if reading is Reading.CLASS else Cpdag(graph.nodes, graph.edges, frozenset())


def _list_signs(graph: Cpdag) -> dict[tuple[str, str], str]:
    """Return how each adjacent pair is joined, with its ends in alphabetical order."""
    signs = {(min(arc), max(arc)): "→" if arc[0] < arc[1] else "←" for arc in graph.directed}
    return signs | {(min(pair), max(pair)): "—" for pair in graph.undirected}


_SIGNS: Final = {
    (Mark.TAIL, Mark.ARROW): "→",
    (Mark.ARROW, Mark.TAIL): "←",
    (Mark.TAIL, Mark.TAIL): "—",
    (Mark.ARROW, Mark.ARROW): "↔",
    (Mark.CIRCLE, Mark.ARROW): "o→",
    (Mark.ARROW, Mark.CIRCLE): "←o",
    (Mark.CIRCLE, Mark.CIRCLE): "o–o",
    (Mark.CIRCLE, Mark.TAIL): "o—",
    (Mark.TAIL, Mark.CIRCLE): "—o",
}


def _list_mark_signs(graph: MixedGraph) -> dict[tuple[str, str], str]:
    return {(edge.first, edge.second): _SIGNS[edge.mark_at_first, edge.mark_at_second] for edge in graph.edges}

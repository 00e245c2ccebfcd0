"""All small DAGs, made in the slowest and plainest way: the twin of every fast routine on graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, permutations, product

import pytest

from dagveil.graphs.cpdag import Cpdag, Dag

NODES = ("a", "b", "c", "d")


def iterate_dags(nodes: tuple[str, ...]) -> Iterator[Dag]:
    """Yield every DAG over the nodes: each pair absent or directed either way, kept when some order fits all edges."""
    orders = [{node: place for place, node in enumerate(order)} for order in permutations(nodes)]
    for choice in product((None, False, True), repeat=len(nodes) * (len(nodes) - 1) // 2):
        edges = frozenset(
            (b, a) if turned else (a, b)
            for (a, b), turned in zip(combinations(nodes, 2), choice, strict=True)
            if turned is not None
        )
        if any(all(place[tail] < place[head] for tail, head in edges) for place in orders):
            yield Dag(nodes, edges)


def find_colliders(edges: frozenset[tuple[str, str]]) -> frozenset[tuple[frozenset[str], str]]:
    """Return the unshielded colliders of a set of directed edges, by comparing all pairs of edges."""
    joined = {frozenset(edge) for edge in edges}
    return frozenset(
        (frozenset((a, b)), head)
        for (a, head), (b, other) in combinations(sorted(edges), 2)
        if head == other and frozenset((a, b)) not in joined
    )


def agree(members: list[Dag]) -> Cpdag:
    """Return the graph in which an edge is directed exactly when all members direct it the same way."""
    directed = frozenset.intersection(*(dag.edges for dag in members))
    settled = {frozenset(edge) for edge in directed}
    return Cpdag(members[0].nodes, directed, members[0].skeleton() - settled)


@pytest.fixture(scope="session")
def all_dags() -> tuple[Dag, ...]:
    """Return the 543 DAGs of four nodes."""
    return tuple(iterate_dags(NODES))


@pytest.fixture(scope="session")
def all_classes(all_dags: tuple[Dag, ...]) -> dict[Cpdag, list[Dag]]:
    """Return the 185 Markov equivalence classes of four nodes, keyed by their CPDAG."""
    groups: defaultdict[object, list[Dag]] = defaultdict(list)
    for dag in all_dags:
        groups[dag.skeleton(), find_colliders(dag.edges)].append(dag)
    return {agree(members): members for members in groups.values()}


@pytest.fixture(scope="session")
def all_partial_graphs() -> tuple[Cpdag, ...]:
    """Return all 4096 graphs of four nodes in which a pair is absent, undirected, or directed either way."""
    graphs = []
    for choice in product(range(4), repeat=6):
        pairs = list(zip(combinations(NODES, 2), choice, strict=True))
        directed = frozenset(pair if kind == 2 else pair[::-1] for pair, kind in pairs if kind >= 2)
        graphs.append(Cpdag(NODES, directed, frozenset(frozenset(pair) for pair, kind in pairs if kind == 1)))
    return tuple(graphs)


@pytest.fixture(scope="session")
def all_extensions(all_dags: tuple[Dag, ...], all_partial_graphs: tuple[Cpdag, ...]) -> dict[Cpdag, list[Dag]]:
    """Return, for each partly directed graph, the DAGs with its skeleton, its arrows and no further collider."""
    by_shape: defaultdict[object, list[Dag]] = defaultdict(list)
    for dag in all_dags:
        by_shape[dag.skeleton()].append(dag)
    answer = {}
    for graph in all_partial_graphs:
        # A collider counts as the graph's own when both arrows are there and the graph's skeleton leaves it unshielded.
        skeleton = graph.skeleton()
        own = {(pair, head) for pair, head in find_colliders(graph.directed) if pair not in skeleton}
        answer[graph] = [
            dag for dag in by_shape[skeleton] if graph.directed <= dag.edges and find_colliders(dag.edges) == own
        ]
    return answer

"""Hidden causes: columns of known networks are hidden, and PAGs are held against the true one.

The true PAG is that of the network's DAG without the hidden nodes. Beside the private PAG stand the CPDAG of the same
evidence, read as the PAG of its class, and causal-learn's FCI with χ² tests on the same rows without privacy.
"""

from collections.abc import Collection
from itertools import combinations
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.data.memory import MemoryTable
from dagveil.errors import GraphError, MethodError
from dagveil.evaluation.comparison import Reading, read_as_pag
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.pag import Edge, Mark, MixedGraph, find_class
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.peers import finish_within, import_peer, read_ends

ALPHA: Final = 0.01
PRIVATE, CLASS, PEER = "PAG", "CPDAG read as a PAG", "FCI"


def project_dag(dag: Dag, hidden: Collection[str]) -> MixedGraph:
    """Return the MAG of a DAG some of whose nodes are hidden.

    Two nodes are adjacent if no set of seen nodes separates them, that is, if an inducing path joins them: its seen
    nodes are colliders, and its colliders are ancestors of its ends.

    Examples
    --------
    >>> dag = Dag(("a", "b", "h"), frozenset({("h", "a"), ("h", "b")}))
    >>> sorted(project_dag(dag, ["h"]).edges)[0].mark_at_first
    <Mark.ARROW: 'arrow'>
    """
    unknown = sorted(set(hidden) - set(dag.nodes))
    if unknown:
        raise GraphError(f"no node is called {', '.join(unknown)}; the graph has: {', '.join(dag.nodes)}")
    above: dict[str, set[str]] = {}
    for node in dag.order():
        above[node] = {node}.union(*(above[parent] for parent in dag.parents(node)))
    seen = tuple(name for name in dag.nodes if name not in set(hidden))
    edges = set()
    for x, y in combinations(seen, 2):
        if _is_induced(dag, frozenset(hidden), x, y, above[x] | above[y]):
            at_x = Mark.TAIL if x in above[y] else Mark.ARROW
            at_y = Mark.TAIL if y in above[x] else Mark.ARROW
            edges.add(Edge(x, y, at_x, at_y))
    return MixedGraph(seen, frozenset(edges))


def _is_induced(dag: Dag, hidden: frozenset[str], x: str, y: str, above: set[str]) -> bool:
    walks = [(child, True) for child in dag.children(x)] + [(parent, False) for parent in dag.parents(x)]
    visited: set[tuple[str, bool]] = set()
    while walks:
        node, from_parent = walks.pop()
        if node == y:
            return True
        if (node, from_parent) in visited or node == x:
            continue
        visited.add((node, from_parent))
        if node in hidden:  # a link that is no collider
            walks.extend((child, True) for child in dag.children(node))
            if not from_parent:
                walks.extend((parent, False) for parent in dag.parents(node))
        if from_parent and node in above:  # a collider
            walks.extend((parent, False) for parent in dag.parents(node))
    return False


def read_hidden(source: str) -> tuple[Network, list[tuple[str, ...]], int]:
    """Read a network, most columns that are hidden one by one, random pairs that are, and the first seed.

    Returns the network and the hidden sets: every node with children in turn, or as many as are allowed, and pairs of
    them. The k-th sample hides the k-th set; seeds count on from the first.

    >>> read_hidden("cancer 9 1 0")[1]
    [('Pollution',), ('Smoker',), ('Cancer',), ('Smoker', 'Cancer')]
    """
    name, *words = source.split()
    if len(words) != 3 or not all(map(str.isdecimal, words)):
        raise MethodError(
            f"{source!r} needs a network, how many columns are hidden one by one, how many pairs, and the first seed, "
            "for example 'asia 6 1 0'"
        )
    network, (most, pairs, first) = load_network(name), map(int, words)
    dag = network.dag()
    inner = [node for node in dag.nodes if dag.children(node)]
    rng = np.random.default_rng(0)
    chosen = inner if len(inner) <= most else sorted(rng.choice(inner, most, replace=False).tolist())
    both = list(combinations(inner, 2))
    places = rng.choice(len(both), min(pairs, len(both)), replace=False).tolist()
    return network, [*((node,) for node in chosen), *(both[place] for place in sorted(places))], first


class HiddenSample:
    """Rows of a network without some of its columns, and the true PAG of the others."""

    def __init__(self, source: str, n_rows: int, number: int, seed: int) -> None:
        network, hidden, first = read_hidden(source)
        if number >= len(hidden):
            raise MethodError(f"{source!r} has {len(hidden)} sets of columns to hide; state as many repetitions")
        self.truth = find_class(project_dag(network.dag(), hidden[number]))
        self._seed = first + seed
        codes = sample_codes(network, n_rows, np.random.default_rng(self._seed))
        self._codes = {name: codes[name] for name in self.truth.nodes}
        full = network_schema(network, n_rows)
        self._schema = msgspec.structs.replace(full, columns={name: full.columns[name] for name in self.truth.nodes})

    def search(self, program: str, epsilon: float, delta: float, redraws: int, seconds: float) -> MixedGraph | None:
        """Return the graph that a program finds; None if the peer uses more than so many seconds."""
        if program == PEER:
            rows = np.stack([self._codes[name] for name in self.truth.nodes], axis=1)
            return _search_peer(self.truth.nodes, rows, seconds)
        table = MemoryTable.from_codes(self._codes, self._schema)
        evidence = measure_source(
            table, self._schema, epsilon, delta, ledger=None, noise=NoiseKind.SEEDED, seed=self._seed
        )
        if program == PRIVATE:
            return search_evidence(evidence, SearchSettings(hidden_causes=True, redraws=redraws)).graph.pag
        cpdag = search_evidence(evidence, SearchSettings(redraws=redraws)).graph.cpdag
        return read_as_pag(cpdag, Reading.CLASS) if cpdag.is_extendable() else MixedGraph(cpdag.nodes, frozenset())


def _search_peer(names: tuple[str, ...], rows: NDArray[Any], seconds: float) -> MixedGraph | None:
    fci = import_peer("causallearn.search.ConstraintBased.FCI").fci
    found = finish_within(
        seconds, lambda: fci(rows.astype(np.int64), "chisq", ALPHA, verbose=False, show_progress=False)[0].graph
    )
    return None if found is None else MixedGraph(names, read_ends(names, found))

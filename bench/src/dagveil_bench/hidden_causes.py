"""Hidden causes: columns of known networks are hidden, and PAGs are held against the true one.

The true PAG is that of the network's DAG without the hidden nodes. Beside the private PAG stand the CPDAG of the same
evidence, read as the PAG of its class, and causal-learn's FCI with χ² tests on the same rows without privacy.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from multiprocessing.connection import Connection
from statistics import fmean, stdev
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.data.memory import MemoryTable
from dagveil.errors import GraphError
from dagveil.evaluation.comparison import Reading, mark_f1, read_as_pag, skeleton_f1
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.pag import Edge, Mark, MixedGraph, find_class
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.peers import import_peer, keep_quiet
from dagveil_bench.tables import write_table

DELTA: Final = 1e-6
NO_NOISE: Final = 1e6
"""The epsilon that stands for no privacy: its noise is far below one row."""

ALPHA: Final = 0.01
PEER, CLASS, PRIVATE = "χ² FCI, not private", "CPDAG read as a PAG", "PAG"
_MARKS: Final = {-1: Mark.TAIL, 1: Mark.ARROW, 2: Mark.CIRCLE}


@dataclass(frozen=True, slots=True)
class HiddenCase:
    """Columns of a network that are hidden, and how many rows are sampled."""

    network: str
    hidden: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class HiddenScore:
    """How close a graph comes to the true PAG; None where the peer did not finish in time."""

    case: HiddenCase
    program: str
    epsilon: float | None
    adjacency: float | None
    marks: float | None


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


def list_cases(networks: Iterable[str], rows: int, most: int, pairs: int) -> list[HiddenCase]:
    """Hide every node with children in turn, or as many of them as `most` allows, and random pairs of them."""
    cases = []
    for name in networks:
        dag = load_network(name).dag()
        inner = [node for node in dag.nodes if dag.children(node)]
        rng = np.random.default_rng(0)
        chosen = inner if len(inner) <= most else sorted(rng.choice(inner, most, replace=False).tolist())
        both = list(combinations(inner, 2))
        places = rng.choice(len(both), min(pairs, len(both)), replace=False).tolist()
        hidden = [*((node,) for node in chosen), *(both[place] for place in sorted(places))]
        cases += [HiddenCase(name, nodes, rows) for nodes in hidden]
    return cases


def run_hidden(
    cases: Sequence[HiddenCase], epsilons: Sequence[float], redraws: int, seconds: float, progress: Progress
) -> list[HiddenScore]:
    """Score all programs on all cases; the peer is stopped after some seconds, and 0 leaves it out."""
    scores = []
    for done, case in enumerate(cases):
        progress("hiding columns", done, len(cases))
        network = load_network(case.network)
        truth = find_class(project_dag(network.dag(), case.hidden))
        codes = sample_codes(network, case.rows, np.random.default_rng(done))
        seen = {name: codes[name] for name in truth.nodes}
        full = network_schema(network, case.rows)
        schema = msgspec.structs.replace(full, columns={name: full.columns[name] for name in truth.nodes})
        table = MemoryTable.from_codes(seen, schema)
        for epsilon in epsilons:
            evidence = measure_source(table, schema, epsilon, DELTA, ledger=None, noise=NoiseKind.SEEDED, seed=done)
            found = search_evidence(evidence, SearchSettings(hidden_causes=True, redraws=redraws)).graph.pag
            scores.append(_score(case, PRIVATE, epsilon, found, truth))
            cpdag = search_evidence(evidence, SearchSettings(redraws=redraws)).graph.cpdag
            read = read_as_pag(cpdag, Reading.CLASS) if cpdag.is_extendable() else MixedGraph(cpdag.nodes, frozenset())
            scores.append(_score(case, CLASS, epsilon, read, truth))
        if seconds:
            peer = _run_peer(truth.nodes, np.stack([seen[name] for name in truth.nodes], axis=1), seconds)
            scores.append(_score(case, PEER, None, peer, truth))
    progress("hiding columns", len(cases), len(cases))
    return scores


def _score(
    case: HiddenCase, program: str, epsilon: float | None, found: MixedGraph | None, truth: MixedGraph
) -> HiddenScore:
    if found is None:
        return HiddenScore(case, program, epsilon, None, None)
    return HiddenScore(case, program, epsilon, skeleton_f1(found, truth), mark_f1(found, truth))


def _run_peer(names: tuple[str, ...], rows: NDArray[Any], seconds: float) -> MixedGraph | None:
    """Run causal-learn's FCI in a process of its own, which can be stopped."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_search_peer, args=(there, rows))
    process.start()
    there.close()
    ends = None
    try:
        if here.poll(seconds):
            ends = here.recv()
    except EOFError:
        ends = None
    finally:
        process.terminate()
        process.join()
    if ends is None:
        return None
    joined = [(i, j) for i, j in combinations(range(len(names)), 2) if ends[i, j]]
    edges = (Edge(names[i], names[j], _MARKS[int(ends[i, j])], _MARKS[int(ends[j, i])]) for i, j in joined)
    return MixedGraph(names, frozenset(edges))


def _search_peer(there: Connection, rows: NDArray[Any]) -> None:
    fci = import_peer("causallearn.search.ConstraintBased.FCI").fci
    with keep_quiet():
        found, _ = fci(rows.astype(np.int64), "chisq", ALPHA, verbose=False, show_progress=False)
    there.send(found.graph)


def hidden_page(scores: Sequence[HiddenScore], redraws: int, seconds: float, command: str) -> str:
    """Write the page."""
    networks = list(dict.fromkeys(score.case.network for score in scores))
    programs = list(dict.fromkeys((score.program, score.epsilon) for score in scores))
    programs.sort(key=lambda one: (one[0] == PRIVATE, one[0] == CLASS, one[1] or 0.0))
    cases = {name: [case for case in _cases(scores) if case.network == name] for name in networks}
    finished = {score.case for score in scores if score.program == PEER and score.marks is not None}
    late = sum(score.program == PEER and score.marks is None for score in scores)
    compared = [score for score in scores if not finished or score.case in finished]
    parts = [
        "# Hidden causes",
        f"Columns of known networks are hidden, and the graph of the others is held against the true PAG. Made by "
        f"`{command}`.",
        "One run per hidden set; a mark is a hit if an end of an edge has the same one (arrowhead, tail, circle) in "
        f"both graphs. δ = {DELTA:g}, {redraws} redraws. ∞ is ε = {NO_NOISE:g}. The CPDAG is read as the PAG of all "
        f"graphs with its separations. FCI is causal-learn's at level {ALPHA:g}, on the same rows"
        + (f", stopped after {seconds:g} s: {late} of {len(_cases(scores))} did not finish." if seconds else "."),
        "## Which columns were hidden",
        write_table(
            ("network", "rows", "hidden one by one", "pairs"),
            [
                (
                    name,
                    listed[0].rows,
                    ", ".join(case.hidden[0] for case in listed if len(case.hidden) == 1),
                    "; ".join(" + ".join(case.hidden) for case in listed if len(case.hidden) > 1),
                )
                for name, listed in cases.items()
            ],
        ),
    ]
    for title, attribute in (("Adjacency F1", "adjacency"), ("Mark F1", "marks")):
        rows = []
        for program, epsilon in programs:
            mine = [score for score in compared if (score.program, score.epsilon) == (program, epsilon)]
            by_network = [[getattr(one, attribute) for one in mine if one.case.network == name] for name in networks]
            filled = [values for values in by_network if values]
            mean = f"{fmean(map(fmean, filled)):.3f}" if filled else "–"
            shown = "" if epsilon is None else "∞" if epsilon >= NO_NOISE else f"{epsilon:g}"
            rows.append((program, shown, *map(_write_mean, by_network), mean))
        parts += [f"## {title}", write_table(("program", "ε", *networks, "mean of networks"), rows)]
    if finished and late:
        parts.append("Cells are means over the hidden sets on which FCI finished, for all programs alike.")
    return "\n\n".join(parts)


def _cases(scores: Sequence[HiddenScore]) -> list[HiddenCase]:
    return list(dict.fromkeys(score.case for score in scores))


def _write_mean(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {stdev(values) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{spread}"

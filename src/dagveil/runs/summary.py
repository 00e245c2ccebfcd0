"""Results in sentences: how much of a graph is solid, about hidden causes, and what a reader should know."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from dagveil.evidence.covariance import LEVELS_KEPT, OneHotCovariance
from dagveil.evidence.questions import Independence, Questions
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.graphs.pag import Mark
from dagveil.runs.result import SOLID, NearMiss, ResultEdge, ResultGraph
from dagveil.search.confidence import DRAWN
from dagveil.search.constraint.skeleton import find_copies

FAINT = 0.3  # noise is told of if half of the pairs are not seen below this V
MOST_ALTERNATIVES = 3  # alternatives, and edges of a kind, that are told of


def describe_solidity(
    graph: ResultGraph,
    misses: tuple[NearMiss, ...],
    false_edges: float | None,
    visible: float | None,
    alternatives: Sequence[tuple[str, str, str, float]] = (),
    wrong_edges: float | None = None,
    edges_at: float | None = None,
) -> tuple[str, ...]:
    """Say in a few sentences how much of a graph is solid.

    Half of the pairs must exceed a Cramér's V of `visible` to be seen; `alternatives` are those of `find_alternatives`.
    Edges were drawn at the probability `edges_at`, if at any.
    """
    edges = graph.edges
    weak = sum(edge.confidence is not None and edge.confidence < SOLID for edge in edges)
    doubtful = sum(miss.found for miss in misses)
    at = "" if edges_at is None else f" with a probability of at least {edges_at:g}"
    said = [f"{len(edges)} edge{'' if len(edges) == 1 else 's'}{at} among {len(graph.nodes)} columns"]
    if wrong_edges is not None and edges:
        known = sum(edge.probability is not None for edge in edges)
        whose = "them" if known == len(edges) else f"the {known} whose probability is known"
        about = f"about {wrong_edges:.1f}" if wrong_edges >= 0.05 else "fewer than 0.1"
        said.append(f"{about} of {whose} are expected to be false")
    if false_edges is not None:
        few = "fewer than 0.1" if false_edges < 0.05 else f"about {false_edges:.1f}"
        said.append(f"{few} would appear if nothing depended on anything")
    if weak:
        said.append(f"{weak} rest{'s' if weak == 1 else ''} on weak evidence (below {SOLID:.0%} of redraws)")
    if doubtful:
        said.append(f"{doubtful} more {'is' if doubtful == 1 else 'are'} doubtful and not drawn")
    sentences = ["; ".join(said) + "."]
    if visible is not None and (not edges or visible > FAINT):
        above = f"a dependence is seen above V = {visible:.2f} (Cramér's V, from 0 to 1)"
        # the first line says it where noise drowns everything
        sentences.insert(
            1 if edges else 0,
            f"{'Noise hides all but strong dependences' if edges else 'Nothing stood out from noise and chance'}: "
            f"for half of the pairs {above if visible < 1.0 else 'no dependence could be seen'}. A larger epsilon, "
            "fewer columns or levels, or more rows show more: `dagveil plan SCHEMA.toml --explore` tells how much.",
        )
    sentences += [
        f"{x} is joined to {y} or to {z} in {share:.0%} of redraws, but to neither in {DRAWN:.0%} of them, so no edge "
        f"is drawn: {y} and {z} tell much the same, and the evidence does not say whose edge it is."
        for x, y, z, share in alternatives[:MOST_ALTERNATIVES]
    ]
    sentences += [
        f"{miss.source} and {miss.target} depend on each other, but {miss.explained_by} could explain it alone, as far "
        "as this evidence tells, so no edge is drawn."
        for miss in [miss for miss in misses if miss.explained_by is not None][:MOST_ALTERNATIVES]
    ]
    return (*sentences, *(_describe_hidden if graph.family == "pag" else _describe_arrows)(edges))


def _describe_arrows(edges: tuple[ResultEdge, ...]) -> list[str]:
    """Propose background knowledge where most edges have no arrow, or one that redraws disagree about."""
    lines = sum(edge.kind == "undirected" for edge in edges)
    weak = sum(edge.kind == "directed" and edge.forward is not None and edge.forward < SOLID for edge in edges)
    if 2 * (lines + weak) <= len(edges):
        return []
    said = [f"{lines} of {len(edges)} edges have no arrow"] if lines else []
    if weak:
        said.append(f"{weak} of {len(edges)} have an arrow that fewer than {SOLID:.0%} of the redraws show")
    return [
        f"{', and '.join(said)}: the graph tells little about causes and effects. If you know which columns come "
        "first, search again, for free, with --knowledge FILE.toml that lists tiers."
    ]


def _describe_hidden(edges: tuple[ResultEdge, ...]) -> list[str]:
    """Say what a PAG says about causes that were not measured."""
    shared = [edge for edge in edges if edge.kind == "bidirected"]
    sentences = [
        f"{edge.source} and {edge.target} share a cause that was not measured, as far as this evidence tells: neither "
        "causes the other."
        for edge in shared[:MOST_ALTERNATIVES]
    ]
    if len(shared) > MOST_ALTERNATIVES:
        sentences.append(f"{len(shared) - MOST_ALTERNATIVES} more pairs (↔) share an unmeasured cause likewise.")
    open_ends = [edge for edge in edges if Mark.CIRCLE in edge.marks]
    if open_ends:
        named = ", ".join(f"{edge.source} and {edge.target}" for edge in open_ends[:MOST_ALTERNATIVES])
        more = f", and {len(open_ends) - MOST_ALTERNATIVES} more pairs" if len(open_ends) > MOST_ALTERNATIVES else ""
        sentences.append(
            f"{len(open_ends)} of {len(edges)} edges have a circle: {named}{more} may share an unmeasured cause, and "
            "the evidence does not tell. If you know which columns come first, search again, for free, with "
            "--knowledge FILE.toml that lists tiers."
        )
    return sentences


def describe_knowledge(knowledge: Knowledge) -> tuple[str, ...]:
    """Say background knowledge in words, if there is any."""
    parts = []
    if knowledge.tiers:
        parts.append("tiers " + " before ".join("{" + ", ".join(tier) + "}" for tier in knowledge.tiers))
    for word, arcs in (("forbidden", knowledge.forbidden), ("required", knowledge.required)):
        if arcs:
            parts.append(f"{word} " + ", ".join(f"{cause} → {effect}" for cause, effect in sorted(arcs)))
    return (f"Background knowledge in force: {'; '.join(parts)}.",) if parts else ()


def describe_score(tested: Cpdag, found: Cpdag) -> str:
    """Say what the search went by, and what a score added to what tests had found."""
    covered = set(tested.nodes)
    restored = sorted(" – ".join(sorted(pair)) for pair in found.skeleton() - tested.skeleton() if pair <= covered)
    found_more = f"put back what they separated in doubt: {', '.join(restored)}"
    told = found_more if restored else "had nothing to add where they were in doubt"
    return f"The search went by tests; a noise-aware score {told}."


def describe_copies(tests: Independence) -> list[str]:
    """Name columns that determine each other: the data cannot tell whose edges are whose."""
    return [
        f"{tests.columns[x]} and {tests.columns[z]} carry the same information: an edge of one may belong to the "
        "other. Background knowledge settles it, or leaving one of them out."
        for x, z in zip(*np.nonzero(np.triu(find_copies(tests))), strict=True)
    ]


def describe_levels(tests: Independence) -> list[str]:
    """Name columns with more levels than the tests keep apart; levels that noise hides are no loss."""
    covariance = getattr(tests, "covariance", None)
    if not isinstance(covariance, OneHotCovariance):
        return []
    merged = [
        f"{name} ({int(groups.max()) + 1} of {len(groups)})"
        for name, groups in zip(covariance.columns, covariance.groups, strict=True)
        if len(groups) > LEVELS_KEPT
    ]
    told = (
        f"Tests keep the most frequent levels of {', '.join(merged)} apart and merge the rest; given such a column "
        "they may miss that it explains an edge."
    )
    return [told] if merged else []


def describe_unmeasured(tests: Independence, knowledge: Knowledge) -> list[str]:
    """Name pairs that knowledge kept from being measured: hidden causes may join them all the same."""
    names = tests.columns
    excluded = [(x, y) for x, y in combinations(range(len(names)), 2) if knowledge.excludes(names[x], names[y])]
    answered = tests.answers(Questions.of([(x, y, ()) for x, y in excluded])) if excluded else ()
    unasked = [f"{names[x]} – {names[y]}" for (x, y), known in zip(excluded, answered, strict=True) if not known]
    told = (
        f"Knowledge forbids both directions of {', '.join(unasked)}, so nothing was measured about them. Whether they "
        "share a hidden cause is not known."
    )
    return [told] if unasked else []

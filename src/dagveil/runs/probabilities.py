"""Which searches have probabilities of edges: those that were held against known graphs."""

from __future__ import annotations

import numpy as np

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.questions import Independence
from dagveil.graphs.cpdag import Cpdag, Pair
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.measure import is_numeric
from dagveil.search.confidence import MEANING, Shares
from dagveil.search.constraint.skeleton import find_copies
from dagveil.search.probabilities import ASSUMPTIONS, Probabilities, estimate_probabilities, list_unclear
from dagveil.search.settings import SearchSettings


def why_no_probabilities(method: str, schema: Schema, settings: SearchSettings) -> str | None:
    """Say why a search has no probabilities of edges; None if it has."""
    if method != "measure":
        return f"probabilities were checked for measure, not for {method}"
    if not is_numeric(schema) and any(isinstance(column, Numeric) for column in schema.columns.values()):
        return (
            "probabilities were checked on tables of levels and on tables of numbers without bins, not on others: a "
            "bin does not hold all that a number tells"
        )
    return settings.why_no_probabilities()


def describe_shares(unknown: str | None) -> tuple[str, str]:
    """Say what shares of redraws mean, and what probabilities; `unknown` says why there are none."""
    if unknown is None:
        return MEANING, ASSUMPTIONS
    return f"{MEANING}; not a probability that the edge is true: {unknown}", ""


def check_edges_at(method: str, schema: Schema, settings: SearchSettings) -> None:
    """Refuse a graph by probabilities where there are none."""
    reason = why_no_probabilities(method, schema, settings)
    if settings.edges_at is not None and reason is not None:
        raise MethodError(
            f"edges at a probability of {settings.edges_at:g} cannot be drawn: "
            f"{reason}; nothing was charged. Leave edges_at out: the graph then has the edges that returned in redraws"
        )


def state_probabilities(
    tests: Independence,
    found: Cpdag,
    shares: Shares,
    visible: float | None,
    explained: dict[Pair, str],
    knowledge: Knowledge,
) -> Probabilities:
    """Return the probabilities of the pairs that a search or its redraws joined."""
    names = tests.columns
    copies = {frozenset((names[x], names[z])) for x, z in zip(*np.nonzero(find_copies(tests)), strict=True)}
    pairs = found.skeleton()
    unclear = list_unclear(pairs | set(shares.adjacent), copies, explained)
    return estimate_probabilities(shares, pairs, names, 1.0 if visible is None else visible, unclear, knowledge)

"""Probabilities of edges and of parents: shares of redraws, corrected by what networks of known truth taught.

A share says how often fresh noise and sampling find an edge again; how often such an edge is true was learnt on
simulated networks, and `dagveil bench probabilities` shows it on others. All of it is post-processing.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from dagveil.graphs.cpdag import Arc, Pair
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.search.confidence import Shares

FEWEST_REDRAWS = 20  # with fewer redraws no probability is stated: shares are too coarse
LEAST_VISIBLE = 0.01  # noise below this is no noise: smaller effects are hardly ever an edge
ASSUMPTIONS = (
    "how likely the edge, and its arrow, is in the true graph; shown on simulated tables of independent rows, in which "
    "every common cause is a column and no column repeats another"
)


@dataclass(frozen=True, slots=True)
class Correction:
    """From shares of redraws to probabilities, each a sum of log odds."""

    constant: float  # of an edge
    share: float  # for each unit of the log odds of its share
    noise: float  # the same times the logarithm of what noise hides: the more it hides, the less a share tells
    columns: float  # for each unit of the logarithm of the number of columns, among which edges are rarer
    direction: float  # of an arrow, given the edge, for each unit of the log odds of its direction among redraws

    def edge(self, facts: tuple[float, float, float]) -> float:
        """Return the probability of an edge from the facts of `weigh_edge`."""
        share, noise, columns = facts
        return _logistic(self.constant + self.share * share + self.noise * noise + self.columns * columns)

    def lean(self, odds: float) -> float:
        """Return, given the edge, the probability of a direction with these log odds among redraws."""
        return _logistic(self.direction * odds)


# printed by `dagveil bench probabilities --fit`
FITTED = Correction(constant=1.882, share=0.526, noise=-0.103, columns=-0.532, direction=1.254)


@dataclass(frozen=True, slots=True)
class Probabilities:
    """Of the pairs that the search or a redraw joined: that one column is a parent of the other, for each direction."""

    parents: Mapping[Arc, float]

    def of_pair(self, pair: Pair) -> float | None:
        """Return the probability of an edge; None if none is known."""
        a, b = sorted(pair)
        return None if (a, b) not in self.parents else min(1.0, self.parents[a, b] + self.parents[b, a])

    def of_arrow(self, cause: str, effect: str) -> float | None:
        """Return the probability that one column is a parent of another; None if none is known."""
        return self.parents.get((cause, effect))

    def likely(self, least: float) -> frozenset[Pair]:
        """Return the pairs whose edge has at least this probability."""
        pairs = {frozenset(arc) for arc in self.parents}
        return frozenset(pair for pair in pairs if (self.of_pair(pair) or 0.0) >= least)


UNKNOWN: Final = Probabilities({})


def weigh_edge(shares: Shares, pair: Pair, columns: int, visible: float) -> tuple[float, float, float]:
    """Return what the probability of an edge follows from: log odds of its share, the same with noise, and columns.

    - `visible`: Cramér's V that half of the pairs must exceed to be seen.
    """
    odds = math.log((shares.adjacent[pair] + 0.5) / (shares.redraws - shares.adjacent[pair] + 0.5))
    return odds, odds * math.log(min(max(visible, LEAST_VISIBLE), 1.0)), math.log(columns)


def weigh_direction(shares: Shares, cause: str, effect: str) -> float:
    """Return the log odds of a direction among the redraws with the edge; without an arrow they count for both."""
    forward, backward = shares.directed[cause, effect], shares.directed[effect, cause]
    either = (shares.adjacent[frozenset((cause, effect))] - forward - backward) / 2
    return math.log((forward + either + 0.5) / (backward + either + 0.5))


def estimate_probabilities(
    shares: Shares,
    found: frozenset[Pair],
    columns: tuple[str, ...],
    visible: float,
    unclear: Collection[Pair] = (),
    knowledge: Knowledge = NO_KNOWLEDGE,
) -> Probabilities:
    """Return the probabilities of the pairs that the search or a redraw joined; what is known is taken as true.

    - `found`: the pairs that the search joined.
    - `unclear`: pairs of which nobody can say whose edge they are; they get no probability.
    """
    parents: dict[Arc, float] = {}
    for pair in {*found, *shares.adjacent} - set(unclear):
        a, b = sorted(pair)
        edge = FITTED.edge(weigh_edge(shares, pair, len(columns), visible))
        ahead, back = knowledge.allows(a, b), knowledge.allows(b, a)
        lean = FITTED.lean(weigh_direction(shares, a, b)) if ahead and back else float(ahead)
        parents[a, b], parents[b, a] = edge * lean, edge * (1.0 - lean)
    for cause, effect in knowledge.required:
        parents[cause, effect], parents[effect, cause] = 1.0, 0.0
    return Probabilities(parents)


def list_unclear(pairs: Collection[Pair], copies: Collection[Pair], explained: Collection[Pair]) -> frozenset[Pair]:
    """Return the pairs that another column could explain, and those of a column that another one repeats."""
    repeated = {name for pair in copies for name in pair}
    return frozenset(
        pair for pair in pairs if pair in explained or (pair not in copies and not repeated.isdisjoint(pair))
    )


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))

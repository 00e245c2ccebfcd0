"""How often each edge returns when the published noise and the sampling are drawn again.

The redraws start from the released evidence, so they carry the noise twice: shares are on the cautious side for true
edges. They are not probabilities that an edge is true. All of it is post-processing: no row is touched and nothing is
charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dagveil.evidence.questions import Independence
from dagveil.graphs.cpdag import Cpdag

MEANING = (
    "share of redraws of the published noise and of sampling, around the released evidence, in which the edge "
    "returned; not a probability that the edge is true"
)


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares over redraws.

    Attributes
    ----------
    redraws
        Number of redraws.
    adjacent
        For each pair, in how many redraws it was adjacent.
    directed
        For each (cause, effect), in how many redraws the arrow stood.
    """

    redraws: int
    adjacent: Counter[frozenset[str]]
    directed: Counter[tuple[str, str]]

    @classmethod
    def none(cls) -> Shares:
        """Return the shares of no redraw."""
        return cls(0, Counter(), Counter())

    def of_pair(self, pair: frozenset[str]) -> float | None:
        """Return the share of redraws in which a pair was adjacent."""
        return self.adjacent[pair] / self.redraws if self.redraws else None

    def of_arrow(self, cause: str, effect: str) -> float | None:
        """Return, among the redraws with this adjacency, the share with this arrow."""
        seen = self.adjacent[frozenset((cause, effect))]
        return self.directed[cause, effect] / seen if seen else None

    def of_line(self, pair: frozenset[str]) -> float | None:
        """Return, among the redraws with this adjacency, the share without an arrow."""
        seen = self.adjacent[pair]
        a, b = sorted(pair)
        return (seen - self.directed[a, b] - self.directed[b, a]) / seen if seen else None


def redraw_graphs(
    evidence: Independence,
    find: Callable[[Independence], Cpdag],
    redraws: int,
    progress: Callable[[str, int, int], None],
) -> Shares:
    """Redraw the evidence, search again, and count what returns.

    Parameters
    ----------
    evidence
        What was released.
    find
        The search, settings included.
    redraws
        How often.
    progress
        Told after each redraw.
    """
    rng = np.random.default_rng(1)  # post-processing: a fixed seed makes the same evidence give the same shares
    adjacent: Counter[frozenset[str]] = Counter()
    directed: Counter[tuple[str, str]] = Counter()
    for done in range(redraws):
        graph = find(evidence.redraw(rng))
        adjacent.update(graph.skeleton())
        directed.update(graph.directed)
        progress("redrawing noise for edge confidence", done + 1, redraws)
    return Shares(redraws, adjacent, directed)

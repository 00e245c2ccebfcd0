"""The PC algorithm's skeleton, one question at a time.

The caller decides each question, privately or not, and may run out of budget: then the search stops where it is. An
edge goes as soon as a question says so, as in the published programs.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from dagveil.errors import BudgetExceededError
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.skeleton import Bools, Skeleton

Question = tuple[str, str, tuple[str, ...]]


class Traversal(enum.Enum):
    """In which order pairs and sets come."""

    PUBLISHED = "published"  # ordered pairs (x, y), sets from the neighbours of x: most questions come twice
    ONCE = "once"  # each pair once, sets from the neighbours of either end: no question comes twice


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """What a search found, what it asked, and what it could not ask."""

    skeleton: Skeleton  # edges that are left, and the set that removed each other pair
    asked: tuple[int, ...]  # questions that were decided, by order
    # edges that the search still wanted to test when the budget ran out, with the order of the sets
    unanswered: tuple[tuple[str, str, int], ...] = ()

    @property
    def questions(self) -> int:
        """Number of questions that were decided."""
        return sum(self.asked)


class Pruning:
    """A graph that loses edges; what knowledge requires stays, what it excludes is gone from the start.

    - `knowledge`: excluded pairs are never asked about; required ones are kept without asking.
    """

    def __init__(self, columns: Sequence[str], knowledge: Knowledge) -> None:
        self.columns = tuple(columns)
        self._knowledge = knowledge
        self._place = {name: i for i, name in enumerate(self.columns)}
        self._neighbours: dict[str, list[str]] = {
            x: [y for y in self.columns if y != x and not knowledge.excludes(x, y)] for x in self.columns
        }
        self._separators: dict[tuple[int, int], tuple[int, ...]] = {}

    def neighbours(self, x: str) -> tuple[str, ...]:
        """Return the columns that are still joined to x, in the order of the columns."""
        return tuple(self._neighbours[x])

    def removable(self, x: str) -> tuple[str, ...]:
        """Return the neighbours of x whose edge may go."""
        return tuple(y for y in self._neighbours[x] if not self._knowledge.requires(x, y))

    def edges(self) -> int:
        """Return the number of edges left."""
        return sum(map(len, self._neighbours.values())) // 2

    def sets(self, x: str, y: str, order: int, traversal: Traversal) -> list[tuple[str, ...]]:
        """Return the conditioning sets of this size for a pair."""
        found = list(combinations([z for z in self._neighbours[x] if z != y], order))
        if traversal is Traversal.ONCE:
            found += combinations([z for z in self._neighbours[y] if z != x], order)
        return list(dict.fromkeys(found))

    def remove(self, x: str, y: str, given: tuple[str, ...]) -> None:
        """Take an edge away and remember the set that separated its ends."""
        self._neighbours[x].remove(y)
        self._neighbours[y].remove(x)
        i, j = sorted((self._place[x], self._place[y]))
        self._separators[i, j] = tuple(self._place[z] for z in given)

    def open_pairs(self, order: int, traversal: Traversal) -> Iterator[tuple[str, str]]:
        """Yield pairs that are joined and have neighbours enough, while edges go."""
        ordered = traversal is Traversal.PUBLISHED
        for x, y in permutations(self.columns, 2) if ordered else combinations(self.columns, 2):
            if y not in self._neighbours[x] or self._knowledge.requires(x, y):
                continue
            if len(self._neighbours[x]) > order or (not ordered and len(self._neighbours[y]) > order):
                yield x, y

    def skeleton(self) -> Skeleton:
        """Return the graph as it is."""
        adjacency: Bools = np.zeros((len(self.columns), len(self.columns)), dtype=np.bool_)
        for x, others in self._neighbours.items():
            adjacency[self._place[x], [self._place[y] for y in others]] = True
        return Skeleton(adjacency, dict(self._separators), {})


def prune(
    columns: Sequence[str],
    is_independent: Callable[[Question], bool],
    largest_order: int,
    knowledge: Knowledge,
    traversal: Traversal = Traversal.PUBLISHED,
    start_order: Callable[[int, Pruning], bool] = lambda order, graph: True,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Sweep:
    """Run PC's first phase.

    - `is_independent`: decides a question. `BudgetExceededError` from it ends the search.
    - `start_order`: told before each order; returns whether to go on.
    - `progress`: told before each pair.
    """
    graph = Pruning(columns, knowledge)
    asked: list[int] = []
    for order in range(largest_order + 1):
        if not any(graph.open_pairs(order, traversal)) or not start_order(order, graph):
            break
        asked.append(0)
        most = sum(1 for _ in graph.open_pairs(order, traversal))
        for done, (x, y) in enumerate(graph.open_pairs(order, traversal)):
            progress(f"questions of order {order}", done, most)
            try:
                for given in graph.sets(x, y, order, traversal):
                    found = is_independent((x, y, given))
                    asked[-1] += 1
                    if found:
                        graph.remove(x, y, given)
                        break
            except BudgetExceededError:
                return Sweep(graph.skeleton(), tuple(asked), _left(graph, order, largest_order, traversal, (x, y)))
    return Sweep(graph.skeleton(), tuple(asked))


def _left(
    graph: Pruning, order: int, largest_order: int, traversal: Traversal, stopped_at: tuple[str, str]
) -> tuple[tuple[str, str, int], ...]:
    """Return the edges that were still to be tested, at this order or, if that was done, at the next one."""
    pairs = list(graph.open_pairs(order, traversal))
    place = pairs.index(stopped_at)
    left = [(x, y, order) for x, y in pairs[place:]]
    if order < largest_order:
        waiting = {frozenset(pair) for pair in pairs[place:]}
        later = graph.open_pairs(order + 1, traversal)
        left += [(x, y, order + 1) for x, y in later if frozenset((x, y)) not in waiting]
    return tuple(left)

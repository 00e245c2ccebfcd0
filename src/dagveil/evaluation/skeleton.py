"""Scores of a found skeleton against the true one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dagveil.errors import GraphError


class HasSkeleton(Protocol):
    """Anything with nodes and a skeleton: a Dag, a Cpdag, a mixed graph."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes."""

    def skeleton(self) -> frozenset[frozenset[str]]:
        """Return the adjacent pairs."""


@dataclass(frozen=True, slots=True)
class SkeletonRates:
    """Rates of a found skeleton against the true one.

    A rate without cases is the rate of a search that made no such mistake: precision, recall, tpr and tdr are 1,
    fpr and omission are 0. So two empty graphs agree perfectly; nothing found where there is something has precision 1,
    recall 0 and F1 0.

    Attributes
    ----------
    hits : int
        Pairs that are adjacent in both graphs.
    extra : int
        Pairs that are adjacent in the found graph only.
    missed : int
        Pairs that are adjacent in the true graph only.
    absent : int
        Pairs that are adjacent in neither.
    """

    hits: int
    extra: int
    missed: int
    absent: int

    @property
    def precision(self) -> float:
        """Share of the found edges that are true."""
        return rate(self.hits, self.hits + self.extra, empty=1.0)

    @property
    def recall(self) -> float:
        """Share of the true edges that are found."""
        return rate(self.hits, self.hits + self.missed, empty=1.0)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 when both graphs have no edge."""
        return rate(2 * self.hits, 2 * self.hits + self.extra + self.missed, empty=1.0)

    @property
    def tpr(self) -> float:
        """True positive rate: another name of the recall."""
        return self.recall

    @property
    def fpr(self) -> float:
        """False positive rate: share of the absent edges that are found."""
        return rate(self.extra, self.extra + self.absent, empty=0.0)

    @property
    def tdr(self) -> float:
        """True discovery rate: another name of the precision."""
        return self.precision

    @property
    def omission(self) -> float:
        """False omission rate: share of true edges among the pairs that were found apart."""
        return rate(self.missed, self.missed + self.absent, empty=0.0)


def rate_skeleton(found: HasSkeleton, truth: HasSkeleton) -> SkeletonRates:
    """Return hits, misses and all rates of a found skeleton.

    Examples
    --------
    >>> from dagveil.graphs.cpdag import Cpdag
    >>> names = ("a", "b", "c")
    >>> rate_skeleton(Cpdag.complete(names), Cpdag.empty(names)).fpr
    1.0
    """
    check_same_nodes(found, truth)
    seen, real = found.skeleton(), truth.skeleton()
    n_pairs = len(truth.nodes) * (len(truth.nodes) - 1) // 2
    return SkeletonRates(len(seen & real), len(seen - real), len(real - seen), n_pairs - len(seen | real))


def skeleton_f1(found: HasSkeleton, truth: HasSkeleton) -> float:
    """Return the F1 score of the adjacent pairs; 1 when neither graph has an edge."""
    return rate_skeleton(found, truth).f1


def check_same_nodes(found: HasSkeleton, truth: HasSkeleton) -> None:
    """Refuse to compare graphs over different nodes."""
    lone = sorted(set(found.nodes) ^ set(truth.nodes))
    if lone:
        raise GraphError(
            f"{len(lone)} nodes are in one graph only: {', '.join(lone)}; compare graphs of the same nodes"
        )


def rate(cases: int, total: int, empty: float) -> float:
    """Return a share, or `empty` when there are no cases at all."""
    return cases / total if total else empty

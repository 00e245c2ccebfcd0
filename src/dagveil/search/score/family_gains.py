"""What families are worth, asked once and in batches: one by one, or for all nodes that could join one family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import LocalScore
from dagveil.search.score.operators import Family, bits

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

BATCH = 1 << 15  # most questions at once: a bound on memory, far above where batches stop to pay


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What each of many nodes is worth to one node beside one set; `known` tells which of them were asked about."""

    gains: Floats
    known: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Joining:
    """The question what each of `nodes` would add to `head` beside the parents in `mask`."""

    head: int
    mask: int
    nodes: Places


@dataclass(slots=True)
class FamilyGains:
    """Answers of a score, remembered."""

    score: LocalScore  # asked about what is not yet known
    size: int
    _single: dict[Family, float] = field(default_factory=dict)
    _rows: dict[tuple[int, int], Row] = field(default_factory=dict)

    def learn(self, families: Iterable[Family]) -> None:
        """Ask about families that were not asked about before."""
        by_order: dict[int, set[Family]] = {}
        for family in families:
            key = key_of(family)
            if key not in self._single and self._in_rows(key) is None:
                by_order.setdefault(key[2].bit_count(), set()).add(key)
        for keys in by_order.values():
            ordered = sorted(keys)
            asked = Questions.of([(a, b, tuple(bits(mask))) for a, b, mask in ordered])
            self._single.update(zip(ordered, self._ask(asked).tolist(), strict=True))

    def worth(self, family: Family) -> float:
        """Return what a family is worth that was asked about."""
        key = key_of(family)
        found = self._single.get(key)
        if found is None:
            found = self._in_rows(key)
        if found is None:
            raise KeyError(family)
        return found

    def join(self, wanted: Sequence[Joining]) -> list[Floats]:
        """Return what the nodes of each question add; all that is not known is asked about together."""
        by_order: dict[int, list[Joining]] = {}
        for one in wanted:
            row = self._rows.get((one.head, one.mask))
            if row is None:
                row = Row(np.full(self.size, np.nan), np.zeros(self.size, dtype=bool))
                self._rows[one.head, one.mask] = row
            new = one.nodes[~row.known[one.nodes]]
            if len(new):
                row.known[new] = True
                by_order.setdefault(one.mask.bit_count(), []).append(Joining(one.head, one.mask, new))
        for missing in by_order.values():
            self._learn_rows(missing)
        return [self._rows[one.head, one.mask].gains[one.nodes] for one in wanted]

    def _learn_rows(self, missing: Sequence[Joining]) -> None:
        numbers: dict[int, int] = {}
        sets = np.array([numbers.setdefault(one.mask, len(numbers)) for one in missing], dtype=np.intp)
        counts = np.array([len(one.nodes) for one in missing])
        nodes = np.concatenate([one.nodes for one in missing])
        heads = np.repeat(np.array([one.head for one in missing], dtype=np.intp), counts)
        # both directions of an edge are one question, so no question is asked twice
        key = (np.repeat(sets, counts) * self.size + np.minimum(nodes, heads)) * self.size + np.maximum(nodes, heads)
        unique, place = np.unique(key, return_inverse=True)
        given = np.array([list(bits(mask)) for mask in numbers], dtype=np.intp).reshape(len(numbers), -1)
        which, pair = np.divmod(unique, self.size**2)
        x, y = np.divmod(pair, self.size)
        gains = self._ask(Questions(x, y, given[which]))[place.reshape(-1)]
        for one, mine in zip(missing, np.split(gains, np.cumsum(counts)[:-1]), strict=True):
            self._rows[one.head, one.mask].gains[one.nodes] = mine

    def _ask(self, asked: Questions) -> Floats:
        parts = [slice(start, start + BATCH) for start in range(0, len(asked), BATCH)]
        return np.concatenate([self.score.gains(Questions(asked.x[p], asked.y[p], asked.given[p])) for p in parts])

    def _in_rows(self, key: Family) -> float | None:
        a, b, mask = key
        for node, head in ((a, b), (b, a)):
            row = self._rows.get((head, mask))
            if row is not None and row.known[node]:
                return float(row.gains[node])
        return None


def key_of(family: Family) -> Family:
    """Return the question about a family: a score that is the same for equivalent DAGs weighs both directions alike."""
    a, b, mask = family
    return (a, b, mask) if a < b else (b, a, mask)


def places_of(mask: int, size: int) -> Places:
    """Return the members of a set of nodes as an array."""
    packed = np.frombuffer(mask.to_bytes((size + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def mask_of(members: NDArray[np.bool_]) -> int:
    """Return a set of nodes as a mask."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")

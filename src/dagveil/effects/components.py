"""What released tables say about a set of columns, component by component, and what noise does to sums of their cells.

A table is the sum of its components, one for each subset of its columns: what the subset's own table holds beyond its
margins. Noise that is independent in every cell is independent between components, and a component may have been
released by itself. So every release that tells of a component is averaged by inverse variance, and the variance of a
sum of cells is the sum of what each component adds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.tables import NoisyTable
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, Release

Floats = NDArray[np.float64]
Functional = Mapping[tuple[str, ...], Floats]  # coefficients for the cells of tables, by the columns of each


class Components:
    """The components that releases tell of: tables, centred tables and the number of rows; others are ignored."""

    def __init__(self, levels: Mapping[str, int], releases: Iterable[Release]) -> None:
        self.levels = dict(levels)
        self._counts = [release for release in releases if isinstance(release, NoisyCounts | NoisyInteractions)]
        self._known: dict[frozenset[str], NoisyTable | None] = {}

    def of(self, names: Iterable[str]) -> NoisyTable | None:
        """Return the component of these columns, centred counts in alphabetical order; None if nothing was released.

        Its variance is that in each of its directions.
        """
        key = frozenset(names)
        if key not in self._known:
            self._known[key] = self._average(key)
        return self._known[key]

    def missing(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """List the subsets of these columns about which nothing was released, smallest first."""
        sizes = range(len(names) + 1)
        return [some for size in sizes for some in combinations(sorted(names), size) if self.of(some) is None]

    def table(self, names: Sequence[str]) -> Floats:
        """Return the table of these columns: the sum of its components; those that were not released are left out."""
        shape = [self.levels[name] for name in names]
        counts = np.zeros(shape)
        for size in range(len(names) + 1):
            for some in combinations(sorted(names), size):
                part = self.of(some)
                if part is not None:
                    order = [some.index(name) for name in names if name in some]
                    spread = [self.levels[name] if name in some else 1 for name in names]
                    others = math.prod(shape) // math.prod([self.levels[name] for name in some])
                    counts = counts + part.counts.transpose(order).reshape(spread) / others
        return counts

    def noise_variance(self, functional: Functional) -> float:
        """Return the variance that noise gives the sum of cells with these coefficients."""
        coefficients: dict[tuple[str, ...], Floats] = {}
        for names, array in functional.items():
            ordered = tuple(sorted(names))
            turned = np.transpose(array, [names.index(name) for name in ordered])
            for size in range(len(ordered) + 1):
                for some in combinations(ordered, size):
                    axes = tuple(axis for axis, name in enumerate(ordered) if name not in some)
                    part = _centre(turned.mean(axis=axes) if axes else turned)
                    coefficients[some] = coefficients[some] + part if some in coefficients else part
        total = 0.0
        for some, array in coefficients.items():
            known = self.of(some)
            total += 0.0 if known is None else known.variance * float((array**2).sum())
        return total

    def _average(self, key: frozenset[str]) -> NoisyTable | None:
        names = tuple(sorted(key))
        cells = math.prod([self.levels[name] for name in names])
        found: list[NoisyTable] = []
        for release in self._counts:
            if isinstance(release, NoisyInteractions):
                if frozenset(release.columns) == key:
                    order = [release.columns.index(name) for name in names]
                    centred = _centre(release.counts.transpose(order))
                    found.append(NoisyTable(names, centred, release.interaction_variance))
            elif key.issubset(release.columns):
                gone = tuple(axis for axis, name in enumerate(release.columns) if name not in key)
                left = [name for name in release.columns if name in key]
                margin = release.counts.sum(axis=gone).transpose([left.index(name) for name in names])
                found.append(NoisyTable(names, _centre(margin), release.count_variance * len(release.values) / cells))
        if not found:
            return None
        exact = next((part for part in found if part.variance == 0.0), None)
        if exact is not None:
            return exact
        weights = np.array([1.0 / part.variance for part in found])
        mean = sum((w * part.counts for w, part in zip(weights, found, strict=True)), np.zeros(())) / weights.sum()
        return NoisyTable(names, np.asarray(mean), float(1.0 / weights.sum()))


def _centre(array: Floats) -> Floats:
    for axis in range(array.ndim):
        array = array - array.mean(axis=axis, keepdims=True)
    return array

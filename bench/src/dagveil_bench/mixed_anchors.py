"""What numbers beside levels give without privacy: PC by two tests that are known for such tables.

A conditional-Gaussian likelihood ratio, as in Andrews, Ramsey and Cooper (2018): each cell of the levels has normal
numbers of its own mean and covariance. And pgmpy's Pillai trace, from residuals of random forests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import special

from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.search.constraint.arrows import orient_by_separating_sets
from dagveil.search.constraint.pc import Question, Traversal, prune
from dagveil_bench.peers import import_peer, keep_quiet

Floats = NDArray[np.float64]

LEVEL: Final = 0.01
ROWS_PER_NUMBER: Final = 5
"""Cells with fewer rows than this times one more than the numbers in question share one mean and covariance."""


class Test(Protocol):
    """A test of conditional independence."""

    def p_value(self, question: Question) -> float:
        """Return the p-value of a question."""


class ConditionalGaussian:
    """Likelihood ratios of columns, numbers as floats and levels as integers."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns
        self._known: dict[frozenset[str], tuple[float, int]] = {}

    def p_value(self, question: Question) -> float:
        """Return the p-value of a question."""
        x, y, given = question
        fits = [self._fit(frozenset(names)) for names in ((x, y, *given), given, (x, *given), (y, *given))]
        ratio, freedom = (whole + apart - first - second for whole, apart, first, second in zip(*fits, strict=True))
        return float(special.chdtrc(max(freedom, 1), max(2.0 * ratio, 0.0)))

    def _fit(self, names: frozenset[str]) -> tuple[float, int]:
        """Return the largest log likelihood of some columns, and the number of parameters that it takes."""
        if names not in self._known:
            self._known[names] = self._maximise(sorted(names))
        return self._known[names]

    def _maximise(self, names: list[str]) -> tuple[float, int]:
        levels = [self._columns[name] for name in names if self._columns[name].dtype.kind != "f"]
        numbers = [self._columns[name] for name in names if self._columns[name].dtype.kind == "f"]
        if not names:
            return 0.0, 0
        rows, width = len(self._columns[names[0]]), len(numbers)
        cells = np.zeros(rows, dtype=np.intp)
        for column in levels:
            cells = cells * (int(column.max()) + 1) + column
        _, cells, counts = np.unique(cells, return_inverse=True, return_counts=True)
        likelihood = float((counts * np.log(counts / rows)).sum())
        if not width:
            return likelihood, len(counts) - 1
        small = counts < ROWS_PER_NUMBER * (width + 1)
        group = np.where(small, 0, np.cumsum(~small))
        inside = np.bincount(group, counts)
        kept, which = inside > 0, group[cells]
        sums = np.stack([np.bincount(which, column, len(inside)) for column in numbers])[:, kept]
        inside = inside[kept]
        covariance = np.empty((len(inside), width, width))
        for i in range(width):
            for j in range(i + 1):
                product = np.bincount(which, numbers[i] * numbers[j], len(kept))[kept]
                covariance[:, i, j] = covariance[:, j, i] = product / inside - sums[i] * sums[j] / inside**2
        spread = np.linalg.slogdet(covariance + 1e-9 * np.eye(width))[1]
        likelihood -= 0.5 * float((inside * (spread + width * (1.0 + math.log(2.0 * math.pi)))).sum())
        return likelihood, len(counts) - 1 + len(inside) * width * (width + 3) // 2


class Pillai:
    """Pgmpy's Pillai trace; residuals are kept, so that each forest is grown once."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        tests = import_peer("pgmpy.ci_tests")
        frame = pa.table(
            {name: column if column.dtype.kind == "f" else column.astype(str) for name, column in columns.items()}
        ).to_pandas()
        kept: dict[tuple[str, tuple[str, ...]], Any] = {}

        class Kept(tests.PillaiTrace):  # type: ignore[misc, name-defined]
            def get_residuals(self, x: str, given: list[str]) -> Any:
                key = x, tuple(sorted(given))
                if key not in kept:
                    kept[key] = super().get_residuals(x, sorted(given))
                return kept[key]

        for name, column in columns.items():
            if column.dtype.kind != "f":
                frame[name] = frame[name].astype("category")
        self._test = Kept(frame)

    def p_value(self, question: Question) -> float:
        """Return the p-value of a question."""
        x, y, given = question
        with keep_quiet():
            return float(self._test.run_test(x, y, list(given))[1])


TESTS: Final[Mapping[str, type[ConditionalGaussian | Pillai]]] = {
    "conditional Gaussian": ConditionalGaussian,
    "Pillai": Pillai,
}


def run_pc(test: Test, names: tuple[str, ...], largest_order: int, level: float = LEVEL) -> Cpdag:
    """Return the graph that PC finds, each pair tested on the neighbours of either end."""
    swept = prune(names, lambda asked: test.p_value(asked) > level, largest_order, NO_KNOWLEDGE, Traversal.ONCE)
    return orient_by_separating_sets(names, swept.skeleton, NO_KNOWLEDGE)

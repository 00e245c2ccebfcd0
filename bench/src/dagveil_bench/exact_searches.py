"""Searches without privacy that stand beside releases of drawn tables: PC by three tests, and MVPC.

Each test of PC is on the rows that have all its values. A conditional-Gaussian likelihood ratio, as in Andrews, Ramsey
and Cooper (2018), takes normal numbers of their own mean and covariance in each cell of the levels. Pillai's trace is
pgmpy's, from residuals of random forests. MVPC is causal-learn's, for which levels count as numbers.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from itertools import combinations
from typing import Annotated, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import MethodError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.search.constraint.arrows import orient_by_separating_sets
from dagveil.search.constraint.pc import Question, Traversal, prune
from dagveil_bench.peers import import_peer, keep_quiet

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

ROWS_PER_NUMBER: Final = 5
"""Cells with fewer rows than this times one more than the numbers in question share one mean and covariance."""


class ExactSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Level of the tests, the most columns given, and the most rows that are read: some take minutes on more."""

    level: float = 0.01
    largest: int = 3
    most_rows: Annotated[int, msgspec.Meta(ge=2)] | None = None


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


class ChiSquare:
    """Pearson's test of columns of levels."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def p_value(self, question: Question) -> float:
        """Return the p-value of a question."""
        names = (*question[:2], *question[2])
        shape = [int(self._columns[name].max()) + 1 for name in names]
        places = np.ravel_multi_index(tuple(self._columns[name] for name in names), shape)
        return chi_square(np.bincount(places, minlength=math.prod(shape)).reshape(shape))


def chi_square(counts: NDArray[np.int64]) -> float:
    """Return the p-value of Pearson's χ² test of the first two axes given the others; empty strata do not count."""
    tables = counts.reshape(*counts.shape[:2], -1).astype(np.float64)
    x, y, total = tables.sum(axis=1), tables.sum(axis=0), tables.sum(axis=(0, 1))
    expected = x[:, None] * y[None] / np.maximum(total, 1.0)
    statistic = np.sum((tables - expected) ** 2 / np.maximum(expected, 1e-300), where=expected > 0)
    freedom = np.sum(np.maximum((x > 0).sum(axis=0) - 1, 0) * np.maximum((y > 0).sum(axis=0) - 1, 0))
    return float(special.chdtrc(freedom, statistic)) if freedom else 1.0


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


class _Deleted:
    """A test on the rows that have all values of a question."""

    def __init__(self, test: Callable[[Columns], Test], columns: Columns, known: Columns) -> None:
        self._test, self._columns, self._known = test, columns, known

    def p_value(self, question: Question) -> float:
        names = (*question[:2], *question[2])
        there = np.logical_and.reduce([self._known[name] for name in names])
        return self._test({name: self._columns[name][there] for name in names}).p_value(question)


def _run_pc(test: Callable[[Columns], Test], columns: Columns, known: Columns, settings: ExactSettings) -> Cpdag:
    """Return the graph that PC finds, each pair tested on the neighbours of either end."""
    whole = all(there.all() for there in known.values())  # then what a test remembers serves all questions
    asked = test(columns) if whole else _Deleted(test, columns, known)
    names = tuple(columns)
    swept = prune(
        names, lambda one: asked.p_value(one) > settings.level, settings.largest, NO_KNOWLEDGE, Traversal.ONCE
    )
    return orient_by_separating_sets(names, swept.skeleton, NO_KNOWLEDGE)


def _run_mvpc(columns: Columns, known: Columns, settings: ExactSettings) -> Cpdag:
    names = tuple(columns)
    rows = np.stack([np.where(known[name], column, np.nan) for name, column in columns.items()], axis=1)
    with keep_quiet(), redirect_stdout(StringIO()):
        pc = import_peer("causallearn.search.ConstraintBased.PC").pc
        ends = pc(rows, settings.level, "mv_fisherz", mvpc=True, show_progress=False).G.graph
    pairs = [(x, y) for x, y in combinations(range(len(names)), 2) if ends[x, y] or ends[y, x]]
    # causal-learn: 1 is an arrowhead and −1 a tail, at the second place
    arrows = {
        (names[a], names[b]) for x, y in pairs for a, b in ((x, y), (y, x)) if ends[b, a] == 1 and ends[a, b] == -1
    }
    lines = {frozenset((names[x], names[y])) for x, y in pairs} - {frozenset(arrow) for arrow in arrows}
    return Cpdag(names, frozenset(arrows), frozenset(lines))


_TESTS: Final[Mapping[str, Callable[[Columns], Test]]] = {
    "PC, χ²": ChiSquare,
    "PC, conditional Gaussian": ConditionalGaussian,
    "PC, Pillai": Pillai,
}
MVPC: Final = "MVPC"
EXACT_SEARCHES: Final = (*_TESTS, MVPC)


def read_exact_settings(settings: Mapping[str, Any]) -> ExactSettings:
    """Read the settings of a search."""
    try:
        return msgspec.convert(dict(settings), ExactSettings)
    except msgspec.ValidationError as error:
        raise MethodError(f"settings: {error}; there are {', '.join(ExactSettings.__struct_fields__)}") from None


def search_exactly(name: str, table: pa.Table, settings: Mapping[str, Any]) -> Cpdag:
    """Return the graph that a search finds in a table; what is null there is missing."""
    chosen = read_exact_settings(settings)
    columns, known = {}, {}
    for column, values in zip(table.column_names, table[: chosen.most_rows].itercolumns(), strict=True):
        known[column] = values.is_valid().to_numpy()
        if pa.types.is_floating(values.type):
            columns[column] = values.fill_null(0.0).to_numpy()
        else:
            codes = values.combine_chunks().dictionary_encode().indices
            columns[column] = codes.fill_null(0).to_numpy().astype(np.intp)
    if name == MVPC:
        return _run_mvpc(columns, known, chosen)
    return _run_pc(_TESTS[name], columns, known, chosen)

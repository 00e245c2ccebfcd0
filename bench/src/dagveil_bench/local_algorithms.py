"""The nine algorithms of the study of local privacy, each blind to the noise: records in, a graph or a direction out.

PC, FCI and GES come from causal-learn; the others are our own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from io import StringIO
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.evidence.questions import Answers, Questions
from dagveil.graphs.pag import Edge, Mark, MixedGraph
from dagveil.local.pairwise import compare_conditionals, compare_entropies, compare_regression_errors, compare_residuals
from dagveil.local.reports import Reports
from dagveil.search.score.mmhc import MmhcSettings, search_max_min
from dagveil.search.score.order_mcmc import OrderSettings, sample_orders
from dagveil_bench.bayesian_scores import BdeuScore, bge_of_rows
from dagveil_bench.cdt_rules import compare_aligned_conditionals, compare_cubes, compare_gaussian_processes
from dagveil_bench.peers import import_peer, missing_peer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MARKS: Final = {-1: Mark.TAIL, 1: Mark.ARROW, 2: Mark.CIRCLE}  # how causal-learn writes the end of an edge
LARGEST_SET: Final = 2  # columns that a χ² test of PC and FCI conditions on at most
LARGEST_TABLE: Final = 100_000  # cells of a table beyond which a χ² test is not tried


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records as codes, with the names and the levels of their columns."""

    columns: tuple[str, ...]
    levels: tuple[int, ...]
    codes: Integers

    @property
    def numbers(self) -> Floats:
        """Codes as numbers, in the order of bins."""
        return self.codes.astype(np.float64)


GraphSearch = Callable[[Records, np.random.Generator], MixedGraph]
Comparison = Callable[[Floats, Floats], float]


def run_pc(test: str, level: float) -> GraphSearch:
    """Return PC with a test of causal-learn, "fisherz" or "chisq"."""

    def search(records: Records, rng: np.random.Generator) -> MixedGraph:
        pc = import_peer("causallearn.search.ConstraintBased.PC").pc
        # everything depends on everything after combined noise, and tables of larger sets would take hours
        largest = LARGEST_SET if test == "chisq" else None
        return _search_moving(records, lambda rows: pc(rows, level, test, show_progress=False, max_k=largest).G)

    return search


def run_fci(test: str, level: float) -> GraphSearch:
    """Return FCI with a test of causal-learn."""

    def search(records: Records, rng: np.random.Generator) -> MixedGraph:
        fci = import_peer("causallearn.search.ConstraintBased.FCI").fci
        largest = LARGEST_SET if test == "chisq" else -1
        return _search_moving(
            records, lambda rows: fci(rows, test, level, depth=largest, verbose=False, show_progress=False)[0]
        )

    return search


def run_ges(discount: float) -> GraphSearch:
    """Return GES with BIC; the discount multiplies its penalty, as Tetrad's does."""

    def search(records: Records, rng: np.random.Generator) -> MixedGraph:
        ges = import_peer("causallearn.search.ScoreBased.GES").ges
        # from 0.1.4.5 on causal-learn's penalty is λ k ln n, so BIC itself, discount 1, is λ = ½
        settings = {"lambda_value": discount / 2}
        return _search_moving(records, lambda rows: ges(rows, "local_score_BIC_from_cov", parameters=settings)["G"])

    return search


def run_mmhc(level: float) -> GraphSearch:
    """Return max-min hill climbing with χ² tests and BDeu."""

    def search(records: Records, rng: np.random.Generator) -> MixedGraph:
        reports = Reports.of(records.codes)
        score = BdeuScore(records.columns, records.levels, reports.codes, reports.counts)
        return MixedGraph.of(search_max_min(_ChiSquare(records), score, MmhcSettings(level)).cpdag())

    return search


def run_order_mcmc(start: GraphSearch) -> GraphSearch:
    """Return iterative MCMC over orders with BGe, which starts from a skeleton.

    Appendix C starts from GES; a level, as Table 2 has it, is that of PC, with which the authors' program starts.
    """

    def search(records: Records, rng: np.random.Generator) -> MixedGraph:
        place = {name: i for i, name in enumerate(records.columns)}
        within = np.zeros((len(place), len(place)), dtype=np.bool_)
        for first, second, *_ in start(records, rng).edges:
            within[place[first], place[second]] = within[place[second], place[first]] = True
        score = bge_of_rows(records.columns, records.numbers)
        best = sample_orders(score, within, rng, OrderSettings(steps=600, most_rounds=3)).best
        return MixedGraph.of(best.cpdag())

    return search


GRAPH_SEARCHES: Final[Mapping[str, GraphSearch]] = MappingProxyType(
    {
        **{f"pc-fisher-{level:g}": run_pc("fisherz", level) for level in (0.001, 0.05, 0.1)},
        **{f"pc-chi2-{level:g}": run_pc("chisq", level) for level in (0.001, 0.05, 0.1)},
        **{f"fci-fisher-{level:g}": run_fci("fisherz", level) for level in (0.01, 0.05, 0.1)},
        **{f"fci-chi2-{level:g}": run_fci("chisq", level) for level in (0.01, 0.05, 0.1)},
        **{f"ges-bic-{discount:g}": run_ges(discount) for discount in (0.75, 0.8, 1.0, 1.5)},
        **{f"mmhc-bdeu-{level:g}": run_mmhc(level) for level in (0.01, 0.05, 0.1)},
        "order-mcmc-bge": run_order_mcmc(run_ges(1.0)),
        **{f"order-mcmc-bge-{level:g}": run_order_mcmc(run_pc("fisherz", level)) for level in (0.001, 0.01, 0.1)},
    }
)
"""Algorithms for more than two columns, with the constants of Table 2 of the publication."""

FAMILIES: Final[Mapping[str, Callable[[float], GraphSearch]]] = MappingProxyType(
    {
        "pc-fisher": partial(run_pc, "fisherz"),
        "pc-chi2": partial(run_pc, "chisq"),
        "fci-fisher": partial(run_fci, "fisherz"),
        "fci-chi2": partial(run_fci, "chisq"),
        "ges-bic": run_ges,
        "mmhc-bdeu": run_mmhc,
    }
)
"""Algorithms whose name ends in a constant, which may be any positive number."""


def search_named(name: str) -> GraphSearch:
    """Return an algorithm by its name, with constants that Table 2 has or not."""
    if name in GRAPH_SEARCHES:
        return GRAPH_SEARCHES[name]
    family, _, constant = name.rpartition("-")
    if family in FAMILIES and re.fullmatch(r"\d+(\.\d+)?", constant) and float(constant) > 0.0:
        return FAMILIES[family](float(constant))
    families = ", ".join(f"{each}-NUMBER" for each in FAMILIES)
    raise MethodError(f"no algorithm for graphs is called {name!r}; there are: {families}, order-mcmc-bge")


COMPARISONS: Final[Mapping[str, Comparison]] = MappingProxyType(
    {
        "reci": compare_regression_errors,
        "igci": compare_entropies,
        "cds": compare_conditionals,
        "anm": compare_residuals,
        "reci-cdt": compare_cubes,
        "cds-cdt": compare_aligned_conditionals,
        "anm-gp": compare_gaussian_processes,
    }
)
"""Rules for one pair: above 0 if the first column is the cause. ANM's words are those of `anm-gp`."""


def check_peers(name: str) -> None:
    """Refuse an algorithm whose library is not installed."""
    if name not in COMPARISONS and find_spec("causallearn") is None:
        raise missing_peer("causallearn")


@dataclass(frozen=True, slots=True, eq=False)
class _ChiSquare:
    """causal-learn's χ² test in the form that max-min hill climbing asks for."""

    records: Records
    _test: list[Any] = field(default_factory=list, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.records.columns

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        sizes = np.array(self.records.levels, dtype=np.float64)
        cells = sizes[questions.x] * sizes[questions.y] * sizes[questions.given].prod(axis=1)
        return np.asarray(cells <= LARGEST_TABLE)

    def test(self, questions: Questions) -> Answers:
        if not self._test:
            self._test.append(import_peer("causallearn.utils.cit").CIT(self.records.codes, "chisq"))
        p_values = [
            float(self._test[0](int(x), int(y), [int(z) for z in given] or None))
            for x, y, given in zip(questions.x, questions.y, questions.given, strict=True)
        ]
        unknown = np.full(len(p_values), np.nan)
        return Answers(unknown, unknown, np.array(p_values, dtype=np.float64))


def _search_moving(records: Records, search: Callable[[Any], Any]) -> MixedGraph:
    """Search the columns that are not constant, and return the graph over all."""
    moving = [j for j, column in enumerate(records.codes.T) if column.min() < column.max()]
    if len(moving) < 2:
        return MixedGraph(records.columns, frozenset())
    # FCI prints some of its arrows
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        found = search(records.numbers[:, moving]).graph
    edges = set()
    for row, i in enumerate(moving):
        for column, j in enumerate(moving[:row]):
            if found[row, column] and found[column, row]:
                ends = MARKS[int(found[row, column])], MARKS[int(found[column, row])]
                edges.add(Edge(records.columns[i], records.columns[j], *ends))
    return MixedGraph(records.columns, frozenset(edges))

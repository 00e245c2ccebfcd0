"""The nine algorithms of the study of local privacy, each blind to the noise: records in, a graph or a direction out.

PC, FCI and GES come from causal-learn; the others are our own.
"""

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
from dagveil.graphs.pag import MixedGraph
from dagveil.local.pairwise import compare_conditionals, compare_entropies, compare_regression_errors, compare_residuals
from dagveil.local.reports import Reports
from dagveil.search.score.mmhc import MmhcSettings, search_max_min
from dagveil.search.score.order_mcmc import OrderSettings, sample_orders
from dagveil_bench.bayesian_scores import BdeuScore, bge_of_rows
from dagveil_bench.cdt_rules import compare_aligned_conditionals, compare_cubes, compare_gaussian_processes
from dagveil_bench.peers import import_peer, missing_peer, read_ends

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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


def run_pc(test: str, level: float, records: Records, rng: np.random.Generator) -> MixedGraph:
    """Run PC with a test of causal-learn, "fisherz" or "chisq"."""
    pc = import_peer("causallearn.search.ConstraintBased.PC").pc
    # everything depends on everything after combined noise, and tables of larger sets would take hours
    largest = LARGEST_SET if test == "chisq" else None
    return _search_moving(records, lambda rows: pc(rows, level, test, show_progress=False, max_k=largest).G)


def run_fci(test: str, level: float, records: Records, rng: np.random.Generator) -> MixedGraph:
    """Run FCI with a test of causal-learn."""
    fci = import_peer("causallearn.search.ConstraintBased.FCI").fci
    largest = LARGEST_SET if test == "chisq" else -1
    return _search_moving(
        records, lambda rows: fci(rows, test, level, depth=largest, verbose=False, show_progress=False)[0]
    )


def run_ges(discount: float, records: Records, rng: np.random.Generator) -> MixedGraph:
    """Run GES with BIC; the discount multiplies its penalty, as Tetrad's does."""
    ges = import_peer("causallearn.search.ScoreBased.GES").ges
    # from 0.1.4.5 on causal-learn's penalty is λ k ln n, so BIC itself, discount 1, is λ = ½
    settings = {"lambda_value": discount / 2}
    return _search_moving(records, lambda rows: ges(rows, "local_score_BIC_from_cov", parameters=settings)["G"])


def run_mmhc(level: float, records: Records, rng: np.random.Generator) -> MixedGraph:
    """Run max-min hill climbing with χ² tests and BDeu."""
    reports = Reports.of(records.codes)
    score = BdeuScore(records.columns, records.levels, reports.codes, reports.counts)
    return MixedGraph.of(search_max_min(_ChiSquare(records), score, MmhcSettings(level)).cpdag())


def run_order_mcmc(start: GraphSearch, records: Records, rng: np.random.Generator) -> MixedGraph:
    """Run iterative MCMC over orders with BGe, which starts from a skeleton.

    Appendix C starts from GES; a level, as Table 2 has it, is that of PC, with which the authors' program starts.
    """
    place = {name: i for i, name in enumerate(records.columns)}
    within = np.zeros((len(place), len(place)), dtype=np.bool_)
    for first, second, *_ in start(records, rng).edges:
        within[place[first], place[second]] = within[place[second], place[first]] = True
    score = bge_of_rows(records.columns, records.numbers)
    best = sample_orders(score, within, rng, OrderSettings(steps=600, most_rounds=3)).best
    return MixedGraph.of(best.cpdag())


_Family = Callable[[float, Records, np.random.Generator], MixedGraph]
_FAMILIES: Final[Mapping[str, tuple[_Family, tuple[float, ...]]]] = {
    "pc-fisher": (partial(run_pc, "fisherz"), (0.001, 0.05, 0.1)),
    "pc-chi2": (partial(run_pc, "chisq"), (0.001, 0.05, 0.1)),
    "fci-fisher": (partial(run_fci, "fisherz"), (0.01, 0.05, 0.1)),
    "fci-chi2": (partial(run_fci, "chisq"), (0.01, 0.05, 0.1)),
    "ges-bic": (run_ges, (0.75, 0.8, 1.0, 1.5)),
    "mmhc-bdeu": (run_mmhc, (0.01, 0.05, 0.1)),
}
"""Algorithms whose name ends in a constant, with those of Table 2 of the publication; it may be any positive number."""

GRAPH_SEARCHES: Final[Mapping[str, GraphSearch]] = MappingProxyType(
    {f"{name}-{each:g}": partial(run, each) for name, (run, constants) in _FAMILIES.items() for each in constants}
    | {"order-mcmc-bge": partial(run_order_mcmc, partial(run_ges, 1.0))}
    | {
        f"order-mcmc-bge-{level:g}": partial(run_order_mcmc, partial(run_pc, "fisherz", level))
        for level in (0.001, 0.01, 0.1)
    }
)
"""Algorithms for more than two columns, with the constants of Table 2 of the publication."""


def search_named(name: str) -> GraphSearch:
    """Return an algorithm by its name, with constants that Table 2 has or not."""
    if name in GRAPH_SEARCHES:
        return GRAPH_SEARCHES[name]
    family, _, constant = name.rpartition("-")
    if family in _FAMILIES and re.fullmatch(r"\d+(\.\d+)?", constant) and float(constant) > 0.0:
        return partial(_FAMILIES[family][0], float(constant))
    families = ", ".join(f"{each}-NUMBER" for each in _FAMILIES)
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
    return MixedGraph(records.columns, read_ends(tuple(records.columns[j] for j in moving), found))

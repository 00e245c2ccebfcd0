"""What one run of a study is, and what is written down about it."""

from __future__ import annotations

import enum
import math
from fractions import Fraction

from dagveil.evaluation.comparison import arrow_precision, arrow_recall, cpdag_shd, marked_edge_f1, rate_skeleton
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.privacy.budget import epsilon_of_mu_squared, epsilon_of_rho
from dagveil.privacy.events import FAILURE_SHARE, ApproximateZcdpFilter, GaussianFilter, PureFilter, ZcdpFilter
from dagveil.privacy.receipt import Calibration, Receipt
from dagveil.privacy.renyi import epsilon_of_renyi


class Task(enum.Enum):
    """What one run of a study is."""

    GRAPH = "graph"  # a method discovers the graph of a sample
    INDEPENDENCE = "independence"  # a test decides one question of independence on one sample
    LOCAL = "local"  # an algorithm searches records that a local mechanism has randomised; a budget is a p_max
    SITES = "sites"  # rows are dealt out to several sites; what they release by one plan is added and searched
    REPORTS = "reports"  # the same test asks reports of a local channel, with and without knowledge of it
    SHIFTED_SITES = "shifted-sites"  # one of several sites follows other laws; evidence is added with a column for it
    PERSONS = "persons"  # rows are visits of persons, who are protected in several ways; rows of a study are persons
    MEMBERSHIP = "membership"  # an attacker tells from noisy tables whether a person is among so many
    SYNTHESIS = "synthesis"  # rows are drawn from evidence, and compared with those behind it
    HIDDEN_CAUSES = "hidden-causes"  # columns of a network are hidden, and a graph is held against the true PAG

    @property
    def axis(self) -> str:
        """What budgets are called in tables and figures."""
        return "p_max" if self is Task.LOCAL else "ε"


_RENYI = "Renyi accounting at order "


class Metric(enum.Enum):
    """A number about one run; the value is its name in studies, and with underscores in the store.

    The title stands over its tables, which have so many digits after the point. A share lies between 0 and 1.
    """

    title: str
    digits: int
    is_share: bool

    SKELETON_F1 = "skeleton-f1", "Skeleton F1", 2, True
    CPDAG_F1 = "cpdag-f1", "CPDAG F1 (edges with their marks)", 2, True
    SHD = "shd", "Structural Hamming distance of the CPDAG", 1
    TPR = "tpr", "True positive rate of the skeleton (recall)", 2, True
    FPR = "fpr", "False positive rate of the skeleton", 2, True
    TDR = "tdr", "True discovery rate of the skeleton (precision)", 2, True
    ARROW_PRECISION = "arrow-precision", "Arrow precision", 2, True
    ARROW_RECALL = "arrow-recall", "Arrow recall", 2, True
    QUESTIONS = "questions", "Questions put to the rows", 0
    # what the filter was charged, as an epsilon at the run's delta; never above the budget
    EPSILON_SPENT = "epsilon-spent", "ε spent", 3
    # what the publication would report; for runs as published only
    EPSILON_REPORTED = "epsilon-reported", "ε reported as published", 3
    CPU_SECONDS = "cpu-seconds", "CPU seconds of a run", 3
    WALL_SECONDS = "wall-seconds", "Seconds of a run", 3
    # largest resident size of the process during the run, libraries and rows included
    PEAK_MEMORY = "peak-memory", "Peak memory of the process, MiB", 0
    # whether independence was rejected: an error where it is true, power where it is not
    REJECTED = "rejected", "Independence rejected (share)", 3, True
    # missing, redundant and reversed edges against the true graph; one without direction is not reversed
    WRONG_EDGES = "wrong-edges", "Wrong edges (SHD)", 1
    # weighted share of cause-effect pairs whose direction was found; ½ where none was
    ACCURACY = "accuracy", "Weighted accuracy of directions", 2, True
    # exact ε of local privacy of the channel, per record; the median over pairs
    RECORD_EPSILON = "record-epsilon", "Exact ε of local privacy, per record", 1
    # share of true edges among the pairs that were found apart
    OMISSION = "omission", "False omission rate of the skeleton", 2, True
    # changed nodes among the children of a column for the site, and how many others it has
    CHANGED_FOUND = "changed-found", "Changed nodes that are children of the site (share)", 2, True
    FALSE_CHILDREN = "false-children", "Other children of the site", 2
    # whether the comparison of sites names any column whose distribution differs, or pair whose dependence does
    COLUMNS_NAMED = "columns-named", "Sites said to differ in a column (share)", 2, True
    PAIRS_NAMED = "pairs-named", "Sites said to differ in a pair (share)", 2, True
    # true positives less false ones of an attacker; what nobody who sees the release can exceed
    ADVANTAGE = "advantage", "Membership advantage of an attacker", 2
    ADVANTAGE_BOUND = "advantage-bound", "Bound of the advantage", 2
    # mean total variation distance of all margins of so many columns
    MARGINS_1 = "margins-1", "Error of margins of one column", 4
    MARGINS_2 = "margins-2", "Error of margins of two columns", 4
    MARGINS_3 = "margins-3", "Error of margins of three columns", 4
    # ends of edges with the same mark (arrowhead, tail, circle) in both graphs
    MARK_F1 = "mark-f1", "Mark F1", 3, True

    def __new__(cls, name: str, title: str, digits: int, is_share: bool = False) -> Metric:
        """Make a member, whose value is its name alone."""
        metric = object.__new__(cls)
        metric._value_, metric.title, metric.digits, metric.is_share = name, title, digits, is_share
        return metric

    @property
    def column(self) -> str:
        """Name of its column in the store."""
        return str(self.value).replace("-", "_")


# metrics of an answer, whoever gave it: the ones that floors have
OF_ANSWERS = frozenset(metric for metric in Metric if metric.is_share) | {Metric.SHD, Metric.WRONG_EDGES}
OF_BUDGETS = frozenset({Metric.EPSILON_SPENT, Metric.EPSILON_REPORTED, Metric.RECORD_EPSILON})

OF_SKELETONS = frozenset({Metric.SKELETON_F1, Metric.TPR, Metric.FPR, Metric.TDR, Metric.OMISSION})
_COSTS = frozenset({Metric.CPU_SECONDS, Metric.WALL_SECONDS, Metric.PEAK_MEMORY})
_OF_GRAPHS = OF_SKELETONS | {Metric.CPDAG_F1, Metric.SHD, Metric.ARROW_PRECISION, Metric.ARROW_RECALL}
_OF_SITES = {Metric.CHANGED_FOUND, Metric.FALSE_CHILDREN, Metric.COLUMNS_NAMED, Metric.PAIRS_NAMED}
OF_MARGINS = (Metric.MARGINS_1, Metric.MARGINS_2, Metric.MARGINS_3)

# what the runs of a task can have, beside their costs
METRICS_OF = {
    task: _COSTS | metrics
    for task, metrics in {
        Task.GRAPH: _OF_GRAPHS | {Metric.QUESTIONS, Metric.EPSILON_SPENT, Metric.EPSILON_REPORTED},
        Task.INDEPENDENCE: {Metric.REJECTED},
        Task.LOCAL: {Metric.WRONG_EDGES, Metric.ACCURACY, Metric.RECORD_EPSILON, Metric.SKELETON_F1},
        Task.SITES: _OF_GRAPHS,
        Task.REPORTS: OF_SKELETONS | {Metric.REJECTED},
        Task.SHIFTED_SITES: _OF_GRAPHS | _OF_SITES,
        Task.PERSONS: _OF_GRAPHS,
        Task.MEMBERSHIP: {Metric.ADVANTAGE, Metric.ADVANTAGE_BOUND},
        Task.SYNTHESIS: {Metric.SKELETON_F1, *OF_MARGINS},
        Task.HIDDEN_CAUSES: {Metric.SKELETON_F1, Metric.MARK_F1},
    }.items()
}


def score_graph(found: Cpdag, dag: Dag) -> dict[Metric, float]:
    """Compare a graph with the truth."""
    truth = dag.cpdag()
    rates = rate_skeleton(found, dag)
    return {
        Metric.SKELETON_F1: rates.f1,
        Metric.CPDAG_F1: marked_edge_f1(found, truth),
        Metric.SHD: float(cpdag_shd(found, truth)),
        Metric.TPR: rates.recall,
        Metric.FPR: rates.fpr,
        Metric.TDR: rates.precision,
        Metric.OMISSION: rates.omission,
        Metric.ARROW_PRECISION: arrow_precision(found, truth),
        Metric.ARROW_RECALL: arrow_recall(found, truth),
    }


def spent_epsilon(receipt: Receipt) -> float:
    """Return the epsilon that a run has used of its budget; NaN where nothing bounds it.

    Whoever sees the result may count on the whole budget only: how much of it was used can depend on the rows.
    """
    if receipt.calibration is not Calibration.SOUND:
        return math.nan
    spent, delta = Fraction(receipt.accounting_spent), Fraction(receipt.delta)
    name = receipt.accounting
    if name == PureFilter.name:
        epsilon = spent
    elif name == ZcdpFilter.name:
        epsilon = epsilon_of_rho(spent, delta)
    elif name == ApproximateZcdpFilter.name:
        epsilon = epsilon_of_rho(spent, delta * (1 - FAILURE_SHARE))
    elif name == GaussianFilter.name:
        epsilon = epsilon_of_mu_squared(spent, delta)
    elif name.startswith(_RENYI):
        epsilon = epsilon_of_renyi(spent, int(name.removeprefix(_RENYI)), delta) if spent else Fraction(0)
    else:
        return math.nan
    return float(min(epsilon, Fraction(receipt.epsilon)))  # conversions round up

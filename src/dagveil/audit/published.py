"""Attacks on the published programs: neighbours on which their claims fall, and what a run of theirs gives out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from scipy.special import chdtri

from dagveil.audit.doors import WatchedTable
from dagveil.audit.neighbours import BOUND, Case, DataKind, Pair, Setting, read_rows
from dagveil.audit.recording import Recording
from dagveil.audit.records import Domain, RecordSearch
from dagveil.audit.search import AuditedStatistic, Floats, Found, Look, Norm
from dagveil.audit.tables import Tables, TableSearch
from dagveil.audit.transcript import read_graph
from dagveil.curator import PublishedAccess
from dagveil.data.column import Boolean, Column, Numeric
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method
from dagveil.methods.priv_pc_star import published_sensitivity
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.relation import Relation
from dagveil.progress import silent
from dagveil.statistics.distance import greedy_distance
from dagveil.statistics.gradients import published_gradient_sensitivity
from dagveil.statistics.hsic import published_hsic_bound
from dagveil.statistics.kendall import (
    CURATE_P_VALUE_CONSTANT,
    PUBLISHED_KENDALL_CONSTANT,
    published_p_value_sensitivity,
    published_p_values,
    published_scores,
)
from dagveil.statistics.rcit import RcitSettings, exact_rcit
from dagveil.statistics.residuals import published_residual_bound, ridge_residuals

RUN_FEATURES: Final = ("reported epsilon", "number of questions")

Trio = tuple[Floats, Floats, Floats]
"""The rows that two tables share, and the last record of either."""


@dataclass(frozen=True, slots=True)
class PublishedPair:
    """How two tables look on which a published claim falls, the settings for it, and that in words."""

    make: Callable[[], Trio]
    kind: DataKind
    words: str
    options: Mapping[str, Setting]


def _make_constant(rows: int) -> Callable[[], Trio]:
    """Half of the rows are (0, 0), half (1, 0): the second column is constant, until a record (1, 1) comes."""

    def make() -> Trio:
        core = np.zeros((rows, 2))
        core[::2, 0] = 1.0
        return core, np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])

    return make


def _make_jumping() -> Trio:
    """60 rows (1, 1), and one that has another level in one column or in both."""
    return np.ones((60, 2)), np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]])


def _make_small_counts() -> Trio:
    """Nine rows, of which the last counts for dependence or against it: two cells change, and the loss is twice."""
    core = np.repeat(np.array([[0.0, 0.0], [1.0, 1.0]]), [6, 2], axis=0)
    return core, np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]])


def _make_halves() -> Trio:
    """Two equal columns of two values: the last record decides whether most distances are nil."""
    core = np.repeat(np.array([[0.0, 0.0], [BOUND, BOUND]]), [209, 190], axis=0)
    return core, np.array([[0.0, 0.0]]), np.array([[BOUND, BOUND]])


def _make_outlier() -> Trio:
    """Rows near the centre without dependence, and a record in a far corner or among them."""
    rng = np.random.default_rng(1)
    core = np.clip(0.05 * rng.standard_normal((200, 2)), -0.2, 0.2)
    return core, np.array([[0.0, 0.0]]), np.array([[BOUND, BOUND]])


_CONSTANT: Final = "one column is constant, until one record of {} takes another level there: its block switches in"
_OUTLIER: Final = "200 records close to the centre, and one that stands there too or in the far corner of the bounds"

PUBLISHED_PAIRS: Final[Mapping[str, PublishedPair]] = {
    "svt-pc": PublishedPair(_make_constant(10**6), DataKind.TWO_COLUMNS, _CONSTANT.format("a million"), {}),
    "priv-pc": PublishedPair(_make_constant(10**6), DataKind.TWO_COLUMNS, _CONSTANT.format("a million"), {"rate": "1"}),
    "sampled-gaussian-pc": PublishedPair(
        _make_constant(10**6), DataKind.TWO_COLUMNS, _CONSTANT.format("a million"), {"rate": "1", "questions": "1"}
    ),
    "curate": PublishedPair(_make_constant(10**5), DataKind.TWO_COLUMNS, _CONSTANT.format("a hundred thousand"), {}),
    "em-pc": PublishedPair(
        _make_jumping,
        DataKind.TWO_COLUMNS,
        "60 equal records, and one with another level in one column or in both: the distance jumps by 62",
        {"node_epsilon": "0.5", "whole_domain": "true"},
    ),
    "lap-mech": PublishedPair(
        _make_small_counts,
        DataKind.TWO_COLUMNS,
        "nine records, of which the last counts for dependence or against it: two cells change, not one",
        {"level": "0.00053"},
    ),
    "priv-pc-star": PublishedPair(_make_outlier, DataKind.TWO_NUMBERS, _OUTLIER, {}),
    "noleaks": PublishedPair(_make_outlier, DataKind.TWO_NUMBERS, _OUTLIER, {}),
    "curate-score": PublishedPair(_make_outlier, DataKind.TWO_NUMBERS, _OUTLIER, {}),
    "pcd": PublishedPair(
        _make_halves,
        DataKind.TWO_NUMBERS,
        "400 records of two values, about as many of each: one record moves the median distance, and so decides "
        "whether the answer gets noise",
        {},
    ),
    "measure-notears": PublishedPair(_make_outlier, DataKind.TWO_NUMBERS, _OUTLIER, {}),
}
"""For each method with a `paper` calibration the neighbours that it is attacked on. The papers take n as public, so a
record is replaced."""


def published_case(method: Method, options: Mapping[str, Setting]) -> Case:
    """Return what is attacked of a published program; settings that are given stand above those of the case."""
    if method.publish is None:
        raise MethodError(f"{method.name} is not from a publication and has no paper calibration; leave it out")
    pair = _pair_of(method.name)
    return Case(pair.kind, Relation.REPLACE_ONE, {**pair.options, **options})


def make_published_pair(name: str, relation: Relation = Relation.REPLACE_ONE) -> Pair:
    """Make the neighbours that a published program is attacked on."""
    case = _pair_of(name)
    core, first, second = case.make()
    columns: dict[str, Column] = {"a": Boolean("false"), "b": Boolean("false")}
    if case.kind is DataKind.TWO_NUMBERS:
        columns = {column: Numeric(bounds=(-BOUND, BOUND)) for column in columns}
    schema = Schema(
        dataset="audit",
        columns=columns,
        reviewed=True,
        relation=relation.value,
        nominal_rows=len(core) + 1,
        public=True,
    )
    tables = [read_rows(np.vstack([core, record]), schema) for record in (first, second)]
    return Pair(tables[0], tables[1], relation, case.kind)


def _pair_of(name: str) -> PublishedPair:
    # a plug-in's method has no pair of its own
    return PUBLISHED_PAIRS.get(name, PublishedPair(_make_outlier, DataKind.TWO_NUMBERS, _OUTLIER, {}))


@dataclass(frozen=True, slots=True, eq=False)
class PublishedAttacker:
    """Someone who sees what a published program gives out: its graph, and the epsilon that it reports.

    Parameters
    ----------
    method, pair, budget, options
        What runs, on which tables.
    """

    method: Method
    pair: Pair
    budget: Budget
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"PublishedAttacker({self.method.name}, {self.pair!r})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of a run."""
        edges = [f"{x} {mark} {y}" for x, y in combinations(self.pair.schema.columns, 2) for mark in ("→", "←", "–")]
        return (*RUN_FEATURES, *edges)

    def watch(self, table: Table, seed: int) -> tuple[float, ...]:
        """Let the published program run on a table, and turn what it gave out into features."""
        asked = self._run(table, seed)
        reported = 0.0 if asked.reported is None else asked.reported[0]
        return (reported, float(asked.questions), *read_graph(asked.graph, tuple(self.pair.schema.columns)))

    def reported_delta(self) -> float:
        """Return the delta that the program reports; it does not depend on the rows."""
        asked = self._run(self.pair.first, 0)
        return 0.0 if asked.reported is None else asked.reported[1]

    def list_readings(self) -> tuple[str, ...]:
        """Return what the program reads of the rows without noise: every published program reads something."""
        recording = Recording(noise_source(NoiseKind.SEEDED, 0))
        watched: Any = WatchedTable(self.pair.first, recording)
        self._run(watched, 0)
        return tuple(dict.fromkeys(recording.touched))

    def _run(self, table: Table, seed: int) -> Asked:
        if self.method.publish is None:
            raise MethodError(
                f"{self.method.name} is not from a publication and has no paper calibration; leave it out"
            )
        settings = self.method.read_settings(Calibration.PAPER, self.options)
        access = PublishedAccess(table, np.random.default_rng(seed))
        return self.method.publish(access, self.budget, Knowledge.none(), settings, silent)


ROWS: Final = 200
"""Rows that the stated sensitivities of rank statistics are computed for; smaller tables are not tried."""

REPLACED: Final = (Relation.REPLACE_ONE,)
"""The papers take the number of rows as public."""

SLOTS: Final = 60
"""Rows of the kernel statistics."""


def _look_at_tables(measure: Callable[[Tables], Floats], declared: float, shape: tuple[int, ...] = (2, 2, 2)) -> Look:
    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = TableSearch(
            lambda tables: measure(tables)[:, None], shape, Norm.LARGEST, relation, fewest_rows=ROWS, most_enumerated=0
        )
        return search.run(pairs, (ROWS + 5,), rng), declared

    return look


def _look_at_greedy_distance(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    critical = float(chdtri(1, 0.1))
    search = TableSearch(
        lambda tables: np.array([[float(greedy_distance(table, critical))] for table in tables]),
        (1, 2, 2),
        Norm.LARGEST,
        relation,
    )
    # the stated 1 is for a record that comes or goes; replaced, it would be twice that
    return search.run(min(pairs, 200_000), (30, 60), rng), 2.0


def _look_at_joint_table(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    search = TableSearch(
        lambda tables: tables.reshape(len(tables), -1).astype(np.float64), (2, 2), Norm.SIZES, relation
    )
    return search.run(pairs, (3, 30), rng), 1.0


def _look_at_records(
    measure: Callable[[Floats], Floats],
    columns: int,
    reach: float,
    declared: float,
    norm: Norm,
    rows: int,
    most_pairs: int = 200_000,
) -> Look:
    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = RecordSearch(measure, columns, reach, norm, relation, Domain.BOUNDED)
        return search.run(min(pairs, most_pairs), (rows - 1,), rng), declared

    return look


def _mean_gradient(rows: Floats) -> Floats:
    """Return the mean gradient at W = 0, clipped entry by entry."""
    gradient = -(rows.T @ rows) / len(rows)
    np.fill_diagonal(gradient, 0.0)
    return np.asarray(np.clip(gradient, -2.0, 2.0).reshape(-1))


def _correlations(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=0)
    covariance = centred.T @ centred / len(rows)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    return np.asarray((covariance / np.outer(deviation, deviation))[np.triu_indices(rows.shape[1])])


def _hsic(rows: Floats) -> Floats:
    rng = np.random.default_rng(0)
    return np.array([exact_rcit(rows[:, 0], rows[:, 1], None, RcitSettings(permutations=1), rng).score])


def _kendall_p_value(name: str, declared: float) -> AuditedStatistic:
    return AuditedStatistic(
        f"p-value of the conditional Kendall test ({name})",
        "as published",
        _look_at_tables(published_p_values, declared),
        REPLACED,
    )


_PRIV_PC: Final = (
    AuditedStatistic(
        "conditional Kendall statistic, 4.5/√n",
        "as published",
        _look_at_tables(published_scores, PUBLISHED_KENDALL_CONSTANT / math.sqrt(ROWS)),
        REPLACED,
    ),
    _kendall_p_value("Priv-PC", published_p_value_sensitivity(ROWS)),
)
_GRADIENT: Final = AuditedStatistic(
    "mean gradient, clipped as a whole",
    "as published",
    _look_at_records(_mean_gradient, 3, 6.0, published_gradient_sensitivity(3, ROWS, 2.0), Norm.SQUARES, ROWS),
    REPLACED,
)
PUBLISHED_STATISTICS: Final[Mapping[str, tuple[AuditedStatistic, ...]]] = {
    "svt-pc": _PRIV_PC,
    "priv-pc": _PRIV_PC,
    "sampled-gaussian-pc": _PRIV_PC[1:],
    "curate": (_kendall_p_value("CURATE", CURATE_P_VALUE_CONSTANT / math.sqrt(ROWS)),),
    "em-pc": (AuditedStatistic("greedy distance", "as published", _look_at_greedy_distance, REPLACED),),
    "lap-mech": (AuditedStatistic("table of all columns", "as published", _look_at_joint_table, REPLACED),),
    "priv-pc-star": (
        AuditedStatistic(
            "correlation matrix",
            "as published",
            _look_at_records(_correlations, 2, 6.0, published_sensitivity(2, ROWS), Norm.SIZES, ROWS),
            REPLACED,
        ),
    ),
    "noleaks": (_GRADIENT,),
    "curate-score": (_GRADIENT,),
    "pcd": (
        AuditedStatistic(
            "HSIC, bandwidths from the rows",
            "as published",
            _look_at_records(_hsic, 2, 1.0, published_hsic_bound(SLOTS), Norm.LARGEST, SLOTS, 20_000),
            REPLACED,
        ),
        AuditedStatistic(
            "residual of ridge regression",
            "as published",
            _look_at_records(
                lambda rows: ridge_residuals(rows[:, :1], rows[:, 1], 1.0, 0.5),
                2,
                1.0,
                published_residual_bound(SLOTS, 1.0),
                Norm.LARGEST,
                SLOTS,
                2_000,
            ),
            REPLACED,
        ),
    ),
}
"""For each method what its publication states a sensitivity for."""


def published_statistics(name: str) -> tuple[AuditedStatistic, ...]:
    """Return the statistics of a published program; none for one that states no sensitivity.

    Examples
    --------
    >>> [statistic.name for statistic in published_statistics("em-pc")]
    ['greedy distance']
    """
    return PUBLISHED_STATISTICS.get(name, ())

"""Attacks on the published programs: neighbours on which their claims fall, and the sensitivities that papers state."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from scipy.special import chdtri

from dagveil.audit.doors import WatchedTable
from dagveil.audit.neighbours import BOUND, Case, DataKind, Options, Pair, Rows, declare_schema, read_rows
from dagveil.audit.recording import Recording
from dagveil.audit.search import AuditedStatistic, Domain, Floats, Look, Norm, Tables, look_at_records, look_at_tables
from dagveil.audit.transcript import name_edges, read_graph
from dagveil.data.column import Boolean, Column, Numeric
from dagveil.data.table import Table
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method
from dagveil.papers import publication
from dagveil.papers.bhattacharjee2024 import published_p_value_constant
from dagveil.papers.ma2022 import published_gradient_sensitivity
from dagveil.papers.publication import PublishedAccess, read_settings, require_reading
from dagveil.papers.xu2017 import greedy_distance, published_covariance_sensitivity
from dagveil.papers.zhang2023 import RcitSettings, exact_rcit, published_hsic_bound, published_residual_bound
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent
from dagveil.statistics.residuals import ridge_residuals

# rows that the stated sensitivities of rank statistics are computed for; smaller tables are not tried
ROWS: Final = 200
SLOTS: Final = 60  # rows of the kernel statistics


@dataclass(frozen=True, slots=True)
class PublishedClaim:
    """What a publication claims, and how it is tried."""

    make: Callable[[], Rows]  # the rows that two tables share on which the claim falls, and the last record of either
    kind: DataKind
    words: str  # the two tables
    options: Options = field(default_factory=dict)
    statistics: tuple[AuditedStatistic, ...] = ()  # what a sensitivity is stated for


def _make_constant(rows: int) -> Rows:
    """Half of the rows are (0, 0), half (1, 0): the second column is constant, until a record (1, 1) comes."""
    core = np.zeros((rows, 2))
    core[::2, 0] = 1.0
    return core, np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])


def _make_jumping() -> Rows:
    """60 rows (1, 1), and one that has another level in one column or in both."""
    return np.ones((60, 2)), np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]])


def _make_small_counts() -> Rows:
    """Nine rows, of which the last counts for dependence or against it: two cells change, and the loss is twice."""
    core = np.repeat(np.array([[0.0, 0.0], [1.0, 1.0]]), [6, 2], axis=0)
    return core, np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]])


def _make_halves() -> Rows:
    """Two equal columns of two values: the last record decides whether most distances are nil."""
    core = np.repeat(np.array([[0.0, 0.0], [BOUND, BOUND]]), [209, 190], axis=0)
    return core, np.array([[0.0, 0.0]]), np.array([[BOUND, BOUND]])


def _make_outlier() -> Rows:
    """Rows near the centre without dependence, and a record in a far corner or among them."""
    core = np.clip(0.05 * np.random.default_rng(1).standard_normal((200, 2)), -0.2, 0.2)
    return core, np.array([[0.0, 0.0]]), np.array([[BOUND, BOUND]])


def _state(name: str, look: Look) -> AuditedStatistic:
    """Return a statistic with a stated sensitivity; the papers take n as public, so a record is replaced."""
    return AuditedStatistic(name, "as published", look, (Relation.REPLACE_ONE,))


def _state_rank(name: str, measure: Callable[[Tables], Floats], declared: float) -> AuditedStatistic:
    facts = (2, 2, 2), Norm.LARGEST, lambda relation: declared, (ROWS + 5,)
    return _state(name, look_at_tables(lambda one: measure(one)[:, None], *facts, fewest_rows=ROWS, most_enumerated=0))


def _state_rows(
    name: str,
    measure: Callable[[Floats], Floats],
    columns: int,
    reach: float,
    declared: float,
    norm: Norm = Norm.LARGEST,
    rows: int = ROWS,
    most_pairs: int = 200_000,
) -> AuditedStatistic:
    look = look_at_records(measure, columns, reach, lambda relation: declared, norm, (rows - 1,), Domain.BOUNDED)
    return _state(name, _limit(look, most_pairs))


def _limit(look: Look, most_pairs: int = 200_000) -> Look:
    return lambda relation, pairs, rng: look(relation, min(pairs, most_pairs), rng)


def _greedy_distances(tables: Tables) -> Floats:
    critical = float(chdtri(1, 0.1))
    return np.array([[float(greedy_distance(table, critical))] for table in tables])


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


_KENDALL: Final = (
    _state_rank(
        "conditional Kendall statistic, 4.5/√n",
        publication.published_scores,
        publication.PUBLISHED_KENDALL_CONSTANT / math.sqrt(ROWS),
    ),
    _state_rank(
        "p-value of the conditional Kendall test (Priv-PC)",
        publication.published_p_values,
        publication.published_p_value_sensitivity(ROWS),
    ),
)
_CURATE: Final = _state_rank(
    "p-value of the conditional Kendall test (CURATE)",
    publication.published_p_values,
    published_p_value_constant(2) / math.sqrt(ROWS),
)
# the stated 1 is for a record that comes or goes; replaced, it would be twice that
_DISTANCE: Final = look_at_tables(_greedy_distances, (1, 2, 2), Norm.LARGEST, lambda relation: 2.0, (30, 60))
_JOINT: Final = look_at_tables(
    lambda tables: tables.reshape(len(tables), -1).astype(np.float64), (2, 2), Norm.SIZES, lambda relation: 1.0, (3, 30)
)
_GRADIENT: Final = _state_rows(
    "mean gradient, clipped as a whole",
    _mean_gradient,
    3,
    6.0,
    published_gradient_sensitivity(3, ROWS, 2.0),
    Norm.SQUARES,
)
_CORRELATIONS: Final = _state_rows(
    "correlation matrix", _correlations, 2, 6.0, published_covariance_sensitivity(2, ROWS), Norm.SIZES
)
_HSIC: Final = _state_rows(
    "HSIC, bandwidths from the rows", _hsic, 2, 1.0, published_hsic_bound(SLOTS), rows=SLOTS, most_pairs=20_000
)
_RESIDUAL: Final = _state_rows(
    "residual of ridge regression",
    lambda rows: ridge_residuals(rows[:, :1], rows[:, 1], 1.0, 0.5),
    2,
    1.0,
    published_residual_bound(SLOTS, 1.0),
    rows=SLOTS,
    most_pairs=2_000,
)


def _claim_constant(
    options: Options, statistics: tuple[AuditedStatistic, ...], rows: int = 10**6, word: str = "a million"
) -> PublishedClaim:
    words = f"one column is constant, until one record of {word} takes another level there: its block switches in"
    return PublishedClaim(partial(_make_constant, rows), DataKind.TWO_COLUMNS, words, options, statistics)


def _claim_outlier(*statistics: AuditedStatistic) -> PublishedClaim:
    words = "200 records close to the centre, and one that stands there too or in the far corner of the bounds"
    return PublishedClaim(_make_outlier, DataKind.TWO_NUMBERS, words, {}, statistics)


# for each method with a `paper` calibration what is tried
PUBLISHED: Final[Mapping[str, PublishedClaim]] = {
    "svt-pc": _claim_constant({}, _KENDALL),
    "priv-pc": _claim_constant({"rate": "1"}, _KENDALL),
    "sampled-gaussian-pc": _claim_constant({"rate": "1", "questions": "1"}, _KENDALL[1:]),
    "curate": _claim_constant({}, (_CURATE,), 10**5, "a hundred thousand"),
    "em-pc": PublishedClaim(
        _make_jumping,
        DataKind.TWO_COLUMNS,
        "60 equal records, and one with another level in one column or in both: the distance jumps by 62",
        {"node_epsilon": "0.5"},
        (_state("greedy distance", _limit(_DISTANCE)),),
    ),
    "lap-mech": PublishedClaim(
        _make_small_counts,
        DataKind.TWO_COLUMNS,
        "nine records, of which the last counts for dependence or against it: two cells change, not one",
        {"level": "0.00053"},
        (_state("table of all columns", _JOINT),),
    ),
    "priv-pc-star": _claim_outlier(_CORRELATIONS),
    "noleaks": _claim_outlier(_GRADIENT),
    "curate-score": _claim_outlier(_GRADIENT),
    "pcd": PublishedClaim(
        _make_halves,
        DataKind.TWO_NUMBERS,
        "400 records of two values, about as many of each: one record moves the median distance, and so decides "
        "whether the answer gets noise",
        {},
        (_HSIC, _RESIDUAL),
    ),
    "measure-notears": _claim_outlier(),
}


def published_claim(name: str) -> PublishedClaim:
    """Return what is tried of a published program; a plug-in's method states nothing."""
    return PUBLISHED.get(name, PublishedClaim(_make_outlier, DataKind.TWO_NUMBERS, ""))


def published_case(method: Method, options: Options) -> Case:
    """Return what is attacked of a published program; settings that are given stand above those of the claim."""
    claim = published_claim(method.name)
    return Case(claim.kind, Relation.REPLACE_ONE, {**claim.options, **options})


def make_published_pair(name: str, relation: Relation = Relation.REPLACE_ONE) -> Pair:
    """Make the neighbours that a published program is attacked on."""
    claim = published_claim(name)
    core, first, second = claim.make()
    columns: dict[str, Column] = {"a": Boolean("false"), "b": Boolean("false")}
    if claim.kind is DataKind.TWO_NUMBERS:
        columns = {column: Numeric(bounds=(-BOUND, BOUND)) for column in columns}
    schema = declare_schema(columns, relation, len(core) + 1)
    tables = [read_rows(np.vstack([core, record]), schema) for record in (first, second)]
    return Pair(tables[0], tables[1], relation, claim.kind)


@dataclass(frozen=True, slots=True, eq=False)
class PublishedAttacker:
    """Someone who sees what a published program gives out: its graph, and the epsilon that it reports."""

    method: Method
    pair: Pair
    budget: Budget
    options: Mapping[str, Any]
    calibration: Calibration

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of a run."""
        return ("reported epsilon", "number of questions", *name_edges(self.pair.schema.columns))

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
        settings = read_settings(self.method, self.calibration, self.options)
        access = PublishedAccess(table, np.random.default_rng(seed))
        reading = require_reading(self.method, self.calibration)
        return reading.publish(access, self.budget, Knowledge.none(), settings, silent)

"""Attacks on the published programs: neighbours on which their claims fall, and what a run of theirs gives out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.cases import Case, Setting
from dagveil.audit.doors import WatchedTable
from dagveil.audit.neighbours import BOUND, DataKind, Pair, read_rows
from dagveil.audit.recording import Recording
from dagveil.audit.transcript import read_graph
from dagveil.data.column import Boolean, Column, Numeric
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method
from dagveil.papers.access import PublishedAccess
from dagveil.papers.publication import read_settings, require_publication
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.relation import Relation
from dagveil.progress import silent

RUN_FEATURES: Final = ("reported epsilon", "number of questions")

Floats = NDArray[np.float64]
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
    require_publication(method)
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
        settings = read_settings(self.method, Calibration.PAPER, self.options)
        access = PublishedAccess(table, np.random.default_rng(seed))
        return require_publication(self.method).publish(access, self.budget, Knowledge.none(), settings, silent)

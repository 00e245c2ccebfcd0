"""Statistics of the published programs beside the sensitivity that their publications state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from scipy.special import chdtri

from dagveil.audit.records import Domain, RecordSearch
from dagveil.audit.search import AuditedStatistic, Floats, Found, Look, Norm
from dagveil.audit.tables import Tables, TableSearch
from dagveil.papers.bhattacharjee2024 import CURATE_P_VALUE_CONSTANT
from dagveil.papers.common import (
    PUBLISHED_KENDALL_CONSTANT,
    published_p_value_sensitivity,
    published_p_values,
    published_scores,
)
from dagveil.papers.ma2022 import published_gradient_sensitivity
from dagveil.papers.xu2017 import greedy_distance, published_covariance_sensitivity
from dagveil.papers.zhang2023 import published_hsic_bound, published_residual_bound
from dagveil.privacy.relation import Relation
from dagveil.statistics.rcit import RcitSettings, exact_rcit
from dagveil.statistics.residuals import ridge_residuals

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
            _look_at_records(_correlations, 2, 6.0, published_covariance_sensitivity(2, ROWS), Norm.SIZES, ROWS),
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

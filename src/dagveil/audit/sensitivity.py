"""Every statistic with a declared sensitivity, and the search for neighbours that exceed it."""

from __future__ import annotations

import numpy as np

from dagveil.audit.counted import counted_statistics
from dagveil.audit.numbers import number_statistics
from dagveil.audit.search import AuditedStatistic, Finding
from dagveil.audit.shuffled import shuffled_statistics
from dagveil.privacy.relation import Relation


def audited_statistics() -> tuple[AuditedStatistic, ...]:
    """Return the statistics of docs/guarantees.md, all of them.

    Examples
    --------
    >>> len({statistic.name for statistic in audited_statistics()}) == len(audited_statistics())
    True
    """
    return (*counted_statistics(), *number_statistics(), *shuffled_statistics())


def search_statistic(statistic: AuditedStatistic, relation: Relation, pairs: int, seed: int = 0) -> Finding:
    """Search for the worst neighbours of one statistic, with about so many pairs.

    Examples
    --------
    >>> rows = next(one for one in audited_statistics() if one.name == "number of rows")
    >>> search_statistic(rows, Relation.ADD_REMOVE, 100).ratio
    1.0
    """
    found, declared = statistic.look(relation, pairs, np.random.default_rng(seed))
    return Finding(statistic.name, statistic.function, relation, found.change, declared, found.pairs, found.words)

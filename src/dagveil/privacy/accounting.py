"""Filters by the names that receipts and the ledger give them."""

from __future__ import annotations

import re
from typing import Final

from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget
from dagveil.privacy.filter import ApproximateZcdpFilter, Filter, GaussianFilter, PureFilter, ZcdpFilter
from dagveil.privacy.renyi_filter import RenyiFilter

_BY_NAME: Final = {kind.name: kind for kind in (PureFilter, ZcdpFilter, ApproximateZcdpFilter, GaussianFilter)}
_RENYI: Final = re.compile(r"Renyi accounting at order ([0-9]{1,6})")


def filter_named(name: str, budget: Budget) -> Filter:
    """Make the filter that a receipt or a reservation names.

    Examples
    --------
    >>> filter_named("pure accounting", Budget.of(1, 0)).total
    Fraction(1, 1)
    """
    found = _RENYI.fullmatch(name)
    if found is not None:
        return RenyiFilter(budget, int(found[1]))
    if name not in _BY_NAME:
        raise BudgetError(f"there is no accounting {name!r}; it is one of {', '.join(_BY_NAME)} or Renyi accounting.")
    return _BY_NAME[name](budget)

"""The filter at one Rényi order: the accounting that sub-sampled Gaussian noise asks for."""

from __future__ import annotations

from fractions import Fraction

from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.filter import _SumFilter
from dagveil.privacy.renyi import checked_order, renyi_cost, renyi_of


class RenyiFilter(_SumFilter):
    """Sum of Rényi divergences of one integer order (docs/proofs/renyi-filter.md).

    Parameters
    ----------
    budget
        Epsilon and delta of the run.
    order
        Chosen before the run and from public figures, for example by `best_order`.

    Examples
    --------
    >>> from dagveil.privacy.events import SubsampledGaussian
    >>> f = RenyiFilter(Budget.of(1, 1e-6), 24)
    >>> f.charge(SubsampledGaussian("pair", Fraction(1, 10), Fraction(1), Fraction(400)))
    >>> f.name, round(float(f.spent / f.total), 4)
    ('Renyi accounting at order 24', 0.0005)
    """

    _unit = "Renyi divergence"

    def __init__(self, budget: Budget, order: int) -> None:
        self._order = checked_order(order)
        self.name = f"Renyi accounting at order {order}"
        super().__init__(budget)

    @property
    def order(self) -> int:
        """The order of the divergence."""
        return self._order

    def _total_of(self, budget: Budget) -> Fraction:
        return renyi_of(budget, self._order)

    def _price_of(self, event: Event) -> Fraction | None:
        return renyi_cost(event, self._order)

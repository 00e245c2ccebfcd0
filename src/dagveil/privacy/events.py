"""Privacy events, what each costs under each accounting, and filters: running totals that refuse what would overspend.

A filter is for one run in one process and not safe for several threads; the ledger keeps runs apart. The proofs behind
the costs are docs/proofs/discrete-gaussian.md and exponential.md; why a total may be spent adaptively: pure-filter.md,
zcdp-filter.md and gaussian-filter.md.
"""

import os
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import BudgetError, BudgetExceededError, InvalidBudgetError
from dagveil.files import encode_json, read_fraction
from dagveil.privacy.budget import MOST_CHANGED_DRAWS, Budget, mu_squared_of, rho_of, round_up

# variance that the rounding step of docs/proofs/discrete-gaussian.md takes out of a discrete Gaussian
ROUNDING_VARIANCE: Final = 2
# below this variance Gaussian accounting refuses: scale the integers by a public factor first
SMALLEST_GAUSSIAN_VARIANCE: Final = 100
PI_ABOVE: Final = Fraction(355, 113)  # a fraction just above pi


class _Event(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    label: str

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "rate", "squared_sensitivity", "variance"):
            value = getattr(self, name, None)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | Fraction):
                raise InvalidBudgetError(f"{name} of an event must be an exact fraction, not {type(value).__name__}.")
            if value <= 0:
                raise InvalidBudgetError(f"{name} of an event must be above 0, not {value}.")
            force_setattr(self, name, Fraction(value))
        if getattr(self, "delta", 0) >= 1:
            raise InvalidBudgetError("delta of an event must be below 1; choose it far below 1/rows, e.g. 1e-7.")
        if getattr(self, "rate", 1) > 1:
            raise InvalidBudgetError("the sampling rate of an event must be at most 1; 1 keeps every record.")
        draws = getattr(self, "draws", 1)
        if not isinstance(draws, int) or draws < 1:
            raise InvalidBudgetError(f"an event has at least 1 draw, not {draws}.")
        changed = getattr(self, "changed", None)
        if changed is not None and changed < 0:
            raise InvalidBudgetError(f"the number of changed draws of an event is at least 0, not {changed}.")


class DiscreteGaussian(_Event, frozen=True, tag="discrete-gaussian"):
    """Integer Gaussian noise on every released integer.

    ``variance`` is the smallest variance V of all draws, and ``squared_sensitivity`` the largest possible
    Σ v_j² V / V_j, where v is the difference of the integer statistic on two neighbours and V_j the variance of draw j.
    With one common variance that is the squared L2 sensitivity. ``changed`` is the largest number of draws on whose
    statistic two neighbours can differ; all of them if it is not given.
    """

    draws: int
    squared_sensitivity: Fraction
    variance: Fraction
    changed: int | None = None

    @property
    def changed_draws(self) -> int:
        """Number of draws that a neighbour can change, at most."""
        return self.draws if self.changed is None else min(self.draws, self.changed)


class SubsampledGaussian(_Event, frozen=True, tag="subsampled-gaussian"):
    """One integer with integer Gaussian noise, computed on a fresh Poisson sub-sample; add/remove neighbours only.

    Every record is kept independently with probability ``rate``, and which ones were kept is never told. The integer
    moves by at most the root of ``squared_sensitivity`` when one record joins the sub-sample. A sub-sample that serves
    two releases is not fresh (docs/proofs/subsampled-gaussian.md).
    """

    rate: Fraction
    squared_sensitivity: Fraction
    variance: Fraction


class DiscreteLaplace(_Event, frozen=True, tag="discrete-laplace"):
    """Integer Laplace noise; ``epsilon`` is the L1 sensitivity over the scale, for all draws together."""

    draws: int
    epsilon: Fraction


class ExponentialChoice(_Event, frozen=True, tag="exponential-choice"):
    """Choices, one after the other, each with weights exp(epsilon · score / 2), scores of sensitivity 1."""

    epsilon: Fraction
    draws: int = 1


class SparseVectorRound(_Event, frozen=True, tag="sparse-vector-round"):
    """One round of the sparse vector technique, threshold and questions together."""

    epsilon: Fraction


class RandomisedResponse(_Event, frozen=True, tag="randomised-response"):
    """One randomised answer."""

    epsilon: Fraction


class SmoothLaplace(_Event, frozen=True, tag="smooth-laplace"):
    """One release that is (epsilon, delta)-private, such as a median with noise scaled to its smooth sensitivity."""

    epsilon: Fraction
    delta: Fraction


class Unbounded(_Event, frozen=True, tag="unbounded"):
    """A release with published noise that carries no guarantee; no accounting can charge it."""

    reason: str


Event: TypeAlias = (
    DiscreteGaussian
    | SubsampledGaussian
    | DiscreteLaplace
    | ExponentialChoice
    | SparseVectorRound
    | RandomisedResponse
    | SmoothLaplace
    | Unbounded
)


def pure_cost(event: Event) -> Fraction | None:
    """Epsilon of the event under pure differential privacy, or None."""
    if isinstance(event, DiscreteGaussian | SubsampledGaussian | SmoothLaplace | Unbounded):
        return None
    return event.epsilon * (event.draws if isinstance(event, ExponentialChoice) else 1)


def zcdp_cost(event: Event) -> Fraction | None:
    """Rho of the event under zero-concentrated differential privacy, or None."""
    if isinstance(event, SmoothLaplace | Unbounded):
        return None
    if isinstance(event, DiscreteGaussian | SubsampledGaussian):  # no rho is gained by sub-sampling, and none is lost
        return event.squared_sensitivity / (2 * event.variance)
    if isinstance(event, ExponentialChoice):  # its loss has range epsilon, not 2 epsilon
        return event.draws * event.epsilon**2 / 8
    return event.epsilon**2 / 2


def approximate_zcdp_cost(event: Event) -> Fraction | None:
    """Rho of the event when it does not fail (docs/proofs/zcdp-filter.md), or None."""
    return event.epsilon**2 / 2 if isinstance(event, SmoothLaplace) else zcdp_cost(event)


def failure_probability(event: Event) -> Fraction:
    """Return the probability, at most, with which the event fails; 0 for all events but (epsilon, delta) ones."""
    return event.delta if isinstance(event, SmoothLaplace) else Fraction(0)


def gaussian_cost(event: Event) -> Fraction | None:
    """Mu squared of the event under Gaussian differential privacy, or None."""
    if isinstance(event, SubsampledGaussian | SmoothLaplace | Unbounded):
        return None
    if isinstance(event, DiscreteGaussian):
        if event.variance < SMALLEST_GAUSSIAN_VARIANCE:
            return None
        return event.squared_sensitivity / (event.variance - ROUNDING_VARIANCE)
    if isinstance(event, ExponentialChoice):
        return event.draws * PI_ABOVE / 8 * event.epsilon**2
    return PI_ABOVE / 2 * event.epsilon**2


def encode_event(event: Event) -> bytes:
    """Write an event as JSON."""
    return encode_json(event)


def decode_event(content: bytes | str) -> Event:
    """Read an event from JSON."""
    event: Event = msgspec.json.decode(content, type=Event, dec_hook=read_fraction)
    return event


class HomeProcess:
    """The process in which an object was made; `check` refuses to work in any other."""

    def __init__(self) -> None:
        self._id = os.getpid()

    def check(self, what: str) -> None:
        """Refuse in another process than the one that made the object."""
        here = os.getpid()
        if here != self._id:
            raise BudgetError(
                f"{what} was made in process {self._id} and works only there, not in process {here}: a copy would "
                "repeat noise and spend what nobody adds up; nothing was drawn. Ask in the process that made it, or "
                "start a run of its own in each process."
            )


# part of delta that approximate zCDP accounting keeps for releases that may fail; the rest converts rho
FAILURE_SHARE: Final = Fraction(1, 2)


class Filter:
    """A total and a running sum; each accounting says what a total is and what an event costs."""

    name: str  # short name of the accounting
    _unit: str
    _total_of: Callable[[Budget], Fraction]  # all that a budget allows, in the unit of the accounting
    _price_of: Callable[[Event], Fraction | None]  # None if this accounting cannot charge the event

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._total = self._total_of(budget)
        self._spent = Fraction(0)
        self._home = HomeProcess()

    @property
    def budget(self) -> Budget:
        """The promised budget."""
        return self._budget

    @property
    def total(self) -> Fraction:
        """All that may be spent, in the unit of the accounting."""
        return self._total

    @property
    def spent(self) -> Fraction:
        """What has been charged."""
        return self._spent

    @property
    def remaining(self) -> Fraction:
        """What may still be charged."""
        return self._total - self._spent

    def cost(self, event: Event) -> Fraction:
        """Price of an event; BudgetError if this accounting cannot charge it."""
        price = self._price_of(event)
        if price is None:
            kind = type(event).__name__
            raise BudgetError(f"{self.name} cannot charge {event.label!r} ({kind}): {self._why_not(event)}")
        return price

    def charge(self, event: Event) -> None:
        """Take the price, or raise BudgetExceededError and change nothing."""
        self._home.check("a filter")
        price = self.cost(event)
        if price > self.remaining:
            raise BudgetExceededError(
                f"{event.label!r} costs {_shown(price)} {self._unit}, but {_shown(self.remaining)} of "
                f"{_shown(self._total)} is left under {self._budget.words}; nothing was drawn. "
                "Ask for less, add noise, or start a run with a larger budget."
            )
        self._spent += price

    def _why_not(self, event: Event) -> str:
        if isinstance(event, SmoothLaplace):
            return "it may fail with a probability delta, which only approximate zCDP accounting adds up."
        return "it carries no guarantee." if isinstance(event, Unbounded) else "use another accounting."


class PureFilter(Filter):
    """Sum of epsilons; delta is never used."""

    name = "pure accounting"
    _unit = "epsilon"

    _total_of = staticmethod(lambda budget: budget.epsilon)
    _price_of = staticmethod(pure_cost)

    def _why_not(self, event: Event) -> str:
        if isinstance(event, DiscreteGaussian | SubsampledGaussian):
            return "Gaussian noise needs delta above 0 and zCDP or Gaussian accounting."
        return super()._why_not(event)


class ZcdpFilter(Filter):
    """Sum of rho (zero-concentrated differential privacy)."""

    name = "zCDP accounting"
    _unit = "rho"
    _total_of: Callable[[Budget], Fraction] = staticmethod(rho_of)
    _price_of = staticmethod(zcdp_cost)


class ApproximateZcdpFilter(ZcdpFilter):
    """Sum of rho, and apart from it the sum of the probabilities with which releases may fail.

    FAILURE_SHARE of delta is for failures and the rest for the conversion of rho. `total`, `spent` and `remaining` are
    rho; a charge needs room in both sums.
    """

    name = "approximate zCDP accounting"
    _total_of = staticmethod(lambda budget: rho_of(Budget(budget.epsilon, budget.delta * (1 - FAILURE_SHARE))))
    _price_of = staticmethod(approximate_zcdp_cost)

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._failure = Fraction(0)

    @property
    def total_failure(self) -> Fraction:
        """All the probability of failure that may be spent."""
        return self._budget.delta * FAILURE_SHARE

    @property
    def remaining_failure(self) -> Fraction:
        """Probability of failure that may still be charged."""
        return self.total_failure - self._failure

    def charge(self, event: Event) -> None:
        """Take rho and the probability of failure, or raise BudgetExceededError and change neither."""
        failure = failure_probability(event)
        if failure > self.remaining_failure:
            self.cost(event)
            raise BudgetExceededError(
                f"{event.label!r} may fail with probability {_shown(failure)}, but {_shown(self.remaining_failure)} of "
                f"{_shown(self.total_failure)} is left under {self._budget.words}; nothing was drawn. "
                "Give each release a smaller delta, or start a run with a larger one."
            )
        super().charge(event)
        self._failure += failure


class GaussianFilter(Filter):
    """Sum of mu squared (Gaussian differential privacy): the most room for Gaussian noise."""

    name = "Gaussian accounting"
    _unit = "mu squared"
    _total_of = staticmethod(mu_squared_of)
    _price_of = staticmethod(gaussian_cost)

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._changed_draws = 0

    def charge(self, event: Event) -> None:
        """Take the price; also count changed draws, which the slack of the conversion covers up to a limit."""
        changed = event.changed_draws if isinstance(event, DiscreteGaussian) else 0
        if self._changed_draws + changed > MOST_CHANGED_DRAWS:
            self.cost(event)
            raise BudgetExceededError(
                f"{event.label!r} brings the draws that one record can change to {self._changed_draws + changed}, "
                f"above the {MOST_CHANGED_DRAWS} that Gaussian accounting covers; nothing was drawn. State `changed`, "
                "the number of draws that one record can really change, or use zCDP accounting."
            )
        super().charge(event)
        self._changed_draws += changed

    def _why_not(self, event: Event) -> str:
        if isinstance(event, DiscreteGaussian):
            return "its variance is below 100; multiply the integers by a public factor first."
        return super()._why_not(event)


def tightest_filter(budget: Budget, event_types: Iterable[type]) -> Filter:
    """Choose the accounting with the most room for many events of these types.

    Only Gaussian noise: Gaussian accounting. Delta 0: pure accounting. Releases that may fail: approximate zCDP.
    Anything else: zCDP. A run of a few pure events with a large epsilon can do better with PureFilter, and sub-sampled
    noise with RenyiFilter, whose order has to be planned.
    """
    kinds = set(event_types)
    if Unbounded in kinds:
        raise BudgetError("no accounting can charge a release that carries no guarantee; use its sound calibration.")
    if budget.delta == 0:
        if kinds & {DiscreteGaussian, SubsampledGaussian}:
            raise BudgetError("Gaussian noise needs delta above 0, but delta is 0; give a delta such as 1e-6.")
        if SmoothLaplace in kinds:
            raise BudgetError("a release that may fail needs delta above 0, but delta is 0; give a delta such as 1e-6.")
        return PureFilter(budget)
    if SmoothLaplace in kinds:
        return ApproximateZcdpFilter(budget)
    if kinds == {DiscreteGaussian}:
        return GaussianFilter(budget)
    return ZcdpFilter(budget)


def _shown(amount: Fraction) -> str:
    return round_up(amount, 6)

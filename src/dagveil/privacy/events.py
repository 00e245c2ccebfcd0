"""Privacy events: frozen records of what was released, and what each costs under each accounting.

The proofs behind the costs are docs/proofs/discrete-gaussian.md, gaussian-filter.md, zcdp-filter.md and exponential.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import InvalidBudgetError
from dagveil.files import encode_json, read_fraction

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

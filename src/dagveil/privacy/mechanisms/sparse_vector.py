"""The sparse vector technique: many threshold questions for the price of those answered "above" (sparse-vector.md)."""

from collections.abc import Callable
from fractions import Fraction

from dagveil.errors import BudgetError
from dagveil.privacy.events import Event, SparseVectorRound
from dagveil.privacy.noise.source import LaplaceBlocks, NoiseSource, representable_scale


class SparseVector:
    """Rounds of threshold questions; a round ends with the first "above".

    epsilon_threshold + epsilon_question is charged when a round **starts**, so the last round, which may never end, is
    paid for like the others. Where every round runs on a fresh sub-sample, `price` is what a round costs the whole
    table.
    """

    def __init__(
        self,
        epsilon_threshold: Fraction,
        epsilon_question: Fraction,
        noise: NoiseSource,
        charge: Callable[[Event], None],
        sensitivity: int = 1,
        label: str = "sparse vector",
        price: Fraction | None = None,
    ) -> None:
        if epsilon_threshold <= 0 or epsilon_question <= 0 or sensitivity < 1:
            raise BudgetError("the sparse vector technique needs epsilons above 0 and a sensitivity of at least 1.")
        self._event = SparseVectorRound(
            label, Fraction(epsilon_threshold) + epsilon_question if price is None else price
        )
        self._threshold_scale = representable_scale(sensitivity / Fraction(epsilon_threshold))
        self._question_scale = representable_scale(2 * sensitivity / Fraction(epsilon_question))
        self._noise = LaplaceBlocks(noise)
        self._charge = charge
        self._shift: int | None = None

    def is_above(self, value: int, threshold: int) -> bool:
        """Answer whether the value is above the public threshold, with noise on both; charges if a round starts."""
        if self._shift is None:
            self._charge(self._event)
            self._shift = self._noise.draw(self._threshold_scale)
        noisy = int(value) + self._noise.draw(self._question_scale)
        above = noisy >= threshold + self._shift
        if above:
            self._shift = None
        return above

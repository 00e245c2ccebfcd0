"""Which noise source to use, by name."""

import enum

from dagveil.errors import BudgetError
from dagveil.privacy.noise.exact import ExactNoise, SeededBits, SystemBits
from dagveil.privacy.noise.source import NoiseSource


class NoiseKind(enum.Enum):
    """The noise sources of the program."""

    EXACT = "exact"
    OPENDP = "opendp"
    SEEDED = "seeded"


DEFAULT_NOISE = NoiseKind.EXACT
"""Proved exact, read in an afternoon, and 70 times faster than OpenDP's draws (docs/decisions/0004)."""


def noise_source(kind: NoiseKind, seed: int | None = None) -> NoiseSource:
    """Make a noise source; only the seeded one takes a seed, and it needs one."""
    if kind is NoiseKind.SEEDED:
        if seed is None:
            raise BudgetError("seeded noise needs a seed; give one, or choose opendp or exact noise for a release.")
        return ExactNoise(SeededBits(seed))
    if seed is not None:
        raise BudgetError(f"{kind.value} noise takes no seed: a release must not be predictable. Leave the seed out.")
    if kind is NoiseKind.EXACT:
        return ExactNoise(SystemBits())
    from dagveil.privacy.noise.opendp import OpendpNoise

    return OpendpNoise()

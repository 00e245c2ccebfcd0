"""Releases of several tables become releases of all their rows: counts and moments add up, and so do noise variances.

Each site draws its own independent noise, so the variance of a sum is the sum of the variances, exactly, whatever the
law of the noise. That law is another one: a sum of Laplace draws is not Laplace. No test here uses more of the law than
its variance: what tests look at adds up many cells, which is close to normal, and a sum over sites is closer still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeVar

from msgspec.structs import asdict, replace

from dagveil.errors import EvidenceError
from dagveil.privacy.release import (
    NoisyCounts,
    NoisyFeatureMoments,
    NoisyInteractions,
    NoisyMagnitudes,
    NoisyMoments,
    Release,
)

OnLattice = TypeVar("OnLattice", NoisyCounts, NoisyInteractions, NoisyMagnitudes)
Matrix = TypeVar("Matrix", NoisyMoments, NoisyFeatureMoments)

_NOISE = ("lattice", "variance", "diagonal_variance", "values")
"""Fields that differ from site to site; all others say what was asked."""


def add_releases(sites: Sequence[Sequence[Release]]) -> tuple[Release, ...]:
    """Add the releases of several sites, question by question.

    Parameters
    ----------
    sites
        What each site released: the same questions in the same order. Noise may differ from site to site.

    Examples
    --------
    >>> north = NoisyCounts(("a",), (2,), 1, Fraction(3), (40, 60))
    >>> south = NoisyCounts(("a",), (2,), 4, Fraction(16), (20, 44))
    >>> both = add_releases([[north], [south]])[0]
    >>> both.counts.tolist(), both.count_variance
    ([45.0, 71.0], 4.0)
    """
    if not sites or len({len(releases) for releases in sites}) > 1:
        raise EvidenceError("the sites released different numbers of tables; all must follow the same plan")
    return tuple(_add(group) for group in zip(*sites, strict=True))


def _add(group: tuple[Release, ...]) -> Release:
    asked = [_question(release) for release in group]
    if any(other != asked[0] for other in asked[1:]):
        first = group[0]
        columns = (first.column,) if isinstance(first, NoisyMagnitudes) else first.columns
        raise EvidenceError(
            f"the sites answered different questions where one site has {', '.join(columns) or 'the number of rows'}; "
            "all must follow the same plan"
        )
    # all are of the first one's type: the types were compared
    if isinstance(group[0], NoisyMoments | NoisyFeatureMoments):
        return _add_matrices(group)  # type: ignore[type-var]
    return _add_on_lattice(group)  # type: ignore[type-var]


def _question(release: Release) -> tuple[type, dict[str, object]]:
    fields = asdict(release)
    return type(release), {name: value for name, value in fields.items() if name not in _NOISE}


def _add_on_lattice(group: Sequence[OnLattice]) -> OnLattice:
    """Bring all to the finest common lattice: values and deviations grow by a whole factor, so nothing is rounded."""
    lattice = math.lcm(*(release.lattice for release in group))
    factors = [lattice // release.lattice for release in group]
    return replace(
        group[0],
        lattice=lattice,
        variance=_dot((factor**2 for factor in factors), (release.variance for release in group)),
        values=_add_values(group, factors),
    )


def _add_matrices(group: Sequence[Matrix]) -> Matrix:
    ones = [1] * len(group)
    return replace(
        group[0],
        variance=_dot(ones, (release.variance for release in group)),
        diagonal_variance=_dot(ones, (release.diagonal_variance for release in group)),
        values=_add_values(group, ones),
    )


def _dot(factors: Iterable[int], variances: Iterable[Fraction]) -> Fraction:
    return sum((factor * variance for factor, variance in zip(factors, variances, strict=True)), Fraction(0))


def _add_values(group: Sequence[Release], factors: Sequence[int]) -> tuple[int, ...]:
    # Python's integers: a lattice times a sum over sites may leave 64 bits
    total = [factors[0] * value for value in group[0].values]
    for release, factor in zip(group[1:], factors[1:], strict=True):
        if len(release.values) != len(total):
            raise EvidenceError("this evidence is damaged: a release has lost values; ask the site for it again")
        total = [sum_ + factor * value for sum_, value in zip(total, release.values, strict=True)]
    return tuple(total)

"""What leaves the curator: noisy integers with everything public that is needed to read them."""

import math
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray


class _OnLattice(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]
    shape: tuple[int, ...]
    lattice: int
    variance: Fraction
    values: tuple[int, ...]


class NoisyCounts(_OnLattice, frozen=True, tag="counts"):
    """A table of counts on a public lattice: each value is lattice × count + integer noise.

    Columns name the axes; there are none for the number of rows itself, whose variance is 0 if it is public. Counts
    were multiplied by the public `lattice` before noise of the variance was added. Values are in row-major order.
    """

    @property
    def counts(self) -> NDArray[np.float64]:
        """The noisy counts as an array."""
        return np.array(self.values, dtype=np.float64).reshape(self.shape) / self.lattice

    @property
    def count_variance(self) -> float:
        """Variance of the noise in each count."""
        return float(self.variance) / self.lattice**2


class NoisyInteractions(_OnLattice, frozen=True, tag="interactions"):
    """The interaction of columns: what their table holds beyond its margins, on a public lattice.

    Each value is an entry of lattice × the table with every axis multiplied by r I − J, r being its levels and J all
    ones, plus integer noise of `variance`, in row-major order. Of one column that is r times its counts less the number
    of rows. One record moves it less than the table: the margins are taken out.
    """

    @property
    def counts(self) -> NDArray[np.float64]:
        """The centred counts; what noise adds outside of their subspace is still to be projected away."""
        return np.array(self.values, dtype=np.float64).reshape(self.shape) / (self.lattice * math.prod(self.shape))

    @property
    def interaction_variance(self) -> float:
        """Variance of the noise in each direction of the subspace, in counts."""
        return float(self.variance) / (self.lattice * math.prod(self.shape)) ** 2


class NoisyMoments(msgspec.Struct, frozen=True, tag="moments"):
    """Second moments of clipped rows in fixed point, upper triangle in row-major order, the constant column first.

    Off-diagonal values carry integer noise of `variance`, diagonal ones of `diagonal_variance`.
    """

    columns: tuple[str, ...]
    centers: tuple[float, ...]
    spreads: tuple[float, ...]
    radius_squared: float
    constant: float
    bits: int
    variance: Fraction
    diagonal_variance: Fraction
    values: tuple[int, ...]

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy moment matrix in the units of the scaled columns."""
        return _unfold(self.values, len(self.columns) + 1, self.bits)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise off the diagonal, in the units of `matrix`."""
        return math.sqrt(self.variance) / 4.0**self.bits


class NoisyFeatureMoments(msgspec.Struct, frozen=True, tag="feature-moments"):
    """Second moments of public features of clipped columns, in fixed point, in the order of `NoisyMoments`.

    Each column has `degree` features, which stand together, after the constant. A value x enters as (x − center)/reach,
    cut to [−1, 1], through the functions of `basis`.
    """

    columns: tuple[str, ...]
    centers: tuple[float, ...]
    reaches: tuple[float, ...]
    basis: str
    degree: int
    radius_squared: float
    constant: float
    bits: int
    variance: Fraction
    diagonal_variance: Fraction
    values: tuple[int, ...]

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy moment matrix in the units of the features."""
        return _unfold(self.values, len(self.columns) * self.degree + 1, self.bits)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise off the diagonal, in the units of `matrix`."""
        return math.sqrt(self.variance) / 4.0**self.bits


class NoisyMixedMoments(msgspec.Struct, frozen=True, tag="mixed-moments"):
    """Second moments of levels beside numbers, in fixed point, in the order of `NoisyMoments`.

    The constant comes first, then a coordinate for each level of each column with levels: `steps` times size − 1 at the
    record's level and minus `steps` elsewhere. Then come `degrees` features of each column of numbers: (x −
    center)/width itself, or Legendre polynomials of it, cut to [−1, 1]. Those of a `marked` column are 0 where it is
    missing, and a coordinate behind them says so.
    """

    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    numbers: tuple[str, ...]
    centers: tuple[float, ...]
    widths: tuple[float, ...]
    degrees: tuple[int, ...]
    radius_squared: float
    constant: float
    bits: int
    variance: Fraction
    diagonal_variance: Fraction
    values: tuple[int, ...]
    marked: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[int, ...]:
        """The number of coordinates of each column of numbers."""
        return tuple(degree + (name in self.marked) for name, degree in zip(self.numbers, self.degrees, strict=True))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in the order of their coordinates."""
        return (*self.levels, *self.numbers)

    @property
    def size(self) -> int:
        """The number of coordinates, the constant included."""
        return 1 + sum(self.sizes) + sum(self.features)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy moment matrix in the units of the coordinates."""
        return _unfold(self.values, self.size, self.bits)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise off the diagonal, in the units of `matrix`."""
        return math.sqrt(self.variance) / 4.0**self.bits


class NoisyPairMoments(msgspec.Struct, frozen=True, tag="pair-moments"):
    """Blocks of chosen pairs from a matrix of `NoisyMixedMoments`, of rows that were shrunk for these pairs.

    Values are those of each pair's block in turn, in row-major order, with integer noise of `variance` in each.
    """

    pairs: tuple[tuple[str, str], ...]
    shapes: tuple[tuple[int, int], ...]
    bits: int
    variance: Fraction
    values: tuple[int, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the pairs."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))

    @property
    def blocks(self) -> list[NDArray[np.float64]]:
        """The noisy blocks in the units of the coordinates."""
        flat = np.array(self.values, dtype=np.float64) / 4.0**self.bits
        ends = np.cumsum([a * b for a, b in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), self.shapes, strict=True)]

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in an entry, in the same units."""
        return math.sqrt(self.variance) / 4.0**self.bits


class NoisyMagnitudes(msgspec.Struct, frozen=True, tag="magnitudes"):
    """How large the values of a column are: counts by powers of two of the distance from a public centre."""

    column: str
    center: float
    first_exponent: int
    lattice: int
    variance: Fraction
    values: tuple[int, ...]

    @property
    def counts(self) -> NDArray[np.float64]:
        """The noisy counts, one per exponent."""
        return np.array(self.values, dtype=np.float64) / self.lattice


NoisyMatrix = NoisyMoments | NoisyFeatureMoments | NoisyMixedMoments
Release = NoisyCounts | NoisyInteractions | NoisyMatrix | NoisyPairMoments | NoisyMagnitudes


def _unfold(values: tuple[int, ...], size: int, bits: int) -> NDArray[np.float64]:
    """Return the symmetric matrix whose upper triangle these fixed-point values are."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = np.array(values, dtype=np.float64) / 4.0**bits
    return matrix + np.triu(matrix, 1).T

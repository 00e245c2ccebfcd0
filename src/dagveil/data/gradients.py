"""Sums of per-record gradients of the linear model, each clipped, in exact fixed point.

For a row z, scaled by public centres and spreads, the loss ½‖z − zW‖² has the gradient −z rᵀ with r = z − zW: an outer
product of length ‖z‖‖r‖. It is clipped record by record. The integers of a record are a function of that record alone.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.moments import ROWS_IN_REACH, MomentPlan, enforce_cap, scale_rows
from dagveil.errors import DataError, SchemaError

Block = tuple[slice, NDArray[np.float64]]  # which rows, and these rows in the shape (d, rows)
_BLOCK_ROWS: Final = 2**12
LARGEST_CAP: Final = 2**40  # with blocks of 2**12 rows every sum of products stays below 2**53, where float64 is exact
_MOST_BITS: Final = 20  # a millionth of a spread is finer than anything that noise leaves visible


@dataclass(frozen=True, slots=True)
class GradientPlan:
    """Which gradient is asked for; everything here is public."""

    rows: MomentPlan  # scales rows and shrinks them to a ball; its constant is not used
    weights: tuple[tuple[float, ...], ...]  # [i][j] is the effect of column i on column j
    clip: float  # the largest length of one record's gradient

    def __post_init__(self) -> None:
        d = len(self.rows.columns)
        if len(self.weights) != d or any(len(row) != d for row in self.weights):
            raise SchemaError(f"a gradient plan for {d} columns needs {d} rows of {d} weights")
        if not all(math.isfinite(weight) for row in self.weights for weight in row):
            raise SchemaError("the weights of a gradient plan must be finite")
        if not (math.isfinite(self.clip) and self.clip > 0.0) or self.cap() > LARGEST_CAP:
            raise SchemaError(f"the clip of a gradient plan is {self.clip:g}; choose a smaller positive number")

    def check_reach(self) -> None:
        """Refuse a plan that cannot add up as many rows as any release must."""
        if self.cap() * ROWS_IN_REACH > 2**62:
            raise SchemaError(f"the clip of {self.clip:g} is too large for exact sums of many rows; choose less")

    def check_rows(self, n_rows: int) -> None:
        """Refuse more rows than can be added up exactly."""
        if n_rows > 2**62 // self.cap():
            raise DataError(
                f"this gradient plan sums at most {2**62 // self.cap()} rows exactly and the table is larger"
            )

    def cap(self) -> int:
        """Give the largest length of one record's integer gradient, in units of 4**-bits."""
        return math.floor(Fraction(self.clip) * (1 << 2 * self.rows.bits))


def sum_gradients(
    columns: Sequence[NDArray[np.float64]],
    plan: GradientPlan,
    *,
    n_rows: int,
    multiplicities: NDArray[np.float64] | None = None,
    scaled: Iterable[Block] | None = None,
) -> NDArray[np.int64]:
    """Give the exact sum over rows of the integer outer products u vᵀ ≈ 4**bits · clip(z rᵀ), in the shape (d, d).

    The gradient of the loss is minus this. float64 is exact here as in `sum_outer_products`; with multiplicities, the
    caller has checked `weighs_exactly`. `scaled` are the same rows, if `scale_blocks` has scaled them before.
    """
    plan.check_rows(n_rows)
    weights = np.array(plan.weights)
    width = len(plan.rows.columns)
    total = np.zeros((width, width), dtype=np.int64)
    for block, rows in scaled if scaled is not None else scale_blocks(columns, plan.rows, n_rows):
        left, right = _clip_products(rows, rows - _products(rows, weights, plan.rows), plan)
        if multiplicities is not None:
            left *= multiplicities[block]
        total += (left @ right.T).astype(np.int64)
    return total


def weighs_exactly(largest: int, n_rows: int) -> bool:
    """Tell whether a sum over so many rows of integers up to `largest` is exact in float64 in any order."""
    return n_rows * largest <= 2**53


def sum_curvatures(
    columns: Sequence[NDArray[np.float64]],
    plan: MomentPlan,
    direction: NDArray[np.float64],
    cap: float,
    *,
    n_rows: int,
    multiplicities: NDArray[np.float64] | None = None,
    scaled: Iterable[Block] | None = None,
) -> int:
    """Give the sum over rows of ⌊2**bits · min(‖z P‖², cap)⌋ for a direction P: the curvature of the loss along it."""
    total = 0
    for block, rows in scaled if scaled is not None else scale_blocks(columns, plan, n_rows):
        squares = np.zeros(rows.shape[1])
        for column in _products(rows, direction, plan):
            squares += np.square(column)
        integers = np.floor(np.minimum(squares, cap) * 2.0**plan.bits).astype(np.int64)
        total += int((integers if multiplicities is None else integers * multiplicities[block].astype(np.int64)).sum())
    return total


def scale_blocks(columns: Sequence[NDArray[np.float64]], plan: MomentPlan, n_rows: int) -> Iterator[Block]:
    """Scale rows as a plan says, block by block; what a descent asks again and again may be kept."""
    for start in range(0, n_rows, _BLOCK_ROWS):
        rows = slice(start, min(start + _BLOCK_ROWS, n_rows))
        block = np.empty((len(columns), rows.stop - start))
        for position, column in enumerate(columns):
            block[position] = column[rows]
        yield rows, scale_rows(block, plan, block)


def _products(scaled: NDArray[np.float64], matrix: NDArray[np.float64], plan: MomentPlan) -> NDArray[np.float64]:
    """Return the columns of z P in fixed point: exact, so that a row's result does not depend on the rows beside it."""
    unit = 2.0 ** _product_bits(matrix, plan)
    products: NDArray[np.float64] = np.rint(matrix.T * unit) @ np.rint(scaled * unit)
    return products / unit**2


def _product_bits(matrix: NDArray[np.float64], plan: MomentPlan) -> int:
    """Return to how many bits z and P are rounded, so that no sum of products of their integers can reach 2**53.

    A product of matrices in float64 is then exact in whatever order it adds up: by Cauchy and Schwarz every partial sum
    is at most (2**b ‖z‖ + √d/2)(2**b ‖P_j‖ + √d/2), √d/2 being the most that rounding adds.
    """
    reach = math.sqrt(plan.radius_squared) * 1.001
    longest = float(np.linalg.norm(matrix, axis=0).max(initial=0.0)) * 1.001
    rounding = math.sqrt(len(matrix)) / 2.0
    for bits in range(_MOST_BITS, 0, -1):
        if (2.0**bits * reach + rounding) * (2.0**bits * longest + rounding) < 2.0**53:
            return bits
    raise SchemaError(f"weights of length {longest:g} are too large for an exact gradient; choose smaller ones")


def _clip_products(
    z: NDArray[np.float64], r: NDArray[np.float64], plan: GradientPlan
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return integers u, v with ‖u‖² and ‖v‖² at most the cap, whose outer product is the clipped one."""
    length_z, length_r = (np.sqrt(sum(map(np.square, part), np.zeros(part.shape[1]))) for part in (z, r))
    product = length_z * length_r
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # the product is split so that both factors have the same length, at most √clip
        half = np.sqrt(np.minimum(product, plan.clip))
        unit = 2.0**plan.rows.bits
        left, right = (unit * np.nan_to_num(half / length) for length in (length_z, length_r))
    u, v = np.trunc(z * left), np.trunc(r * right)
    for part in (u, v):
        enforce_cap(part, plan.cap())
    return u, v

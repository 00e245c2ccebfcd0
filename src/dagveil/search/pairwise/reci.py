"""Regression error: the effect is easier to predict from the cause than the cause from the effect (RECI).

Blöbaum and others, Cause-effect inference by comparing regression errors, 2018.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DEGREE: Final = 3
"""Of the polynomial, as in the study of local privacy."""


def compare_regression_errors(first: Floats, second: Floats, degree: int = DEGREE) -> float:
    """Return the error of first on second less that of second on first, both scaled to [0, 1].

    Examples
    --------
    >>> cause = np.linspace(0.0, 1.0, 200)
    >>> compare_regression_errors(cause, (cause - 0.5) ** 2) > 0
    True
    """
    x, y = scale_to_unit(first), scale_to_unit(second)
    return regression_error(y, x, degree) - regression_error(x, y, degree)


def regression_error(given: Floats, target: Floats, degree: int = DEGREE) -> float:
    """Return the mean square that a polynomial of the given column leaves of the target.

    Examples
    --------
    >>> round(regression_error(np.arange(9.0), np.arange(9.0) ** 3), 9)
    0.0
    """
    powers = np.vander(2.0 * given - 1.0, degree + 1)
    weights = np.linalg.lstsq(powers, target, rcond=None)[0]
    return float(np.mean((target - powers @ weights) ** 2))


def scale_to_unit(values: Floats) -> Floats:
    """Return values moved and stretched to [0, 1]; a constant becomes 0.

    Examples
    --------
    >>> scale_to_unit(np.array([2.0, 3.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros(len(values))

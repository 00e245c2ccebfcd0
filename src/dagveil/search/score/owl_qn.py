"""Quasi-Newton minimisation of a smooth function plus a multiple of the sum of absolute values.

Andrew and Gao, *Scalable Training of L1-Regularized Log-Linear Models*, 2007: each step stays in one orthant, where the
penalty is linear. The function may be infinite: the line search then steps back, which is what a barrier needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Smooth = Callable[[Floats], tuple[float, Floats]]

SUFFICIENT = 1e-4
"""Share of the promised decrease that a step must bring."""

MOST_HALVINGS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """Where a minimisation ended, and how often it evaluated the function."""

    point: Floats
    value: float
    evaluations: int


def minimise(
    smooth: Smooth,
    start: Floats,
    penalty: float,
    gradient_tolerance: float = 1e-5,
    value_tolerance: float = 1e-9,
    most_steps: int = 2000,
    memory: int = 10,
) -> Minimum:
    """Minimise smooth(x) + penalty · Σ|x|.

    Parameters
    ----------
    smooth
        Returns a value and a gradient; the value is infinite outside of the domain.
    start
        A point of the domain.
    penalty
        Not negative.
    gradient_tolerance
        Ends when no entry of the generalised gradient is larger.
    value_tolerance
        Ends when a step brings a smaller relative decrease.
    most_steps
        Ends after as many steps.
    memory
        Steps that the curvature is learned from.

    Examples
    --------
    >>> minimise(lambda x: (float((x - 3.0) @ (x - 3.0)), 2.0 * (x - 3.0)), np.zeros(2), 2.0).point.round(6).tolist()
    [2.0, 2.0]
    """
    x = start
    value, gradient = smooth(x)
    value += penalty * float(np.abs(x).sum())
    evaluations = 1
    pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)
    for _ in range(most_steps):
        slope = _generalised_gradient(x, gradient, penalty)
        if np.abs(slope).max(initial=0.0) <= gradient_tolerance:
            break
        direction = _bend(slope, pairs)
        direction[direction * slope >= 0.0] = 0.0
        orthant = np.where(x != 0.0, np.sign(x), -np.sign(slope))
        length = 1.0 if pairs else min(1.0, 1.0 / float(np.linalg.norm(slope)))
        for _ in range(MOST_HALVINGS):
            moved = x + length * direction
            moved[moved * orthant < 0.0] = 0.0
            new_value, new_gradient = smooth(moved)
            new_value += penalty * float(np.abs(moved).sum())
            evaluations += 1
            if new_value <= value + SUFFICIENT * float(slope @ (moved - x)):
                break
            length /= 2.0
        else:
            if not pairs:
                break
            pairs.clear()
            continue
        step, turn = moved - x, new_gradient - gradient
        curvature = float(step @ turn)
        if curvature > 1e-10 * float(turn @ turn):
            pairs.append((step, turn, curvature))
        gained = value - new_value
        x, value, gradient = moved, new_value, new_gradient
        if gained <= value_tolerance * max(abs(value), 1.0):
            break
    return Minimum(x, value, evaluations)


def _generalised_gradient(x: Floats, gradient: Floats, penalty: float) -> Floats:
    """Return the steepest ascent: at a zero entry the penalty takes up to its size from the gradient."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0.0)
    return np.where(x != 0.0, gradient + penalty * np.sign(x), at_zero)


def _bend(slope: Floats, pairs: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Return minus the inverse Hessian, learned from past steps, times the slope."""
    direction = -slope
    if not pairs:
        return direction
    shares = []
    for step, turn, curvature in reversed(pairs):
        share = float(step @ direction) / curvature
        direction -= share * turn
        shares.append(share)
    _, turn, curvature = pairs[-1]
    direction *= curvature / float(turn @ turn)
    for (step, turn, curvature), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(turn @ direction) / curvature) * step
    return direction

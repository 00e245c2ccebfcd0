"""What a parent is worth to a node, from released evidence alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.questions import Independence, Questions

Floats = NDArray[np.float64]


class LocalScore(Protocol):
    """A score of graphs that is a sum over nodes and the same for equivalent graphs."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""
        ...

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        """Return what a node with these parents is worth; 0 without parents."""
        ...

    def gains(self, questions: Questions) -> Floats:
        """Return what y adds as a parent of x, and x as a parent of y, beside the parents `given`."""
        ...

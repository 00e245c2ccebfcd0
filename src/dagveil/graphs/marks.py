"""The marks that an end of an edge can carry."""

from __future__ import annotations

import enum


class Mark(enum.Enum):
    """What is known about one end of an edge.

    Examples
    --------
    >>> Mark("arrow") is Mark.ARROW
    True
    """

    TAIL = "tail"
    """The node at this end is a cause of the other."""
    ARROW = "arrow"
    """The node at this end is not a cause of the other."""
    CIRCLE = "circle"
    """Either may be true."""

"""The process that may spend: a copy in a forked one would repeat its noise, and nothing would add up its charges."""

from __future__ import annotations

import os

from dagveil.errors import BudgetError


class HomeProcess:
    """The process in which an object was made; `check` refuses to work in any other.

    Examples
    --------
    >>> HomeProcess().check("a filter")
    """

    def __init__(self) -> None:
        self._id = os.getpid()

    def check(self, what: str) -> None:
        """Refuse in another process than the one that made the object."""
        here = os.getpid()
        if here != self._id:
            raise BudgetError(
                f"{what} was made in process {self._id} and works only there, not in process {here}: a copy would "
                "repeat noise and spend what nobody adds up; nothing was drawn. Ask in the process that made it, or "
                "start a run of its own in each process."
            )

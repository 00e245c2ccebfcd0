"""What a visitor is told when something is refused."""

from __future__ import annotations

from typing import Final

from dagveil.errors import (
    BudgetExceededError,
    DagveilError,
    InvalidBudgetError,
    LedgerError,
    MissingExtraError,
    UnreviewedSchemaError,
)

WITHHELD: Final = (
    "something unexpected went wrong ({kind}). Its message is withheld because it may hold data. What was charged "
    "stays charged: the history shows it."
)

_STATUS: Final[tuple[tuple[type[DagveilError], int, str], ...]] = (
    (UnreviewedSchemaError, 409, "unreviewed"),
    (BudgetExceededError, 409, "over budget"),
    (InvalidBudgetError, 422, "wrong amount"),
    (LedgerError, 409, "ledger"),
    (MissingExtraError, 501, "not installed"),
    (DagveilError, 422, "refused"),
)


class Refused(DagveilError):
    """A request that is answered with an error."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.error, self.detail = status, error, detail


def refuse(error: DagveilError) -> Refused:
    """Turn an error of the library into an answer; its words never hold a cell.

    Examples
    --------
    >>> refuse(BudgetExceededError("nothing is left")).status
    409
    """
    if isinstance(error, Refused):
        return error
    status, name = next((status, name) for kind, status, name in _STATUS if isinstance(error, kind))
    return Refused(status, name, str(error))

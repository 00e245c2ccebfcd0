"""Every exception that dagveil raises on purpose.

Messages say what, with which numbers, and what to do next; never a data value.
"""


class DagveilError(Exception):
    """Root of the tree: catch it to catch everything that dagveil raises on purpose."""


class SchemaError(DagveilError):
    """A schema that cannot be used."""


class UnreviewedSchemaError(SchemaError):
    """A drafted schema whose levels and bounds were read from the data and never reviewed."""


class DataError(DagveilError):
    """A file or frame that cannot be read as the schema says."""


class BudgetError(DagveilError):
    """Anything about budgets."""


class InvalidBudgetError(BudgetError, ValueError):
    """Epsilon or delta outside their range."""


class BudgetExceededError(BudgetError):
    """A charge that a filter or the ledger refused; nothing was drawn."""


class LedgerError(BudgetError):
    """The ledger cannot be opened, read or written."""


class GraphError(DagveilError, ValueError):
    """A graph that is not what it claims to be."""


class KnowledgeError(DagveilError, ValueError):
    """Background knowledge that contradicts itself or names unknown columns."""


class EvidenceError(DagveilError):
    """Evidence that cannot answer the question."""


class MethodError(DagveilError):
    """A method that does not exist or does not fit the data."""


class MissingExtraError(DagveilError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""


def describe_error(error: BaseException) -> str:
    """Return an error in words, with what became of its run."""
    said = str(error) if isinstance(error, DagveilError) else ""
    notes = " ".join(getattr(error, "__notes__", ()))
    return f"{said.rstrip('.')}. {notes}" if said and notes else said or notes

"""What the studio answers; the OpenAPI description is made from these."""

from typing import Any, Final

import msgspec

from dagveil import errors
from dagveil.local.collector import Refused


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What a data set has spent; amounts are rounded up, what is left is rounded down.

    What is left is what one more run may take; if runs are `composed`, that is no plain difference.
    """

    budget_epsilon: str | None
    budget_delta: str | None
    spent_epsilon: str
    spent_delta: str
    reserved_epsilon: str
    reserved_delta: str
    left_epsilon: str | None
    left_delta: str | None
    composed: bool
    spent_share: float | None
    runs: int
    unbounded: bool
    words: str


class DeclaredColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column as declared; of an unreviewed draft name and kind only."""

    name: str
    kind: str
    facts: dict[str, Any]


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """One data set; nothing here was computed from its rows."""

    id: str
    file: str
    has_rows: bool
    schema_file: str
    schema_state: str
    name: str | None
    unit: str | None
    protected: str | None
    relation: str | None
    nominal_rows: int | None
    public: bool
    columns: list[DeclaredColumn]
    ignored: list[str]
    doubts: dict[str, str]
    account: Account | None


class Datasets(msgspec.Struct, frozen=True, kw_only=True):
    """All data sets of the folder."""

    ledger: str
    analyst: str
    datasets: list[Dataset]


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from plain answers: a schema, and a look at budgets if it is reviewed. `page` shows it."""

    dataset: Dataset
    page: str


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to begin with, on the studio's machine."""

    folder: str
    files: list[str]


class MethodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One method."""

    name: str
    title: str
    data: str
    cost: str
    releases_evidence: bool


class Methods(msgspec.Struct, frozen=True, kw_only=True):
    """All methods."""

    methods: list[MethodFacts]


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a plan."""

    stage: str
    share: float
    tables: int
    numbers: int
    noise: float
    why: str


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one step is expected to take on this machine."""

    step: str
    time: str
    memory: str


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would ask and take, from public facts alone."""

    method: str
    epsilon: str
    delta: str
    questions: int | None
    noise: str
    stages: list[PlannedStage]
    steps: list[PlannedStep]
    words: list[str]


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has cost according to the ledger."""

    epsilon: str
    delta: str
    releases: list[str]
    words: str


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    id: str
    kind: str
    state: str
    dataset: str
    file: str
    name: str
    method: str
    epsilon: str
    delta: str
    redraws: int
    created: str
    started: str | None
    ended: str | None
    stage: str
    done: int
    total: int
    message: str
    cancelling: bool
    run: int | None
    charge: Charge
    has_result: bool
    has_evidence: bool
    has_exploration: bool
    can_finish: bool
    evidence_of: str | None


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs, newest first."""

    jobs: list[JobFacts]


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that is joined differently; signs are →, ←, — or nothing, in PAGs also ↔, o→, ←o, o–o, o— and —o."""

    first: str
    second: str
    here: str
    there: str


class ComparisonFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Two results side by side."""

    here: JobFacts
    there: JobFacts
    same: int
    shd: int
    skeleton_f1: float
    only_here: list[Differing]
    only_there: list[Differing]
    turned: list[Differing]
    marked: list[Differing]


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run as the ledger knows it."""

    run: int
    dataset: str
    started: str
    ended: str | None
    analyst: str
    method: str
    state: str
    epsilon: str
    delta: str
    releases: list[str]
    job: str | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Every run of the ledger, newest first."""

    runs: list[LedgerEntry]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was done."""

    error: str
    detail: str


WITHHELD: Final = (
    "something unexpected went wrong ({kind}). Its message is withheld because it may hold data. What was charged "
    "stays charged: the history shows it."
)

_STATUS: Final[tuple[tuple[type[errors.DagveilError], int, str], ...]] = (
    (errors.UnreviewedSchemaError, 409, "unreviewed"),
    (errors.BudgetExceededError, 409, "over budget"),
    (errors.InvalidBudgetError, 422, "wrong amount"),
    (errors.LedgerError, 409, "ledger"),
    (errors.MissingExtraError, 501, "not installed"),
    (errors.DagveilError, 422, "refused"),
)


def refuse(error: errors.DagveilError) -> Refused:
    """Turn an error of the library into an answer; its words never hold a cell."""
    if isinstance(error, Refused):
        return error
    status, name = next((status, name) for kind, status, name in _STATUS if isinstance(error, kind))
    return Refused(status, name, str(error))

"""What visitors ask for, with the bounds that every request must keep; the OpenAPI description is made from these."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dagveil.forecast.explore import EPSILONS
from dagveil.graphs.exchange.formats import Extension, Format
from dagveil.search.settings import SearchSettings
from dagveil.studio.folder import DATASET_ID, ENDINGS, JOB_ID, NAME

AMOUNT = r"^(?:[0-9]{1,9}(?:\.[0-9]{1,30})?(?:[eE]-?[0-9]{1,2})?|[0-9]{1,9}/[1-9][0-9]{0,8})$"
"""A decimal number or a fraction; short, so that nobody can ask for one with a billion digits."""

Amount = Annotated[str, Meta(pattern=AMOUNT, max_length=50, examples=["1", "0.5", "1e-6"])]
DatasetId = Annotated[str, Meta(pattern=DATASET_ID)]
JobId = Annotated[str, Meta(pattern=JOB_ID)]
Line = Annotated[str, Meta(min_length=1, max_length=200)]
Redraws = Annotated[int, Meta(ge=0, le=10_000)]


class Noise(enum.Enum):
    """Where noise comes from; seeds are for tests, and none of the studio's business."""

    OPENDP = "opendp"
    EXACT = "exact"


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a visitor asks; unknown fields are refused."""


class NewJob(Request, frozen=True, kw_only=True):
    """A run on the rows of a data set."""

    dataset: DatasetId
    epsilon: Amount
    delta: Amount = "1e-6"
    method: Line = "measure"
    redraws: Redraws = SearchSettings().redraws
    noise: Noise = Noise.OPENDP
    options: dict[Line, Line | list[Line]] = {}


class NewSearch(Request, frozen=True, kw_only=True):
    """Another search over evidence that was released and paid for.

    `knowledge` is TOML, as in a knowledge file; without it the schema's knowledge is taken.
    """

    settings: SearchSettings = SearchSettings()
    knowledge: Annotated[str, Meta(max_length=100_000)] | None = None


class NewExploration(Request, frozen=True, kw_only=True):
    """A look at what each budget would buy, on synthetic tables of the same schema."""

    epsilons: Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=8)] = EPSILONS
    delta: Amount = "1e-6"
    seconds: Annotated[int, Meta(ge=1, le=3600)] = 60


class NewBudget(Request, frozen=True, kw_only=True):
    """The lifetime budget of a data set."""

    epsilon: Amount
    delta: Amount = "1e-5"


class NewDraft(Request, frozen=True, kw_only=True):
    """A first schema, read from the data; `replace` overwrites one that exists."""

    name: Line | None = None
    replace: bool = False


class NewSchema(Request, frozen=True, kw_only=True):
    """What a person declares, each column as in a schema.toml.

    File layout and background knowledge of a schema that exists stay; send its text to change them. `ignore` names the
    columns that are left out; without it, those stay too.
    """

    name: Line
    columns: Annotated[dict[Line, dict[str, Any]], Meta(min_length=1)]
    unit: Line = "one row"
    relation: Annotated[str, Meta(pattern="^(add-remove|replace-one)$")] = "add-remove"
    nominal_rows: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    public: bool = False
    reviewed: bool = False
    ignore: list[Line] | None = None


class UploadQuery(Request, frozen=True, kw_only=True):
    """Name and ending of a table that is sent."""

    name: Annotated[str, Meta(pattern=NAME)]
    ending: Annotated[str, Meta(pattern=f"^({'|'.join(ENDINGS)})$".replace(".", "[.]"))] = ".csv"


class PlanQuery(Request, frozen=True, kw_only=True):
    """The run that a plan is wanted for."""

    epsilon: Amount
    delta: Amount = "1e-6"
    method: Line = "measure"
    redraws: Redraws = SearchSettings().redraws


class ExportQuery(Request, frozen=True, kw_only=True):
    """The format of another program, and what becomes of edges without a direction."""

    to: Format
    extend: Extension = Extension.REFUSE


class ComparisonQuery(Request, frozen=True, kw_only=True):
    """Two jobs whose results are compared."""

    here: JobId
    there: JobId

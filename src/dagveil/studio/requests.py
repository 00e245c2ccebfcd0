"""What visitors ask for, with the bounds that every request must keep, and how it is read: never more than it may be.

The OpenAPI description is made from these.
"""

from __future__ import annotations

import asyncio
import enum
import os
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from dagveil.forecast.answers import ColumnAnswer
from dagveil.forecast.explore import EPSILONS
from dagveil.graphs.exchange.formats import Extension, Format
from dagveil.local.collector import Refused, read_body, read_pieces
from dagveil.search.settings import SearchSettings
from dagveil.studio.folder import DATASET_ID, ENDINGS, JOB_ID, NAME

if TYPE_CHECKING:
    from starlette.requests import Request

# a decimal number or a fraction; short, so that nobody can ask for one with a billion digits
AMOUNT = r"^(?:[0-9]{1,9}(?:\.[0-9]{1,30})?(?:[eE]-?[0-9]{1,2})?|[0-9]{1,9}/[1-9][0-9]{0,8})$"
Amount = Annotated[str, Meta(pattern=AMOUNT, max_length=50, examples=["1", "0.5", "1e-6"])]
MOST_SYNTHETIC: Final = 100_000  # rows that are drawn for one request
DatasetId = Annotated[str, Meta(pattern=DATASET_ID)]
JobId = Annotated[str, Meta(pattern=JOB_ID)]
Line = Annotated[str, Meta(min_length=1, max_length=200)]
Redraws = Annotated[int, Meta(ge=0, le=10_000)]


class Noise(enum.Enum):
    """Where noise comes from; seeds are for tests, and none of the studio's business."""

    OPENDP = "opendp"
    EXACT = "exact"


class RequestData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a visitor asks; unknown fields are refused."""


class NewJob(RequestData, frozen=True, kw_only=True):
    """A run on the rows of a data set."""

    dataset: DatasetId
    epsilon: Amount
    delta: Amount = "1e-6"
    method: Line = "measure"
    redraws: Redraws = SearchSettings().redraws
    noise: Noise = Noise.EXACT
    options: dict[Line, Line | list[Line]] = {}


class NewSearch(RequestData, frozen=True, kw_only=True):
    """Another search over evidence that was released and paid for.

    `knowledge` is TOML, as in a knowledge file; without it the schema's knowledge is taken.
    """

    settings: SearchSettings = SearchSettings()
    knowledge: Annotated[str, Meta(max_length=100_000)] | None = None


class NewExploration(RequestData, frozen=True, kw_only=True):
    """A look at what each budget would buy, on synthetic tables of the same schema."""

    epsilons: Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=8)] = EPSILONS
    delta: Amount = "1e-6"
    seconds: Annotated[int, Meta(ge=1, le=3600)] = 60


class NewBudget(RequestData, frozen=True, kw_only=True):
    """The lifetime budget of a data set."""

    epsilon: Amount
    delta: Amount = "1e-5"


class NewDraft(RequestData, frozen=True, kw_only=True):
    """A first schema, read from the data; `replace` overwrites one that exists."""

    name: Line | None = None
    replace: bool = False


class NewSchema(RequestData, frozen=True, kw_only=True):
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


class NewStart(RequestData, frozen=True, kw_only=True):
    """Plain answers about a table: of the folder, or one that is still to come. `comma` says that numbers have one."""

    table: DatasetId | None = None
    dataset: Line
    unit: Line = "one row"
    rows: Annotated[int, Meta(ge=1, le=10**12)]
    fixed: bool = False
    reviewed: bool = False
    comma: bool = False
    columns: Annotated[dict[Line, ColumnAnswer], Meta(min_length=1)]
    person: Line | None = None


class NewProject(RequestData, frozen=True, kw_only=True):
    """The budget of the run that a folder to begin with is for."""

    epsilon: Amount


class NewFacts(RequestData, frozen=True, kw_only=True):
    """What only people know about the releases of a data set, by the names of the registry's fields."""

    facts: dict[Line, Annotated[str, Meta(max_length=10_000)]]


class StartQuery(RequestData, frozen=True, kw_only=True):
    """What the questions are about: a data set of the folder, or names of columns with commas."""

    dataset: Annotated[str, Meta(pattern=f"{DATASET_ID}|^$")] = ""
    columns: Annotated[str, Meta(max_length=20_000)] = ""


class TablesQuery(RequestData, frozen=True, kw_only=True):
    """One or two columns whose counts are wanted; without any, each column by itself."""

    first: Annotated[str, Meta(max_length=200)] = ""
    second: Annotated[str, Meta(max_length=200)] = ""


class SyntheticQuery(RequestData, frozen=True, kw_only=True):
    """How many synthetic rows are drawn, and with which seed."""

    rows: Annotated[int, Meta(ge=1, le=MOST_SYNTHETIC)] = 10_000
    seed: Annotated[int, Meta(ge=0, le=10**9)] = 1


class UploadQuery(RequestData, frozen=True, kw_only=True):
    """Name and ending of a table that is sent."""

    name: Annotated[str, Meta(pattern=NAME)]
    ending: Annotated[str, Meta(pattern=f"^({'|'.join(ENDINGS)})$".replace(".", "[.]"))] = ".csv"


class PlanQuery(RequestData, frozen=True, kw_only=True):
    """The run that a plan is wanted for."""

    epsilon: Amount
    delta: Amount = "1e-6"
    method: Line = "measure"
    redraws: Redraws = SearchSettings().redraws


class ExportQuery(RequestData, frozen=True, kw_only=True):
    """The format of another program, and what becomes of edges without a direction."""

    to: Format
    extend: Extension = Extension.REFUSE


class EffectQuery(RequestData, frozen=True, kw_only=True):
    """A cause and an effect; columns to adjust for, with commas, if the graph is not to choose them."""

    cause: Line
    effect: Line
    adjust: Annotated[str, Meta(max_length=2000)] = ""


class ComparisonQuery(RequestData, frozen=True, kw_only=True):
    """Two jobs whose results are compared."""

    here: JobId
    there: JobId


def split_names(text: str) -> list[str]:
    """Return names that stand in a line with commas, each once."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


MOST_BYTES: Final = 4 * 2**20  # of a body that is not an upload
MOST_UPLOADED: Final = 2 * 2**30  # of an uploaded table
SECONDS_FOR_BODY: Final = 30.0

Asked = TypeVar("Asked")


async def read_json(request: Request, kind: type[Asked]) -> Asked:
    """Read a JSON body."""
    check_type(request, "application/json")
    try:
        return msgspec.json.decode(await read_body(request, MOST_BYTES, SECONDS_FOR_BODY), type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong layout", str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refused(400, "malformed", "the body is not JSON in UTF-8") from None


async def read_text(request: Request) -> str:
    """Read a body of text."""
    check_type(request, "text/plain")
    try:
        return (await read_body(request, MOST_BYTES, SECONDS_FOR_BODY)).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(400, "malformed", "the body is not encoded as UTF-8") from None


def read_query(request: Request, kind: type[Asked]) -> Asked:
    """Read the question mark's part of an address."""
    pairs = request.query_params.multi_items()
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused(422, "wrong query", "a query parameter is repeated")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong query", str(error)) from None


def check_type(request: Request, wanted: str) -> None:
    """Refuse a body of another type: forms of other sites cannot send these."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
        raise Refused(415, "wrong type", f"send Content-Type: {wanted}")


async def store_body(request: Request, handle: int, most: int) -> None:
    """Write a large body to a file piece by piece; each piece has to arrive in time."""
    pieces = read_pieces(request, most)
    with os.fdopen(handle, "wb", closefd=False) as file:
        while True:
            try:
                async with asyncio.timeout(SECONDS_FOR_BODY):
                    piece = await anext(pieces, None)
            except TimeoutError:
                raise Refused(408, "too slow", f"nothing arrived for {SECONDS_FOR_BODY:g} seconds") from None
            if piece is None:
                return
            await asyncio.to_thread(file.write, piece)

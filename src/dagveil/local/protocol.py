"""The protocol of a collection: one public file that says how every record is randomised, and what that promises.

It holds the whole-number weights of the channels, not only the options they came from, so every device draws with
exactly the same probabilities. What it promises is computed again from these weights whenever it is read.
"""

from __future__ import annotations

import enum
import hashlib
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec

from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, DataError
from dagveil.local.channel import Channel
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.figures import Figures, column_figures, record_figures
from dagveil.local.record import CombinedResponse, ComponentWise, Norm, RecordChannel, Split
from dagveil.local.weights import MatrixWeights, ResponseWeights
from dagveil.privacy.document import Document

PROTOCOL_VERSION: Final = 1
"""Version of the JSON; readers refuse newer ones."""


class Mechanism(enum.Enum):
    """How values become reports."""

    RESPONSE = "response"
    """Randomised response: every other value is equally likely."""

    GEOMETRIC = "geometric"
    """The bounded geometric mechanism: near values are likelier than far ones."""


class Form(enum.Enum):
    """What a channel is applied to."""

    COMPONENT_WISE = "component-wise"
    """Each column by itself, with independent noise."""

    COMBINED = "combined"
    """The product of all columns at once."""


class PlannedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column: its labels in the order of their codes, its weights if it has a channel of its own, its figures."""

    name: str
    labels: tuple[str, ...]
    weights: ResponseWeights | MatrixWeights | None
    figures: Figures


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """How records are randomised; public.

    Attributes
    ----------
    schema, schema_digest
        What is public about the records, and its SHA-256.
    mechanism, form, split, norm
        As asked for; columns of a combined channel split nothing.
    truth_weight
        Of combined randomised response: probability of the true record in units of 2⁻⁶².
    truth_probability
        Of the combined geometric mechanism.
    columns
        Labels, weights and figures.
    record
        Figures of a whole record.
    """

    format: Literal["dagveil-protocol"]
    version: int
    software: str
    schema: Schema
    schema_digest: str
    mechanism: Mechanism
    form: Form
    split: Split | None
    norm: Norm
    truth_weight: int | None
    truth_probability: float | None
    columns: tuple[PlannedColumn, ...]
    record: Figures

    def __post_init__(self) -> None:
        if self.schema.digest() != self.schema_digest:
            raise DataError("the schema in this protocol is not the one that its digest names; plan it again")
        declared = tuple((name, column.labels) for name, column in self.schema.columns.items())
        if declared != tuple((column.name, column.labels) for column in self.columns):
            raise DataError("the columns of this protocol are not those of its schema; plan it again")
        for column, figures in zip(self.columns, self.column_figures, strict=True):
            column.figures.check(figures, f"column {column.name!r}")
        self.record.check(self.record_figures, "a record")

    @cached_property
    def channel(self) -> RecordChannel:
        """The channel, from the weights."""
        try:
            if self.form is Form.COMPONENT_WISE:
                return ComponentWise(tuple(self._read_column(column) for column in self.columns))
            if self.mechanism is Mechanism.RESPONSE and self.truth_weight is not None:
                self._check_bare(self.truth_probability)
                return CombinedResponse(self.levels, self.truth_weight)
            if self.mechanism is Mechanism.GEOMETRIC and self.truth_probability is not None:
                self._check_bare(self.truth_weight)
                return CombinedGeometric(self.levels, self.truth_probability, self.norm)
        except BudgetError as error:
            raise DataError(f"the weights of this protocol are no channel: {error}") from None
        raise DataError("this protocol lacks the weights of its channel; plan it again")

    @cached_property
    def column_figures(self) -> tuple[Figures, ...]:
        """What each column promises, computed from the weights."""
        if not isinstance(self.channel, ComponentWise):
            return (Figures(None, None, None),) * len(self.columns)
        return tuple(
            column_figures(channel, column.weights)
            for channel, column in zip(self.channel.channels, self.columns, strict=True)
            if column.weights is not None
        )

    @cached_property
    def record_figures(self) -> Figures:
        """What a whole record is promised, computed from the weights."""
        try:
            return record_figures(self.channel, self.norm, self.column_figures)
        except BudgetError as error:
            raise DataError(f"what this protocol promises cannot be computed: {error}") from None

    def _read_column(self, column: PlannedColumn) -> Channel:
        kind = ResponseWeights if self.mechanism is Mechanism.RESPONSE else MatrixWeights
        if not isinstance(column.weights, kind) or (self.truth_weight, self.truth_probability) != (None, None):
            raise BudgetError(f"column {column.name!r} needs weights of {self.mechanism.value} noise, and nothing else")
        try:
            return column.weights.read(len(column.labels))
        except BudgetError as error:
            raise BudgetError(f"column {column.name!r}: {error}") from None

    def _check_bare(self, other: float | None) -> None:
        """Refuse a combined channel that comes with weights of another one: nobody could tell which holds."""
        if other is not None or any(column.weights is not None for column in self.columns):
            raise BudgetError(f"combined {self.mechanism.value} noise has one weight, and its columns have none")

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(len(column.labels) for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def epsilon(self) -> float:
        """The exact ε of one report, rounded up: the larger of what is stated and what this machine computes."""
        return max(self.record.epsilon or 0.0, self.record_figures.epsilon or 0.0)

    def to_json(self) -> bytes:
        """Write the protocol as JSON: the same bytes for the same protocol; columns keep their order, as codes do."""
        return msgspec.json.encode(self)

    def digest(self) -> str:
        """Return the SHA-256 of the protocol, by which reports name it; the program's version is no part of it."""
        return hashlib.sha256(msgspec.structs.replace(self, software="").to_json()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the protocol to a file."""
        Path(path).write_bytes(msgspec.json.format(self.to_json(), indent=1) + b"\n")


_DOCUMENT = Document(
    Protocol,
    "dagveil-protocol",
    PROTOCOL_VERSION,
    "a protocol",
    "a protocol",
    "`dagveil local plan`",
    "plan it again",
)


def protocol_from_json(content: bytes | str) -> Protocol:
    """Read a protocol, and compute again what it promises."""
    return _DOCUMENT.read(content)


def load_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a file."""
    return protocol_from_json(_DOCUMENT.load(path))

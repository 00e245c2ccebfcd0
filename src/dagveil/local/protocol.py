"""The protocol of a collection: one public file that says how every record is randomised, and what that promises.

It holds the whole-number weights of the channels, not only the options they came from, so every device draws with
exactly the same probabilities. What it promises is computed again from these weights whenever it is read.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np

from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, DataError
from dagveil.local.channel import WHOLE, Channel
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.record import CombinedResponse, ComponentWise, Norm, RecordChannel, Split

PROTOCOL_VERSION: Final = 1
"""Version of the JSON; readers refuse newer ones."""

TOLERANCE: Final = 1e-9
"""By how much a stated figure may differ from the one computed here: logarithms differ a little between machines."""


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


class ResponseWeights(msgspec.Struct, frozen=True, tag_field="kind", tag="response", forbid_unknown_fields=True):
    """Randomised response of one column, in units of 2⁻⁵³."""

    truth: int
    other: int


class MatrixWeights(msgspec.Struct, frozen=True, tag_field="kind", tag="matrix", forbid_unknown_fields=True):
    """Any channel of one column, in units of 2⁻⁵³: the row is the truth, the column the report."""

    rows: tuple[tuple[int, ...], ...]


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a channel promises.

    Attributes
    ----------
    epsilon
        The exact ε of local privacy, rounded up. A column of a combined channel has none of its own.
    success
        How often an attacker who takes every value for equally likely guesses right, at best.
    metric
        The exact parameter of metric privacy, rounded up; None where too many pairs would have to be compared.
    published
        What the publication takes for that parameter, for geometric noise.
    """

    epsilon: float | None
    success: float | None
    metric: float | None
    published: float | None = None

    @property
    def ratio(self) -> float | None:
        """By which factor the publication understates the metric parameter."""
        return self.metric / self.published if self.metric and self.published else None


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
        stated = self.record.epsilon
        if stated is None or self.record.success is None:
            raise DataError("this protocol does not say what it promises; plan it again")
        if not self._computed <= stated * (1.0 + TOLERANCE) + TOLERANCE:
            raise DataError(
                f"this protocol promises epsilon {stated:.6g} for a record, but its weights give {self._computed:.6g}; "
                "do not use it, ask for the original file"
            )

    @cached_property
    def channel(self) -> RecordChannel:
        """The channel, from the weights."""
        levels = self.levels
        try:
            if self.form is Form.COMPONENT_WISE:
                return ComponentWise(tuple(_read_channel(column) for column in self.columns))
            if self.mechanism is Mechanism.RESPONSE and self.truth_weight is not None:
                if not 1 <= self.truth_weight < 2**62:
                    raise BudgetError("the weight of the truth must lie between 1 and 2**62")
                return CombinedResponse(levels, self.truth_weight)
            if self.mechanism is Mechanism.GEOMETRIC and self.truth_probability is not None:
                return CombinedGeometric(levels, self.truth_probability, self.norm)
        except BudgetError as error:
            raise DataError(f"the weights of this protocol are no channel: {error}") from None
        raise DataError("this protocol lacks the weights of its channel; plan it again")

    @cached_property
    def _computed(self) -> float:
        return self.channel.epsilon()

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
        return max(self.record.epsilon or 0.0, self._computed)

    def to_json(self) -> bytes:
        """Write the protocol as JSON: the same bytes for the same protocol; columns keep their order, as codes do."""
        return msgspec.json.encode(self)

    def digest(self) -> str:
        """Return the SHA-256 of the protocol, by which reports name it; the program's version is no part of it."""
        return hashlib.sha256(msgspec.structs.replace(self, software="").to_json()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the protocol to a file."""
        Path(path).write_bytes(msgspec.json.format(self.to_json(), indent=1) + b"\n")


def protocol_from_json(content: bytes | str) -> Protocol:
    """Read a protocol, and compute again what it promises."""
    try:
        head = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DataError("this is not JSON; give a protocol that `dagveil local plan` wrote") from None
    if not isinstance(head, dict) or head.get("format") != "dagveil-protocol":
        raise DataError("this JSON is no protocol; give one that `dagveil local plan` wrote")
    if head.get("version") != PROTOCOL_VERSION:
        raise DataError(f"this program reads protocols of version {PROTOCOL_VERSION}; use the dagveil that wrote it")
    try:
        return msgspec.json.decode(content, type=Protocol)
    except msgspec.ValidationError as error:
        raise DataError(f"this protocol is damaged: {error}; plan it again") from None


def load_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}; give a protocol that `dagveil local plan` wrote"
        ) from None
    return protocol_from_json(content)


def write_weights(channel: Channel, mechanism: Mechanism) -> ResponseWeights | MatrixWeights:
    """Write a channel's weights, briefly for randomised response."""
    if mechanism is Mechanism.RESPONSE:
        other = int(channel.weights[0, 1]) if channel.n_values > 1 else 0
        return ResponseWeights(int(channel.weights[0, 0]), other)
    return MatrixWeights(tuple(tuple(row) for row in channel.weights.tolist()))


def _read_channel(column: PlannedColumn) -> Channel:
    k, weights = len(column.labels), column.weights
    if isinstance(weights, MatrixWeights):
        if len(weights.rows) != k or any(len(row) != k for row in weights.rows):
            raise BudgetError(f"column {column.name!r} needs {k} × {k} weights")
        _check_range(w for row in weights.rows for w in row)
        return Channel(np.array(weights.rows, dtype=np.int64))
    if weights is None:
        raise BudgetError(f"column {column.name!r} has none")
    _check_range((weights.truth, weights.other))
    matrix = np.full((k, k), weights.other, dtype=np.int64)
    np.fill_diagonal(matrix, weights.truth)
    return Channel(matrix)


def _check_range(weights: Iterable[int]) -> None:
    if not all(0 <= weight <= WHOLE for weight in weights):
        raise BudgetError("weights lie between 0 and 2**53")

"""The protocol of a collection: one public file that says how every record is randomised, and what that promises.

It holds the whole-number weights of the channels, not only the options they came from, so every device draws with
exactly the same probabilities. What it promises is computed again from these weights whenever it is read.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np

from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, DataError
from dagveil.files import Document
from dagveil.local.channel import WHOLE, Channel, Floats, bounded_geometric, published_parameter
from dagveil.local.combined_geometric import MOST_WRITTEN_OUT, CombinedGeometric
from dagveil.local.record import CombinedResponse, ComponentWise, Norm, RecordChannel, Split

# by how much a probability may differ from the mechanism's: exponentials differ a little between machines
SAME: Final = 1e-9
PROTOCOL_VERSION: Final = 1  # version of the JSON; readers refuse newer ones
MOST_PRIORS: Final = 2**22  # largest product of columns whose records' prior is written out
# by which share a stated figure may be below the one computed here: logarithms differ a little between machines
TOLERANCE: Final = 1e-9
_WORDS: Final = {
    "epsilon": "epsilon",
    "success": "that an attacker guesses right with probability",
    "metric": "the metric parameter",
    "published": "the published metric parameter",
}


class ResponseWeights(msgspec.Struct, frozen=True, tag_field="kind", tag="response", forbid_unknown_fields=True):
    """Randomised response of one column, in units of 2⁻⁵³."""

    truth: int
    other: int

    @classmethod
    def of(cls, channel: Channel) -> ResponseWeights:
        """Write the weights of randomised response."""
        other = int(channel.weights[0, 1]) if channel.n_values > 1 else 0
        return cls(int(channel.weights[0, 0]), other)

    def read(self, n_values: int) -> Channel:
        """Return the channel; refuse weights that are none, or that tell the truth less often than another value."""
        _check_range((self.truth, self.other))
        if self.truth < self.other:
            raise BudgetError("the truth is rarer than any other value, so this is no randomised response")
        matrix = np.full((n_values, n_values), self.other, dtype=np.int64)
        np.fill_diagonal(matrix, self.truth)
        return Channel(matrix)


class MatrixWeights(msgspec.Struct, frozen=True, tag_field="kind", tag="matrix", forbid_unknown_fields=True):
    """The bounded geometric mechanism of one column, in units of 2⁻⁵³: the row is the truth, the column the report."""

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, channel: Channel) -> MatrixWeights:
        """Write all weights of a channel."""
        return cls(tuple(tuple(row) for row in channel.weights.tolist()))

    def read(self, n_values: int) -> Channel:
        """Return the channel; refuse weights that are none, or that are not those of the mechanism."""
        if len(self.rows) != n_values or any(len(row) != n_values for row in self.rows):
            raise BudgetError(f"a column of {n_values} levels needs {n_values} × {n_values} weights")
        _check_range(weight for row in self.rows for weight in row)
        channel = Channel(np.array(self.rows, dtype=np.int64))
        truth = float(np.median(np.diag(channel.matrix)))
        if n_values > 1 and np.abs(channel.matrix - bounded_geometric(n_values, truth).matrix).max() > SAME:
            raise BudgetError("the probabilities are not those of the bounded geometric mechanism")
        return channel


def _check_range(weights: Iterable[int]) -> None:
    if not all(0 <= weight <= WHOLE for weight in weights):
        raise BudgetError("weights lie between 0 and 2**53")


class Mechanism(enum.Enum):
    """How values become reports."""

    RESPONSE = "response"  # randomised response: every other value is equally likely
    GEOMETRIC = "geometric"  # the bounded geometric mechanism: near values are likelier than far ones


class Form(enum.Enum):
    """What a channel is applied to."""

    COMPONENT_WISE = "component-wise"  # each column by itself, with independent noise
    COMBINED = "combined"  # the product of all columns at once


class PlannedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column: its labels in the order of their codes, its weights if it has a channel of its own, its figures."""

    name: str
    labels: tuple[str, ...]
    weights: ResponseWeights | MatrixWeights | None
    figures: Figures


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """How records are randomised; public."""

    format: Literal["dagveil-protocol"]
    version: int
    software: str
    schema: Schema  # what is public about the records, and its SHA-256
    schema_digest: str
    mechanism: Mechanism  # as asked for; columns of a combined channel split nothing
    form: Form
    split: Split | None
    norm: Norm
    truth_weight: int | None  # of combined randomised response: probability of the true record in units of 2⁻⁶²
    truth_probability: float | None  # of the combined geometric mechanism
    columns: tuple[PlannedColumn, ...]  # labels, weights and figures
    record: Figures  # figures of a whole record

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
        pairs = zip(self.channel.channels, self.columns, strict=True)
        return tuple(column_figures(channel, one.weights) for channel, one in pairs if one.weights is not None)

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

    def find_places(self, names: Iterable[str]) -> list[int]:
        """Return the places of some columns, or say which one is unknown."""
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise DataError(f"the protocol has no column {unknown[0]!r}; it has {', '.join(self.names)}")
        return [self.names.index(name) for name in names]

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
    Protocol, "dagveil-protocol", PROTOCOL_VERSION, "a protocol", "a protocol", "`dagveil local plan`", "plan it again"
)


def protocol_from_json(content: bytes | str) -> Protocol:
    """Read a protocol, and compute again what it promises."""
    return _DOCUMENT.read(content)


def load_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a file."""
    return protocol_from_json(_DOCUMENT.load(path))


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a channel promises."""

    # the exact ε of local privacy, rounded up. A column of a combined channel has none of its own.
    epsilon: float | None
    success: float | None  # how often an attacker who takes every value for equally likely guesses right, at best
    # the exact parameter of metric privacy, rounded up; None where too many pairs would have to be compared
    metric: float | None
    published: float | None = None  # what the publication takes for that parameter, for geometric noise

    @property
    def ratio(self) -> float | None:
        """By which factor the publication understates the metric parameter."""
        return self.metric / self.published if self.metric and self.published else None

    def check(self, computed: Figures, what: str) -> None:
        """Refuse figures that promise more than those computed from the weights."""
        for name, word in _WORDS.items():
            said, found = getattr(self, name), getattr(computed, name)
            if said is None and found is None:
                continue
            if said is None:
                raise DataError(f"this protocol does not say what it promises for {what}: {name}; plan it again")
            if found is None:
                raise DataError(f"this protocol promises {word} {said:.6g} for {what}, which has none; plan it again")
            # nothing on top of a success: it may be as small as one record in 2⁵²
            slack = 0.0 if name == "success" else 1e-12
            if not (math.isfinite(said) and found <= said * (1.0 + TOLERANCE) + slack):
                raise DataError(
                    f"this protocol promises {word} {said:.6g} for {what}, but its weights give {found:.6g}; "
                    "do not use it, ask for the original file"
                )


def column_figures(channel: Channel, weights: ResponseWeights | MatrixWeights) -> Figures:
    """Return what the channel of one column promises."""
    published = None
    if isinstance(weights, MatrixWeights):
        published = published_parameter(channel.n_values, channel.success()) if channel.n_values > 1 else 0.0
    return Figures(channel.epsilon(), channel.success(), channel.gap_of_neighbours(), published)


def record_figures(channel: RecordChannel, norm: Norm, columns: Sequence[Figures]) -> Figures:
    """Return what the channel of whole records promises, given the figures of its columns."""
    epsilon, success = channel.epsilon(), channel.truth()
    if isinstance(channel, CombinedGeometric):
        metric = channel.metric_parameter(norm) if channel.size <= MOST_WRITTEN_OUT else None
        return Figures(epsilon, success, metric, channel.largest_rate())
    # the publication names a parameter for one value; for records it adds columns up only in the 1-norm: the largest
    parts = [figures.published for figures in columns if figures.published is not None]
    published = max(parts) if parts and norm is Norm.MANHATTAN else None
    return Figures(epsilon, success, channel.metric_parameter(norm), published)


def success_with_priors(channel: RecordChannel, priors: Sequence[Floats]) -> float:
    """Return how often an attacker guesses the whole record from its report, at best."""
    if isinstance(channel, ComponentWise):
        return math.prod(one.success(prior) for one, prior in zip(channel.channels, priors, strict=True))
    size = math.prod(channel.levels)
    most = MOST_WRITTEN_OUT if isinstance(channel, CombinedGeometric) else MOST_PRIORS
    if size > most:
        raise BudgetError(
            f"the guesses about {size} records cannot be written out, and the limit is {most}; ask without a prior, or "
            "choose component-wise noise"
        )
    prior = reduce(lambda left, right: np.multiply.outer(left, right).ravel(), priors, np.ones(1))
    if isinstance(channel, CombinedGeometric):
        return channel.write_out().success(prior)
    truth, other = channel.probabilities()
    # of the other records the likeliest is the best guess; for the likeliest report it is the next one
    order = np.argsort(prior)
    best = np.full(size, prior[order[-1]])
    best[order[-1]] = prior[order[-2]] if size > 1 else 0.0
    return float(np.maximum(prior * truth, best * other).sum())

"""The person's side: a record goes in, a randomised one comes out, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.cells import to_arrow
from dagveil.data.encoding import encode
from dagveil.local.protocol import Protocol
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import NoiseSource
from dagveil.privacy.receipt import SEEDED

Integers = NDArray[np.int64]

NOT_PRIVATE: Final = f"({SEEDED})"
"""Name of a field that seeded records carry, so that nobody takes them for protected ones."""


class Device:
    """Randomises records as a protocol says.

    A column that a record lacks counts as missing, and every value goes where the schema says, as in all of dagveil.

    Parameters
    ----------
    protocol
        Of the collection.
    noise
        Where randomness comes from; the system's secure generator unless given.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> from dagveil.data.schema import Schema
    >>> from dagveil.local.planning import plan_protocol
    >>> from dagveil.local.protocol import Mechanism
    >>> schema = Schema(dataset="demo", columns={"smokes": Boolean("false"), "fit": Boolean("false")})
    >>> device = Device(plan_protocol(schema, Mechanism.RESPONSE, epsilon=2.0))
    >>> sorted(device.randomise({"smokes": True, "fit": False}))
    ['fit', 'smokes']
    """

    def __init__(self, protocol: Protocol, noise: NoiseSource | None = None) -> None:
        self.protocol = protocol
        self._noise = noise_source(NoiseKind.EXACT) if noise is None else noise
        self._labels = [column.labels for column in protocol.columns]

    def __repr__(self) -> str:
        return f"Device({self.protocol.schema.dataset!r})"

    @property
    def private(self) -> bool:
        """Whether the noise is secret: not if it comes from a seed."""
        return self._noise.private

    def randomise(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Return the record's report, by labels. Every call spends the protocol's ε of this person again."""
        return self.label(self.report([record])[0])

    def report(self, records: Sequence[Mapping[str, Any]]) -> Integers:
        """Return the reports of some records as codes, in the shape (records, columns)."""
        cells = {name: to_arrow([_plain(record.get(name)) for record in records]) for name in self.protocol.names}
        return self.report_table(pa.table(cells))

    def report_table(self, table: pa.Table) -> Integers:
        """Return the reports of all rows of a table as codes, in the shape (rows, columns)."""
        return self.protocol.channel.report(self.read_codes(table), self._noise)

    def read_codes(self, table: pa.Table) -> Integers:
        """Return the true codes of a table's rows: for this device only."""
        encoded = encode(table, self.protocol.schema)
        return np.stack([encoded.codes[name].astype(np.int64) for name in self.protocol.names], axis=1)

    def label(self, codes: Iterable[int]) -> dict[str, str]:
        """Return a report by labels; one that was drawn from a seed is marked."""
        named = {
            name: labels[code] for name, labels, code in zip(self.protocol.names, self._labels, codes, strict=True)
        }
        return named if self.private else {**named, NOT_PRIVATE: "true"}


def _plain(value: Any) -> Any:
    """Return a cell as it is, or the text of its kind if it is no single value: that is no level."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict | tuple | set) else value

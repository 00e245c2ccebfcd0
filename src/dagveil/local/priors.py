"""What an attacker may know before: shares of each column's labels, from a TOML file."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.data.toml import load_toml
from dagveil.errors import DataError
from dagveil.local.protocol import Protocol

Floats = NDArray[np.float64]


def load_priors(path: str | Path, protocol: Protocol) -> tuple[Floats, ...]:
    """Read shares by column and label; labels that are left out have none, columns that are left out are even.

    Parameters
    ----------
    path
        A TOML file with one table for each column, such as `[smokes]` with `true = 0.2` and `false = 0.8`.
    protocol
        Has the columns and labels.
    """
    hint = "give the path of a file with one table of shares for each column"
    document = load_toml(path, DataError, "the file of priors", hint)
    try:
        shares = msgspec.convert(document, dict[str, dict[str, float]])
    except msgspec.ValidationError as error:
        raise DataError(f"the priors in {path} cannot be read: {error}; write label = share under [column]") from error
    unknown = [name for name in shares if name not in protocol.names]
    if unknown:
        raise DataError(f"the protocol has no column {unknown[0]!r}; it has {', '.join(protocol.names)}")
    return tuple(_read_column(column.name, column.labels, shares.get(column.name)) for column in protocol.columns)


def _read_column(name: str, labels: tuple[str, ...], shares: dict[str, float] | None) -> Floats:
    if shares is None:
        return np.full(len(labels), 1.0 / len(labels))
    unknown = [label for label in shares if label not in labels]
    if unknown:
        raise DataError(f"column {name!r} has no label {unknown[0]!r}; it has {', '.join(labels)}")
    prior = np.array([shares.get(label, 0.0) for label in labels])
    total = float(prior.sum())
    if not (np.isfinite(prior).all() and (prior >= 0.0).all() and math.isclose(total, 1.0, rel_tol=1e-6)):
        raise DataError(f"the shares of column {name!r} add up to {total:g}; they must be 0 or more and add up to 1")
    return prior / total

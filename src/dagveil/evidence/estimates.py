"""Released numbers as tables to work with: estimates of counts, means and deviations, each with its standard error.

A standard error here is the deviation of the noise: how far an estimate lies from what the rows hold. That the rows are
themselves a sample is not in it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError, MissingExtraError
from dagveil.evidence.moments import covariance_from_moments
from dagveil.evidence.tables import ReleasedTables
from dagveil.privacy.release import (
    NoisyCounts,
    NoisyFeatureMoments,
    NoisyInteractions,
    NoisyMixedMoments,
    NoisyMoments,
    Release,
)
from dagveil.text import write_html_table

Floats = NDArray[np.float64]

CONSTANT = 0.05  # A column is called constant only where noise would show this share of records in other levels
MOST_NAMED = 8  # released sets of columns that a message lists


class Frame:
    """Something that shows itself as a table in Arrow, pandas, polars and notebooks."""

    def to_arrow(self) -> pa.Table:
        """Return the table as a pyarrow.Table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the table as a pandas.DataFrame."""
        import_frames("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return the table as a polars.DataFrame."""
        return import_frames("polars").from_arrow(self.to_arrow())

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        return write_html_table(table.column_names, (row.values() for row in table.to_pylist()))


def import_frames(name: str) -> Any:
    """Import pandas or polars, or say how to install them."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is not installed; run pip install 'dagveil[frames]', or use to_arrow"
        ) from error


@dataclass(frozen=True, eq=False)
class TableEstimate(Frame):
    """Estimated counts of one or several columns.

    - `labels`: names of the levels, one tuple per axis.
    - `counts`: unbiased estimates; noise can make one negative.
    - `total_error`: of the sum of the counts.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    counts: Floats
    standard_error: float
    total_error: float

    def to_svg(self) -> str:
        """Draw the shares as bars, with strokes that hold 95 % of the noise."""
        return _draw_bars((self,))

    @property
    def total(self) -> float:
        """Estimated number of rows: the sum of the counts."""
        return float(self.counts.sum())

    @cached_property
    def shares(self) -> Floats:
        """The counts divided by their sum."""
        return np.asarray(self.counts / max(self.total, 1.0))

    @cached_property
    def share_errors(self) -> Floats:
        """Standard errors of the shares, to first order."""
        # cells are alike, so each has the same covariance with their sum
        shared = self.total_error**2
        variance = self.standard_error**2 - 2.0 * self.shares * shared / self.counts.size + self.shares**2 * shared
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)) / max(self.total, 1.0))

    def to_arrow(self) -> pa.Table:
        """Return one row per cell: its levels, `count`, `standard_error`, `share` and `share_error`."""
        cells = list(product(*self.labels))
        levels = {name: [cell[axis] for cell in cells] for axis, name in enumerate(self.columns)}
        numbers = {
            "count": self.counts.ravel(),
            "standard_error": np.full(self.counts.size, self.standard_error),
            "share": self.shares.ravel(),
            "share_error": self.share_errors.ravel(),
        }
        # Arrow allows two columns of one name, pandas and polars do not
        named = {f"{name} (level)" if name in numbers else name: pa.array(cells) for name, cells in levels.items()}
        return pa.table({**named, **numbers})


def _draw_bars(tables: tuple[TableEstimate, ...]) -> str:
    # drawings lie above this layer, and are imported only here
    drawn: str = import_module("dagveil.report.bars").draw_counts(tables)
    return drawn


@dataclass(frozen=True, eq=False)
class TableOne(Frame):
    """What is known of each column by itself.

    - `moments`: by column, mean, its standard error, deviation, its standard error, all of rows that were clipped to
      their bounds and shrunk to a ball: deviations of the rows themselves are larger.
    """

    tables: dict[str, TableEstimate]
    moments: dict[str, tuple[float, float, float, float]]
    unknown: tuple[str, ...]

    def to_svg(self) -> str:
        """Draw the shares of all counted columns as bars, with strokes that hold 95 % of the noise."""
        if not self.tables:
            raise EvidenceError("no counts were released, so there are no bars to draw")
        return _draw_bars(tuple(self.tables.values()))

    def to_arrow(self) -> pa.Table:
        """Return one row per level of a counted column, and two, mean and deviation, per column with moments.

        `statistic` says what `estimate` is; shares are for counts only.
        """
        rows: list[tuple[str, str | None, str, float, float, float | None, float | None]] = []
        for name, table in self.tables.items():
            counts = zip(table.labels[0], table.counts, table.shares, table.share_errors, strict=True)
            rows += [
                (name, str(level), "count", float(count), float(table.standard_error), float(share), float(error))
                for level, count, share, error in counts
            ]
        for name, (mean, mean_error, deviation, deviation_error) in self.moments.items():
            rows.append((name, None, "mean", mean, mean_error, None, None))
            rows.append((name, None, "standard deviation", deviation, deviation_error, None, None))
        fields = [(key, pa.string()) for key in ("column", "level", "statistic")]
        fields += [(key, pa.float64()) for key in ("estimate", "standard_error", "share", "share_error")]
        schema = pa.schema(fields)
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def estimate_table(schema: Schema, releases: Sequence[Release], columns: tuple[str, ...]) -> TableEstimate:
    """Estimate the counts of some columns from whatever was released about them.

    - `columns`: at least one, without repetition; axes come in this order.
    """
    if not columns or len(set(columns)) < len(columns):
        raise EvidenceError("name at least one column, and each only once")
    if unknown := [name for name in columns if name not in schema.columns]:
        raise EvidenceError(f"no column is called {unknown[0]!r}; the columns are {', '.join(schema.columns)}")
    table = _estimate(ReleasedTables(releases), schema, columns)
    if table is None:
        raise EvidenceError(
            f"nothing was released from which the counts of {', '.join(columns)} follow; {_describe_released(releases)}"
        )
    return table


def _estimate(released: ReleasedTables, schema: Schema, columns: tuple[str, ...]) -> TableEstimate | None:
    """Return the counts of some columns with their standard errors, or None if nothing tells them."""
    table = released.find(columns)
    if table is None:
        return None
    labels = tuple(schema.columns[name].labels for name in columns)
    # tables put together from interactions and margins share one number of rows
    total = table.margin(()) if released.total is None else released.total
    error, total_error = math.sqrt(table.cell_variance), math.sqrt(total.cell_variance)
    return TableEstimate(columns, labels, table.counts, error, total_error)


def estimate_columns(schema: Schema, releases: Sequence[Release]) -> TableOne:
    """Estimate the counts of each column, or its mean and deviation."""
    released = ReleasedTables(releases)
    found = {name: _estimate(released, schema, (name,)) for name in schema.columns}
    tables = {name: table for name, table in found.items() if table is not None}
    moments = {name: told for name, told in _estimate_moments(releases).items() if name not in tables}
    unknown = tuple(name for name in schema.columns if name not in tables and name not in moments)
    return TableOne(tables, moments, unknown)


def describe_constants(schema: Schema, releases: Sequence[Release]) -> list[str]:
    """Name columns of which one level alone was seen, where noise is small: the rows may spell the others otherwise."""
    seen = []
    for name, table in estimate_columns(schema, releases).tables.items():
        place = int(np.argmax(table.counts))
        others = table.total - float(table.counts[place])
        uncertain = 3.0 * table.standard_error * math.sqrt(table.counts.size)
        if others < uncertain < CONSTANT * table.total:
            seen.append(f"{name} ({table.labels[0][place]})")
    if not seen:
        return []
    return [
        f"Hardly any record has another level than the one named here: {', '.join(seen)}. No edge can be found there. "
        "If that is a surprise, rows may spell levels otherwise than the schema, or bins may be too wide: `dagveil "
        "schema check` tells the custodian."
    ]


def _estimate_moments(releases: Sequence[Release]) -> dict[str, tuple[float, float, float, float]]:
    """Return mean and deviation of each column of the last released moments, with standard errors to first order."""
    last = next((release for release in reversed(releases) if isinstance(release, NoisyMoments)), None)
    if last is None:
        return {}
    covariance = covariance_from_moments(last)
    diagonal = math.sqrt(last.diagonal_variance) / 4.0**last.bits
    n_rows, constant = covariance.n_rows, last.constant
    scaled = covariance.means * constant
    found = {}
    for place, name in enumerate(last.columns):
        mean, variance, unit = float(scaled[place]), float(covariance.matrix[place, place]), last.spreads[place]
        # the noise of the sum, and that of the number of rows
        mean_error = math.hypot(last.deviation / constant, mean * diagonal / constant**2) / n_rows
        square = variance + mean**2
        variance_error = math.hypot(
            diagonal / n_rows,
            2 * mean * last.deviation / (constant * n_rows),
            (2 * mean**2 - square) * diagonal / (constant**2 * n_rows),
        )
        deviation = math.sqrt(variance)
        found[name] = (
            last.centers[place] + unit * mean,
            unit * mean_error,
            unit * deviation,
            unit * variance_error / (2.0 * deviation),
        )
    return found


def _describe_released(releases: Iterable[Release]) -> str:
    """Say what was released, for someone who asked for something else."""
    sets: dict[tuple[str, ...], None] = {}
    for release in releases:
        if isinstance(release, NoisyMoments | NoisyFeatureMoments):
            return (
                f"second moments of {', '.join(release.columns)} were released, which tell means, deviations and "
                "correlations, not counts"
            )
        if isinstance(release, NoisyMixedMoments):
            return (
                "second moments of levels beside numbers were released, which are read for graphs only; with bins for "
                "every number tables are released instead"
            )
        if isinstance(release, NoisyCounts | NoisyInteractions) and release.columns:
            sets.setdefault(release.columns)
    largest = max((len(columns) for columns in sets), default=0)
    named = [" × ".join(columns) for columns in sets if len(columns) == largest]
    if not named:
        return "only the number of rows was released"
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"the largest released tables are of {', '.join(named[:MOST_NAMED])}{more}"

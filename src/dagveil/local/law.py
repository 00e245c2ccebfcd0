"""The joint law of some columns' true values, recovered from reports, with its standard errors."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.errors import BudgetError, DataError, EvidenceError
from dagveil.local.collected import read_reports
from dagveil.local.combined_geometric import MOST_WRITTEN_OUT, CombinedGeometric
from dagveil.local.protocol import Protocol
from dagveil.local.record import ComponentWise
from dagveil.local.recovery import MOST_CELLS, invert_reports, update_by_bayes
from dagveil.local.reports import Reports

Floats = NDArray[np.float64]

REDRAWS: Final = 50
"""Redraws of reports behind the standard errors of the iterative Bayesian update."""


class Rule(enum.Enum):
    """How a law is recovered."""

    INVERSE = "inverse"
    """By the inverse of the channel: without bias, and with an exact variance; shares may be negative."""

    BAYES = "bayes"
    """By iterative Bayesian update: the likeliest law, never negative; biased where shares are near 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Shares of true values.

    Attributes
    ----------
    columns, labels
        Names of the axes, and the labels along each.
    shares, errors
        In the shape of the labels; errors are standard errors, NaN where none were asked for.
    n_reports
        Reports behind them.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    shares: Floats
    errors: Floats
    n_reports: int

    def to_table(self) -> pa.Table:
        """Return one line for each cell: a label of each column, its share and standard error."""
        places = np.indices(self.shares.shape).reshape(len(self.columns), -1)
        cells = {
            name: [labels[code] for code in codes]
            for name, labels, codes in zip(self.columns, self.labels, places, strict=True)
        }
        for name in ("share", "standard error"):
            if name in cells:
                raise DataError(f"a column is called {name!r}, as a column of the table of the law; rename it")
        return pa.table({**cells, "share": self.shares.ravel(), "standard error": self.errors.ravel()})


def recover_law(
    source: str | Path | pa.Table,
    protocol: Protocol,
    columns: Sequence[str],
    rule: Rule = Rule.INVERSE,
    *,
    redraws: int = REDRAWS,
    seed: int = 0,
) -> Law:
    """Recover the joint law of some columns. Nothing is spent: it is computed from reports.

    Parameters
    ----------
    source
        Reports, as for `dagveil.local.collected.read_reports`.
    protocol
        Of the reports.
    columns
        Names.
    rule
        How it is recovered. Combined geometric noise needs BAYES, and a product of columns small enough to be written
        out.
    redraws, seed
        BAYES takes standard errors from reports that are drawn again; with no redraws there are none.
    """
    places = _find_places(protocol, columns)
    reports = Reports.of(read_reports(source, protocol).codes)
    if not reports.n_records:
        raise DataError("there are no reports; collect some first")
    labels = tuple(protocol.columns[place].labels for place in places)
    cells = int(np.prod([len(some) for some in labels]))
    if cells > MOST_CELLS:
        raise EvidenceError(f"the law has {cells} cells, more than {MOST_CELLS}; ask for fewer columns")
    if rule is Rule.INVERSE:
        try:
            undo = protocol.channel.undo()
        except BudgetError as error:
            raise EvidenceError(f"{error}; or recover the law by {Rule.BAYES.value}") from None
        recovered = invert_reports(reports.table(places, protocol.levels), undo, places)
        errors = np.sqrt(np.maximum(np.diag(recovered.covariance), 0.0)).reshape(recovered.shares.shape)
        return Law(tuple(columns), labels, recovered.shares, errors, int(reports.n_records))
    shares = _update(reports, protocol, places)
    rng = np.random.default_rng(seed)
    again = [_update(reports.redraw(rng), protocol, places) for _ in range(redraws)]
    errors = np.std(again, axis=0, ddof=1) if redraws > 1 else np.full(shares.shape, np.nan)
    return Law(tuple(columns), labels, shares, np.asarray(errors, dtype=np.float64), int(reports.n_records))


def _find_places(protocol: Protocol, columns: Sequence[str]) -> list[int]:
    if not columns or len(set(columns)) < len(columns):
        raise DataError("name one column or more, each once")
    unknown = [name for name in columns if name not in protocol.names]
    if unknown:
        raise DataError(f"the protocol has no column {unknown[0]!r}; it has {', '.join(protocol.names)}")
    return [protocol.names.index(name) for name in columns]


def _update(reports: Reports, protocol: Protocol, places: Sequence[int]) -> Floats:
    channel = protocol.channel
    if isinstance(channel, ComponentWise):
        matrices = [channel.channels[place].matrix for place in places]
        return update_by_bayes(reports.table(places, protocol.levels), matrices)
    if not isinstance(channel, CombinedGeometric):
        undo = channel.undo()
        matrices = [undo.inverses[place] for place in places]  # what is kept is kept as it is: identities
        return update_by_bayes(reports.table(places, protocol.levels), matrices, kept=undo.kept)
    if channel.size > MOST_WRITTEN_OUT:
        raise EvidenceError(
            f"combined geometric noise over {channel.size} records cannot be undone: the limit is {MOST_WRITTEN_OUT}; "
            "collect with component-wise noise"
        )
    # a column's report depends on all true values: recover whole records, then add up
    everything = reports.table(range(len(protocol.levels)), protocol.levels)
    law = update_by_bayes(everything.reshape(-1), [channel.write_out().matrix]).reshape(everything.shape)
    others = tuple(place for place in range(law.ndim) if place not in places)
    kept = sorted(places)
    return np.transpose(law.sum(axis=others), [kept.index(place) for place in places])

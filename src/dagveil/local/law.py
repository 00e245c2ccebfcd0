"""The joint law of some columns' true values, recovered from reports, with its standard errors."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from dagveil.errors import BudgetError, DataError, EvidenceError
from dagveil.local.channel import Floats, Integers
from dagveil.local.combined_geometric import MOST_WRITTEN_OUT, CombinedGeometric
from dagveil.local.protocol import Protocol
from dagveil.local.record import ComponentWise, RecordChannel, Undo, join
from dagveil.local.reports import Reports
from dagveil.local.store import read_reports

MOST_CELLS = 4096  # largest table whose covariance matrix is written out
REDRAWS: Final = 50  # redraws of reports behind the standard errors of the iterative Bayesian update


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    """Shares of true values, and the covariance of their estimates (cells in row-major order)."""

    shares: Floats
    covariance: Floats


def update_by_bayes(
    counts: Floats,
    matrices: Sequence[Floats],
    tolerance: float = 1e-9,
    most_rounds: int = 10_000,
    *,
    kept: float = 1.0,
) -> Floats:
    """Return the likeliest law of true values: iterative Bayesian update.

    Each round asks with which share each true value is behind the reports, given the law so far. It never lowers the
    likelihood, and shares never leave [0, 1].

    - `matrices`: channel of each column, in the shape (values, reports).
    - `tolerance`: the update ends when a round gains less than this per report in log-likelihood.
    - `kept`: probability that a report has to do with the record; otherwise it is any, all equally likely.
    """
    observed = counts / counts.sum()
    law = np.full(counts.shape, 1.0 / counts.size)
    likelihood = -np.inf
    for _ in range(most_rounds):
        expected = kept * apply_to_axes(law, matrices) + (1.0 - kept) / counts.size
        reached = float((observed * np.log(np.maximum(expected, 1e-300))).sum())
        if reached - likelihood < tolerance:
            break
        likelihood = reached
        excess = observed / np.maximum(expected, 1e-300)
        law = law * (kept * apply_to_axes(excess, [m.T for m in matrices]) + (1.0 - kept) * excess.mean())
        law /= law.sum()
    return law


def invert_reports(counts: Floats, undo: Undo, columns: Sequence[int]) -> Recovered:
    """Return unbiased estimates of the shares of true values, with their covariance; some may be negative."""
    if counts.size > MOST_CELLS:
        raise EvidenceError(f"a table of {counts.size} cells is too large to be inverted; the limit is {MOST_CELLS}")
    n = float(counts.sum())
    inverses = [undo.inverses[column] for column in columns]
    shares = (apply_to_axes(counts / n, inverses) - (1.0 - undo.kept) / counts.size) / undo.kept
    joint = join(inverses)
    reports = (counts / n).reshape(-1)
    mean = reports @ joint
    covariance = ((joint * reports[:, None]).T @ joint - np.outer(mean, mean)) / (n * undo.kept**2)
    return Recovered(shares, covariance)


def round_counts(counts: Floats) -> Integers:
    """Return whole counts with the same total, by largest remainders."""
    whole = np.floor(counts).astype(np.int64)
    short = round(float(counts.sum())) - int(whole.sum())
    whole[np.argsort(whole - counts, kind="stable")[:short]] += 1
    return whole


def apply_to_axes(table: Floats, matrices: Sequence[Floats]) -> Floats:
    """Multiply each axis of a table by a matrix from the left: Σ_x table[x, …] matrix[x, y]."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(table, matrix, axes=(axis, 0)), -1, axis)
    return table


class Rule(enum.Enum):
    """How a law is recovered."""

    # by the inverse of the channel: without bias, and with an exact variance; shares may be negative
    INVERSE = "inverse"
    IBU = "ibu"  # by iterative Bayesian update: the likeliest law, never negative; biased where shares are near 0


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Shares of true values."""

    columns: tuple[str, ...]  # names of the axes, and the labels along each
    labels: tuple[tuple[str, ...], ...]
    shares: Floats  # in the shape of the labels; errors are standard errors, NaN where none were asked for
    errors: Floats
    n_reports: int  # reports behind them

    def to_table(self) -> pa.Table:
        """Return one line for each cell: a label of each column, its share and standard error."""
        places = np.indices(self.shares.shape).reshape(len(self.columns), -1)
        axes = zip(self.columns, self.labels, places, strict=True)
        cells = {name: [labels[code] for code in codes] for name, labels, codes in axes}
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

    - `source`: reports, as for `dagveil.local.store.read_reports`.
    - `rule`: Combined geometric noise needs IBU, and a product of columns small enough to be written out.
    - `redraws`, `seed`: IBU takes standard errors from reports that are drawn again; with no redraws there are none.
    """
    if not columns or len(set(columns)) < len(columns):
        raise DataError("name one column or more, each once")
    places = protocol.find_places(columns)
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
            raise EvidenceError(f"{error}; or recover the law by {Rule.IBU.value}") from None
        recovered = invert_reports(reports.table(places, protocol.levels), undo, places)
        errors = np.sqrt(np.maximum(np.diag(recovered.covariance), 0.0)).reshape(recovered.shares.shape)
        return Law(tuple(columns), labels, recovered.shares, errors, int(reports.n_records))
    shares = update_reports(reports, protocol.channel, places)
    rng = np.random.default_rng(seed)
    again = [update_reports(reports.redraw(rng), protocol.channel, places) for _ in range(redraws)]
    errors = np.std(again, axis=0, ddof=1) if redraws > 1 else np.full(shares.shape, np.nan)
    return Law(tuple(columns), labels, shares, np.asarray(errors, dtype=np.float64), int(reports.n_records))


def update_reports(reports: Reports, channel: RecordChannel, places: Sequence[int]) -> Floats:
    """Return the likeliest law of the columns at some places, by iterative Bayesian update."""
    if isinstance(channel, ComponentWise):
        matrices = [channel.channels[place].matrix for place in places]
        return update_by_bayes(reports.table(places, channel.levels), matrices)
    if not isinstance(channel, CombinedGeometric):
        undo = channel.undo()
        matrices = [undo.inverses[place] for place in places]  # what is kept is kept as it is: identities
        return update_by_bayes(reports.table(places, channel.levels), matrices, kept=undo.kept)
    if channel.size > MOST_WRITTEN_OUT:
        raise EvidenceError(
            f"combined geometric noise over {channel.size} records cannot be undone: the limit is {MOST_WRITTEN_OUT}; "
            "collect with component-wise noise"
        )
    # a column's report depends on all true values: recover whole records, then add up
    everything = reports.table(range(len(channel.levels)), channel.levels)
    law = update_by_bayes(everything.reshape(-1), [channel.write_out().matrix]).reshape(everything.shape)
    others = tuple(place for place in range(law.ndim) if place not in places)
    kept = sorted(places)
    return np.transpose(law.sum(axis=others), [kept.index(place) for place in places])

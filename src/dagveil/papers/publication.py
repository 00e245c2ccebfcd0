"""What a publication does under the name of a method, with exact access to rows, and no guarantee.

The curator writes an `Unbounded` event to the ledger before it hands the rows over, and sound
methods cannot import this room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method, read_options
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress


class PublishedAccess:
    """Exact answers, and a generator for noise as published.

    - `table`: the rows
    - `rng`: for noise and sub-samples; not a secure source, since nothing is claimed
    """

    def __init__(self, table: Table, rng: np.random.Generator) -> None:
        self._table = table
        self._known: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self.rng = rng

    def __repr__(self) -> str:
        return f"PublishedAccess({self.schema.dataset!r})"

    @property
    def schema(self) -> Schema:
        """The public schema of the rows."""
        return self._table.schema

    @property
    def n_rows(self) -> int:
        """The exact number of rows, which all of the papers take as public."""
        return self._table.n_rows

    def exact_counts(self, x: str, y: str, given: Sequence[str]) -> NDArray[np.int64]:
        """Count rows in the shape (strata, levels of x, levels of y)."""
        names = (*given, x, y)
        if names not in self._known:
            counts = self._table.counts(names)
            self._known[names] = counts.reshape(-1, *counts.shape[len(names) - 2 :])
        return self._known[names]

    def exact_table(self, columns: tuple[str, ...]) -> NDArray[np.int64]:
        """Count rows by some columns."""
        return self._table.counts(columns)

    def exact_joint(self) -> NDArray[np.int64]:
        """Count rows by all columns."""
        return self._table.counts(tuple(self.schema.columns))

    def exact_moments(self, plan: MomentPlan) -> NDArray[np.int64]:
        """Sum the outer products of the rows, in fixed point."""
        return self._table.outer_products(plan)

    def exact_rows(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """Return the rows themselves, scaled to [-1, 1] by bounds and scores, in the shape (rows, k)."""
        return self._table.levelled_rows(columns, max(self.n_rows, 1))[: self.n_rows]

    def subsample(self, size: int) -> PublishedAccess:
        """Draw so many rows without replacement."""

        def keep(n_rows: int) -> NDArray[np.bool_]:
            kept = np.zeros(n_rows, dtype=np.bool_)
            kept[self.rng.choice(n_rows, min(size, n_rows), replace=False, shuffle=False)] = True
            return kept

        return PublishedAccess(self._table.thin(keep), self.rng)


Publish = Callable[[PublishedAccess, Budget, Knowledge, Any, Progress], Asked]


@dataclass(frozen=True, slots=True)
class Reading:
    """One method as its paper prints it, or as its authors' program has it."""

    settings: type[msgspec.Struct]  # constants of this reading
    publish: Publish  # runs it
    flaw: str  # why its guarantee does not hold


@dataclass(frozen=True, slots=True)
class Publication:
    """The readings of one method that exist, and why one is missing, if it is."""

    readings: Mapping[Calibration, Reading]
    missing: str = ""


PAPERS: Mapping[str, str] = {
    "measure-notears": "zheng2018",
    "em-pc": "xu2017",
    "lap-mech": "xu2017",
    "priv-pc-star": "xu2017",
    "svt-pc": "wang2020",
    "priv-pc": "wang2020",
    "sampled-gaussian-pc": "wang2020",
    "noleaks": "ma2022",
    "curate-score": "bhattacharjee2024",
    "curate": "bhattacharjee2024",
    "pcd": "zhang2023",
}
"""The file of this room that holds the publication of a method; it ends in its `PUBLICATIONS`."""

EXACT: Mapping[str, str] = {"pc": "spirtes2000"}
"""The same for methods that were never private: their one calibration is `none`."""


def readings_of(name: str) -> Mapping[Calibration, Reading]:
    """Return the readings of a method's publication; none for a method of our own or of a plug-in."""
    return _publication_of(name).readings


def require_reading(method: Method, calibration: Calibration) -> Reading:
    """Return a reading of a method's publication, or say why there is none."""
    publication = _publication_of(method.name)
    if not publication.readings:
        raise MethodError(
            f"{method.name} is not from a publication and has no {calibration.value} calibration; leave it out"
        )
    if calibration not in publication.readings:
        known = " or ".join(reading.value for reading in publication.readings)
        raise MethodError(
            f"{method.name} has no {calibration.value} calibration, because "
            f"{publication.missing or 'it was meant to be private'}; use {known}"
        )
    return publication.readings[calibration]


def settings_of(method: Method, calibration: Calibration) -> type[msgspec.Struct]:
    """Return the kind of settings that a calibration of a method takes, or say that there is none."""
    if calibration is Calibration.SOUND and method.name not in EXACT:
        return method.settings
    return require_reading(method, calibration).settings


def read_settings(method: Method, calibration: Calibration, options: Mapping[str, Any] | None) -> msgspec.Struct:
    """Read the settings of a calibration from names and values, as `--set` gives them; unknown names are refused."""
    return read_options(settings_of(method, calibration), f"{method.name} ({calibration.value})", options)


def _publication_of(name: str) -> Publication:
    file = PAPERS.get(name) or EXACT.get(name)
    if file is None:
        return Publication({})
    publication: Publication = import_module(f"dagveil.papers.{file}").PUBLICATIONS[name]
    return publication

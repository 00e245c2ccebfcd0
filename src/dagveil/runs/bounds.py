"""Bounds of numeric columns, found privately: a noisy histogram over powers of two on both sides of a public centre.

A numeric column needs public bounds. Where nobody knows any, this stage releases one table of counts per column, with
cells that are the same for all data in the world. Cells that noise alone explains count as empty, and the outermost of
the others are the bounds. It is a run of its own: charged before noise is drawn, with a receipt.

A cell holds its lower edge. All numbers that there are have a cell: infinities and numbers beyond the last power of two
the outer ones, missing values one of their own.
"""

import math
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec
import numpy as np
import tomli_w
from numpy.typing import NDArray
from scipy import special

from dagveil.data import schema as schemas
from dagveil.data.column import OWN_LEVEL, Numeric
from dagveil.errors import EvidenceError, MethodError, SchemaError
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.method import Method
from dagveil.privacy.budget import Amount, Budget, Relation
from dagveil.privacy.events import Filter, GaussianFilter, PureFilter
from dagveil.privacy.receipt import Receipt
from dagveil.privacy.release import NoisyCounts
from dagveil.runs.discovery import DEFAULT_DELTA
from dagveil.runs.run import RunOptions, open_run
from dagveil.statistics.contingency import counts_sensitivity, counts_squared_sensitivity

# bounds that say nothing: what a numeric column without bounds has until they are found
UNKNOWN_BOUNDS: Final = (-sys.float_info.max, sys.float_info.max)
# powers of two that part the cells: from a billionth to a trillion millions. All numbers beyond share outer cells
EXPONENTS: Final = range(-30, 61)
# farthest from zero that a search may start: beyond, all powers of two would soon vanish in rounding
FARTHEST_START: Final = 2.0**100
# probability that noise makes any empty cell of any column look occupied: one such cell can ruin bounds
FALSE_CELLS: Final = 0.001
NORMAL_IQR: Final = 1.349  # distance of the quartiles of a standard normal distribution


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What the released counts say about one column.

    Bounds are outer edges of the outermost cells that noise does not explain, the center is the noisy median, and the
    spread the distance of the noisy quartiles / 1.349; None where no cell lies between them, so that it could be
    anything. `beyond` tells whether values lie beyond the outermost power of two; the bounds then end there.
    """

    column: str
    bounds: tuple[float, float]
    center: float
    spread: float | None
    beyond: bool


def part_line(start: float) -> Numeric:
    """Return a column that counts in cells between powers of two on both sides of a start."""
    if not abs(start) <= FARTHEST_START:
        raise SchemaError(
            f"center is {start:g}, and a search can start at most {FARTHEST_START:.3g} from zero; declare bounds"
        )
    steps = [2.0**exponent for exponent in EXPONENTS]
    # far from zero, small steps vanish in rounding
    cuts = sorted({start, *(start - step for step in steps), *(start + step for step in steps)})
    return Numeric(bounds=UNKNOWN_BOUNDS, bins=tuple(cuts), missing=OWN_LEVEL)


def find_threshold(accounting: Filter, schema: schemas.Schema) -> float:
    """Return how many rows a cell needs, so that noise lifts no empty cell above that but with a small probability.

    The probability is `FALSE_CELLS` for all cells of all columns together (Bonferroni).
    """
    relation, tables = Relation(schema.relation), len(schema.columns)
    tail = FALSE_CELLS / sum(column.n_levels for column in schema.columns.values())
    if isinstance(accounting, PureFilter):
        scale = float(counts_sensitivity(relation, tables) / accounting.total)
        # P(noise >= t) = e^(-t / scale) / (1 + e^(-1 / scale)) for whole t
        # and half a row less asks the same of whole counts
        rows = math.ceil(-scale * math.log(tail * (1.0 + math.exp(-1.0 / scale)))) - 0.5
    else:
        deviation = math.sqrt(counts_squared_sensitivity(relation, tables) / accounting.total)
        rows = deviation * -float(special.ndtri(tail))
    # where there is hardly any noise, a cell still needs a row
    return max(rows, 0.5)


def read_counts(
    released: NoisyCounts, cuts: Sequence[float], start: float, threshold: float, coverage: float = 1.0
) -> ColumnBounds | None:
    """Read bounds, median and spread of one column from its noisy counts; None if no cell stands out.

    Counts are those below the first cut, between cuts, above the last one, and of missing values. Cells with fewer rows
    than the threshold count as empty; coverage is the share of the rows that the bounds need to hold.
    """
    counts = released.counts[:-1]
    counts = np.where(counts >= threshold, counts, 0.0)
    # values beyond the outermost cuts are clipped to them
    lower, upper = np.array([cuts[0], *cuts]), np.array([*cuts, cuts[-1]])
    spare = (1.0 - coverage) / 2.0 * counts.sum()
    inside = np.flatnonzero((np.cumsum(counts) > spare) & (np.cumsum(counts[::-1])[::-1] > spare))
    if counts.sum() == 0.0 or lower[inside[0]] >= upper[inside[-1]]:
        return None
    bounds = float(lower[inside[0]]), float(upper[inside[-1]])
    places = {share: _find_quantile(counts, lower, upper, share) for share in (0.25, 0.5, 0.75)}
    (first, low), (_, middle), (last, high) = places.values()
    # a cell between those of the quartiles fixes their distance up to a factor of 3.5; neighbours could be any distance
    told = lower[last] > upper[first]
    # inside of the innermost cells nothing is known but that it is the start, as for a column of zeros
    center = start if abs(middle - start) <= 2.0 ** EXPONENTS[0] else start + _round(middle - start)
    return ColumnBounds(
        column=released.columns[0],
        bounds=bounds,
        center=min(max(center, bounds[0]), bounds[1]),
        spread=_round((high - low) / NORMAL_IQR) if told else None,
        beyond=bool(counts[0] > 0.0 or counts[-1] > 0.0),
    )


def _find_quantile(
    counts: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64], share: float
) -> tuple[int, float]:
    """Return the cell of a quantile, and the quantile as if the rows lay evenly in it."""
    reached = np.cumsum(counts)
    goal = share * float(reached[-1])
    cell = int(np.searchsorted(reached, goal))
    inside = 1.0 - (float(reached[cell]) - goal) / float(counts[cell])
    return cell, float(lower[cell] + inside * (upper[cell] - lower[cell]))


def _round(number: float) -> float:
    # digits beyond the third are noise, or an accident of the cells
    return float(f"{number:.3g}")


class BoundsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The stage has no settings that change what is released."""


@dataclass(frozen=True, slots=True)
class FoundBounds:
    """A schema with bounds that were found privately. Everything here is released: public from now on.

    - `schema`: the schema, its bounds filled in; columns in `unresolved` stay as they were.
    - `columns`: what was found, column by column.
    - `unresolved`: columns in which nothing stood out from the noise.
    - `threshold`: rows that a cell needed in order to count.
    - `findings`: what a reader should know, in sentences.
    - `releases`: the noisy counts.
    - `receipt`: what the release promises.
    """

    schema: schemas.Schema
    columns: tuple[ColumnBounds, ...]
    unresolved: tuple[str, ...]
    threshold: float
    findings: tuple[str, ...]
    releases: tuple[NoisyCounts, ...]
    receipt: Receipt

    def to_toml(self) -> str:
        """Write the schema as the text of a schema.toml, with a comment above each column whose bounds were found."""
        budget = Budget(Fraction(self.receipt.epsilon), Fraction(self.receipt.delta))
        how = f"found privately with {budget.words}: public from now on"
        note = f"# bounds {how if self.receipt.guaranteed else 'found with seeded noise: not private'}\n"
        found = {column.column for column in self.columns}
        still_open = list_open_columns(self.schema)
        document = tomllib.loads(schemas.schema_to_toml(self.schema))
        parts = [tomli_w.dumps({"dataset": document["dataset"]})]
        for name, fields in document["columns"].items():
            if name in still_open:
                del fields["bounds"]
            parts.append((note if name in found else "") + tomli_w.dumps({"columns": {name: fields}}))
        if "knowledge" in document:
            parts.append(tomli_w.dumps({"knowledge": document["knowledge"]}))
        return ("" if self.schema.reviewed else schemas.DRAFT_HEADER) + "\n".join(parts)

    def save(self, path: str | Path) -> None:
        """Write the schema as a schema.toml."""
        schemas.write_schema_text(self.to_toml(), path, reviewed=self.schema.reviewed)


def find_bounds(
    source: Any,
    schema: schemas.Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    columns: Sequence[str] | None = None,
    coverage: float = 1.0,
    **run: Unpack[RunOptions],
) -> FoundBounds:
    """Find bounds of numeric columns under differential privacy.

    - `source`, `epsilon`, `delta`: as in `measure_source`. Where Laplace noise does better, delta is not used and not
      charged.
    - `schema`: a schema whose columns without known bounds have `UNKNOWN_BOUNDS`; or the path of a schema.toml, in
      which they have no `bounds`.
    - `columns`: columns to find; None takes those without known bounds. One that has bounds is found anew: its center
      is where the search starts, and bounds, center and spread are replaced. Columns of an unreviewed schema that are
      named here count as numeric, whatever kind a draft read from the rows; without names the receipt carries a
      warning.
    - `coverage`: share of the rows that the bounds need to hold; below 1, outer cells with few rows are left out.
    - `run`: as in `measure_source`. `accept_draft` uses the numbers that an unreviewed schema has for these columns;
      without it they are dropped, because they may have been read from the data.

    Examples
    --------
    >>> import numpy as np
    >>> from dagveil.privacy.noise.kind import NoiseKind
    >>> schema = schemas.Schema(dataset="demo", columns={"x": Numeric(bounds=UNKNOWN_BOUNDS)}, reviewed=True)
    >>> rows = {"x": np.random.default_rng(1).normal(0.0, 300.0, 5000)}
    >>> found = find_bounds(rows, schema, epsilon=1, ledger=None, noise=NoiseKind.SEEDED, seed=1)
    >>> found.schema.columns["x"].bounds
    (-1024.0, 1024.0)
    """
    if not 0.5 < coverage <= 1.0:
        raise MethodError(f"coverage is {coverage:g}; give a share of the rows above 0.5 and at most 1, such as 0.999")
    declared = schema if isinstance(schema, schemas.Schema) else load_open_schema(schema)
    trusted = declared.reviewed or run.get("accept_draft", False)
    # a draft read from the rows which columns are numeric, so that names alone declare nothing unless someone gave them
    by_hand = not trusted and columns is not None
    # of each column: where its search starts, its cells, and what its declaration keeps, whatever is found
    starts: dict[str, float] = {}
    cells: dict[str, Numeric] = {}
    kept: dict[str, Numeric] = {}
    for name, column in _choose_columns(declared, columns, by_hand).items():
        used = column if trusted else Numeric(bounds=UNKNOWN_BOUNDS, missing_words=column.missing_words)
        starts[name] = used.center or 0.0
        cells[name] = msgspec.structs.replace(part_line(starts[name]), missing_words=used.missing_words)
        anew = {} if used.bounds == UNKNOWN_BOUNDS else {"bounds": UNKNOWN_BOUNDS, "center": None, "spread": None}
        kept[name] = msgspec.structs.replace(used, **anew)
    if means := [name for name in cells if name in declared.reducers and declared.reducers[name].take == "mean"]:
        raise MethodError(
            f"column {means[0]!r} is the mean of numbers that are clipped to its bounds, so these must be declared; "
            "name other columns, or declare them"
        )
    reviewed = declared.reviewed or by_hand
    asked = declared.narrow(cells, reviewed=reviewed)
    budget = Budget.of(epsilon, delta)
    settings = BoundsSettings()
    threshold = find_threshold(choose_accounting(budget, asked, settings), asked)
    rows = asked.nominal_rows
    if rows is not None and rows < threshold:
        raise MethodError(
            f"a cell needs {_say_rows(threshold)} in order to stand out at {budget.words} for "
            f"{len(asked.columns)} columns, and the schema declares {rows} rows in all; nothing was spent. Use a "
            "larger epsilon or fewer columns, or declare bounds"
        )
    run["accept_draft"] = True  # what a draft is used for here, its choice of columns, the receipt warns of
    with open_run(source, asked, budget, STAGE, settings, knowledge=NO_KNOWLEDGE, run=run) as (prepared, curator):
        releases = curator.count_tables([(name,) for name in cells], Fraction(1), "bounds of numeric columns")
    seen = (
        read_counts(counts, column.cuts, start, threshold, coverage)
        for counts, column, start in zip(releases, cells.values(), starts.values(), strict=True)
    )
    found = tuple(column for column in seen if column is not None)
    if not found:
        raise EvidenceError(
            f"nothing stood out from the noise within 2^{EXPONENTS[-1]} of where the search starts, in "
            f"{_list_names(cells)}: a cell needs {_say_rows(threshold)} at {prepared.budget.words}. That is spent. "
            "Declare bounds, or search again with a larger epsilon or fewer columns."
        )
    filled = {column.column: _fill(kept[column.column], column) for column in found}
    unresolved = tuple(name for name in cells if name not in filled)
    dropped = [name for name in cells if declared.columns[name] != kept[name]]
    receipt = prepared.receipt(curator.events)
    named = " (named by hand, whatever a draft of the schema took them for)" if by_hand else ""
    facts = [f"the names of {len(cells)} numeric columns{named}, where their search starts, and powers of two"]
    facts += [fact for fact in receipt.public_facts if fact == "the number of rows"]
    return FoundBounds(
        schema=msgspec.structs.replace(declared, columns={**declared.columns, **({} if trusted else kept), **filled}),
        columns=found,
        unresolved=unresolved,
        threshold=threshold,
        findings=tuple(_describe_findings(found, filled, unresolved, threshold, () if trusted else dropped)),
        releases=releases,
        receipt=msgspec.structs.replace(receipt, public_facts=tuple(facts)),
    )


def load_open_schema(path: str | Path) -> schemas.Schema:
    """Read a schema.toml in which numeric columns may lack bounds; these get `UNKNOWN_BOUNDS`."""
    try:
        document = schemas.load_toml(path, SchemaError, "the schema", "check the path")
    except SchemaError:
        return schemas.load_schema(path)  # which says what is wrong
    columns = document.get("columns")
    for fields in columns.values() if isinstance(columns, dict) else ():
        if isinstance(fields, dict) and fields.get("kind") == "numeric":
            fields.setdefault("bounds", list(UNKNOWN_BOUNDS))
    return schemas.schema_from_toml(tomli_w.dumps(document))


def list_open_columns(schema: schemas.Schema) -> tuple[str, ...]:
    """Return the numeric columns whose bounds nobody has declared or found."""
    columns = schema.columns.items()
    return tuple(name for name, column in columns if isinstance(column, Numeric) and column.bounds == UNKNOWN_BOUNDS)


def choose_accounting(
    budget: Budget, schema: schemas.Schema, settings: BoundsSettings, knowledge: Knowledge = NO_KNOWLEDGE
) -> Filter:
    """Choose, from public facts alone, the accounting under which a cell needs fewer rows in order to count."""
    pure = PureFilter(budget)
    if budget.delta == 0:
        return pure
    gaussian = GaussianFilter(budget)
    return pure if find_threshold(pure, schema) <= find_threshold(gaussian, schema) else gaussian


def _choose_columns(schema: schemas.Schema, wanted: Sequence[str] | None, by_hand: bool) -> dict[str, Numeric]:
    """Return the columns to find bounds of; named by hand they are numeric, whatever a draft says about them."""
    numeric = {name: column for name, column in schema.columns.items() if isinstance(column, Numeric)}
    if wanted is None:
        wanted = list_open_columns(schema)
        if not wanted:
            raise SchemaError(
                f"none of the {len(numeric)} numeric columns of {schema.dataset!r} lacks bounds, so there is nothing "
                "to find; name columns whose bounds are to be found anew"
            )
    for name in wanted:
        if by_hand and name not in schema.columns:
            raise SchemaError(f"the schema has no column {name!r}; its columns are: {', '.join(schema.columns)}")
        if not by_hand and name not in numeric:
            raise SchemaError(
                f"{name!r} is no numeric column of the schema, so it has no bounds to find; its numeric columns are: "
                f"{', '.join(numeric) or 'none'}"
            )
    if not wanted:
        raise SchemaError("no column is named; name one, or leave the list out to find all that lack bounds")
    return {name: Numeric(bounds=UNKNOWN_BOUNDS) if by_hand else numeric[name] for name in dict.fromkeys(wanted)}


def _fill(kept: Numeric, found: ColumnBounds) -> Numeric:
    """Put what was found where nothing is declared; bounds are widened to hold the numbers that are."""
    edges = kept.bins if isinstance(kept.bins, tuple) else ()
    declared = [number for number in (kept.center, kept.missing, *edges) if isinstance(number, float)]
    return msgspec.structs.replace(
        kept,
        bounds=(min(found.bounds[0], *declared, math.inf), max(found.bounds[1], *declared, -math.inf)),
        center=found.center if kept.center is None else kept.center,
        spread=found.spread if kept.spread is None else kept.spread,
    )


def _describe_findings(
    found: Sequence[ColumnBounds],
    filled: Mapping[str, Numeric],
    unresolved: Sequence[str],
    threshold: float,
    dropped: Sequence[str],
) -> Iterator[str]:
    yield f"Cells with fewer than {_say_rows(threshold)} count as empty; what lies there beyond the bounds is clipped."
    if beyond := [column.column for column in found if column.beyond]:
        yield (
            f"Values of {_list_names(beyond)} lie more than 2^{EXPONENTS[-1]} from where the search starts: bounds end "
            "there. Look for infinities and for codes such as 1e300."
        )
    if vague := [name for name, column in filled.items() if column.spread is None]:
        yield (
            f"The cells are too wide to tell the spread of {_list_names(vague)}: values lie far from where the search "
            "starts. Declare a spread, or a center near their middle and find them anew."
        )
    if unresolved:
        yield (
            f"Nothing stood out from the noise within 2^{EXPONENTS[-1]} of where the search starts, in "
            f"{_list_names(unresolved)}: no bounds were found. Declare them, or search again with a larger epsilon."
        )
    if dropped:
        yield (
            "The schema is unreviewed, so bounds, bins, center, spread and missing that it had were not used, and are "
            f"gone, of {_list_names(dropped)}."
        )


def _say_rows(threshold: float) -> str:
    rows = math.ceil(threshold)
    return "1 row" if rows == 1 else f"{rows} rows"


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


# the stage as the ledger knows it. It finds no graph, so it is not among the methods to choose from
STAGE: Final = Method(
    "schema-bounds",
    "bounds of numeric columns by powers of two",
    None,
    "numeric",
    "one release",
    BoundsSettings,
    choose_accounting,
    check=lambda schema, knowledge: None,  # it takes every schema that it makes for itself
)

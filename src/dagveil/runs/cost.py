"""What a run will cost in time and memory, from public facts and constants of the machine, before any row is read.

The number of rows is the schema's nominal one: a forecast, or a refusal, must not depend on the rows.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, islice

from dagveil.data.column import Numeric
from dagveil.data.engine import Engine
from dagveil.data.machine import available_memory
from dagveil.data.products import bundle_columns, pays
from dagveil.data.schema import Schema
from dagveil.data.streams import HELD_BYTES
from dagveil.errors import MethodError
from dagveil.evidence.covariance import LEVELS_KEPT
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import plain_numbers
from dagveil.methods.measure import is_numeric, releases_mixed
from dagveil.methods.measure_features import MeasureFeaturesSettings
from dagveil.methods.measure_tables import pays_for_triples
from dagveil.methods.method import METHODS, Method
from dagveil.privacy.events import Filter, PureFilter
from dagveil.privacy.noise.kind import DEFAULT_NOISE, NoiseKind
from dagveil.runs.machine_speed import SEARCH_GROWTH, Speed

VARIED_SEARCHES = 4  # searches at neighbouring levels, beside the redraws
PROGRAM_BYTES = 270e6  # the program itself, with all that it imports for a run
OPENDP_BYTES = 65e6  # the library that noise comes from, if it is OpenDP's
CELL_BYTES = 120.0  # a released number, as an integer of Python, in the tables of the tests, and in the JSON
TABLE_BYTES = 1500.0  # a released table beside its numbers
TEXT_BYTES = 40.0  # a cell with levels while a file is read
NUMBER_BYTES = 40.0  # a number while a file is read
ROW_BYTES = 40.0  # a row while rows are reduced to the distinct ones
# copies of the covariance of indicators, or of the matrix of moments, that a search with redraws holds
BLOCK_COPIES = 8
FIXED_TABLES = 400  # what a run costs beside its tables, in tables: budgets, ledger, receipt
PRODUCT_BYTES = 24.0  # a product of two indicators: of one block of rows, of all rows, and as an integer
MOST_BUNDLED = 300  # tables by which the number of passes over the rows is guessed
STREAM_BYTES = 500e6  # batches of rows while these are streamed past, and the program that reads them
BATCH_BYTES = 300e6  # most bytes in the arrays of one batch of questions
PAIR_BYTES = 200.0  # bytes in these arrays for each pair of columns, both ways
# the same for redrawn evidence: with twice the noise more pairs look dependent, and more is asked about them
REDRAWN_PAIR_BYTES = 1e4


class Search(enum.Enum):
    """What kind of evidence is searched."""

    JOINT = "joint table"
    PAIRS = "pair tables"
    TRIPLES = "three-way tables"
    MATRIX = "moments"
    MIXED = "moments of levels beside numbers"


# a search takes so many times that over pairs of a chain of columns, which calibration times
SEARCH_WEIGHTS = {Search.JOINT: 0.9, Search.PAIRS: 0.9, Search.TRIPLES: 2.2, Search.MATRIX: 0.22, Search.MIXED: 2.0}


@dataclass(frozen=True, slots=True)
class Work:
    """The size of a run, in public numbers.

    `rows` are nominal, 0 if they are nowhere declared. `counted` are sets of columns whose tables are counted, `tables`
    and `cells` what is released, `features` numbers per row in a matrix of moments. `held` rows are in memory already.
    If `adaptive`, a first search over what was released chooses the later questions.
    """

    schema: Schema
    rows: int
    counted: Sequence[tuple[str, ...]]
    tables: int
    cells: int
    features: int
    search: Search
    redraws: int
    noise: NoiseKind = DEFAULT_NOISE
    held: bool = False
    adaptive: bool = False
    engine: Engine = Engine.MEMORY


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: processor seconds, and the most bytes that it holds."""

    name: str
    seconds: float
    memory: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The steps of a run."""

    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """Processor seconds of all steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def memory(self) -> float:
        """The most bytes that are held at once."""
        return max(step.memory for step in self.steps)


def estimate_cost(work: Work, speed: Speed) -> Cost:
    """Foresee time and memory."""
    columns = work.schema.columns.values()
    width = len(work.schema.columns)
    numbers = sum(isinstance(column, Numeric) for column in columns)
    texts = width - numbers
    read = 0.0 if work.held else work.rows * (texts * speed.read_cell + numbers * speed.read_number)
    read_bytes = 0.0 if work.held else work.rows * (texts * TEXT_BYTES + numbers * NUMBER_BYTES)
    held = 0.0 if work.held else work.rows * (width + 8.0 * numbers)
    count, count_bytes = _count_cost(work, speed)
    if work.engine is not Engine.MEMORY:
        # rows are streamed past, and what is held of them has a limit
        read_bytes, held, count_bytes = STREAM_BYTES, 0.0, STREAM_BYTES + min(count_bytes, HELD_BYTES)
    draw = speed.draw if work.noise is NoiseKind.OPENDP else speed.exact_draw
    release = work.cells * draw + (FIXED_TABLES + work.tables) * speed.table
    # the size of the matrix that a search works on
    block = float(sum(min(column.n_levels, LEVELS_KEPT) - 1 for column in columns))
    if work.search in (Search.MATRIX, Search.MIXED):
        block = float(work.features)
    one = SEARCH_WEIGHTS[work.search] * speed.search * float(width**SEARCH_GROWTH) + speed.moment * block**2 * 100
    release += one if work.adaptive else 0.0
    # a search over redrawn evidence takes as long as the first one
    again = work.redraws * (one + speed.eigen * block**3) + (VARIED_SEARCHES * one if work.redraws else 0)
    released = work.cells * CELL_BYTES + work.tables * TABLE_BYTES
    # float64 copies; a joint table is searched cell by cell
    matrix = 8.0 * (block**2 + (work.cells if work.search is Search.JOINT else 0)) * BLOCK_COPIES
    batch, redrawn = (min(BATCH_BYTES, each * width**2) for each in (PAIR_BYTES, REDRAWN_PAIR_BYTES))
    program = PROGRAM_BYTES + (OPENDP_BYTES if work.noise is NoiseKind.OPENDP else 0.0)
    return Cost(
        (
            Step("starting", speed.start, program),
            Step("reading", read, program + read_bytes),
            Step("counting", count, program + held + count_bytes),
            Step("noise", release, program + held + released),
            Step("searching", one, program + released + matrix / 2 + batch),
            Step("redrawing", again, program + released + (matrix + redrawn if work.redraws else matrix / 2 + batch)),
        )
    )


def _count_cost(work: Work, speed: Speed) -> tuple[float, float]:
    """Return seconds and bytes of the pass that makes rows distinct, of the passes that count, and of moments."""
    width = len(work.schema.columns)
    seconds, most = 0.0, 0.0
    if work.features:
        seconds += work.rows * work.features * (speed.quantise + work.features * speed.moment)
        most = 8.0 * 4096 * work.features * 4
    if not work.counted:
        return seconds, most
    levels = {name: column.n_levels for name, column in work.schema.columns.items()}
    domain = math.prod(levels.values())
    seconds += work.rows * (width * speed.row_cell + (speed.row if domain > 2**18 else 0.0))
    distinct = domain if 2 * domain <= work.rows else work.rows
    most = max(most, 0.0 if work.held else work.rows * ROW_BYTES)
    pairs = [columns for columns in work.counted if len(columns) == 2]
    others = [columns for columns in work.counted if len(columns) != 2]
    if pays(pairs, levels, distinct):
        # one indicator for each level but the first of a column
        indicators = sum(levels.values()) - width
        seconds += distinct * indicators**2 * speed.moment
        most = max(most, PRODUCT_BYTES * indicators**2)
    else:
        seconds += distinct * _passes(pairs, levels, distinct) * speed.count_cell
    return seconds + distinct * _passes(others, levels, distinct) * speed.count_cell, most


def _passes(counted: Sequence[tuple[str, ...]], levels: Mapping[str, int], distinct: int) -> float:
    """Return how many columns the passes over distinct rows read in all.

    How tables share passes is worked out for some of them only: more would take longer than the forecast is worth.
    """
    some = counted[-MOST_BUNDLED:]
    bundles = bundle_columns(some, levels, n_rows=distinct)
    return sum(len(bundle.columns) for bundle in bundles) * len(counted) / max(len(some), 1)


def describe_bytes(number: float) -> str:
    """Write a number of bytes for people."""
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def describe_seconds(number: float) -> str:
    """Write seconds for people."""
    if number < 60:
        return f"{number:.2g} s"
    return f"{number / 60:.2g} min" if number < 3600 else f"{number / 3600:.3g} h"


SPARED = 0.9  # share of the available memory that a run may plan for


def check_fits(work: Work, speed: Speed, available: float | None = None) -> Cost:
    """Refuse a run that cannot fit into memory, and say what would."""
    cost = estimate_cost(work, speed)
    room = available_memory() if available is None else available
    if room is None or cost.memory <= SPARED * room:
        return cost
    worst = max(cost.steps, key=lambda step: step.memory)
    raise MethodError(
        f"this run would need about {describe_bytes(cost.memory)} of memory for {worst.name}, and "
        f"{describe_bytes(room)} are available. {suggest(work, speed, SPARED * room)}"
    )


def suggest(work: Work, speed: Speed, room: float) -> str:
    """Say what would fit: less confidence, smaller tables, fewer columns, fewer rows at a time."""

    def fits(smaller: Work) -> bool:
        return estimate_cost(smaller, speed).memory <= room

    found = []
    if work.redraws and fits(replace(work, redraws=0)):
        found.append("leave out redraws (--redraws 0)")
    if work.search is Search.TRIPLES:
        few = [columns for columns in work.counted if len(columns) < 3]
        cells = _count_cells(work.schema, few)
        if fits(replace(work, counted=few, tables=len(few), cells=cells, search=Search.PAIRS)):
            found.append("leave out three-way tables (--tables pairs)")
    low, high = 2, len(work.schema.columns)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(_keep_columns(work, middle)) else (low, middle - 1)
    if fits(_keep_columns(work, low)):
        found.append(f"keep about {low} of the {len(work.schema.columns)} columns, or group levels")
    if not work.held and work.engine is Engine.MEMORY and fits(replace(work, engine=Engine.DUCKDB)):
        found.append("let another engine than memory count the rows where they are (--engine duckdb)")
    return f"What would fit: {'; '.join(found)}." if found else "Nothing smaller would fit; use a larger machine."


def _count_cells(schema: Schema, sets: Iterable[Sequence[str]]) -> int:
    return sum(math.prod(schema.columns[name].n_levels for name in columns) for columns in sets)


def _keep_columns(work: Work, kept: int) -> Work:
    """Return the work on the first columns only, all else in proportion."""
    names = list(work.schema.columns)[:kept]
    share = kept / len(work.schema.columns)
    schema = Schema(dataset="part", columns={name: work.schema.columns[name] for name in names})
    counted = [columns for columns in work.counted if {*columns} <= {*names}] or [tuple(names)] * bool(work.counted)
    tables = share ** min(max((len(columns) for columns in work.counted), default=2), 3)
    return replace(
        work,
        schema=schema,
        counted=counted,
        tables=int(work.tables * tables) + 1,
        cells=_count_cells(schema, [names]) if work.search is Search.JOINT else int(work.cells * tables),
        features=int(work.features * share),
    )


SECOND_ROUND = Fraction(3, 8)  # share of the budget that `measure` spends on what its first rounds recommend
TRIPLES_PER_COLUMN = 4  # three-way tables that its first rounds recommend, about, per column


def work_of_reading(schema: Schema) -> Work:
    """Return the size of a run whose questions are not known: what is certain is that its rows are read."""
    return Work(schema, schema.nominal_rows or 0, [], 0, 0, 0, Search.PAIRS, 0)


def work_of_run(
    schema: Schema, method: Method, accounting: Filter, settings: object, knowledge: Knowledge, *, redraws: int = 0
) -> Work:
    """Return the size of a run that follows no plan file: about, since its later questions follow from answers."""
    rows = schema.nominal_rows or 0
    names = tuple(schema.columns)
    if method.release is None or method.name not in METHODS:
        return work_of_reading(schema)
    if isinstance(accounting, PureFilter):
        return Work(schema, rows, [names], 1, _count_cells(schema, [names]), 0, Search.JOINT, redraws)
    mixed = releases_mixed(method.name, settings, schema, accounting.budget, knowledge)
    numbers = plain_numbers(schema)
    moments = (is_numeric(schema) and not mixed) or method.name == "measure-notears"
    if moments or mixed:
        levels = sum(column.n_levels for name, column in schema.columns.items() if name not in numbers)
        degree = (settings.degree or 2) if isinstance(settings, MeasureFeaturesSettings) else 1
        # of levels beside numbers there are about two features of each number
        size = 1 + (len(names) * degree if moments else levels + 2 * len(numbers))
        search = Search.MATRIX if moments else Search.MIXED
        return Work(schema, rows, [], 1, size * (size + 1) // 2, size, search, redraws)
    pairs = [pair for pair in combinations(names, 2) if not knowledge.excludes(*pair)]
    counted: list[tuple[str, ...]] = [*((name,) for name in names), *pairs]
    triples = list(islice(combinations(names, 3), TRIPLES_PER_COLUMN * len(names)))
    triple = pays_for_triples(schema, triples, SECOND_ROUND, [(accounting.budget, max(rows, 1))])
    cells = _count_cells(schema, [*counted, *(triples if triple else ())])
    search = Search.TRIPLES if triple else Search.PAIRS
    return Work(schema, rows, counted, len(counted), cells, 0, search, redraws, adaptive=True)

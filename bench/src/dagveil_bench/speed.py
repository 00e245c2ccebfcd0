"""How fast a whole private run is, beside non-private peers on the same rows in the same process.

Seconds are processor seconds of whole runs, and seconds by the clock for loading, which uses all cores. They depend on
the machine; ratios of the same run are what counts. Nothing here asserts a time.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dagveil.data.column import Categorical
from dagveil.data.engine import Engine
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import discover
from dagveil.search.constraint.pc import Traversal, prune
from dagveil.search.settings import SearchSettings
from dagveil_bench.exact_searches import chi_square
from dagveil_bench.peers import import_peer, keep_quiet
from dagveil_bench.tables import write_table

Codes = dict[str, NDArray[np.uint8]]

# networks and rows of the comparison with peers
CASES = {"asia": 100_000, "sachs": 100_000, "child": 100_000, "alarm": 10_000}
LEVEL = 0.01  # level of the χ² tests that are not private
EXACT_PC = "exact PC of dagveil, χ², not private"  # our own PC on exact counts
LONG = 5.0  # a try that takes more seconds than this is not repeated in the same turn
ROUNDS = 3  # programs take so many turns, so that a slow spell of the machine meets all of them
LARGEST_ORDER = 3  # its largest conditioning set


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one program on one case: the best of several tries."""

    case: str
    program: str
    seconds: float


def time_runs(tries: int, epsilon: float, told: Progress, cases: Sequence[str] = tuple(CASES)) -> list[Timing]:
    """Time our private run with both noise sources, our exact PC, and the peers' non-private PC, on the same rows.

    Each program is tried so often, if that does not take long; the best try counts. Cases are networks among `CASES`.
    """
    programs: dict[str, Callable[[str, Codes], Callable[[], object]]] = {
        "dagveil, OpenDP noise": lambda name, codes: _ours(name, codes, epsilon, NoiseKind.OPENDP),
        "dagveil, exact noise": lambda name, codes: _ours(name, codes, epsilon, NoiseKind.EXACT),
        EXACT_PC: _exact_pc,
        "causal-learn PC, χ²": _causal_learn,
        "pgmpy PC, χ²": _pgmpy,
    }
    timings = []
    for i, name in enumerate(cases):
        rows = CASES[name]
        codes = sample_codes(load_network(name), rows, np.random.default_rng(1))
        runs = {program: prepare(name, codes) for program, prepare in programs.items()}

        def tell(done: int, first: int = i * ROUNDS) -> None:
            told("timing", first + done, len(cases) * ROUNDS)

        best = _best_in_turn(runs, tries, tell)
        timings += [Timing(f"{name}, {rows} rows", program, seconds) for program, seconds in best.items()]
    return timings


def loading_schema(rows: int, columns: int) -> Schema:
    """Declare columns of two to five levels, for files whose reading is timed."""
    levels = {f"c{i}": tuple(f"level {k}" for k in range(2 + i % 4)) for i in range(columns)}
    return Schema(
        dataset="loading",
        reviewed=True,
        public=True,
        nominal_rows=rows,
        columns={name: Categorical(texts, texts[0]) for name, texts in levels.items()},
    )


def draw_loading_rows(schema: Schema, rows: int, rng: np.random.Generator) -> pa.Table:
    """Draw rows whose columns depend on a few hidden ones, as those of real tables do."""
    hidden = rng.integers(0, 4, size=(3, rows), dtype=np.uint8)
    data = {}
    for i, (name, column) in enumerate(schema.columns.items()):
        assert isinstance(column, Categorical)
        code = np.where(rng.random(rows) < 0.12, rng.integers(0, 5, rows, dtype=np.uint8), hidden[i % 3])
        data[name] = pa.DictionaryArray.from_arrays(pa.array(code % len(column.levels)), pa.array(column.levels))
    return pa.table(data)


def time_loading(rows: int, columns: int, tries: int) -> list[Timing]:
    """Time reading a Parquet file into Arrow, reading it with all pair tables counted, and a whole private run."""
    schema = loading_schema(rows, columns)
    names = list(schema.columns)
    case = f"{rows} rows × {columns} columns"
    pairs = list(combinations(names, 2))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        parquet.write_table(draw_loading_rows(schema, rows, np.random.default_rng(1)), path)
        find = partial(discover, path, schema, 1.0, 1e-6, settings=SearchSettings(redraws=0), ledger=None)
        load = partial(MemoryTable.from_source, path, schema)
        runs: dict[str, Callable[[], object]] = {
            "read the file into Arrow": lambda: parquet.read_table(path),
            f"load and count {len(pairs)} pair tables": lambda: load().counts_many(pairs),
            "from the file to the graph": partial(find, noise=NoiseKind.EXACT, engine=Engine.MEMORY),
        }
        best = _best_in_turn(runs, tries, lambda _: None, time.perf_counter)
        return [Timing(case, program, seconds) for program, seconds in best.items()]


def _ours(name: str, codes: Codes, epsilon: float, noise: NoiseKind) -> Callable[[], object]:
    schema = network_schema(load_network(name), len(next(iter(codes.values()))))
    settings = SearchSettings(redraws=0)
    return lambda: discover(
        MemoryTable.from_codes(codes, schema), schema, epsilon, 1e-6, settings=settings, noise=noise, ledger=None
    )


def _exact_pc(name: str, codes: Codes) -> Callable[[], object]:
    schema = network_schema(load_network(name), len(next(iter(codes.values()))))

    def run() -> object:
        table = MemoryTable.from_codes(codes, schema)
        return prune(
            tuple(schema.columns),
            lambda question: chi_square(table.counts((*question[:2], *question[2]))) > LEVEL,
            LARGEST_ORDER,
            NO_KNOWLEDGE,
            Traversal.ONCE,
        )

    return run


def _causal_learn(name: str, codes: Codes) -> Callable[[], object]:
    pc = import_peer("causallearn.search.ConstraintBased.PC").pc
    rows = np.column_stack(list(codes.values())).astype(np.int64)
    return lambda: pc(rows, LEVEL, "chisq", show_progress=False)


def _pgmpy(name: str, codes: Codes) -> Callable[[], object]:
    peer = import_peer("pgmpy.causal_discovery").PC
    frame = import_peer("pandas").DataFrame(codes).astype("category")
    return lambda: peer(ci_test="chi_square", significance_level=LEVEL, show_progress=False, n_jobs=1).fit(frame)


def _best_in_turn(
    runs: Mapping[str, Callable[[], object]],
    tries: int,
    told: Callable[[int], None],
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Return the seconds of each program's best try; they take turns of a few tries, a long one of one try."""
    best = dict.fromkeys(runs, math.inf)
    for number in range(ROUNDS):
        for program, run in runs.items():
            best[program] = min(best[program], time_best(run, -(-tries // ROUNDS), clock))
        told(number + 1)
    return best


def time_best(run: Callable[[], object], tries: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the best try, after one that does not count; the first long one is the last.

    Processor seconds, because other work on the machine changes them little.
    """
    best = math.inf
    with keep_quiet():
        for number in range(tries + 1):
            start = clock()
            run()
            spent = clock() - start
            if number or spent > LONG:
                best = min(best, spent)
            if spent > LONG:
                break
    return best


def describe_ratio(ratio: float) -> str:
    """Write how many times longer something takes."""
    return f"{ratio:.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"


def compare_timings(timings: Sequence[Timing]) -> tuple[str, str]:
    """Write a table of seconds, and one of how many times longer each peer takes than each of ours."""
    cases = list(dict.fromkeys(timing.case for timing in timings))
    programs = list(dict.fromkeys(timing.program for timing in timings))
    seconds = {(timing.case, timing.program): timing.seconds for timing in timings}
    ours = [program for program in programs if program.startswith("dagveil")]
    ratios = [
        (f"{peer} / {mine}", *(describe_ratio(seconds[case, peer] / seconds[case, mine]) for case in cases))
        for mine in ours
        for peer in programs
        if peer not in ours
    ]
    rows = [(program, *(f"{seconds[case, program]:.3f} s" for case in cases)) for program in programs]
    return write_table(("program", *cases), rows), write_table(("ratio", *cases), ratios)


def speed_page(runs: Sequence[Timing], loading: Sequence[Timing], command: str) -> str:
    """Write the page of a speed comparison: seconds, and how many times slower each peer is."""
    plain, *others = loading
    loads = [
        (plain.program, f"{plain.seconds:.2f}", "1"),
        *((other.program, f"{other.seconds:.2f}", f"{other.seconds / plain.seconds:.2f}") for other in others),
    ]
    return "\n\n".join(
        [
            "# Speed",
            "Whole runs on the same rows in one process, best of several tries: ours counts, draws noise, searches "
            "and orients under differential privacy; the peers run their non-private PC with the χ² test, and so does "
            "dagveil's own exact PC, one question at a time and without arrows. Seconds are processor seconds. They "
            "depend on the machine, ratios less, if nothing else runs on it. Written by",
            f"    {command}",
            *compare_timings(runs),
            "## Loading",
            "Dictionary-encoded Parquet, as `pyarrow.parquet.read_table` reads it, against reading it and counting "
            "every pair of columns, and against a whole private run with the memory engine. Seconds by the clock.",
            write_table((plain.case, "seconds", "ratio"), loads),
        ]
    )

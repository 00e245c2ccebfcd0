"""Real tables of public packages with schemas reviewed by hand, and the graphs of non-private PC on them.

The rows ship in the packages pydataset and causaldata and are read from there without importing them; nothing is
fetched. Nobody knows the true graphs: PC of causal-learn on the same rows stands in, a peer and not the truth. It takes
minutes on wide tables, so its graphs are kept in the user's cache folder, by a digest of rows and schema.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from io import BytesIO, StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray
from pyarrow import csv

from dagveil.data.column import Numeric
from dagveil.data.encoding import EncodedColumns, encode
from dagveil.data.memory import MemoryTable
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema, schema_from_toml
from dagveil.errors import DataError, MethodError, MissingExtraError
from dagveil.methods.measure import is_numeric
from dagveil.runs.machine_speed import speed_path
from dagveil_bench.local_data import folder_of
from dagveil_bench.peers import import_peer, missing_peer

Pair = frozenset[str]
_Pairs = frozenset[Annotated[Pair, msgspec.Meta(min_length=2, max_length=2)]]

STRICT: Final = 1e-4  # level of the reference that graphs are scored against
LOOSE: Final = 0.01  # level of the second reference, for information
SMALL: Final = 2
"""Columns in a set of the third, as many as `measure` conditions on: larger ones leave χ² few rows in a cell."""

PLAIN: Final = "-numbers"  # ends the names of tables whose numbers have no bins; a missing number is then the center
_PEOPLE: Final = 6000  # nominal number of people in the health panel


@dataclass(frozen=True, slots=True)
class TrustTable:
    """A table as its schema reads it. Holds rows."""

    name: str
    schema: Schema
    rows: EncodedColumns

    def __repr__(self) -> str:
        return f"TrustTable({self.name!r})"

    @property
    def test(self) -> str:
        """Causal-learn's name of the test that suits the table: Fisher's z for numbers, otherwise χ² on the codes."""
        return "fisherz" if is_numeric(self.schema) else "chisq"

    def open(self) -> MemoryTable:
        """Return the table as it is."""
        return MemoryTable(self.rows, self.schema)

    def shuffle(self, rng: np.random.Generator) -> TrustTable:
        """Return the table with every column in an order of its own: nothing depends on anything."""
        orders = {name: rng.permutation(self.rows.n_rows) for name in self.rows.codes}
        codes = {name: array[orders[name]] for name, array in self.rows.codes.items()}
        values = {name: array[orders[name]] for name, array in self.rows.values.items()}
        return TrustTable(self.name, self.schema, EncodedColumns(self.rows.n_rows, codes, values))

    def array(self) -> NDArray[np.float64]:
        """Return what the reference tests: numbers or codes, one column for each column of the schema."""
        columns = self.rows.values if self.test == "fisherz" else self.rows.codes
        return np.stack([columns[name].astype(np.float64) for name in self.schema.columns], axis=1)

    def digest(self) -> str:
        """Return a digest of rows and schema."""
        digest = hashlib.sha256(self.schema.digest().encode())
        digest.update(np.ascontiguousarray(self.array()).tobytes())
        return digest.hexdigest()


def read_table(path: str | Path, schema: Schema) -> TrustTable:
    """Read a table of one's own, whole, into memory."""
    coded = [name for name, column in schema.columns.items() if not isinstance(column, Numeric)]
    return TrustTable(schema.dataset, schema, encode(read_source(path, list(schema.columns), coded=coded), schema))


def load_table(name: str) -> TrustTable:
    """Return one of the tables of public packages, by name."""
    if name not in TABLES:
        raise MethodError(f"no table is called {name!r}; choose from {', '.join(TABLES)}")
    rows = TABLES[name]()
    whole = name.removesuffix(PLAIN)
    # people are the panel's last interviews: the same columns, fewer rows
    known = read_schema("visits" if whole == "patients" else whole)
    schema = replace(known, dataset=name, nominal_rows=_PEOPLE) if whole == "patients" else known
    if name.endswith(PLAIN):
        bare = {
            key: replace(column, bins=None, missing=None) if isinstance(column, Numeric) else column
            for key, column in schema.columns.items()
        }
        schema = replace(schema, dataset=name, columns=bare)
    return TrustTable(name, schema, encode(rows.select(list(schema.columns)), schema))


def read_schema(name: str) -> Schema:
    """Return the reviewed schema of a table."""
    place = files("dagveil_bench") / "data" / "trust" / f"{name}.toml"
    return schema_from_toml(place.read_text(encoding="utf-8"))


def _read_r(folder: str, name: str) -> pa.Table:
    """Read a table of an R package out of pydataset's archive."""
    archive = _folder_of("pydataset") / "resources.tar.gz"
    with tarfile.open(archive) as bundle:
        member = bundle.extractfile(f"resources/rdata/csv/{folder}/{name}.csv")
        if member is None:
            raise DataError(f"{archive} holds no table {name}; install pydataset 0.2 or later")
        return csv.read_csv(BytesIO(member.read()))


def _read_visits() -> pa.Table:
    names = {
        "female": "female",
        "age": "age",
        "married": "married",
        "kids": "children",
        "edlevel": "schooling",
        "educ": "years_of_education",
        "outwork": "out_of_work",
        "self": "self_employed",
        "hhninc": "income",
        "docvis": "doctor_visits",
        "hospvis": "hospital_stays",
        "year": "year",
        "id": "id",
    }
    return _read_r("COUNT", "rwm5yr").select(list(names)).rename_columns(list(names.values()))


def _read_patients() -> pa.Table:
    visits = _read_visits()
    last = visits.group_by("id").aggregate([("year", "max")]).rename_columns(["id", "year"])
    return last.join(visits, ["id", "year"], join_type="inner").sort_by("id")


def _read_flchain() -> pa.Table:
    table = _read_r("survival", "flchain")
    names = {"mgus": "gammopathy", "futime": "followup_days", "death": "died", "sample.yr": "sample_year"}
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def _read_nhefs() -> pa.Table:
    pandas = import_peer("pandas", "tables")
    return pa.Table.from_pandas(
        pandas.read_stata(_folder_of("causaldata") / "nhefs" / "nhefs.dta"), preserve_index=False
    )


def _folder_of(package: str) -> Path:
    try:
        return folder_of(package)
    except MissingExtraError:
        raise missing_peer(package, "tables") from None


TABLES: Final[Mapping[str, Callable[[], pa.Table]]] = MappingProxyType(
    {
        "visits": _read_visits,
        "patients": _read_patients,
        "flchain": _read_flchain,
        "nhefs-numeric": _read_nhefs,
        "nhefs-categorical": _read_nhefs,
        "bfi": partial(_read_r, "psych", "bfi"),
        f"flchain{PLAIN}": _read_flchain,
        f"patients{PLAIN}": _read_patients,
    }
)
"""The tables by name, with what reads their rows."""


class Reference(msgspec.Struct, frozen=True):
    """Adjacent pairs that non-private PC finds: at the strict level, at the loose one, and strictly with small sets."""

    strict: _Pairs
    loose: _Pairs
    small: _Pairs


def find_reference(table: TrustTable, folder: Path) -> Reference:
    """Return the reference of a table from a folder, or compute it and keep it there."""
    path = folder / f"{table.digest()[:32]}.json"
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Reference)
    except (OSError, msgspec.MsgspecError):
        kept = Reference(run_pc(table, STRICT), run_pc(table, LOOSE), run_pc(table, STRICT, SMALL))
        # another process may be writing the same reference
        part = path.with_suffix(f".{os.getpid()}")
        part.touch(mode=0o600)  # it tells of exact rows
        part.write_bytes(msgspec.json.encode(kept))
        part.replace(path)
    return kept


def reference_folder() -> Path:
    """Return the folder in the user's cache where references are kept."""
    folder = speed_path().parent / "trust"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot make {folder}: {error.strerror}; set XDG_CACHE_HOME to a folder you may write"
        ) from error
    return folder


def run_pc(table: TrustTable, level: float, largest: int = -1) -> frozenset[Pair]:
    """Return the skeleton of causal-learn's stable PC, with sets of any size or of at most `largest` columns.

    A column that never changes has no edges.
    """
    skeleton = import_peer("causallearn.utils.FAS", "tables").fas
    test = import_peer("causallearn.utils.cit", "tables").CIT
    node = import_peer("causallearn.graph.GraphNode", "tables").GraphNode
    rows, names = table.array(), tuple(table.schema.columns)
    moving = [j for j, column in enumerate(rows.T) if column.size and column.min() < column.max()]
    if len(moving) < 2:
        return frozenset()
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        nodes = [node(names[j]) for j in moving]
        moved = rows[:, moving]
        found = skeleton(moved, nodes, test(moved, table.test), level, depth=largest, show_progress=False)[0].graph
    ends = zip(*np.nonzero(np.triu((found != 0) | (found.T != 0), 1)), strict=True)
    return frozenset(frozenset((names[moving[i]], names[moving[j]])) for i, j in ends)


def strength(table: TrustTable, pair: Pair) -> float:
    """Return the marginal χ² of two columns; for numbers the size of their correlation."""
    first, second = sorted(pair)
    if table.test == "fisherz":
        x, y = table.rows.values[first], table.rows.values[second]
        return float(abs(np.corrcoef(x, y)[0, 1])) if x.std() and y.std() else 0.0
    counts = table.open().counts((first, second)).astype(np.float64)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(1.0, counts.sum())
    return float(((counts - expected) ** 2 / expected).sum())


def strongest(table: TrustTable, pairs: frozenset[Pair], most: int) -> tuple[Pair, ...]:
    """Return the pairs with the largest marginal dependence, strongest first."""
    return tuple(sorted(pairs, key=lambda pair: (-strength(table, pair), sorted(pair)))[:most])

"""The schema: what is publicly known about a data set before anyone looks at it.

How a delimited file is written is declared, too, and found by drafts from the first lines of a file. A run never looks
at rows to find out how to read them: one record could change how all others are read.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import os
import re
import tomllib
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import tomli_w

from dagveil.data.column import PAIRWISE, Column, Numeric
from dagveil.data.records import RECORD_KEYS, Reducer, check_records
from dagveil.errors import DagveilError, DataError, SchemaError

SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMALS: Final = (".", ",")
ENCODINGS: Final = ("utf-8", "latin-1", "cp1252")
FIRST_LINES: Final = 1000  # lines that a draft looks at
_LONGEST_LINE: Final = 2**20
_SHARE_OF_LINES: Final = 0.9
_COMMA_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*", re.ASCII)
_POINT_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+\.[0-9]+\s*", re.ASCII)
_DIGITS_AND_MARKS: Final = r"^\s*[+-]?[0-9.,]*(?:[eE][+-]?[0-9]+)?\s*$"


class FileLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a delimited file is written. Other sources have types and encodings of their own, and do not ask."""

    separator: str | None = None  # one of SEPARATORS; None means a comma, or a tab in a .tsv file
    decimal: str = "."  # a point or a comma; the other one makes a text that is no number
    encoding: str = "utf-8"  # one of ENCODINGS; utf-8 with or without a byte order mark

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator not in SEPARATORS:
            raise SchemaError(f"file.separator is {self.separator!r}; write one of {', '.join(map(repr, SEPARATORS))}")
        if self.decimal not in DECIMALS:
            raise SchemaError(f'file.decimal is {self.decimal!r}; write "." or ","')
        if self.encoding not in ENCODINGS:
            raise SchemaError(f"file.encoding is {self.encoding!r}; write one of {', '.join(ENCODINGS)}")
        if self.decimal == "," and self.separator == ",":
            raise SchemaError("file: a comma cannot separate cells and stand in numbers; declare another separator")

    @property
    def words(self) -> str:
        """What differs from an ordinary CSV file, in words; empty if nothing does."""
        facts = [] if self.separator is None else [f"{SEPARATORS[self.separator]} between cells"]
        facts += ["a comma in numbers"] if self.decimal == "," else []
        facts += [] if self.encoding == "utf-8" else [f"encoded as {self.encoding}"]
        return ", ".join(facts)

    def separator_of(self, path: Path) -> str:
        """Give the separator of a file, by declaration and name alone."""
        return self.separator or usual_separator(path)

    def open_text(self, path: Path) -> IO[Any]:
        """Open a file as text, a byte order mark aside."""
        opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        opened: IO[Any] = opener(path, "rt", encoding=encoding, newline="")
        return opened

    def read_marks(self, cells: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Write numbers with a decimal comma as all others write them, each cell by itself; words stay as they are."""
        if self.decimal == ".":
            return cells
        # a point becomes a mark that no number has: 1.234 could be a thousand or one and a bit
        written = pc.replace_substring(pc.replace_substring(cells, ".", "_"), ",", ".")
        return pc.if_else(pc.match_substring_regex(cells, _DIGITS_AND_MARKS), written, cells)


PLAIN_LAYOUT: Final = FileLayout()  # what a file is unless something else is declared


def usual_separator(path: Path) -> str:
    """Give the separator that the name of a file promises."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def is_delimited(path: Path) -> bool:
    """Tell whether a file is delimited text, by its name alone."""
    return path.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))


def find_layout(
    path: Path, separator: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> FileLayout:
    """Find out, for a draft, how a file is written from its first lines; what is given is not looked for."""
    layout = FileLayout(separator=separator, encoding=encoding or "utf-8", decimal=decimal or ".")
    lines = list(_read_lines(path, layout))
    if separator is None:
        found = max(SEPARATORS, key=lambda mark: (_count_columns(lines, mark), mark == usual_separator(path)))
        separator = None if found == usual_separator(path) else found
    layout = msgspec.structs.replace(layout, separator=separator, decimal=".")
    mark = layout.separator_of(path)
    if len(next(csv.reader(lines[:1], delimiter=mark), [])) < 2:
        raise DataError(
            f"{path.name} has one column only if {SEPARATORS[mark]} stand between cells, and a graph needs two: give "
            f"the right separator (--separator, in Python separator=): one of {', '.join(map(repr, SEPARATORS))}. "
            "Nothing was written"
        )
    if decimal is None:
        decimal = "," if mark != "," and _has_comma_numbers(lines, mark) else "."
    return msgspec.structs.replace(layout, decimal=decimal)


def _read_lines(path: Path, layout: FileLayout) -> Iterator[str]:
    try:
        with layout.open_text(path) as file:
            pieces = iter(lambda: file.readline(_LONGEST_LINE), "")
            yield from itertools.islice((line for line in pieces if line.strip()), FIRST_LINES)
    except UnicodeDecodeError:
        raise encoding_error(path) from None
    except (OSError, EOFError, zlib.error):
        raise DataError(f"the first lines of {path.name} cannot be read; check that the file is complete") from None


def _split_lines(lines: list[str], mark: str) -> list[list[str]]:
    """Return the cells of each line; none if a mark cannot separate them."""
    try:
        return [row for row in csv.reader(lines, delimiter=mark) if row]
    except csv.Error:
        return []


def _count_columns(lines: list[str], mark: str) -> int:
    """Count the columns of a separator; one if the lines do not agree on their number."""
    widths = [len(row) for row in _split_lines(lines, mark)]
    agreed = sum(width == widths[0] for width in widths) if widths else 0
    return widths[0] if agreed >= _SHARE_OF_LINES * len(widths) and agreed else 1


def _has_comma_numbers(lines: list[str], mark: str) -> bool:
    cells = [cell for row in _split_lines(lines, mark)[1:] for cell in row]
    forms = (_COMMA_NUMBER, _POINT_NUMBER)
    commas, points = (sum(form.fullmatch(cell) is not None for cell in cells) for form in forms)
    return commas > points


def encoding_error(path: Path) -> DataError:
    """Say that a file is not UTF-8, and what to do."""
    return DataError(
        f'{path.name} is not encoded as UTF-8, or as declared; write encoding = "cp1252" (Windows) or "latin-1" under '
        "[file] in the schema, or give a draft --encoding; or convert the file, for example with "
        f"`iconv -f CP1252 -t UTF-8 {path.name} > utf8-{path.name}`"
    )


MOST_CHARACTERS: Final = 16 * 2**20  # a schema of thousands of columns is smaller
MOST_PARTS: Final = 64  # parts of a dotted key: the parser's time grows with their square
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'[^']*'")
_BETWEEN_KEYS: Final = re.compile(r"[,={}\[\]#]")


def parse_toml(text: str, error: type[DagveilError], what: str) -> dict[str, Any]:
    """Return a TOML document, or raise an error of the given kind that says what is wrong with it."""
    if len(text) > MOST_CHARACTERS:
        raise error(f"{what} has {len(text)} characters, and at most {MOST_CHARACTERS} are read; make it shorter")
    for number, line in enumerate(text.split("\n"), start=1):
        pieces = _BETWEEN_KEYS.split(_QUOTED.sub("", line)) if line.count(".") >= MOST_PARTS else ()
        if any(piece.count(".") >= MOST_PARTS for piece in pieces):
            raise error(f"line {number} of {what} has a key of more than {MOST_PARTS} parts; write it with fewer dots")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise error(f"{what} is not valid TOML: {problem}") from None
    except RecursionError:
        raise error(f"{what} has too many brackets within each other; write it flatter") from None
    except ValueError:
        raise error(f"{what} has a number with more digits than can be read; write a shorter one") from None


def load_toml(path: str | Path, error: type[DagveilError], what: str, hint: str) -> dict[str, Any]:
    """Read a TOML file; `hint` says what a readable one holds, or where it comes from."""
    return parse_toml(read_text(path, error, what, hint), error, f"{what} in {path}")


def read_text(path: str | Path, error: type[DagveilError], what: str, hint: str) -> str:
    """Return the text of a file, of which no more is read than is ever parsed."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return file.read(MOST_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise error(f"{what} in {path} is not encoded as UTF-8; save it as UTF-8") from None
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "this is no path"
        raise error(f"cannot read {path}: {reason}; {hint}") from problem


RELATIONS: Final = ("add-remove", "replace-one")  # the neighbouring relations that a schema may name
MOST_ROWS: Final = 10**15  # rows that a schema may declare
DRAFT_HEADER: Final = "# unreviewed: levels, bounds, bins, centers and spreads were read from the data\n"
PERSON_KEYS: Final = ("person", *RECORD_KEYS)
_LATER_KEYS: Final = ("scores", "spellings", "missing_words", "file", "ignore", *PERSON_KEYS, "reducers")
DEFAULT_UNIT: Final = "one row"
Pairs = tuple[tuple[str, str], ...]


def tidy_dataset(name: str) -> str:
    """Give a data set's name without blanks around it, in Unicode form NFC; the ledger compares names more strictly."""
    return unicodedata.normalize("NFC", name).strip()


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """Levels, bounds and public facts of one data set.

    - `dataset`: the identity of the data set in the ledger, without blanks around it and in Unicode form NFC.
    - `columns`: the columns by name, in order.
    - `reviewed`: whether someone has checked that levels and bounds are public knowledge.
    - `unit`: what one record is, in words: the unit that is protected; where a person is named, what a person is.
    - `relation`: "add-remove" or "replace-one".
    - `nominal_rows`: a public guess of the number of rows.
    - `tiers`, `forbidden`, `required`: background knowledge: columns in causal order, and pairs (cause, effect).
    - `public`: whether the data set is public, so that nothing needs protection.
    - `file`: how delimited files are written; other sources do not need it.
    - `ignore`: columns of the data that are left out on purpose. None that the schema does not name is read anyway.
    - `person`: the column whose values name persons: it is never a node, and a person with all records is what is
      protected.
    - `records`: "one" record of each person counts, or all of them "weigh" one together.
    - `which`: if one counts: the "first" or "last" by the order, or "any", chosen by a hash with a fresh key.
    - `order`: a column of dates or numbers that puts a person's records in order.
    - `order_format`: how its dates are written, such as "%d.%m.%Y"; left out, they are ISO dates or numbers.
    - `missing_person`: "drop" records without an id, or let each be its "own" person.
    - `reducers`: columns of the table of persons that are made of all records of a person.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> Schema(dataset="demo", columns={"smokes": Boolean(outside="false")}).columns["smokes"].n_levels
    2
    """

    dataset: str
    columns: Mapping[str, Column]
    reviewed: bool = False
    unit: str = DEFAULT_UNIT
    relation: str = "add-remove"
    nominal_rows: int | None = None
    tiers: tuple[tuple[str, ...], ...] = ()
    forbidden: Pairs = ()
    required: Pairs = ()
    public: bool = False
    file: FileLayout = PLAIN_LAYOUT
    ignore: tuple[str, ...] = ()
    person: str | None = None
    records: str | None = None
    which: str | None = None
    order: str | None = None
    order_format: str | None = None
    missing_person: str | None = None
    reducers: Mapping[str, Reducer] = {}

    def __post_init__(self) -> None:
        assign = msgspec.structs.force_setattr
        assign(self, "dataset", tidy_dataset(self.dataset))
        assign(self, "columns", dict(self.columns))
        assign(self, "tiers", tuple(tuple(tier) for tier in self.tiers))
        assign(self, "ignore", tuple(self.ignore))
        for key in ("forbidden", "required"):
            assign(self, key, tuple(_checked_pair(key, pair) for pair in getattr(self, key)))
        if not self.dataset:
            raise SchemaError("dataset.name is empty; give the data set a name for the ledger")
        if not self.unit.strip():
            raise SchemaError('dataset.unit is empty; say what one record is, for example "one row"')
        if self.relation not in RELATIONS:
            raise SchemaError(f"dataset.relation is {self.relation!r}; write one of {', '.join(RELATIONS)}")
        if self.nominal_rows is not None and not 1 <= self.nominal_rows <= MOST_ROWS:
            raise SchemaError(
                f"dataset.nominal_rows must lie between 1 and {MOST_ROWS:.0e}; correct it, or leave it out"
            )
        if not self.columns:
            raise SchemaError("the schema has no columns; declare at least one as [columns.NAME]")
        if any(not name.strip() for name in self.columns):
            raise SchemaError("a column has an empty name; name it in the data and in the schema")
        both = [name for name in self.ignore if name in self.columns]
        if both:
            raise SchemaError(f"dataset.ignore names {both[0]!r}, which is declared as a column too; keep one of both")
        self._check_knowledge()
        assign(self, "reducers", dict(self.reducers))
        if self.person is not None:
            assign(self, "records", self.records or "one")
            assign(self, "missing_person", self.missing_person or "drop")
            if self.records == "one" and self.which is None and self.order is None:
                assign(self, "which", "any")
        check_records(self)

    def narrow(self, columns: Mapping[str, Column], **changes: Any) -> Schema:
        """Return the schema with some columns only, or with others in their place, and without knowledge."""
        kept = {name: reducer for name, reducer in self.reducers.items() if name in columns}
        gone: dict[str, Any] = {"tiers": (), "forbidden": (), "required": ()}
        if self.which == "any" and not any(reducer.take == "last" for reducer in kept.values()):
            gone |= {"order": None, "order_format": None}  # it may have no use any more
        return msgspec.structs.replace(self, columns=columns, reducers=kept, **gone, **changes)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the source that are read, each once, the one of ids among them."""
        found = [name for name in (self.person, self.order) if name is not None]
        found += [name for name in self.columns if name not in self.reducers]
        for name, reducer in self.reducers.items():
            found += [*reducer.where, *filter(None, [reducer.source(name)])]
        return tuple(dict.fromkeys(found))

    @property
    def protected(self) -> str:
        """What is protected, in words: the unit, and if it is a person all that the table has of one."""
        return self.unit if self.person is None else f"{self.person_word}, with all records"

    @property
    def person_word(self) -> str:
        """What a person is, in words."""
        return "one person" if self.unit == DEFAULT_UNIT else self.unit

    @property
    def pairwise(self) -> frozenset[str]:
        """Columns whose missing values tests leave out: the last level of each."""
        return frozenset(name for name, column in self.columns.items() if column.missing == PAIRWISE)

    @property
    def n_levels(self) -> dict[str, int]:
        """How many codes each column has."""
        return {name: column.n_levels for name, column in self.columns.items()}

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of the source whose cells are read as numbers."""
        numeric = [name for name, column in self.columns.items() if isinstance(column, Numeric)]
        read = (self.reducers[name].source(name) if name in self.reducers else name for name in numeric)
        return tuple(name for name in read if name is not None)

    @property
    def coded(self) -> tuple[str, ...]:
        """The columns of the source that have levels: few distinct values, which are read faster as such."""
        skipped = {self.order, *self.reducers}
        levels = (name for name, column in self.columns.items() if not isinstance(column, Numeric))
        return tuple(name for name in levels if name not in skipped)

    def _check_knowledge(self) -> None:
        for key in ("tiers", "forbidden", "required"):
            for name in itertools.chain.from_iterable(getattr(self, key)):
                if name not in self.columns:
                    raise SchemaError(f"knowledge.{key} names {name!r}, which is no column; remove it or declare it")
        named = list(itertools.chain.from_iterable(self.tiers))
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise SchemaError(f"knowledge.tiers names {twice[0]!r} more than once; keep it in one tier")

    def digest(self) -> str:
        """Give the SHA-256 of the schema's canonical JSON: equal schemas have equal digests."""
        fields = msgspec.to_builtins(self)
        # these came later: a schema without any keeps its digest
        for part in (fields, *fields["columns"].values()):
            for key in _LATER_KEYS:
                if key in part and not part[key]:
                    del part[key]
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


_FACTS: Final = ("unit", "relation", "nominal_rows", "public", "ignore", *PERSON_KEYS)
_Dataset = msgspec.defstruct(
    "_Dataset",
    [
        ("name", str),
        ("reviewed", bool),
        *((fact.name, fact.type, fact.default) for fact in msgspec.structs.fields(Schema) if fact.name in _FACTS),
    ],
    forbid_unknown_fields=True,
)


class _Knowledge(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    tiers: tuple[tuple[str, ...], ...] = ()
    forbidden: Pairs = ()
    required: Pairs = ()


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    dataset: _Dataset  # type: ignore[valid-type]
    columns: dict[str, Any]
    knowledge: _Knowledge = msgspec.field(default_factory=_Knowledge)
    file: FileLayout = PLAIN_LAYOUT
    reducers: dict[str, Reducer] = {}


def schema_from_toml(text: str) -> Schema:
    """Read a schema from the text of a schema.toml."""
    try:
        document = msgspec.convert(parse_toml(text, SchemaError, "the schema"), _Document)
    except msgspec.ValidationError as error:
        raise SchemaError(f"the schema does not have the expected layout: {_name_path(error)}") from None
    columns = {name: _read_column(name, fields) for name, fields in document.columns.items()}
    facts = msgspec.structs.asdict(document.dataset) | msgspec.structs.asdict(document.knowledge)
    return Schema(dataset=facts.pop("name"), columns=columns, file=document.file, reducers=document.reducers, **facts)


def schema_to_toml(schema: Schema) -> str:
    """Write a schema as the text of a schema.toml; an unreviewed one says so in its first line."""
    facts = {field: getattr(schema, field) for field in _Dataset.__struct_fields__ if field != "name"}
    dataset = _Dataset(name=schema.dataset, **facts)
    knowledge = _Knowledge(schema.tiers, schema.forbidden, schema.required)
    document = {
        "dataset": _write_fields(dataset),
        "file": msgspec.to_builtins(schema.file),
        "columns": {name: _write_fields(column) for name, column in schema.columns.items()},
        "reducers": msgspec.to_builtins(schema.reducers),
        "knowledge": msgspec.to_builtins(knowledge),
    }
    header = "" if schema.reviewed else DRAFT_HEADER
    return header + tomli_w.dumps({part: facts for part, facts in document.items() if facts})


def load_schema(path: str | Path) -> Schema:
    """Read a schema.toml."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise SchemaError(f"there is no schema at {path}; check the path, or draft one from the data") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path} is not encoded as UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise SchemaError(f"{path} cannot be read ({error.strerror}); check that it is a file you may read") from None
    return schema_from_toml(text)


def save_schema(schema: Schema, path: str | Path) -> None:
    """Write a schema.toml; a draft, which may hold values of the rows, for its owner alone."""
    try:
        write_schema_text(schema_to_toml(schema), path, reviewed=schema.reviewed)
    except OSError as error:
        raise SchemaError(f"{path} cannot be written ({error.strerror}); check the folder and its rights") from None


def write_schema_text(text: str, path: str | Path, *, reviewed: bool) -> None:
    """Write the text of a schema; one that nobody has reviewed can be read by its owner alone."""
    if reviewed:
        Path(path).write_text(text, encoding="utf-8")
        return
    with open(path, "w", encoding="utf-8", opener=lambda place, flags: os.open(place, flags, 0o600)) as file:
        os.chmod(path, 0o600)  # also where there was a file before
        file.write(text)


def _read_column(name: str, fields: object) -> Column:
    try:
        # msgspec cannot say which kind a Boolean without any other key is, so a missing kind gets its own words
        if not isinstance(fields, dict) or "kind" not in fields:
            raise SchemaError('kind is missing; write kind = "categorical", "ordinal", "boolean" or "numeric"')
        if fields["kind"] == "numeric" and "bounds" not in fields:
            raise SchemaError(
                "bounds are missing; declare the lowest and the highest value, or let `dagveil schema bounds` find "
                "them privately"
            )
        return msgspec.convert(fields, Column)  # type: ignore[arg-type, no-any-return, unused-ignore]
    except msgspec.ValidationError as error:
        raise SchemaError(f"columns.{name}: {_name_path(error)}") from None
    except SchemaError as error:
        raise SchemaError(f"columns.{name}: {error}") from None


def _write_fields(struct: msgspec.Struct) -> dict[str, Any]:
    # TOML has no null: a key without a value is left out
    fields: dict[str, Any] = msgspec.to_builtins(struct)
    return {key: value for key, value in fields.items() if value is not None and (key != "ignore" or value)}


def _checked_pair(key: str, pair: object) -> tuple[str, str]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or pair[0] == pair[1]:
        raise SchemaError(f"knowledge.{key} must hold pairs of two different columns, [cause, effect]")
    return (pair[0], pair[1])


def _name_path(error: msgspec.ValidationError) -> str:
    return str(error).replace("`$.", "`").replace(" - at `$`", "")

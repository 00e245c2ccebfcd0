"""The folder of a studio: which files are data sets, and where everything else goes.

Visitors name data sets and jobs by ids, never by paths. Only regular files right inside the folder count; links are
ignored, wherever they lead.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dagveil.data.schema import Schema, load_schema
from dagveil.errors import DataError, SchemaError
from dagveil.local.collector import Refused

# what a table's name may end in, longest first
ENDINGS: Final = (".csv.gz", ".tsv.gz", ".csv", ".tsv", ".parquet", ".feather", ".arrow")
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"  # of an uploaded table; it becomes a file name, so it can be no path
DATASET_ID: Final = r"^[0-9a-f]{12}$"
JOB_ID: Final = r"^[0-9a-f]{16}$"

SCHEMA_ENDING: Final = ".toml"
FACTS_ENDING: Final = ".deployment.toml"  # of what only people know about a data set's releases
LARGEST_SCHEMA: Final = 4 * 2**20  # bytes of a schema.toml
RESERVED: Final = ("studio", "ledger")
_INCOMING: Final = ".incoming-"


class SchemaState(enum.Enum):
    """How far a data set's schema is."""

    NONE = "none"
    DRAFT = "draft"
    REVIEWED = "reviewed"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One table in the folder, with its schema as far as there is one; or a schema whose table is still to come."""

    id: str
    path: Path
    schema_path: Path
    state: SchemaState
    schema: Schema | None

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.path.name

    @property
    def has_rows(self) -> bool:
        """Whether there is a table yet."""
        return self.path != self.schema_path

    def schema_bytes(self) -> bytes:
        """Return what stands in the schema's file; nothing if there is none that can be read."""
        return b"" if self.schema is None else self.schema_path.read_bytes()

    def reviewed_schema(self) -> Schema:
        """Return the schema if someone has reviewed it, or say what is missing."""
        if self.state is SchemaState.NONE:
            raise Refused(409, "no schema", f"{self.file} has no schema yet; draft one, then review it")
        if self.state is SchemaState.UNREADABLE or self.schema is None:
            # not why, since a draft holds values that were read from the data
            name = self.schema_path.name
            why = f"the schema {name} cannot be read; `dagveil schema check {self.file} --schema {name}` says why"
            raise Refused(409, "unreadable schema", why)
        if self.state is SchemaState.DRAFT:
            why = (
                f"the schema of {self.file} is unreviewed: its levels and bounds were read from the data and may give "
                "records away. Declare what is public knowledge, and say that it is reviewed"
            )
            raise Refused(409, "unreviewed", why)
        return self.schema


class Folder:
    """Where a studio keeps everything: the SQLite file of jobs, and a lock that its one server holds, too."""

    def __init__(self, root: Path) -> None:
        self.root, self.jobs_path, self.lock_path = root, root / "studio.sqlite", root / ".studio.lock"

    @classmethod
    def open(cls, place: str | Path) -> Folder:
        """Open a folder; it is made if it does not exist, for its owner only."""
        root = Path(place)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            root = root.resolve(strict=True)
            (root / "results").mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise DataError(f"cannot use {place} as a folder: {error.strerror}; choose another") from None
        return cls(root)

    def results(self, job: str) -> Path:
        """Return the folder of a job's files."""
        if not re.fullmatch(JOB_ID, job):
            raise Refused(404, "no such job", "there is no job with this id")
        return self.root / "results" / job

    def tables(self) -> list[DataFile]:
        """List the data sets, by name."""
        found = (self._read(*named) for named in sorted(self._list()))
        return [table for table in found if table.has_rows or table.schema is not None]

    def table(self, wanted: str) -> DataFile:
        """Return one data set by its id."""
        for name, stem in self._list():
            if file_id(name) == wanted and ((table := self._read(name, stem)).has_rows or table.schema is not None):
                return table
        raise Refused(404, "no such data set", "there is no data set with this id")

    def _list(self) -> Iterator[tuple[str, str]]:
        """Yield the names of tables, and their stems; links and names that could not be shown are no tables.

        A schema without a table stands for one.
        """
        found = [name for name in os.listdir(self.root) if _is_plain(self.root / name)]
        stems = {name: stem for name in found if (stem := _stem(name)) is not None}
        yield from stems.items()
        for name in found:
            stem = name.removesuffix(SCHEMA_ENDING)
            if stem != name and stem not in stems.values():
                yield name, stem

    def _read(self, name: str, stem: str) -> DataFile:
        schema_path = self.root / f"{stem}{SCHEMA_ENDING}"
        state, schema = SchemaState.NONE, None
        if os.path.lexists(schema_path):
            state = SchemaState.UNREADABLE
            if _is_plain(schema_path) and schema_path.stat().st_size <= LARGEST_SCHEMA:
                with contextlib.suppress(SchemaError):
                    schema = load_schema(schema_path)
                    state = SchemaState.REVIEWED if schema.reviewed else SchemaState.DRAFT
        return DataFile(file_id(name), self.root / name, schema_path, state, schema)

    def await_table(self, name: str) -> DataFile:
        """Return a data set that has neither a schema nor rows yet."""
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:64]
        if not re.fullmatch(NAME, stem) or stem.startswith(RESERVED):
            raise Refused(422, "wrong name", "a data set's name begins with a letter or digit, and is not taken")
        path = self.root / f"{stem}{SCHEMA_ENDING}"
        if os.path.lexists(path) or any(stem == other for _, other in self._list()):
            raise Refused(409, "name in use", f"there is a data set {stem}; choose another name")
        return DataFile(file_id(path.name), path, path, SchemaState.NONE, None)

    def facts_path(self, table: DataFile) -> Path:
        """Return where the facts about a data set's releases are kept."""
        return self.root / f"{table.schema_path.stem}{FACTS_ENDING}"

    def write_text(self, path: Path, text: str) -> None:
        """Write a small file, such as a schema, in one step: whoever reads it sees the old one or the new one."""
        draft = self.root / f"{_INCOMING}{secrets.token_hex(8)}"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
            draft.replace(path)
        except OSError as error:
            raise Refused(507, "not written", f"{path.name} could not be written ({error.strerror})") from None
        finally:
            draft.unlink(missing_ok=True)

    @contextlib.contextmanager
    def incoming(self, name: str, ending: str) -> Iterator[int]:
        """Give a descriptor for an upload; it becomes a data set only when the block ends well."""
        if not re.fullmatch(NAME, name) or name.startswith(RESERVED):
            raise Refused(422, "wrong name", "a name has letters, digits, _ and - only, at most 64, and is not taken")
        if ending not in ENDINGS:
            raise Refused(422, "wrong ending", f"a table ends in {', '.join(ENDINGS)}")
        target = self.root / f"{name}{ending}"
        taken = Refused(409, "name in use", f"there is a table {target.name}; choose another name")
        if os.path.lexists(target):
            raise taken
        place = self.root / f"{_INCOMING}{secrets.token_hex(8)}"
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            try:
                yield handle
                os.fsync(handle)
            finally:
                os.close(handle)
            os.link(place, target, follow_symlinks=False)  # unlike a rename, never over another file
        except FileExistsError:
            raise taken from None
        except OSError as error:
            raise Refused(507, "not written", f"the table could not be written ({error.strerror})") from None
        finally:
            place.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what uploads that were cut off by a kill left behind."""
        for place in self.root.glob(f"{_INCOMING}*"):
            if _is_plain(place):
                place.unlink(missing_ok=True)


def file_id(name: str) -> str:
    """Return the id of a file name: the same after every start."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def _stem(name: str) -> str | None:
    fitting = (ending for ending in ENDINGS if name.lower().endswith(ending) and len(name) > len(ending))
    ending = None if name.startswith(".") else next(fitting, None)
    return None if ending is None else name[: -len(ending)]


def _is_plain(path: Path) -> bool:
    """Tell a regular file whose name can be shown: its bytes are UTF-8."""
    try:
        path.name.encode()
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, UnicodeEncodeError):
        return False

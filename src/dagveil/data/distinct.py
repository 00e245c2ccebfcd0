"""Rows as integers: packing, and the distinct rows with their multiplicities; arrays that may not fit into memory."""

import functools
import itertools
import math
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Column, Numeric
from dagveil.data.encoding import Codes, EncodedColumns, code_type
from dagveil.errors import DataError

_WORD: Final = 2**63
_BYTE: Final = 2**8
_HALF_WORD: Final = 2**16
_NARROW_WORD: Final = 2**31
_BLOCK_ROWS: Final = 2**16
_FEW_BLOCKS: Final = 8
_SMALL_DOMAIN: Final = 2**18
_FEWEST_ROWS: Final = 4096
_LEAST_GAIN: Final = 2
_FEWEST_PENDING: Final = 2**20


@dataclass(frozen=True, slots=True)
class WeightedRows:
    """Coded rows, each with the number of times that it occurs (None: once each)."""

    codes: Mapping[str, Codes]
    weights: NDArray[np.float64] | None
    n_rows: int


def mix_codes(codes: Sequence[Codes], levels: Sequence[int]) -> NDArray[np.int64]:
    """Combine codes into one integer per row, the last column fastest; the levels' product must be below 2**63."""
    mixed: NDArray[np.int64] | None = None
    for group in _group_levels(levels, _HALF_WORD):
        # narrow arithmetic is several times faster, so columns are joined there before they meet the wide integer
        sizes = [levels[position] for position in group]
        part = _mix_narrow([codes[position] for position in group], sizes)
        if mixed is None:
            mixed = part.astype(np.int64)
        else:
            mixed *= math.prod(sizes)
            mixed += part
    if mixed is None:
        raise ValueError("mix_codes needs at least one column")
    return mixed


def _narrow_type(levels: Sequence[int]) -> type[np.uint8] | type[np.uint16]:
    """Return the type for mixed codes of a domain of at most 2**16."""
    return np.uint8 if math.prod(levels) <= _BYTE else np.uint16


def _mix_narrow(codes: Sequence[Codes], levels: Sequence[int]) -> Codes:
    """Combine codes whose joint domain is at most 2**16."""
    narrow = _narrow_type(levels)
    largest = _BYTE if narrow is np.uint8 else _HALF_WORD
    mixed: Codes = codes[0].astype(narrow)
    for code, size in zip(codes[1:], levels[1:], strict=True):
        if size < largest:  # if not, all columns before have one level, and are 0
            mixed *= narrow(size)
        mixed += code
    return mixed


def shrink_rows(rows: WeightedRows, levels: Mapping[str, int]) -> WeightedRows:
    """Keep distinct rows with multiplicities if at most half of the rows are distinct; otherwise give the rows back."""
    if rows.weights is not None or rows.n_rows < _FEWEST_ROWS:
        return rows
    names = list(rows.codes)
    sizes = [levels[name] for name in names]
    packed = pack_rows(rows.codes, levels)
    if len(packed) > 1:
        _, first, times = np.unique(_join_words(packed), return_index=True, return_counts=True)
        if not pays_to_shrink(first.size, rows.n_rows):
            return rows
        kept: dict[str, Codes] = {name: array[first] for name, array in rows.codes.items()}
        return WeightedRows(codes=kept, weights=times.astype(np.float64), n_rows=first.size)
    domain = math.prod(sizes)
    if domain <= _SMALL_DOMAIN:  # without sorting
        counts = np.bincount(packed[0], minlength=domain)
        keys = np.flatnonzero(counts).astype(np.int64)
        weights = counts[keys].astype(np.float64)
    else:
        packed[0].sort()
        starts = np.flatnonzero(np.concatenate(([True], packed[0][1:] != packed[0][:-1])))
        keys = packed[0][starts].astype(np.int64, copy=False)
        weights = np.diff(starts, append=packed[0].size).astype(np.float64)
    if not pays_to_shrink(keys.size, rows.n_rows):
        return rows
    codes = _unpack_word(keys, sizes, [rows.codes[name].dtype for name in names])
    return WeightedRows(codes=dict(zip(names, codes, strict=True)), weights=weights, n_rows=weights.size)


def count_cells(rows: WeightedRows, levels: Mapping[str, int]) -> NDArray[np.int64] | None:
    """Count rows by all of their columns, in one pass; None if that has too many cells, or rows have weights."""
    sizes = [levels[name] for name in rows.codes]
    if rows.weights is not None or not sizes or math.prod(sizes) > _SMALL_DOMAIN:
        return None
    counts = np.bincount(_pack_word(list(rows.codes.values()), sizes), minlength=math.prod(sizes))
    return counts.reshape(sizes)


def pays_to_shrink(distinct: int, n_rows: int) -> bool:
    """Tell whether distinct rows with multiplicities are kept in place of the rows, in the order of their codes."""
    return n_rows >= _FEWEST_ROWS and distinct * _LEAST_GAIN <= n_rows


class Cube:
    """The distinct rows of pieces, in the order of their codes, with multiplicities; gives up beyond `most`."""

    def __init__(self, levels: Mapping[str, int], most: int) -> None:
        self._levels = dict(levels)
        self._most = most
        self._pending: list[WeightedRows] = []
        self._n_pending = 0
        self._n_kept = 0

    def add(self, rows: WeightedRows) -> bool:
        """Add rows, and tell whether the distinct ones are still few enough."""
        self._pending.append(rows)
        self._n_pending += rows.n_rows
        # sorting again only after the pieces have doubled what is kept costs a logarithmic factor at most
        if self._n_pending > max(2 * self._n_kept, min(_FEWEST_PENDING, self._most)):
            self._compact()
        return self._n_kept <= self._most

    def rows(self) -> WeightedRows | None:
        """Return the distinct rows in the order of their codes; None if there are too many."""
        self._compact()
        return self._pending[0] if self._n_kept <= self._most else None

    def _compact(self) -> None:
        codes = {
            name: np.concatenate([np.empty(0, np.uint8), *(rows.codes[name] for rows in self._pending)])
            for name in self._levels
        }
        weights = np.concatenate(
            [np.empty(0), *(np.ones(r.n_rows) if r.weights is None else r.weights for r in self._pending)]
        )
        words = pack_rows(codes, self._levels)
        order = np.lexsort(words[::-1]) if len(words) > 1 else np.argsort(words[0])
        starts = np.flatnonzero(find_changes(words, order))
        # sums of multiplicities are exact: they stay below 2**53
        sums = np.add.reduceat(weights[order], starts) if starts.size else weights
        first = order[starts]
        kept = WeightedRows({name: array[first] for name, array in codes.items()}, sums, starts.size)
        self._pending, self._n_pending, self._n_kept = [kept], kept.n_rows, kept.n_rows


def find_changes(words: Sequence[NDArray[Any]], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell, for rows in an order, which differ from the one before; the first does."""
    changed = np.zeros(len(order), dtype=bool)
    changed[:1] = True
    for word in words:
        changed[1:] |= word[order[1:]] != word[order[:-1]]
    return changed


def pack_rows(codes: Mapping[str, Codes], levels: Mapping[str, int]) -> list[NDArray[np.integer[Any]]]:
    """Pack the codes of each row into one or more words, the first column highest."""
    names = list(codes)
    sizes = [levels[name] for name in names]
    return [
        _pack_word([codes[names[k]] for k in word], [sizes[k] for k in word]) for word in _group_levels(sizes, _WORD)
    ]


def sort_rows(rows: WeightedRows, levels: Mapping[str, int]) -> WeightedRows:
    """Put rows into the order of their codes."""
    order = np.lexsort(pack_rows(rows.codes, levels)[::-1])
    weights = None if rows.weights is None else rows.weights[order]
    return WeightedRows({name: array[order] for name, array in rows.codes.items()}, weights, rows.n_rows)


def _group_levels(levels: Sequence[int], limit: int) -> Iterator[range]:
    """Cut the columns into runs whose joint domain stays within the limit."""
    start, product = 0, 1
    for position, size in enumerate(levels):
        if position > start and product * size > limit:
            yield range(start, position)
            start, product = position, 1
        product *= size
    if levels:
        yield range(start, len(levels))


def _pack_word(codes: Sequence[Codes], sizes: Sequence[int]) -> NDArray[np.integer[Any]]:
    n_rows = len(codes[0])
    small = math.prod(sizes) <= _HALF_WORD
    mix = _mix_narrow if small else mix_codes
    packed: NDArray[np.integer[Any]] = np.empty(n_rows, dtype=_narrow_type(sizes) if small else np.int64)

    def pack_block(start: int) -> None:
        block = slice(start, start + _BLOCK_ROWS)
        packed[block] = mix([array[block] for array in codes], sizes)

    _do_blocks(pack_block, n_rows)
    return packed


def _do_blocks(do: Callable[[int], None], n_rows: int) -> None:
    """Do something for each block of rows; many are shared by two threads."""
    blocks = range(0, n_rows, _BLOCK_ROWS)
    if len(blocks) <= _FEW_BLOCKS:
        for start in blocks:
            do(start)
        return
    # blocks stay in the processor's cache; numpy releases the interpreter lock, so two threads help
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(do, blocks))


def _unpack_word(keys: NDArray[np.int64], sizes: Sequence[int], kinds: Sequence[np.dtype[Any]]) -> list[Codes]:
    """Take a word apart again; division of narrow integers is several times faster."""
    codes: list[Codes] = [np.empty(len(keys), dtype=kind) for kind in kinds]
    groups = list(_group_levels(sizes, _NARROW_WORD))

    def unpack_block(start: int) -> None:
        block = slice(start, start + _BLOCK_ROWS)
        left = keys[block]
        for group in reversed(groups):
            domain = math.prod(sizes[position] for position in group)
            rest = left // domain
            digits = (left - rest * domain).astype(np.uint32)
            left = rest
            for position in reversed(group):
                size = np.uint32(sizes[position])
                codes[position][block] = digits % size
                digits //= size

    _do_blocks(unpack_block, len(keys))
    return codes


def _join_words(packed: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.integer[Any]]:
    """Replace several words per row by one: ranks among distinct words are below n, so two of them fit together."""
    joined = packed[0]
    for word in packed[1:]:
        _, left = np.unique(joined, return_inverse=True)
        distinct, right = np.unique(word, return_inverse=True)
        joined = left.astype(np.int64) * distinct.size + right
    return joined


Records = NDArray[Any]  # an array of structs, one of each distinct record, or of each person


def cell_fields(name: str, column: Column) -> list[tuple[str, str]]:
    """Return the fields of a struct that hold an encoded cell."""
    fields = [(f"{name}:code", np.dtype(code_type(column)).str)]
    return [*fields, (f"{name}:value", "<f8")] if isinstance(column, Numeric) else fields


def row_kind(columns: Mapping[str, Column]) -> np.dtype[Any]:
    """Return what an encoded row is as a struct."""
    return np.dtype([field for name, column in columns.items() for field in cell_fields(name, column)])


def pack_cells(encoded: EncodedColumns, kind: np.dtype[Any]) -> Records:
    """Return encoded rows as structs."""
    rows = np.zeros(encoded.n_rows, dtype=kind)
    put_cells(rows, encoded)
    return rows


def put_cells(rows: Records, encoded: EncodedColumns) -> None:
    """Write encoded cells into structs."""
    for name, codes in encoded.codes.items():
        rows[f"{name}:code"] = codes
    for name, values in encoded.values.items():
        rows[f"{name}:value"] = values + 0.0  # −0 and 0 are one number


def take_cells_of(rows: Records, names: Iterable[str]) -> EncodedColumns:
    """Return the encoded cells of structs; these may have codes alone."""
    fields = rows.dtype.names or ()
    codes: dict[str, Codes] = {name: np.ascontiguousarray(rows[f"{name}:code"]) for name in names}
    numbers = {name: np.ascontiguousarray(rows[f"{name}:value"]) for name in codes if f"{name}:value" in fields}
    return EncodedColumns(len(rows), codes, numbers)


class Store:
    """Arrays of structs: in memory while they fit, beyond that in a file without a name, by bucket."""

    def __init__(
        self, kind: np.dtype[Any], held_bytes: float, buckets: int = 1, what: str = "records of persons"
    ) -> None:
        self.kind = kind
        self._what = what
        self._held_bytes = held_bytes
        self._buckets = buckets
        self._pieces: list[tuple[Records, NDArray[np.intp]]] = []
        self._size = 0
        self._file: Any = None
        self._spans: list[list[tuple[int, int]]] = [[] for _ in range(buckets)]
        self._end = 0

    @property
    def spilled(self) -> bool:
        """Whether rows are in a file."""
        return self._file is not None

    def add(self, rows: Records, labels: NDArray[np.intp] | None = None) -> None:
        """Keep rows; labels say to which buckets they belong."""
        self._pieces.append((rows, np.zeros(len(rows), dtype=np.intp) if labels is None else labels))
        self._size += rows.nbytes
        if self._size <= self._held_bytes:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="dagveil-")  # noqa: SIM115
                weakref.finalize(self, self._file.close)  # maps of it stay valid
            for piece, own in self._pieces:
                self._write(piece, own)
            self._file.flush()
        except OSError:
            raise DataError(
                f"{self._what} could not be written to {tempfile.gettempdir()}; make room there, set TMPDIR to a "
                "larger disk, or raise the memory limit"
            ) from None
        self._pieces, self._size = [], 0
        self._held_bytes = 0

    def _write(self, rows: Records, labels: NDArray[np.intp]) -> None:
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(self._buckets + 1))
        self._file.seek(self._end)
        self._file.write(rows[order].tobytes())
        for bucket, (first, last) in enumerate(itertools.pairwise(ends.tolist())):
            if last > first:
                self._spans[bucket].append((self._end + first * self.kind.itemsize, last - first))
        self._end += rows.nbytes

    def read(self) -> Iterator[Callable[[], Iterator[Records]]]:
        """Hand out, for each bucket, what reads its rows piece by piece, as often as it is called."""
        for bucket, spans in enumerate(self._spans):
            if spans or (self._file is None and bucket == 0):
                yield functools.partial(self.bucket, bucket)

    def bucket(self, bucket: int) -> Iterator[Records]:
        """Hand out the rows of a bucket; all rows, while these are in memory."""
        if self._file is None:
            return (rows for rows, _ in self._pieces)
        # mapped: a process that was forked has no place in the file of its own
        return (np.memmap(self._file, self.kind, "r", start, number) for start, number in self._spans[bucket])

"""Arrays of structs that may not fit into memory."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import DataError

Records = NDArray[Any]  # an array of structs, one of each distinct record, or of each person


class Store:
    """Arrays of structs: in memory while they fit, beyond that in a file without a name, by bucket."""

    def __init__(self, kind: np.dtype[Any], held_bytes: float, buckets: int = 1) -> None:
        self.kind = kind
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
            for piece, own in self._pieces:
                self._write(piece, own)
        except OSError:
            raise DataError(
                f"records of persons could not be written to {tempfile.gettempdir()}; make room there, set TMPDIR to "
                "a larger disk, or raise the memory limit"
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
        if self._file is None:
            yield lambda: (rows for rows, _ in self._pieces)
            return
        self._file.flush()
        for spans in self._spans:
            if spans:
                yield lambda spans=spans: map(self._load, spans)  # type: ignore[misc]

    def _load(self, span: tuple[int, int]) -> Records:
        start, number = span
        self._file.seek(start)
        return np.frombuffer(self._file.read(number * self.kind.itemsize), dtype=self.kind)

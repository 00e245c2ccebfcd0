"""Ids of persons and the order of records, each cell read by itself.

Ids are compared by their written form: 7, 7.0 and "7 " name one person, as numbers and as texts, "07" another.
"""

import datetime
import decimal
import hashlib
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.cells import list_chunks, read_numbers, simplify_type
from dagveil.data.encoding import has_written_form
from dagveil.errors import DataError

KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 16
NO_ORDER, NUMBER, INSTANT = 0, 1, 2  # what an order cell is; instants come after numbers
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(rb"(0|-?[1-9]\d*)\.0+")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def hash_ids(cells: pa.ChunkedArray, name: str, key: bytes) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the keyed hash of each id, two words, and which ids are missing."""
    found = [_hash_chunk(chunk, name, key) for chunk in list_chunks(cells)]
    return np.concatenate([words for words, _ in found]), np.concatenate([missing for _, missing in found])


def _hash_chunk(array: pa.Array, name: str, key: bytes) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    written, places = _write_ids(_plain(array), name)
    words = np.zeros((len(written) + 1, 2), dtype=np.uint64)
    for place, text in enumerate(written):
        if text:
            digest = hashlib.blake2b(text, digest_size=DIGEST_BYTES, key=key, person=b"id").digest()
            words[place] = np.frombuffer(digest, dtype="<u8")
    missing = np.array([not text for text in written] + [True])
    return words[places], missing[places]


def _write_ids(array: pa.Array, name: str) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return the distinct ids as bytes, empty if missing, and which one each cell has; null is the last place."""
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return [], np.zeros(len(array), dtype=np.int64)
    if types.is_string(kind) or types.is_large_string(kind):
        # as bytes: a text that is no UTF-8 is an id like any other
        array = array.view(pa.binary() if types.is_string(kind) else pa.large_binary())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)):
        if has_written_form(kind):
            array = pc.cast(array, pa.large_string())
        elif not (types.is_binary(kind) or types.is_large_binary(kind)):
            raise DataError(
                f"column {name!r} names persons and has the type {kind}, whose values cannot be compared; convert it "
                "to text or numbers"
            )
    if types.is_float16(kind):
        array = pc.cast(array, pa.float64())
    coded = pc.dictionary_encode(array)
    written = [_write_id(value) for value in coded.dictionary.to_pylist()]
    return written, pc.fill_null(coded.indices, len(written)).to_numpy(zero_copy_only=False).astype(np.int64)


def _write_id(value: Any) -> bytes:
    if isinstance(value, bytes):
        text = value.strip()
        # programs write whole numbers as 7.0 where an id is missing in the column
        whole = _WHOLE.fullmatch(text)
        return whole[1] if whole else text
    if isinstance(value, float):
        if value != value:
            return b""
        return (f"{value:.0f}" if value.is_integer() else repr(value)).replace("-0", "0", value == 0).encode()
    if isinstance(value, decimal.Decimal):
        return format(value.normalize() + 0, "f").encode()
    return str(value).encode()


def read_order(cells: pa.ChunkedArray, name: str, form: str | None) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return what each order cell is, and its number: a number, or the microseconds of a date since 1970."""
    found = [_read_chunk(chunk, name, form) for chunk in list_chunks(cells)]
    return np.concatenate([kinds for kinds, _ in found]), np.concatenate([numbers for _, numbers in found])


def _read_chunk(array: pa.Array, name: str, form: str | None) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    array = _plain(array)
    kind, types = array.type, pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        instants = pc.cast(pc.cast(array, pa.timestamp("us", getattr(kind, "tz", None)), safe=False), pa.int64())
        return _with_kind(instants.to_numpy(zero_copy_only=False).astype(np.float64), INSTANT)
    if types.is_string(kind) or types.is_large_string(kind):
        coded = pc.dictionary_encode(array.view(pa.binary() if types.is_string(kind) else pa.large_binary()))
        read = [_read_text(text, form) for text in coded.dictionary.to_pylist()] + [(NO_ORDER, 0.0)]
        places = pc.fill_null(coded.indices, len(read) - 1).to_numpy(zero_copy_only=False)
        kinds = np.array([one for one, _ in read], dtype=np.uint8)
        return kinds[places], np.array([number for _, number in read])[places]
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return _with_kind(read_numbers(pa.chunked_array([array]), name), NUMBER)
    raise DataError(
        f"column {name!r} orders records and has the type {kind}, which has no order here; convert it to dates or "
        "numbers"
    )


def _with_kind(numbers: NDArray[np.float64], kind: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    known = ~np.isnan(numbers)
    # −0 and 0 are one number
    return np.where(known, kind, NO_ORDER).astype(np.uint8), np.where(known, numbers, 0.0) + 0.0


def _read_text(raw: bytes, form: str | None) -> tuple[int, float]:
    text = raw.decode("utf-8", "replace").strip()
    try:
        if form is not None:
            instant = datetime.datetime.strptime(text, form)
        elif _NUMBER.fullmatch(text):
            return NUMBER, float(text) + 0.0
        else:
            instant = datetime.datetime.fromisoformat(text)
    except ValueError:
        return NO_ORDER, 0.0
    aware = instant.replace(tzinfo=datetime.UTC) if instant.tzinfo is None else instant
    return INSTANT, float((aware - _EPOCH) // _MICROSECOND)


def _plain(array: pa.Array) -> pa.Array:
    array = simplify_type(array)
    return simplify_type(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array

"""Reading what a request brings, and never more than it may."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from dagveil.studio.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

MOST_BYTES: Final = 4 * 2**20
"""Of a body that is not an upload."""

MOST_UPLOADED: Final = 2 * 2**30
"""Of an uploaded table."""

SECONDS_FOR_BODY: Final = 30.0

Asked = TypeVar("Asked")


async def read_json(request: Request, kind: type[Asked]) -> Asked:
    """Read a JSON body."""
    check_type(request, "application/json")
    try:
        return msgspec.json.decode(await read_body(request), type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong layout", str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refused(400, "malformed", "the body is not JSON in UTF-8") from None


async def read_text(request: Request) -> str:
    """Read a body of text."""
    check_type(request, "text/plain")
    try:
        return (await read_body(request)).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(400, "malformed", "the body is not encoded as UTF-8") from None


def read_query(request: Request, kind: type[Asked]) -> Asked:
    """Read the question mark's part of an address."""
    pairs = request.query_params.multi_items()
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused(422, "wrong query", "a query parameter is repeated")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong query", str(error)) from None


def check_type(request: Request, wanted: str) -> None:
    """Refuse a body of another type: forms of other sites cannot send these."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
        raise Refused(415, "wrong type", f"send Content-Type: {wanted}")


async def read_body(request: Request, most: int = MOST_BYTES) -> bytes:
    """Read a small body, and stop as soon as it is too large or too slow."""
    try:
        async with asyncio.timeout(SECONDS_FOR_BODY):
            return b"".join([part async for part in _pieces(request, most)])
    except TimeoutError:
        raise Refused(408, "too slow", f"a body has to arrive within {SECONDS_FOR_BODY:g} seconds") from None


async def store_body(request: Request, handle: int, most: int) -> int:
    """Write a large body to a file piece by piece, and return its size; each piece has to arrive in time."""
    pieces = _pieces(request, most)
    size = 0
    while True:
        try:
            async with asyncio.timeout(SECONDS_FOR_BODY):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise Refused(408, "too slow", f"nothing arrived for {SECONDS_FOR_BODY:g} seconds") from None
        if piece is None:
            return size
        size += len(piece)
        await asyncio.to_thread(_write_all, handle, piece)


def _write_all(handle: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(handle, rest) :]


async def _pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the body; whatever the header says, no more than allowed is taken."""
    from starlette.requests import ClientDisconnect

    large = Refused(413, "too large", f"a body has at most {most} bytes here")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
        raise large
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise large
            if piece:
                yield piece
    except ClientDisconnect:
        raise Refused(400, "incomplete", "the body ended early") from None

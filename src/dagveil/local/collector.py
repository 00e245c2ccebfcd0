"""The collector: an HTTP endpoint that takes batches of reports and acknowledges them when they are on disk.

It sees reports only, never records, so nobody has to trust it with anything but keeping them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec
import numpy as np

from dagveil.errors import DagveilError, DataError, MissingExtraError
from dagveil.local.protocol import Protocol
from dagveil.local.store import Batch, ReportStore, Totals

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# connections that are open at the same time, or half of the files that the process may open if these are fewer
MOST_CONNECTIONS: Final = 512
# seconds in which a request's headers must have arrived, and after which an idle connection is closed
SECONDS_FOR_HEADERS: Final = 10.0
# connections that are accepted in one go, before any is counted; or a quarter of the files if these are fewer
BACKLOG: Final = 256
DEBUG_VARIABLE: Final = "DAGVEIL_DEBUG"
MOST_WAITING: Final = 1024  # batches that wait for the disk; further ones are told to come again
MOST_TOGETHER: Final = 256  # batches that are committed together
LARGEST_CODE: Final = 2**15


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches a host."""
    address = _read_address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def _read_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def knows_host(header: str, host: str, port: int) -> bool:
    """Say whether a Host header means a server that listens on this host and port.

    A page that was made to lead here by its name (DNS rebinding) sends that name.
    """
    name, _, given = header.lower().rpartition(":")
    if given != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]")
    if name in ("localhost", "127.0.0.1", "::1", host.lower()):
        return True
    if is_loopback(host):
        return False
    # a page that rebinds has a name; a number can only be this machine's own
    return name in (socket.gethostname().lower(), socket.getfqdn().lower()) or _read_address(name) is not None


class HostGuard:
    """Answers requests that are addressed to this server, and refuses others."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self.app, self.host, self.port = app, host, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", []) if name.lower() == b"host"]
        if scope["type"] == "http" and (len(hosts) != 1 or not knows_host(hosts[0], self.host, self.port)):
            await send_plain(send, 421, b'{"error":"wrong host","detail":"this server answers to no such name"}')
            return
        await self.app(scope, receive, send)


class Quiet:
    """Answers what nobody foresaw with 500, and tells the log where it was, but no message: that may hold data."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception as error:
            if os.environ.get(DEBUG_VARIABLE):
                raise
            frames = traceback.extract_tb(error.__traceback__)
            where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "nowhere"
            print(  # noqa: T201
                f"unexpected: {type(error).__name__} in {where}; its message is withheld because it may hold data. Set "
                f"{DEBUG_VARIABLE}=1 to see it",
                file=sys.stderr,
                flush=True,
            )
            if not begun:
                await send_plain(send, 500, b'{"error":"unexpected","detail":"something unexpected went wrong"}')


async def send_plain(send: Send, status: int, body: bytes) -> None:
    """Send a short answer in JSON."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run_server(
    app: ASGIApp, listener: socket.socket, most: int = MOST_CONNECTIONS, seconds: float = SECONDS_FOR_HEADERS
) -> None:
    """Serve an application until stopped by a signal, with bounded connections and no access log."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    try:
        import resource

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # that the process may have open
    except ImportError:  # pragma: no cover - Windows
        files = 2 * MOST_CONNECTIONS
    most = min(most, files // 2)
    waiting: dict[H11Protocol, asyncio.TimerHandle] = {}

    class Bounded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._look()
            if len(self.connections) > most:
                # the oldest of those that have asked for nothing; the newest one, if all others are served
                next(iter(waiting)).transport.abort()
                waiting.pop(next(iter(waiting))).cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            if self in waiting:
                waiting.pop(self).cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def _look(self) -> None:
            """Count the seconds while there is no whole request to answer."""
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self not in waiting and not self.transport.is_closing():
                waiting[self] = self.loop.call_later(seconds, self.transport.abort)
            elif not idle and self in waiting:
                waiting.pop(self).cancel()

    # no access log: it would hold the studio's token, and who reported when
    config = uvicorn.Config(
        app, http=Bounded, access_log=False, log_level="error", ws="none", server_header=False, proxy_headers=False,
        backlog=min(BACKLOG, files // 4), timeout_graceful_shutdown=3,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    batch: UUID
    protocol: str
    reports: list[list[Annotated[int, msgspec.Meta(ge=0, le=LARGEST_CODE)]]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a request may bring."""

    bytes: int = 4 * 2**20  # of its body
    reports: int = 10_000  # of one batch
    seconds: float = 30.0  # a client that takes longer to send its body is cut off


class Refused(DagveilError):
    """A request that is answered with an error."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.error, self.detail = status, error, detail


def read_batch(body: bytes, protocol: Protocol, digest: str, limits: Limits, store: ReportStore) -> Batch:
    """Read and check a batch; raise what the client has to be told."""
    try:
        message = msgspec.json.decode(body, type=_Message)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong layout", f"{error}; send batch (a UUID), protocol (its digest) and reports") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refused(400, "malformed", "the body is not JSON in UTF-8") from None
    if message.protocol != digest:
        raise Refused(422, "wrong protocol", f"reports of protocol {digest} are collected here; see GET /protocol")
    if not message.reports:
        raise Refused(422, "no reports", "a batch has at least one report")
    if len(message.reports) > limits.reports:
        raise Refused(413, "too many reports", f"a batch has at most {limits.reports} reports; send several batches")
    width = len(protocol.columns)
    if any(len(report) != width for report in message.reports):
        raise Refused(422, "wrong length", f"a report has {width} codes, one for each column")
    codes = np.array(message.reports, dtype=np.int64)
    if (codes >= np.array(protocol.levels)).any():
        raise Refused(422, "code out of range", "a code is beyond the levels of its column; see GET /protocol")
    return store.pack(message.batch, codes)


class Writer:
    """The only one who writes: it commits whatever waits together, then acknowledges it."""

    def __init__(self, store: ReportStore) -> None:
        self.store = store
        self.failing = False  # whether the last batches could not be written
        self._waiting: asyncio.Queue[tuple[Batch, asyncio.Future[bool]]] = asyncio.Queue(MOST_WAITING)
        self._thread = ThreadPoolExecutor(1, "dagveil-writer")

    async def keep(self, batch: Batch) -> bool:
        """Return when the batch is on disk; false if its id belongs to other reports."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            self._waiting.put_nowait((batch, done))
        except asyncio.QueueFull:
            raise Refused(503, "busy", "too many batches wait for the disk; send this one again later") from None
        return await done

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            group = [await self._waiting.get()]
            while len(group) < MOST_TOGETHER and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
            try:
                kept = await loop.run_in_executor(self._thread, self.store.append, [batch for batch, _ in group])
            except Exception:
                # a full disk, a locked file: nothing of the group is stored, and the clients are told
                self.failing = True
                refusal = Refused(503, "not stored", "the batch could not be written; send it again later")
                for _, done in group:
                    if not done.done():
                        done.set_exception(refusal)
                continue
            self.failing = False
            for (_, done), stored in zip(group, kept, strict=True):
                if not done.done():
                    done.set_result(stored)

    async def totals(self) -> Totals:
        """Count what is stored, in turn with the writing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.store.totals)

    def close(self) -> None:
        """Let the thread finish what it has begun."""
        self._thread.shutdown(wait=True)


def make_app(store: ReportStore, limits: Limits | None = None) -> Starlette:
    """Return the application; it closes the store when it ends."""
    try:
        from starlette.applications import Starlette
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError as error:
        raise _missing() from error
    limits = limits or Limits()
    protocol, digest = store.protocol, store.protocol.digest()
    public = protocol.to_json()
    writer = Writer(store)

    def answer(status: int, content: object, **headers: str) -> Response:
        return Response(msgspec.json.encode(content), status, headers, "application/json")

    async def take(request: Request) -> Response:
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refused(415, "wrong type", "send JSON, with Content-Type: application/json")
            body = await read_body(request, limits.bytes, limits.seconds, "; send several batches")
            batch = read_batch(body, protocol, digest, limits, store)
            if not await writer.keep(batch):
                raise Refused(409, "id in use", "this batch id belongs to other reports; make a new one")
        except Refused as refusal:
            later = {"retry-after": "1"} if refusal.status == 503 else {}
            return answer(refusal.status, {"error": refusal.error, "detail": refusal.detail}, **later)
        return answer(200, {"batch": str(batch.id), "reports": batch.n_reports})

    async def show(request: Request) -> Response:
        return Response(public, media_type="application/json")

    async def health(request: Request) -> Response:
        try:
            totals = await writer.totals()
            room = store.room()
        except Exception:
            return answer(503, {"status": "the store cannot be read", "protocol": digest})
        status = "the last batch could not be written" if writer.failing else "ok"
        if room is not None and room < limits.bytes:
            status = "the disk is full"
        told = {"status": status, "reports": totals.reports, "batches": totals.batches, "protocol": digest}
        return answer(200 if status == "ok" else 503, told)

    @contextlib.asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        try:
            async with running(writer.run()):
                yield
        finally:
            writer.close()
            store.close()

    answers = ("/reports", take, "POST"), ("/protocol", show, "GET"), ("/health", health, "GET")
    return Starlette(routes=[Route(path, ask, methods=[verb]) for path, ask, verb in answers], lifespan=live)


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let work that never ends run beside an application, as long as that lives."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def read_pieces(request: Request, most: int, words: str = " here") -> AsyncIterator[bytes]:
    """Yield a body; whatever the header says, no more than allowed is taken. `words` end the refusal of more."""
    from starlette.requests import ClientDisconnect

    large = Refused(413, "too large", f"a body has at most {most} bytes{words}")
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


async def read_body(request: Request, most: int, seconds: float, words: str = " here") -> bytes:
    """Read a small body, and stop as soon as it is too large or too slow."""
    try:
        async with asyncio.timeout(seconds):
            return b"".join([part async for part in read_pieces(request, most, words)])
    except TimeoutError:
        raise Refused(408, "too slow", f"a body has to arrive within {seconds:g} seconds") from None


def serve(store: ReportStore, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Collect until stopped by a signal."""
    app = make_app(store)
    with listen(host, port) as listener:
        bound = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{bound}")
        try:
            run_server(HostGuard(Quiet(app), host, bound), listener)
        except ImportError as error:
            raise _missing() from error


def listen(host: str, port: int) -> socket.socket:
    """Bind a port and listen; port 0 takes a free one."""
    # the protocol is named, or else asyncio leaves small answers waiting for the client's delayed acknowledgement
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise DataError(
            f"cannot listen on {host}, port {port} ({error.strerror}); choose another --port or --host"
        ) from None
    return listener


def _missing() -> MissingExtraError:
    return MissingExtraError("the collector needs Starlette and uvicorn: pip install 'dagveil[local]'")

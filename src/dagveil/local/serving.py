"""What the program's servers share: which Host they answer to, how many connections they hold, and what a log may say.

A connection that has sent no whole request is the cheapest thing to make in thousands. So it has a few seconds, and
when too many are open the one that has waited longest gives way to the newest: whoever asks at once gets in.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_CONNECTIONS: Final = 512
"""Open at the same time, or half of the files that the process may open if these are fewer."""

SECONDS_FOR_HEADERS: Final = 10.0
"""In which a request's headers must have arrived, and after which an idle connection is closed."""

BACKLOG: Final = 256
"""Connections that are accepted in one go, before any is counted; or a quarter of the files if these are fewer."""

DEBUG_VARIABLE: Final = "DAGVEIL_DEBUG"


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches a host.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def knows_host(header: str, host: str, port: int) -> bool:
    """Say whether a Host header means a server that listens on this host and port.

    A page that was made to lead here by its name (DNS rebinding) sends that name.

    Examples
    --------
    >>> hosts = ("localhost:8080", "127.0.0.1:8080", "evil.example:8080", "127.0.0.1")
    >>> [knows_host(header, "127.0.0.1", 8080) for header in hosts]
    [True, True, False, False]
    """
    name, _, given = header.lower().rpartition(":")
    if given != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]")
    if name in ("localhost", "127.0.0.1", "::1", host.lower()):
        return True
    if is_loopback(host):
        return False
    if name in (socket.gethostname().lower(), socket.getfqdn().lower()):
        return True
    try:
        # a page that rebinds has a name; a number can only be this machine's own
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
            print(tell_place(error), file=sys.stderr, flush=True)  # noqa: T201
            if not begun:
                await send_plain(send, 500, b'{"error":"unexpected","detail":"something unexpected went wrong"}')


def tell_place(error: Exception) -> str:
    """Say what kind of error came up and where, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "nowhere"
    return (
        f"unexpected: {type(error).__name__} in {where}; its message is withheld because it may hold data. Set "
        f"{DEBUG_VARIABLE}=1 to see it"
    )


async def send_plain(send: Send, status: int, body: bytes) -> None:
    """Send a short answer in JSON."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _count_files() -> int:
    """Return how many files the process may have open."""
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        return 2 * MOST_CONNECTIONS
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def run_server(
    app: ASGIApp,
    listener: socket.socket,
    most: int = MOST_CONNECTIONS,
    seconds: float = SECONDS_FOR_HEADERS,
) -> None:
    """Serve an application until stopped by a signal, with bounded connections and no access log.

    Parameters
    ----------
    app
        The application.
    listener
        A bound socket.
    most
        Connections at the same time.
    seconds
        For the headers of a request.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    files = _count_files()
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

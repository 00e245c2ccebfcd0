"""The studio as an application and a server: for this machine's owner only, with the token, from its own pages.

- A request must be addressed to the studio by name and port: a foreign name that was made to lead here (DNS rebinding)
  is refused.
- A browser says where a request comes from (Origin, Sec-Fetch-Site): what comes from another page is refused, and so is
  a change that a browser sends without saying.
- The token in the address of the first visit is exchanged for a cookie that scripts cannot read and that other sites
  cannot make a browser send. Programs send the token in the header Authorization instead.
- A browser sends cookies to every port of a host, so another server on this machine could be sent this one. Therefore
  pages live below a path that is a secret too: the cookie is for that path only, and counts nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import msgspec

from dagveil.errors import DagveilError, MissingExtraError
from dagveil.local.collector import Quiet, Refused, knows_host, listen, run_server, running
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.studio.folder import Folder
from dagveil.studio.jobs import MOST_RUNNING, JobRunner, JobStore, holding
from dagveil.studio.requests import MOST_UPLOADED
from dagveil.studio.responses import WITHHELD, Refusal, refuse
from dagveil.studio.service import StudioService

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
SAFE: Final = frozenset({"GET", "HEAD"})
OPEN: Final = "/static/"  # style and script of the package itself: they hold nothing of anybody's
# field of a request: whether it came with the token, or with cookie and path. Nobody else may be told the path
ENTERED: Final = "dagveil.entered"
LONGEST_COOKIE: Final = 8192


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one server: made at its start, kept nowhere."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    path: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def base(self) -> str:
        """What the paths of all pages begin with."""
        return f"/{self.path}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the studio listens."""

    host: str
    port: int

    @property
    def cookie(self) -> str:
        """Name of the cookie: browsers do not tell ports apart."""
        return f"dagveil-studio-{self.port}"

    @property
    def address(self) -> str:
        """What the address of a page begins with."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def knows(self, host: str) -> bool:
        """Say whether a Host header means this studio."""
        return knows_host(host, self.host, self.port)


class AccessControl:
    """Lets requests in or refuses them, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, place: Place, keys: Keys) -> None:
        self.app, self.place, self.keys = app, place, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _read_headers(scope)
        if (refusal := self._refuse(scope, headers)) is not None:
            await _answer(send, scope, *refusal)
            return
        if (entered := self._enter(scope)) is not None:
            await send(entered)
            await send({"type": "http.response.body", "body": b""})
            return
        scope, below = self._descend(scope)
        scope[ENTERED] = self._known(headers, below=below)
        if not scope[ENTERED] and not scope["path"].startswith(OPEN):
            hint = "open the address that `dagveil studio` printed: it holds the token"
            await _answer(send, scope, 401, "no token", hint)
            return

        async def dress(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                extra = [(name, value) for name, value in _encode(HEADERS) if name not in given]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await self.app(scope, receive, dress)

    def _refuse(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str, str] | None:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self.place.knows(hosts[0]):
            return 421, "wrong host", f"this studio is at {self.place.address}; it answers to no other name"
        foreign = (403, "foreign page", "this request comes from another page; use the studio's own")
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return foreign
        if any(origin != f"http://{hosts[0].lower()}" for origin in headers.get("origin", [])):
            return foreign
        told = "origin" in headers or "same-origin" in headers.get("sec-fetch-site", [])
        if scope["method"] not in SAFE and not told and "authorization" not in headers:
            return 403, "no origin", "a change must say where it comes from, or bring the token in Authorization"
        return None

    def _enter(self, scope: Scope) -> Message | None:
        """Exchange the token of a first visit for a cookie."""
        if scope["path"] != "/" or scope["method"] != "GET":
            return None
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")[:1000]).get("token", [])
        if len(given) != 1 or not _same(given[0], self.keys.token):
            return None
        base = self.keys.base
        cookie = f"{self.place.cookie}={self.keys.session}; Path={base}; HttpOnly; SameSite=Strict"
        return _begin(303, {"location": f"{base}/", "set-cookie": cookie})

    def _descend(self, scope: Scope) -> tuple[Scope, bool]:
        """Take the secret path off; say whether it was there."""
        given, rest = scope["path"][: len(self.keys.base)], scope["path"][len(self.keys.base) :]
        if not rest.startswith("/") or not _same(given, self.keys.base):
            return dict(scope), False
        return {**scope, "path": rest, "raw_path": rest.encode()}, True

    def _known(self, headers: dict[str, list[str]], *, below: bool) -> bool:
        if "authorization" in headers:
            kind, _, token = headers["authorization"][0].partition(" ")
            return len(headers["authorization"]) == 1 and kind.lower() == "bearer" and _same(token, self.keys.token)
        for line in headers.get("cookie", []) if below else []:
            if len(line) > LONGEST_COOKIE:
                continue
            try:
                cookie = SimpleCookie(line).get(self.place.cookie)
            except CookieError:
                continue
            if cookie is not None and _same(cookie.value, self.keys.session):
                return True
        return False


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def _encode(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _begin(status: int, headers: Mapping[str, str]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": _encode({**HEADERS, **headers})}


def _read_headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _answer(send: Send, scope: Scope, status: int, error: str, detail: str) -> None:
    if scope["path"].startswith("/api/"):
        kind, body = "application/json", msgspec.json.encode(Refusal(error=error, detail=detail))
    else:
        kind, body = "text/plain; charset=utf-8", f"{error}: {detail}\n".encode()
    who = {"www-authenticate": "Bearer"} if status == 401 else {}
    await send(_begin(status, {"content-type": kind, "content-length": str(len(body)), **who}))
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a studio takes on."""

    upload_bytes: int = MOST_UPLOADED
    running: int = MOST_RUNNING


USUAL: Final = Limits()


def open_service(folder: Folder, ledger: str, limits: Limits = USUAL) -> StudioService:
    """Open everything behind the studio; the caller closes `service.books`."""
    from sqlalchemy.engine import make_url

    shown = make_url(ledger).render_as_string(hide_password=True) if "://" in ledger else str(Path(ledger).absolute())
    books, store = Ledger.open(ledger), JobStore(folder.jobs_path)
    place, running = ledger if "://" in ledger else shown, limits.running
    return StudioService(folder, store, JobRunner(folder, store, place, shown, books, running), books, shown)


def make_app(service: StudioService, place: Place, keys: Keys, limits: Limits) -> AccessControl:
    """Return the application."""
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Mount
        from starlette.staticfiles import StaticFiles
    except ImportError as error:
        raise MissingExtraError("the studio needs Starlette and uvicorn: pip install 'dagveil[studio]'") from error
    from dagveil.studio import api, pages

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            words = {404: "there is no such page", 405: "method not allowed"}.get(error.status_code, error.detail)
            told = Refused(error.status_code, error.detail.lower(), words)
        elif isinstance(error, DagveilError):
            told = refuse(error)
        else:
            told = Refused(500, "unexpected", WITHHELD.format(kind=type(error).__name__))
        if request.url.path.startswith("/api/"):
            return api.answer(told.status, {"error": told.error, "detail": told.detail})
        return pages.show_refusal(told, keys.base if request.scope[ENTERED] else "")

    async def watch() -> None:
        while True:
            with contextlib.suppress(Exception):  # a ledger that is away for a while must not end the watch
                await asyncio.to_thread(service.runner.tick)
            await asyncio.sleep(WATCH_SECONDS)

    @contextlib.asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        async with running(watch()):
            yield

    static = Mount("/static", StaticFiles(packages=[("dagveil.studio", "static")]))
    routes = [*api.list_routes(service, limits.upload_bytes), *pages.list_routes(service, keys.base), static]
    handlers = {HTTPException: refused, DagveilError: refused, Exception: refused}
    inner = Starlette(routes=routes, exception_handlers=handlers, lifespan=live)
    inner.router.redirect_slashes = False  # an address is right or wrong; nobody is sent elsewhere
    return AccessControl(Quiet(inner), place, keys)


def serve(
    place: str | Path, ledger: str, host: str, port: int, ready: Callable[[str, str], None], limits: Limits = USUAL
) -> None:
    """Serve a folder until stopped by a signal; runs go on in processes of their own.

    Port 0 takes a free one. `ready` is told the address with the token and the ledger's place, once it is bound.
    """
    os.umask(0o077)  # whatever the studio and its runs write is for their owner alone
    folder = Folder.open(place)
    with holding(folder.lock_path, f"another studio serves {folder.root}; stop it, or choose another folder"):
        folder.sweep()
        service = open_service(folder, ledger, limits)
        with contextlib.closing(service.books), listen(host, port) as listener:
            keys, bound = Keys(), Place(host, listener.getsockname()[1])
            app = make_app(service, bound, keys, limits)
            ready(f"{bound.address}/?token={keys.token}", service.shown)
            run_server(app, listener)

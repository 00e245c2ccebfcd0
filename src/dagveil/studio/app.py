"""The studio as an application, and the server that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagveil.errors import DagveilError, MissingExtraError
from dagveil.local.collector import Quiet, listen, run_server
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.studio.access import ENTERED, AccessControl, Keys, Place
from dagveil.studio.folder import Folder
from dagveil.studio.job_runner import MOST_RUNNING, JobRunner, holding
from dagveil.studio.jobs import JobStore
from dagveil.studio.requests import MOST_UPLOADED
from dagveil.studio.responses import WITHHELD, Refused, refuse
from dagveil.studio.service import StudioService

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a studio takes on."""

    upload_bytes: int = MOST_UPLOADED
    running: int = MOST_RUNNING


def open_service(folder: Folder, ledger: str, limits: Limits | None = None) -> StudioService:
    """Open everything behind the studio; the caller closes `service.books`."""
    from sqlalchemy.engine import make_url

    shown = make_url(ledger).render_as_string(hide_password=True) if "://" in ledger else str(Path(ledger).absolute())
    books, store = Ledger.open(ledger), JobStore(folder.jobs_path)
    place, running = ledger if "://" in ledger else shown, (limits or Limits()).running
    return StudioService(folder, store, JobRunner(folder, store, place, shown, books, running), books, shown)


def make_app(service: StudioService, place: Place, keys: Keys, limits: Limits | None = None) -> AccessControl:
    """Return the application."""
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Mount
        from starlette.staticfiles import StaticFiles
    except ImportError as error:
        raise missing() from error
    from dagveil.studio import api, pages

    limits = limits or Limits()

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            words = {404: "there is no such page", 405: "method not allowed"}
            told = Refused(error.status_code, error.detail.lower(), words.get(error.status_code, error.detail))
        elif isinstance(error, DagveilError):
            told = refuse(error)
        else:
            told = Refused(500, "unexpected", WITHHELD.format(kind=type(error).__name__))
        if request.url.path.startswith("/api/"):
            return api.answer(told.status, {"error": told.error, "detail": told.detail})
        return pages.show_refusal(told, keys.base if request.scope[ENTERED] else "")

    @contextlib.asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_watch(service.runner))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    static = Mount("/static", StaticFiles(packages=[("dagveil.studio", "static")]))
    routes = [*api.list_routes(service, limits.upload_bytes), *pages.list_routes(service, keys.base), static]
    handlers = {HTTPException: refused, DagveilError: refused, Exception: refused}
    inner = Starlette(routes=routes, exception_handlers=handlers, lifespan=live)
    inner.router.redirect_slashes = False  # an address is right or wrong; nobody is sent elsewhere
    return AccessControl(Quiet(inner), place, keys)


async def _watch(runner: JobRunner) -> None:
    while True:
        with contextlib.suppress(Exception):  # a ledger that is away for a while must not end the watch
            await asyncio.to_thread(runner.tick)
        await asyncio.sleep(WATCH_SECONDS)


def serve(
    place: str | Path,
    ledger: str,
    host: str,
    port: int,
    ready: Callable[[str, str], None],
    *,
    limits: Limits | None = None,
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
            keys = Keys()
            bound = Place(host, listener.getsockname()[1])
            app = make_app(service, bound, keys, limits)
            ready(f"{bound.address}/?token={keys.token}", service.shown)
            run_server(app, listener)


def missing() -> MissingExtraError:
    """Return the error for packages that are not installed."""
    return MissingExtraError("the studio needs Starlette and uvicorn: pip install 'dagveil[studio]'")

"""A studio without a network: a folder with two tables, and a way to ask the application."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagveil.data.schema import save_schema
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.progress import CancelSignal
from dagveil.studio.app import AccessControl, Keys, Limits, Place, make_app, open_service
from dagveil.studio.folder import Folder, file_id
from dagveil.studio.service import StudioService
from dagveil.studio.worker import Worker

SECRET = "Zebedee-4711"
"""Stands in the rows and nowhere else: whoever finds it in an answer has found a leak."""

HOST = "127.0.0.1:8123"
ASIA, VISITS = file_id("asia.csv"), file_id("visits.csv")


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")  # a zip is no text


@dataclass
class Caller:
    """Asks a studio, with the token unless told otherwise."""

    service: StudioService
    app: AccessControl
    keys: Keys
    folder: Path
    seen: list[Reply] = field(default_factory=list)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str | None = "application/json",
        piece: int = 65536,
        bare: bool = False,
        **headers: str | None,
    ) -> Reply:
        """Ask once; `bare` leaves out token and host, and a header of None is left out."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given: dict[str, str | None] = (
            {} if bare else {"host": HOST, "authorization": f"Bearer {self.keys.token}", "content-type": kind}
        )
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value is not None]
        return self.raw(method, path, content, pairs, piece)

    def raw(self, method: str, path: str, body: bytes, headers: list[tuple[bytes, bytes]], piece: int = 65536) -> Reply:
        pieces = [body[i : i + piece] for i in range(0, len(body), piece)] or [b""]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not pieces:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(message)

        place, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": place,
            "raw_path": place.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8123),
        }  # fmt: skip
        asyncio.run(self.app(scope, receive, send))
        told = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        reply = Reply(sent[0]["status"], told, b"".join(message.get("body", b"") for message in sent[1:]))
        self.seen.append(reply)
        return reply

    def check_nothing_leaked(self) -> None:
        """Look for cells, the token and errors of the program itself in everything that was answered."""
        for reply in self.seen:
            assert reply.status != 500, reply.text
            text = reply.text + str(reply.headers)
            for secret in (SECRET, self.keys.token, self.keys.session, "Traceback"):
                assert secret not in text or "set-cookie" in reply.headers

    def check_nothing_spent(self) -> None:
        assert self.service.books.history() == ()

    def spent(self, dataset: str = "asia-sample") -> float:
        return float(self.service.books.account(dataset).spent_epsilon)


def fill_folder(folder: Path, rows: int = 400) -> None:
    """Put a table with its reviewed schema there, and one without."""
    network = load_network("asia")
    codes = sample_codes(network, rows, np.random.default_rng(1))
    schema = network_schema(network, rows)
    save_schema(schema, folder / "asia.toml")
    names = list(schema.columns)
    cells = [[schema.columns[name].levels[code] for code in codes[name]] for name in names]
    lines = [",".join(row) for row in zip(*cells, strict=True)]
    (folder / "asia.csv").write_text("\n".join([",".join(names), *lines, ""]))
    (folder / "visits.csv").write_text(f"city,age\n{SECRET},31.25\nLyon,62.5\n{SECRET},47\n")


def open_studio(folder: Path, limits: Limits | None = None) -> Caller:
    """Open a studio; by default no job is ever started."""
    limits = limits or Limits(upload_bytes=2000, running=0)
    place = Folder.open(folder)
    service = open_service(place, str(place.root / "ledger.sqlite"), limits)
    keys = Keys()
    return Caller(service, make_app(service, Place("127.0.0.1", 8123), keys, limits), keys, place.root)


def open_books(folder: Path) -> Ledger:
    return Ledger.open(folder / "ledger.sqlite")


def order_job(studio: Caller, **change: Any) -> str:
    body = {"dataset": ASIA, "epsilon": "1", "noise": "exact", "redraws": 0, **change}
    reply = studio.ask("POST", "/api/jobs", body)
    assert reply.status == 201, reply.text
    return str(reply.json["id"])


def work(studio: Caller, job_id: str, bell: CancelSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do in this process what the process of a job does."""
    monkeypatch.setenv("DAGVEIL_LEDGER", str(studio.folder / "ledger.sqlite"))
    assert studio.service.store.start(job_id)
    studio.service.folder.results(job_id).mkdir(exist_ok=True)
    job = studio.service.store.get(job_id)
    assert job is not None
    Worker(studio.service.folder, studio.service.store, job, bell).work()

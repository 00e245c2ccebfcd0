"""The collector: what it takes, what it refuses and how, and that no acknowledged batch is ever lost."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Categorical
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.local.collector import HostGuard, Limits, Quiet, make_app, serve
from dagveil.local.device import Sender
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Mechanism, protocol_from_json
from dagveil.local.store import ReportStore
from dagveil_bench.collector_load import Load, Server, run_load, write_page

PROTOCOL = plan_protocol(
    Schema(dataset="survey", reviewed=True, columns={"a": Categorical(("x", "y", "z"), "x"), "b": Boolean("false")}),
    Mechanism.RESPONSE,
    epsilon=3.0,
)
DIGEST = PROTOCOL.digest()
JSON = (b"content-type", b"application/json")
LIMITS = Limits(bytes=2000, reports=20, seconds=0.5)

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@asynccontextmanager
async def collecting(path: Path, limits: Limits = LIMITS) -> AsyncIterator[Ask]:
    """Run the application without a network; give a function that asks it."""
    app = make_app(ReportStore.open(path, PROTOCOL), limits)

    async def ask(
        method: str, path: str, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = (JSON,), piece: int = 64
    ) -> tuple[int, Any]:
        pieces = [body[i : i + piece] for i in range(0, len(body), piece)] or [b""]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not pieces:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "headers": list(headers),
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8765),
        }  # fmt: skip
        await app(scope, receive, send)  # type: ignore[arg-type]
        content = b"".join(message.get("body", b"") for message in sent[1:])
        try:
            return sent[0]["status"], json.loads(content)
        except ValueError:
            return sent[0]["status"], content.decode()

    async with app.router.lifespan_context(app):
        yield ask


def message(reports: object = ((0, 1), (2, 0)), **changes: object) -> bytes:
    content = {"batch": str(uuid4()), "protocol": DIGEST, "reports": reports, **changes}
    return json.dumps({name: value for name, value in content.items() if value is not ...}).encode()


def test_batches_are_stored_once_and_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with collecting(tmp_path / "r.db") as ask:
            batch = str(uuid4())
            for _ in range(3):
                status, answer = await ask("POST", "/reports", message(batch=batch))
                assert (status, answer) == (200, {"batch": batch, "reports": 2})
            assert (await ask("POST", "/reports", message([[1, 1]], batch=batch)))[0] == 409
            many = await asyncio.gather(*(ask("POST", "/reports", message()) for _ in range(40)))
            assert {status for status, _ in many} == {200}
            assert (await ask("GET", "/health"))[1] == {
                "status": "ok", "reports": 82, "batches": 41, "protocol": DIGEST
            }  # fmt: skip
            status, public = await ask("GET", "/protocol")
            assert protocol_from_json(json.dumps(public)).digest() == DIGEST
            assert (await ask("GET", "/reports"))[0] == 405
            assert (await ask("GET", "/elsewhere"))[0] == 404

    asyncio.run(story())
    with ReportStore.open(tmp_path / "r.db") as store:
        assert store.totals().reports == len(store.codes()) == 82


REFUSED = [
    (message(), (), 415, "wrong type"),
    (message(), ((b"content-type", b"text/csv"),), 415, "wrong type"),
    (b"{", (JSON,), 400, "malformed"),
    (b"\xff\xfe", (JSON,), 400, "malformed"),
    (b"", (JSON,), 400, "malformed"),
    (b"[]", (JSON,), 422, "wrong layout"),
    (message(batch="no uuid"), (JSON,), 422, "wrong layout"),
    (message(batch=...), (JSON,), 422, "wrong layout"),
    (message(extra=1), (JSON,), 422, "wrong layout"),
    (message(protocol="0" * 64), (JSON,), 422, "wrong protocol"),
    (message([]), (JSON,), 422, "no reports"),
    (message([[0]]), (JSON,), 422, "wrong length"),
    (message([[0, 1, 0]]), (JSON,), 422, "wrong length"),
    (message([[3, 1]]), (JSON,), 422, "code out of range"),
    (message([[0, 2]]), (JSON,), 422, "code out of range"),
    (message([[-1, 0]]), (JSON,), 422, "wrong layout"),
    (message([[10**30, 0]]), (JSON,), 422, "wrong layout"),
    (message([[0.5, 0]]), (JSON,), 422, "wrong layout"),
    (message([[True, 0]]), (JSON,), 422, "wrong layout"),
    (message([["x", "true"]]), (JSON,), 422, "wrong layout"),
    (message([[0, 1]] * 21), (JSON,), 413, "too many reports"),
    (message([[0, 1]] * 600), (JSON,), 413, "too large"),
    (message(), (JSON, (b"content-length", b"99999999999999999999")), 413, "too large"),
]


def test_what_does_not_fit_is_refused_in_words_and_nothing_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with collecting(tmp_path / "r.db") as ask:
            for body, headers, status, error in REFUSED:
                found, answer = await ask("POST", "/reports", body, headers)
                assert (found, answer["error"]) == (status, error), body[:80]
                assert answer["detail"]
            assert (await ask("GET", "/health"))[1]["reports"] == 0

    asyncio.run(story())


def test_a_large_body_is_cut_off_while_it_streams(tmp_path: Path) -> None:
    """Without a declared length, no more than the limit is ever taken."""

    async def story() -> None:
        app = make_app(ReportStore.open(tmp_path / "r.db", PROTOCOL), LIMITS)
        taken = 0

        async def endless() -> dict[str, Any]:
            nonlocal taken
            taken += 1
            return {"type": "http.request", "body": b" " * 500, "more_body": True}

        async def slow() -> dict[str, Any]:
            await asyncio.sleep(5)
            raise AssertionError

        for receive, status in ((endless, 413), (slow, 408)):
            sent: list[Any] = []

            async def send(what: Any, sent: list[Any] = sent) -> None:
                sent.append(what)

            scope = {"type": "http", "method": "POST", "path": "/reports", "headers": [JSON], "query_string": b""}
            await app(scope, receive, send)  # type: ignore[arg-type]
            assert sent[0]["status"] == status
        assert taken == 5

    asyncio.run(story())


def test_a_full_disk_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ReportStore, batches: object) -> list[bool]:
        raise sqlite3.OperationalError("database or disk is full")

    async def story() -> None:
        async with collecting(tmp_path / "r.db") as ask:
            body = message()
            with monkeypatch.context() as broken:
                broken.setattr(ReportStore, "append", fail)
                status, answer = await ask("POST", "/reports", body)
                assert (status, answer["error"]) == (503, "not stored")
            assert (await ask("POST", "/reports", body))[0] == 200

    asyncio.run(story())


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = (
    st.binary(max_size=200)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries(
        {},
        optional={
            "batch": st.uuids().map(str) | JSON_VALUES,
            "protocol": st.just(DIGEST) | JSON_VALUES,
            "reports": st.lists(st.lists(st.integers(-2, 4), max_size=3), max_size=4) | JSON_VALUES,
        },
    ).map(lambda value: json.dumps(value).encode())
)


def test_health_tells_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While batches cannot be written, and while there is no room for one, the collector is not well."""
    real = ReportStore.append

    def fail(self: ReportStore, batches: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    async def story() -> None:
        async with collecting(tmp_path / "r.db") as ask:
            assert (await ask("GET", "/health"))[0] == 200
            monkeypatch.setattr(ReportStore, "append", fail)
            assert (await ask("POST", "/reports", message()))[0] == 503
            status, told = await ask("GET", "/health")
            assert (status, told["status"]) == (503, "the last batch could not be written")
            monkeypatch.setattr(ReportStore, "append", real)
            assert (await ask("POST", "/reports", message()))[0] == 200
            assert (await ask("GET", "/health"))[1]["status"] == "ok"
            monkeypatch.setattr(ReportStore, "room", lambda self: LIMITS.bytes - 1)
            status, told = await ask("GET", "/health")
            assert (status, told["status"], told["batches"]) == (503, "the disk is full", 1)

    asyncio.run(story())


def test_a_collector_answers_to_no_other_name(tmp_path: Path) -> None:
    server = Server(tmp_path, PROTOCOL)
    try:
        server.start()
        for host, wanted in ((server.url.removeprefix("http://"), 200), ("evil.example", 421)):
            request = Request(f"{server.url}/health", headers={"Host": host})
            try:
                with urlopen(request, timeout=60) as reply:
                    status = reply.status
            except HTTPError as error:
                status = error.code
            assert status == wanted
    finally:
        server.stop()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(BODIES, min_size=10, max_size=20))
def test_no_body_breaks_the_collector(bodies: list[bytes], tmp_path: Path) -> None:
    async def story() -> None:
        async with collecting(tmp_path / f"{uuid4()}.db") as ask:
            for body in (*bodies, b"[" * 1500, b'{"reports":' + b"[" * 1500):
                status, answer = await ask("POST", "/reports", body)
                assert status in (200, 400, 409, 413, 422), (status, body)
                assert status == 200 or answer["error"]

    asyncio.run(story())


def test_a_sender_tries_again_and_gives_up_in_the_end() -> None:
    waits: list[float] = []
    with pytest.raises(DataError, match="not acknowledge after 4 tries: no answer"):
        Sender("http://127.0.0.1:9", 4, waits.append).send([[0, 1]], DIGEST)
    assert waits == [0.1, 0.2, 0.4]
    for url in ("ftp://host", "http://", "http://host:port"):
        with pytest.raises(DataError, match="address"):
            Sender(url)


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    """The collector may be killed while it answers: the batch is stored, and the client must find out."""
    bodies = []

    def answer(listener: socket.socket) -> None:
        for number in range(2):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                length = 0
                while (line := stream.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                bodies.append(json.loads(stream.read(length)))
                body = json.dumps({"batch": bodies[-1]["batch"], "reports": 1}).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + (body if number else body[:5]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        sender = Sender(f"127.0.0.1:{listener.getsockname()[1]}", 3, lambda seconds: None)
        batch = sender.send([[0, 1]], DIGEST)
        sender.close()
        thread.join()
    assert [body["batch"] for body in bodies] == [str(batch)] * 2


def test_nothing_acknowledged_is_lost_when_the_server_is_killed() -> None:
    load = run_load(3.0, 5, clients=4, kills=3)
    assert (load.lost, load.doubled, load.changed) == (0, 0, 0)
    assert load.given_up == 0
    assert load.acknowledged_batches == load.stored_batches > 0
    page = write_page([load], load, 1.0, "command")
    assert f"| {load.acknowledged_batches} | 0 | {load.stored_batches} | 0 | 0 | 0 |" in page


def test_the_comparison_notices_losses(tmp_path: Path) -> None:
    """The figures above could not come out as zero by themselves."""
    from dagveil_bench.collector_load import _compare

    kept, lost, changed = uuid4(), uuid4(), uuid4()
    codes = np.array([[0, 1]])
    with ReportStore.open(tmp_path / "r.db", PROTOCOL) as store:
        store.append([store.pack(kept, codes), store.pack(changed, codes)])
    told = {kept: b"\x00\x01", lost: b"\x00\x01", changed: b"\x01\x01"}
    assert _compare(tmp_path / "r.db", told, 1, 1, 1.0, 0, 0) == Load(
        1, 1, 1.0, 0, 3, 3, 2, 0, lost=1, doubled=0, changed=1
    )  # fmt: skip


def test_a_server_answers_over_the_network_and_refuses_a_second_one_on_its_port(tmp_path: Path) -> None:
    server = Server(tmp_path, PROTOCOL)
    try:
        server.start()
        sender = Sender(server.url)
        assert sender.fetch_protocol().digest() == DIGEST
        batch = sender.send(np.array([[0, 1], [2, 1]]), DIGEST)
        assert sender.send([[0, 1], [2, 1]], DIGEST, batch) == batch
        with pytest.raises(DataError, match="refused: status 422, wrong protocol"):
            sender.send([[0, 1]], "0" * 64)
        sender.close()
        other = Server(tmp_path, PROTOCOL)
        other.port = server.port
        with pytest.raises(DataError, match="did not start"):
            other.start()
        other.stop()
    finally:
        server.stop()
    with ReportStore.open(server.store) as store:
        assert store.codes().tolist() == [[0, 1], [2, 1]]


def test_the_collector_is_served_with_bounds_and_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr("dagveil.local.collector.run_server", lambda app, listener: served.append(app))
    with ReportStore.open(tmp_path / "r.db", PROTOCOL) as store:
        serve(store, "127.0.0.1", 0, lambda address: None)
    (guard,) = served
    assert isinstance(guard, HostGuard)
    assert isinstance(guard.app, Quiet)

"""Servers under connections that ask for nothing, requests for other hosts, and errors that nobody foresaw."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dagveil.local.collector import HostGuard, Quiet, knows_host

SOURCE = str(Path(__file__).parents[2] / "src")
SECRET = "Zebedee-4711"
MOST = 20

PROGRAM = """
import sys
from dagveil.local.collector import listen
from dagveil.local.collector import run_server

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

with listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    run_server(app, listener, most=int(sys.argv[1]), seconds=float(sys.argv[2]))
"""


@contextmanager
def serving(folder: Path, seconds: float) -> Iterator[int]:
    """Run a server that holds few connections; what it logs goes to a file."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(MOST), str(seconds)],
            env={**os.environ, "PYTHONPATH": SOURCE},
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def ask(connection: socket.socket) -> bytes:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    found = b""
    while not found.endswith(b"ok") and (piece := connection.recv(4096)):
        found += piece
    return found


def test_connections_that_ask_for_nothing_lock_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path, seconds=600.0) as port, ExitStack() as stack:
        for _ in range(5 * MOST):
            idle = stack.enter_context(connect(port))
            idle.sendall(b"GET / HTTP/1.1\r\nHost: x")
        for _ in range(3):
            with connect(port) as visitor:
                assert b"200 OK" in ask(visitor)
                assert b"200 OK" in ask(visitor), "a connection may ask again"
    assert (tmp_path / "log").stat().st_size < 1000


def test_headers_have_a_few_seconds(tmp_path: Path) -> None:
    with serving(tmp_path, seconds=0.2) as port:
        for begun in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"):
            with connect(port) as idle:
                idle.sendall(begun)
                try:
                    while idle.recv(4096):
                        pass  # the end comes, or the test waits for ever
                except ConnectionResetError:
                    pass
    assert (tmp_path / "log").stat().st_size < 1000


def test_nonsense_writes_no_log(tmp_path: Path) -> None:
    with serving(tmp_path, seconds=600.0) as port:
        for _ in range(50):
            with connect(port) as visitor:
                visitor.sendall(b"\x00\xff nonsense\r\n\r\n")
                visitor.recv(4096)
    assert (tmp_path / "log").stat().st_size < 1000


def answer(app: Any, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": list(headers)}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def fine(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


async def stumble(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError(f"could not convert {SECRET}")


async def stumble_late(scope: Any, receive: Any, send: Any) -> None:
    await fine(scope, receive, send)
    raise ValueError(f"could not convert {SECRET}")


@pytest.mark.parametrize("app", [stumble, stumble_late])
def test_messages_of_errors_stay_out_of_the_log(app: Any, capfd: pytest.CaptureFixture[str]) -> None:
    status, body = answer(Quiet(app))
    assert status == (500 if app is stumble else 200)
    log = capfd.readouterr().err
    assert SECRET not in log + body.decode()
    assert "ValueError in test_serving.py, line" in log
    assert len(log.splitlines()) == 1


def test_other_hosts_are_refused() -> None:
    guarded = HostGuard(fine, "127.0.0.1", 8765)
    assert answer(guarded, (b"host", b"127.0.0.1:8765"))[0] == 200
    assert answer(guarded, (b"Host", b"localhost:8765"))[0] == 200
    for headers in (
        [],
        [b"evil.example:8765"],
        [b"127.0.0.1"],
        [b"127.0.0.1:8765", b"127.0.0.1:8765"],
        [b"10.0.0.1:8765"],
    ):
        assert answer(guarded, *((b"host", header) for header in headers))[0] == 421


def test_a_server_for_others_answers_to_its_own_name_and_to_numbers() -> None:
    known = ("10.1.2.3", "[2001:db8::1]", socket.gethostname(), "localhost")
    assert all(knows_host(f"{name}:80", "0.0.0.0", 80) for name in known)
    assert not knows_host("evil.example:80", "0.0.0.0", 80)
    assert knows_host("Collect.example:80", "collect.example", 80)


FEW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
"""


def test_more_connections_than_files_lock_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the process may open files, and more: without a bound it could accept nobody any more."""
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", FEW + PROGRAM)
    monkeypatch.setattr(sys.modules[__name__], "MOST", 512)  # more than there are files
    with serving(tmp_path, seconds=600.0) as port, ExitStack() as stack:
        for _ in range(600):
            idle = stack.enter_context(connect(port))
            idle.sendall(b"GET / HTTP/1.1\r\nHost: x")
        for _ in range(3):
            with connect(port) as visitor:
                visitor.settimeout(10)
                assert b"200 OK" in ask(visitor)
    assert (tmp_path / "log").stat().st_size < 50_000

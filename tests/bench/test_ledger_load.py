"""A small fire: processes that are killed, a line that is cut, and a ledger that holds."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from dagveil.errors import DataError
from dagveil_bench.cut_line import CutLine
from dagveil_bench.ledger_load import Fire, run_fire, write_page


def check(fire: Fire, least: int) -> None:
    """Look at a load; which of its runs are pure is chance, so its budget has room for the least if all of them are."""
    assert fire.holds, fire
    assert fire.missing == 0
    assert fire.draws >= least
    assert fire.charges >= fire.draws
    assert fire.composed <= fire.lifetime < fire.spent


def test_sqlite_with_kills() -> None:
    fire = run_fire("sqlite", 80, processes=3, charges_a_run=5, kills=2)
    check(fire, 30)
    assert "| **drawings without a charge** | **0** |" in write_page([fire], 1.0, "command")


@pytest.mark.postgres
def test_postgresql_with_kills_and_cuts() -> None:
    fire = run_fire("postgresql", 120, processes=4, charges_a_run=5, kills=2, cuts=3)
    check(fire, 40)


def test_a_file_has_no_line() -> None:
    with pytest.raises(DataError, match="no line"):
        run_fire("sqlite", 10, cuts=1)


def test_a_fire_that_does_not_hold_is_told() -> None:
    from dataclasses import replace
    from fractions import Fraction

    fire = Fire("sqlite", 1, 1.0, 0, 0, 0, 1, 1, 0, 1, 0, Fraction(2), Fraction(1), Fraction(1), 0, 0, 0, None)
    assert fire.holds
    for change in (
        {"missing": 1},
        {"composed": Fraction(2)},
        {"overspent": 1},
        {"over_limit": 1},
        {"other_terms": 1},
        {"problem": "x"},
    ):
        assert not replace(fire, **change).holds  # type: ignore[arg-type]


def test_the_line_forwards_and_can_be_cut() -> None:
    echo = socket.create_server(("127.0.0.1", 0))

    def answer(end: socket.socket) -> None:
        with contextlib.suppress(OSError), end:
            end.sendall(end.recv(10))

    def serve() -> None:
        while True:
            try:
                end, _ = echo.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=[end], daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with CutLine(echo.getsockname()[1]) as line:
        for cut in (line.cut, line.stall):
            with socket.create_connection(("127.0.0.1", line.port), timeout=10) as end:
                # a line that has answered is open at both ends
                end.sendall(b"hello")
                assert end.recv(10) == b"hello"
                cutting = threading.Thread(target=cut, args=[1.0])
                cutting.start()
                with contextlib.suppress(ConnectionError):
                    if cut == line.stall:
                        while line._flowing.is_set() and cutting.is_alive():
                            time.sleep(0.001)
                        end.sendall(b"hello")
                    assert end.recv(10) == b""
                cutting.join()
    echo.close()

"""A PostgreSQL server of our own on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dagveil.errors import LedgerError
from dagveil_bench.postgres_server import find_binaries, start_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Start a server that nobody else uses, and stop it afterwards."""
    try:
        server = start_server()
        url = server.__enter__()
    except LedgerError as reason:
        if os.environ.get("CI"):
            pytest.fail(f"CI must test PostgreSQL, but {reason}")
        pytest.skip(str(reason))
    assert find_binaries() is not None
    try:
        yield url
    finally:
        server.__exit__(None, None, None)

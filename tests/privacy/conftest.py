"""A PostgreSQL server of our own on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dagveil_bench.postgres_server import start_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Start a server that nobody else uses, and stop it afterwards."""
    with start_server() as url:
        yield url

"""Lets the tests of this folder import the desk that stands beside them, and gives each test its own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return an empty folder with a ledger of its own."""
    return Desk(tmp_path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)

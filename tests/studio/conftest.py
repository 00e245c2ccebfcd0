"""A studio without a network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from caller import Caller, fill_folder, open_studio


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Caller]:
    """Return a studio whose jobs wait for ever; whatever it answered is searched for cells at the end."""
    fill_folder(tmp_path)
    caller = open_studio(tmp_path)
    yield caller
    caller.check_nothing_leaked()
    caller.service.books.close()

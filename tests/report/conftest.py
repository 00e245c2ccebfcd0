"""A complete result, as decoded JSON, that each test may change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sample_result import make_result


@pytest.fixture
def result() -> dict[str, Any]:
    return make_result()

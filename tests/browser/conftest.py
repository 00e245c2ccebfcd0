"""One headless Chromium for all tests of this folder, and the pages that it opens.

Debian's `chromium` and `chromium-driver` are used, never a downloaded browser. Screenshots go to the folder
DAGVEIL_SCREENSHOTS, or to a temporary one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from sample_result import render
from visitor import Visitor, start_chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Start the browser once; it is slow to start."""
    driver = start_chromium()
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that screenshots are kept in."""
    wanted = os.environ.get("DAGVEIL_SCREENSHOTS")
    folder = Path(wanted) if wanted else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visit(chromium: Any, screenshots: Path, tmp_path: Path) -> Callable[..., Visitor]:
    """Return a function that writes the report of a result and opens it."""

    def open_report(result: dict[str, Any], width: int = 1280) -> Visitor:
        page = tmp_path / "report.html"
        page.write_text(render(result), encoding="utf-8")
        visitor = Visitor(chromium, screenshots)
        visitor.open(page.as_uri(), width)
        return visitor

    return open_report

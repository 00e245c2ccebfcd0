"""Phrases that were translated rather than written do not come back into what users read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

BANNED = (
    r"\bso many counts\b",
    r"\bgoes on where it was\b",
    r"\bof before\b",
    r"\bits kin\b",
    r"\bmade-up\b",
    r"\brehears",
    r"\bmend its\b",
    r"\bHis membership\b",
    r"\bhalf a character\b",
    r"\bstand in result\.json\b",
    r"\bschema is named twice\b",
    r"\bThe best of so many\b",
)


def list_texts() -> Iterator[tuple[str, str]]:
    """Yield what users read: strings of the command line, messages of errors, templates, README and guides."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value
    pages = [*(ROOT / "src").rglob("*.j2"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in pages:
        if "decisions" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_no_banned_phrase() -> None:
    found = [f"{place}: {phrase}" for place, text in list_texts() for phrase in BANNED if re.search(phrase, text)]
    assert found == []

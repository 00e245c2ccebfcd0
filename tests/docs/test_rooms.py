"""The page of the architecture names the rooms that there are, and the layers that are checked."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "dagveil"


def test_every_room_is_on_the_page_and_every_room_of_the_page_exists() -> None:
    table = PAGE[: PAGE.index("## Who may import what")]
    named = {
        name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }
    rooms = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    leaves = {path.name for path in SOURCE.glob("[!_]*.py")}
    assert named == rooms | leaves


def test_every_file_that_the_page_names_exists() -> None:
    files = {path.name for path in SOURCE.rglob("*.*")}
    named = re.findall(r"`(?:[a-z_]+/)*([a-z_0-9]+\.(?:py|sql))`", PAGE)
    assert len(named) > 20
    assert [name for name in named if name not in files] == []


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    block = PAGE[PAGE.index("do not import each other.") : PAGE.index("Three more contracts")]
    layers = [line.strip() for line in block.split("\n") if line.startswith("    ")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    assert layers == contracts[0]["layers"]
    line = next(
        text for text in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n") if "cli > studio" in text
    )
    assert line.strip().split(" > ")[:-1] == layers[:-1]


def test_only_runs_make_a_curator_and_no_sound_method_asks_for_the_rows() -> None:
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        assert "Curator" not in called or room == "runs", path
        assert "open_as_published" not in called or room == "runs", path

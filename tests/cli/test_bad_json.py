"""Evidence and results that are damaged, of another version, or something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import ROWS, Desk

from dagveil.files import seal


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with released evidence and its result."""
    desk = Desk(tmp_path_factory.mktemp("released"))
    assert desk.discover(desk.write("t.csv", ROWS), desk.write_schema()).exit_code == 0
    return desk.out


def drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.pop(key)


def put(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.update({key: value})


def shorten_values(content: dict[str, Any]) -> None:
    content["releases"][0]["values"].pop()


def name_a_stranger(content: dict[str, Any]) -> None:
    content["releases"][0]["columns"] = ["a", "stranger"]


def join_a_stranger(content: dict[str, Any]) -> None:
    edge = {"source": "a", "target": "stranger", "kind": "directed", "confidence": 0.5, "arrow_confidence": 0.5}
    content["graph"]["edges"] = [edge]


@pytest.mark.parametrize(("command", "name"), [("discover", "evidence.json"), ("report", "result.json")])
class TestBoth:
    def refuse(self, desk: Desk, command: str, content: str | bytes, what: str, next_step: str) -> None:
        file = desk.write("given.json", content)
        desk.check_refused(desk.run(command, file, "-o", desk.out), what, next_step)

    def test_missing(self, desk: Desk, command: str, name: str) -> None:
        result = desk.run(command, desk.path("none.json"), "-o", desk.out)
        desk.check_refused(result, "cannot read .*none.json: No such file", f"give the path of an? {name}")

    def test_a_folder(self, desk: Desk, command: str, name: str) -> None:
        desk.path("given.json").mkdir()
        result = desk.run(command, desk.path("given.json"), "-o", desk.out)
        desk.check_refused(result, "given.json: Is a directory", f"give the path of an? {name}")

    @pytest.mark.parametrize("content", ["", "{", "a,b\n1,2\n", b"\xff\xfe\x00", "NaN"])
    def test_not_json(self, desk: Desk, command: str, name: str, content: str | bytes) -> None:
        self.refuse(desk, command, content, "not JSON", f"give an? {name}")

    def test_cut_off(self, desk: Desk, command: str, name: str, released: Path) -> None:
        whole = (released / name).read_bytes()
        self.refuse(desk, command, whole[: len(whole) // 2], "not JSON", f"give an? {name}")

    @pytest.mark.parametrize("content", ["[]", "3", "{}", '{"format": "other", "version": 1}'])
    def test_something_else(self, desk: Desk, command: str, name: str, content: str) -> None:
        self.refuse(desk, command, content, "is not (a )?dagveil", f"give an? {name}")

    def test_the_other_one(self, desk: Desk, command: str, name: str, released: Path) -> None:
        other = "result.json" if name == "evidence.json" else "evidence.json"
        self.refuse(desk, command, (released / other).read_bytes(), "is not (a )?dagveil", f"give an? {name}")

    @pytest.mark.parametrize("version", [0, 3, 999, "1", None])
    def test_other_versions(self, desk: Desk, command: str, name: str, released: Path, version: object) -> None:
        content = json.loads((released / name).read_bytes()) | {"version": version}
        self.refuse(
            desk, command, json.dumps(seal(content)), f"format version {version}", "use the dagveil that wrote it"
        )

    @pytest.mark.parametrize(
        "damage",
        [drop("receipt"), drop("schema"), put("receipt", {}), put("plan", 3), put("software", None)],
        ids=["no receipt", "no schema", "empty receipt", "number for plan", "null for software"],
    )
    def test_damaged(
        self, desk: Desk, command: str, name: str, released: Path, damage: Callable[[dict[str, Any]], object]
    ) -> None:
        content = json.loads((released / name).read_bytes())
        damage(content)
        self.refuse(desk, command, json.dumps(seal(content)), "is damaged", "again")


@pytest.mark.parametrize("damage", [shorten_values, name_a_stranger])
def test_releases_that_do_not_fit(desk: Desk, released: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((released / "evidence.json").read_bytes())
    damage(content)
    result = desk.run("discover", desk.write("given.json", json.dumps(seal(content))), "-o", desk.out)
    desk.check_refused(result, "is damaged", "again")


def test_edges_that_do_not_fit(desk: Desk, released: Path) -> None:
    content = json.loads((released / "result.json").read_bytes())
    join_a_stranger(content)
    result = desk.run("report", desk.write("given.json", json.dumps(seal(content))), "-o", desk.out)
    desk.check_refused(result, "stranger", "write the result again")


def test_options_of_rows_have_no_meaning_for_evidence(desk: Desk, released: Path) -> None:
    for words in (("--epsilon", 1), ("--schema", "s.toml"), ("--accept-draft",), ("--seed", 1), ("--delta", "1e-6")):
        result = desk.run("discover", released / "evidence.json", "-o", desk.out, *words)
        desk.check_refused(result, "at no cost", f"leave out {words[0]}")

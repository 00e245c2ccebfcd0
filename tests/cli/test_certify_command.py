"""`dagveil certify`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from desk import SECRET, Desk

GIVEN = (
    *("--fact", "name=Study", "--fact", "data_curators=A; B", "--fact", "intended_use=Research"),
    *("--fact", "data_product_region=Germany", "--fact", "registry_authors=C"),
)


@pytest.fixture
def result(desk: Desk) -> Path:
    rows = "a,b\n" + "no,no\nyes,yes\n" * 200 + f"{SECRET},no\n"
    words = ("discover", desk.write("rows.csv", rows), "--schema", desk.write_schema(), "--epsilon", 1, "-o", desk.out)
    done = desk.run(*words)
    assert done.exit_code == 0, done.output
    return desk.out / "result.json"


def test_facts_are_asked_for_once(desk: Desk, result: Path) -> None:
    refused = desk.run("certify", result, "-o", desk.path("pack"))
    assert refused.exit_code == 2
    assert "name, data_curators, intended_use, data_product_region, registry_authors" in refused.output
    assert not desk.path("pack").exists()
    done = desk.run("certify", result, "-o", desk.path("pack"), "--schema", desk.path("schema.toml"), *GIVEN)
    assert done.exit_code == 0, done.output
    assert 'data_curators = [\n    "A",\n    "B",\n]' in desk.path("deployment.toml").read_text()
    again = desk.run("certify", result, "-o", desk.path("again"), "--schema", desk.path("schema.toml"))
    assert again.exit_code == 0, again.output
    for path in desk.path("pack").iterdir():
        assert SECRET not in path.read_text(encoding="utf-8")
    checked = desk.run("certify", "--verify", desk.path("pack"))
    assert checked.exit_code == 0, checked.output
    (desk.path("pack") / "card.json").write_text("{}")
    assert desk.run("certify", "--verify", desk.path("pack")).exit_code == 1


def test_the_certificate_of_an_audit_comes_along(desk: Desk, result: Path) -> None:
    audit = desk.run("audit", "measure", "--quick", "--epsilon", 1, "-o", desk.out / "certificate.json")
    assert audit.exit_code == 0, audit.output
    done = desk.run("certify", result, "-o", desk.path("pack"), *GIVEN)
    assert done.exit_code == 0, done.output
    hazards = json.loads((desk.path("pack") / "hazards.json").read_text())["hazards"]
    assert any(hazard["answer"].startswith("An audit (quick") for hazard in hazards)
    assert (desk.path("pack") / "certificate.json").exists()


def test_bad_words(desk: Desk, result: Path) -> None:
    for words, told in (
        (("certify",), "give RESULT.json and -o FOLDER"),
        (("certify", result, "--verify", "x"), "--verify takes a pack alone"),
        (("certify", result, "-o", desk.path("p"), "--fact", "name"), "--fact takes NAME=VALUE"),
        (("certify", result, "-o", desk.path("p"), "--fact", "colour=red"), "the names are name, data_curators"),
        (("certify", "--verify", desk.folder), "no certification pack"),
    ):
        done = desk.run(*words)
        assert done.exit_code == 2
        assert told in done.output

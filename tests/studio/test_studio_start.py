"""Plain answers, the schema that follows, and what a result gives besides its graph."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from caller import ASIA, SECRET, VISITS, Caller, order_job, work

import dagveil as dv
from dagveil.progress import CancelSignal
from dagveil.report.registry import NEEDED
from dagveil.studio.folder import file_id

COLUMNS = {
    "city": {"kind": "categories", "levels": ["Lyon", "Nice"], "other": True},
    "age": {"kind": "number", "bounds": [0, 120], "cuts": [40, 60]},
}
ANSWERS: dict[str, Any] = {"dataset": "visits", "rows": 1000, "reviewed": True, "columns": COLUMNS}


def finish(studio: Caller, job: str, monkeypatch: pytest.MonkeyPatch) -> str:
    work(studio, job, CancelSignal(), monkeypatch)
    assert studio.ask("GET", f"/api/jobs/{job}").json["state"] == "done"
    return job


def test_answers_about_a_file_read_no_row(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    import dagveil.studio.service as module

    monkeypatch.setattr(module, "draft_schema", lambda *_: pytest.fail("rows were read"))
    page = studio.ask("GET", f"/start?dataset={VISITS}").text
    assert all(name in page for name in ("city", "age", "and no row"))
    reply = studio.ask("POST", "/api/start", {**ANSWERS, "table": VISITS, "fixed": True})
    assert (reply.status, reply.json["dataset"]["schema_state"]) == (201, "reviewed")
    assert reply.json["page"].startswith("jobs/")
    schema = dv.load_schema(studio.folder / "visits.toml")
    assert schema.columns["city"] == dv.Categorical(("Lyon", "Nice"))
    assert schema.columns["age"] == dv.Numeric(bounds=(0, 120), bins=(40, 60))
    assert (schema.relation, schema.nominal_rows) == ("replace-one", 1000)
    again = studio.ask("POST", "/api/start", {**ANSWERS, "table": VISITS})
    assert (again.status, again.json["error"]) == (409, "schema exists")
    assert SECRET not in page
    studio.check_nothing_spent()


def test_other_columns_than_the_file_has_are_refused(studio: Caller) -> None:
    columns = {**COLUMNS, "name": {"kind": "skip"}}
    reply = studio.ask("POST", "/api/start", {**ANSWERS, "table": VISITS, "columns": columns})
    assert (reply.status, reply.json["error"]) == (409, "other columns")
    assert not (studio.folder / "visits.toml").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": {"a": {"kind": "yes-no"}, "b": {"kind": "skip"}}}, "at least two columns"),
        ({"columns": {"a": {"kind": "yes-no"}, "b": {"kind": "number", "bounds": [5, 1]}}}, "b: "),
        ({"columns": {"a": {"kind": "yes-no"}, "b": {"kind": "number"}}}, "2 numbers are needed, not 0"),
        ({"columns": {"a": {"kind": "yes-no"}, "b": {"kind": "ordered"}}}, "b: "),
        ({"dataset": "../x/.."}, None),
        ({"dataset": "asia"}, "there is a data set asia"),
        ({"dataset": "ledger"}, "is not taken"),
        ({"rows": 0}, "rows"),
    ],
)
def test_answers_that_cannot_be_write_nothing(studio: Caller, change: dict[str, Any], words: str | None) -> None:
    before = {path.name for path in studio.folder.iterdir()}
    reply = studio.ask("POST", "/api/start", {**ANSWERS, "dataset": "study", **change})
    after = {path.name for path in studio.folder.iterdir()}
    if words is None:
        assert after - before == {"x.toml"}, "what is no letter is left out of the file's name"
        return
    assert reply.status in (409, 422)
    assert words in reply.json["detail"]
    assert after == before


def test_names_alone_wait_for_their_rows(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = studio.ask("POST", "/api/start", {**ANSWERS, "dataset": "new study"})
    table = reply.json["dataset"]["id"]
    assert table == file_id("new-study.toml")
    assert reply.json["dataset"]["has_rows"] is False
    refused = studio.ask("POST", "/api/jobs", {"dataset": table, "epsilon": "1"})
    assert (refused.status, refused.json["error"]) == (409, "no rows")
    assert "new-study.csv" in refused.json["detail"]
    assert studio.ask("POST", f"/api/datasets/{table}/draft", {"replace": True}).status == 409
    job = finish(studio, reply.json["page"].removeprefix("jobs/"), monkeypatch)
    page = studio.ask("GET", f"/jobs/{job}").text
    assert "Leave a folder to begin with" in page
    left = studio.ask("POST", f"/api/jobs/{job}/project", {"epsilon": "0.5"})
    assert set(left.json["files"]) >= {"schema.toml", "discover.ipynb", "Makefile"}
    assert 'epsilon="0.5"' in (studio.folder / "new-study-project" / "discover.py").read_text()
    assert studio.ask("POST", f"/api/jobs/{job}/project", {"epsilon": "0.5"}).status == 422, "it is not empty"
    (studio.folder / "new-study.csv").write_text("city,age\nLyon,3\n")
    names = [one["file"] for one in studio.ask("GET", "/api/datasets").json["datasets"]]
    assert "new-study.csv" in names
    assert "new-study.toml" not in names
    studio.check_nothing_spent()


def test_unreviewed_answers_are_not_explored(studio: Caller) -> None:
    reply = studio.ask("POST", "/api/start", {**ANSWERS, "dataset": "later", "reviewed": False})
    assert reply.json["page"] == f"datasets/{file_id('later.toml')}"
    assert studio.ask("GET", "/api/jobs").json["jobs"] == []


def test_an_exploration_of_another_schema_leaves_no_folder(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = studio.ask("POST", "/api/start", {**ANSWERS, "dataset": "study"})
    job = finish(studio, reply.json["page"].removeprefix("jobs/"), monkeypatch)
    path = studio.folder / "study.toml"
    path.write_text(path.read_text().replace("1000", "2000"))
    refused = studio.ask("POST", f"/api/jobs/{job}/project", {"epsilon": "1"})
    assert (refused.status, refused.json["error"]) == (409, "schema changed")


def test_evidence_gives_tables_rows_and_a_pack(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job = finish(studio, order_job(studio, epsilon="5"), monkeypatch)
    page = studio.ask("GET", f"/jobs/{job}/tables").text
    assert page.count("<table") == 8
    evidence = dv.load_evidence(studio.service.evidence(job))
    two = studio.ask("GET", f"/jobs/{job}/tables?first=smoke&second=lung").text
    assert all(f"{count:,.0f}</td>" in two for count in evidence.table("smoke", "lung").counts.ravel())
    assert studio.ask("GET", f"/jobs/{job}/tables?first=nobody").status == 422
    rows = zipfile.ZipFile(io.BytesIO(studio.ask("GET", f"/jobs/{job}/synthetic.zip?rows=20&seed=3").body))
    assert set(rows.namelist()) == {"synthetic.csv", "synthetic.toml", "notes.txt"}
    assert b"dagveil_synthetic" in rows.read("synthetic.csv")
    assert studio.ask("GET", f"/jobs/{job}/synthetic.zip?rows=1000000").status == 422
    refused = studio.ask("GET", f"/jobs/{job}/certification.zip")
    assert (refused.status, "these facts are missing" in refused.text) == (422, True)
    facts = dict.fromkeys(NEEDED, "An office; A person")
    short = studio.ask("PUT", f"/api/datasets/{ASIA}/facts", {"facts": {"name": "An office"}})
    assert "Who publishes it?" in short.json["detail"]
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/facts", {"facts": {**facts, "colour": "red"}}).status == 422
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/facts", {"facts": facts}).status == 200
    pack = zipfile.ZipFile(io.BytesIO(studio.ask("GET", f"/jobs/{job}/certification.zip").body))
    assert {"sign.html", "registry.yaml", "hazards.json", "manifest.json"} <= set(pack.namelist())
    assert "An office; A person" in studio.ask("GET", f"/jobs/{job}/certify").text
    again = studio.ask("POST", f"/api/jobs/{job}/search", {"settings": {"hidden_causes": True, "redraws": 0}})
    finish(studio, again.json["id"], monkeypatch)
    assert studio.ask("GET", f"/jobs/{again.json['id']}/tables").status == 200, "a search has its run's evidence"
    assert float(studio.spent()) == 5


def test_results_of_the_same_columns_are_offered_for_comparison(
    studio: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = finish(studio, order_job(studio), monkeypatch)
    assert "Compare two results" not in studio.ask("GET", "/jobs").text
    sample = studio.ask("POST", "/api/sample", {}).json
    assert studio.ask("POST", "/api/sample", {}).json == sample, "it is there already"
    second = finish(studio, order_job(studio, dataset=sample["id"]), monkeypatch)
    page = studio.ask("GET", "/jobs").text
    assert page.count("Compare two results") == 1
    assert f"/compare?here={first}" not in page
    assert f'value="{second}"' in studio.ask("GET", f"/jobs/{first}").text

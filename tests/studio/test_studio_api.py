"""The studio's API: what it tells, what it refuses, and that no cell ever comes out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from caller import ASIA, SECRET, VISITS, Caller

from dagveil.studio.api import describe_api

DECLARED: dict[str, Any] = {
    "name": "visits",
    "reviewed": True,
    "nominal_rows": 1000,
    "columns": {
        "city": {"kind": "categorical", "levels": ["Lyon", "Nice"]},
        "age": {"kind": "numeric", "bounds": [0, 120], "missing": "own-level", "bins": 4},
    },
}


def test_a_draft_is_written_but_its_levels_are_not_shown(studio: Caller) -> None:
    reply = studio.ask("POST", f"/api/datasets/{VISITS}/draft", {})
    assert reply.status == 201, reply.text
    assert SECRET in (studio.folder / "visits.toml").read_text()
    assert reply.json["schema_state"] == "draft"
    assert [(column["name"], column["kind"], column["facts"]) for column in reply.json["columns"]] == [
        ("city", "categorical", {}),
        ("age", "numeric", {}),
    ]
    for page in ("", "/schema"):
        shown = studio.ask("GET", f"/datasets/{VISITS}{page}")
        assert shown.status == 200
        assert not any(value in shown.text for value in (SECRET, "Lyon", "31.25", "62.5"))
    assert studio.ask("POST", f"/api/datasets/{VISITS}/draft", {}).status == 409
    assert studio.ask("POST", f"/api/datasets/{VISITS}/draft", {"replace": True, "name": "mine"}).json["name"] == "mine"
    for path in (f"/api/datasets/{VISITS}/plan?epsilon=1", f"/datasets/{VISITS}/plan"):
        assert studio.ask("GET", path).status == 409
    run = studio.ask("POST", "/api/jobs", {"dataset": VISITS, "epsilon": "1"})
    assert (run.status, run.json["error"]) == (409, "unreviewed")
    studio.check_nothing_spent()


def test_a_schema_that_cannot_be_read_is_not_quoted(studio: Caller) -> None:
    (studio.folder / "visits.toml").write_text(
        '[dataset]\nname = "v"\nreviewed = false\n[columns.city]\nkind = "categorical"\n'
        f'levels = ["a"]\noutside = "{SECRET}"\n'
    )
    for path in (f"/api/datasets/{VISITS}", f"/datasets/{VISITS}", "/"):
        assert studio.ask("GET", path).status == 200
    assert studio.ask("GET", f"/api/datasets/{VISITS}/plan?epsilon=1").json["error"] == "unreadable schema"


def test_a_declared_schema_is_what_a_run_takes(studio: Caller) -> None:
    reply = studio.ask("PUT", f"/api/datasets/{VISITS}/schema", DECLARED)
    assert reply.status == 200, reply.text
    assert reply.json["schema_state"] == "reviewed"
    assert reply.json["columns"][0]["facts"]["levels"] == ["Lyon", "Nice"]
    assert studio.ask("GET", f"/datasets/{VISITS}/schema").status == 200
    plan = studio.ask("GET", f"/api/datasets/{VISITS}/plan?epsilon=1").json
    assert plan["questions"] == sum(stage["tables"] for stage in plan["stages"]) > 0
    assert plan["steps"]
    run = studio.ask("POST", "/api/jobs", {"dataset": VISITS, "epsilon": "1"})
    assert (run.status, run.json["state"]) == (201, "queued")


def test_background_knowledge_survives_the_form(studio: Caller) -> None:
    text = (studio.folder / "asia.toml").read_text() + '\n[knowledge]\nforbidden = [["lung", "smoke"]]\n'
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/schema.toml", text.encode(), "text/plain").status == 200
    columns = {
        column["name"]: {"kind": column["kind"], **column["facts"]}
        for column in studio.ask("GET", f"/api/datasets/{ASIA}").json["columns"]
    }
    body = {"name": "asia-sample", "columns": columns, "reviewed": True}
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/schema", body).status == 200
    schema = studio.service.folder.table(ASIA).schema
    assert schema is not None
    assert schema.forbidden == (("lung", "smoke"),)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"columns": {}}, 422),
        ({"columns": {"a": {"kind": "boolean"}, "b": {"kind": "nothing"}}}, 422),
        ({"columns": {"a": {"kind": "numeric"}}}, 422),
        ({"columns": {"a": {"kind": "numeric", "bounds": [2, 1]}}}, 422),
        ({"columns": {"a": {"kind": "categorical", "levels": []}}}, 422),
        ({"columns": {" ": {"kind": "boolean"}}}, 422),
        ({"name": "  "}, 422),
        ({"name": ""}, 422),
        ({"relation": "none"}, 422),
        ({"nominal_rows": 0}, 422),
        ({"extra": 1}, 422),
    ],
)
def test_schemas_that_say_nothing_are_refused(studio: Caller, change: dict[str, Any], status: int) -> None:
    before = (studio.folder / "asia.toml").read_bytes()
    reply = studio.ask("PUT", f"/api/datasets/{ASIA}/schema", {**DECLARED, **change})
    assert (reply.status, bool(reply.json["detail"])) == (status, True)
    assert (studio.folder / "asia.toml").read_bytes() == before


def test_budgets_are_set_and_bind(studio: Caller) -> None:
    assert (
        studio.ask("PUT", f"/api/datasets/{ASIA}/budget", {"epsilon": "1", "delta": "1e-5"}).json["left_epsilon"] == "1"
    )
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/budget", {"epsilon": "1"}).status == 409
    refused = studio.ask("POST", "/api/jobs", {"dataset": ASIA, "epsilon": "1.5"})
    assert (refused.status, refused.json["error"]) == (409, "over budget")
    assert "has left a run of epsilon 1 with" in refused.json["detail"]
    assert studio.ask("POST", "/api/jobs", {"dataset": ASIA, "epsilon": "1"}).status == 201
    home = studio.ask("GET", "/").text
    assert "Left <strong>ε 1</strong>" in home


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"epsilon": "0"}, 422), ({"epsilon": "-1"}, 422), ({"epsilon": "1e999999999"}, 422),
        ({"epsilon": "nan"}, 422), ({"epsilon": "1/0"}, 422), ({"epsilon": 1}, 422), ({"epsilon": None}, 422),
        ({"delta": "1"}, 422), ({"method": "nothing"}, 422), ({"method": "measure-features"}, 422),
        ({"redraws": -1}, 422), ({"redraws": 10**9}, 422), ({"noise": "seeded"}, 422),
        ({"options": {"nope": "1"}}, 422), ({"options": {"iterations": "none"}, "method": "noleaks"}, 422),
        ({"dataset": "../../x"}, 422), ({"dataset": "0" * 12}, 404), ({"calibration": "paper"}, 422),
        ({"file": "/etc/passwd"}, 422),
    ],
)  # fmt: skip
def test_runs_that_make_no_sense_are_refused_and_nothing_is_queued(
    studio: Caller, change: dict[str, Any], status: int
) -> None:
    reply = studio.ask("POST", "/api/jobs", {"dataset": ASIA, "epsilon": "1", **change})
    assert reply.status == status, reply.text
    assert reply.json["detail"]
    assert studio.service.store.all() == []
    studio.check_nothing_spent()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"\\ud800"', b"[" * 100_000, b'{"dataset":1}']
)
def test_bodies_that_cannot_be_read_are_refused(studio: Caller, body: bytes) -> None:
    for method, path in (
        ("POST", "/api/jobs"),
        ("PUT", f"/api/datasets/{ASIA}/schema"),
        ("PUT", f"/api/datasets/{ASIA}/budget"),
        ("POST", f"/api/datasets/{ASIA}/draft"),
    ):
        assert studio.ask(method, path, body).status in (400, 422)
        assert studio.ask(method, path, body, "text/plain").status == 415
        assert studio.ask(method, path, body, None).status == 415
    assert studio.ask("POST", "/api/jobs", b" " * (4 * 2**20 + 1)).status == 413
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/schema.toml", b"\xff", "text/plain").status == 400
    studio.check_nothing_spent()


def test_waiting_jobs_are_listed_cancelled_and_cost_nothing(studio: Caller) -> None:
    job = studio.ask("POST", "/api/jobs", {"dataset": ASIA, "epsilon": "1/2"}).json
    assert job["charge"]["epsilon"] == "0"
    for path in ("/jobs", f"/jobs/{job['id']}", f"/datasets/{ASIA}"):
        assert job["id"][:8] in studio.ask("GET", path).text
    assert studio.ask("GET", f"/api/jobs/{job['id']}/result").status == 404
    assert studio.ask("POST", f"/api/jobs/{job['id']}/search", {}).status == 409
    cancelled = studio.ask("POST", f"/api/jobs/{job['id']}/cancel")
    assert (cancelled.status, cancelled.json["state"]) == (202, "cancelled")
    assert "nothing is charged" in cancelled.json["charge"]["words"]
    assert studio.ask("POST", f"/api/jobs/{job['id']}/cancel").status == 409
    studio.check_nothing_spent()


def test_the_description_names_every_route(studio: Caller) -> None:
    described = studio.ask("GET", "/api/openapi.json").json
    assert described == json.loads(json.dumps(describe_api()))
    routes = {
        (route.path, method.lower())
        for route in studio.app.app.app.routes  # type: ignore[attr-defined]
        if route.path.startswith("/api/")
        for method in route.methods
        if method != "HEAD"
    }
    told = {(path, method) for path, item in described["paths"].items() for method in item if method != "parameters"}
    assert routes == told


def test_hostile_names_stay_names(studio: Caller) -> None:
    name = "<script>alert(1)</script>\"'>\u202e"
    (studio.folder / "x<img src=x onerror=alert(1)>.csv").write_text("a,b\n1,2\n")
    columns = {f"{name}{i}": {"kind": "boolean"} for i in range(2)}
    body = {"name": name, "columns": columns, "reviewed": True, "nominal_rows": 10}
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema", body).status == 200
    studio.ask("POST", "/api/jobs", {"dataset": VISITS, "epsilon": "1"})
    for path in ("/", "/jobs", f"/datasets/{VISITS}", f"/datasets/{VISITS}/schema", f"/datasets/{VISITS}/plan"):
        text = studio.ask("GET", path).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "\u202e" not in text

"""Small examples of what the functions of studio/ return."""

from __future__ import annotations

from dagveil import errors
from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget
from dagveil.studio.api import describe_api
from dagveil.studio.app import Place
from dagveil.studio.folder import file_id
from dagveil.studio.responses import refuse
from dagveil.studio.views import forecast_run


def test_place_knows() -> None:
    place = Place("127.0.0.1", 8080)
    assert [place.knows(host) for host in ("localhost:8080", "127.0.0.1:8080", "evil.example:8080", "127.0.0.1")] == [
        True,
        True,
        False,
        False,
    ]


def test_describe_api() -> None:
    assert sorted(describe_api()["paths"])[:2] == ["/api/comparison", "/api/datasets"]


def test_file_id() -> None:
    assert file_id("visits.csv") == "92d9d4845046"


def test_refuse() -> None:
    assert refuse(errors.BudgetExceededError("nothing is left")).status == 409


def test_forecast_run() -> None:
    columns = {name: Boolean(outside="false") for name in "abcdefghijkl"}
    schema = Schema(dataset="study", columns=columns, reviewed=True, nominal_rows=1000)
    assert [stage.stage for stage in forecast_run(schema, "measure", Budget.of(1, 1e-6), 50).stages] == [
        "single columns",
        "all pairs",
    ]

"""Runs on persons: what receipts and ledgers say, what is refused, and that nothing is spent then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagveil as dv
from dagveil.curator.journal import Journal
from dagveil.data.check import check_source
from dagveil.data.records import Reducer
from dagveil.data.schema import schema_from_toml, schema_to_toml
from dagveil.errors import BudgetExceededError, DataError, LedgerError, MethodError
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.report.html import render_report
from dagveil.report.model import build_model
from dagveil.report.registry import build_card

COLUMNS = {
    "x": dv.Boolean(outside="false"),
    "y": dv.Boolean(outside="false"),
    "z": dv.Numeric(bounds=(-2, 2), bins=(0,)),
}


def make_visits(n: int = 3000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, n // 4, n)
    x = rng.random(n) < 0.4
    y = rng.random(n) < np.where(x, 0.8, 0.2)
    return {"id": ids, "day": rng.integers(0, 99, n), "x": x, "y": y, "z": rng.normal(size=n)}


def declare(**more: Any) -> dv.Schema:
    facts: dict[str, Any] = {"unit": "one patient", "person": "id", "nominal_rows": 750, **more}
    return dv.Schema(dataset="visits", columns=COLUMNS, reviewed=True, **facts)


@pytest.mark.parametrize("records", ["one", "weigh"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_run_protects_persons_and_says_so(records: str, relation: str, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    schema = declare(records=records, relation=relation)
    result = dv.discover(make_visits(), schema, epsilon=2, delta=1e-6, ledger=ledger)
    assert {frozenset(edge) for edge in result.graph.cpdag.skeleton()} >= {frozenset({"x", "y"})}
    words = " ".join(result.receipt.words())
    assert "every patient in visits, with all records" in words
    assert "one patient with all records is" in words
    assert "k records" not in words
    assert ledger.history("visits")[0].terms.unit == "patient, with all records"
    page = build_model(result)
    card = build_card(page)
    assert card["guarantee"]["unit"] == "one patient, with all records"
    assert "one patient, with all records" in render_report(page)


def test_a_schema_without_persons_still_says_what_records_are_worth() -> None:
    schema = declare(person=None)
    words = " ".join(dv.discover(make_visits(), schema, epsilon=1, ledger=None).receipt.words())
    assert "every record in visits; a person with k records has k times this epsilon" in words


def test_the_ledger_does_not_mix_rows_and_persons(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    dv.discover(make_visits(), declare(), epsilon=1, ledger=ledger)
    with pytest.raises((LedgerError, BudgetExceededError), match="patient, with all records"):
        dv.discover(make_visits(), declare(person=None), epsilon=1, ledger=ledger)


@pytest.mark.parametrize("method", ["priv-pc", "em-pc", "svt-pc", "curate", "sampled-gaussian-pc"])
def test_methods_that_ask_refuse_weights_and_name_one(method: str, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    with pytest.raises(MethodError, match='write records = "one"'):
        dv.discover(make_visits(), declare(records="weigh"), epsilon=1, delta=1e-6, method=method, ledger=ledger)
    assert not ledger.history("visits")
    dv.discover(make_visits(600), declare(), epsilon=1, delta=1e-6, method=method, ledger=ledger)


@pytest.mark.parametrize("method", ["lap-mech", "measure-notears", "measure-ges"])
def test_methods_that_release_take_weights(method: str) -> None:
    result = dv.discover(make_visits(), declare(records="weigh"), epsilon=3, delta=1e-6, method=method, ledger=None)
    assert result.receipt.guaranteed


@pytest.mark.parametrize("method", ["measure", "measure-features", "priv-pc-star"])
def test_weights_of_numeric_columns_find_what_depends(method: str) -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(size=6000)
    rows = {"id": rng.integers(0, 2000, 6000), "a": a, "b": a + rng.normal(size=6000), "c": rng.normal(size=6000)}
    columns = {name: dv.Numeric(bounds=(-6, 6), center=0, spread=1.2) for name in "abc"}
    schema = dv.Schema(
        dataset="numbers", columns=columns, reviewed=True, person="id", records="weigh", nominal_rows=2000
    )
    result = dv.discover(rows, schema, epsilon=5, delta=1e-6, method=method, ledger=None)
    assert ["a", "b"] in [sorted((edge.source, edge.target)) for edge in result.graph.edges]


def test_a_run_with_a_seed_repeats_its_choice_of_records() -> None:
    options: dict[str, Any] = {"ledger": None, "noise": NoiseKind.SEEDED}
    found = [
        dv.measure_source(make_visits(), declare(), epsilon=5, seed=seed, **options).releases for seed in (3, 3, 4)
    ]
    assert found[0] == found[1] != found[2]


def test_a_run_that_is_finished_takes_its_first_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagveil.data.engine import Rows

    keys: list[bytes | None] = []
    opened = Rows.open

    def note(self: Rows, schema: dv.Schema, key: bytes | None = None) -> Any:
        keys.append(key)
        return opened(self, schema, key)

    monkeypatch.setattr(Rows, "open", note)
    recovery, ledger = tmp_path / "kept.recovery", tmp_path / "ledger.sqlite"

    def stop(step: str, done: int, total: int) -> None:
        if keys and Ledger.open(ledger).history("visits") and Ledger.open(ledger).history("visits")[0].events:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dv.measure_source(make_visits(), declare(), epsilon=1, ledger=ledger, recovery=recovery, progress=stop)
    kept = Journal.reopen(recovery)
    assert kept.order.key == (keys[0] or b"").hex() != ""
    kept.close()
    dv.measure_source(make_visits(), declare(), epsilon=1, ledger=ledger, recovery=recovery)
    assert keys[0] == keys[1]
    assert len(Ledger.open(ledger).history("visits")) == 1


def test_bad_ids_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    rows = make_visits(100)
    with pytest.raises(DataError, match="lacks 1 column"):
        dv.discover({name: cells for name, cells in rows.items() if name != "id"}, declare(), epsilon=1, ledger=ledger)
    assert not ledger.history("visits")


def test_the_check_tells_the_custodian_about_persons() -> None:
    rows = make_visits(400)
    ordered = declare(which="last", order="day")
    words = "\n".join(check_source(rows, ordered).words())
    assert "persons: " in words
    assert "same place" in words
    unique = {**rows, "id": np.arange(400)}
    assert "a row is a person" in "\n".join(check_source(unique, declare()).words())
    constant = {**rows, "id": ["secret-id"] * 400}
    told = "\n".join(check_source(constant, declare()).words())
    assert "the same id" in told
    assert "secret" not in told
    half = {**rows, "id": [None if place % 2 else f"p{place}" for place in range(400)]}
    assert "200 records have no id and are left out. That is a fifth" in "\n".join(
        check_source(half, declare()).words()
    )
    dates = {**rows, "day": [("2020-01-01", "01.02.2020", "17")[place % 3] for place in range(400)]}
    told = "\n".join(check_source(dates, ordered).words())
    assert "133 cells of 'day' are missing or written in another way" in told
    assert "has numbers and dates" in told


def test_a_schema_of_persons_is_written_as_it_was_read() -> None:
    reducers = {"x": Reducer(take="any", where={"code": ("a", "b")}), "y": Reducer(take="last", of="yes")}
    schema = declare(which="last", order="day", order_format="%d.%m.%Y", missing_person="own", reducers=reducers)
    assert schema_from_toml(schema_to_toml(schema)) == schema
    assert schema.digest() != declare().digest()

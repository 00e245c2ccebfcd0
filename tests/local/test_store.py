"""The store: batches once and whole, one protocol per file, and files of labels that come back as codes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dagveil.data.column import Categorical, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.local.device import NOT_PRIVATE
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Mechanism, Protocol
from dagveil.local.store import LabelReader, ReportStore, Totals, export_reports, label_reports, read_reports


def make_protocol(levels: int = 3, epsilon: float = 4.0) -> Protocol:
    columns = {
        "x": Categorical(tuple(f"level, {i}" for i in range(levels)), outside="level, 0"),
        "age": Numeric(bounds=(0, 100), bins=4),
    }
    schema = Schema(dataset="survey", reviewed=True, columns=columns)
    return plan_protocol(schema, Mechanism.RESPONSE, epsilon=epsilon)


PROTOCOL = make_protocol()


def draw_codes(n: int, levels: int = 3) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.stack([rng.integers(0, levels, n), rng.integers(0, 4, n)], axis=1)


@pytest.mark.parametrize("levels", [3, 300])
def test_batches_come_back_in_order_and_once(levels: int, tmp_path: Path) -> None:
    protocol, path = make_protocol(levels), tmp_path / "r.db"
    blocks = {uuid4(): draw_codes(n, levels) for n in (1, 7, 50)}
    with ReportStore.open(path, protocol) as store:
        batches = [store.pack(batch, codes) for batch, codes in blocks.items()]
        assert store.append(batches[:2]) == [True, True]
        # again, together with a new one and with itself
        assert store.append([batches[1], batches[2], batches[2]]) == [True, True, True]
        other = store.pack(batches[0].id, draw_codes(2, levels))
        assert store.append([other]) == [False]
        assert store.totals() == Totals(3, 58)
    with ReportStore.open(path) as store:
        assert store.protocol == protocol
        found = dict(store.read())
        assert list(found) == list(blocks)
        assert all(np.array_equal(found[batch], blocks[batch]) for batch in blocks)
        assert np.array_equal(store.codes(), np.concatenate(list(blocks.values())))


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    with ReportStore.open(tmp_path / "r.db", PROTOCOL) as store:
        good = store.pack(UUID(int=1), draw_codes(3))
        with pytest.raises(AttributeError):
            store.append([good, None])  # type: ignore[list-item]
        assert store.totals() == Totals(0, 0)
        assert list(store.read()) == []
        assert store.append([good]) == [True]


def test_writing_is_durable(tmp_path: Path) -> None:
    with ReportStore.open(tmp_path / "r.db", PROTOCOL) as store:
        run = store._connection.execute
        assert run("PRAGMA journal_mode").fetchone() == ("wal",)
        assert run("PRAGMA synchronous").fetchone() == (2,)


def test_a_store_is_of_one_protocol(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    ReportStore.open(path, PROTOCOL).close()
    with pytest.raises(DataError, match="another protocol"):
        ReportStore.open(path, make_protocol(epsilon=2.0))
    with pytest.raises(DataError, match="another protocol"):
        read_reports(path, make_protocol(epsilon=2.0))
    with pytest.raises(DataError, match="there is no store"):
        ReportStore.open(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be taken for one" * 20)
    with pytest.raises(DataError, match="cannot be used"):
        ReportStore.open(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "empty.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(DataError, match="cannot be used"):
        ReportStore.open(tmp_path / "empty.db")


def test_damaged_codes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with ReportStore.open(path, PROTOCOL) as store:
        store.append([store.pack(UUID(int=1), draw_codes(3))])
        store._connection.execute("UPDATE batches SET codes = x'0909'")
        with pytest.raises(DataError, match="damaged"):
            store.codes()
        store._connection.execute("UPDATE batches SET codes = x'000000'")
        with pytest.raises(DataError, match="damaged"):
            store.codes()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_exported_labels_come_back_as_codes(ending: str, tmp_path: Path) -> None:
    codes = draw_codes(40)
    with ReportStore.open(tmp_path / "r.db", PROTOCOL) as store:
        store.append([store.pack(uuid4(), codes[:15]), store.pack(uuid4(), codes[15:])])
        assert export_reports(store, tmp_path / f"r.{ending}") == 40
    collected = read_reports(tmp_path / f"r.{ending}", PROTOCOL)
    assert np.array_equal(collected.codes, codes)
    assert collected.private
    assert np.array_equal(read_reports(tmp_path / "r.db", PROTOCOL).codes, codes)


def test_reports_that_are_none_are_refused_without_their_content(tmp_path: Path) -> None:
    table = label_reports(draw_codes(5), PROTOCOL)
    parquet.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(DataError, match="another protocol"):
        read_reports(tmp_path / "r.parquet", make_protocol(epsilon=2.0))
    raw = pa.table({"x": ["level, 0", "SECRET"], "age": ["[0, 25)", None]})
    with pytest.raises(DataError, match=r"1 of 2 reports hold no label.*'x'") as caught:
        read_reports(raw, PROTOCOL)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(DataError, match="2 of 2 reports"):
        read_reports(pa.table({"x": [1, 2], "age": ["[0, 25)"] * 2}), PROTOCOL)
    with pytest.raises(DataError, match="record 7 is no report") as caught:
        LabelReader(PROTOCOL).read({"x": "level, 0", "age": "37"}, 7)
    assert "37" not in str(caught.value)
    marked = table.append_column(NOT_PRIVATE, pa.array(["true"] * 5))
    assert not read_reports(marked, PROTOCOL).private

"""Persons with several records: what counts of each follows from that person's records and the key alone."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from dagveil.data import persons
from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.engine import DatabaseTable, choose_engine
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.data.records import Reducer
from dagveil.data.schema import Schema
from dagveil.data.streams import ArrowRows, StreamedTable
from dagveil.data.table import Table
from dagveil.data.weighed import COUNT_LATTICE, WeighedTable, refine
from dagveil.errors import DataError, SchemaError

KEY = bytes(range(32))
COLUMNS = {
    "x": Boolean(outside="false"),
    "y": Categorical(levels=("a", "b", "c"), outside="a"),
    "z": Numeric(bounds=(-2.0, 2.0), bins=(0.0,)),
}
SETS: list[tuple[str, ...]] = [("x",), ("x", "y"), ("x", "y", "z"), ()]
MOMENTS = MomentPlan(("x", "z"), (0.5, 0.0), (0.5, 1.0), 4.0, 1.0, 10)
RULES: dict[str, dict[str, Any]] = {
    "first": {"records": "one", "which": "first", "order": "day"},
    "last": {"records": "one", "which": "last", "order": "day"},
    "any": {"records": "one", "which": "any"},
    "weigh": {"records": "weigh"},
    "reduced": {
        "records": "one",
        "which": "any",
        "order": "day",
        "reducers": {
            "x": Reducer(take="any", where={"y": ("b",)}),
            "y": Reducer(take="last"),
            "z": Reducer(take="mean"),
        },
    },
}


def declare(rule: str = "last", **more: Any) -> Schema:
    return Schema(dataset="visits", columns=COLUMNS, reviewed=True, **{"person": "id", **RULES[rule], **more})


def make_visits(n: int = 4000, people: int = 900, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids: list[str | None] = [f"P{number}" for number in rng.integers(0, people, n)]
    for place in range(0, n, 37):
        ids[place] = None
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "day": pa.array(rng.integers(0, 60, n)),
            "x": pa.array(rng.random(n) < 0.4),
            "y": pa.array(rng.choice(["a", "b", "c"], n).tolist(), pa.string()),
            "z": pa.array(np.round(rng.normal(size=n), 3)),
        }
    )


def open_table(source: Any, schema: Schema, **options: Any) -> Table:
    return choose_engine(source, **options).open(schema, KEY)


def answers(table: Table) -> list[NDArray[np.int64]]:
    query = refine(MOMENTS, None) if table.lattice > 1 else MOMENTS
    found = [*table.counts_many(SETS), table.outer_products(query), np.array(table.n_rows)]
    return [*found, table.magnitude_counts("z", 0.0, range(-3, 3))]


def agree(one: Table, other: Table) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(answers(one), answers(other), strict=True))


# --- what counts, against a twin that goes through persons one by one ---


def by_person(visits: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in visits.to_pylist():
        if row["id"] is not None:
            found[row["id"]].append(row)
    return found


def without_ties(visits: pa.Table) -> pa.Table:
    days = pa.array(np.random.default_rng(9).permutation(visits.num_rows))
    return visits.set_column(1, "day", days)


@pytest.mark.parametrize("which", ["first", "last"])
def test_the_first_or_last_record_counts(which: str) -> None:
    visits = without_ties(make_visits())
    pick: Callable[..., Any] = min if which == "first" else max
    chosen = [pick(rows, key=lambda row: row["day"]) for rows in by_person(visits).values()]
    wanted = Counter((bool(row["x"]), row["y"]) for row in chosen)
    counts = open_table(visits, declare(which)).counts(["x", "y"])
    assert {(bool(x), "abc"[y]): int(counts[x, y]) for x in (0, 1) for y in range(3)} == wanted


def test_reducers_take_from_all_records_of_a_person() -> None:
    visits = without_ties(make_visits())
    table = open_table(visits, declare("reduced"))
    assert isinstance(table, MemoryTable)
    rows = by_person(visits).values()
    any_b = sum(any(row["y"] == "b" for row in own) for own in rows)
    last = Counter(max(own, key=lambda row: row["day"])["y"] for own in rows)
    assert table.counts(["x"]).tolist() == [len(rows) - any_b, any_b]
    assert table.counts(["y"]).tolist() == [last[level] for level in "abc"]
    means = sorted(math.fsum(min(max(row["z"], -2.0), 2.0) for row in own) / len(own) for own in rows)
    assert np.allclose(np.sort(table._values["z"]), means, atol=1e-6)


def test_counts_of_events_stop_at_the_declared_number() -> None:
    columns = {"visits": Ordinal(levels=("0", "1", "2", "3"), outside="0")}
    schema = Schema(
        dataset="events",
        columns=columns,
        person="id",
        reducers={"visits": Reducer(take="count", up_to=3, where={"code": ("E11", "E10")})},
    )
    ids = ["a"] * 5 + ["b", "b", "c"]
    codes = ["E11", "E10", "E11", "E11", "I10", "E11", "I10", "I10"]
    assert open_table({"id": ids, "code": codes}, schema).counts(["visits"]).tolist() == [1, 1, 0, 1]


def test_the_last_cell_is_the_last_that_is_known() -> None:
    columns = {"y": Categorical(levels=("a", "b"), outside="a", missing="own-level")}
    reducers = {"y": Reducer(take="last")}
    schema = Schema(dataset="d", columns=columns, person="id", which="any", order="day", reducers=reducers)
    rows = {"id": ["p", "p", "q"], "day": ["2020-01-01", "2021-01-01", "2020-05-05"], "y": ["b", "", ""]}
    assert open_table(rows, schema).counts(["y"]).tolist() == [0, 1, 1]


def test_each_record_of_a_person_is_as_likely_as_any_other() -> None:
    # one person in three has nine equal records and one other
    n = 3000
    ids = np.repeat(np.arange(n), 10)
    rare = np.tile(np.arange(10) == 3, n)
    table = open_table({"id": ids, "x": rare}, Schema(dataset="d", columns={"x": COLUMNS["x"]}, person="id"))
    share = table.counts(["x"])[1] / n
    assert abs(share - 0.1) < 5 * math.sqrt(0.09 / n)


def test_another_key_chooses_other_records() -> None:
    visits = make_visits()
    tables = [choose_engine(visits).open(declare("any"), bytes([byte]) * 32) for byte in (1, 2)]
    assert tables[0].n_rows == tables[1].n_rows
    assert not np.array_equal(tables[0].counts(["x", "y"]), tables[1].counts(["x", "y"]))


def test_a_fresh_key_is_drawn_where_none_is_given() -> None:
    visits = make_visits(200, 20)
    found = {tuple(choose_engine(visits).open(declare("any")).counts(["x", "y", "z"]).reshape(-1)) for _ in range(8)}
    assert len(found) > 1


# --- weights ---


def test_weights_of_a_person_add_up_to_one() -> None:
    visits = make_visits()
    table = open_table(visits, declare("weigh"))
    assert isinstance(table, WeighedTable)
    assert table.n_rows == len(by_person(visits))
    assert int(table.counts(["x", "y"]).sum()) == table.n_rows * COUNT_LATTICE


@pytest.mark.parametrize("records", [1, 2, 3, 7, 50, 5000, 20_000])
def test_records_of_a_person_weigh_the_same(records: int) -> None:
    rng = np.random.default_rng(records)
    values = rng.uniform(-2, 2, records)
    schema = Schema(dataset="d", columns={"z": COLUMNS["z"]}, person="id", records="weigh")
    table = open_table({"id": ["p"] * records, "z": values}, schema)
    assert isinstance(table, WeighedTable)
    (piece,) = table._pieces()
    assert int(piece.counted.sum()) == COUNT_LATTICE
    fair = COUNT_LATTICE / records
    assert (piece.counted >= math.floor(fair)).all()
    assert (piece.counted <= math.floor(fair) + 1).all()
    share = table.counts(["z"])[1] / COUNT_LATTICE
    assert abs(share - (values >= 0).mean()) < max(5 * math.sqrt(0.25 / COUNT_LATTICE), 1 / COUNT_LATTICE * records)


def test_weighed_moments_are_close_to_means_over_records() -> None:
    visits = make_visits()
    schema = declare("weigh")
    query = refine(MOMENTS, None)
    exact = open_table(visits, schema).outer_products(query) / 4.0**query.bits
    total = np.zeros((3, 3))
    for own in by_person(visits).values():
        vectors = [np.array([1.0, (row["x"] - 0.5) / 0.5, min(max(row["z"], -2.0), 2.0)]) for row in own]
        shrunk = [v * np.array([1, *(2 * [min(1.0, 2.0 / np.linalg.norm(v[1:]))])]) for v in vectors]
        total += sum(np.outer(v, v) for v in shrunk) / len(own)
    assert np.allclose(exact, total, atol=0.02 * len(by_person(visits)))


def test_persons_with_one_record_weigh_what_they_count() -> None:
    visits = make_visits(500, 10**6).slice(1)
    own = visits.filter(pa.compute.is_valid(visits["id"]))
    weighed, one = open_table(own, declare("weigh")), open_table(own, declare("any"))
    for columns in SETS:
        assert np.array_equal(weighed.counts(columns), COUNT_LATTICE * one.counts(columns))


# --- each person by itself ---


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("missing", ["own", "drop"])
def test_the_order_of_reading_does_not_matter(rule: str, missing: str) -> None:
    visits, schema = make_visits(), declare(rule, missing_person=missing)
    shuffled = visits.take(np.random.default_rng(3).permutation(visits.num_rows))
    assert agree(open_table(visits, schema), open_table(shuffled, schema))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_person_who_leaves_takes_one_row_along(rule: str) -> None:
    visits, schema = make_visits(600, 100), declare(rule)
    whole = open_table(visits, schema)
    for leaver in ("P3", "P17", "P55"):
        rest = visits.filter(pa.compute.not_equal(pa.compute.fill_null(visits["id"], ""), leaver))
        assert rest.num_rows < visits.num_rows - 1
        moved = whole.counts(["x", "y", "z"]) - open_table(rest, schema).counts(["x", "y", "z"])
        assert int(np.abs(moved).sum()) == whole.lattice
        assert (moved >= 0).all()


@pytest.mark.parametrize("rule", ["first", "last", "any", "weigh"])
def test_equal_records_twice_change_nothing_but_their_share(rule: str) -> None:
    visits, schema = make_visits(300, 10**6), declare(rule)
    twice = pa.concat_tables([visits, visits])
    assert agree(open_table(visits, schema), open_table(twice, schema))


def test_records_without_an_id_are_dropped_or_persons_of_their_own() -> None:
    rows = {"id": ["p", "p", None, "", " ", "q"], "x": [True, True, True, True, False, False]}
    columns = {"x": COLUMNS["x"]}
    for rule in ("one", "weigh"):
        drop = Schema(dataset="d", columns=columns, person="id", records=rule)
        own = Schema(dataset="d", columns=columns, person="id", records=rule, missing_person="own")
        dropped, owned = open_table(rows, drop), open_table(rows, own)
        assert (dropped.counts(["x"]) / dropped.lattice).tolist() == [1, 1]
        assert (owned.counts(["x"]) / owned.lattice).tolist() == [2, 3]
        assert (dropped.n_rows, owned.n_rows) == (2, 5)


# --- engines ---


@pytest.mark.parametrize("rule", sorted(RULES))
def test_all_engines_give_the_same_answers(rule: str, tmp_path: Path) -> None:
    visits, schema = make_visits(), declare(rule)
    wanted = open_table(visits, schema)
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(5):  # persons are spread over files
        piece = visits.take(np.arange(number, visits.num_rows, 5))
        pa.parquet.write_table(piece, folder / f"{number}.parquet")
    visits.to_pandas().to_csv(tmp_path / "visits.csv", index=False)
    visits.to_pandas().to_csv(tmp_path / "visits.csv.gz", index=False)
    connection = sqlite3.connect(tmp_path / "visits.db")
    visits.to_pandas().to_sql("visits", connection, index=False)
    connection.close()
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "visits.duckdb")) as database:
        database.execute("CREATE TABLE visits AS SELECT * FROM visits")
    sources: list[Any] = [folder, tmp_path / "visits.csv", tmp_path / "visits.csv.gz"]
    sources += [DatabaseTable(str(tmp_path / name), "visits") for name in ("visits.db", "visits.duckdb")]
    for source in sources:
        for engine in ("memory", "duckdb"):
            assert agree(wanted, open_table(source, schema, engine=engine)), (source, engine)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_persons_that_do_not_fit_into_memory_give_the_same_answers(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visits, schema = make_visits(), declare(rule, missing_person="own")
    wanted = open_table(visits, schema)
    monkeypatch.setattr(persons, "SMALLEST_SHARE", 2**10)
    for held in (0, 10_000):
        found = persons.open_persons(ArrowRows(visits, 300), schema, KEY, held)
        assert isinstance(found, StreamedTable | WeighedTable)
        assert agree(wanted, found)


def test_a_person_with_very_many_records_is_read_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 60_000
    rng = np.random.default_rng(2)
    rows = pa.table({"id": ["p"] * n + ["q"], "z": np.append(rng.normal(size=n), 1.0)})
    monkeypatch.setattr(persons, "SMALLEST_SHARE", 2**16)
    for rule in ("one", "weigh"):
        schema = Schema(dataset="d", columns={"z": COLUMNS["z"]}, person="id", records=rule)
        whole = persons.open_persons(ArrowRows(rows), schema, KEY, math.inf)
        shared = persons.open_persons(ArrowRows(rows, 1000), schema, KEY, 2**16)
        assert np.array_equal(whole.counts(["z"]), shared.counts(["z"]))
        assert whole.n_rows == shared.n_rows == 2


# --- ids and orders ---


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["7", " 7", "7 ", "8"]),
        pa.array(["7", "7.0", " 7.00 ", "8.0"]),
        pa.array([b"-7", b"-7.0", b"-7", b"-07.0"]),
        pa.array([7, 7, 7, 8]),
        pa.array([7.0, 7.0, 7.0, 8.0]),
        pa.array(["7", "7", "7", "8"]).dictionary_encode(),
        pa.array([b"7", b"7", b"7", b"8"]),
        pa.array([7, 7, 7, 8], pa.decimal128(9, 2)),
        pa.array([7, 7, 7, 8], pa.timestamp("us")),
    ],
)
def test_ids_of_any_type_are_compared_by_their_written_form(ids: pa.Array) -> None:
    rows = pa.table({"id": ids, "x": [True, True, True, False]})
    assert open_table(rows, Schema(dataset="d", columns={"x": COLUMNS["x"]}, person="id")).counts(["x"]).tolist() == [
        1,
        1,
    ]


def test_ids_that_cannot_be_compared_are_refused_by_their_type_alone() -> None:
    schema = Schema(dataset="d", columns={"x": COLUMNS["x"]}, person="id")
    rows = pa.table({"id": pa.array([], pa.list_(pa.int64())), "x": pa.array([], pa.bool_())})
    with pytest.raises(DataError, match=r"names persons and has the type list.*convert it to text"):
        open_table(rows, schema)


@pytest.mark.parametrize(
    ("days", "form"),
    [
        (pa.array(["2020-03-01", "2019-12-31", "2020-02-29"]), None),
        (pa.array(["2020-03-01T10:00:00Z", "2019-12-31", "2020-03-01 09:59:59.5"]), None),
        (pa.array(["01.03.2020", "31.12.2019", "29.02.2020"]), "%d.%m.%Y"),
        (pa.array(["10", "9", "-3"]), None),
        (pa.array([10, 9, None]), None),
        (pa.array([3, 1, 2], pa.date32()), None),
        (pa.array([3000, 1000, 2000], pa.timestamp("ns", "UTC")), None),
        (pa.array(["2020-03-01", "unknown", "31/12/2021"]), None),
    ],
)
def test_the_last_record_by_dates_and_numbers(days: pa.Array, form: str | None) -> None:
    rows = pa.table({"id": ["p"] * 3, "day": days, "y": ["c", "a", "b"]})
    schema = Schema(dataset="d", columns={"y": COLUMNS["y"]}, person="id", which="last", order="day", order_format=form)
    assert open_table(rows, schema).counts(["y"]).tolist() == [0, 0, 1]


def test_an_order_that_cannot_be_compared_is_refused_by_its_type_alone() -> None:
    rows = pa.table({"id": ["p"], "day": pa.array([[1]]), "y": ["c"]})
    schema = Schema(dataset="d", columns={"y": COLUMNS["y"]}, person="id", which="last", order="day")
    with pytest.raises(DataError, match="orders records and has the type list"):
        open_table(rows, schema)


def test_records_are_not_read_as_if_each_were_a_person() -> None:
    with pytest.raises(SchemaError, match="names persons"):
        MemoryTable.from_source(make_visits(), declare())
    with pytest.raises(SchemaError, match="names persons"):
        StreamedTable(ArrowRows(make_visits()), declare())


def test_weighed_records_answer_sums_only() -> None:
    table = open_table(make_visits(), declare("weigh"))
    with pytest.raises(SchemaError, match='write records = "one"'):
        table.levelled_rows(["x"], 10)
    with pytest.raises(SchemaError, match='write records = "one"'):
        table.split(2, lambda n_rows: np.zeros(n_rows, dtype=np.int64))


# --- declarations ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"person": "x"}, "declared as a column too"),
        ({"person": " "}, "dataset.person is empty"),
        ({"ignore": ("id",)}, "take it out of ignore"),
        ({"person": None}, "is declared, and no person"),
        ({"records": "all"}, "write one of one, weigh"),
        ({"missing_person": "guess"}, "write one of drop, own"),
        ({"order": None}, "needs an order"),
        ({"which": None}, "without dataset.which"),
        ({"which": "any"}, "needs none"),
        ({"order": "id"}, "which names persons"),
        ({"order_format": "dd.mm.yyyy"}, "percent signs"),
        ({"records": "weigh"}, "takes all; keep one of both"),
        ({"reducers": {"q": Reducer(take="last")}}, "there is no column of this name"),
        ({"reducers": {"x": Reducer(take="sum")}}, "write one of any, count, last, mean"),
        ({"reducers": {"x": Reducer(take="any")}}, "say which in where"),
        ({"reducers": {"y": Reducer(take="any", where={"y": ("b",)})}}, 'kind = "boolean"'),
        ({"reducers": {"y": Reducer(take="mean")}}, 'kind = "numeric"'),
        ({"reducers": {"y": Reducer(take="count")}}, "up_to belongs to"),
        ({"reducers": {"y": Reducer(take="count", up_to=3)}}, "no count from 0 to 3 is a level"),
        ({"reducers": {"y": Reducer(take="last", of="id")}}, "reads the column of ids"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        declare("last", **changes)


def test_reducers_and_weights_contradict_each_other() -> None:
    with pytest.raises(SchemaError, match=r"reducers\.y chooses among records"):
        declare("weigh", reducers={"y": Reducer(take="count", up_to=2)})

"""The person's side: values go where the schema says, reports follow the channel, and nothing true gets out."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.encoding import encode
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.local.device import NOT_PRIVATE, Device
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Form, Mechanism
from dagveil.local.reports import (
    LONGEST_LINE,
    LineFormat,
    RecordWriter,
    check_labels,
    guess_format,
    read_records,
    split_lines,
)
from dagveil.privacy.noise.kind import NoiseKind, noise_source

SCHEMA = Schema(
    dataset="survey",
    reviewed=True,
    columns={
        "colour": Categorical(("red", "blue"), missing="own-level"),
        "smokes": Boolean(outside="false"),
        "age": Numeric(bounds=(0, 100), bins=(20, 40, 65), missing="own-level"),
    },
)
PROTOCOL = plan_protocol(SCHEMA, Mechanism.RESPONSE, epsilon=6.0)
FAITHFUL = plan_protocol(SCHEMA, Mechanism.RESPONSE, epsilon=105.0)
"""Reports are the truth but for one draw in e^35: what a device does to values can be seen."""

CELLS = ["red", "blue", "green", "", "TRUE", "no", "1", "1.0", "-3", "20", "64.9", "1e9", "nan", "a\rb", 'q"q', "é"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from(CELLS)] * 3), min_size=1, max_size=6))
def test_values_go_where_they_go_in_tables(rows: list[tuple[str, str, str]]) -> None:
    """Lines of text, randomised by a faithful device, are the codes that reading the file as a table gives."""
    text = io.StringIO()
    csv.writer(text).writerows([("colour", "smokes", "age"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
        encoded = encode(read_source(path, list(SCHEMA.columns)), SCHEMA)
        with path.open(encoding="utf-8", newline="\n") as lines:
            records = list(read_records(split_lines(lines), LineFormat.CSV, FAITHFUL.names))
    expected = np.stack([encoded.codes[name] for name in SCHEMA.columns], axis=1).tolist()
    device = Device(FAITHFUL)
    assert device.report(records).tolist() == expected
    assert [device.report([record])[0].tolist() for record in records] == expected


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["colour", "smokes", "age", "other"]), JSON_VALUES))
def test_no_record_stops_a_device(record: dict[str, Any]) -> None:
    report = Device(PROTOCOL).randomise(record)
    assert list(report) == ["colour", "smokes", "age"]
    assert all(report[column.name] in column.labels for column in PROTOCOL.columns)


def test_json_values_and_broken_lines() -> None:
    lines = [
        '{"colour": "blue", "smokes": true, "age": 20}',
        '{"colour": null, "smokes": "yes", "age": 19.999}',
        '{"age": [1]}',
        "",
        "no JSON",
        "[1, 2]",
    ]
    records = list(read_records(lines, LineFormat.JSON, FAITHFUL.names))
    nothing = [3, 0, 4]  # all values missing
    assert Device(FAITHFUL).report(records).tolist() == [[1, 1, 1], [3, 1, 0], *[nothing] * 4]


def test_lines_of_csv() -> None:
    assert list(read_records(["\ufeffa,b\r\n", "1,2,3\r\n", "\r\n", "x,\r\n"], LineFormat.CSV, ["a", "b"])) == [
        {"a": None, "b": None},
        {"a": None, "b": None},
        {"a": "x", "b": None},
    ]
    assert list(read_records(["a", "", "x"], LineFormat.CSV, ["a"])) == [{"a": None}, {"a": "x"}]
    for lines, message in (
        ([], "no first line"),
        (['a,"b'], "no first line"),
        (["a,a"], "more than once"),
        (["x,y"], "lacks 1 column.*'a'"),
    ):
        with pytest.raises(DataError, match=message):
            list(read_records(lines, LineFormat.CSV, ["a"]))
    assert guess_format(["\n", ' {"a": 1}'])[0] is LineFormat.JSON
    assert guess_format([])[0] is LineFormat.CSV


def test_lines_are_read_and_written_one_by_one() -> None:
    """A report leaves before the next record is asked for."""
    happened: list[str] = []

    class Stream(io.StringIO):
        def flush(self) -> None:
            happened.append("out")

    def lines() -> Any:
        for line in ("colour,smokes,age\n", "red,no,3\n", "blue,yes,70\n"):
            happened.append("in")
            yield line

    stream, device = Stream(), Device(PROTOCOL)
    writer = RecordWriter(stream, LineFormat.CSV, PROTOCOL.names)
    for record in read_records(lines(), LineFormat.CSV, PROTOCOL.names):
        writer.write(device.randomise(record))
    assert happened == ["in", "in", "out", "in", "out"]
    assert len(stream.getvalue().splitlines()) == 3


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_reports_follow_the_channel(mechanism: Mechanism, form: Form) -> None:
    protocol = plan_protocol(SCHEMA, mechanism, form, truth=0.4)
    device = Device(protocol, noise_source(NoiseKind.SEEDED, 5))
    n = 20_000
    reports = device.report([{"colour": "red", "smokes": True, "age": 50}] * n)
    truth = (reports == [0, 1, 2]).all(axis=1).mean()
    wanted = 0.4 if form is Form.COMBINED else protocol.channel.truth()
    assert truth == pytest.approx(wanted, abs=5 * (0.25 / n) ** 0.5)


def test_two_devices_differ_and_a_seeded_one_says_that_it_is_not_private() -> None:
    record = {"colour": "red", "smokes": True, "age": 50}
    first, second = (Device(PROTOCOL).report([record] * 50).tolist() for _ in range(2))
    assert first != second
    seeded = Device(PROTOCOL, noise_source(NoiseKind.SEEDED, 1))
    assert seeded.randomise(record)[NOT_PRIVATE] == "true"
    assert NOT_PRIVATE not in Device(PROTOCOL).randomise(record)
    assert "red" not in repr(seeded)


def read(content: bytes, form: LineFormat) -> list[dict[str, Any]]:
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace", newline="\n")
    return list(read_records(split_lines(stream), form, FAITHFUL.names))


HOSTILE = {
    "open quote": (b'red,yes,"3', b'{"colour": "red'),
    "open quote in the middle": (b'red,"yes,3', b'{"colour": "red, "smokes": true}'),
    "raw carriage return": (b"red,y\res,3", b'{"colour": "r\red"}'),
    "only carriage returns": (b"\r\r\r", b"\r\r"),
    "quoted carriage return": (b'"r\red",yes,3', b'{"colour": "r\red", "age": 3}'),
    "nul": (b"r\x00ed,yes,3", b'{"colour": "r\x00ed"}'),
    "very long": (b"r" * (3 * LONGEST_LINE) + b",yes,3", b'{"colour": "' + b"r" * (3 * LONGEST_LINE) + b'"}'),
    "invalid UTF-8": (b"\xffred,yes\xc3,\x80", b'{"colour": "\xff"}'),
    "line separators": ("r\u2028ed,y\x0bes\x0c,\x1c3\x85".encode(), '{"colour": "\u2028\x85"}'.encode()),
    "blank": (b"", b""),
    "spaces": (b"   ", b"\t "),
}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_is_one_record_whatever_it_holds(name: str, ending: bytes) -> None:
    good = {
        LineFormat.CSV: (b"blue,yes,20", b"red,no,70"),
        LineFormat.JSON: (b'{"colour": "blue", "smokes": true, "age": 20}', b'{"colour": "red", "age": 70}'),
    }
    for form, bad in zip(LineFormat, HOSTILE[name], strict=True):
        first, last = good[form]
        lines = [first, bad, last, bad, bad, last, first]
        head = [b"colour,smokes,age"] if form is LineFormat.CSV else []
        records = read(ending.join([*head, *lines, b""]), form)
        assert len(records) == len(lines)
        codes = Device(FAITHFUL).report(records).tolist()
        # the neighbours of a hostile line stay what they are
        assert [codes[i] for i in (0, 2, 5, 6)] == [[1, 1, 1], [0, 0, 3], [0, 0, 3], [1, 1, 1]]
        assert codes[1] == codes[3] == codes[4]
        if name.startswith("open quote"):
            assert codes[1] == [3, 0, 4]  # all values missing


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text('ab",{}:\r\n', max_size=60).map(str.encode), st.sampled_from(list(LineFormat)))
def test_as_many_reports_as_lines(content: bytes, form: LineFormat) -> None:
    head = b"colour,smokes,age\n" if form is LineFormat.CSV else b""
    n_lines = content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))
    assert len(read(head + content, form)) == n_lines


def test_a_long_line_is_never_held_as_a_whole() -> None:
    class Endless(io.StringIO):
        """A line of five times the largest length, made as it is read."""

        left = 5 * LONGEST_LINE

        def readline(self, size: int | None = -1, /) -> str:
            assert size is not None
            assert 0 < size <= LONGEST_LINE + 1
            taken = min(size, self.left)
            self.left -= taken
            return "x" * taken + ("\n" if 0 < taken < size else "")

    (line,) = split_lines(Endless())
    assert len(line) == LONGEST_LINE + 1


def test_labels_with_line_breaks_need_json() -> None:
    labels = {"a": ("no", "yes"), "b": ("one\ntwo", "x")}
    check_labels(LineFormat.JSON, labels)
    with pytest.raises(DataError, match=r"line break.*'b'.*JSON"):
        check_labels(LineFormat.CSV, labels)

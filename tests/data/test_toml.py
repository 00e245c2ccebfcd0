"""TOML that nobody could have meant: each is refused with a sentence, and none takes long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagveil.data.column import Boolean
from dagveil.data.schema import MOST_CHARACTERS, MOST_PARTS, Schema, load_schema, parse_toml, schema_to_toml
from dagveil.errors import DagveilError, SchemaError
from dagveil.local.planning import load_priors, plan_protocol
from dagveil.local.protocol import Mechanism
from dagveil.runs.bounds import load_open_schema
from dagveil.runs.run import load_knowledge
from dagveil_bench.studies.reading import load_study

SCHEMA = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")}, reviewed=True)
PROTOCOL = plan_protocol(SCHEMA, Mechanism.RESPONSE, epsilon=2.0)

HOSTILE = {
    "arrays within arrays": ("x = " + "[" * 3000, "brackets within each other"),
    "tables within tables": ("x = " + "{a = " * 3000, "brackets within each other"),
    "a long number": ("x = " + "1" * 5000, "more digits"),
    "a long key": ("a." * 200_000 + "a = 1", "more than 64 parts"),
    "a long quoted key": ('"a".' * 100_000 + "a = 1", "more than 64 parts"),
    "a long header": ("[" + "a." * 200_000 + "a]", "more than 64 parts"),
    "a long key within a table": ("x = {" + "a." * 200_000 + "a = 1}", "more than 64 parts"),
    "too much": ("#" * (MOST_CHARACTERS + 1), "characters"),
}

READERS: list[Callable[[Path], Any]] = [
    load_schema,
    load_open_schema,
    load_knowledge,
    load_study,
    lambda path: load_priors(path, PROTOCOL),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_every_reader_refuses(name: str, tmp_path: Path) -> None:
    text, words = HOSTILE[name]
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    for read in READERS:
        with pytest.raises(DagveilError, match=words):
            read(path)


def test_dots_in_values_and_comments_are_no_keys() -> None:
    numbers = ", ".join(["0.5"] * 200)
    assert len(parse_toml(f"x = [{numbers}]", SchemaError, "it")["x"]) == 200
    assert parse_toml(f'x = "{"a." * 500}"', SchemaError, "it")["x"] == "a." * 500
    deepest = ".".join(["a"] * MOST_PARTS)
    assert parse_toml(f"{deepest} = 1", SchemaError, "it")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(schema_to_toml(SCHEMA))
    assert load_schema(path) == SCHEMA

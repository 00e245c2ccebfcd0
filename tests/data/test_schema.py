from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Categorical, Column, Numeric, Ordinal
from dagveil.data.schema import FileLayout, Schema, load_schema, save_schema, schema_from_toml, schema_to_toml
from dagveil.errors import SchemaError

DOCS = Path(__file__).parents[2] / "docs" / "schema.md"
HEAD = '[dataset]\nname = "demo"\nreviewed = true\n'

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda text: text.strip())
LEVELS = st.lists(NAMES.filter(lambda text: text not in {"own-level", "(other)", "(missing)"}), min_size=1, unique=True)


@st.composite
def columns(draw: st.DrawFn) -> Column:
    kind = draw(st.sampled_from([Categorical, Ordinal, Boolean, Numeric]))
    if kind is Numeric:
        lower, upper = sorted(draw(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=2, unique=True)))
        inside = st.floats(lower, upper)
        bins = draw(st.one_of(st.none(), st.integers(1, 1000), st.lists(inside, min_size=1, unique=True).map(sorted)))
        missing = draw(st.one_of(st.none(), inside, *([] if bins is None else [st.just("own-level")])))
        spread = draw(st.one_of(st.none(), st.floats(1e-9, 1e9)))
        return Numeric((lower, upper), bins, missing, draw(st.one_of(st.none(), inside)), spread)
    levels = ["false", "true"] if kind is Boolean else draw(LEVELS)
    places = {
        "outside": draw(st.sampled_from([*levels, "own-level"])),
        "missing": draw(st.sampled_from([*levels, "own-level", None])),
    }
    return Boolean(**places) if kind is Boolean else kind(tuple(levels), **places)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    declared = draw(st.dictionaries(NAMES, columns(), min_size=1, max_size=5))
    pairs = st.tuples(*[st.sampled_from(list(declared))] * 2).filter(lambda pair: pair[0] != pair[1])
    knowledge = st.lists(pairs, max_size=3).map(tuple) if len(declared) > 1 else st.just(())
    return Schema(
        dataset=draw(NAMES),
        columns=declared,
        reviewed=draw(st.booleans()),
        unit=draw(NAMES),
        relation=draw(st.sampled_from(["add-remove", "replace-one"])),
        nominal_rows=draw(st.one_of(st.none(), st.integers(1, 10**12))),
        tiers=draw(st.sampled_from([(), (tuple(declared),), tuple((name,) for name in declared)])),
        forbidden=draw(knowledge),
        required=draw(knowledge),
        public=draw(st.booleans()),
    )


@settings(deadline=None)
@given(schemas())
def test_toml_round_trip(schema: Schema) -> None:
    again = schema_from_toml(schema_to_toml(schema))
    assert again == schema
    assert list(again.columns) == list(schema.columns)
    assert again.digest() == schema.digest()


@settings(deadline=None)
@given(schemas(), schemas())
def test_digests_tell_schemas_apart(one: Schema, other: Schema) -> None:
    assert (one.digest() == other.digest()) == (one == other)


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "else"},
        {"reviewed": False},
        {"unit": "one person"},
        {"relation": "replace-one"},
        {"nominal_rows": 5},
        {"public": True},
        {"file": FileLayout(separator=";")},
        {"ignore": ("id",)},
        {"forbidden": (("x", "y"),)},
        {"columns": {"x": Boolean("false"), "y": Boolean("true")}},
        {"columns": {"x": Boolean("false"), "y": Boolean("false", missing_words=("NA",))}},
        {"columns": {"x": Boolean("false"), "y": Boolean("false", spellings={"true": ("ja",)})}},
    ],
)
def test_every_field_is_part_of_the_digest(change: dict[str, Any]) -> None:
    schema = Schema(dataset="d", columns={"x": Boolean("false"), "y": Boolean("false")}, reviewed=True)
    assert msgspec.structs.replace(schema, **change).digest() != schema.digest()


def test_the_digest_is_pinned() -> None:
    # ledgers and receipts store digests, so a change of this value breaks them
    schema = Schema(dataset="d", columns={"x": Boolean("false"), "y": Numeric(bounds=(0, 1))})
    assert schema.digest() == "bb6423fb3865c350f66fac7b98cf22399b6020f96c7df82ca1fb71b0be17eb15"


def test_names_that_look_alike_are_one_data_set() -> None:
    names = ["caf\u00e9", "cafe\u0301", " caf\u00e9", "cafe\u0301\t\n", "\u00a0caf\u00e9\u3000"]
    schemas = [Schema(dataset=name, columns={"x": Boolean("false")}) for name in names]
    assert {schema.dataset for schema in schemas} == {"caf\u00e9"}
    assert len({schema.digest() for schema in schemas}) == 1
    read = schema_from_toml(HEAD.replace("demo", " demo ") + '[columns.x]\nkind = "boolean"')
    assert read.dataset == "demo"
    assert msgspec.structs.replace(read, dataset=" demo").dataset == "demo"


def test_files(tmp_path: Path) -> None:
    schema = Schema(dataset="d", columns={"größe": Boolean("false")}, reviewed=True)
    save_schema(schema, tmp_path / "schema.toml")
    assert load_schema(tmp_path / "schema.toml") == schema
    (tmp_path / "bom.toml").write_text(schema_to_toml(schema), encoding="utf-8-sig")
    assert load_schema(str(tmp_path / "bom.toml")) == schema
    with pytest.raises(SchemaError, match="there is no schema at"):
        load_schema(tmp_path / "none.toml")
    with pytest.raises(SchemaError, match="cannot be read"):
        load_schema(tmp_path)
    with pytest.raises(SchemaError, match="cannot be written"):
        save_schema(schema, tmp_path / "no" / "folder.toml")
    (tmp_path / "latin.toml").write_bytes('[dataset]\nname = "é"'.encode("latin-1"))
    with pytest.raises(SchemaError, match="UTF-8"):
        load_schema(tmp_path / "latin.toml")


def test_drafts_say_that_they_are_drafts() -> None:
    schema = Schema(dataset="d", columns={"x": Boolean("false")})
    first, *_ = schema_to_toml(schema).splitlines()
    assert first == "# unreviewed: levels, bounds, bins, centers and spreads were read from the data"
    assert "reviewed = false" in schema_to_toml(schema)
    assert "unreviewed" not in schema_to_toml(msgspec.structs.replace(schema, reviewed=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[dataset", "not valid TOML"),
        (HEAD, "columns"),
        (HEAD + "[columns]\n", "no columns"),
        ('[dataset]\nreviewed = true\n[columns.x]\nkind = "boolean"', "name"),
        ('[dataset]\nname = "d"\n[columns.x]\nkind = "boolean"', "reviewed"),
        (HEAD + 'colour = 1\n[columns.x]\nkind = "boolean"', "unknown field `colour` - at `dataset`"),
        (HEAD + '[columns.x]\nkind = "boolean"\nsize = 1', "columns.x: .*unknown field `size`"),
        (HEAD + '[columns.x]\nkind = "boolean"\n[extra]', "unknown field `extra`"),
        (HEAD + '[columns.x]\nkind = "boolean"\n[knowledge]\nedges = []', "unknown field `edges` - at `knowledge`"),
        (HEAD + "[columns.x]\n", "columns.x: kind is missing"),
        (HEAD + "[columns]\nx = 3", "columns.x: kind is missing"),
        (HEAD + '[columns.x]\nkind = "text"', "columns.x: .*text"),
        (HEAD + '[columns.x]\nkind = "categorical"', "columns.x: .*levels"),
        (HEAD + '[columns.x]\nkind = "categorical"\nlevels = [0, 1]', r"columns.x: .*levels\[0\]"),
        (HEAD + '[columns.x]\nkind = "categorical"\nlevels = []', "columns.x: levels is empty"),
        (HEAD + '[columns.x]\nkind = "numeric"\nbounds = [2, 1]', "columns.x: bounds 2 and 1 do not increase"),
        (HEAD + '[columns.x]\nkind = "numeric"\nbounds = [0, inf]', "columns.x: bounds are 0 and inf"),
        (HEAD + '[columns.x]\nkind = "numeric"\nbounds = [0, 1]\nbins = [3]', "columns.x: an edge in bins"),
        (HEAD + '[columns." "]\nkind = "boolean"', "empty name"),
        ('[dataset]\nname = " "\nreviewed = true\n[columns.x]\nkind = "boolean"', "dataset.name is empty"),
        (HEAD + 'unit = ""\n[columns.x]\nkind = "boolean"', "dataset.unit is empty"),
        (HEAD + 'relation = "swap"\n[columns.x]\nkind = "boolean"', "dataset.relation is 'swap'"),
        (HEAD + 'nominal_rows = 0\n[columns.x]\nkind = "boolean"', "nominal_rows must lie between 1"),
        (HEAD + 'nominal_rows = 1.5\n[columns.x]\nkind = "boolean"', "nominal_rows"),
        (HEAD + '[columns.x]\nkind = "boolean"\n[knowledge]\ntiers = [["y"]]', "knowledge.tiers names 'y'"),
        (HEAD + '[columns.x]\nkind = "boolean"\n[knowledge]\ntiers = [["x"], ["x"]]', "more than once"),
        (
            HEAD + '[columns.x]\nkind = "boolean"\n[knowledge]\nforbidden = [["x", "y"]]',
            "knowledge.forbidden names 'y'",
        ),
        (HEAD + '[columns.x]\nkind = "boolean"\n[knowledge]\nrequired = [["x", "x"]]', "two different columns"),
        (HEAD + '[columns.x]\nkind = "boolean"\n[knowledge]\nrequired = [["x"]]', "knowledge.required"),
    ],
)
def test_bad_schemas_are_refused_with_the_path(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schema_from_toml(text)


def test_a_schema_of_one_column_is_valid() -> None:
    assert list(schema_from_toml(HEAD + '[columns.x]\nkind = "boolean"').columns) == ["x"]


def test_the_example_in_the_documentation_loads() -> None:
    example = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(example) == 3
    schema = schema_from_toml(example[0])
    assert [type(column) for column in schema.columns.values()] == [Categorical, Ordinal, Boolean, Numeric, Numeric]
    assert schema.columns["age"].labels == ("[0, 18)", "[18, 40)", "[40, 65)", "[65, 110]", "(missing)")
    assert schema.required == (("age", "pressure"),)
    columns = """
        [columns]
        diabetes = { kind = "boolean" }
        admissions = { kind = "numeric", bounds = [0, 5] }
        hba1c = { kind = "numeric", bounds = [3, 15] }
        ward = { kind = "categorical", levels = ["A", "B"] }
    """
    visits = schema_from_toml(example[1] + example[2] + columns)
    assert (visits.protected, visits.which, len(visits.reducers)) == ("patient, with all records", "last", 4)
    assert visits.sources == ("patient_id", "visit_date", "concept", "kind", "value", "ward")

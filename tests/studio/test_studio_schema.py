"""Schemas in the studio: what is not changed stays byte by byte, and a mistake is told with its line."""

from __future__ import annotations

import pytest
from caller import ASIA, SECRET, VISITS, Caller
from schemas import SCHEMAS

from dagveil.data.schema import schema_from_toml
from dagveil.studio.views import outline_draft, read_doubts, read_schema, write_draft

TOML = "text/plain"
START = '[dataset]\nname = "v"\nreviewed = true\n'


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_unchanged_schema_stays_byte_by_byte(studio: Caller, name: str) -> None:
    place = studio.folder / "visits.toml"
    place.write_bytes(SCHEMAS[name])
    shown = studio.ask("GET", f"/api/datasets/{VISITS}/schema.toml")
    assert shown.body == SCHEMAS[name]
    text = shown.body.decode("utf-8-sig").replace("\r\n", "\n")  # what an editor in a page makes of it
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema.toml", text.encode(), TOML).status == 200
    assert place.read_bytes() == SCHEMAS[name]

    told = studio.ask("GET", f"/api/datasets/{VISITS}").json
    columns = {column["name"]: {"kind": column["kind"], **column["facts"]} for column in told["columns"]}
    facts = {key: told[key] for key in ("name", "unit", "relation", "nominal_rows", "public")}
    for ignore in (None, told["ignored"]):
        body = {**facts, "columns": columns, "reviewed": True, "ignore": ignore}
        reply = studio.ask("PUT", f"/api/datasets/{VISITS}/schema", body)
        assert reply.status == 200, reply.text
        assert place.read_bytes() == SCHEMAS[name]
    studio.ask("GET", f"/datasets/{VISITS}/schema")


def test_a_change_keeps_what_the_form_does_not_ask_for(studio: Caller) -> None:
    place = studio.folder / "visits.toml"
    place.write_bytes(SCHEMAS["facts"])
    before = schema_from_toml(SCHEMAS["facts"].decode())
    columns = {name: {"kind": "boolean", "outside": "false"} for name in before.columns}
    body = {"name": "visits", "columns": columns, "reviewed": True, "ignore": ["id"]}
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema", body).status == 200
    after = schema_from_toml(place.read_text())
    assert (after.file, after.tiers, after.forbidden, after.required) == (
        *(before.file, before.tiers, before.forbidden, before.required),
    )
    assert after.ignore == ("id",)
    assert {column.outside for column in after.columns.values()} == {"false"}  # type: ignore[union-attr]
    columns.pop("c")
    refused = studio.ask("PUT", f"/api/datasets/{VISITS}/schema", {**body, "columns": columns, "ignore": ["id", "c"]})
    assert (refused.status, "knowledge.tiers names 'c'" in refused.json["detail"]) == (422, True)
    nothing = {"a": {"kind": "categorical", "levels": [None]}}
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema", {**body, "columns": nothing}).status == 422


def test_comments_and_order_of_a_text_are_kept(studio: Caller) -> None:
    text = (studio.folder / "asia.toml").read_bytes() + b"# a remark\n"
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/schema.toml", text, TOML).status == 200
    assert (studio.folder / "asia.toml").read_bytes() == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (START + "[columns.a]\nkind = \n", "line 5"),
        (START + '[columns.a]\nkind = "boolean"\n[columns."b c"]\nkind = "numeric"\nbounds = [2, 1]\n', "line 8: "),
        (START + '[columns.a]\nkind = "categorical"\nlevels = ["x"]\noutside = "y"\n', "line 7: columns.a: outside"),
        (START + '[columns.a]\nkind = "numeric"\n', "line 4: columns.a: bounds are missing"),
        (START + 'relation = "both"\n[columns.a]\nkind = "boolean"\n', "line 4: dataset.relation"),
        (START + '[columns.a]\nkind = "boolean"\n[knowledge]\ntiers = [["b"]]\n', "line 7: knowledge.tiers"),
        ('[dataset]\nname = 7\nreviewed = true\n[columns.a]\nkind = "boolean"\n', "line 2: "),
    ],
)
def test_a_mistake_is_told_with_its_line(studio: Caller, text: str, words: str) -> None:
    before = (studio.folder / "asia.toml").read_bytes()
    reply = studio.ask("PUT", f"/api/datasets/{ASIA}/schema.toml", text.encode(), TOML)
    assert (reply.status, words in reply.json["detail"]) == (422, True), reply.text
    assert (studio.folder / "asia.toml").read_bytes() == before


def test_a_draft_shows_doubts_and_no_cell(studio: Caller) -> None:
    rows = [f"P{k:03},{SECRET if k % 2 else SECRET.lower()},only,{k % 7 + 0.5}" for k in range(217)]
    (studio.folder / "visits.csv").write_text("\n".join(["id,city,same,dose", *rows, ""]))
    told = studio.ask("POST", f"/api/datasets/{VISITS}/draft", {}).json
    assert told["ignored"] == ["id"]
    assert set(told["doubts"]) == {"id", "city", "same"}
    assert "names of records or persons" in told["doubts"]["id"]
    assert "several spellings" in told["doubts"]["city"]
    assert "hardly varies" in told["doubts"]["same"]
    page = studio.ask("GET", f"/datasets/{VISITS}/schema").text
    outline = studio.ask("GET", f"/api/datasets/{VISITS}/schema.toml").text
    assert page.count('class="doubt"') == 3
    for shown in (page, outline, str(told)):
        assert not any(part in shown for part in (SECRET, SECRET.lower(), "P001", "217", 'only"', "6.5"))
    drafted = schema_from_toml((studio.folder / "visits.toml").read_text())
    assert not drafted.reviewed
    with_levels = outline.replace("reviewed = false", "reviewed = true").replace("bounds = []", "bounds = [0, 10]")
    with_levels = with_levels.replace("levels = []", 'levels = ["a"]')
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema.toml", with_levels.encode(), TOML).status == 200
    assert studio.ask("GET", f"/api/datasets/{VISITS}").json["doubts"] == {}


def test_doubts_come_back_for_every_name() -> None:
    draft = schema_from_toml('[dataset]\nname = "v"\nreviewed = false\n[columns."a\\"\\n:b"]\nkind = "boolean"\n')
    text = write_draft(draft, {'a"\n:b': "3 spellings of 2 levels, such as 'x' and 'y'", "c": "strange"})
    assert schema_from_toml(text) == draft
    assert list(read_doubts(text)) == ['a"\n:b', "c"]
    assert "'x'" not in str(read_doubts(text))
    assert 'kind = "boolean"' in outline_draft(draft)
    assert read_schema(text) == draft

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sample_result import model_of, render, write_sealed

from dagveil.errors import DagveilError, DataError
from dagveil.report.html import render_report, write_report
from dagveil.report.model import build_model
from dagveil.runs.result import result_from_json

VOID = {"meta", "link", "br", "input", "wbr"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; checks that elements nest."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def has_banner(page: str) -> bool:
    return 'role="alert"' in page


def test_the_facts_of_the_result_are_on_the_page(result: dict[str, Any]) -> None:
    text = Page(render(result)).text
    for fact in (
        "asia-demo",
        "15 November 2026, 12:00 UTC",
        "epsilon 1",
        "delta 10⁻⁶",
        "Every record in asia-demo; a person with k records has k times this epsilon",
        "Solid 7 edges among 8 columns; about 0.3 would appear if nothing depended on anything.",
        "Drawn on weak evidence: bronc → dysp (57 %); lung — smoke (62 %); lung → either (63 %); and 2 more.",
        "or another column could explain them: dysp — smoke (44 %).",
        "Doubtful The search found these pairs",
        "8 columns, 5 directed edges, 2 undirected edges.",
        "97 %",
        "31 %",
        "Near misses",
        "28 pair tables were measured.",
        "no edge is missed",
        "the column names and levels of the schema",
        "Confidence comes from 50 redraws",
        "marginal_level",
        "100\u202f000".replace("\u202f", " "),
        "dagveil 0.1.0",
        "not spent",
        "41.1 %",
    ):
        assert fact in text, fact
    assert not has_banner(render(result))
    assert "The promise" in text


def test_each_edge_has_a_row(result: dict[str, Any]) -> None:
    page = render(result)
    rows = re.findall(
        r'<tr[^>]*><td class="name">(.*?)</td>.*?aria-hidden="true">(.*?)</span>.*?class="name">(.*?)</td>', page
    )
    signs = {"directed": "→", "undirected": "—"}
    edges = {(e["source"], signs[e["kind"]], e["target"]) for e in result["graph"]["edges"]}
    assert set(rows) == edges | {("dysp", "—?", "smoke"), ("asia", "···", "tub")}
    assert rows[0] == ("either", "→", "xray")


def test_nothing_is_loaded_from_elsewhere(result: dict[str, Any]) -> None:
    source = render(result)
    page = Page(source)
    assert re.findall(r"https?://[^\s\"']*", source) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|javascript:", source)
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object", "embed", "img", "form", "base")
        assert "src" not in attributes
        assert attributes.get("href") in (None, "data:,")
        assert not any(name.startswith("on") for name in attributes)


def test_the_policy_allows_this_script_and_no_other(result: dict[str, Any]) -> None:
    source = render(result)
    policies = [a["content"] for tag, a in Page(source).tags if a.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = policies
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; ")
    assert re.findall(r"script-src ([^;]*);", policy) == [f"'sha256-{digest}'"]


def test_hostile_text_is_escaped_everywhere(result: dict[str, Any]) -> None:
    attack = "<script>alert('x')</script>\"'>&\x00\ud800\u202e"
    calm = Page(render(result))
    result["graph"]["nodes"][0] = attack
    result["near_misses"][0]["source"] = result["near_misses"][1]["source"] = attack
    result["schema"]["dataset"] = result["schema"]["digest"] = attack
    result["schema"]["columns"][attack] = {"kind": attack, "levels": attack}
    result["findings"].append(attack)
    result["plan"][0].update(stage=attack, why=attack)
    result["method"]["settings"][attack] = attack
    result["method"]["name"] = result["software"] = result["created"] = attack
    result["confidence"]["meaning"] = attack
    result["receipt"].update(unit=attack, public_facts=[attack], noise=attack)
    result["receipt"]["events"][0]["label"] = attack
    source = render(result)
    source.encode("utf-8")
    page = Page(source)
    assert source.count("<script>") == 1
    assert "\x00" not in source
    assert "\u202e" not in source
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in calm.tags} | {"tspan", "wbr"}, "long names have lines"
    assert "alert('x')" in page.text


@pytest.mark.parametrize(
    ("change", "headline"),
    [
        ({"warnings": ["seeded: not private"]}, "Seeded: not private"),
        ({"calibration": "paper"}, "No privacy guarantee"),
        ({"accounting_spent": "1/1000"}, "The receipt does not add up"),
        ({"accounting_spent": "34/1000"}, "The receipt does not add up"),
        ({"accounting_total": "1/1000"}, "The receipt does not add up"),
        (
            {"events": [{"kind": "unbounded", "label": "edges", "reason": "the sum is wrong"}]},
            "A release without guarantee",
        ),
    ],
)
def test_a_result_that_is_not_private_says_so_loudly(
    result: dict[str, Any], change: dict[str, Any], headline: str
) -> None:
    result["receipt"].update(change)
    source = render(result)
    assert has_banner(source)
    assert headline in Page(source).text
    assert "No promise holds" in source
    assert "Privacy of any kind." in source
    assert "<h2>The promise</h2>" not in source


def test_a_paper_result_says_why(result: dict[str, Any]) -> None:
    result["method"]["calibration"] = result["receipt"]["calibration"] = "paper"
    unbounded = {"kind": "unbounded", "label": "edges", "reason": "the published sensitivity is too small"}
    result["receipt"].update(events=[unbounded], accounting="none", accounting_total="0", accounting_spent="0")
    text = Page(render(result)).text
    assert "As published: no guarantee claimed" in text
    assert "The published sensitivity is too small" in text or "the published sensitivity is too small" in text
    assert "No accounting covers this run" in text


def test_a_draft_schema_is_a_warning_and_the_promise_stays(result: dict[str, Any]) -> None:
    result["receipt"]["warnings"] = ["the schema was accepted as an unreviewed draft"]
    source = render(result)
    assert has_banner(source)
    assert "The schema was accepted as an unreviewed draft." in source
    assert "<h2>The promise</h2>" in source


def test_an_empty_graph_is_told(result: dict[str, Any]) -> None:
    result["graph"]["edges"] = []
    result["near_misses"] = []
    result["confidence"]["redraws"] = 0
    text = Page(render(result)).text
    assert "No edge is drawn." in text
    assert "Nothing was redrawn" in text


def test_a_file_gives_the_page_of_the_result_that_wrote_it(result: dict[str, Any]) -> None:
    read = result_from_json(write_sealed(result))
    assert render_report(build_model(read)) == render(result)
    assert render_report(build_model(result_from_json(read.to_json()))) == render(result)


def test_the_page_does_not_depend_on_the_hash_seed(result: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(write_sealed(result), encoding="utf-8")
    code = "import sys, dagveil; dagveil.write_report(dagveil.load_result(sys.argv[1]), sys.argv[2])"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        arguments = [sys.executable, "-c", code, str(tmp_path / "result.json"), str(tmp_path / f"{seed}.html")]
        subprocess.run(arguments, check=True, env=environment)
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes() == render(result).encode()


def test_write_report(result: dict[str, Any], tmp_path: Path) -> None:
    frozen = model_of(result).result
    write_report(frozen, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(result)
    with pytest.raises(DataError, match="choose a folder"):
        write_report(frozen, tmp_path / "missing" / "report.html")


@pytest.mark.parametrize("content", [{}, [], "text", None, {"format": "dagveil-evidence", "version": 1}])
def test_other_files_are_refused(content: Any) -> None:
    with pytest.raises(DagveilError, match="not a dagveil result"):
        result_from_json(json.dumps(content))


def test_a_newer_version_is_refused(result: dict[str, Any]) -> None:
    result["version"] = 3
    with pytest.raises(DagveilError, match="version 3, and this program reads 2"):
        result_from_json(write_sealed(result))


@pytest.mark.parametrize("field", ["method", "graph", "schema", "receipt", "confidence", "created", "software"])
def test_a_missing_field_is_named(result: dict[str, Any], field: str) -> None:
    del result[field]
    with pytest.raises(DagveilError, match=f"`{field}`"):
        result_from_json(write_sealed(result))


@pytest.mark.parametrize("amount", ["secret", "1/0", "-1", "1e999999999", 0.5, None, True, []])
def test_a_damaged_amount_is_refused_without_showing_it(result: dict[str, Any], amount: Any) -> None:
    result["receipt"]["epsilon"] = amount
    with pytest.raises(DagveilError) as caught:
        result_from_json(write_sealed(result))
    assert "secret" not in str(caught.value)


def test_the_graph_comes_first(result: dict[str, Any]) -> None:
    """Graph, three sentences, the table, the promise in full, and then sums."""
    page = Page(render(result))
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections[:5] == ["graph", "edges", "promise", "public", "limits"]
    order = ["The graph", "Solid", "Doubtful", "Private for", "Edges of the graph", "Who is protected", "Against what"]
    order += ["How strongly", "Public facts relied on", "What is not promised", "Where the budget went", "Accounting: "]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert "calibration" not in page.text[: page.text.index("Solid")]


def test_shares_of_all_that_redraws_said_are_in_the_table(result: dict[str, Any]) -> None:
    page = render(result)
    assert re.findall(r'<th scope="col" class="number">(→|←|—|none)</th>', page) == ["→", "←", "—", "none"]
    (row,) = [row for row in re.findall(r"<tr data-confidence.*?</tr>", page) if ">bronc<" in row and ">dysp<" in row]
    assert re.findall(r'data-label="(.*?)" data-value="(.*?)">(.*?)</td>', row) == [
        *(("→", "50.0", "50 %"), ("←", "2.0", "2 %"), ("—", "5.0", "5 %"), ("none", "43.0", "43 %")),
    ]


def test_where_noise_drowned_everything_words_come_first(result: dict[str, Any]) -> None:
    result["graph"]["edges"] = []
    result["summary"] = ["Nothing stood out: `dagveil plan SCHEMA.toml` tells more.", "0 edges among 8 columns."]
    source = render(result)
    assert source.index('id="summary"') < source.index('class="stage scroll"')
    assert "Solid Nothing stood out: dagveil plan SCHEMA.toml tells more. 0 edges among 8 columns." in Page(source).text
    assert "<code>dagveil plan SCHEMA.toml</code>" in source
    assert 'class="edge"' not in source


def test_what_would_help_is_told(result: dict[str, Any]) -> None:
    result["summary"].append("4 of 7 edges have no arrow: search again with --knowledge FILE.toml.")
    result["summary"].append("a and b depend on each other, but c could explain it alone.")
    source = render(result)
    assert "Note a and b depend on each other, but c could explain it alone." in Page(source).text
    assert "What would help 4 of 7 edges have no arrow: search again with --knowledge FILE.toml." in Page(source).text
    assert "<code>--knowledge</code> FILE.toml" in source


def test_a_result_without_promise_is_private_for_nobody(result: dict[str, Any]) -> None:
    result["receipt"]["warnings"] = ["seeded: not private"]
    assert "Private for Nobody: no promise holds." in Page(render(result)).text


def test_a_result_without_redraws_says_that_doubt_is_not_known(result: dict[str, Any]) -> None:
    result["summary"], result["near_misses"] = [], []
    for edge in result["graph"]["edges"]:
        edge.update(dict.fromkeys(("confidence", "arrow_confidence", "forward", "backward", "line")))
    text = Page(render(result)).text
    assert "Solid 8 columns, 5 directed edges, 2 undirected edges. Doubtful Not known" in text


def test_names_may_be_broken_between_words_only(result: dict[str, Any]) -> None:
    text = json.dumps(result).replace('"bronc"', '"birthControl_use"')
    assert '<td class="name">birth<wbr>Control_<wbr>use</td>' in render(json.loads(text))


def test_controls_need_the_script_and_the_rest_does_not(result: dict[str, Any]) -> None:
    """What only a script can do is hidden until the script shows it."""
    tags = Page(render(result)).tags
    assert [a.get("id") for tag, a in tags if tag == "div" and "hidden" in a] == ["graph-tools"]
    assert all("hidden" in a for tag, a in tags if "data-copy" in a)


def test_without_confidences_there_is_no_slider(result: dict[str, Any]) -> None:
    assert 'id="least"' in render(result)
    for edge in result["graph"]["edges"]:
        edge["confidence"] = edge["arrow_confidence"] = None
    source = render(result)
    assert 'id="least"' not in source
    assert "There is no slider" in source


@pytest.mark.parametrize(
    ("field", "value"), [("summary", "text"), ("summary", [1]), ("false_edges", "few"), ("false_edges", float("inf"))]
)
def test_a_damaged_summary_is_refused(result: dict[str, Any], field: str, value: Any) -> None:
    result[field] = value
    with pytest.raises(DagveilError, match=f"{field}|not JSON"):
        result_from_json(write_sealed(result))


def test_a_damaged_doubt_is_refused(result: dict[str, Any]) -> None:
    result["near_misses"][0]["found"] = "yes"
    with pytest.raises(DagveilError, match=r"near_misses\[0\]\.found"):
        result_from_json(write_sealed(result))

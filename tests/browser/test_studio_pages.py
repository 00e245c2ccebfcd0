"""Every page of the studio at two widths, with long names; the questions that begin a study; the tour by keyboard."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pytest
from visitor import Visitor, fill, press, wait_for

sys.path.insert(0, str(Path(__file__).parents[1] / "studio"))

from live_server import Server

from dagveil.data.schema import load_schema
from dagveil.studio.folder import file_id

CAUSE, EFFECT = "Bluthochdruckerkrankung_ärztlich_diagnostiziert", "Krankenhausaufenthalte_im_letzten_Jahr"
NAMES = ("Haushaltsnettoeinkommen_in_Tausend_Euro", "Geschlecht", CAUSE, EFFECT, "Arbeitsunfähigkeitsbescheinigungen")
DATASET = "Krankenversichertenstichprobe_Niedersachsen_2024"
KASSE = file_id("kasse.csv")


def fill_folder(folder: Path, rows: int = 3000) -> None:
    rng = np.random.default_rng(5)
    income, sex = rng.integers(0, 3, rows), rng.integers(0, 2, rows)
    pressure = (rng.random(rows) < 0.2 + 0.3 * (income == 0)).astype(int)
    hospital = (rng.random(rows) < 0.1 + 0.5 * pressure).astype(int)
    unable = (rng.random(rows) < 0.1 + 0.6 * hospital).astype(int)
    codes = (income, sex, pressure, hospital, unable)
    levels = (("unter 2", "2 bis 4", "über 4"), ("weiblich", "männlich"), *(("nein", "ja"),) * 3)
    cells = [[texts[code] for code in column] for texts, column in zip(levels, codes, strict=True)]
    lines = [",".join(row) for row in (NAMES, *zip(*cells, strict=True))]
    (folder / "kasse.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (folder / "fragebogen.csv").write_text("\n".join([*lines[:3], ""]), encoding="utf-8")
    declared = "".join(
        f'[columns."{name}"]\nkind = "categorical"\nlevels = [{", ".join(repr(text) for text in texts)}]\n'
        for name, texts in zip(NAMES, levels, strict=True)
    ).replace("'", '"')
    head = f'[dataset]\nname = "{DATASET}"\nreviewed = true\nunit = "eine versicherte Person"\nnominal_rows = {rows}\n'
    (folder / "kasse.toml").write_text(head + declared, encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("studio")
    fill_folder(folder)
    running = Server(folder)
    yield running
    running.stop()


@pytest.fixture
def visitor(chromium: Any, screenshots: Path, server: Server) -> Visitor:
    visitor = Visitor(chromium, screenshots)
    visitor.open(f"{server.address}/?token={server.token}")
    server.home = str(visitor.driver.current_url).removesuffix("/")
    visitor.run("sessionStorage.clear()")
    return visitor


def finish(visitor: Visitor, server: Server, job: str) -> str:
    wait_for(visitor, lambda: server.ask("GET", f"/api/jobs/{job}")["state"] == "done")
    return job


@pytest.fixture(scope="module")
def pages(server: Server, chromium: Any, screenshots: Path) -> dict[str, str]:
    """Return the address of every page, after an exploration and three runs."""
    visitor = Visitor(chromium, screenshots)
    looked = server.ask("POST", f"/api/datasets/{KASSE}/exploration", {"seconds": 2, "epsilons": ["0.1", "3"]})["id"]
    ask = {"dataset": KASSE, "noise": "exact"}
    few, many = (
        server.ask("POST", "/api/jobs", {**ask, "epsilon": epsilon, "redraws": 5})["id"] for epsilon in ("0.01", "5")
    )
    hidden = {"settings": {"hidden_causes": True, "redraws": 5}}
    again = server.ask("POST", f"/api/jobs/{finish(visitor, server, many)}/search", hidden)["id"]
    # so strict that no noise passes
    strict = {"settings": {"marginal_level": 1e-12, "search": "tests", "redraws": 0}}
    none = server.ask("POST", f"/api/jobs/{finish(visitor, server, few)}/search", strict)["id"]
    for job in (looked, again, none):
        finish(visitor, server, job)
    server.ask("POST", f"/api/datasets/{file_id('fragebogen.csv')}/draft", {})
    empty = server.folder / "leer.csv"
    empty.write_text(",".join(NAMES) + "\n", encoding="utf-8")
    both = {"first": CAUSE, "second": EFFECT}
    return {
        "datasets": "/",
        "start": "/start",
        "questions-of-a-file": f"/start?dataset={file_id('leer.csv')}",
        "questions-of-names": f"/start?{urlencode({'columns': ','.join(NAMES)})}",
        "dataset": f"/datasets/{KASSE}",
        "dataset-without-schema": f"/datasets/{file_id('leer.csv')}",
        "dataset-draft": f"/datasets/{file_id('fragebogen.csv')}",
        "schema": f"/datasets/{KASSE}/schema",
        "schema-of-a-draft": f"/datasets/{file_id('fragebogen.csv')}/schema",
        "plan": f"/datasets/{KASSE}/plan",
        "jobs": "/jobs",
        "job": f"/jobs/{many}",
        "job-without-edges": f"/jobs/{none}",
        "job-hidden-causes": f"/jobs/{again}",
        "exploration": f"/jobs/{looked}",
        "report": f"/jobs/{many}/report",
        "tables": f"/jobs/{many}/tables",
        "table-of-two": f"/jobs/{many}/tables?{urlencode(both)}",
        "certify": f"/jobs/{many}/certify",
        "effect": f"/jobs/{many}/effect?{urlencode({'cause': CAUSE, 'effect': EFFECT})}",
        "compare": f"/compare?here={many}&there={few}",
        "history": "/history",
        "refusal": "/nowhere",
    }


CUT = """
const cut = [];
for (const element of document.querySelectorAll("body *")) {
  if (!element.checkVisibility() || element.closest("svg, .unseen, .skip, [hidden]")) continue;
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || ["OPTION", "SELECT", "TEXTAREA"].includes(element.tagName)) continue;
  const [style, place] = [getComputedStyle(element), element.getBoundingClientRect()];
  const hides = style.overflowX !== "visible" && style.display !== "inline";
  const what = `${element.tagName} ${element.textContent.trim().slice(0, 50)}`;
  if (hides && element.scrollWidth > element.clientWidth + 1) cut.push(`hidden: ${what}`);
  if (place.width && (place.right > innerWidth + 1 || place.left < -1)) cut.push(`outside: ${what}`);
  if (style.textOverflow === "ellipsis") cut.push(`shortened: ${what}`);
}
for (const element of document.querySelectorAll("body *")) {
  if (!element.checkVisibility() || element.tagName === "PRE") continue;
  const sideways = ["auto", "scroll"].includes(getComputedStyle(element).overflowX) && element.tagName !== "TEXTAREA";
  if (sideways && element.scrollWidth > element.clientWidth + 1) cut.push(`scrolls: ${element.className}`);
}
return cut;
"""


@pytest.mark.parametrize("width", [1400, 390])
def test_no_page_cuts_text_or_scrolls_sideways(
    visitor: Visitor, server: Server, pages: dict[str, str], width: int
) -> None:
    wrong = {}
    for name, address in pages.items():
        visitor.open(server.home + address, width)
        wait_for(visitor, lambda: visitor.run("return document.readyState === 'complete'"))
        visitor.shoot(f"studio-page-{name}-{width}")
        found = visitor.run(CUT)
        if visitor.run("return document.documentElement.scrollWidth > innerWidth"):
            found.append("the page scrolls sideways")
        if found:
            wrong[name] = found
        assert visitor.run("return document.querySelectorAll('h1').length") == 1, name
        unnamed = "return [...document.querySelectorAll('input:not([type=hidden]):not([hidden]), select, textarea')]"
        unnamed += ".filter((field) => !field.labels.length && !field.ariaLabel).map((field) => field.outerHTML)"
        assert visitor.run(unnamed) == [], name
    assert wrong == {}


def test_a_page_that_cuts_is_found(visitor: Visitor) -> None:
    spoil = "document.querySelector('h1').style.cssText = 'width: 20px; overflow: hidden; white-space: nowrap'"
    visitor.run(spoil)
    assert any(words.startswith("hidden: H1") for words in visitor.run(CUT))
    visitor.run("document.querySelector('h1').style.cssText = 'position: absolute; left: 2000px'")
    assert any(words.startswith("outside: H1") for words in visitor.run(CUT))


def test_a_result_without_edges_says_so_before_it_draws_nothing(
    visitor: Visitor, server: Server, pages: dict[str, str]
) -> None:
    visitor.open(server.home + pages["job-without-edges"], 390)
    seen = """
    const inner = document.querySelector("iframe").contentDocument;
    if (inner.readyState !== "complete" || !inner.querySelector("body > header")?.hidden) return null;
    const words = inner.querySelector("#summary");
    return { words: words.textContent, top: words.getBoundingClientRect().top };
    """
    found = wait_for(visitor, lambda: visitor.run(seen))
    assert "No edge" in found["words"] or "0 edges" in found["words"]
    assert 0 <= found["top"] < 100


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("page", ["job", "job-hidden-causes", "job-without-edges"])
def test_the_frame_of_a_result_holds_the_graph_and_its_first_three_sentences_whole(
    visitor: Visitor, server: Server, pages: dict[str, str], page: str, width: int
) -> None:
    visitor.open(server.home + pages[page], width)
    seen = """
    const frame = document.querySelector("iframe");
    const inner = frame.contentDocument;
    if (inner.readyState !== "complete" || !inner.querySelector("body > header")?.hidden) return null;
    const parts = [inner.querySelector("#graph .stage"), ...[...inner.querySelectorAll("#summary dd")].slice(0, 3)];
    return parts.map((part) => frame.clientHeight - part.getBoundingClientRect().bottom);
    """
    room = wait_for(visitor, lambda: visitor.run(seen))
    assert len(room) == 4
    assert min(room) >= 0


def test_no_page_promises_more_than_records(visitor: Visitor, server: Server, pages: dict[str, str]) -> None:
    visitor.open(server.home + pages["dataset"])
    words = visitor.find("main").text
    assert "Protected: every record (the schema calls it “eine versicherte Person”)" in words
    assert "a person with k records has k times the ε" in words
    visitor.open(f"{server.home}{pages['questions-of-names']}")
    assert "this is what is protected" not in visitor.find("main").text


def test_words_of_the_ledger_and_of_a_plan(visitor: Visitor, server: Server, pages: dict[str, str]) -> None:
    visitor.open(server.home + pages["history"])
    assert "gave its reservation back, and costs nothing" in visitor.find("main").text
    visitor.open(server.home + pages["plan"])
    words = visitor.find("main").text
    assert "Noise: Laplace; the table has its standard deviation in each number, in rows." in words
    visitor.open(server.home + pages["job-hidden-causes"])
    assert "searched again" in visitor.find("h1").text
    visitor.open(server.home + pages["dataset"])
    heads = [head.text for head in visitor.all("section:last-of-type th")]
    assert "Method" in heads
    assert "Data set" not in heads, "it is this one"


def test_readings_of_the_graph_with_the_same_answer_are_shown_once(
    visitor: Visitor, server: Server, pages: dict[str, str]
) -> None:
    visitor.open(server.home + pages["effect"])
    tables = [table.text for table in visitor.all("main table")]
    assert tables
    assert len(tables) == len(set(tables))
    assert "hidden by noise" not in "".join(tables), "the note below says it"
    assert "--" not in visitor.find("main").text, "a browser has no command line"


def test_questions_lead_from_names_to_a_folder(visitor: Visitor, server: Server) -> None:
    visitor.open(f"{server.home}/start")
    fill(visitor, "[name=columns]", "raucht, Stufe, Alter, Kennung")
    press(visitor, "form:has([name=columns]) button")
    wait_for(visitor, lambda: visitor.all("[data-begin]"))
    fill(visitor, "[name=dataset]", "Lungen 2024")
    fill(visitor, "[name=most]", "3")
    assert "A person with 3 records has 3 times the epsilon" in visitor.find("#m-most").text
    looks = (
        "const look = getComputedStyle(document.querySelector('[name=person]')); return [look.fontWeight, look.width]"
    )
    assert visitor.run(looks) == [
        "400",
        visitor.run("return getComputedStyle(document.querySelector('[name=most]')).width"),
    ]
    fill(visitor, "[name=rows]", "2000")
    choose = "const s = document.querySelector(arguments[0]); s.value = arguments[1]"
    for name, kind in (("raucht", "yes-no"), ("Stufe", "ordered"), ("Alter", "number")):
        visitor.run(choose, f"[aria-label='kind of {name}']", kind)
    assert not visitor.all("[aria-label='lowest Stufe']"), "only what a kind needs is asked for"
    fill(visitor, "[aria-label='levels of Stufe']", "niedrig, mittel, hoch")
    fill(visitor, "[aria-label='lowest Alter']", "0")
    visitor.click("[name=reviewed]")
    invalid = (
        "return [...document.querySelectorAll('[data-begin] :is(input, select):invalid')].map((it) => it.ariaLabel)"
    )
    assert visitor.run(invalid) == ["kind of Kennung"], "no column is left unsaid"
    visitor.run(choose, "[aria-label='kind of Kennung']", "skip")
    press(visitor, "[data-begin] > button")
    wait_for(visitor, lambda: "highest Alter must be a number" in visitor.find("[data-begin] .refusal").text)
    fill(visitor, "[aria-label='highest Alter']", "120")
    visitor.shoot("studio-questions-answered-1280")
    press(visitor, "[data-begin] > button")
    wait_for(visitor, lambda: "/jobs/" in visitor.driver.current_url)
    schema = load_schema(server.folder / "Lungen-2024.toml")
    assert (schema.dataset, schema.reviewed, schema.nominal_rows, schema.ignore) == (
        *("Lungen 2024", True, 2000),
        ("Kennung",),
    )
    assert [type(column).__name__ for column in schema.columns.values()] == ["Boolean", "Ordinal", "Numeric"]
    wait_for(visitor, lambda: visitor.all("#project"))
    press(visitor, "#project")
    wait_for(visitor, lambda: visitor.all(".told"))
    assert {path.name for path in (server.folder / "Lungen-2024-project").iterdir()} == {
        *("schema.toml", "plan.json", "exploration.html", "discover.py", "discover.ipynb", "example.ipynb", "Makefile")
    }
    assert all(run["dataset"] != "lungen 2024" for run in server.ask("GET", "/api/history")["runs"])
    visitor.open(f"{server.home}/datasets/{file_id('Lungen-2024.toml')}/plan")
    assert "There are no rows yet" in visitor.find("main").text
    assert visitor.all("#start") == []
    assert visitor.complaints() == []


def test_the_pack_and_synthetic_rows_are_downloaded(visitor: Visitor, server: Server, pages: dict[str, str]) -> None:
    visitor.open(server.home + pages["certify"])
    for field in visitor.all("textarea[required]"):
        field.send_keys("Statistisches Amt")
    press(visitor, "form button")
    wait_for(visitor, lambda: (server.folder / "kasse.deployment.toml").exists())

    def fetch(address: str) -> zipfile.ZipFile:
        request = Request(server.address + address, headers={"Authorization": f"Bearer {server.token}"})
        with urlopen(request, timeout=120) as answer:
            return zipfile.ZipFile(io.BytesIO(answer.read()))

    pack = fetch(pages["job"] + "/certification.zip")
    assert "Statistisches Amt" in pack.read("registry.yaml").decode()
    rows = fetch(pages["job-hidden-causes"] + "/synthetic.zip?rows=50")
    assert rows.read("synthetic.csv").count(b"\n") == 51


def test_the_tour_is_taken_by_keyboard_and_ended(visitor: Visitor, server: Server) -> None:
    from selenium.webdriver.common.keys import Keys

    def where() -> str:
        return str(visitor.run("return document.activeElement.textContent.trim()"))

    visitor.open(f"{server.home}/start")
    wait_for(visitor, lambda: visitor.find("[data-tour] button").is_enabled())
    for _ in range(30):
        visitor.press(Keys.TAB)
        if where() == "Take the tour":
            break
    visitor.press(Keys.ENTER)
    wait_for(visitor, lambda: "/datasets/" in visitor.driver.current_url and visitor.all(".tour"))
    assert visitor.find(".tour p").text.startswith("1 of 7.")
    visitor.shoot("studio-tour-1280")
    visitor.run("document.querySelector('.tour button').focus()")
    visitor.press(Keys.ENTER)
    assert visitor.run("return document.activeElement.name") == "epsilon"
    visitor.run("document.querySelectorAll('.tour button')[1].focus()")
    visitor.press(Keys.ENTER)
    wait_for(visitor, lambda: visitor.find(".tour p").text.startswith("2 of 7."))
    visitor.open(f"{server.home}/jobs", 390)
    assert "comes when" in visitor.find(".tour p").text
    assert visitor.run("return document.documentElement.scrollWidth <= innerWidth")
    visitor.press(Keys.ESCAPE)
    assert visitor.all(".tour") == []
    visitor.open(f"{server.home}/")
    assert visitor.all(".tour") == []

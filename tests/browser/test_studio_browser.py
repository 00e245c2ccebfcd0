"""The studio in a real browser: from the address with the token to two results side by side."""

from __future__ import annotations

import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from visitor import Visitor, fill, press, wait_for

sys.path.insert(0, str(Path(__file__).parents[1] / "studio"))

from caller import ASIA, SECRET, VISITS, fill_folder, open_studio, order_job
from killing import KILLED, kill_worker
from live_server import Server
from schemas import SCHEMAS

from dagveil.data.schema import load_schema
from dagveil.studio.folder import file_id


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("studio")
    fill_folder(folder, rows=4000)
    for name, content in SCHEMAS.items():
        (folder / f"{name}.csv").write_text("a,b\n1,2\n")
        (folder / f"{name}.toml").write_bytes(content)
    running = Server(folder)
    yield running
    running.stop()


@pytest.fixture
def visitor(chromium: Any, screenshots: Path, server: Server) -> Visitor:
    visitor = Visitor(chromium, screenshots)
    visitor.open(f"{server.address}/?token={server.token}")
    server.home = str(visitor.driver.current_url).removesuffix("/")
    return visitor


def run_once(visitor: Visitor, server: Server, epsilon: str) -> str:
    """Plan a run, start it, watch it finish, and return its id."""
    visitor.open(f"{server.home}/datasets/{ASIA}/plan")
    fill(visitor, "form.row [name=epsilon]", epsilon)
    press(visitor, "form.row button")
    wait_for(visitor, lambda: f"epsilon={epsilon}" in visitor.driver.current_url)
    press(visitor, "#start")
    wait_for(visitor, lambda: "/jobs/" in visitor.driver.current_url)
    seen = set()

    def done() -> bool:
        seen.add(visitor.find("h1 .badge").text)
        return "done" in seen

    wait_for(visitor, done)
    assert seen <= {"queued", "running", "done"}
    assert f"epsilon {epsilon}" in visitor.find("#charge").text
    return str(visitor.driver.current_url).rpartition("/")[2]


IN_VIEW = """
const frame = document.querySelector("iframe");
const around = frame.getBoundingClientRect();
const inner = frame.contentDocument;
if (!inner || inner.readyState !== "complete" || !inner.querySelector(".stage .edge")) return null;
const drawing = inner.querySelector(".stage > svg").getBoundingClientRect();
const [page, report] = [document.documentElement, inner.documentElement];
if (drawing.top > around.height) return null;
return {
  top: around.top + drawing.top, bottom: around.top + Math.min(drawing.bottom, around.height), height: drawing.height,
  scrolled: scrollY, widths: [page.scrollWidth - innerWidth, report.scrollWidth - report.clientWidth],
};
"""


def check_graph_in_view(visitor: Visitor, address: str, width: int) -> None:
    """See the graph of a result without scrolling down or sideways."""
    visitor.open(address, width)
    seen = wait_for(visitor, lambda: visitor.run(IN_VIEW))
    visitor.shoot(f"studio-graph-{width}")
    assert seen["scrolled"] == 0
    assert 0 <= seen["top"] < seen["bottom"] <= visitor.run("return innerHeight")
    assert seen["bottom"] - seen["top"] >= 0.8 * seen["height"], "nearly all of the drawing is there"
    assert seen["widths"] == [0, 0], "nothing sticks out"


def test_from_the_token_to_two_results_side_by_side(visitor: Visitor, server: Server) -> None:
    assert visitor.driver.current_url == f"{server.home}/"
    assert server.token not in server.home, "the token does not stay in the address"
    assert visitor.run("return document.cookie") == "", "scripts cannot read the cookie"
    cards = [card.text.split("\n")[0] for card in visitor.all(".card h2")]
    assert (cards[0], cards[-1]) == ("asia-sample reviewed", "visits.csv no schema")
    visitor.click(".card h2 a[href$='" + ASIA + "']")
    fill(visitor, "[name=epsilon]", "12")
    fill(visitor, "[name=delta]", "1e-5")
    press(visitor, "form.row button")
    wait_for(visitor, lambda: "Left ε 12" in visitor.find(".budget").text)
    first = run_once(visitor, server, "6")
    visitor.shoot("studio-job-1280")
    for width in (1400, 390):
        check_graph_in_view(visitor, f"{server.home}/jobs/{first}", width)
    visitor.click("#report")
    wait_for(visitor, lambda: visitor.driver.title.startswith("Causal graph of asia-sample"))
    visitor.click("#zoom-in")
    assert [words for words in visitor.complaints() if "favicon" not in words] == []
    second = run_once(visitor, server, "0.25")
    visitor.open(f"{server.home}/jobs")
    visitor.shoot("studio-jobs-1280")
    visitor.click(".compare")
    wait_for(visitor, lambda: f"here={first}&there={second}" in visitor.driver.current_url)
    wait_for(visitor, lambda: visitor.run("return [...document.images].every((image) => image.naturalWidth > 100)"))
    assert len(visitor.all("#differences tbody tr")) >= 1
    assert visitor.all("#differences td.differs")
    assert visitor.complaints() == []
    visitor.shoot("studio-compare-1280")
    visitor.open(f"{server.home}/history", 420)
    assert [cell.text for cell in visitor.all("tbody tr td:nth-child(7)")] == ["0.25", "6"]
    assert visitor.run("return document.documentElement.scrollWidth <= innerWidth")
    visitor.shoot("studio-history-420")
    foreign = [address for address in visitor.requests() if not address.startswith((server.address, "data:,"))]
    assert foreign == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_is_saved_untouched_stays_byte_by_byte(visitor: Visitor, server: Server, name: str) -> None:
    page = f"{server.home}/datasets/{file_id(f'{name}.csv')}"
    place = server.folder / f"{name}.toml"
    for form in ("data-schema", "data-text"):
        visitor.open(f"{page}/schema")
        if name == "facts" and form == "data-schema":
            visitor.shoot("studio-schema-facts-1280")
        press(visitor, f"form[{form}] button")
        wait_for(visitor, lambda: visitor.driver.current_url == page or visitor.all(".refusal"))
        assert [words.text for words in visitor.all(".refusal")] == []
        assert place.read_bytes() == SCHEMAS[name]
    visitor.open(f"{page}/schema", 390)
    assert visitor.run("return document.documentElement.scrollWidth") == 390


def test_a_schema_is_changed_in_its_form_and_in_its_text(visitor: Visitor, server: Server) -> None:
    before = load_schema(server.folder / "levels.toml")
    page = f"{server.home}/datasets/{file_id('levels.csv')}"
    visitor.open(f"{page}/schema")
    visitor.find("[aria-label='levels of city']").send_keys("\nNice ")
    visitor.click("[aria-label='use sex']")
    press(visitor, "form[data-schema] button")
    wait_for(visitor, lambda: visitor.driver.current_url == page)
    after = load_schema(server.folder / "levels.toml")
    assert after.ignore == ("sex",)
    assert after.columns["city"].levels == (*before.columns["city"].levels, "Nice")  # type: ignore[union-attr]
    assert "Left out: sex" in visitor.find("main").text

    visitor.open(f"{page}/schema")
    wait_for(visitor, lambda: visitor.find("[name=text]").get_property("value"))
    text = visitor.find("[name=text]")
    good = text.get_property("value")
    text.send_keys('[columns.age]\nkind = "numeric"\nbounds = [120, 0]\n')
    press(visitor, "form[data-text] button")
    wait_for(visitor, lambda: visitor.all("form[data-text] .refusal"))
    told = visitor.find("form[data-text] .refusal").text
    assert told.startswith(f"line {good.count(chr(10)) + 3}: columns.age: bounds")
    chosen = "const t = document.activeElement; return t.value.slice(t.selectionStart, t.selectionEnd)"
    assert visitor.run(chosen) == "bounds = [120, 0]"
    text.send_keys("bounds = [0, 120]")
    press(visitor, "form[data-text] button")
    wait_for(visitor, lambda: visitor.driver.current_url == page)
    assert load_schema(server.folder / "levels.toml").columns["age"].bounds == (0, 120)  # type: ignore[union-attr]
    visitor.complaints()


def test_evidence_is_searched_again_and_everything_is_downloaded(visitor: Visitor, server: Server) -> None:
    job = server.ask("POST", "/api/jobs", {"dataset": ASIA, "epsilon": "1", "redraws": 0, "noise": "exact"})["id"]
    visitor.open(f"{server.home}/jobs/{job}")
    wait_for(visitor, lambda: visitor.all("iframe"))
    for name in ("result.json", "evidence.json", "graph.svg"):
        address = visitor.find(f".downloads a[download='{name}']").get_attribute("href")
        found = visitor.run("return fetch(arguments[0]).then((answer) => answer.text())", address)
        assert found.startswith("<svg") or f"dagveil-{name.partition('.')[0]}" in found
    visitor.run("document.querySelector('#export').form.elements.to.value = 'dagitty'")
    address = (
        "const f = document.querySelector('#export').form; return `${f.action}?${new URLSearchParams(new FormData(f))}`"
    )
    exported = visitor.run("return fetch(arguments[0]).then((answer) => answer.text())", visitor.run(address))
    assert exported.startswith(("dag", "pdag"))
    visitor.click("details summary")
    fill(visitor, "[name='settings.marginal_level']", "0.2")
    fill(visitor, "[name='settings.conditional_level']", "0.1")
    fill(visitor, "form:has(#search) [name='settings.redraws']", "2")
    visitor.run("document.querySelector(\"[name='settings.search']\").value = 'score'")
    fill(visitor, "[name=knowledge]", 'tiers = [["nobody"]]')
    press(visitor, "#search")
    wait_for(visitor, lambda: visitor.all("form .refusal"))
    assert "nobody" in visitor.find("form:has(#search) .refusal").text
    fill(visitor, "[name=knowledge]", 'forbidden = [["smoke", "lung"]]')
    press(visitor, "#search")
    wait_for(visitor, lambda: not visitor.driver.current_url.endswith(job) and visitor.all("iframe"))
    again = str(visitor.driver.current_url).rpartition("/")[2]
    result = server.ask("GET", f"/api/jobs/{again}/result")
    assert result["method"]["settings"]["marginal_level"] == 0.2
    assert result["method"]["settings"]["search"] == "score"
    assert any("in place of the schema's" in finding for finding in result["findings"])
    assert server.ask("GET", f"/api/jobs/{again}")["charge"]["epsilon"] == "0"


def test_a_run_that_was_killed_is_finished_by_its_button(chromium: Any, screenshots: Path, tmp_path: Path) -> None:
    fill_folder(tmp_path)
    dead = open_studio(tmp_path)
    job = order_job(dead)
    kill_worker(dead, job, KILLED["before it is saved"])
    dead.service.books.close()
    server = Server(tmp_path)
    try:
        visitor = Visitor(chromium, screenshots)
        visitor.open(f"{server.address}/?token={server.token}")
        home = str(visitor.driver.current_url).removesuffix("/")
        visitor.open(f"{home}/jobs/{job}")
        assert "Charged ε 1; what was drawn is kept." in visitor.find("main").text
        visitor.shoot("studio-finish-1280")
        press(visitor, "#finish")
        wait_for(visitor, lambda: visitor.find("h1 .badge").text == "done")
        (run,) = server.ask("GET", "/api/history")["runs"]
        assert (run["state"], run["epsilon"], run["job"]) == ("closed", "1", job)
    finally:
        server.stop()


def test_a_schema_is_drafted_reviewed_and_planned_without_showing_a_cell(visitor: Visitor, server: Server) -> None:
    pages = []

    def look(name: str | None = None) -> None:
        pages.append(visitor.run("return document.documentElement.outerHTML"))
        if name:
            visitor.shoot(name)

    visitor.open(f"{server.home}/datasets/{VISITS}")
    assert "Drafting reads every cell" in visitor.find("main").text
    look("studio-no-schema-1280")
    press(visitor, "[data-send$=draft] button")
    wait_for(visitor, lambda: visitor.driver.current_url.endswith("/schema"))
    look()
    visitor.click("[name=reviewed]")
    press(visitor, "form[data-schema] button")
    wait_for(visitor, lambda: visitor.all("form[data-schema] .refusal"))
    look()
    assert (
        "city" in visitor.find("form[data-schema] .refusal").text
        or "age" in visitor.find("form[data-schema] .refusal").text
    )
    fill(visitor, "[aria-label='levels of city']", "Lyon\nNice")
    fill(visitor, "[aria-label='lowest age']", "0")
    fill(visitor, "[aria-label='highest age']", "120")
    fill(visitor, "[name=nominal_rows]", "1000")
    visitor.shoot("studio-schema-1280")
    press(visitor, "form[data-schema] button")
    wait_for(visitor, lambda: visitor.driver.current_url.endswith(VISITS))
    assert visitor.find("h1 .badge").text == "reviewed"
    look()
    visitor.open(f"{server.home}/datasets/{VISITS}/plan")
    assert "No row is read" in visitor.find("main").text
    look("studio-plan-1280")
    assert not any(SECRET in page for page in pages)
    assert visitor.complaints() == []


def test_a_table_is_added_and_a_wrong_budget_is_refused_in_words(
    visitor: Visitor, server: Server, tmp_path: Path
) -> None:
    table = tmp_path / "my new table.csv"
    table.write_text("a,b\n1,2\n")
    visitor.find("[data-upload] [name=file]").send_keys(str(table))
    assert visitor.find("[data-upload] [name=name]").get_property("value") == "my-new-table"
    press(visitor, "[data-upload] button")
    wait_for(visitor, lambda: "/datasets/" in visitor.driver.current_url)
    assert "my-new-table.csv" in visitor.find("main").text
    visitor.open(f"{server.home}/datasets/{ASIA}")
    fill(visitor, "[name=epsilon]", "much")
    press(visitor, "form.row button")
    wait_for(visitor, lambda: visitor.all("form.row .refusal"))
    visitor.driver.delete_all_cookies()
    visitor.open(f"{server.home}/jobs")
    assert "no token" in visitor.find("body").text


class Eavesdropper(BaseHTTPRequestHandler):
    """Another user's server on this machine, which keeps what browsers send it."""

    seen: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<p>harmless")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_another_port_learns_nothing_that_opens_the_studio(visitor: Visitor, server: Server) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Eavesdropper) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            near = f"http://127.0.0.1:{other.server_port}"
            for address in (f"{near}/", f"{near}/api/jobs", f"{near}/?token=x"):
                visitor.open(address)
            visitor.run("location.assign(arguments[0])", f"{near}/from-a-page")
            wait_for(visitor, lambda: any(one["path"] == "/from-a-page" for one in Eavesdropper.seen))
        finally:
            other.shutdown()
            thread.join()
    before = len(server.ask("GET", "/api/jobs")["jobs"])
    body = msgspec.json.encode({"dataset": ASIA, "epsilon": "1", "redraws": 0})
    for one in Eavesdropper.seen:
        assert server.home.rpartition("/")[2] not in str(one)
        headers = {"Content-Type": "application/json", "Origin": server.address, "Sec-Fetch-Site": "same-origin"}
        headers |= {"Cookie": one["cookie"]} if "cookie" in one else {}
        for place in (server.address, server.home):
            request = urllib.request.Request(f"{place}/api/jobs", body, headers, method="POST")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request, timeout=60)
    assert len(server.ask("GET", "/api/jobs")["jobs"]) == before
    visitor.open(f"{server.home}/jobs")
    assert visitor.find("h1").text == "Runs", "the owner's own browser is still let in"

"""The report in a real browser, by clicking what a person clicks."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from sample_result import make_large, make_result, model_of
from visitor import Visitor

from dagveil.report.registry import build_card

Visit = Callable[..., Visitor]
HOSTILE = "</script><script>document.title='taken'</script>\"'><img src=x onerror=alert(1)>\u202e&amp;"


def names(visitor: Visitor, selector: str = "#edges > .scroll table.edges") -> list[tuple[str, str]]:
    """Return the two columns of each row that can be seen."""
    rows = visitor.all(f"{selector} tbody tr")
    return [tuple(cell.text for cell in row.find_elements("css selector", "td.name")) for row in rows]


def slide(visitor: Visitor, percent: int) -> None:
    """Set the slider as a hand does: its value, then the event."""
    visitor.run(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
        visitor.find("#least"),
        percent,
    )


def wait_until_copied(visitor: Visitor, name: str) -> None:
    """Wait for the page to say so: browsers copy in their own time."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(visitor.driver, 20).until(lambda _: visitor.find("#copy-state").text == f"Copied {name}.")


def node(visitor: Visitor, name: str) -> Any:
    position = make_result()["graph"]["nodes"].index(name)
    return visitor.find(f'.node[data-node="{position}"]')


def test_the_page_opens_without_complaints_and_asks_for_nothing(visit: Visit) -> None:
    visitor = visit(make_result())
    assert visitor.complaints() == []
    assert visitor.run("return performance.getEntriesByType('resource').length") == 0
    outside = [address for address in visitor.requests() if not address.startswith(("file:", "data:,"))]
    assert outside == []
    assert json.loads(visitor.find("#card").get_property("textContent")) == build_card(model_of(make_result()))


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """Listen on loopback, and note who calls."""
    calls: list[str] = []

    class Note(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            calls.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Note)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", calls
    server.shutdown()


def test_the_policy_stops_whatever_tries_to_leave(visit: Visit, listener: tuple[str, list[str]]) -> None:
    visitor = visit(make_result())
    address, calls = listener
    refused = visitor.driver.execute_async_script(
        """
        const [address, done] = arguments;
        const refused = [];
        document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
        const add = (name, content) => document.body.append(Object.assign(document.createElement(name), content));
        add("img", { src: `${address}/image` });
        add("script", { src: `${address}/script` });
        add("script", { textContent: "document.title = 'taken'" });
        add("iframe", { src: `${address}/frame` });
        fetch(`${address}/fetch`).catch(() => {});
        const end = Date.now() + 8000;
        const timer = setInterval(() => {
          if (refused.length < 5 && Date.now() < end) return;
          clearInterval(timer);
          done(refused);
        }, 50);
        """,
        address,
    )
    assert calls == []
    assert {"img-src", "script-src-elem", "frame-src", "connect-src"} <= set(refused)
    assert visitor.driver.title.startswith("Causal graph of")


def test_the_slider_hides_edges_and_rows(visit: Visit) -> None:
    visitor = visit(make_result())
    assert len(visitor.all(".stage .edge")) == len(names(visitor)) == 7
    slide(visitor, 80)
    # 97, 89 and 86 %, and the edge whose confidence is not known
    assert len(visitor.all(".stage .edge")) == 4
    assert names(visitor) == [("either", "xray"), ("either", "dysp"), ("tub", "either"), ("bronc", "smoke")]
    assert visitor.find("#least-words").text == "80 %"
    assert visitor.find("#graph-state").text.startswith("4 of 7 edges")
    slide(visitor, 0)
    assert len(visitor.all(".stage .edge")) == 7
    assert visitor.find("#graph-state").text == ""


def test_near_misses_and_numbers_can_be_shown(visit: Visit) -> None:
    visitor = visit(make_result())
    assert visitor.all(".edge.miss") == []
    visitor.click("#with-misses")
    visitor.click("#numbers")
    dashes = [miss.get_attribute("innerHTML") for miss in visitor.all(".edge.miss")]
    assert sorted(re.findall('stroke-dasharray="(.*?)"', "".join(dashes))) == ["0.1 6", "6 5"]
    assert sorted(label.text for label in visitor.all(".edge .share")) == sorted(
        [f"{share}\u202f%" for share in (97, 89, 86, 63, 62, 57, 44, 31)]
    )
    slide(visitor, 40)
    assert len(visitor.all(".edge.miss")) == 1
    slide(visitor, 45)
    assert visitor.all(".edge.miss") == []
    visitor.click("#numbers")
    assert visitor.all(".edge .share") == []


def test_tables_are_sorted_and_searched(visit: Visit) -> None:
    visitor = visit(make_result())
    heads = visitor.all("#edges > .scroll table.edges th button")
    assert [head.text for head in heads] == ["From", "To", "Edge confidence", "→", "←", "—", "none"]
    heads[0].click()
    assert [source for source, _ in names(visitor)] == ["bronc", "bronc", "either", "either", "lung", "lung", "tub"]
    heads[0].click()
    assert names(visitor)[0][0] == "tub"
    heads[3].click()
    assert names(visitor)[0] == ("either", "dysp")
    assert visitor.find('th[aria-sort="descending"]').text.startswith("→")
    search = visitor.find('input[type="search"]')
    search.send_keys("SMOK")
    assert sorted(names(visitor)) == [("bronc", "smoke"), ("lung", "smoke")]
    assert "2 of 7" in visitor.find(".filter").text
    slide(visitor, 90)
    assert names(visitor) == [("bronc", "smoke")]


def test_a_box_can_be_dragged_and_put_back(visit: Visit) -> None:
    visitor = visit(make_result())
    box = node(visitor, "either")
    lines = "return [...document.querySelectorAll('.stage .edge .line')].map((line) => line.getAttribute('d'))"
    before, routes = visitor.place(box), visitor.run(lines)
    visitor.drag(box, 120, 30)
    after = visitor.place(box)
    page_scrolled = visitor.place(node(visitor, "smoke"))
    assert after[0] - before[0] == pytest.approx(120, abs=2)
    moved = [old != new for old, new in zip(routes, visitor.run(lines), strict=True)]
    assert sum(moved) == 4, "the edges of the box follow it, and no others"
    assert visitor.find("#put-back").is_enabled()
    visitor.click("#put-back")
    assert visitor.run(lines) == routes
    assert visitor.place(node(visitor, "smoke"))[0] == pytest.approx(page_scrolled[0], abs=1)
    assert visitor.place(box)[0] == pytest.approx(before[0], abs=1)
    assert not visitor.find("#put-back").is_enabled()


def test_the_drawing_zooms_and_pans(visit: Visit) -> None:
    visitor = visit(make_result())
    width = "return document.querySelector('.node rect').getBoundingClientRect().width"
    first = visitor.run(width)
    visitor.click("#zoom-in")
    visitor.click("#zoom-in")
    assert visitor.run(width) == pytest.approx(1.5625 * first, rel=0.01)
    visitor.run("document.querySelector('.stage > svg').scrollIntoView({block: 'center'})")
    before = visitor.place(node(visitor, "either"))
    visitor.drag(visitor.find(".stage > svg"), 60, 20, aside=-400)
    after = visitor.place(node(visitor, "either"))
    assert (after[0] - before[0], after[1] - before[1]) == pytest.approx((60, 20), abs=2)
    visitor.click("#zoom-all")
    assert visitor.run(width) == pytest.approx(first, rel=0.01)
    visitor.click("#zoom-out")
    assert visitor.run(width) == pytest.approx(first / 1.25, rel=0.01)


def test_copy_buttons_give_texts_that_work(visit: Visit) -> None:
    result = make_result()
    result["graph"]["nodes"][0] = HOSTILE
    result["near_misses"] = []
    result["variations"] = []
    visitor = visit(result)
    visitor.click('[data-copy="code-networkx"]')
    wait_until_copied(visitor, "networkx code")
    made: dict[str, Any] = {}
    exec(visitor.paste(), made)
    assert set(made["graph"].nodes) == set(result["graph"]["nodes"])
    assert made["graph"].number_of_edges() == 5 + 2 * 2
    assert made["graph"].edges["either", "xray"]["confidence"] == 0.974
    visitor.click('[data-copy="code-dot"]')
    wait_until_copied(visitor, "DOT")
    dot = visitor.paste()
    assert dot.count("->") == 7
    assert dot.count("[dir=none]") == 2
    assert len(re.findall(r"^  n\d+ \[label=", dot, re.MULTILINE)) == 8
    visitor.click('[data-copy="code-dowhy"]')
    wait_until_copied(visitor, "DoWhy code")
    dowhy = visitor.paste().replace("from dowhy import CausalModel", "CausalModel = dict")
    mine = {"table": None, "treatment": "smoke", "outcome": "dysp"}
    with pytest.raises(ValueError, match="CPDAG"):
        exec(dowhy, dict(mine))
    chosen = dict(mine)
    exec(dowhy.replace("chosen = []", "chosen = [('smoke', 'bronc'), ('smoke', 'lung')]"), chosen)
    assert nx.is_directed_acyclic_graph(chosen["model"]["graph"])


def test_hostile_names_stay_names(visit: Visit) -> None:
    result = make_result()
    renamed = {"lung": HOSTILE, "asia": "x" * 300, "tub": "__proto__", "xray": "\u202eyarx"}
    text = json.dumps(result)
    for old, new in renamed.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    visitor = visit(json.loads(text))
    assert visitor.complaints() == []
    assert visitor.driver.title.startswith("Causal graph of asia-demo")
    assert visitor.run("return document.querySelectorAll('img').length") == 0
    assert visitor.run("return document.scripts.length") == 2
    assert ("either", "\ufffdyarx") in names(visitor)
    assert any(HOSTILE[:20] in source for source, _ in names(visitor))
    assert visitor.run("return document.documentElement.scrollWidth <= innerWidth")
    visitor.find('input[type="search"]').send_keys("<img")
    assert len(names(visitor)) == 2
    visitor.shoot("report-hostile-1280")


def test_everything_is_reached_by_keyboard(visit: Visit) -> None:
    from selenium.webdriver.common.keys import Keys

    visitor = visit(make_result())
    active = "const a = document.activeElement; return a.id || a.dataset.node || a.dataset.copy || a.tagName"
    seen = []
    for _ in range(40):
        visitor.press(Keys.TAB)
        seen.append(visitor.run(active))
        if seen[-1] == "code-dowhy":
            break
    assert [s for s in seen if s in ("zoom-out", "zoom-in", "zoom-all", "least", "numbers", "with-misses")] == [
        *("zoom-out", "zoom-in", "zoom-all", "least", "numbers", "with-misses"),
    ]
    assert sum(s.isdigit() for s in seen) == 1, "the drawing is one stop, whatever the number of columns"
    assert seen[-1] == "code-dowhy"
    visitor.press(Keys.ENTER)
    wait_until_copied(visitor, "DoWhy code")

    visitor.run("document.querySelector('.node[data-node=\"2\"]').focus()")  # smoke
    assert "lung — smoke" in visitor.run("return document.activeElement.getAttribute('aria-label')")
    assert len(visitor.all(".edge.near")) == 2
    visitor.press(Keys.ARROW_DOWN)
    assert visitor.run("return document.activeElement.querySelector('title').textContent") == "lung"
    x, y = visitor.place(node(visitor, "lung"))
    visitor.chord(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert visitor.place(node(visitor, "lung")) == pytest.approx((x + 12, y), abs=1.5)
    before = visitor.run("return document.activeElement.getBoundingClientRect().height")
    visitor.press("+")
    assert visitor.run("return document.activeElement.getBoundingClientRect().height") > 1.2 * before
    visitor.press("0", Keys.ESCAPE)
    assert visitor.all(".edge.near") == []
    slider = visitor.find("#least")
    visitor.run("arguments[0].focus()", slider)
    visitor.press(Keys.END)
    assert visitor.find("#least-words").text == "100 %"
    assert len(visitor.all(".stage .edge")) == 1


def test_without_redraws_there_is_no_slider(visit: Visit) -> None:
    result = make_result()
    for edge in result["graph"]["edges"]:
        edge["confidence"] = edge["arrow_confidence"] = None
    result.update(near_misses=[], variations=[], questions=40)
    result["confidence"]["redraws"] = 0
    visitor = visit(result)
    assert visitor.complaints() == []
    assert visitor.all("#least") == []
    assert "no confidence is known" in visitor.find("#graph").text
    assert "releases no evidence" in visitor.find("#thresholds").text


def test_an_empty_graph_opens(visit: Visit) -> None:
    result = make_result()
    result["graph"] = {"nodes": [], "family": "cpdag", "edges": []}
    result.update(near_misses=[], variations=[])
    visitor = visit(result)
    assert visitor.complaints() == []


CONTRAST = """
const channel = (byte) => byte <= 10.31 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const poor = [];
for (const element of document.querySelectorAll("body *:not(svg *, script, :disabled)")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.checkVisibility()) continue;
  const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) poor.push([element.tagName, element.textContent.slice(0, 30), ratio]);
}
return poor;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit: Visit, scheme: str) -> None:
    result = make_result()
    result["receipt"]["warnings"] = ["seeded: not private"]
    visitor = visit(result)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    visitor.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    assert (
        visitor.run("return getComputedStyle(document.body).backgroundColor")
        == {
            "light": "rgb(255, 255, 255)",
            "dark": "rgb(18, 24, 29)",
        }[scheme]
    )
    assert visitor.run(CONTRAST) == []
    visitor.shoot(f"report-seeded-{scheme}")


def rename(result: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(result)
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    return json.loads(text)


LONG = {
    "smoke": "Haushaltseinkommen vor allen Steuern (Tsd. €)",
    "bronc": "systolic_blood_pressure_before_the_visit",
    "either": "Krankenhausaufenthalte",
    "dysp": "birthcontrol",
}


@pytest.mark.parametrize("result", [make_result(), rename(make_result(), LONG)], ids=["short", "long"])
def test_graph_and_sentences_are_in_view_without_scrolling(visit: Visit, result: dict[str, Any]) -> None:
    visitor = visit(result, 1400)
    bottom = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom"
    assert visitor.run(bottom, ".stage > svg") < visitor.run(bottom, "#summary") < 900
    assert not visitor.find("#graph-part").is_displayed()
    visitor.shoot("report-first-view")


CUT = """
const cut = [];
for (const element of document.querySelectorAll("body *:not(svg *, script, style, .unseen)")) {
  if (!element.checkVisibility()) continue;
  const { left, right } = element.getBoundingClientRect();
  const hidden = element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible";
  if (left < 0 || right > innerWidth || hidden) cut.push(element.outerHTML.slice(0, 90));
}
return cut;
"""


def test_nothing_is_cut_on_a_phone(visit: Visit) -> None:
    visitor = visit(rename(make_result(), LONG), 390)
    visitor.run("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    assert visitor.run("return document.documentElement.scrollWidth") == 390
    assert visitor.run(CUT) == []
    assert not visitor.find("#graph-part").is_displayed(), "all of the graph is in view"
    lines = """
    const cells = [...document.querySelectorAll("#edges td.name")].filter((cell) => cell.textContent === arguments[0]);
    const range = document.createRange();
    return cells.map((cell) => { range.selectNodeContents(cell.firstChild); return range.getClientRects().length; });
    """
    for name in ("Krankenhausaufenthalte", "birthcontrol"):
        assert set(visitor.run(lines, name)) == {1}, "no word is broken"
    visitor.shoot("report-long-390")


@pytest.mark.parametrize("width", [1280, 420])
def test_pictures_are_kept_and_nothing_sticks_out(visit: Visit, width: int) -> None:
    visitor = visit(make_result(), width)
    assert visitor.run("return document.documentElement.scrollWidth") == width
    assert visitor.shoot(f"report-{width}").stat().st_size > 20_000
    visitor.click("#with-misses")
    visitor.click("#numbers")
    visitor.drag(node(visitor, "asia"), -40 if width == 420 else 80, 60)
    visitor.shoot(f"report-{width}-used")


def test_the_page_prints(visit: Visit) -> None:
    visitor = visit(make_result())
    visitor.click("#zoom-in")
    view = "document.querySelector('.stage > svg').getAttribute('viewBox')"
    before = visitor.run(f"return {view}")
    visitor.run(f"window.printed = []; addEventListener('beforeprint', () => printed.push({view}))")
    content = visitor.print("report-small")
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 7
    (on_paper,) = visitor.run("return printed")
    assert on_paper.startswith("0 0 "), "all of the drawing is printed, whatever the screen shows"
    assert visitor.run(f"return {view}") == before
    assert visitor.all("#technical details[open]") == []


def test_a_hundred_columns_open_quickly(
    visit: Visit, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    visitor = visit(make_large(100))
    assert visitor.complaints() == []
    ready = visitor.run("return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    painted = visitor.run("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    busy = visitor.processor_time()
    size = Path(visitor.run("return location.pathname")).stat().st_size
    record_property("milliseconds until interactive", ready)
    with capsys.disabled():
        words = f"{size / 1000:.0f} kB, painted after {painted:.0f} ms, interactive after {ready:.0f} ms"
        words += f" on the clock and {busy:.0f} ms of processor time"
        sys.stdout.write(f"\nreport of 100 columns: {words}\n")
    assert len(visitor.all(".stage .node")) == 100
    shown = len(visitor.all(".stage .edge"))
    slide(visitor, 70)
    assert 0 < len(visitor.all(".stage .edge")) < shown
    assert visitor.find("#graph-part").is_displayed()
    visitor.click("#zoom-all")
    assert not visitor.find("#graph-part").is_displayed()
    visitor.shoot("report-large")
    visitor.print("report-large")

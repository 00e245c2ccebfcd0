"""The drawing of a result in which the edges that differ from another result stand out, by shape and by colour."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element, SubElement, fromstring, register_namespace, tostring

from dagveil.evaluation.comparison import Comparison
from dagveil.report.svg import draw_graph
from dagveil.runs.result import Result

SVG: Final = "{http://www.w3.org/2000/svg}"
HALO: Final = "#f0b429"
STYLE: Final = """
.dagveil-graph .halo { fill: none; stroke: #f0b429; stroke-width: 11; stroke-opacity: .55; stroke-linecap: round; }
"""


def list_differing(found: Comparison) -> set[frozenset[str]]:
    """Return the pairs that two graphs join differently."""
    groups = (found.only_here, found.only_there, found.turned, found.marked)
    return {frozenset((one.first, one.second)) for group in groups for one in group}


def draw_differences(result: Result, differing: set[frozenset[str]], title: str) -> str:
    """Draw a result's graph with a broad halo along every edge that differs.

    Parameters
    ----------
    result
        Whose graph is drawn.
    differing
        Pairs that the other graph joins differently.
    title
        For screen readers and tooltips.
    """
    register_namespace("", SVG[1:-1])
    root = fromstring(draw_graph(result.graph, title))  # our own drawing: nothing foreign is parsed
    style = root.find(f"{SVG}style")
    if style is not None:
        style.text = (style.text or "") + STYLE
    nodes = result.graph.nodes
    for edge in root.iter(f"{SVG}g"):
        if edge.get("class") != "edge":
            continue
        ends = frozenset(nodes[int(edge.get(name, "0"))] for name in ("data-source", "data-target"))
        if ends in differing:
            edge.set("class", "edge differs")
            _add_halo(edge)
    return tostring(root, encoding="unicode")


def _add_halo(edge: Element) -> None:
    for line in [line for line in edge if line.get("class") == "line"]:
        halo = Element(f"{SVG}path", {"class": "halo", "d": line.get("d", ""), "fill": "none", "stroke": HALO})
        edge.insert(1, halo)
        SubElement(halo, f"{SVG}title").text = "differs from the other result"

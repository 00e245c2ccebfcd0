"""Released counts as bars, each with the noise that it may hold: an SVG that stands alone."""

from collections.abc import Sequence
from itertools import product
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from dagveil.evidence.estimates import TableEstimate
from dagveil.report.exploration import STYLE
from dagveil.report.formatting import measure, shorten
from dagveil.report.layout import Point
from dagveil.report.svg import RIM, open_drawing, write_length, write_lengths, write_text
from dagveil.text import clean_text

BAR: Final = 320.0  # pixels of the longest share
ROW: Final = 22.0  # from one bar to the next
EDGE: Final = 14.0  # around the drawing
WIDEST_LABEL: Final = 320.0  # a longer name of a cell is shortened
COLOUR: Final = "#0072b2"
INTERVAL: Final = 1.96  # standard errors on either side: 95 % of the noise


def draw_counts(tables: Sequence[TableEstimate]) -> str:
    """Draw the shares of each table's cells as bars; strokes hold 95 % of the noise."""
    rows = [_list_cells(table) for table in tables]
    left = EDGE + 10.0 + max(measure(label) for cells in rows for label, _, _ in cells)
    longest = max(max(share + INTERVAL * error for _, share, error in cells) for cells in rows)
    scale = BAR / max(longest, 1e-9)
    lines = sum(len(cells) + 2 for cells in rows)
    told = "; ".join(f"{label}: {share:.1%}" for cells in rows for label, share, _ in cells)
    root = open_drawing(
        "dagveil-curve", left + BAR + 80.0, 2 * EDGE + ROW * lines, "Released shares of rows, with their noise",
        f"Shares of rows. {told}.", STYLE,
    )  # fmt: skip
    at = EDGE + ROW / 2
    for table, cells in zip(tables, rows, strict=True):
        heading = shorten(" and ".join(table.columns), left + BAR)
        root.append(write_text(heading, Point(EDGE, at), anchor="start"))
        for label, share, error in cells:
            at += ROW
            _draw_bar(root, Point(left, at), label, share, error, scale)
        at += 2 * ROW
    return tostring(root, encoding="unicode")


def _list_cells(table: TableEstimate) -> list[tuple[str, float, float]]:
    """Return name, share and standard error of each cell."""
    labels = [shorten(clean_text(", ".join(cell)), WIDEST_LABEL) for cell in product(*table.labels)]
    shares, errors = table.shares.ravel().tolist(), table.share_errors.ravel().tolist()
    return list(zip(labels, shares, errors, strict=True))


def _draw_bar(root: Element, place: Point, label: str, share: float, error: float, scale: float) -> None:
    group = SubElement(root, "g", {"class": "bar"})
    group.append(write_text(label, Point(place.x - 8.0, place.y), anchor="end"))
    long, low, high = (max(end, 0.0) * scale for end in (share, share - INTERVAL * error, share + INTERVAL * error))
    size = {"height": "12", "fill": COLOUR, "width": write_length(long)}
    SubElement(group, "rect", write_lengths(x=place.x, y=place.y - 6.0) | size)
    ends = write_lengths(x1=place.x + low, x2=place.x + high, y1=place.y, y2=place.y)
    SubElement(group, "line", {**ends, "stroke": RIM, "stroke-width": "2", "class": "rule"})
    group.append(write_text(f"{share:.1%}", Point(place.x + long + (high - low) / 2 + 8.0, place.y), anchor="start"))

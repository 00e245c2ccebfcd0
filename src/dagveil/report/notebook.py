"""Results in notebooks: the drawing, and what was promised."""

from __future__ import annotations

from markupsafe import Markup

from dagveil.report.html import render_svg
from dagveil.runs.result import Result
from dagveil.text import clean_text


def draw_inline(result: Result) -> str:
    """Return the drawing of the graph and the first sentence of the receipt as HTML."""
    promise = clean_text(result.receipt.words()[0])
    drawing = Markup(render_svg(result))  # ElementTree has escaped the names
    page = Markup('<div style="overflow-x: auto">{drawing}</div><p style="max-width: 60em">{promise}</p>')
    return str(page.format(drawing=drawing, promise=promise))

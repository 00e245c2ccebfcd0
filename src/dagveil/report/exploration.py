"""An exploration as a page that stands alone, and in notebooks."""

from __future__ import annotations

from markupsafe import Markup

from dagveil.forecast.explore import Exploration
from dagveil.forecast.recommendation import Curve, Point
from dagveil.report.curve import draw_exploration
from dagveil.report.formatting import write_epsilon, write_number
from dagveil.report.html import open_templates, read_template
from dagveil.text import clean_text


def render_exploration(found: Exploration) -> str:
    """Return the page: words, curves and numbers. The same exploration gives the same page, byte for byte."""
    points = found.curves[0].points
    return (
        open_templates()
        .get_template("exploration.html.j2")
        .render(
            found=found,
            epsilons=[write_epsilon(point.epsilon) for point in points],
            rows=tabulate(found.curves),
            weakest=[write_number(point.weakest.typical) for point in points],
            scale=points[0].weakest.scale,
            density=write_number(found.density),
            drawing=Markup(draw_exploration(found)),  # ElementTree has escaped the names
            style=Markup(read_template("report.css")),
        )
    )


def draw_exploration_inline(found: Exploration) -> str:
    """Return curves and words as HTML for a notebook."""
    drawing = Markup(draw_exploration(found))
    words = Markup("").join(
        Markup('<p style="max-width: 60em">{}</p>').format(clean_text(sentence))
        for sentence in (*found.recommendation.words, *found.notes)
    )
    return str(Markup('<div style="overflow-x: auto">{}</div>{}').format(drawing, words))


def tabulate(curves: tuple[Curve, ...]) -> list[tuple[str, list[str]]]:
    """Return each method with its means and intervals as text, by epsilon."""
    return [(curve.method, [write_point(point) for point in curve.points]) for curve in curves]


def write_point(point: Point) -> str:
    """Print a mean with its interval; a dash if a run failed.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from dagveil.forecast.detection import Weakest
    >>> write_point(Point(Fraction(1), 0.912, 0.85, 0.97, 2, Weakest("correlation", 0.1, 0.1)))
    '0.91 (0.85–0.97)'
    """
    if point.f1 is None or point.low is None or point.high is None:
        return "–"
    return f"{point.f1:.2f} ({point.low:.2f}–{point.high:.2f})"

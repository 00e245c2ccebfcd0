"""The report as one HTML page that stands alone: no network, no outside fonts or scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dagveil.errors import DataError
from dagveil.report.formatting import split_words, write_count, write_date, write_number, write_part
from dagveil.report.guarantee import Standing
from dagveil.report.model import ReportModel, build_model
from dagveil.report.registry import build_card, encode_card
from dagveil.report.svg import draw_graph, draw_samples
from dagveil.runs.result import Result
from dagveil.text import clean_text

if TYPE_CHECKING:
    from dagveil.audit.certificate import Certificate

SCRIPTS: Final = ("report.js", "geometry.js", "graph.js")
STYLES: Final = ("report.css", "graph.css")
LONG_NAME: Final = 20  # signs of a word from which a line may end within it
_CODE: Final = re.compile(r"(`[^`]*`|--[a-z][a-z-]*)")


def render_report(page: ReportModel) -> str:
    """Return the page."""
    script = "".join(read_template(name) for name in SCRIPTS)
    graph, template = page.result.graph, open_templates().get_template("report.html.j2")
    return template.render(
        page=page,
        result=page.result,
        attempts=page.attempts,
        # ElementTree has escaped the names
        drawing=Markup(draw_graph(graph, f"Causal graph of {page.title}", legend_apart=True)),
        legend=[(words, Markup(sample)) for words, sample in draw_samples(graph)],
        code={snippet.key: Markup(escape(snippet.code)) for snippet in page.snippets},  # its line breaks stay
        card=Markup(encode_card(build_card(page))),
        style=Markup("".join(read_template(name) for name in STYLES)),
        script=Markup(script),
        policy=_policy(script),
    )


def render_svg(page: ReportModel) -> str:
    """Return the drawing of the graph; it says if nothing is promised."""
    note = " · ".join(alarm.headline for alarm in page.alarms if alarm.standing is Standing.NOT_PRIVATE)
    return draw_graph(page.result.graph, f"Causal graph of {page.title}", note)


def write_report(result: Result, path: str | Path, certificate: Certificate | None = None) -> None:
    """Write the page of a result to a file; with a certificate of an audit, it tells what was tried."""
    page = render_report(build_model(result, certificate))
    try:
        Path(path).write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"cannot write {path}: {reason}; choose a folder that exists and that you may write") from error


def make_environment(package: str) -> Environment:
    """Return the templates of a package; every text is cleaned and escaped on its way in."""
    return Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def open_templates() -> Environment:
    """Return the templates of reports and explorations."""
    environment = make_environment("dagveil.report")
    environment.filters |= {"breakable": mark_breaks, "sentence": mark_long_names, "commands": _mark_commands}
    environment.filters |= {"count": write_count, "date": write_date, "part": write_part, "number": write_number}
    return environment


def mark_breaks(name: str) -> Markup:
    """Let a browser break a name between its words, before it breaks it anywhere."""
    return Markup("<wbr>").join(split_words(name))


def mark_long_names(sentence: str) -> Markup:
    """Let a browser break the long names in a sentence between their words; figures and short words stay whole."""
    words = clean_text(sentence).split(" ")
    return Markup(" ").join(mark_breaks(word) if len(word) > LONG_NAME else escape(word) for word in words)


def _mark_commands(sentence: str) -> Markup:
    """Set as code what stands between backticks, and options."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part.strip("`")) if i % 2 else mark_long_names(part)
        for i, part in enumerate(_CODE.split(clean_text(sentence)))
    )


def _finalize(value: Any) -> Any:
    """Clean every text on its way into the page; markup is made here and clean already."""
    return clean_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def read_template(name: str) -> str:
    """Return a style sheet or script as it is written."""
    environment = open_templates()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _policy(script: str) -> str:
    """Content security policy: nothing is loaded, and only this one script runs."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def draw_inline(result: Result) -> str:
    """Return the drawing of the graph and the first sentence of the receipt as HTML."""
    promise = clean_text(result.receipt.words()[0])
    drawing = Markup(render_svg(build_model(result)))  # ElementTree has escaped the names
    page = Markup('<div style="overflow-x: auto">{drawing}</div><p style="max-width: 60em">{promise}</p>')
    return str(page.format(drawing=drawing, promise=promise))

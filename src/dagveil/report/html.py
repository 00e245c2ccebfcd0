"""The report as one HTML page that stands alone: no network, no outside fonts or scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dagveil.errors import DataError
from dagveil.report.audit_section import read_attempts
from dagveil.report.card import encode_card, fill_card
from dagveil.report.guarantee_status import Standing
from dagveil.report.labels import split_words
from dagveil.report.model import build_model, check_result
from dagveil.report.svg import Legend, draw_graph, draw_samples
from dagveil.runs.result import Result
from dagveil.text import clean_text

SCRIPTS: Final = ("report.js", "geometry.js", "graph.js")
STYLES: Final = ("report.css", "graph.css")
_CODE: Final = re.compile(r"(`[^`]*`|--[a-z][a-z-]*)")


def render_report(result: Mapping[str, Any] | Result, certificate: Mapping[str, Any] | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    result
        A frozen result, or result.json decoded. The same result gives the same page, byte for byte.
    certificate
        A certificate of `dagveil audit`, decoded; None leaves the section about it out.
    """
    page = build_model(result)
    environment = open_templates()
    script = "".join(read_template(name) for name in SCRIPTS)
    title = f"Causal graph of {page.title}"
    attempts = None if certificate is None else read_attempts(certificate, check_result(result))
    return environment.get_template("report.html.j2").render(
        page=page,
        attempts=attempts,
        # ElementTree has escaped the names
        drawing=Markup(draw_graph(page.graph, title, legend_place=Legend.APART)),
        legend=[(words, Markup(sample)) for words, sample in draw_samples(page.graph)],
        code={snippet.key: Markup(escape(snippet.code)) for snippet in page.snippets},  # its line breaks stay
        card=Markup(encode_card(fill_card(check_result(result), page, attempts))),
        style=Markup("".join(read_template(name) for name in STYLES)),
        script=Markup(script),
        policy=_policy(script),
    )


def write_report(
    result: Mapping[str, Any] | Result, path: str | Path, certificate: Mapping[str, Any] | None = None
) -> None:
    """Write the page to a file."""
    _write(render_report(result, certificate), path)


def render_svg(result: Mapping[str, Any] | Result) -> str:
    """Return the drawing of the graph; it says if nothing is promised."""
    record = check_result(result)
    title = f"Causal graph of {record.record('schema').text('dataset')}"
    model = build_model(result)
    note = " · ".join(alarm.headline for alarm in model.alarms if alarm.standing is Standing.NOT_PRIVATE)
    return draw_graph(record.record("graph").content, title, note)


def write_svg(result: Mapping[str, Any] | Result, path: str | Path) -> None:
    """Write the drawing of the graph to a file."""
    _write(render_svg(result) + "\n", path)


@cache
def open_templates() -> Environment:
    """Return the templates of all pages; every text is cleaned and escaped on its way in."""
    environment = Environment(
        loader=PackageLoader("dagveil.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": _mark_breaks, "commands": _mark_commands}
    return environment


def _mark_breaks(name: str) -> Markup:
    """Let a browser break a name between its words, before it breaks it anywhere."""
    return Markup("<wbr>").join(split_words(name))


def _mark_commands(sentence: str) -> Markup:
    """Set as code what stands between backticks, and options."""
    parts = _CODE.split(clean_text(sentence))
    marked = [Markup("<code>{}</code>").format(part.strip("`")) if i % 2 else part for i, part in enumerate(parts)]
    return Markup("").join(marked)


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


def _write(text: str, path: str | Path) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"cannot write {path}: {reason}; choose a folder that exists and that you may write") from error


def draw_inline(result: Result) -> str:
    """Return the drawing of the graph and the first sentence of the receipt as HTML."""
    promise = clean_text(result.receipt.words()[0])
    drawing = Markup(render_svg(result))  # ElementTree has escaped the names
    page = Markup('<div style="overflow-x: auto">{drawing}</div><p style="max-width: 60em">{promise}</p>')
    return str(page.format(drawing=drawing, promise=promise))

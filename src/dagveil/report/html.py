"""The report as one HTML page that stands alone: no network, no outside fonts or scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dagveil.errors import DataError
from dagveil.methods.result import Result
from dagveil.report.labels import clean_text
from dagveil.report.model import build_model, check_result
from dagveil.report.standing import Standing
from dagveil.report.svg import draw_graph


def render_report(result: Mapping[str, Any] | Result) -> str:
    """Return the page.

    Parameters
    ----------
    result
        A frozen result, or result.json decoded. The same result gives the same page, byte for byte.
    """
    page = build_model(result)
    environment = _environment()
    script = _source("report.js")
    return environment.get_template("report.html.j2").render(
        page=page,
        drawing=Markup(draw_graph(page.graph, f"Causal graph of {page.title}")),  # ElementTree has escaped the names
        style=Markup(_source("report.css")),
        script=Markup(script),
        policy=_policy(script),
    )


def write_report(result: Mapping[str, Any] | Result, path: str | Path) -> None:
    """Write the page to a file."""
    _write(render_report(result), path)


def write_svg(result: Mapping[str, Any] | Result, path: str | Path) -> None:
    """Write the drawing of the graph to a file."""
    record = check_result(result)
    title = f"Causal graph of {record.record('schema').text('dataset')}"
    model = build_model(result)
    note = " · ".join(alarm.headline for alarm in model.alarms if alarm.standing is Standing.NOT_PRIVATE)
    _write(draw_graph(record.record("graph").content, title, note) + "\n", path)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("dagveil.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: Any) -> Any:
    """Clean every text on its way into the page; markup is made here and clean already."""
    return clean_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _source(name: str) -> str:
    environment = _environment()
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

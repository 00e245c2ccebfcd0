"""The card: what a registry of deployments needs to know about a release, as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dagveil.errors import DataError
from dagveil.privacy.budget import round_up
from dagveil.privacy.guessing import PER_PERSON
from dagveil.privacy.receipt import Trust
from dagveil.report.audit_section import Attempts, read_attempts
from dagveil.report.fields import Record
from dagveil.report.graph import read_graph
from dagveil.report.guarantee_status import Standing
from dagveil.report.model import ReportModel, build_model, check_result
from dagveil.report.spending import read_accounting
from dagveil.runs.result import Result
from dagveil.text import clean_text

CARD_FORMAT: Final = "dagveil-card"
CARD_VERSION: Final = 1


def build_card(result: Mapping[str, Any] | Result, certificate: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the card of a result: public facts and claims only, no column names and no edges.

    Parameters
    ----------
    result
        A frozen result, or result.json decoded.
    certificate
        A certificate of `dagveil audit`, decoded; without one the card says that there was no audit.
    """
    record = check_result(result)
    return fill_card(record, build_model(result), None if certificate is None else read_attempts(certificate, record))


def fill_card(record: Record, page: ReportModel, attempts: Attempts | None = None) -> dict[str, Any]:
    """Return the card of a result that has been read already."""
    schema, receipt = record.record("schema"), record.record("receipt")
    graph = read_graph(record.record("graph").content)
    epsilon, delta = receipt.fraction("epsilon"), receipt.fraction("delta")
    local = receipt.content.get("trust") == Trust.NOBODY.value
    held = page.standing is not Standing.NOT_PRIVATE
    return {
        "format": CARD_FORMAT,
        "version": CARD_VERSION,
        "dataset": page.title,
        "released": record.text("created"),
        "software": f"dagveil {page.software}",
        "product": {
            "kind": "causal graph",
            "family": graph.family,
            "columns": len(graph.nodes),
            "directed_edges": len(graph.arrows),
            "undirected_edges": len(graph.lines),
            "doubtful_edges": len(page.doubtful),
            "expected_false_edges": record.number("false_edges"),
            "summary": list(record.texts("summary")),
        },
        "method": {
            "name": page.method,
            "calibration": record.record("method").text("calibration"),
            "plugin": receipt.text("plugin") if receipt.content.get("plugin") is not None else None,
        },
        "guarantee": {
            "holds": held,
            "standing": page.standing.value,
            "definition": ("pure" if delta == 0 else "approximate") + " differential privacy" if held else None,
            "model": "local" if local else "central",
            "trusted_with_records": "nobody" if local else "the custodian of the table",
            "epsilon": str(epsilon),
            "epsilon_rounded_up": round_up(epsilon, 4),
            "delta": str(delta),
            "unit": "one record",
            "record": receipt.text("unit"),
            "persons": PER_PERSON,
            "neighbours": receipt.text("relation"),
            "covers": "this release; other releases from the same data add to it",
        },
        "accounting": {
            "by": receipt.text("accounting"),
            "total": str(read_accounting(receipt, "total")),
            "spent": str(read_accounting(receipt, "spent")),
            "noise": receipt.text("noise", ""),
            "releases": len(receipt.records("events")),
        },
        "promise": [": ".join(filter(None, (line.lead, line.text))) for line in page.promise.sentences] if held else [],
        "public_facts": list(page.public_facts),
        "nominal_rows": schema.whole("nominal_rows"),
        "schema": {"digest": schema.text("digest", ""), "reviewed": schema.content.get("reviewed") is True},
        "not_promised": list(page.limits),
        "audit": None if attempts is None else _tell_audit(attempts),
        "warnings": [f"{alarm.headline}: {alarm.text}" for alarm in page.alarms],
    }


def encode_card(card: Mapping[str, Any]) -> str:
    r"""Write a card as JSON that can stand inside an HTML script element: pure ASCII, no angle brackets.

    Examples
    --------
    >>> encode_card({"dataset": "</script>"})
    '{\n  "dataset": "\\u003c/script\\u003e"\n}'
    """
    text = json.dumps(_clean(card), indent=2, ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def write_card(
    result: Mapping[str, Any] | Result, path: str | Path, certificate: Mapping[str, Any] | None = None
) -> None:
    """Write the card of a result to a file."""
    try:
        Path(path).write_text(encode_card(build_card(result, certificate)) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"cannot write {path}: {reason}; choose a folder that exists and that you may write") from error


def _tell_audit(attempts: Attempts) -> dict[str, Any]:
    return {
        "effort": attempts.effort,
        "date": attempts.created,
        "of_this_run": not attempts.mismatches,
        "differs": list(attempts.mismatches),
        "tried": dict(attempts.rows),
        "violations": list(attempts.violations),
    }


def _clean(value: Any) -> Any:
    """Replace what turns the reading direction, as in the page."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {name: _clean(inner) for name, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value

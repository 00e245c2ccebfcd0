"""The card: what a registry of deployments needs to know about a release, as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from dagveil.privacy.guessing import PER_PERSON
from dagveil.privacy.receipt import Trust
from dagveil.report.formatting import write_epsilon
from dagveil.report.guarantee import Standing
from dagveil.report.model import ReportModel
from dagveil.text import clean_text

CARD_FORMAT: Final = "dagveil-card"
CARD_VERSION: Final = 1


def build_card(page: ReportModel) -> dict[str, Any]:
    """Return the card of a result: public facts and claims only, no column names and no edges."""
    result, receipt, graph = page.result, page.result.receipt, page.result.graph
    delta = Fraction(receipt.delta)
    local = receipt.trust is Trust.NOBODY
    held = page.standing is not Standing.NOT_PRIVATE
    return {
        "format": CARD_FORMAT,
        "version": CARD_VERSION,
        "dataset": page.title,
        "released": result.created,
        "software": f"dagveil {result.software}",
        "product": {
            "kind": "causal graph",
            "family": graph.family,
            "columns": len(graph.nodes),
            "directed_edges": len(graph.arrows),
            "undirected_edges": len(graph.lines),
            "doubtful_edges": len(page.doubtful),
            "expected_false_edges": result.false_edges,
            "summary": list(result.summary),
        },
        "method": {"name": result.method.name, "calibration": result.method.calibration, "plugin": receipt.plugin},
        "guarantee": {
            "holds": held,
            "standing": page.standing.value,
            "definition": ("pure" if delta == 0 else "approximate") + " differential privacy" if held else None,
            "model": "local" if local else "central",
            "trusted_with_records": "nobody" if local else "the custodian of the table",
            "epsilon": receipt.epsilon,
            "epsilon_rounded_up": write_epsilon(Fraction(receipt.epsilon)),
            "delta": receipt.delta,
            "unit": receipt.protected,
            "record": receipt.unit,
            "persons": "the epsilon is that of a person, with all records" if receipt.per_person else PER_PERSON,
            "neighbours": receipt.relation.value,
            "covers": "this release; other releases from the same data add to it",
        },
        "accounting": {
            "by": receipt.accounting,
            "total": receipt.accounting_total,
            "spent": receipt.accounting_spent,
            "noise": receipt.noise,
            "releases": len(receipt.events),
        },
        "promise": [": ".join(filter(None, (line.lead, line.text))) for line in page.promise.sentences] if held else [],
        "public_facts": list(receipt.public_facts),
        "nominal_rows": result.schema.nominal_rows,
        "schema": {"digest": result.schema.digest, "reviewed": result.schema.reviewed},
        "not_promised": list(page.limits),
        "audit": None
        if (tried := page.attempts) is None
        else {
            "effort": tried.effort,
            "date": tried.created,
            "of_this_run": not tried.mismatches,
            "differs": list(tried.mismatches),
            "tried": dict(tried.rows),
            "violations": list(tried.violations),
        },
        "warnings": [f"{alarm.headline}: {alarm.text}" for alarm in page.alarms],
    }


def encode_card(card: Mapping[str, Any]) -> str:
    """Write a card as JSON that can stand inside an HTML script element: pure ASCII, no angle brackets."""
    text = json.dumps(_clean(card), indent=2, ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _clean(value: Any) -> Any:
    """Replace what turns the reading direction, as in the page."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {name: _clean(inner) for name, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value

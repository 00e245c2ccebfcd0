"""What registries of deployments need to know about a release: the card, and an entry in the registry's own schema.

`registry_schema.json` says where the schema comes from. What a result knows is filled in; what only people know comes
from a file of facts that is asked for once.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from dagveil.errors import DataError
from dagveil.privacy.receipt import PER_PERSON, Trust
from dagveil.report.formatting import write_epsilon, write_plural
from dagveil.report.guarantee import Standing
from dagveil.report.model import ReportModel
from dagveil.text import clean_text

NOT_SAID: Final = "Not stated by the custodian."


class DeploymentFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What only people know about a release. Of these, all up to `registry_authors` are needed.

    Their meaning is that of the registry's fields of the same name.
    """

    name: str = ""
    data_curators: tuple[str, ...] = ()
    intended_use: str = ""
    data_product_region: str = ""
    registry_authors: tuple[str, ...] = ()
    data_product_sector: str = ""
    publication_date: str = ""
    description: str = ""
    actors: str = ""
    release_type: str = ""
    release_type_details: str = ""
    data_source_type: str = ""
    preprocessing_and_hyperparameter_tuning: str = ""
    access_controls: str = ""
    justification: str = ""
    sources: str = ""

    def missing(self) -> tuple[str, ...]:
        """Return the needed facts that nobody has given yet."""
        return tuple(name for name in NEEDED if not getattr(self, name))


NEEDED: Final = {
    "name": "What is the release called?",
    "data_curators": "Who publishes it? Several names with semicolons between them.",
    "intended_use": "What is it meant to be used for?",
    "data_product_region": "Which region do the data describe, or whose law applies?",
    "registry_authors": "Who fills in this entry? Several names with semicolons between them.",
}
"""Facts without which the registry takes no entry, as questions."""

LISTS: Final = ("data_curators", "registry_authors")


def read_fact(name: str, value: str) -> str | list[str]:
    """Return a fact as it is kept: some are lists, written with semicolons."""
    return [part.strip() for part in value.split(";") if part.strip()] if name in LISTS else value.strip()


def build_entry(page: ReportModel, facts: DeploymentFacts) -> dict[str, Any]:
    """Return the registry's entry of a result."""
    result, receipt = page.result, page.result.receipt
    graph = result.graph
    said = {name: getattr(facts, name) or NOT_SAID for name in ("actors", "justification", "access_controls")}
    basic = {
        "name": facts.name,
        "data_curators": list(facts.data_curators),
        "description": facts.description
        or f"A causal graph of {len(graph.nodes)} columns with {len(graph.arrows)} directed and {len(graph.lines)} "
        "undirected edges, found in noisy statistics that were released under differential privacy.",
        "intended_use": facts.intended_use,
        "data_product_type": "Summary statistics",
        "data_product_region": facts.data_product_region,
        "publication_date": facts.publication_date or result.created[:10],
    }
    if facts.data_product_sector:
        basic["data_product_sector"] = facts.data_product_sector
    model: dict[str, Any] = {
        "model_name": "Local" if receipt.trust is Trust.NOBODY else "Central",
        "actors": said["actors"],
        "access_type": "Non-interactive",
        "access_type_details": "What was released is a file; nobody queries the records through it.",
    }
    optional = ("release_type", "release_type_details", "data_source_type")
    model |= {name: getattr(facts, name) for name in optional if getattr(facts, name)}
    delta = Fraction(receipt.delta)
    parameters = {"epsilon": float(write_epsilon(Fraction(receipt.epsilon)).replace(",", ""))}
    parameters |= {"delta": float(delta)} if delta else {}
    parameters |= {"rho": float(Fraction(receipt.accounting_total))} if "zCDP" in receipt.accounting else {}
    entry = {
        "url_slug": re.sub(r"[^a-z0-9]+", "_", facts.name.lower()).strip("_") or "release",
        "status": "Draft",
        "tier": 3 if facts.actors and facts.justification else 2,
        "deployment": {
            "basic": basic,
            "dp_variant": {
                "variant_name": "Approximate DP" if delta else "Pure DP",
                "data_domain": f"Tables with the {len(result.schema.columns)} columns that the public schema declares "
                f"(SHA-256 {result.schema.digest}), of any number of rows.",
                "unprotected_quantities": "; ".join(receipt.public_facts) or "none",
            },
            "privacy_loss": {
                "privacy_unit": receipt.protected.capitalize()
                if receipt.per_person
                else f"One record, which the schema calls: {receipt.unit}",
                "privacy_unit_details": f"Adjacent tables: {receipt.neighbours}."
                + ("" if receipt.per_person else " A person with k records has k times the epsilon."),
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"{receipt.accounting}; exactly epsilon = {receipt.epsilon}, delta = "
                f"{receipt.delta}, rounded up here.",
            },
            "deployment_model": model,
            "accounting": {
                "post_processing": "Search for a graph, its arrows and confidences, drawings and reports. They read "
                "released numbers only.",
                "composition": f"{receipt.accounting}; {write_plural(len(receipt.events), 'release')}, {receipt.spent}"
                ". A filter checks the total before each draw; the custodian's ledger adds up the runs in it.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": facts.preprocessing_and_hyperparameter_tuning
                or "Levels, bounds and settings are public and were fixed before any record was read. "
                + ("A person has reviewed them." if result.schema.reviewed else "NOBODY HAS REVIEWED THEM."),
                "mechanisms": f"Method {result.method.name} of dagveil {result.software}. Noise: {receipt.noise}, "
                "integers on integers, so no floating-point noise is released. Runs are not interactive; their time is "
                f"not protected. Access to the records: {said['access_controls']}",
                "justification": said["justification"],
            },
            "administrative": {
                **({"sources": facts.sources} if facts.sources else {}),
                "notes": "Written by dagveil from the receipt of the release; the statements of people are those of "
                "the curators.",
                "registry_authors": list(facts.registry_authors),
            },
        },
    }
    if problems := list(find_problems(entry)):
        raise DataError(f"the registry would refuse this entry: {'; '.join(problems)}. Correct the facts")
    return entry


@cache
def read_registry_schema() -> dict[str, Any]:
    """Return the registry's schema."""
    text = (files("dagveil.report") / "registry_schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


_KINDS: Final[dict[str, Any]] = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}


def find_problems(entry: Any, schema: Mapping[str, Any] | None = None, place: str = "entry") -> Iterator[str]:
    """Yield what does not fit the registry's schema: the part of JSON Schema that it uses."""
    schema = read_registry_schema() if schema is None else schema
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and (isinstance(entry, bool) or not any(isinstance(entry, _KINDS[kind]) for kind in kinds)):
        yield f"{place} is not of type {' or '.join(kinds)}"
        return
    if "enum" in schema and entry not in schema["enum"]:
        yield f"{place} is none of {', '.join(map(str, schema['enum']))}"
    if schema.get("format") == "date" and not _is_date(entry):
        yield f"{place} is not a date such as 2026-01-31"
    if isinstance(entry, dict):
        known = schema.get("properties", {})
        yield from (f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in entry)
        if schema.get("additionalProperties") is False:
            yield from (f"{place}.{name} is no field" for name in entry if name not in known)
        for name, value in entry.items():
            yield from find_problems(value, known.get(name, {}), f"{place}.{name}")
    if isinstance(entry, list):
        if len(entry) < schema.get("minItems", 0):
            yield f"{place} has too few items"
        for number, value in enumerate(entry):
            yield from find_problems(value, schema.get("items", {}), f"{place}[{number}]")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) is not None


def write_yaml(value: Any, indent: int = 0) -> str:
    r"""Write an entry as YAML: texts in double quotes, as in JSON, which every reader of YAML understands.

    >>> print(write_yaml({"tier": 2, "basic": {"data_curators": ["A \"B\""]}}), end="")
    tier: 2
    basic:
      data_curators:
        - "A \"B\""
    """
    pad = " " * indent
    if isinstance(value, list):
        return "".join(f"{pad}- {json.dumps(item)}\n" for item in value)
    return "".join(
        f"{pad}{name}:\n{write_yaml(item, indent + 2)}"
        if isinstance(item, dict | list)
        else f"{pad}{name}: {json.dumps(item)}\n"
        for name, item in value.items()
    )


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

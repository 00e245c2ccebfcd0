"""All that the page shows, as frozen data: numbers formatted, sentences sorted, nothing left to compute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagveil.errors import DataError
from dagveil.privacy.receipt import Trust
from dagveil.report.fields import Record
from dagveil.report.formatting import (
    write_count,
    write_date,
    write_delta,
    write_epsilon,
    write_number,
    write_part,
    write_plural,
    write_share,
)
from dagveil.report.graph import DrawnGraph, EdgeKind, read_graph, read_line
from dagveil.report.guarantee_status import Alarm, Promise, Standing, find_alarms, judge, list_limits, read_promise
from dagveil.report.sentences import tell_first
from dagveil.report.snippets import Snippet, write_snippets
from dagveil.report.spending import Spending, itemise
from dagveil.report.thresholds import Thresholds, read_thresholds
from dagveil.runs.result import RESULT_VERSION, Result

JOINS: Final = ("→", "←", "—", "none")
"""What a redraw may say about two columns."""
MOST_EVENTS: Final = 200
"""The technical receipt lists this many events; the others are in result.json."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A share with its bar: `percent` is the width, `words` the number; no bar if there is no share."""

    percent: float | None
    words: str


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """One row of the edge table."""

    source: str
    sign: str
    meaning: str
    target: str
    edge: Bar
    joins: tuple[Bar, ...] = ()
    """Shares of redraws with →, ←, — and no edge at all."""
    ends: tuple[int, int] | None = None
    """Positions of the two columns in the graph; None if the graph lacks one of them."""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One part of the budget."""

    label: str
    note: str
    bar: Bar
    spent: bool


@dataclass(frozen=True, slots=True)
class StageRow:
    """One step of the plan."""

    stage: str
    tables: str
    cells: str
    share: str
    noise: str
    why: str


@dataclass(frozen=True, slots=True)
class ReportModel:
    """The page as data."""

    title: str
    created: str
    software: str
    method: str
    standing: Standing
    alarms: tuple[Alarm, ...]
    promise: Promise
    facts: tuple[tuple[str, str], ...]
    graph: DrawnGraph
    counts: str
    sentences: tuple[tuple[str, str], ...]
    confidence: str
    redrawn: bool
    joins: tuple[str, ...]
    edges: tuple[EdgeRow, ...]
    doubtful: tuple[EdgeRow, ...]
    near_misses: tuple[EdgeRow, ...]
    thresholds: Thresholds
    snippets: tuple[Snippet, ...]
    budget: tuple[BudgetRow, ...]
    accounting: str
    plan: tuple[StageRow, ...]
    findings: tuple[str, ...]
    public_facts: tuple[str, ...]
    limits: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    receipt: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str], ...]
    more_events: int


def build_model(result: Mapping[str, Any] | Result) -> ReportModel:
    """Build the page from a result.

    Parameters
    ----------
    result
        A frozen result, or result.json decoded.
    """
    record = check_result(result)
    method, schema, receipt = record.record("method"), record.record("schema"), record.record("receipt")
    graph = read_graph(record.record("graph").content)
    spending = itemise(receipt)
    alarms = find_alarms(receipt, method.text("calibration"), spending)
    promise = read_promise(receipt)
    confidence = record.record("confidence")
    meaning = confidence.text("meaning", "")
    events = receipt.records("events")
    misses = record.records("near_misses")
    doubtful = [miss for miss in misses if miss.truth("found")]
    counts = (
        f"{write_plural(len(graph.nodes), 'column')}, {write_plural(len(graph.arrows), 'directed edge')}, "
        f"{write_plural(len(graph.lines), 'undirected edge')}"
    )
    return ReportModel(
        title=schema.text("dataset"),
        created=write_date(record.text("created")),
        software=record.text("software"),
        method=method.text("name"),
        standing=judge(alarms),
        alarms=alarms,
        promise=promise,
        facts=_list_facts(receipt, schema),
        graph=graph,
        counts=counts,
        sentences=tell_first(
            record.texts("summary") or (f"{counts}.",),
            graph,
            [read_line(miss) for miss in doubtful],
            promise,
            judge(alarms),
            receipt,
        ),
        confidence=_tell_confidence(confidence.whole("redraws"), meaning),
        redrawn=any(edge.confidence is not None for edge in graph.edges),
        joins=JOINS,
        edges=_list_edges(graph),
        doubtful=tuple(_read_miss(miss, graph) for miss in doubtful),
        near_misses=tuple(_read_miss(miss, graph) for miss in misses if not miss.truth("found")),
        thresholds=read_thresholds(record, graph),
        snippets=write_snippets(graph),
        budget=_list_budget(spending),
        accounting=receipt.text("accounting"),
        plan=tuple(_read_stage(stage) for stage in record.records("plan")),
        findings=record.texts("findings"),
        public_facts=receipt.texts("public_facts"),
        limits=_list_limits(judge(alarms), promise, graph, meaning),
        columns=_list_columns(schema),
        receipt=_list_receipt(record, receipt, schema),
        settings=tuple((name, _as_text(value)) for name, value in _optional(method, "settings").content.items()),
        events=tuple(_read_event(event) for event in events[:MOST_EVENTS]),
        more_events=max(0, len(events) - MOST_EVENTS),
    )


def check_result(result: Mapping[str, Any] | Result) -> Record:
    """Return the result as a record, or say why it is none.

    Examples
    --------
    >>> check_result({"format": "something else"})
    Traceback (most recent call last):
    dagveil.errors.DataError: this is not a dagveil result; give a result.json that dagveil wrote
    """
    content = json.loads(result.to_json()) if isinstance(result, Result) else result
    if not isinstance(content, Mapping) or content.get("format") != "dagveil-result":
        raise DataError("this is not a dagveil result; give a result.json that dagveil wrote")
    version = content.get("version")
    if version != RESULT_VERSION:
        shown = version if isinstance(version, int) else "unknown"
        raise DataError(
            f"this result has format version {shown}, this program reads {RESULT_VERSION}; "
            "use the dagveil that wrote it, or a newer one"
        )
    return Record(content, "result")


def _optional(record: Record, name: str) -> Record:
    return record.record(name) if record.content.get(name) is not None else Record({}, f"{record.place}.{name}")


def _list_facts(receipt: Record, schema: Record) -> tuple[tuple[str, str], ...]:
    trusted = (("trusted with records", "nobody"),) if receipt.content.get("trust") == Trust.NOBODY.value else ()
    plugin = (("method of", receipt.text("plugin")),) if receipt.content.get("plugin") is not None else ()
    return (
        ("epsilon", write_epsilon(receipt.fraction("epsilon"))),
        ("delta", write_delta(receipt.fraction("delta"))),
        ("protected unit", f"one record ({receipt.text('unit')}, as the schema calls it)"),
        ("neighbours", receipt.text("relation")),
        ("nominal rows", write_count(schema.whole("nominal_rows"))),
        *trusted,
        *plugin,
    )


def _list_limits(standing: Standing, promise: Promise, graph: DrawnGraph, meaning: str) -> tuple[str, ...]:
    privacy = (
        ("Privacy of any kind. The top of this page says why.",) if standing is Standing.NOT_PRIVATE else promise.limits
    )
    return (*privacy, *list_limits(graph, meaning))


def _tell_confidence(redraws: int | None, meaning: str) -> str:
    if not redraws:
        return "Nothing was redrawn, so no confidence is known."
    words = f"Confidence comes from {write_plural(redraws, 'redraw')}"
    return f"{words}: {meaning}." if meaning else f"{words}."


def _list_edges(graph: DrawnGraph) -> tuple[EdgeRow, ...]:
    rows = []
    for edge in sorted(graph.edges, key=lambda edge: (-(edge.confidence or 0), edge.source, edge.target)):
        meaning = "directed to" if edge.kind is EdgeKind.DIRECTED else "joined to, direction open"
        absent = None if edge.confidence is None else 1.0 - edge.confidence
        joins = tuple(map(_bar, (edge.forward, edge.backward, edge.line, absent)))
        ends = graph.nodes.index(edge.source), graph.nodes.index(edge.target)
        rows.append(EdgeRow(edge.source, edge.sign, meaning, edge.target, _bar(edge.confidence), joins, ends))
    return tuple(rows)


def _read_miss(miss: Record, graph: DrawnGraph) -> EdgeRow:
    source, target, bar = miss.text("source"), miss.text("target"), _bar(miss.share("confidence"))
    known = source in graph.nodes and target in graph.nodes
    ends = (graph.nodes.index(source), graph.nodes.index(target)) if known else None
    sign, meaning = ("—?", "doubtful edge with") if miss.truth("found") else ("···", "near miss with")
    return EdgeRow(source, sign, meaning, target, bar, ends=ends)


def _bar(share: float | None) -> Bar:
    return Bar(None if share is None else round(100 * share, 2), write_share(share))


def _list_budget(spending: Spending) -> tuple[BudgetRow, ...]:
    rows = [
        BudgetRow(part.label, write_plural(part.events, "release"), _part(part.share), spent=True)
        for part in spending.slices
    ]
    if rows or (spending.unspent and not spending.unpriced):
        rows.append(BudgetRow("not spent", "", _part(spending.unspent), spent=False))
    return tuple(rows)


def _part(share: float) -> Bar:
    return Bar(round(min(100.0, 100 * share), 2), write_part(share))


def _read_stage(stage: Record) -> StageRow:
    share = stage.number("share")
    return StageRow(
        stage.text("stage"),
        write_count(stage.whole("tables")),
        write_count(stage.whole("cells")),
        "–" if share is None else write_part(share),
        write_number(stage.number("noise_sd")),
        stage.text("why", ""),
    )


def _list_columns(schema: Record) -> tuple[tuple[str, str], ...]:
    rows = []
    columns = _optional(schema, "columns")
    for name in columns.content:
        facts = dict(columns.record(name).content)
        kind = facts.pop("kind", "column")
        rest = ", ".join(f"{what} {_as_text(value)}" for what, value in facts.items() if value is not None)
        rows.append((name, f"{_as_text(kind)}: {rest}" if rest else _as_text(kind)))
    return tuple(rows)


def _list_receipt(record: Record, receipt: Record, schema: Record) -> tuple[tuple[str, str], ...]:
    """All fields of the receipt that are one value, then the schema's digest and review."""
    # who is trusted and who brings the method stands among the facts; receipts of before do not say it
    apart = ("events", "public_facts", "warnings", "words", "trust", "plugin")
    rows = [(name, _as_text(value)) for name, value in receipt.content.items() if name not in apart]
    rows.append(("schema digest", schema.text("digest", "–")))
    rows.append(("schema reviewed", "yes" if schema.content.get("reviewed") is True else "no"))
    rows.append(("result format", f"dagveil-result, version {RESULT_VERSION}, written {record.text('created')}"))
    return tuple((name.replace("_", " "), value) for name, value in rows)


def _read_event(event: Record) -> tuple[str, str, str]:
    details = [f"{name} {_as_text(value)}" for name, value in event.content.items() if name not in ("kind", "label")]
    return event.text("label"), event.text("kind").replace("-", " "), ", ".join(details).replace("_", " ")


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)

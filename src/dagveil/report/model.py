"""All that the page shows, as frozen data: numbers formatted, sentences sorted, nothing left to compute."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from dagveil.effects.answer import Effect
from dagveil.errors import DataError
from dagveil.files import write_fraction
from dagveil.privacy.events import Event
from dagveil.privacy.receipt import Receipt, Trust
from dagveil.report import guarantee
from dagveil.report.formatting import write_count, write_delta, write_epsilon, write_part, write_plural, write_share
from dagveil.report.snippets import Snippet, write_snippets
from dagveil.report.svg import count_edges
from dagveil.runs import result as results
from dagveil.search.confidence import DRAWN

if TYPE_CHECKING:
    from dagveil.audit.certificate import Certificate

JOINS: Final = ("→", "←", "—", "none")  # what a redraw may say about two columns
MOST_EVENTS: Final = 200  # the technical receipt lists this many events; the others are in result.json
EDGES_IN_SENTENCE: Final = 3  # a sentence names this many edges; the table has the others
EDGES_IN_CELL: Final = 12  # so many edges are named in one cell; the others are counted
CUTS: Final = (0.5, 0.75, 0.9, 0.95)  # confidences at which the graph is cut
PAG_JOINS: Final = (
    *("arrow at from", "tail at from", "circle at from"),
    *("arrow at to", "tail at to", "circle at to", "none"),
)
_MEANINGS: Final = {"directed": "directed to", "undirected": "joined to, direction open"}
_PAG_MEANINGS: Final[dict[results.Kind, str]] = {
    "directed": "causes",
    "half-directed": "causes, or shares an unmeasured cause with",
    "bidirected": "shares an unmeasured cause with",
    "open": "joined to, causes either way or shares an unmeasured cause with",
    "undirected": "joined by how rows were selected to",
    "half-open": "joined, maybe by how rows were selected, to",
}
_SIGNS: Final[dict[str, str]] = {
    **{str(kind): sign for kind, sign in results.SIGNS.items()},
    "reversed": "←",
    "half-reversed": "←o",
    "half-open-reversed": "—o",
}
_Edge: TypeAlias = results.ResultEdge | results.NearMiss
_LEVELS: Final = {
    "marginal_level": "A pair may be joined if its p-value is below {now:g} (in this graph {was})",
    "conditional_level": "Other columns separate a pair if its p-value is above {now:g} (in this graph {was})",
}
_NO_EVIDENCE: Final = (
    "Not available: this method asks the data question by question and releases no evidence that could be searched "
    "again. Other thresholds would cost budget again."
)
_NO_LEVELS: Final = "Not available: this search minimises a loss and has no levels."
_NOT_SEARCHED: Final = (
    "Not available: the result holds no searches at other levels. Search the evidence again with redraws; that costs "
    "nothing."
)


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
    ends: tuple[int, int]  # positions of the two columns in the graph
    likely: tuple[Bar, ...]  # probabilities of the edge and, if it is drawn, of its arrow
    joins: tuple[Bar, ...] = ()  # shares of redraws with →, ←, — and no edge at all


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One part of the budget."""

    label: str
    note: str
    bar: Bar
    spent: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """The graph if only edges of at least some confidence counted."""

    least: str
    kept: str
    lost: str


@dataclass(frozen=True, slots=True)
class Shift:
    """The graph if one level of the search had another value."""

    what: str
    changes: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Cuts and shifts; `reason` says why there are no shifts."""

    cuts: tuple[Cut, ...]
    shifts: tuple[Shift, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ReportModel:
    """The page as data; the drawing and the card are made from it too."""

    result: results.Result
    title: str
    standing: guarantee.Standing
    alarms: tuple[guarantee.Alarm, ...]
    promise: guarantee.Promise
    facts: tuple[tuple[str, str], ...]
    effects: tuple[Effect, ...]
    attempts: guarantee.Attempts | None
    counts: str
    sentences: tuple[tuple[str, str], ...]
    left_out: str
    confidence: str
    redrawn: bool
    probable: bool
    edges: tuple[EdgeRow, ...]
    doubtful: tuple[EdgeRow, ...]
    near_misses: tuple[EdgeRow, ...]
    thresholds: Thresholds
    snippets: tuple[Snippet, ...]
    budget: tuple[BudgetRow, ...]
    limits: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    receipt: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str], ...]
    more_events: int
    joins: tuple[str, ...] = JOINS


def build_model(
    result: results.Result, certificate: Certificate | None = None, effects: Sequence[Effect] = ()
) -> ReportModel:
    """Build the page of a result.

    The same result gives the same page, byte for byte. Without a certificate the section about an audit is left out.
    `effects` are answers of `dagveil effect` to show.
    """
    graph, receipt = result.graph, result.receipt
    for effect in effects:
        if effect.dataset != result.schema.dataset or not {effect.cause, effect.effect} <= set(graph.nodes):
            raise DataError(
                f"the effect of {effect.cause} on {effect.effect} is about {effect.dataset!r}, not about this result; "
                "give an answer to a question about it"
            )
    spending = guarantee.itemise(receipt)
    alarms = guarantee.find_alarms(result, spending)
    standing, promise = guarantee.judge(alarms), guarantee.sort_promise(receipt)
    doubtful = [miss for miss in result.near_misses if miss.found]
    return ReportModel(
        result=result,
        title=result.schema.dataset,
        standing=standing,
        alarms=alarms,
        promise=promise,
        facts=_list_facts(result),
        effects=tuple(effects),
        attempts=None if certificate is None else guarantee.describe_attempts(certificate, result),
        counts=count_edges(graph),
        sentences=_describe_first(result, doubtful, promise, standing),
        left_out=_describe_left_out(result),
        confidence=_describe_confidence(result.confidence),
        redrawn=any(edge.confidence is not None for edge in graph.edges),
        probable=bool(result.confidence.probabilities),
        edges=_list_edges(graph),
        joins=PAG_JOINS if graph.family == "pag" else JOINS,
        doubtful=tuple(_list_miss(miss, graph) for miss in doubtful),
        near_misses=tuple(_list_miss(miss, graph) for miss in result.near_misses if not miss.found),
        thresholds=_find_thresholds(result),
        snippets=write_snippets(graph),
        budget=_list_budget(spending),
        limits=guarantee.list_limits(standing, promise, graph, result.confidence),
        columns=_list_columns(result.schema.columns),
        receipt=_list_receipt(result),
        settings=tuple((name, _as_text(value)) for name, value in result.method.settings.items()),
        events=tuple(_list_event(event) for event in receipt.events[:MOST_EVENTS]),
        more_events=max(0, len(receipt.events) - MOST_EVENTS),
    )


def _list_facts(result: results.Result) -> tuple[tuple[str, str], ...]:
    receipt = result.receipt
    record = f"one record ({receipt.unit}, as the schema calls it)"
    return (
        ("epsilon", write_epsilon(Fraction(receipt.epsilon))),
        ("delta", write_delta(Fraction(receipt.delta))),
        ("protected unit", receipt.protected if receipt.per_person else record),
        ("neighbours", receipt.relation.value),
        ("nominal rows", write_count(result.schema.nominal_rows)),
        *((("trusted with records", "nobody"),) if receipt.trust is Trust.NOBODY else ()),
        *((("method of", receipt.plugin),) if receipt.plugin is not None else ()),
    )


def _describe_first(
    result: results.Result,
    doubtful: Sequence[results.NearMiss],
    promise: guarantee.Promise,
    standing: guarantee.Standing,
) -> tuple[tuple[str, str], ...]:
    """Tell below the graph what is solid, what is doubtful, for whom it is private, and what would help."""
    summary = result.summary or (f"{count_edges(result.graph)}.",)
    # a graph without edges says so and why in the first line
    solid, more = (summary[0], summary[1:]) if result.graph.edges else (" ".join(summary), ())
    return (
        ("Solid", solid),
        ("Doubtful", _describe_doubts(result, doubtful)),
        ("Private for", _describe_whom(promise, standing, result.receipt)),
        # whatever proposes something names what to type; other sentences tell of pairs that were left open
        *(("What would help" if "--" in sentence else "Note", sentence) for sentence in more),
    )


def _describe_left_out(result: results.Result) -> str:
    """Say why edges that were found are not drawn."""
    edges_at = result.method.settings.get("edges_at")
    if edges_at is None:
        return f"fewer than {DRAWN:.0%} of the redraws found them again, or another column could explain them"
    return f"their probability is below {write_share(edges_at)} or not known"


def _describe_doubts(result: results.Result, doubtful: Sequence[results.NearMiss]) -> str:
    edges = result.graph.edges
    if edges and all(edge.confidence is None for edge in edges):
        return "Not known: nothing was redrawn, so no edge has a confidence."
    weak = [edge for edge in edges if edge.confidence is not None and edge.confidence < results.SOLID]
    told = []
    if weak:
        told.append(f"Drawn on weak evidence: {_name_with_shares(weak)}.")
    if doubtful:
        told.append(f"Found but not drawn, since {_describe_left_out(result)}: {_name_with_shares(doubtful)}.")
    if told:
        return " ".join(told)
    if not edges:
        return "No edge was found at all."
    return f"None: every edge came back in at least {write_share(results.SOLID)} of redraws."


def _name_with_shares(edges: Sequence[_Edge]) -> str:
    words = [f"{_write_edge(edge)} ({write_share(edge.confidence)})" for edge in _sort_weakest(edges)]
    return _shorten(words, EDGES_IN_SENTENCE)


def _sort_weakest(edges: Sequence[_Edge]) -> list[_Edge]:
    """Put the least confident first."""
    return sorted(edges, key=lambda edge: (edge.confidence or 0.0, edge.source, edge.target))


def _write_edge(edge: _Edge) -> str:
    return f"{edge.source} {edge.sign if isinstance(edge, results.ResultEdge) else '—'} {edge.target}"


def _shorten(words: Sequence[str], most: int) -> str:
    more = [f"and {len(words) - most} more"] if len(words) > most else []
    return "; ".join((*words[:most], *more))


def _describe_whom(promise: guarantee.Promise, standing: guarantee.Standing, receipt: Receipt) -> str:
    if standing is guarantee.Standing.NOT_PRIVATE:
        return "Nobody: no promise holds. The top of this page says why."
    protected = [sentence.text for sentence in promise.sentences if sentence.lead == "Who is protected"]
    # how neighbours differ stands in the promise
    whom = [text.partition("; neighbours:")[0].rstrip(".") + "." for text in protected]
    epsilon, delta = write_epsilon(Fraction(receipt.epsilon)), write_delta(Fraction(receipt.delta))
    return " ".join((*whom, f"At epsilon {epsilon}, delta {delta}; the promise in full stands below."))


def _describe_confidence(confidence: results.Confidence) -> str:
    if not confidence.redraws:
        return "Nothing was redrawn, so no confidence is known."
    words = f"Confidence comes from {write_plural(confidence.redraws, 'redraw')}"
    told = [f"{words}: {confidence.meaning}." if confidence.meaning else f"{words}."]
    told += [f"Probability: {confidence.probabilities}."] if confidence.probabilities else []
    return " ".join(told)


def _list_edges(graph: results.ResultGraph) -> tuple[EdgeRow, ...]:
    rows = []
    for edge in sorted(graph.edges, key=lambda edge: (-(edge.confidence or 0), edge.source, edge.target)):
        meaning = _PAG_MEANINGS[edge.kind] if graph.family == "pag" else _MEANINGS[edge.kind]
        absent = None if edge.confidence is None else 1.0 - edge.confidence
        joins = tuple(map(_bar, (edge.forward, edge.backward, edge.line, absent)))
        if graph.family == "pag":
            names, at_ends = ("arrow", "tail", "circle"), (edge.marks_at_source, edge.marks_at_target)
            joins = (*(_bar(getattr(shares, name, None)) for shares in at_ends for name in names), _bar(absent))
        ends = graph.nodes.index(edge.source), graph.nodes.index(edge.target)
        arrow = edge.forward_probability if edge.kind == "directed" else None
        likely = (_bar(edge.probability), _bar(arrow))
        rows.append(EdgeRow(edge.source, edge.sign, meaning, edge.target, _bar(edge.confidence), ends, likely, joins))
    return tuple(rows)


def _list_miss(miss: results.NearMiss, graph: results.ResultGraph) -> EdgeRow:
    sign, meaning = ("—?", "doubtful edge with") if miss.found else ("···", "near miss with")
    ends = graph.nodes.index(miss.source), graph.nodes.index(miss.target)
    return EdgeRow(miss.source, sign, meaning, miss.target, _bar(miss.confidence), ends, (_bar(miss.probability),))


def _bar(share: float | None) -> Bar:
    return Bar(None if share is None else round(100 * share, 2), write_share(share))


def _find_thresholds(result: results.Result) -> Thresholds:
    """Tell what would change at neighbouring thresholds: of the confidence shown, and of the levels of the search."""
    settings = result.method.settings
    shifts = []
    for variation in result.variations:
        was = settings.get(variation.setting)
        level = _LEVELS[variation.setting]
        what = level.format(now=variation.value, was=f"{was:g}" if isinstance(was, float) else "–")
        told = _shorten([_describe_change(change) for change in variation.changes], EDGES_IN_CELL)
        shifts.append(Shift(what, told or "nothing changes"))
    asked = result.questions is not None or result.method.calibration != "sound"
    reason = _NO_EVIDENCE if asked else _NO_LEVELS if settings.get("search") == "notears" else _NOT_SEARCHED
    return Thresholds(_list_cuts(result.graph), tuple(shifts), "" if shifts else reason)


def _list_cuts(graph: results.ResultGraph) -> tuple[Cut, ...]:
    known = _sort_weakest([edge for edge in graph.edges if edge.confidence is not None])
    cuts = []
    for least in CUTS if known else ():
        lost = [_write_edge(edge) for edge in known if (edge.confidence or 0.0) < least]
        kept = f"{len(graph.edges) - len(lost)} of {len(graph.edges)}"
        cuts.append(Cut(write_share(least), kept, _shorten(lost, EDGES_IN_CELL) or "none"))
    return tuple(cuts)


def _describe_change(change: results.ChangedEdge) -> str:
    """Tell one change."""
    before, after = (
        "" if join == "none" else f"{change.source} {_SIGNS[join]} {change.target}"
        for join in (change.before, change.after)
    )
    if not before:
        return f"new: {after}"
    return f"gone: {before}" if not after else f"{before} becomes {after}"


def _list_budget(spending: guarantee.Spending) -> tuple[BudgetRow, ...]:
    parts = [(part.label, write_plural(part.events, "release"), part.share) for part in spending.slices]
    if parts or (spending.unspent and not spending.unpriced):
        parts.append(("not spent", "", spending.unspent))
    return tuple(
        BudgetRow(label, note, Bar(round(min(100.0, 100 * share), 2), write_part(share)), spent=bool(note))
        for label, note, share in parts
    )


def _list_columns(columns: dict[str, dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    rows = []
    for name, facts in columns.items():
        told = [f"{what} {_as_text(value)}" for what, value in facts.items() if what != "kind" and value is not None]
        rows.append((name, ": ".join(filter(None, (_as_text(facts.get("kind", "column")), ", ".join(told))))))
    return tuple(rows)


def _list_receipt(result: results.Result) -> tuple[tuple[str, str], ...]:
    """All fields of the receipt that are one value, then the schema's digest and review."""
    # who is trusted and who brings the method stands among the facts
    apart = ("events", "public_facts", "warnings", "trust", "plugin")
    names = [name for name in result.receipt.__struct_fields__ if name not in apart]
    return (
        *((name.replace("_", " "), _as_text(getattr(result.receipt, name))) for name in names),
        ("schema digest", result.schema.digest),
        ("schema reviewed", "yes" if result.schema.reviewed else "no"),
        ("result format", f"dagveil-result, version {results.RESULT_VERSION}, written {result.created}"),
    )


def _list_event(event: Event) -> tuple[str, str, str]:
    facts = msgspec.to_builtins(event, enc_hook=write_fraction)
    details = [f"{name} {_as_text(value)}" for name, value in facts.items() if name not in ("kind", "label")]
    return event.label, facts["kind"].replace("-", " "), ", ".join(details).replace("_", " ")


def _as_text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)

"""What would change at neighbouring thresholds: of the confidence shown, and of the levels of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dagveil.errors import DataError
from dagveil.report.fields import Record
from dagveil.report.formatting import write_share
from dagveil.report.graph import DrawnGraph

CUTS: Final = (0.5, 0.75, 0.9, 0.95)
"""Confidences at which the graph is cut."""
MOST_NAMED: Final = 12
"""So many edges are named in one cell; the others are counted."""

_SIGNS: Final = {"directed": "→", "reversed": "←", "undirected": "—"}
_LEVELS: Final = {
    "marginal_level": "a pair may be joined if its p-value is below {now} (in this graph {was})",
    "conditional_level": "other columns separate a pair if its p-value is above {now} (in this graph {was})",
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


def read_thresholds(record: Record, graph: DrawnGraph) -> Thresholds:
    """Read what a result tells about other thresholds.

    Parameters
    ----------
    record
        The result.
    graph
        Its graph.
    """
    settings = record.record("method").content.get("settings")
    settings = Record.of({} if settings is None else settings, "method.settings")
    shifts = tuple(_read_shift(variation, settings) for variation in record.records("variations"))
    reason = ""
    if not shifts:
        asked = record.whole("questions") is not None or record.record("method").text("calibration") != "sound"
        notears = settings.content.get("search") == "notears"
        reason = _NO_EVIDENCE if asked else _NO_LEVELS if notears else _NOT_SEARCHED
    return Thresholds(_list_cuts(graph), shifts, reason)


def _list_cuts(graph: DrawnGraph) -> tuple[Cut, ...]:
    known = [edge for edge in graph.edges if edge.confidence is not None]
    cuts = []
    for least in CUTS if known else ():
        lost = [edge for edge in known if (edge.confidence or 0.0) < least]
        lost.sort(key=lambda edge: (edge.confidence or 0.0, edge.source, edge.target))
        words = [f"{edge.source} {edge.sign} {edge.target}" for edge in lost]
        kept = f"{len(graph.edges) - len(lost)} of {len(graph.edges)}"
        cuts.append(Cut(write_share(least), kept, _name(words, "none")))
    return tuple(cuts)


def _read_shift(variation: Record, settings: Record) -> Shift:
    name = variation.text("setting")
    if name not in _LEVELS:
        raise DataError(f"{variation.place}.setting is no level of the search; use a newer dagveil")
    now, was = variation.number("value"), settings.number(name)
    told = [_tell(change) for change in variation.records("changes")]
    what = _LEVELS[name].format(now=_number(now), was=_number(was))
    return Shift(what[:1].upper() + what[1:], _name(told, "nothing changes"))


def _tell(change: Record) -> str:
    """Tell one change.

    Examples
    --------
    >>> _tell(Record({"source": "a", "target": "b", "before": "none", "after": "directed"}, ""))
    'new: a → b'
    """
    source, target = change.text("source"), change.text("target")
    signs = []
    for when in ("before", "after"):
        join = change.text(when)
        if join != "none" and join not in _SIGNS:
            raise DataError(f"{change.place}.{when} is no kind of edge; use a newer dagveil")
        signs.append("" if join == "none" else f"{source} {_SIGNS[join]} {target}")
    before, after = signs
    if not before:
        return f"new: {after}"
    return f"gone: {before}" if not after else f"{before} becomes {after}"


def _name(words: Sequence[str], nothing: str) -> str:
    if not words:
        return nothing
    more = [f"and {len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return "; ".join((*words[:MOST_NAMED], *more))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"

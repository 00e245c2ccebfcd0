"""The result of a discovery: frozen, versioned, and the same thing in Python and in JSON."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import astuple

from dagveil._version import __version__
from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DataError, GraphError
from dagveil.evidence.bundle import Choice, Part, Stage, check_receipts, check_stages
from dagveil.files import Document, SavedRecord
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.exchange.dot import to_dot
from dagveil.graphs.exchange.formats import Extension, Format, to_networkx, to_node_link, write_graph
from dagveil.graphs.knowledge import Knowledge
from dagveil.graphs.pag import Edge, Mark, MixedGraph
from dagveil.privacy.receipt import Receipt
from dagveil.search.confidence import Shares
from dagveil.search.probabilities import UNKNOWN, Probabilities

RESULT_VERSION = 2  # version of the JSON; readers refuse newer ones

Kind = Literal["directed", "undirected", "bidirected", "half-directed", "open", "half-open"]
_ENDS: Final[tuple[tuple[Kind, str, Mark, Mark], ...]] = (
    ("directed", "→", Mark.TAIL, Mark.ARROW),
    ("undirected", "—", Mark.TAIL, Mark.TAIL),
    ("bidirected", "↔", Mark.ARROW, Mark.ARROW),
    ("half-directed", "o→", Mark.CIRCLE, Mark.ARROW),
    ("open", "o–o", Mark.CIRCLE, Mark.CIRCLE),
    ("half-open", "o—", Mark.CIRCLE, Mark.TAIL),
)
SIGNS: Final = {kind: sign for kind, sign, _, _ in _ENDS}
_KINDS: Final = {(at_source, at_target): kind for kind, _, at_source, at_target in _ENDS}
_MARKS: Final = {kind: marks for marks, kind in _KINDS.items()}


class MarkShares(msgspec.Struct, frozen=True):
    """Shares of all redraws in which an end of an edge had an arrowhead, a tail, or a circle; no edge in the others."""

    arrow: float
    tail: float
    circle: float


class ResultEdge(msgspec.Struct, frozen=True):
    """One edge of the graph.

    - `source`, `target`: ends; for an undirected edge in alphabetical order.
    - `kind`: "directed" (→) or "undirected" (—). In a PAG also "bidirected" (↔), "half-directed" (o→), "open" (o–o),
      and where rows were selected "half-open" (o—).
    - `confidence`: share of redraws in which the two columns were adjacent again; None if nothing was redrawn.
    - `arrow_confidence`: share of the redraws with this adjacency in which the edge had this kind and direction.
    - `probability`: of the edge, whatever its direction; None if none is known (`Confidence.probabilities`).
    - `forward_probability`: that source is a parent of target.
    - `marks_at_source`, `marks_at_target`: in a PAG, how often each mark stood at either end.
    - `forward`, `backward`, `line`: shares of all redraws in which the edge was source → target, target → source, and
      undirected; there was none in the others. None in a PAG.
    """

    source: str
    target: str
    kind: Kind
    confidence: float | None = None
    arrow_confidence: float | None = None
    forward: float | None = None
    backward: float | None = None
    line: float | None = None
    marks_at_source: MarkShares | None = None
    marks_at_target: MarkShares | None = None
    probability: float | None = None
    forward_probability: float | None = None

    @property
    def sign(self) -> str:
        """An arrow or a line, with a small o where either may be true."""
        return SIGNS[self.kind]

    @property
    def marks(self) -> tuple[Mark, Mark]:
        """The marks at source and target."""
        return _MARKS[self.kind]


class ResultGraph(msgspec.Struct, frozen=True):
    """Nodes and edges; `family` is "cpdag", "mpdag" where background knowledge directed more, or "pag".

    A PAG allows for causes that were not measured.
    """

    nodes: tuple[str, ...]
    family: Literal["cpdag", "mpdag", "pag"]
    edges: tuple[ResultEdge, ...]

    @property
    def arrows(self) -> tuple[ResultEdge, ...]:
        """The directed edges."""
        return tuple(edge for edge in self.edges if edge.kind == "directed")

    @property
    def lines(self) -> tuple[ResultEdge, ...]:
        """The undirected edges."""
        return tuple(edge for edge in self.edges if edge.kind == "undirected")

    @property
    def structure(self) -> Cpdag | MixedGraph:
        """The graph without its confidences: a mixed graph if it is a PAG."""
        return self.pag if self.family == "pag" else self.cpdag

    @property
    def pag(self) -> MixedGraph:
        """The graph without its confidences, with a mark at each end of each edge."""
        if self.family != "pag":
            raise GraphError(
                "this graph takes all causes for measured; search its evidence again, for free, with hidden causes "
                "(--hidden-causes)"
            )
        return MixedGraph(self.nodes, frozenset(Edge(edge.source, edge.target, *edge.marks) for edge in self.edges))

    @property
    def cpdag(self) -> Cpdag:
        """The graph without its confidences."""
        if self.family == "pag":
            raise GraphError(
                "this graph is a PAG, whose edges may stand for hidden causes; no CPDAG says the same. Read it as "
                "`graph.pag`, or search the evidence again without hidden causes"
            )
        directed = frozenset((edge.source, edge.target) for edge in self.arrows)
        undirected = frozenset(frozenset((edge.source, edge.target)) for edge in self.lines)
        return Cpdag(self.nodes, directed, undirected)

    def to_networkx(self) -> Any:
        """Return a networkx.DiGraph with confidences; an undirected edge is two arcs, `kind` tells which is which.

        A PAG is a networkx.Graph, whose edges hold their marks: `marks[node]` is the one at a node.
        """
        graph = to_networkx(self.structure)
        for edge in self.edges:
            for arc in ((edge.source, edge.target), (edge.target, edge.source)):
                if graph.has_edge(*arc):
                    graph.edges[arc].update(confidence=edge.confidence, arrow_confidence=edge.arrow_confidence)
        return graph

    def to_dot(self) -> str:
        """Return the graph in the DOT language."""
        return to_dot(self.structure)

    def export(self, form: Format | str, extension: Extension | str = Extension.REFUSE) -> str:
        """Return the graph as text for another program; networkx's JSON has confidences, DoWhy's GML one DAG.

        `extension` says which DAG is chosen where edges have no direction.
        """
        form, extension = Format(form), Extension(extension)
        if form is Format.NETWORKX_JSON and extension is Extension.REFUSE:
            return to_node_link(self.to_networkx())
        return write_graph(self.structure, form, extension)


class NearMiss(msgspec.Struct, frozen=True):
    """A pair that is not in the graph but came up in some redraws.

    `found` tells whether the search over the released evidence itself joined it: then the edge is doubtful. It is not
    drawn, however often it returned, if the column `explained_by` could alone account for it.
    """

    source: str
    target: str
    confidence: float
    found: bool = False
    explained_by: str | None = None
    probability: float | None = None


class PossibleParent(msgspec.Struct, frozen=True):
    """The probability that one column is a parent of another."""

    cause: str
    effect: str
    probability: float


class Confidence(msgspec.Struct, frozen=True):
    """How confidence was computed, and what it means.

    `probabilities` says what the probabilities of edges and arrows are and assume; empty if none are known.
    """

    redraws: int
    meaning: str
    probabilities: str = ""


class MethodUsed(msgspec.Struct, frozen=True):
    """Which method ran, with which settings."""

    name: str
    calibration: str
    settings: dict[str, Any]


class SchemaSummary(msgspec.Struct, frozen=True):
    """The public facts of the schema that a reader of the result needs."""

    dataset: str
    digest: str
    reviewed: bool
    unit: str
    nominal_rows: int | None
    columns: dict[str, dict[str, Any]]


class Unanswered(msgspec.Struct, frozen=True):
    """An edge that was kept because the budget ended before the questions about it, with the order of their sets."""

    source: str
    target: str
    order: int


class Reported(msgspec.Struct, frozen=True):
    """What a publication would report for this run, which is no guarantee; `tests` if it does not count questions."""

    epsilon: float
    delta: float
    tests: int | None = None


# how a pair is joined, seen from its source to its target
Join = Literal["none", "reversed", "half-reversed", "half-open-reversed"] | Kind
_REVERSED: Final[dict[Kind, Join]] = {
    "directed": "reversed",
    "half-directed": "half-reversed",
    "half-open": "half-open-reversed",
}


def name_join(at_source: Mark | None, at_target: Mark | None) -> Join:
    """Name how a PAG joins a pair by its marks; None if it does not."""
    if at_source is None or at_target is None:
        return "none"
    ahead = _KINDS.get((at_source, at_target))
    return _REVERSED[_KINDS[at_target, at_source]] if ahead is None else ahead


class ChangedEdge(msgspec.Struct, frozen=True):
    """A pair that another search over the same evidence joined differently; source before target in the alphabet."""

    source: str
    target: str
    before: Join
    after: Join


class Variation(msgspec.Struct, frozen=True):
    """What would change if one level of the search had another value; nothing if `changes` is empty."""

    setting: Literal["marginal_level", "conditional_level"]
    value: float
    changes: tuple[ChangedEdge, ...]


class Result(SavedRecord, frozen=True):
    """A causal graph with its receipt.

    `questions`, `unanswered` and `reported` are for methods that ask adaptively, the last for runs as published.
    `variations` are for searches over evidence by levels; empty if nothing was redrawn.
    `parts` are for evidence of several custodians: each one's own receipt.
    `choice` says why this method ran, where `auto` chose it.
    `false_edges` is how many edges would appear on average if nothing depended on anything. `wrong_edges` is how many
    drawn ones are expected to be false: the sum of one less their probabilities, where these are known. `parents` has
    the probabilities, most likely first, that one column is a parent of another, for pairs that the search or a redraw
    joined. `summary` says in a few sentences how much of the graph is solid.
    """

    format: Literal["dagveil-result"]
    version: int
    software: str
    created: str
    method: MethodUsed
    graph: ResultGraph
    near_misses: tuple[NearMiss, ...]
    confidence: Confidence
    schema: SchemaSummary
    plan: tuple[Stage, ...]
    findings: tuple[str, ...]
    receipt: Receipt
    questions: int | None = None
    unanswered: tuple[Unanswered, ...] = ()
    reported: Reported | None = None
    variations: tuple[Variation, ...] = ()
    parts: tuple[Part, ...] = ()
    choice: Choice | None = None
    false_edges: float | None = None
    wrong_edges: float | None = None
    parents: tuple[PossibleParent, ...] = ()
    summary: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Show the graph in a notebook."""
        # drawings lie above this layer, and are imported only here
        drawn: str = import_module("dagveil.report.html").draw_inline(self)
        return drawn


def _check_result(result: Result) -> None:
    """Refuse a result whose receipt does not follow from its events, or whose parts contradict one another."""
    check_receipts(result.receipt, result.parts, asked=result.questions != 0)
    check_stages(result.plan)
    if result.method.calibration != result.receipt.calibration.value:
        raise DataError(
            f"the method is {result.method.calibration} and the receipt {result.receipt.calibration.value}, so the "
            "result is damaged; write it again"
        )
    graph, edges = result.graph, result.graph.edges
    try:
        _ = graph.structure  # which refuses what is no graph
    except GraphError as error:
        raise DataError(f"the graph of this result is none: {error}; write the result again") from error
    if graph.family != "pag" and any(edge.kind not in ("directed", "undirected") for edge in edges):
        raise DataError(
            f"the graph of this result is a {graph.family}, which has no circles and no two arrowheads, so it is "
            "damaged; write it again"
        )
    changes = [change for variation in result.variations for change in variation.changes]
    marks = [shares for edge in edges for shares in (edge.marks_at_source, edge.marks_at_target) if shares]
    # all numbers with a point in these are shares
    values = [value for one in (*edges, *marks, *result.near_misses, *result.parents) for value in astuple(one)]
    fits = all(0.0 <= value <= 1.0 for value in values if isinstance(value, float))
    # and all begin with the two ends of a pair, but for marks
    told = [astuple(one)[:2] for one in (*result.near_misses, *result.unanswered, *result.parents, *changes)]
    nodes = set(graph.nodes)
    fits = fits and all(nodes.issuperset(ends) for ends in told) and nodes <= set(result.schema.columns)
    fits = fits and len({frozenset((edge.source, edge.target)) for edge in edges}) == len(edges)
    if not fits or result.confidence.redraws < 0:
        raise DataError("the edges of this result do not fit its graph, so it is damaged; write it again")


_DOCUMENT = Document(
    Result,
    "dagveil-result",
    RESULT_VERSION,
    "a dagveil result",
    "a result.json",
    "dagveil",
    "write it again",
    sealed=True,
    check=_check_result,
)


def result_from_json(text: str | bytes) -> Result:
    """Read a result back."""
    return _DOCUMENT.read(text)


def load_result(path: str | Path) -> Result:
    """Read a result from a file."""
    return _DOCUMENT.open(path)


def head(form: str, version: int) -> dict[str, Any]:
    """Return the first fields of a record that is written now."""
    return {"format": form, "version": version, "software": __version__, "created": now()}


def now() -> str:
    """Return the present time as it stands in results."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


SOLID = 0.9  # edges below this share of redraws rest on weak evidence
NEAR_MISS = 0.2  # pairs outside the graph that came up in at least this share of redraws are reported


def assemble_graph(graph: Cpdag, shares: Shares, knowledge: Knowledge, likely: Probabilities = UNKNOWN) -> ResultGraph:
    """Write a graph with the shares of redraws that had its edges, and their probabilities if they are known."""
    edges = []
    for a, b in [*graph.directed, *(sorted(pair) for pair in graph.undirected)]:
        pair, directed = frozenset((a, b)), (a, b) in graph.directed
        own = shares.of_arrow(a, b) if directed else shares.of_line(pair)
        edges.append(
            ResultEdge(
                *(a, b, "directed" if directed else "undirected", shares.of_pair(pair), own, *shares.of_joins(a, b)),
                probability=likely.of_pair(pair),
                forward_probability=likely.of_arrow(a, b),
            )
        )
    edges.sort(key=lambda edge: (edge.source, edge.target))
    return ResultGraph(graph.nodes, "cpdag" if knowledge == Knowledge.none() else "mpdag", tuple(edges))


def assemble_pag(graph: MixedGraph, shares: Shares) -> ResultGraph:
    """Write a PAG with the shares of redraws that had its edges and marks; arrowheads are at targets where possible."""
    edges = []
    for edge in graph.edges:
        ahead = edge if (edge.mark_at_first, edge.mark_at_second) in _KINDS else edge.turned()
        source, target = ahead.first, ahead.second
        edges.append(
            ResultEdge(
                source,
                target,
                _KINDS[ahead.mark_at_first, ahead.mark_at_second],
                shares.of_pair(frozenset((source, target))),
                shares.of_edge(ahead),
                marks_at_source=_share_marks(shares, target, source),
                marks_at_target=_share_marks(shares, source, target),
            )
        )
    edges.sort(key=lambda one: (one.source, one.target))
    return ResultGraph(graph.nodes, "pag", tuple(edges))


def _share_marks(shares: Shares, start: str, end: str) -> MarkShares | None:
    found = [shares.of_mark(start, end, mark) for mark in (Mark.ARROW, Mark.TAIL, Mark.CIRCLE)]
    return MarkShares(*(share or 0.0 for share in found)) if shares.redraws else None


def near_misses(
    graph: Cpdag | MixedGraph,
    shares: Shares,
    found: Cpdag | MixedGraph,
    explained: Mapping[frozenset[str], str] | None = None,
    likely: Probabilities = UNKNOWN,
) -> tuple[NearMiss, ...]:
    """List the pairs outside the graph that came up in some redraws or in the first search, most often first."""
    drawn, doubtful = graph.skeleton(), found.skeleton()
    misses = []
    for pair in {*shares.adjacent, *doubtful} - drawn:
        share = shares.of_pair(pair)
        if share is not None and (share >= NEAR_MISS or pair in doubtful):
            a, b = sorted(pair)
            why = (explained or {}).get(pair)
            misses.append(NearMiss(a, b, share, pair in doubtful, why, likely.of_pair(pair)))
    return tuple(sorted(misses, key=lambda miss: (-miss.confidence, miss.source, miss.target)))


def summarise(schema: Schema) -> SchemaSummary:
    """Return the public facts of a schema that a reader of a result needs."""
    columns: dict[str, dict[str, Any]] = {}
    for name, column in schema.columns.items():
        columns[name] = {"kind": type(column).__name__.lower(), "levels": column.n_levels}
        if isinstance(column, Numeric):
            columns[name]["bounds"] = list(column.bounds)
    return SchemaSummary(schema.dataset, schema.digest(), schema.reviewed, schema.unit, schema.nominal_rows, columns)

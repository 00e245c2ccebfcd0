"""From a sensitive table to evidence, and from evidence to a graph: the steps behind every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dagveil._version import __version__
from dagveil.curator import Curator
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema, load_schema
from dagveil.data.table import Table
from dagveil.errors import SchemaError, UnreviewedSchemaError
from dagveil.evidence.bundle import EVIDENCE_VERSION, Evidence, load_evidence
from dagveil.evidence.questions import Independence
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.measure import check_measurable, measure, search_defaults
from dagveil.methods.measured import Progress
from dagveil.methods.result import (
    RESULT_VERSION,
    Confidence,
    MethodUsed,
    NearMiss,
    Result,
    ResultEdge,
    ResultGraph,
    SchemaSummary,
    now,
)
from dagveil.methods.settings import ArrowRule, SearchSettings
from dagveil.privacy.budget import Amount, Budget, round_up
from dagveil.privacy.events import DiscreteGaussian
from dagveil.privacy.filter import Filter, tightest_filter
from dagveil.privacy.ledger.book import Ledger
from dagveil.privacy.ledger.memory import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import NoiseSource
from dagveil.privacy.receipt import SEEDED, Calibration, Receipt
from dagveil.privacy.relation import Relation
from dagveil.search.confidence import MEANING, Shares, redraw_graphs
from dagveil.search.constraint.arrows import ArrowSettings, orient_by_evidence
from dagveil.search.constraint.colliders import orient_by_separating_sets
from dagveil.search.constraint.skeleton import SkeletonSettings, find_skeleton

DEFAULT_DELTA = "1e-6"
"""Delta of a run that names none."""

NEAR_MISS = 0.2
"""Pairs outside the graph that came up in at least this share of redraws are reported."""


def _silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""


def measure_source(
    source: Any,
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    ledger: Ledger | str | Path | None = None,
    noise: NoiseKind = NoiseKind.OPENDP,
    seed: int | None = None,
    accept_draft: bool = False,
    knowledge: Knowledge | None = None,
    progress: Progress = _silent,
) -> Evidence:
    """Release evidence about a table.

    Parameters
    ----------
    source
        A path, frame or array; see `dagveil.data.reading`. A `MemoryTable` with this very schema is taken as it is.
    schema
        Levels, bounds and public facts; or the path of a schema.toml.
    epsilon, delta
        Budget of this run.
    ledger
        Where the charge is written: a ledger, its path or its URL. None keeps it in memory only, for simulated or
        public data.
    noise
        Where noise comes from.
    seed
        For `NoiseKind.SEEDED` only: tests and benchmarks. The result then says that it is not private.
    accept_draft
        Take an unreviewed schema; the receipt then says so.
    knowledge
        Background knowledge; None takes the schema's.
    progress
        Told what is being done.

    Returns
    -------
    Evidence
        Released tables or moments with their receipt.
    """
    budget = Budget.of(epsilon, delta)
    if not isinstance(schema, Schema):
        schema = load_schema(schema)
    check_reviewed(schema, accept_draft=accept_draft)
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    check_measurable(schema, knowledge)
    relation = Relation(schema.relation)
    accounting = tightest_filter(budget, [DiscreteGaussian])
    draws = noise_source(noise, seed)
    books = MemoryLedger() if ledger is None else ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    table = _open_table(source, schema)
    with books.reserve(schema.dataset, budget, method="measure", software=f"dagveil {__version__}") as run:
        curator = Curator(table, relation, accounting, run, draws)
        measured = measure(curator, knowledge, progress)
    receipt = _write_receipt(schema, relation, accounting, draws, curator, knowledge, recorded=ledger is not None)
    return Evidence(
        format="dagveil-evidence",
        version=EVIDENCE_VERSION,
        software=__version__,
        created=now(),
        method="measure",
        schema=schema,
        plan=measured.plan,
        findings=measured.findings,
        receipt=receipt,
        releases=measured.releases,
    )


def check_reviewed(schema: Schema, *, accept_draft: bool) -> None:
    """Refuse a schema that nobody has reviewed, unless its draft is accepted as it is."""
    if not schema.reviewed and not accept_draft:
        raise UnreviewedSchemaError(
            f"the schema of {schema.dataset!r} is unreviewed: its levels and bounds were read from the data and may "
            "give records away. Check them, set reviewed = true, or accept the draft as it is (--accept-draft)."
        )


def search_evidence(
    evidence: Evidence | str | Path,
    settings: SearchSettings | None = None,
    *,
    knowledge: Knowledge | None = None,
    progress: Progress = _silent,
) -> Result:
    """Search released evidence for a graph: free, as often as one likes, without the rows.

    Parameters
    ----------
    evidence
        What `measure_source` released, or the path of its JSON.
    settings
        Thresholds and rules; None takes the defaults for this kind of evidence.
    knowledge
        Background knowledge; None takes the schema's.
    progress
        Told what is being done.
    """
    settings = settings or SearchSettings()
    if not isinstance(evidence, Evidence):
        evidence = load_evidence(evidence)
    schema = evidence.schema
    findings = evidence.findings
    if knowledge is not None and knowledge != schema_knowledge(schema):
        findings = (*findings, "The search used this background knowledge in place of the schema's; it is public.")
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    if knowledge != Knowledge.none():
        findings = (*findings, f"Background knowledge in force: {_tell(knowledge)}.")
    columns = tuple(schema.columns)
    knowledge.check(columns)
    tests = evidence.independence()
    progress("searching", 0, 1)
    if tests is None:
        skeleton_settings = settings.skeleton(SkeletonSettings())
        graph, shares = knowledge.orient(Cpdag.empty(columns)), Shares.none()
    else:
        skeleton_settings = settings.skeleton(search_defaults(tests))
        find = _search(columns, settings, knowledge, skeleton_settings)
        graph = find(tests)
        shares = redraw_graphs(tests, find, settings.redraws, progress)
    progress("searching", 1, 1)
    return Result(
        format="dagveil-result",
        version=RESULT_VERSION,
        software=__version__,
        created=now(),
        method=MethodUsed(
            name=evidence.method,
            calibration=evidence.receipt.calibration.value,
            settings={
                **msgspec.to_builtins(skeleton_settings),
                "arrows": settings.arrows.value,
                "redraws": settings.redraws,
            },
        ),
        graph=_write_graph(graph, shares, knowledge),
        near_misses=_near_misses(graph, shares),
        confidence=Confidence(shares.redraws, MEANING),
        schema=summarise(schema),
        plan=evidence.plan,
        findings=findings,
        receipt=evidence.receipt,
    )


def discover(
    source: Any,
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    settings: SearchSettings | None = None,
    ledger: Ledger | str | Path | None = None,
    noise: NoiseKind = NoiseKind.OPENDP,
    seed: int | None = None,
    accept_draft: bool = False,
    knowledge: Knowledge | None = None,
    progress: Progress = _silent,
) -> Result:
    """Discover the causal graph of a table under differential privacy.

    Parameters are those of `measure_source` and `search_evidence`.

    Examples
    --------
    >>> import numpy as np
    >>> from dagveil.data.column import Boolean
    >>> schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")}, reviewed=True)
    >>> rows = {"a": np.arange(1000) % 2 == 0, "b": np.arange(1000) % 2 == 0}
    >>> result = discover(rows, schema, epsilon=1, delta=1e-6, noise=NoiseKind.SEEDED, seed=1)
    >>> [(edge.source, edge.target, edge.kind) for edge in result.graph.edges]
    [('a', 'b', 'undirected')]
    """
    evidence = measure_source(
        source,
        schema,
        epsilon,
        delta,
        ledger=ledger,
        noise=noise,
        seed=seed,
        accept_draft=accept_draft,
        knowledge=knowledge,
        progress=progress,
    )
    return search_evidence(evidence, settings, knowledge=knowledge, progress=progress)


def schema_knowledge(schema: Schema) -> Knowledge:
    """Return the background knowledge that a schema declares."""
    return Knowledge(schema.tiers, frozenset(schema.forbidden), frozenset(schema.required))


def _tell(knowledge: Knowledge) -> str:
    """Say background knowledge in words."""
    parts = []
    if knowledge.tiers:
        parts.append("tiers " + " before ".join("{" + ", ".join(tier) + "}" for tier in knowledge.tiers))
    for word, arcs in (("forbidden", knowledge.forbidden), ("required", knowledge.required)):
        if arcs:
            parts.append(f"{word} " + ", ".join(f"{cause} → {effect}" for cause, effect in sorted(arcs)))
    return "; ".join(parts)


def summarise(schema: Schema) -> SchemaSummary:
    """Return the public facts of a schema that a reader of a result needs."""
    columns: dict[str, dict[str, Any]] = {}
    for name, column in schema.columns.items():
        kind = type(column).__name__.lower()
        facts: dict[str, Any] = {"kind": kind, "levels": column.n_levels}
        if isinstance(column, Numeric):
            facts["bounds"] = list(column.bounds)
        columns[name] = facts
    return SchemaSummary(schema.dataset, schema.digest(), schema.reviewed, schema.unit, schema.nominal_rows, columns)


def _open_table(source: Any, schema: Schema) -> Table:
    if not isinstance(source, MemoryTable):
        return MemoryTable.from_source(source, schema)
    if source.schema != schema:
        raise SchemaError(
            f"the table was opened with another schema than the one given for {schema.dataset!r}; give the table's own "
            "schema, or open the table again"
        )
    return source


def _search(
    columns: tuple[str, ...], settings: SearchSettings, knowledge: Knowledge, skeleton_settings: SkeletonSettings
) -> Callable[[Independence], Cpdag]:
    def find(tests: Independence) -> Cpdag:
        # columns that nothing was measured about have edges by knowledge only
        known = knowledge.within(tests.columns)
        skeleton = find_skeleton(tests, skeleton_settings, known)
        if settings.arrows is ArrowRule.EVIDENCE:
            graph = orient_by_evidence(tests, skeleton, ArrowSettings(), known)
        else:
            graph = orient_by_separating_sets(tests.columns, skeleton, known)
        whole = Cpdag(columns, graph.directed, graph.undirected)
        return whole if tests.columns == columns else knowledge.orient(whole)

    return find


def _write_graph(graph: Cpdag, shares: Shares, knowledge: Knowledge) -> ResultGraph:
    edges = [
        ResultEdge(a, b, "directed", shares.of_pair(frozenset((a, b))), shares.of_arrow(a, b))
        for a, b in graph.directed
    ]
    for pair in graph.undirected:
        a, b = sorted(pair)
        edges.append(ResultEdge(a, b, "undirected", shares.of_pair(pair), shares.of_line(pair)))
    edges.sort(key=lambda edge: (edge.source, edge.target))
    return ResultGraph(graph.nodes, "cpdag" if knowledge == Knowledge.none() else "mpdag", tuple(edges))


def _near_misses(graph: Cpdag, shares: Shares) -> tuple[NearMiss, ...]:
    found = graph.skeleton()
    misses = []
    for pair in shares.adjacent:
        share = shares.of_pair(pair)
        if pair not in found and share is not None and share >= NEAR_MISS:
            a, b = sorted(pair)
            misses.append(NearMiss(a, b, share))
    return tuple(sorted(misses, key=lambda miss: (-miss.confidence, miss.source, miss.target)))


def _write_receipt(
    schema: Schema,
    relation: Relation,
    accounting: Filter,
    noise: NoiseSource,
    curator: Curator,
    knowledge: Knowledge,
    recorded: bool,
) -> Receipt:
    facts = [f"the {len(schema.columns)} column names, kinds, levels, bounds, bins, centers and spreads of the schema"]
    if relation is Relation.REPLACE_ONE:
        facts.append("the number of rows")
    if knowledge != Knowledge.none():
        facts.append("the background knowledge (tiers, forbidden and required edges)")
    warnings = []
    if not noise.private:
        warnings.append(SEEDED)
    if not recorded and not schema.public:
        warnings.append("the run was not recorded in any ledger: nothing keeps count of what this data set spends")
    if not schema.reviewed:
        warnings.append("the schema was accepted as an unreviewed draft: its levels and bounds were read from the data")
    budget = accounting.budget
    # a share of the filter's total, not an epsilon: only the total was fixed before the run
    used = round_up(100 * accounting.spent / accounting.total, 4) if accounting.spent else "0"
    return Receipt(
        calibration=Calibration.SOUND,
        epsilon=str(budget.epsilon),
        delta=str(budget.delta),
        spent=f"{used} % of the run's budget",
        relation=relation,
        unit=schema.unit,
        nominal_rows=schema.nominal_rows,
        accounting=accounting.name,
        accounting_total=str(accounting.total),
        accounting_spent=str(accounting.spent),
        dataset=schema.dataset,
        software=f"dagveil {__version__}",
        noise=noise.name,
        events=curator.events,
        public_facts=tuple(facts),
        warnings=tuple(warnings),
    )

"""From randomised reports to a graph: tests that know the channel, and a receipt that needs nobody's trust."""

import enum
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil._version import __version__
from dagveil.data.column import Column, Numeric, marks_missing
from dagveil.errors import BudgetError, DataError, MethodError
from dagveil.evidence.questions import Independence
from dagveil.evidence.scores import EvidenceScore
from dagveil.files import SavedRecord
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.graphs.pag import Edge, MixedGraph
from dagveil.local.law import round_counts, update_reports
from dagveil.local.pairwise import PairRule, compare_pair
from dagveil.local.protocol import Protocol, load_protocol
from dagveil.local.record import Undo
from dagveil.local.reports import LinearReportEvidence, ReportEvidence, Reports, report_score
from dagveil.local.store import Collected, read_reports
from dagveil.privacy.budget import Relation, round_up
from dagveil.privacy.events import PureFilter, RandomisedResponse
from dagveil.privacy.receipt import SEEDED, Calibration, Receipt, Trust
from dagveil.progress import Progress, silent
from dagveil.runs import result as results
from dagveil.runs.run import schema_knowledge
from dagveil.runs.search import search_by, vary_levels
from dagveil.runs.summary import describe_knowledge, describe_solidity
from dagveil.search.confidence import agree, redraw_graphs
from dagveil.search.constraint.fci import find_pag
from dagveil.search.constraint.skeleton import SkeletonSettings, bound_false_edges, find_skeleton
from dagveil.search.score.ges import greedy_equivalence_search
from dagveil.search.score.mmhc import MmhcSettings, search_max_min
from dagveil.search.score.order_mcmc import OrderSettings, sample_orders
from dagveil.search.settings import SearchRule, SearchSettings

# search constants for reports: their tests are calibrated, and noise grows with the size of a conditioning set
REPORT_SEARCH = SkeletonSettings(conditional_level=0.01, largest_order=3)
MEANING = (
    "share of redraws of the reports, with replacement, in which the edge returned; not a probability that the edge is "
    "true"
)


class ReportTests(enum.Enum):
    """How independence is tested on reports."""

    TABLES = "tables"  # χ² on tables of levels, with the channel's covariance
    LINEAR = "linear"  # partial correlations of the levels' scores, with the channel's variance


class Sight(enum.Enum):
    """What an algorithm takes reports for."""

    AWARE = "aware"  # its tests and scores know the channel
    UPDATED = "updated"
    """It searches the law that the iterative Bayesian update finds, as if that were the law of records."""

    BLIND = "blind"  # it takes reports for records: for comparison


class Algorithm(enum.Enum):
    """How a graph is found behind reports."""

    PC = "pc"
    FCI = "fci"  # allows for hidden common causes: its graph is a PAG, see `find_report_pag`
    GES = "ges"
    MMHC = "mmhc"  # max-min hill climbing
    MCMC = "mcmc"
    """Chains over orders, from the skeleton of the tests: the graph with the largest score that was visited."""


CHAINS = OrderSettings(steps=600, most_rounds=3, most_parents=3)
SEED: Final = 0  # of the chains: reports are what they are, so the same graph is found again
MOST_UPDATED: Final = 100_000  # records that a protocol may tell apart if their law is to be updated


def discover_reports(
    reports: str | Path | pa.Table,
    protocol: Protocol | str | Path,
    settings: SearchSettings | None = None,
    *,
    algorithm: Algorithm = Algorithm.PC,
    tests: ReportTests = ReportTests.TABLES,
    sight: Sight = Sight.AWARE,
    knowledge: Knowledge | None = None,
    progress: Progress = silent,
) -> results.Result:
    """Discover the causal graph behind randomised reports. It costs nothing: every report has been paid for.

    - `reports`: a collector's store, a file of labels, or a table of labels; see `read_reports`.
    - `protocol`: with which they were randomised, or its path.
    - `settings`: thresholds and rules; None takes the defaults for reports.
    - `algorithm`: how the graph is found. MMHC and MCMC take no background knowledge.
    - `tests`: how independence is tested, and what scores are computed from.
    - `sight`: what the algorithm takes reports for.
    - `knowledge`: background knowledge; None takes the schema's.
    - `progress`: told what is being done.
    """
    settings, tests, sight = settings or SearchSettings(), ReportTests(tests), Sight(sight)
    algorithm = Algorithm(algorithm)
    if not isinstance(protocol, Protocol):
        protocol = load_protocol(protocol)
    if algorithm is Algorithm.FCI:
        raise MethodError("FCI finds a PAG, which no result of this kind can hold; call find_report_pag")
    if settings.hidden_causes:
        raise MethodError("the graph that allows for hidden causes behind reports is FCI's; call find_report_pag")
    if settings.search is not None:
        raise MethodError("reports are searched by an algorithm; give that, and leave search out")
    knowledge = schema_knowledge(protocol.schema) if knowledge is None else knowledge
    knowledge.check(protocol.names)
    if algorithm not in (Algorithm.PC, Algorithm.GES):
        refuse_knowledge(algorithm, knowledge)
    collected = read_reports(reports, protocol)
    evidence = report_evidence(collected, protocol, sight, tests)
    skeleton_settings, false_edges = bound_false_edges(evidence, settings.skeleton(REPORT_SEARCH), settings.false_edges)
    progress("searching", 0, 1)

    def search_at(levels: SkeletonSettings) -> Callable[[Independence], Cpdag]:
        if algorithm is Algorithm.MMHC:
            climbing = MmhcSettings(levels.conditional_level, min(levels.largest_order, 2))
            return lambda tests: search_max_min(tests, _score(tests), climbing).cpdag()
        if algorithm is Algorithm.MCMC:

            def sample(tests: Independence) -> Cpdag:
                within = find_skeleton(tests, levels, NO_KNOWLEDGE).adjacency
                return sample_orders(_score(tests), within, np.random.default_rng(SEED), CHAINS).best.cpdag()

            return sample
        rule = SearchRule.TESTS if algorithm is Algorithm.PC else SearchRule.SCORE
        return search_by(protocol.names, settings, rule, knowledge, levels, _search_reports)

    find = search_at(skeleton_settings)
    found = find(evidence)
    shares = redraw_graphs(evidence, find, settings.redraws, progress)
    graph = agree(found, shares, knowledge)
    variations: tuple[results.Variation, ...] = ()
    if settings.redraws and algorithm is not Algorithm.MCMC:  # whose levels only choose where it starts
        variations = vary_levels(found, skeleton_settings, lambda levels: search_at(levels)(evidence), progress)
    progress("searching", 1, 1)
    drawn, misses = results.assemble_graph(graph, shares, knowledge), results.near_misses(graph, shares, found)
    searched = _list_settings(settings, skeleton_settings, tests)
    return results.Result(
        **results.head("dagveil-result", results.RESULT_VERSION),
        **_describe_run(protocol, collected, sight, algorithm.value, searched, knowledge),
        graph=drawn,
        near_misses=misses,
        confidence=results.Confidence(shares.redraws, MEANING),
        plan=(),
        variations=variations,
        false_edges=false_edges,
        summary=describe_solidity(drawn, misses, false_edges, None),
    )


class ReportPag(SavedRecord, frozen=True):
    """A partial ancestral graph behind reports, with its receipt.

    `confidence` has the share of redraws, for each edge in the order of the edges, in which its ends were adjacent
    again; it is empty if nothing was redrawn.
    """

    format: Literal["dagveil-pag"]
    version: int
    software: str
    created: str
    method: results.MethodUsed
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    confidence: tuple[float, ...]
    schema: results.SchemaSummary
    findings: tuple[str, ...]
    receipt: Receipt

    @property
    def graph(self) -> MixedGraph:
        """The graph."""
        return MixedGraph(self.nodes, frozenset(self.edges))


def find_report_pag(
    reports: str | Path | pa.Table,
    protocol: Protocol | str | Path,
    settings: SearchSettings | None = None,
    *,
    tests: ReportTests = ReportTests.TABLES,
    sight: Sight = Sight.AWARE,
    progress: Progress = silent,
) -> ReportPag:
    """Find the partial ancestral graph behind reports by FCI: it allows for hidden common causes.

    Parameters are those of `discover_reports`. It takes no background knowledge, and refuses a schema that has some.
    """
    settings, tests, sight = settings or SearchSettings(), ReportTests(tests), Sight(sight)
    if not isinstance(protocol, Protocol):
        protocol = load_protocol(protocol)
    refuse_knowledge(Algorithm.FCI, schema_knowledge(protocol.schema))
    collected = read_reports(reports, protocol)
    evidence = report_evidence(collected, protocol, sight, tests)
    levels, _ = bound_false_edges(evidence, settings.skeleton(REPORT_SEARCH), settings.false_edges)
    progress("searching", 0, 1)
    found = find_pag(evidence, levels)

    def join(again: Independence) -> Cpdag:
        return Cpdag(protocol.names, frozenset(), find_pag(again, levels).skeleton())

    shares = redraw_graphs(evidence, join, settings.redraws, progress)
    progress("searching", 1, 1)
    edges = tuple(sorted(found.edges, key=lambda edge: (edge.first, edge.second)))
    confidence = [shares.of_pair(frozenset((edge.first, edge.second))) for edge in edges]
    return ReportPag(
        **results.head("dagveil-pag", 1),
        **_describe_run(protocol, collected, sight, Algorithm.FCI.value, _list_settings(settings, levels, tests)),
        nodes=protocol.names,
        edges=edges,
        confidence=tuple(share for share in confidence if share is not None),
    )


class PairDirection(msgspec.Struct, frozen=True):
    """Which of two columns a rule takes for the cause, and by how much; None if it does not decide."""

    first: str
    second: str
    cause: str | None
    score: float


class ReportDirections(SavedRecord, frozen=True):
    """Directions of all pairs of columns behind reports, with their receipt."""

    format: Literal["dagveil-directions"]
    version: int
    software: str
    created: str
    method: results.MethodUsed
    pairs: tuple[PairDirection, ...]
    schema: results.SchemaSummary
    findings: tuple[str, ...]
    receipt: Receipt


def direct_report_pairs(
    reports: str | Path | pa.Table,
    protocol: Protocol | str | Path,
    rule: PairRule,
    *,
    sight: Sight = Sight.UPDATED,
    progress: Progress = silent,
) -> ReportDirections:
    """Tell for each pair of columns which one a rule takes for the cause. It costs nothing.

    - `reports`, `protocol`, `progress`: as for `discover_reports`.
    - `rule`: how directions are found.
    - `sight`: UPDATED reads the law of a pair that the iterative Bayesian update finds, BLIND the reports themselves.
      Rules read records, so there is no other way to know the channel.
    """
    rule, sight = PairRule(rule), Sight(sight)
    if sight is Sight.AWARE:
        raise MethodError("rules for pairs read records, so the channel is undone before: choose ibu, or --blind")
    if not isinstance(protocol, Protocol):
        protocol = load_protocol(protocol)
    collected = read_reports(reports, protocol)
    if not len(collected.codes):
        raise DataError("there are no reports; collect some first")
    counted = Reports.of(collected.codes)
    scores = [level_scores(column) for column in protocol.schema.columns.values()]
    places = list(combinations(range(len(scores)), 2))
    found = []
    for done, (x, y) in enumerate(places):
        progress("comparing pairs", done, len(places))
        if sight is Sight.BLIND:
            table = counted.table((x, y), protocol.levels)
        else:
            table = counted.n_records * update_reports(counted, protocol.channel, (x, y))
        cells = np.repeat(np.arange(table.size), round_counts(table.reshape(-1)))
        codes = np.unravel_index(cells, table.shape)
        score = compare_pair(rule, scores[x][codes[0]], scores[y][codes[1]])
        names = protocol.names[x], protocol.names[y]
        found.append(PairDirection(*names, names[score < 0.0] if score else None, score))
    progress("comparing pairs", len(places), len(places))
    return ReportDirections(
        **results.head("dagveil-directions", 1),
        **_describe_run(protocol, collected, sight, rule.value, {}),
        pairs=tuple(found),
    )


def refuse_knowledge(algorithm: Algorithm, knowledge: Knowledge) -> None:
    """Refuse background knowledge where an algorithm cannot read it."""
    if knowledge != NO_KNOWLEDGE:
        raise MethodError(
            f"{algorithm.value} takes no background knowledge; choose pc or ges, or leave the knowledge out of schema "
            "and command"
        )


def report_evidence(
    collected: Collected, protocol: Protocol, sight: Sight, tests: ReportTests
) -> ReportEvidence | LinearReportEvidence:
    """Return tests on reports, or on the updated law behind them."""
    try:
        # nothing is undone of what is taken for records
        aware = sight is Sight.AWARE
        undo = protocol.channel.undo() if aware else Undo(tuple(np.eye(k) for k in protocol.levels))
    except BudgetError as error:
        raise MethodError(
            f"{error}. Collect with another protocol, or search the updated law (--by ibu); --blind ignores the "
            "channel, for comparison"
        ) from None
    if not len(collected.codes):
        raise DataError("there are no reports; collect some first")
    reports = Reports.of(collected.codes)
    if sight is Sight.UPDATED:
        cells = math.prod(protocol.levels)
        if cells > MOST_UPDATED:
            raise MethodError(
                f"{cells} different records are too many for the update of their law; the limit is {MOST_UPDATED}. "
                "Leave --by out, or collect fewer columns or levels"
            )
        law = reports.n_records * update_reports(reports, protocol.channel, range(len(protocol.levels)))
        counts = round_counts(law.reshape(-1))
        reports = Reports(np.argwhere(counts.reshape(law.shape)), counts[counts > 0].astype(np.float64))
    if tests is ReportTests.TABLES:
        return ReportEvidence(protocol.names, protocol.levels, reports, undo)
    scores = tuple(level_scores(column) for column in protocol.schema.columns.values())
    return LinearReportEvidence(protocol.names, reports, undo, scores)


def level_scores(column: Column) -> NDArray[np.float64]:
    """Return a number for each code, centred and at most 1 in size; the middle of a bin stands for it."""
    if isinstance(column, Numeric):
        edges = np.array([column.bounds[0], *column.cuts, column.bounds[1]])
        numbers = edges[:-1] / 2 + edges[1:] / 2
        if marks_missing(column):
            numbers = np.append(numbers, column.missing_value)
    else:
        numbers = np.array(column.numbers)
    # halves first: the sum of the ends can overflow
    centred = numbers - (numbers.min() / 2 + numbers.max() / 2)
    size = np.abs(centred).max()
    return np.asarray(centred / size if size > 0.0 else centred)


def local_receipt(protocol: Protocol, collected: Collected, knowledge: Knowledge) -> Receipt:
    """Write the receipt: what each report promises, whatever is computed from it."""
    schema, epsilon = protocol.schema, Fraction(protocol.epsilon)
    facts = [
        f"the {len(schema.columns)} column names, kinds, levels, bounds and bins of the schema",
        f"the protocol ({protocol.mechanism.value}, {protocol.form.value}) with all its probabilities",
        f"the number of reports, {len(collected.codes)}",
    ]
    if knowledge != NO_KNOWLEDGE:
        facts.append("the background knowledge (tiers, forbidden and required edges)")
    warnings = [] if collected.private else [SEEDED]
    if not schema.reviewed:
        warnings.append("the schema was accepted as an unreviewed draft: its levels and bounds were read from data")
    return Receipt(
        calibration=Calibration.SOUND,
        epsilon=str(epsilon),
        delta="0",
        spent=f"epsilon {round_up(epsilon, 4)} by each report, and nothing by this search",
        relation=Relation.REPLACE_ONE,
        unit=schema.unit,
        nominal_rows=schema.nominal_rows,
        accounting=PureFilter.name,
        accounting_total=str(epsilon),
        accounting_spent=str(epsilon),
        dataset=schema.dataset,
        software=f"dagveil {__version__}",
        noise="drawn on each person's side, with the whole-number probabilities of the protocol",
        events=(RandomisedResponse("one report", epsilon),),
        public_facts=tuple(facts),
        warnings=tuple(warnings),
        trust=Trust.NOBODY,
    )


def _score(tests: Independence) -> EvidenceScore:
    assert isinstance(tests, ReportEvidence | LinearReportEvidence)
    return report_score(tests)


def _search_reports(tests: Independence, knowledge: Knowledge, tested: Cpdag, level: float) -> Cpdag:
    return greedy_equivalence_search(_score(tests), tests.columns, knowledge)


BLIND = (
    "BLIND: the tests took reports for records and ignored the channel. Their levels are wrong: randomised columns no "
    "longer separate others, so edges appear that do not exist. For comparison only; leave --blind out."
)
UPDATED = (
    "What was searched is the likeliest law behind the reports, as if records had that law. It is less certain than as "
    "many records are, and tests do not know that: they join too many columns. For comparison with what is published."
)


def _list_settings(settings: SearchSettings, levels: SkeletonSettings, tests: ReportTests) -> dict[str, Any]:
    used = {**msgspec.to_builtins(levels), "arrows": settings.arrows.value, "redraws": settings.redraws}
    return {**used, "tests": tests.value}


def _describe_run(
    protocol: Protocol,
    collected: Collected,
    sight: Sight,
    algorithm: str,
    searched: dict[str, Any],
    knowledge: Knowledge | None = None,
) -> dict[str, Any]:
    """Return what each kind of result says alike: method, schema, findings and receipt."""
    law = {"mechanism": protocol.mechanism.value, "form": protocol.form.value}
    channel = {Sight.AWARE: "known", Sight.UPDATED: "undone by IBU", Sight.BLIND: "ignored"}[sight]
    used = {"algorithm": algorithm, "channel": channel, **searched, **law, "protocol": protocol.digest()}
    findings = {Sight.AWARE: [], Sight.UPDATED: [UPDATED], Sight.BLIND: [BLIND]}[sight]
    findings.append(
        f"{len(collected.codes)} reports, {law['mechanism']} noise, {law['form']}: a report is the true record with "
        f"probability {protocol.channel.truth():.3g}."
    )
    if knowledge is not None and knowledge != schema_knowledge(protocol.schema):
        findings.append("The search used this background knowledge in place of the schema's; it is public.")
    knowledge = knowledge or NO_KNOWLEDGE
    name = "local, blind" if sight is Sight.BLIND else "local"
    return {
        "method": results.MethodUsed(name, Calibration.SOUND.value, used),
        "schema": results.summarise(protocol.schema),
        "findings": (*findings, *describe_knowledge(knowledge)),
        "receipt": local_receipt(protocol, collected, knowledge),
    }

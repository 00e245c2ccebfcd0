"""From randomised reports to a graph: tests that know the channel, and a receipt that needs nobody's trust."""

from __future__ import annotations

import enum
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil._version import __version__
from dagveil.data.column import OWN_LEVEL, Column, Numeric
from dagveil.errors import BudgetError, DataError, MethodError
from dagveil.evidence.questions import Independence
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.local.linear_reports import LinearReportEvidence, report_score
from dagveil.local.protocol import Protocol, load_protocol
from dagveil.local.record import Undo
from dagveil.local.reports import ReportEvidence, Reports
from dagveil.local.store import Collected, read_reports
from dagveil.privacy.budget import round_up
from dagveil.privacy.events import RandomisedResponse
from dagveil.privacy.filter import PureFilter
from dagveil.privacy.receipt import SEEDED, Calibration, Receipt, Trust
from dagveil.privacy.relation import Relation
from dagveil.progress import Progress, silent
from dagveil.runs import result as results
from dagveil.runs.run import schema_knowledge
from dagveil.runs.search import search_by, vary_levels
from dagveil.search.confidence import agree, redraw_graphs
from dagveil.search.constraint.skeleton import SkeletonSettings, bound_false_edges
from dagveil.search.score.ges import greedy_equivalence_search
from dagveil.search.settings import SearchRule, SearchSettings

# search constants for reports: their tests are calibrated, and noise grows with the size of a conditioning set
REPORT_SEARCH = SkeletonSettings(conditional_level=0.01, largest_order=3)
MEANING = (
    "share of redraws of the reports, with replacement, in which the edge returned; not a probability that the edge is "
    "true"
)

BLIND = (
    "BLIND: the tests took reports for records and ignored the channel. Their levels are wrong: randomised columns no "
    "longer separate others, so edges appear that do not exist. For comparison only; leave --blind out."
)


class ReportTests(enum.Enum):
    """How independence is tested on reports."""

    TABLES = "tables"  # χ² on tables of levels, with the channel's covariance
    LINEAR = "linear"  # partial correlations of the levels' scores, with the channel's variance


class Sight(enum.Enum):
    """Whether the tests know the channel."""

    AWARE = "aware"
    BLIND = "blind"  # they take reports for records: for comparison


def discover_reports(
    reports: str | Path | pa.Table,
    protocol: Protocol | str | Path,
    settings: SearchSettings | None = None,
    *,
    tests: ReportTests = ReportTests.TABLES,
    sight: Sight = Sight.AWARE,
    knowledge: Knowledge | None = None,
    progress: Progress = silent,
) -> results.Result:
    """Discover the causal graph behind randomised reports. It costs nothing: every report has been paid for.

    Parameters
    ----------
    reports
        A collector's store, a file of labels, or a table of labels; see `read_reports`.
    protocol
        With which they were randomised, or its path.
    settings
        Thresholds and rules; None takes the defaults for reports.
    tests
        How independence is tested.
    sight
        Whether the tests know the channel.
    knowledge
        Background knowledge; None takes the schema's.
    progress
        Told what is being done.
    """
    settings, tests, sight = settings or SearchSettings(), ReportTests(tests), Sight(sight)
    if not isinstance(protocol, Protocol):
        protocol = load_protocol(protocol)
    rule = settings.search or SearchRule.TESTS
    if rule is SearchRule.NOTEARS:
        raise MethodError("reports are searched by tests or by score; choose --search tests or --search score")
    undo = choose_undo(protocol, sight)
    own = schema_knowledge(protocol.schema)
    replaced = knowledge is not None and knowledge != own
    knowledge = own if knowledge is None else knowledge
    knowledge.check(protocol.names)
    collected = read_reports(reports, protocol)
    evidence = report_evidence(collected, protocol, undo, tests)
    skeleton_settings, false_edges = bound_false_edges(evidence, settings.skeleton(REPORT_SEARCH), settings.false_edges)
    progress("searching", 0, 1)
    find = search_by(protocol.names, settings, rule, knowledge, skeleton_settings, _search_reports)
    found = find(evidence)
    shares = redraw_graphs(evidence, find, settings.redraws, progress)
    graph = agree(found, shares, knowledge)

    def search_at(levels: SkeletonSettings) -> Cpdag:
        return search_by(protocol.names, settings, rule, knowledge, levels, _search_reports)(evidence)

    variations = vary_levels(found, skeleton_settings, search_at, progress) if settings.redraws else ()
    progress("searching", 1, 1)
    drawn, misses = results.assemble_graph(graph, shares, knowledge), results.near_misses(graph, shares, found)
    findings = [] if sight is Sight.AWARE else [BLIND]
    findings.append(
        f"{len(collected.codes)} reports, {protocol.mechanism.value} noise, {protocol.form.value}: a report is the "
        f"true record with probability {protocol.channel.truth():.3g}."
    )
    if replaced:
        findings.append("The search used this background knowledge in place of the schema's; it is public.")
    return results.Result(
        format="dagveil-result",
        version=results.RESULT_VERSION,
        software=__version__,
        created=results.now(),
        method=results.MethodUsed(
            name="local" if sight is Sight.AWARE else "local, blind",
            calibration=Calibration.SOUND.value,
            settings={
                **msgspec.to_builtins(skeleton_settings),
                "arrows": settings.arrows.value,
                "search": rule.value,
                "redraws": settings.redraws,
                "tests": tests.value,
                "channel": "known" if sight is Sight.AWARE else "ignored",
                "mechanism": protocol.mechanism.value,
                "form": protocol.form.value,
                "protocol": protocol.digest(),
            },
        ),
        graph=drawn,
        near_misses=misses,
        confidence=results.Confidence(shares.redraws, MEANING),
        schema=results.summarise(protocol.schema),
        plan=(),
        findings=(*findings, *results.describe_knowledge(knowledge)),
        receipt=local_receipt(protocol, collected, knowledge),
        variations=variations,
        false_edges=false_edges,
        summary=results.describe_solidity(drawn, misses, false_edges, None),
    )


def choose_undo(protocol: Protocol, sight: Sight) -> Undo:
    """Return how the tests undo the channel; nothing is undone blindly."""
    if sight is Sight.BLIND:
        return Undo(tuple(np.eye(k) for k in protocol.levels))
    try:
        return protocol.channel.undo()
    except BudgetError as error:
        raise MethodError(
            f"{error}. Collect with another protocol; --blind ignores the channel, for comparison"
        ) from None


def report_evidence(
    collected: Collected, protocol: Protocol, undo: Undo, tests: ReportTests
) -> ReportEvidence | LinearReportEvidence:
    """Return tests on reports."""
    if not len(collected.codes):
        raise DataError("there are no reports; collect some first")
    reports = Reports.of(collected.codes)
    if tests is ReportTests.TABLES:
        return ReportEvidence(protocol.names, protocol.levels, reports, undo)
    scores = tuple(level_scores(column) for column in protocol.schema.columns.values())
    return LinearReportEvidence(protocol.names, reports, undo, scores)


def level_scores(column: Column) -> NDArray[np.float64]:
    """Return a number for each code, centred and at most 1 in size; the middle of a bin stands for it."""
    if isinstance(column, Numeric):
        edges = np.array([column.bounds[0], *column.cuts, column.bounds[1]])
        numbers = edges[:-1] / 2 + edges[1:] / 2
        if column.missing == OWN_LEVEL:
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
    if knowledge != Knowledge.none():
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


def _search_reports(tests: Independence, knowledge: Knowledge, tested: Cpdag, level: float) -> Cpdag:
    assert isinstance(tests, ReportEvidence | LinearReportEvidence)
    return greedy_equivalence_search(report_score(tests), tests.columns, knowledge)

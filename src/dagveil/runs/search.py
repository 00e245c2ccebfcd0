"""From released evidence to a graph: post-processing, free and repeatable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from scipy import special

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DagveilError, EvidenceError, MethodError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.evidence.estimates import describe_constants
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.moments import MomentEvidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.wald import EXPECTED_EFFECT
from dagveil.graphs.cpdag import Cpdag, Dag, Pair
from dagveil.graphs.knowledge import Knowledge
from dagveil.graphs.pag import Edge, Mark, MixedGraph
from dagveil.methods.measure import MeasureSettings, is_numeric, releases_mixed, search_defaults
from dagveil.methods.method import METHODS
from dagveil.privacy.budget import Budget
from dagveil.privacy.release import NoisyMoments
from dagveil.progress import Progress, silent
from dagveil.runs import result as results
from dagveil.runs import summary
from dagveil.runs.run import schema_knowledge
from dagveil.search.confidence import MEANING, Shares, agree, agree_on_marks, find_alternatives, redraw_graphs
from dagveil.search.constraint import skeleton as skeletons
from dagveil.search.constraint.ancestral import orient_ancestral
from dagveil.search.constraint.arrows import orient_by_evidence, orient_by_separating_sets
from dagveil.search.probabilities import ASSUMPTIONS, UNKNOWN, Probabilities, estimate_probabilities, list_unclear
from dagveil.search.score.hybrid import restore_edges, search_by_score
from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings

FACTORS: Final = (0.1, 10.0)  # levels are varied by these factors, one level at a time
# a level is not raised above this: beyond it, a test that says nothing would count as a finding
MOST_LEVEL: Final = 0.5
_LEVELS: Final[tuple[Literal["marginal_level", "conditional_level"], ...]] = ("marginal_level", "conditional_level")


def vary_levels(
    graph: Cpdag | MixedGraph,
    settings: skeletons.SkeletonSettings,
    search: Callable[[skeletons.SkeletonSettings], Cpdag | MixedGraph],
    progress: Progress,
) -> tuple[results.Variation, ...]:
    """Search again at neighbouring levels, and tell what differs from the graph."""
    steps = [(name, factor * getattr(settings, name)) for name in _LEVELS for factor in FACTORS]
    steps = [(name, float(f"{value:.6g}")) for name, value in steps if value <= MOST_LEVEL]
    variations = []
    for done, (name, value) in enumerate(steps, start=1):
        other = search(replace(settings, **{name: value}))
        variations.append(results.Variation(name, value, compare_graphs(graph, other)))
        progress("searching at neighbouring levels", done, len(steps))
    return tuple(variations)


def compare_graphs(before: Cpdag | MixedGraph, after: Cpdag | MixedGraph) -> tuple[results.ChangedEdge, ...]:
    """List the pairs that two graphs join differently."""
    pairs = sorted(tuple(sorted(pair)) for pair in before.skeleton() | after.skeleton())
    joins = (results.ChangedEdge(a, b, _join(before, a, b), _join(after, a, b)) for a, b in pairs)
    return tuple(change for change in joins if change.before != change.after)


def _join(graph: Cpdag | MixedGraph, source: str, target: str) -> results.Join:
    if isinstance(graph, MixedGraph):
        return results.name_join(graph.mark(target, source), graph.mark(source, target))
    if (source, target) in graph.directed:
        return "directed"
    if (target, source) in graph.directed:
        return "reversed"
    return "undirected" if frozenset((source, target)) in graph.undirected else "none"


@contextmanager
def _computing() -> Iterator[None]:
    """Say so if numbers that no table has stop the search."""
    try:
        yield
    except DagveilError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise EvidenceError(
            f"the numbers in this evidence stopped the search ({type(error).__name__}), so they are hardly those of a "
            "table; ask for the evidence as it was released. If it was, please report this"
        ) from error


@_computing()
def search_evidence(
    evidence: Evidence | str | Path,
    settings: SearchSettings | None = None,
    *,
    knowledge: Knowledge | None = None,
    progress: Progress = silent,
) -> results.Result:
    """Search released evidence for a graph: free, as often as one likes, without the rows.

    - `evidence`: what `measure_source` released, or the path of its JSON.
    - `settings`: thresholds and rules; None takes the defaults for this kind of evidence.
    - `knowledge`: background knowledge; None takes the schema's.
    - `progress`: told what is being done.
    """
    settings = settings or SearchSettings()
    if not isinstance(evidence, Evidence):
        evidence = load_evidence(evidence)
    schema = evidence.schema
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    knowledge.check(tuple(schema.columns))
    check_edges_at(evidence.method, schema, settings)
    columns = tuple(schema.columns)
    findings = [*evidence.findings]
    if knowledge != schema_knowledge(schema):
        findings.append("The search used this background knowledge in place of the schema's; it is public.")
    findings += summary.describe_knowledge(knowledge)
    rule = _rule(evidence, settings)
    tests = evidence.independence()
    progress("searching", 0, 1)
    variations: tuple[results.Variation, ...] = ()
    tested: list[Cpdag] = []
    likely, unknown = UNKNOWN, why_no_probabilities(evidence.method, schema, settings)
    if tests is None:
        skeleton_settings = settings.skeleton(skeletons.SkeletonSettings())
        found = graph = (
            _add_required(columns, frozenset(), knowledge)
            if settings.hidden_causes
            else knowledge.orient(Cpdag.empty(columns))
        )
        shares, false_edges, visible, explained = Shares.none(), None, None, {}
    else:
        find, skeleton_settings, false_edges = prepare_search(evidence, settings, knowledge, tests, tested.append)
        found, visible = find(tests), visible_strength(tests, skeleton_settings)
        findings += describe_constants(schema, evidence.releases)
        findings += (*summary.describe_copies(tests), *summary.describe_levels(tests))
        if settings.hidden_causes:
            findings += summary.describe_unmeasured(tests, knowledge)
        elif rule is SearchRule.AUTO and isinstance(tests, PairEvidence) and isinstance(found, Cpdag):
            findings.append(summary.describe_score(tested[0], found))
        shares = redraw_graphs(tests, find, settings.redraws, progress) if settings.redraws else Shares.none()
        joined = [pair for pair in found.skeleton() if not knowledge.requires(*sorted(pair))]
        explained = skeletons.find_explanations(tests, skeleton_settings, joined) if settings.redraws else {}
        if isinstance(found, Cpdag):
            if unknown is None:
                likely = state_probabilities(tests, found, shares, visible, explained, knowledge)
            wanted = None if settings.edges_at is None else likely.likely(settings.edges_at)
            graph = agree(found, shares, knowledge, explained, wanted)
        else:
            graph = agree_on_marks(found, shares, knowledge, explained)
        if settings.redraws and rule is not SearchRule.NOTEARS:  # NOTEARS has no levels
            variations = vary_levels(
                found,
                skeleton_settings,
                lambda levels: _search_at(columns, settings, rule, knowledge, levels)(tests),
                progress,
            )
    progress("searching", 1, 1)
    if isinstance(graph, Cpdag):
        drawn = results.assemble_graph(graph, shares, knowledge, likely)
    else:
        drawn = results.assemble_pag(graph, shares)
    misses = results.near_misses(graph, shares, found, explained, likely)
    known = [edge.probability for edge in drawn.edges if edge.probability is not None]
    wrong_edges = None if unknown or (drawn.edges and not known) else sum(1.0 - probability for probability in known)
    parents = sorted(likely.parents.items(), key=lambda one: (-one[1], one[0]))
    return results.Result(
        **results.head("dagveil-result", results.RESULT_VERSION),
        method=results.MethodUsed(
            name=evidence.method,
            calibration=evidence.receipt.calibration.value,
            settings={
                **msgspec.to_builtins(skeleton_settings),
                "arrows": settings.arrows.value,
                "search": rule.value,
                "redraws": settings.redraws,
                "hidden_causes": settings.hidden_causes,
                "selection_bias": settings.selection_bias,
                "edges_at": settings.edges_at,
            },
        ),
        graph=drawn,
        near_misses=misses,
        confidence=results.Confidence(shares.redraws, *describe_shares(unknown)),
        schema=results.summarise(schema),
        plan=evidence.plan,
        findings=tuple(findings),
        receipt=evidence.receipt,
        variations=variations,
        parts=evidence.parts if len(evidence.parts) > 1 else (),
        choice=evidence.choice,
        false_edges=false_edges,
        wrong_edges=wrong_edges,
        parents=tuple(results.PossibleParent(*arc, chance) for arc, chance in parents if chance > 0.0),
        summary=summary.describe_solidity(
            *(drawn, misses, false_edges, visible),
            *(find_alternatives(graph, shares), wrong_edges, settings.edges_at),
        ),
    )


def redraw_found_graphs(
    evidence: Evidence, settings: SearchSettings, knowledge: Knowledge, rng: np.random.Generator, progress: Progress
) -> Iterator[Cpdag]:
    """Yield the graphs that redrawn evidence gives, as many as the settings ask for; none if nothing can be tested."""
    tests = evidence.independence()
    if tests is None:
        return
    with _computing():
        find, _, _ = prepare_search(evidence, settings, knowledge, tests)
        for done in range(settings.redraws):
            graph = find(tests.redraw(rng))
            if isinstance(graph, Cpdag):
                yield graph
            progress("redrawing graph and effect", done + 1, settings.redraws)


def prepare_search(
    evidence: Evidence,
    settings: SearchSettings,
    knowledge: Knowledge,
    tests: Independence,
    note: Callable[[Cpdag], None] = lambda tested: None,
) -> tuple[Callable[[Independence], Cpdag | MixedGraph], skeletons.SkeletonSettings, float]:
    """Return the search for these tests, its constants, and the false edges that they allow.

    `note` is told the graph of tests alone, where a score may add to it.
    """
    columns = tuple(evidence.schema.columns)
    constants, false_edges = skeletons.bound_false_edges(
        tests, settings.skeleton(search_defaults(tests, evidence.schema)), settings.false_edges
    )
    rule = _rule(evidence, settings)
    if rule is SearchRule.NOTEARS:
        return _search_linear(columns, evidence, knowledge), constants, false_edges
    return _search_at(columns, settings, rule, knowledge, constants, note), constants, false_edges


def _search_at(
    columns: tuple[str, ...],
    settings: SearchSettings,
    rule: SearchRule,
    knowledge: Knowledge,
    levels: skeletons.SkeletonSettings,
    note: Callable[[Cpdag], None] = lambda tested: None,
) -> Callable[[Independence], Cpdag | MixedGraph]:
    """Return the search of evidence at some levels, which NOTEARS does not have.

    With hidden causes it finds a PAG; the skeleton is that of the search without them.
    """
    if not settings.hidden_causes:

        def score(tests: Independence, known: Knowledge, tested: Cpdag, level: float) -> Cpdag:
            return search_by_score(tests, known, tested, level=level)

        return search_by(columns, settings, rule, knowledge, levels, score, note)

    def find(tests: Independence) -> MixedGraph:
        known = knowledge.within(tests.columns)
        # who cannot cause whom may still share a hidden cause, so only required edges are known to be
        required = Knowledge(required=known.required)
        skeleton = skeletons.find_skeleton(tests, levels, required)
        if rule is SearchRule.AUTO and isinstance(tests, PairEvidence):
            tested = orient_by_evidence(tests, skeleton, required)
            skeleton = restore_edges(tests, required, skeleton, tested)
        found = orient_ancestral(tests, skeleton, levels, known, selection=settings.selection_bias)
        return found if tests.columns == columns else _add_required(columns, found.edges, knowledge)

    return find


def _rule(evidence: Evidence, settings: SearchSettings) -> SearchRule:
    rule = settings.search or (METHODS[evidence.method].search if evidence.method in METHODS else SearchRule.TESTS)
    # no score allows for hidden causes
    return SearchRule.TESTS if settings.hidden_causes and rule is not SearchRule.AUTO else rule


def visible_strength(tests: Independence, settings: skeletons.SkeletonSettings) -> float | None:
    """Return Cramér's V that a pair must exceed to pass the marginal test, for half of the pairs; at most 1."""
    x, y = np.triu_indices(len(tests.columns), 1)
    questions = Questions(x, y, np.empty((len(x), 0), dtype=np.intp))
    questions = questions.select(tests.answers(questions))
    if not len(questions):
        return None
    found = tests.test(questions)
    freedom = np.maximum(found.freedom, 1.0)
    needed = special.chdtri(freedom, skeletons.screening_level(settings, found.p_value, len(x))) - freedom
    if isinstance(tests, PairEvidence | JointEvidence):
        # the variance in one direction that loses as much information as the directions do on average
        share = np.maximum(tests.power(questions)[0], 1e-12)
        variance = EXPECTED_EFFECT**2 * (1.0 / share - 1.0)
    else:
        variance = tests.strength(questions) / np.maximum(found.statistic, 1e-12)
    # squared correlations add up over as many directions as the smaller column has levels, less one
    return min(1.0, float(np.sqrt(np.median(variance * needed / np.sqrt(freedom)))))


def check_search(
    method: str,
    schema: Schema,
    settings: SearchSettings,
    budget: Budget | None = None,
    knowledge: Knowledge | None = None,
) -> None:
    """Refuse, before anything is charged, a search that cannot read what the method releases.

    - `budget`: what the run may spend; None if it has released already.
    - `knowledge`: None takes that of the schema.
    """
    rule = settings.search
    check_edges_at(method, schema, settings)
    if method not in METHODS or rule in (None, SearchRule.AUTO, SearchRule.TESTS):
        return
    known = schema_knowledge(schema) if knowledge is None else knowledge
    mixed = releases_mixed(method, MeasureSettings(), schema, budget, known)
    if mixed and rule is SearchRule.SCORE:
        raise MethodError(
            "measure puts these columns into one matrix, for which there is no score; nothing was charged. Search by "
            "tests, or take --method measure-ges, which counts levels, and numbers in bins"
        )
    features = method == "measure-features" or mixed
    numbers = ("measure-notears", "priv-pc-star", *(("measure", "measure-ges") if is_numeric(schema) else ()))
    if (rule is SearchRule.NOTEARS and method not in numbers) or features:
        other = "by tests" if features else "by tests or by score"
        raise MethodError(
            f"{method} releases no second moments of these columns, which --search {rule.value} needs; nothing was "
            f"charged. Search {other}, or take --method measure-notears"
        )


def search_by(
    columns: tuple[str, ...],
    settings: SearchSettings,
    rule: SearchRule,
    knowledge: Knowledge,
    skeleton_settings: skeletons.SkeletonSettings,
    score: Callable[[Independence, Knowledge, Cpdag, float], Cpdag],
    note: Callable[[Cpdag], None] = lambda tested: None,
) -> Callable[[Independence], Cpdag]:
    """Return the search by tests or by score, for any tests.

    The columns are those of the graph; tests may cover fewer. `score` searches given the tests, what is known about
    their columns, the tests' graph, and their level. `note` is told the graph that tests alone found.
    """

    def orient(tests: Independence, skeleton: skeletons.Skeleton, known: Knowledge) -> Cpdag:
        if settings.arrows is ArrowRule.EVIDENCE:
            return orient_by_evidence(tests, skeleton, known)
        return orient_by_separating_sets(tests.columns, skeleton, known)

    def find(tests: Independence) -> Cpdag:
        # columns that nothing was measured about have edges by knowledge only
        known = knowledge.within(tests.columns)
        skeleton = skeletons.find_skeleton(tests, skeleton_settings, known)
        graph = orient(tests, skeleton, known)
        note(graph)
        if rule is SearchRule.AUTO and isinstance(tests, PairEvidence):
            restored = restore_edges(tests, known, skeleton, graph)
            graph = graph if restored is skeleton else orient(tests, restored, known)
        if rule is SearchRule.SCORE:
            graph = score(tests, known, graph, skeletons.marginal_level(tests, skeleton_settings))
        if tests.columns == columns:
            return graph
        return knowledge.orient(Cpdag(columns, graph.directed, graph.undirected))

    return find


def _add_required(columns: tuple[str, ...], edges: frozenset[Edge], knowledge: Knowledge) -> MixedGraph:
    joined = {frozenset((edge.first, edge.second)) for edge in edges}
    more = {Edge(*arc, Mark.TAIL, Mark.ARROW) for arc in knowledge.required if frozenset(arc) not in joined}
    return MixedGraph(columns, edges | more)


def _search_linear(
    columns: tuple[str, ...], evidence: Evidence, knowledge: Knowledge
) -> Callable[[Independence], Cpdag]:
    # few searches need them, and SciPy's optimisers take time to import
    from dagveil.search.score.linear import find_linear_dag
    from dagveil.search.score.notears import forbidden_entries

    moments = [release for release in evidence.releases if isinstance(release, NoisyMoments)]
    if not moments:
        raise EvidenceError(
            "this evidence holds no second moments, which NOTEARS needs; release them with --method measure-notears, "
            "or search it by tests or by score"
        )
    # numbers keep their units, as published; scores of levels have none, so they count in spreads
    names, spreads = moments[-1].columns, np.array(moments[-1].spreads)
    unitless = np.array([not isinstance(evidence.schema.columns[name], Numeric) for name in names], dtype=np.bool_)
    scales = np.where(unitless, 1.0, spreads)

    def find(tests: Independence) -> Cpdag:
        if not isinstance(tests, MomentEvidence):
            raise EvidenceError("NOTEARS searches second moments only")
        known = knowledge.within(tests.columns)
        place = {name: i for i, name in enumerate(tests.columns)}
        required = [(place[cause], place[effect]) for cause, effect in sorted(known.required)]
        forbidden = forbidden_entries(tests.columns, known)
        edges = find_linear_dag(tests.covariance, scales, unitless, forbidden, required)
        arcs = frozenset((tests.columns[i], tests.columns[j]) for i, j in edges)
        found = Dag(tests.columns, arcs).cpdag()
        return knowledge.orient(Cpdag(columns, found.directed, found.undirected))

    return find


def why_no_probabilities(method: str, schema: Schema, settings: SearchSettings) -> str | None:
    """Say why a search has no probabilities of edges; None if it has."""
    if method != "measure":
        return f"probabilities were checked for measure, not for {method}"
    if not is_numeric(schema) and any(isinstance(column, Numeric) for column in schema.columns.values()):
        return (
            "probabilities were checked on tables of levels and on tables of numbers without bins, not on others: a "
            "bin does not hold all that a number tells"
        )
    return settings.why_no_probabilities()


def describe_shares(unknown: str | None) -> tuple[str, str]:
    """Say what shares of redraws mean, and what probabilities; `unknown` says why there are none."""
    if unknown is None:
        return MEANING, ASSUMPTIONS
    return f"{MEANING}; not a probability that the edge is true: {unknown}", ""


def check_edges_at(method: str, schema: Schema, settings: SearchSettings) -> None:
    """Refuse a graph by probabilities where there are none."""
    reason = why_no_probabilities(method, schema, settings)
    if settings.edges_at is not None and reason is not None:
        raise MethodError(
            f"edges at a probability of {settings.edges_at:g} cannot be drawn: "
            f"{reason}; nothing was charged. Leave edges_at out: the graph then has the edges that returned in redraws"
        )


def state_probabilities(
    tests: Independence,
    found: Cpdag,
    shares: Shares,
    visible: float | None,
    explained: dict[Pair, str],
    knowledge: Knowledge,
) -> Probabilities:
    """Return the probabilities of the pairs that a search or its redraws joined."""
    names = tests.columns
    copies = {frozenset((names[x], names[z])) for x, z in zip(*np.nonzero(skeletons.find_copies(tests)), strict=True)}
    pairs = found.skeleton()
    unclear = list_unclear(pairs | set(shares.adjacent), copies, explained)
    return estimate_probabilities(shares, pairs, names, 1.0 if visible is None else visible, unclear, knowledge)

"""From a result to the effect of an intervention: free from its evidence, or by releasing exactly what it needs."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec
import numpy as np

from dagveil.data.schema import Schema, load_schema
from dagveil.effects import answer as answers
from dagveil.effects.answer import Effect
from dagveil.effects.estimate import EffectEstimator, estimate_slope
from dagveil.effects.parents import Reading, check_graph, check_pair, explain_refusal, list_readings, read_pag
from dagveil.effects.width import Wanted, choose_tables, epsilon_for_width, find_epsilon, table_accounting
from dagveil.errors import DataError, EvidenceError, MethodError
from dagveil.evidence.bundle import EVIDENCE_VERSION, Evidence, Stage, load_evidence
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.graphs.pag import MixedGraph
from dagveil.methods.measure import MeasureSettings, is_numeric, measure
from dagveil.methods.measure_moments import declared_scales, plan_moments
from dagveil.methods.method import Measured, Method
from dagveil.privacy.budget import Amount, Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, Filter, tightest_filter
from dagveil.privacy.release import NoisyMoments
from dagveil.progress import Progress, silent
from dagveil.runs.discovery import DEFAULT_DELTA
from dagveil.runs.result import Result, head, load_result
from dagveil.runs.run import RunOptions, open_run, schema_knowledge
from dagveil.runs.search import redraw_found_graphs
from dagveil.search.settings import SearchSettings
from dagveil.statistics.moments import moments_squared_sensitivity

NORMAL_DRAWS: Final = 4000  # rows that are drawn to forecast what shrinking does to moments
MOST_SILENT: Final = 0.2  # share of redraws without an answer from which no interval of redraws is given


def load_discovery(place: str | Path, elsewhere: str | Path | None = None) -> tuple[Result, Evidence | None]:
    """Read what `dagveil discover` left: a folder, or its result.json, and the evidence that it was found in.

    `elsewhere` names the evidence; None takes evidence.json beside the result, if there is one.
    """
    path = Path(place) / "result.json" if Path(place).is_dir() else Path(place)
    result = load_result(path)
    source = path.with_name("evidence.json") if elsewhere is None else Path(elsewhere)
    if elsewhere is None and not source.exists():
        return result, None
    evidence = load_evidence(source)
    if evidence.receipt != result.receipt:
        raise DataError(
            f"{source} is not the evidence that {path} was found in: their receipts differ. Name the right one, or "
            "search this evidence again"
        )
    return result, evidence


def _load_both(result: Result | str | Path, evidence: Evidence | str | Path | None) -> tuple[Result, Evidence | None]:
    """Read a result, and its evidence: the one that is given, or what lies beside the result."""
    if isinstance(result, str | Path):
        result, beside = load_discovery(result)
        evidence = beside if evidence is None else evidence
    return result, load_evidence(evidence) if isinstance(evidence, str | Path) else evidence


def effect(
    result: Result | str | Path,
    cause: str,
    effect: str,
    *,
    evidence: Evidence | str | Path | None = None,
    adjust: Iterable[str] | None = None,
    graph: Cpdag | Dag | MixedGraph | None = None,
    knowledge: Knowledge | None = None,
    redraws: int = 0,
    width: float | None = None,
    progress: Progress = silent,
) -> Effect:
    """Say what changing one column does to another, from a result and its evidence: free, without the rows.

    - `result`: a result, the folder of `dagveil discover`, or its result.json.
    - `cause`, `effect`: two columns.
    - `evidence`: what the result was found in; None takes evidence.json beside a result that is read from a file.
    - `adjust`: columns to adjust for; refused where the graph says that they do not identify the effect. None takes
      those that tell it best, for every possible parent set of the cause.
    - `graph`: a graph in place of the result's, such as one that is known. A `Dag` leaves one reading.
    - `knowledge`: background knowledge that directs edges of the graph.
    - `redraws`: how often graph and effect are drawn again, for an interval that counts how the graph was chosen.
    - `width`: a wanted width of the interval: the answer says which ε would give it, if the tables were released for
      it.
    - `progress`: told what is being done.
    """
    result, evidence = _load_both(result, evidence)
    if evidence is None:
        check_pair(result.graph.nodes, cause, effect)
        raise EvidenceError(
            f"this result has no evidence beside it ({result.method.name} may have left none), so no effect can be "
            "told from it for free; name the evidence that was searched, with --evidence, or measure what the effect "
            "needs: `dagveil effect FILE --schema "
            f"SCHEMA.toml --from RESULT --cause {cause} --effect {effect} --epsilon 0.5`"
        )
    question = _Question(result, evidence.schema, cause, effect, adjust, graph, knowledge)
    found = question.answer(evidence.releases)
    if redraws:
        found = msgspec.structs.replace(found, redrawn=question.redraw(evidence, redraws, progress))
    return question.offer(found, evidence.releases, width)


class _Question:
    """A cause, an effect, and the graph that they are asked in, checked."""

    def __init__(
        self,
        result: Result,
        schema: Schema,
        cause: str,
        effect: str,
        adjust: Iterable[str] | None,
        graph: Cpdag | Dag | MixedGraph | None,
        knowledge: Knowledge | None,
    ) -> None:
        self.result, self.schema, self.cause, self.effect = result, schema, cause, effect
        known = result.graph.structure if graph is None else graph
        if strange := sorted(set(known.nodes) - set(schema.columns)):
            raise MethodError(f"the graph has columns that the evidence lacks: {', '.join(strange)}. Nothing was spent")
        self.knowledge, self.mended, self.hidden = knowledge, False, isinstance(known, MixedGraph)
        self.adjust = None if adjust is None else frozenset(adjust)
        if isinstance(known, MixedGraph):
            if knowledge is not None or adjust is not None:
                raise MethodError(
                    "a graph with hidden causes says itself what to adjust for, and knowledge changes its marks: leave "
                    "out --adjust; search the evidence again with --hidden-causes and --knowledge. Nothing was spent"
                )
            self.readings: tuple[Reading, ...] = (read_pag(known, cause, effect),)
            return
        found = Cpdag(known.nodes, known.edges, frozenset()) if isinstance(known, Dag) else known
        check_pair(found.nodes, cause, effect)
        if knowledge is not None:
            knowledge.check(found.nodes)
            found = knowledge.orient(found)
        self.mended = graph is None and not found.is_extendable()
        if self.mended:
            # majorities of redraws may fit no DAG; a graph that a person drew is not changed
            found = NO_KNOWLEDGE.orient(found)
        check_graph(found)
        self.readings = list_readings(found, cause, effect)
        if self.adjust is not None:
            why = explain_refusal(found, cause, effect, self.adjust)
            if why is not None:
                raise MethodError(
                    f"adjusting for {', '.join(sorted(self.adjust)) or 'nothing'} does not identify the effect of "
                    f"{cause} on {effect} in this graph: {why}. Leave out --adjust, or give knowledge that changes it. "
                    "Nothing was spent"
                )
            own = (self.adjust,)
            self.readings = tuple(
                one if one.why_nothing is not None else replace(one, adjustment=own) for one in self.readings
            )

    def answer(self, releases: Sequence[Any]) -> Effect:
        """Estimate the effect in every reading of the graph."""
        estimator = EffectEstimator(self.schema, releases)
        main = estimator.main_contrast(self.cause, self.effect)
        possible = tuple(estimator.answer(one, self.cause, self.effect) for one in self.readings)
        return Effect(
            **head("dagveil-effect", answers.EFFECT_VERSION),
            dataset=self.schema.dataset,
            cause=self.cause,
            effect=self.effect,
            sentence=answers.write_sentence(possible, main, self.cause, self.effect),
            possible=possible,
            main=main,
            union=answers.unite(possible, main),
            settles=self._settles(),
            notes=self._notes(possible),
        )

    def redraw(self, evidence: Evidence, redraws: int, progress: Progress) -> answers.Redrawn:
        """Draw both again: the graph from redrawn evidence, the effect around its estimate in that graph."""
        if self.hidden:
            raise MethodError("graphs with hidden causes are not drawn again; leave out --redraws. Nothing was spent")
        rng = np.random.default_rng(1)  # post-processing: the same evidence gives the same answer
        estimator = EffectEstimator(self.schema, evidence.releases)
        main = estimator.main_contrast(self.cause, self.effect)
        knowledge = schema_knowledge(self.schema) if self.knowledge is None else self.knowledge
        settings = replace(_search_settings(self.result), redraws=redraws)
        ends: list[tuple[float, float]] = []
        nothing = silent_ones = done = 0
        for graph in redraw_found_graphs(evidence, settings, knowledge, rng, progress):
            done += 1
            # a graph that noise made impossible is read as the nearest possible one
            readings = list_readings(knowledge.orient(graph), self.cause, self.effect)
            drawn, still, moved = [], False, rng.standard_normal()
            for reading in readings:
                possible = estimator.answer(reading, self.cause, self.effect)
                estimate = answers.pick_main(possible, main)
                if possible.form == "nothing":
                    still = True
                    drawn.append(0.0)
                elif estimate is not None:
                    half = (estimate.high - estimate.low) / (2.0 * answers.COVERED)
                    drawn.append((estimate.low + estimate.high) / 2.0 + half * moved)
            nothing += still
            silent_ones += len(drawn) < len(readings)
            if drawn:
                ends.append((min(drawn), max(drawn)))
        interval = None
        if done and silent_ones <= MOST_SILENT * done:
            low = float(np.quantile([one[0] for one in ends], 0.025))
            interval = answers.Interval(low, float(np.quantile([one[1] for one in ends], 0.975)))
        return answers.Redrawn(done, interval, nothing / max(done, 1), silent_ones / max(done, 1))

    def offer(self, found: Effect, releases: Sequence[Any], width: float | None) -> Effect:
        """Add what would have to be released for an answer, or for one of the wanted width."""
        chosen = [(one.form, answers.pick_main(one, found.main)) for one in found.possible]
        hidden = any(form in ("table", "additive") and estimate is None for form, estimate in chosen)
        if width is None and not hidden and {form for form, _ in chosen} <= {"table", "linear", "nothing"}:
            return found
        sets = self.sets()
        if not sets:
            return found
        names = tuple(sorted({self.cause, self.effect}.union(*sets)))
        estimator = EffectEstimator(self.schema, releases)
        wanted = Wanted(None, 0.0, None)
        if estimator.main_contrast(self.cause, self.effect).level == "" or is_numeric(_narrow(self.schema, names)):
            tables: tuple[tuple[str, ...], ...] = (names,)
            if width is not None:
                deviations = [estimate.sampling_sd for _, estimate in chosen if estimate is not None]
                sampling = max(deviations) ** 2 if deviations else None
                wanted = epsilon_for_slope(self.schema, names, self.cause, self.effect, width, DEFAULT_DELTA, sampling)
        else:
            tables = choose_tables(self.schema, Budget.of(1, 0), self.cause, self.effect, sets)
            if width is not None:
                expected = None if estimator.parts.of(()) is None else estimator.parts.table
                wanted = epsilon_for_width(self.schema, self.cause, self.effect, sets, width, 0, expected)
        return msgspec.structs.replace(found, release=answers.Release(tables, width, wanted.epsilon, wanted.reason))

    def sets(self) -> list[frozenset[str]]:
        """Return, for each reading in which something happens, the adjustment set with the smallest table."""

        def cells(one: frozenset[str]) -> int:
            return math.prod(self.schema.columns[name].n_levels for name in one)

        happening = (one.adjustment for one in self.readings if one.why_nothing is None)
        return list(dict.fromkeys(min(sets, key=cells) for sets in happening if sets is not None))

    def _settles(self) -> tuple[str, ...]:
        if len(self.readings) < 2:
            return ()
        loose = sorted({other for one in self.readings for arc in one.turned for other in arc if other != self.cause})
        first, second = (self.cause, self.effect) if loose == [self.effect] else (loose[0], self.cause)
        told = f'required = [["{first}", "{second}"]]'
        which = "which of " if len(loose) > 1 else "whether "
        return (
            f"The graph does not say {which}{', '.join(loose)} {'come' if len(loose) > 1 else 'comes'} before "
            f"{self.cause}. If you know, say so as background knowledge: by tiers or, for example, with {told}.",
        )

    def _notes(self, possible: Sequence[answers.PossibleEffect]) -> tuple[str, ...]:
        assumed = answers.ASSUMPTIONS_OF_PAGS if self.hidden else answers.ASSUMPTIONS
        redraws = [] if self.hidden else [answers.REDRAWS]
        notes = [assumed.format(cause=self.cause, effect=self.effect), " ".join([answers.POST_SELECTION, *redraws])]
        if self.mended:
            notes.append("No DAG has all arrows and lines of this result, so the nearest graph that has one was read.")
        if any(one.form == "additive" for one in possible):
            notes.append(
                "Where pairs alone were released, the additive form stands in for the table of all columns: it takes "
                "columns to act on the effect one by one. Where they do not, its intervals are too narrow: measure the "
                "table."
            )
        if any(one.form == "linear" for one in possible):
            notes.append("The effect is that of a linear model: the same at every value of the cause.")
        return tuple(notes)


def _search_settings(result: Result) -> SearchSettings:
    """Return the settings that a result was searched with."""
    used = result.method.settings
    names = ("marginal_level", "conditional_level", "largest_order", "arrows", "search")
    try:
        return msgspec.convert({name: used[name] for name in names if name in used}, SearchSettings)
    except msgspec.ValidationError:
        return SearchSettings()


def _narrow(schema: Schema, names: Collection[str]) -> Schema:
    """Return the schema of these columns alone, in its own order."""
    return schema.narrow({name: column for name, column in schema.columns.items() if name in names})


def epsilon_for_slope(
    schema: Schema,
    names: Collection[str],
    cause: str,
    effect: str,
    width: float,
    delta: Amount = DEFAULT_DELTA,
    sampling: float | None = None,
) -> Wanted:
    """Return the least ε whose interval of a slope is no wider, if second moments of these columns are released.

    - `width`: in units of the effect per unit of the cause.
    - `sampling`: variance without noise; None takes columns that do not depend on one another.
    """
    if not 0.0 < width < math.inf:
        raise MethodError(f"the width is {width:g}; give a number above 0, in units of {effect} per unit of {cause}")
    rows = schema.nominal_rows
    if rows is None:
        raise MethodError("the width hangs on the number of rows; declare nominal_rows in the schema")
    centers, spreads = declared_scales(schema)
    if unknown := sorted(set(names) - set(spreads)):
        raise MethodError(f"the width hangs on the spreads of {', '.join(unknown)}; declare them in the schema")
    ordered = tuple(name for name in schema.columns if name in names)
    normal = np.random.default_rng(1).standard_normal((NORMAL_DRAWS, len(ordered)))
    others = [name for name in ordered if name not in (cause, effect)]

    def forecast(epsilon: float) -> float:
        total = tightest_filter(Budget.of(repr(epsilon), delta), [DiscreteGaussian]).total
        plan = plan_moments(ordered, centers, spreads, rows, float(total))
        length = np.sqrt((normal**2).sum(axis=1))
        shrunk = normal * np.minimum(1.0, math.sqrt(plan.radius_squared) / length)[:, None]
        matrix = np.zeros((len(ordered) + 1, len(ordered) + 1))
        matrix[0, 0], matrix[1:, 1:] = plan.constant**2, np.diag((shrunk**2).mean(axis=0))
        values = np.rint(matrix[np.triu_indices(len(matrix))] * rows * 4.0**plan.bits)
        variance = moments_squared_sensitivity(Relation(schema.relation), plan) / total
        ball = (plan.radius_squared, plan.constant, plan.bits)
        noisy = NoisyMoments(
            ordered, plan.centers, plan.spreads, *ball, variance, 2 * variance, tuple(map(int, values.tolist()))
        )
        slope = estimate_slope(noisy, cause, effect, others)
        chance = slope.sampling if sampling is None else sampling
        return 2.0 * answers.COVERED * math.sqrt(slope.variance - slope.sampling + chance)

    return find_epsilon(forecast, width, rows)


class EffectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is released for one effect.

    - `tables`: sets of columns whose tables are counted; empty if second moments of all columns are summed.
    """

    tables: tuple[tuple[str, ...], ...] = ()


def measure_effect(
    source: Any,
    schema: Schema | str | Path,
    result: Result | str | Path,
    cause: str,
    effect: str,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    evidence: Evidence | str | Path | None = None,
    adjust: Iterable[str] | None = None,
    graph: Cpdag | Dag | MixedGraph | None = None,
    knowledge: Knowledge | None = None,
    **run: Unpack[RunOptions],
) -> tuple[Effect, Evidence]:
    """Release exactly the tables that an effect needs, and estimate it with them and with what is known already.

    Which tables these are follows from the graph of a result, which is public. A few tables get Laplace noise and no
    delta, many get Gaussian noise, whichever is less. The answer has the receipt of this run; what was released comes
    with it, to search or ask again for free.

    - `source`, `schema`, `epsilon`, `delta`, `run`: as in `dagveil.measure_source`; the schema is the one that the
      result was found with.
    - `result`, `cause`, `effect`, `evidence`, `adjust`, `graph`, `knowledge`: as in `dagveil.effect`; a result without
      evidence will do.
    """
    full = schema if isinstance(schema, Schema) else load_schema(schema)
    result, evidence = _load_both(result, evidence)
    if full.digest() != result.schema.digest:
        raise MethodError(
            f"the schema of {full.dataset!r} is not the one that this result was found with; give that one, so that "
            "levels mean the same. Nothing was spent"
        )
    question = _Question(result, full, cause, effect, adjust, graph, knowledge)
    sets = question.sets()
    if not sets:
        why = question.readings[0].why_nothing if question.readings else "the graph has no reading"
        raise MethodError(f"by this graph {cause} does nothing to {effect} ({why}), so nothing needs to be measured")
    budget = Budget.of(epsilon, delta)
    names = {cause, effect}.union(*sets)
    narrow = _narrow(full, names)
    old = () if evidence is None else evidence.releases
    # tables that are there already are joined by a table, and moments by moments
    linear = is_numeric(narrow) and bool(EffectEstimator(full, old).parts.missing((cause, effect)))
    settings = EffectSettings(tables=() if linear else choose_tables(full, budget, cause, effect, sets))
    progress = run.get("progress", silent)
    with open_run(source, narrow, budget, QUESTION, settings, knowledge=NO_KNOWLEDGE, run=run) as (prepared, curator):
        if linear:
            measured = measure(curator, NO_KNOWLEDGE, MeasureSettings(), progress)
        else:
            stage = "tables of an effect"
            progress("measuring tables", 0, 1)
            tables = curator.count_tables(settings.tables, Fraction(1), stage)
            progress("measuring tables", 1, 1)
            cells, sd = sum(len(table.values) for table in tables), math.sqrt(tables[0].count_variance)
            plan = (Stage(stage, len(tables), cells, 1.0, sd, "exactly what the effect needs"),)
            measured = Measured(tables, plan, ())
    released = Evidence(
        **head("dagveil-evidence", EVIDENCE_VERSION),
        method=QUESTION.name,
        schema=narrow,
        plan=measured.plan,
        findings=measured.findings,
        receipt=prepared.receipt(curator.events),
        releases=measured.releases,
    )
    found = question.answer((*old, *measured.releases))
    return msgspec.structs.replace(found, receipt=released.receipt), released


def _accounting(budget: Budget, schema: Schema, settings: EffectSettings, knowledge: Knowledge) -> Filter:
    if not settings.tables:
        return tightest_filter(budget, [DiscreteGaussian])
    return table_accounting(budget, Relation(schema.relation), len(settings.tables))[0]


# the question as runs and ledgers know methods
QUESTION: Final = Method(
    "effect",
    "tables that one effect needs",
    None,
    "any",
    "one release",
    EffectSettings,
    accounting=_accounting,
    check=lambda schema, knowledge: None,  # columns were checked by name already
    release=None,
)

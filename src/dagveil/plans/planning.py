"""Choose the questions of a plan from public facts alone: schema, budgets and nominal numbers of rows.

What a second round asks follows from the released sum of the first, so choosing costs nothing. Both rounds keep the
budget that was agreed on together: shares of mu squared add up (docs/proofs/custodians.md).
"""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema, load_schema
from dagveil.errors import EvidenceError, MethodError, SchemaError, UnreviewedSchemaError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import plain_numbers
from dagveil.methods.measure import ROUND_SEARCH, is_numeric, releases_mixed
from dagveil.methods.measure_features import MeasureFeaturesSettings, choose_degree, plan_features
from dagveil.methods.measure_loop import first_skeleton, promising_triples, worthwhile_pairs
from dagveil.methods.measure_mixed import explain, plan_mixed
from dagveil.methods.measure_moments import declared_scales, plan_moments
from dagveil.methods.measure_tables import PAIRS_SHARE, SINGLES_SHARE, pays_for_triples
from dagveil.methods.method import METHODS, Method, method_named
from dagveil.plans.plan_file import (
    PLAN_VERSION,
    Ask,
    AskFeatures,
    AskInteractions,
    AskMargins,
    AskMatrix,
    AskMixed,
    AskMoments,
    AskTables,
    MeasurementPlan,
    NoiseLaw,
    PlannedSite,
    check_plan,
    check_same_questions,
    count_cells,
    count_coordinates,
    list_sets,
    load_plan,
)
from dagveil.privacy.budget import Amount, Budget, Relation, epsilon_of_mu_squared, mu_squared_of
from dagveil.privacy.events import PureFilter
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.noise.kind import DEFAULT_NOISE, NoiseKind
from dagveil.runs.cost import Search, Work
from dagveil.runs.discovery import DEFAULT_DELTA
from dagveil.runs.result import head
from dagveil.runs.run import schema_knowledge
from dagveil.statistics import contingency
from dagveil.statistics.moments import moments_squared_sensitivity


@dataclasses.dataclass(frozen=True, slots=True)
class StageForecast:
    """One stage of a plan in numbers: what each site releases, and the deviation of the noise of all sites together."""

    stage: str
    share: Fraction
    tables: int
    cells: int
    site_noise: tuple[float, ...]

    @property
    def noise(self) -> float:
        """Deviation of the noise in the sum over sites."""
        return math.sqrt(sum(deviation**2 for deviation in self.site_noise))


def forecast_plan(plan: MeasurementPlan) -> tuple[StageForecast, ...]:
    """Tell what a plan asks, and how noisy its answers will be at each site."""
    stages = []
    for ask in plan.asks:
        noise = tuple(forecast_noise(ask, plan.schema, plan.noise, site) for site in plan.sites)
        tables = 1 if isinstance(ask, AskMatrix) else len(list_sets(ask))
        stages.append(StageForecast(ask.stage, ask.share, tables, count_cells(ask, plan.schema), noise))
    return tuple(stages)


def forecast_noise(ask: Ask, schema: Schema, noise: NoiseLaw, site: PlannedSite) -> float:
    """Return the deviation of the noise at one site: in rows for counts, in scaled units for moments."""
    relation = Relation(schema.relation)
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    amount = ask.share * noise.filter(site.budget).total
    if noise is NoiseLaw.LAPLACE:
        return math.sqrt(laplace_variance(contingency.counts_sensitivity(relation, len(list_sets(ask))) / amount))
    if isinstance(ask, AskMatrix):
        return math.sqrt(moments_squared_sensitivity(relation, ask.rows) / amount) / 4.0**ask.rows.bits
    if isinstance(ask, AskInteractions):
        squared = contingency.interactions_squared_sensitivity(relation, ask.sets, levels)
    elif isinstance(ask, AskMargins):
        squared = contingency.margins_squared_sensitivity(relation, [levels[name] for name in ask.columns])
    else:
        squared = contingency.counts_squared_sensitivity(relation, len(ask.sets))
    return math.sqrt(squared / amount)


def work_of_search(plan: MeasurementPlan, redraws: int) -> Work:
    """Return the size of the search over the evidence of all sites: no rows."""
    return dataclasses.replace(work_at_site(plan, plan.sites[0], DEFAULT_NOISE), rows=0, redraws=redraws, held=True)


def work_at_site(plan: MeasurementPlan, site: PlannedSite, noise: NoiseKind) -> Work:
    """Return the size of one site's run: it reads, counts and draws; the search is someone else's."""
    counted = [columns for ask in plan.asks if not isinstance(ask, AskMatrix) for columns in list_sets(ask)]
    features = sum(count_coordinates(ask) for ask in plan.asks if isinstance(ask, AskMatrix))
    cells = sum(count_cells(ask, plan.schema) for ask in plan.asks)
    rows = site.nominal_rows
    if features:
        search = Search.MIXED if isinstance(plan.asks[-1], AskMixed) else Search.MATRIX
    elif plan.noise is NoiseLaw.LAPLACE:
        search = Search.JOINT
    else:
        search = Search.TRIPLES if max(map(len, counted)) > 2 else Search.PAIRS
    return Work(plan.schema, rows, counted, max(len(counted), 1), cells, features, search, 0, noise)


MOST_TRIPLES = 100_000  # three-way tables that a plan may list: those of 85 columns


class TableRule(enum.Enum):
    """Which tables of counts a plan asks for."""

    AUTO = "auto"  # three-way tables where noise would leave them of use
    PAIRS = "pairs"  # single columns and pairs only
    TRIPLES = "triples"  # also every three-way table, for joint tests of order 2


def plan_measurement(
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    method: str = "measure",
    options: Mapping[str, Any] | None = None,
    sites: Mapping[str, int | None] | Sequence[PlannedSite] = (),
    tables: TableRule = TableRule.AUTO,
    rounds: int = 1,
) -> MeasurementPlan:
    """Fix what every site will be asked, before any row is read.

    - `schema`: what all sites declare; its data set's name is the name of the study. Or the path of a schema.toml.
    - `epsilon`, `delta`: budget of each site's run.
    - `method`: a method that releases evidence and whose questions follow from public facts.
    - `options`: settings of the method, by name.
    - `sites`: nominal rows of each site by name, None for the schema's; or sites with budgets of their own. None at all
      means one site.
    - `tables`: whether three-way tables are asked for, where tables of counts are released one by one.
    - `rounds`: 2 keeps a part of each budget for a second round, which `plan_second_round` plans from the sum of the
      first.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> columns = {name: Boolean(outside="false") for name in "abcdefghijkl"}
    >>> schema = Schema(dataset="study", columns=columns, reviewed=True, nominal_rows=1000)
    >>> plan = plan_measurement(schema, 1, sites={"north": 5000, "south": None})
    >>> [(ask.stage, str(ask.share)) for ask in plan.asks], [site.nominal_rows for site in plan.sites]
    ([('single columns', '1/4'), ('all pairs', '3/4')], [5000, 1000])
    """
    if not isinstance(schema, Schema):
        schema = load_schema(schema)
    if not schema.reviewed:
        raise UnreviewedSchemaError(
            f"the schema of {schema.dataset!r} is unreviewed: its levels and bounds were read from the data, and a "
            "plan is public. Check them and set reviewed = true."
        )
    if method == "auto":
        raise MethodError(
            "a plan names its method, so that all sites know it; `dagveil plan --explore` shows which one to name"
        )
    chosen = method_named(method)
    if chosen.release is None or method not in METHODS:
        known = ", ".join(name for name, other in METHODS.items() if other.release is not None)
        raise MethodError(
            f"the questions of {method} are not known before its run, so no plan can fix them; choose one of {known}"
        )
    settings = chosen.read_settings(options)
    knowledge = schema_knowledge(schema)
    chosen.check_schema(schema, knowledge)
    planned = _read_sites(schema, Budget.of(epsilon, delta), sites)
    strictest = min((site.budget for site in planned), key=lambda budget: (budget.delta, budget.epsilon))
    pure = isinstance(chosen.accounting(strictest, schema, settings, knowledge), PureFilter)
    why = "one record stands in one cell, and every question is a sum of cells"
    joint = AskTables("joint table", Fraction(1), why, (tuple(schema.columns),))
    asks: tuple[Ask, ...] = (joint,) if pure else _choose_asks(chosen, settings, schema, knowledge, planned, tables)
    second: tuple[PlannedSite, ...] = ()
    if rounds == 2:
        asks = _ask_first_round(asks, tables)
        planned, second = split_budgets(planned)
    elif rounds != 1:
        raise MethodError(f"a plan has one round or two, not {rounds}")
    plan = MeasurementPlan(
        **head("dagveil-plan", PLAN_VERSION),
        schema=schema,
        method=method,
        settings=msgspec.to_builtins(settings),
        noise=NoiseLaw.LAPLACE if pure else NoiseLaw.GAUSSIAN,
        sites=planned,
        asks=asks,
        second=second,
    )
    check_plan(plan)
    return plan


def _read_sites(
    schema: Schema, budget: Budget, sites: Mapping[str, int | None] | Sequence[PlannedSite]
) -> tuple[PlannedSite, ...]:
    if not isinstance(sites, Mapping):
        if sites:
            return tuple(sites)
        sites = {schema.dataset: None}
    planned = []
    for name, rows in sites.items():
        nominal = schema.nominal_rows if rows is None else rows
        if nominal is None:
            raise SchemaError(
                f"site {name!r} has no nominal number of rows: a plan is made before any row is read. Declare "
                "nominal_rows in the schema, or give it with the site (--site NAME=ROWS)"
            )
        planned.append(PlannedSite(name, budget.epsilon, budget.delta, nominal))
    return tuple(planned)


def _choose_asks(
    method: Method,
    settings: msgspec.Struct,
    schema: Schema,
    knowledge: Knowledge,
    sites: Sequence[PlannedSite],
    tables: TableRule,
) -> tuple[Ask, ...]:
    notears, plain = method.name == "measure-notears", plain_numbers(schema)
    if notears and not all(isinstance(column, Numeric) for column in schema.columns.values()):
        raise MethodError(
            "measure-notears scales columns with levels by a first look at them, so its questions are not known before "
            "the run; plan `measure` instead, or leave these columns out"
        )
    mixed = releases_mixed(method.name, settings, schema)
    if notears or (is_numeric(schema) and not mixed):
        return (_ask_matrix(settings, schema, sites, mixed=False),)
    # without declared spreads sites would have no common units: then numbers are counted in bins
    if mixed and set(plain) <= set(declared_scales(schema)[1]):
        return (_ask_matrix(settings, schema, sites, mixed=True),)
    return _ask_small_tables(schema, knowledge, sites, tables)


def _ask_first_round(asks: tuple[Ask, ...], tables: TableRule) -> tuple[Ask, ...]:
    """Return the questions of a first round: margins and pairs; what they leave over is for the second one."""
    if not isinstance(asks[0], AskMargins):
        raise MethodError(
            f"a second round has nothing to ask: {asks[0].why}, so one round has the whole budget; plan one"
        )
    if tables is not TableRule.AUTO:
        raise MethodError(
            "a second round chooses its tables by what the first one shows; leave out the rule for tables"
        )
    share = SINGLES_SHARE / FIRST_SHARE
    return replace(asks[0], share=share), replace(asks[1], share=1 - share)


def _ask_small_tables(
    schema: Schema, knowledge: Knowledge, sites: Sequence[PlannedSite], tables: TableRule
) -> tuple[Ask, ...]:
    pairs = tuple((a, b) for a, b in combinations(schema.columns, 2) if not knowledge.excludes(a, b))
    if not pairs:
        raise MethodError("background knowledge leaves no pair open, so there is nothing to measure")
    covered = [name for name in schema.columns if any(name in pair for pair in pairs)]
    rest, asked, possible = 1 - SINGLES_SHARE, set(pairs), math.comb(len(covered), 3)
    if possible > MOST_TRIPLES and tables is TableRule.TRIPLES:
        raise MethodError(
            f"{len(covered)} columns have {possible} three-way tables, and the limit is {MOST_TRIPLES}; plan pairs "
            "only (--tables pairs), or leave columns out"
        )
    triples: list[tuple[str, ...]] = []
    if possible <= MOST_TRIPLES and tables is not TableRule.PAIRS:
        triples = [three for three in combinations(covered, 3) if asked.issuperset(combinations(three, 2))]
    budgets = [(site.budget, site.nominal_rows) for site in sites]
    pays = tables is TableRule.TRIPLES or pays_for_triples(schema, triples, rest * (1 - PAIRS_SHARE), budgets)
    for_pairs = rest * PAIRS_SHARE if triples and pays else rest
    asks: list[Ask] = [
        AskMargins("single columns", SINGLES_SHARE, "every pair shares these margins", tuple(covered)),
        AskInteractions("all pairs", for_pairs, "they answer every question of order 0 and 1", pairs),
    ]
    if for_pairs < rest:
        why = "they answer questions of order 2 jointly, and no site can know beforehand which matter"
        asks.append(AskInteractions("three-way interactions", rest - for_pairs, why, tuple(triples)))
    return tuple(asks)


def _ask_matrix(settings: msgspec.Struct, schema: Schema, sites: Sequence[PlannedSite], *, mixed: bool) -> Ask:
    """Return the question about one matrix of moments, of levels beside numbers if `mixed`, in declared units."""
    centers, spreads = declared_scales(schema)
    if missing := [name for name in (plain_numbers(schema) if mixed else schema.columns) if name not in spreads]:
        raise SchemaError(
            f"{', '.join(missing)}: no spread is declared. Sites can add moments only in the same units, and a private "
            "guess would differ from site to site: declare center and spread"
        )
    # noise variances of the sites add, and so do the inverses of what they cost
    mu_squared = 1 / sum(1 / float(NoiseLaw.GAUSSIAN.filter(site.budget).total) for site in sites)
    rows = sum(site.nominal_rows for site in sites)
    if mixed:
        plan = plan_mixed(schema, centers, spreads, rows, mu_squared)
        return AskMixed("mixed moments", Fraction(1), explain(plan), plan)
    if isinstance(settings, MeasureFeaturesSettings):
        degree = settings.degree or choose_degree(len(schema.columns), rows, mu_squared)
        if settings.degree is not None or degree > 1:
            features = plan_features(schema, centers, spreads, degree, settings, rows, mu_squared)
            why = f"one matrix of {degree} features per column answers every question"
            return AskFeatures("moments of features", Fraction(1), why, features)
    moments = plan_moments(tuple(schema.columns), centers, spreads, rows, mu_squared)
    return AskMoments("second moments", Fraction(1), "one matrix answers every linear question", moments)


FIRST_SHARE = SINGLES_SHARE + (1 - SINGLES_SHARE) * PAIRS_SHARE
"""Share of the budget, as mu squared, for margins and all pairs; the second round has the rest."""

QUIET_SUM = 0.0015
"""Three-way interactions are asked for if the noise of their sum, as a share of the rows, is at most this."""

DIGITS = 10**6  # epsilons of rounds are whole parts of this


def split_budgets(sites: Sequence[PlannedSite]) -> tuple[tuple[PlannedSite, ...], tuple[PlannedSite, ...]]:
    """Return the sites with the budgets of each round; both together cost no more than the whole budget."""
    first: list[PlannedSite] = []
    second: list[PlannedSite] = []
    for site in sites:
        if not site.delta:
            raise MethodError(
                f"two rounds share a budget by Gaussian accounting, which needs a delta; site {site.name!r} has 0"
            )
        whole = mu_squared_of(site.budget)
        for found, room in ((first, FIRST_SHARE * whole), (second, (1 - FIRST_SHARE) * whole)):
            steps = math.floor(epsilon_of_mu_squared(room, site.delta) * DIGITS)
            while steps > 0 and mu_squared_of(Budget(Fraction(steps, DIGITS), site.delta)) > room:
                steps -= 1
            if steps <= 0:
                raise MethodError(f"{site.budget.words} is too little for two rounds; plan one")
            found.append(replace(site, epsilon=Fraction(steps, DIGITS)))
    return tuple(first), tuple(second)


def plan_second_round(plan: MeasurementPlan | str | Path, combined: Evidence | str | Path) -> MeasurementPlan:
    """Plan the second round of a study from the sum of its first: post-processing, so that choosing costs nothing.

    - `plan`: that of the first round, made with two rounds; or its path.
    - `combined`: what `combine_evidence` made of the first round, or its path. Sites without evidence in it have no
      second round.
    """
    plan = plan if isinstance(plan, MeasurementPlan) else load_plan(plan)
    combined = combined if isinstance(combined, Evidence) else load_evidence(combined)
    if not plan.second:
        raise MethodError("the plan leaves nothing for a second round; plan the first with two rounds (--rounds 2)")
    if combined.study is None or combined.study.plan != plan.digest():
        raise EvidenceError(
            "this evidence does not follow this plan, so it is no first round of it; give the plan's own"
        )
    check_same_questions(combined.schema, plan.schema)
    taking_part = {part.site for part in combined.parts}
    tests = combined.independence()
    assert isinstance(tests, PairEvidence)  # a first round has margins and pairs
    sites = tuple(site for site in plan.second if site.name in taking_part)
    made = replace(
        plan,
        **head("dagveil-plan", PLAN_VERSION),
        sites=sites,
        asks=(_choose(plan, tests, sites),),
        second=(),
        after=plan.digest(),
    )
    check_plan(made)
    return made


def _choose(plan: MeasurementPlan, tests: PairEvidence, sites: Sequence[PlannedSite]) -> AskInteractions:
    """Choose what the second round asks: three-way interactions where noise leaves power, or pairs again."""
    knowledge = schema_knowledge(plan.schema).within(tests.columns)
    skeleton = first_skeleton(tests, ROUND_SEARCH, knowledge)
    _, triples = promising_triples(tests, skeleton, ROUND_SEARCH, knowledge)
    levels = {name: column.n_levels for name, column in plan.schema.columns.items()}
    squared = contingency.interactions_squared_sensitivity(Relation(plan.schema.relation), triples, levels)
    noise = math.sqrt(sum(squared / mu_squared_of(site.budget) for site in sites))
    if triples and noise <= QUIET_SUM * tests.covariance.n_rows:
        why = "the first round leaves these questions of order 2 open"
        return AskInteractions("three-way interactions", Fraction(1), why, tuple(triples))
    why = "they depend on each other in the first round, or may"
    return AskInteractions("pairs again", Fraction(1), why, tuple(worthwhile_pairs(tests)))

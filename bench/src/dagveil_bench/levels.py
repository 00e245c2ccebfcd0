"""Level and power of private tests of conditional independence, on the two designs of PCD's simulation.

Conditional: X and Y are the sine of the sum of five Z plus noise, so they are independent given all five and dependent
given four. Marginal: two of the Z are independent, X and Y are not.
"""

import enum
import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dagveil.curator import Curator, Question
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.mixed import publishable_evidence
from dagveil.evidence.questions import Questions
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.methods import measure_features, pcd
from dagveil.methods.asking import Needs, ThresholdedQuestions, asking_filter
from dagveil.methods.method import account_gaussian
from dagveil.methods.regressions import release_functions
from dagveil.papers.zhang2023 import PcdPublished, PublishedDecision, RcitForm, RcitScale, RcitSettings, exact_rcit
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import Event, Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.release import NoisyFeatureMoments
from dagveil.progress import silent
from dagveil_bench.nonlinear import with_bins

Columns = Mapping[str, NDArray[np.float64]]
# decides whether independence is rejected at level 0.05, within a budget
Test = Callable[[Columns, Question, Budget, np.random.Generator], bool]
LEVEL = 0.05
CAUSES = ("z1", "z2", "z3", "z4", "z5")

PUBLISHED = "PCD as published"  # begins the names of tests without a proof: a budget is the price of a noisy answer


class Design(enum.Enum):
    """What is asked: a null is true, so that its rejection is an error; the rejection of the others is power."""

    CONDITIONAL_NULL = "conditional-null"
    CONDITIONAL_POWER = "conditional-power"
    MARGINAL_NULL = "marginal-null"
    MARGINAL_POWER = "marginal-power"

    @property
    def question(self) -> Question:
        """What is asked."""
        return {
            Design.CONDITIONAL_NULL: ("x", "y", CAUSES),
            Design.CONDITIONAL_POWER: ("x", "y", CAUSES[:4]),
            Design.MARGINAL_NULL: ("z1", "z2", ()),
            Design.MARGINAL_POWER: ("x", "y", ()),
        }[self]


def design_named(word: str) -> Design:
    """Return a design by its name."""
    known = {design.value: design for design in Design}
    if word not in known:
        raise MethodError(f"no design is called {word!r}; choose one of {', '.join(known)}")
    return known[word]


def draw_design(n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Draw rows of both designs: five causes, X and Y."""
    causes = rng.uniform(-0.5, 0.5, (5, n_rows))
    common = np.sin(causes.sum(axis=0))
    effects = {name: common + rng.uniform(0.5, 1.0) * rng.uniform(-0.5, 0.5, n_rows) for name in ("x", "y")}
    return dict(zip(CAUSES, causes, strict=True)) | effects


def design_schema(n_rows: int) -> Schema:
    """Return what a person would declare about these columns."""
    causes = {name: Numeric(bounds=(-0.5, 0.5), center=0.0, spread=0.3) for name in CAUSES}
    effects = {name: Numeric(bounds=(-1.5, 1.5), center=0.0, spread=0.6) for name in ("x", "y")}
    return Schema(dataset="level-study", reviewed=True, public=True, nominal_rows=n_rows, columns={**causes, **effects})


class Unrecorded:
    """Stands for the ledger: these rows are made up."""

    def record(self, event: Event) -> None:
        """Forget the event."""


def _open(columns: Columns, schema: Schema, accounting: Filter, rng: np.random.Generator) -> Curator:
    table = MemoryTable.from_source(dict(columns), schema)
    noise = noise_source(NoiseKind.SEEDED, seed=int(rng.integers(2**62)))
    return Curator(table, Relation(schema.relation), accounting, Unrecorded(), noise)


def _ask_kernel(
    settings: pcd.PcdSettings, columns: Columns, question: Question, budget: Budget, rng: np.random.Generator
) -> bool:
    """Spend the whole budget on one question of `pcd`."""
    schema = design_schema(len(columns["x"]))
    curator = _open(columns, schema, pcd.accounting(budget, schema, settings, NO_KNOWLEDGE), rng)
    functions = None
    # a kernel test without conditions needs no regression, and so all of the budget is its own
    if settings.regression is pcd.RegressionRule.RELEASED and (
        question[2] or settings.test is not pcd.ResidualTest.HSIC
    ):
        functions, _ = release_functions(curator, pcd.MOMENTS_SHARE)
    laboratory = curator.ask_kernels(len(columns["x"]))
    _, is_independent = pcd.divide_rest(curator, laboratory, functions, 1, settings)
    return not is_independent(question)


def _ask_features(columns: Columns, question: Question, budget: Budget, rng: np.random.Generator) -> bool:
    """Release features of all seven columns, so that every question is answered; the p-value is one to publish."""
    settings = measure_features.MeasureFeaturesSettings(degree=3, radius=5.0)
    schema = design_schema(len(columns["x"]))
    curator = _open(columns, schema, account_gaussian(budget, schema, settings, NO_KNOWLEDGE), rng)
    releases = measure_features.release(curator, NO_KNOWLEDGE, settings, silent).releases
    features = next(release for release in releases if isinstance(release, NoisyFeatureMoments))
    tests = publishable_evidence(features)
    place = {name: position for position, name in enumerate(tests.columns)}
    x, y, given = question
    asked = Questions.of([(place[x], place[y], tuple(place[name] for name in given))])
    return bool(tests.test(asked).p_value[0] <= LEVEL)


def _ask_kendall(columns: Columns, question: Question, budget: Budget, rng: np.random.Generator) -> bool:
    """Ask for a noisy Kendall's τ in public bins; half of the level is for the sample, half for the noise."""
    schema = with_bins(design_schema(len(columns["x"])))
    curator = _open(columns, schema, asking_filter(budget, "kendall", 1), rng)
    desk = ThresholdedQuestions(curator, "kendall", LEVEL / 2, len(CAUSES), Needs.FIXED_NOISE)
    epsilon = epsilon_for(curator.accounting, curator.accounting.remaining)
    # Laplace noise of scale 1 exceeds log(1 / (2 p)) with probability p
    score, threshold = desk.measure(question, epsilon, "question", slack=math.log(1.0 / LEVEL))
    return score > threshold


def _ask_as_published(
    settings: PcdPublished, columns: Columns, question: Question, budget: Budget, rng: np.random.Generator
) -> bool:
    """Decide by lines 3-17 of the published algorithm."""
    return not PublishedDecision(columns, float(budget.epsilon), settings, rng).is_independent(question)


def _ask_exactly(
    penalty: float | None,
    scale: RcitScale,
    columns: Columns,
    question: Question,
    budget: Budget,
    rng: np.random.Generator,
) -> bool:
    x, y, given = question
    conditions = np.stack([columns[name] for name in given], axis=1) if given else None
    chosen = pcd.default_penalty(len(columns["x"])) if penalty is None else penalty
    settings = RcitSettings(penalty=chosen, scale=scale)
    return bool(exact_rcit(columns[x], columns[y], conditions, settings, rng).p_value <= LEVEL)


# tests by name
TESTS: Mapping[str, Test] = {
    "partial covariance of residuals": partial(_ask_kernel, pcd.PcdSettings(test=pcd.ResidualTest.PARTIAL)),
    "private GCM": partial(_ask_kernel, pcd.PcdSettings(test=pcd.ResidualTest.GCM)),
    "dpHSIC, released regressions": partial(_ask_kernel, pcd.PcdSettings(test=pcd.ResidualTest.HSIC)),
    "dpHSIC, ridge": partial(
        _ask_kernel, pcd.PcdSettings(test=pcd.ResidualTest.HSIC, regression=pcd.RegressionRule.RIDGE)
    ),
    "feature moments, linear side": _ask_features,
    "conditional Kendall's τ, public bins": _ask_kendall,
    PUBLISHED: partial(_ask_as_published, PcdPublished()),
    f"{PUBLISHED}, K + I and m·HSIC": partial(_ask_as_published, PcdPublished(scale=RcitScale.CUSTOMARY)),
    f"{PUBLISHED}, Kendall's τ": partial(_ask_as_published, PcdPublished(statistic=RcitForm.KENDALL)),
    "exact RCIT as published (λ = 1)": partial(_ask_exactly, 1.0, RcitScale.EQUATIONS),
    "exact RCIT as published (K + I)": partial(_ask_exactly, 1.0, RcitScale.CUSTOMARY),
    "exact RCIT, smaller λ": partial(_ask_exactly, None, RcitScale.EQUATIONS),
}
EXACT_TESTS = frozenset(name for name in TESTS if name.startswith("exact"))  # tests without noise, whatever the budget

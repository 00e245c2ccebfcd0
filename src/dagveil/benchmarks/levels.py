"""Level and power of private tests of conditional independence, on the two designs of PCD's simulation.

Conditional: X and Y are the sine of the sum of five Z plus noise, so they are independent given all five and dependent
given four. Marginal: two of the Z are independent, X and Y are not.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dagveil.benchmarks.plots import Line, Panel, draw_panels
from dagveil.curator import Curator, Question
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evidence.features import publishable_evidence
from dagveil.evidence.questions import Questions
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.methods import measure_features, pcd
from dagveil.methods.measured import silent
from dagveil.methods.regressions import release_functions
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.filter import Filter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.relation import Relation
from dagveil.privacy.release import NoisyFeatureMoments
from dagveil.statistics.rcit import RcitSettings, exact_rcit

Columns = Mapping[str, NDArray[np.float64]]

LEVEL = 0.05
DELTA = Fraction(1, 10**6)
CAUSES = ("z1", "z2", "z3", "z4", "z5")
UNLIMITED = 1e9
"""Stands for no privacy."""


class Design(enum.Enum):
    """What is asked, and whether the answer is independence."""

    CONDITIONAL_NULL = "X ⊥ Y given all Z (true)"
    CONDITIONAL_POWER = "X ⊥ Y given four of five Z (false)"
    MARGINAL_NULL = "Z1 ⊥ Z2 (true)"
    MARGINAL_POWER = "X ⊥ Y (false)"

    @property
    def is_null(self) -> bool:
        """Whether the question is true, so that a rejection is an error."""
        return self in (Design.CONDITIONAL_NULL, Design.MARGINAL_NULL)

    @property
    def question(self) -> Question:
        """What is asked."""
        return {
            Design.CONDITIONAL_NULL: ("x", "y", CAUSES),
            Design.CONDITIONAL_POWER: ("x", "y", CAUSES[:4]),
            Design.MARGINAL_NULL: ("z1", "z2", ()),
            Design.MARGINAL_POWER: ("x", "y", ()),
        }[self]


def draw_design(n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Draw rows of both designs: five causes, X and Y.

    Examples
    --------
    >>> sorted(draw_design(3, np.random.default_rng(0)))
    ['x', 'y', 'z1', 'z2', 'z3', 'z4', 'z5']
    """
    causes = rng.uniform(-0.5, 0.5, (5, n_rows))
    common = np.sin(causes.sum(axis=0))
    effects = {name: common + rng.uniform(0.5, 1.0) * rng.uniform(-0.5, 0.5, n_rows) for name in ("x", "y")}
    return dict(zip(CAUSES, causes, strict=True)) | effects


def design_schema(n_rows: int) -> Schema:
    """Return what a person would declare about these columns."""
    causes = {name: Numeric(bounds=(-0.5, 0.5), center=0.0, spread=0.3) for name in CAUSES}
    effects = {name: Numeric(bounds=(-1.5, 1.5), center=0.0, spread=0.6) for name in ("x", "y")}
    return Schema(dataset="level-study", reviewed=True, public=True, nominal_rows=n_rows, columns={**causes, **effects})


@dataclass(frozen=True, slots=True)
class Trial:
    """One test on one sample: which, of what, with which budget; its seed is its own."""

    test: str
    design: Design
    n_rows: int
    epsilon: float
    run: int
    seed: int


def run_trial(trial: Trial) -> bool:
    """Return whether independence was rejected at level 0.05."""
    rng = np.random.default_rng([trial.seed, trial.run, trial.n_rows, crc32(trial.design.name.encode())])
    columns = draw_design(trial.n_rows, rng)
    noise = np.random.default_rng([trial.seed, trial.run, crc32(f"{trial.test} {trial.epsilon:g}".encode())])
    return TESTS[trial.test](columns, trial.design.question, trial.epsilon, noise)


def run_trials(trials: Sequence[Trial], workers: int, told: Callable[[str, int, int], None]) -> dict[Trial, bool]:
    """Run all trials on several cores."""
    found = {}
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for done, (trial, rejected) in enumerate(zip(trials, pool.map(run_trial, trials, chunksize=4), strict=True), 1):
            found[trial] = rejected
            told("tests", done, len(trials))
    return found


class _Unrecorded:
    """Stands for the ledger: these rows are made up."""

    def record(self, event: Event) -> None:
        """Forget the event."""


def _open(
    columns: Columns, epsilon: float, choose: Callable[[Budget, Schema], Filter], rng: np.random.Generator
) -> Curator:
    n_rows = len(columns["x"])
    schema = design_schema(n_rows)
    budget = Budget(Fraction(epsilon), DELTA)
    noise = noise_source(NoiseKind.SEEDED, seed=int(rng.integers(2**62)))
    return Curator(
        MemoryTable.from_source(dict(columns), schema),
        Relation(schema.relation),
        choose(budget, schema),
        _Unrecorded(),
        noise,
    )


def _ask_kernel(settings: pcd.PcdSettings) -> Callable[[Columns, Question, float, np.random.Generator], bool]:
    """Return a test that spends its whole budget on one question of `pcd`."""

    def ask(columns: Columns, question: Question, epsilon: float, rng: np.random.Generator) -> bool:
        curator = _open(columns, epsilon, lambda budget, schema: pcd.accounting(budget, schema, settings), rng)
        functions = None
        # a kernel test without conditions needs no regression, and so all of the budget is its own
        if settings.regression is pcd.RegressionRule.RELEASED and (
            question[2] or settings.test is not pcd.ResidualTest.HSIC
        ):
            functions, _ = release_functions(curator, pcd.MOMENTS_SHARE)
        laboratory = curator.laboratory(len(columns["x"]))
        _, is_independent = pcd.divide_rest(curator, laboratory, functions, 1, settings)
        return not is_independent(question)

    return ask


def _ask_features(columns: Columns, question: Question, epsilon: float, rng: np.random.Generator) -> bool:
    """Release features of all seven columns, so that every question is answered; the p-value is one to publish."""
    settings = measure_features.MeasureFeaturesSettings(degree=3, radius=5.0)
    curator = _open(columns, epsilon, lambda budget, schema: measure_features.accounting(budget, schema, settings), rng)
    releases = measure_features.release(curator, NO_KNOWLEDGE, settings, silent).releases
    features = next(release for release in releases if isinstance(release, NoisyFeatureMoments))
    tests = publishable_evidence(features)
    place = {name: position for position, name in enumerate(tests.columns)}
    x, y, given = question
    asked = Questions.of([(place[x], place[y], tuple(place[name] for name in given))])
    return bool(tests.test(asked).p_value[0] <= LEVEL)


def _ask_as_published(columns: Columns, question: Question, epsilon: float, rng: np.random.Generator) -> bool:
    """Run lines 3-17 of the published algorithm for one question."""
    return not pcd.PublishedDecision(columns, epsilon, pcd.PcdPublished(), rng).is_independent(question)


def _ask_exactly(penalty: float | None) -> Callable[[Columns, Question, float, np.random.Generator], bool]:
    def ask(columns: Columns, question: Question, epsilon: float, rng: np.random.Generator) -> bool:
        x, y, given = question
        conditions = np.stack([columns[name] for name in given], axis=1) if given else None
        chosen = pcd.default_penalty(len(columns["x"])) if penalty is None else penalty
        return bool(exact_rcit(columns[x], columns[y], conditions, RcitSettings(penalty=chosen), rng).p_value <= LEVEL)

    return ask


TESTS: Mapping[str, Callable[[Columns, Question, float, np.random.Generator], bool]] = {
    "partial covariance of residuals": _ask_kernel(pcd.PcdSettings(test=pcd.ResidualTest.PARTIAL)),
    "private GCM": _ask_kernel(pcd.PcdSettings(test=pcd.ResidualTest.GCM)),
    "dpHSIC, released regressions": _ask_kernel(pcd.PcdSettings(test=pcd.ResidualTest.HSIC)),
    "dpHSIC, ridge": _ask_kernel(pcd.PcdSettings(test=pcd.ResidualTest.HSIC, regression=pcd.RegressionRule.RIDGE)),
    "feature moments, linear side": _ask_features,
    "PCD as published": _ask_as_published,
    "exact RCIT as published (λ = 1)": _ask_exactly(1.0),
    "exact RCIT, smaller λ": _ask_exactly(None),
}
"""Tests by name."""

EXACT_TESTS = frozenset(name for name in TESTS if name.startswith("exact"))
"""Tests without noise, whatever the budget."""


def standard_error(share: float, runs: int) -> float:
    """Return the standard error of a share of so many runs, as if the share were at least one run away from 0 and 1.

    Examples
    --------
    >>> standard_error(0.5, 100)
    0.05
    """
    inside = min(max(share, 1.0 / runs), 1.0 - 1.0 / runs)
    return math.sqrt(inside * (1.0 - inside) / runs)


def list_trials(
    tests: Sequence[str],
    designs: Sequence[Design],
    sizes: Sequence[int],
    epsilons: Sequence[float],
    runs: int,
    seed: int,
) -> list[Trial]:
    """Return every test on every design; exact ones once, whatever the budgets."""
    return [
        Trial(test, design, n_rows, epsilon, run, seed)
        for n_rows in sizes
        for design in designs
        for test in tests
        for epsilon in ((UNLIMITED,) if test in EXACT_TESTS else epsilons)
        for run in range(runs)
    ]


def levels_page(found: Mapping[Trial, bool], command: str, figure: str | None) -> str:
    """Write tables of rejections: errors where independence is true, power where it is false."""
    trials = list(found)
    runs = 1 + max(trial.run for trial in trials)
    parts = [
        "# Level and power of private tests of independence",
        f"Share of {runs} samples in which independence was rejected at level {LEVEL:g}. ε is the whole budget of one "
        f"test (δ = {float(DELTA):g}; regressions or features included), add/remove. The standard error at the level "
        f"is {standard_error(LEVEL, runs):.3f}; **bold** is above the level by more than that. Written by",
        f"    {command}",
    ]
    if figure:
        parts.append(f"![Rejections over budgets]({figure.rsplit('/', 1)[-1]})")
    budgets = _budgets(trials)
    for n_rows in dict.fromkeys(trial.n_rows for trial in trials):
        for design in Design:
            shares = rejections(found, n_rows, design)
            lines = ["| test | " + " | ".join(f"ε = {e:g}" for e in budgets) + " | no noise |"]
            lines.append("|---" * (len(budgets) + 2) + "|")
            for test in dict.fromkeys(test for test, _ in shares):
                row = [_show(shares.get((test, epsilon)), design, runs) for epsilon in (*budgets, UNLIMITED)]
                lines.append(f"| {test} | " + " | ".join(row) + " |")
            what = "type I error" if design.is_null else "power"
            parts += [f"## {n_rows} rows: {design.value}, {what}", "\n".join(lines)]
    return "\n\n".join(parts)


def draw_levels(found: Mapping[Trial, bool], path: str) -> None:
    """Draw rejections over budgets: one row of panels for each number of rows, one panel for each design."""
    trials = list(found)
    budgets = (*_budgets(trials), UNLIMITED)
    panels = []
    for n_rows in dict.fromkeys(trial.n_rows for trial in trials):
        for design in Design:
            shares = rejections(found, n_rows, design)
            tests = dict.fromkeys(test for test, _ in shares)
            lines = [Line(test, [shares.get((test, epsilon)) for epsilon in budgets]) for test in tests]
            panels.append(Panel(f"n = {n_rows}: {design.value}", lines, {"level": LEVEL} if design.is_null else {}))
    ticks = [*(f"{epsilon:g}" for epsilon in budgets[:-1]), "none"]
    draw_panels(panels, ticks, "ε of one test", "rejected", path, columns=len(Design))


def rejections(found: Mapping[Trial, bool], n_rows: int, design: Design) -> dict[tuple[str, float], float]:
    """Return the share of rejections by test and budget."""
    gathered: dict[tuple[str, float], list[bool]] = {}
    for trial, rejected in found.items():
        if (trial.n_rows, trial.design) == (n_rows, design):
            gathered.setdefault((trial.test, trial.epsilon), []).append(rejected)
    return {key: sum(values) / len(values) for key, values in gathered.items()}


def _budgets(trials: Sequence[Trial]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(trial.epsilon for trial in trials if trial.epsilon != UNLIMITED))


def _show(share: float | None, design: Design, runs: int) -> str:
    if share is None:
        return ""
    above = design.is_null and share > LEVEL + standard_error(LEVEL, runs)
    return f"**{share:.3f}**" if above else f"{share:.3f}"

"""Probabilities of edges and arrows, held against known graphs: how often what is said to be likely is true.

What corrects shares of redraws is fitted on some kinds of networks and shown on others. A pair counts if the search or
a redraw joined it: of the others nothing is said.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.forecast.synthetic import SyntheticLaw, make_synthetic
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress, silent
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import prepare_search, state_probabilities, visible_strength
from dagveil.search.confidence import agree, redraw_graphs
from dagveil.search.constraint.skeleton import find_explanations
from dagveil.search.probabilities import Correction, weigh_direction, weigh_edge
from dagveil.search.settings import SearchSettings
from dagveil_bench.plots import Line, Panel, draw_panels
from dagveil_bench.studies.datasets import sample_source
from dagveil_bench.tables import write_table

DELTA: Final = 1e-6
# many edges per column: such graphs are hard to find, and what redraws say of them is cautious elsewhere
FITTED_ON: Final = (
    *("random 6 0.5", "random 10 0.4", "random 15 0.3", "random 20 0.2", "random 30 0.12"),
    *("gaussian 6 0.5", "gaussian 15 0.25", "gaussian 25 0.15", "sachs", "child"),
)
HELD_OUT: Final = (
    *("asia", "cancer", "earthquake", "survey", "alarm", "insurance", "hailfinder"),
    *("synthetic 10", "synthetic 20", "synthetic 30", "synthetic-numbers 15", "synthetic-numbers 25"),
)
# where a probability is not stated: columns are numbers, and only their bins are measured
OUTSIDE: Final = ("nonlinear-binned asia", "nonlinear-binned sachs")
BINS: Final = 10
THRESHOLDS: Final = (0.5, 0.7, 0.9, 0.95)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """A table that is drawn, and its budget."""

    kind: str
    rows: int
    epsilon: float
    seed: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said of one pair, and what is true. Where a direction is drawn, it is the first one.

    - `facts`, `odds`: what its probability and that of its direction follow from.
    - `share`, `forward`, `backward`: shares of redraws with the edge and with each direction; half of those without.
    - `probability`, `ahead`, `back`: of the edge, and that the one is a parent of the other.
    - `drawn`, `arrow`: whether the graph has the edge, and an arrow.
    - `edge`, `causes`, `caused`: whether the true graph has the edge, and which direction it has.
    """

    case: Case
    facts: tuple[float, float, float]
    odds: float
    share: float
    forward: float
    backward: float
    arrow_share: float
    probability: float
    ahead: float
    back: float
    drawn: bool
    arrow: bool
    edge: bool
    causes: bool
    caused: bool


@dataclass(frozen=True, slots=True)
class Found:
    """All claims about a table, and of how many pairs nothing is said: those that are true, and all."""

    case: Case
    claims: tuple[Claim, ...]
    missed: int
    silent: int


def list_cases(kinds: Iterable[str], rows: Sequence[int], epsilons: Sequence[float], runs: int) -> list[Case]:
    """List tables; each is drawn anew, of a network that is drawn too if it is random."""
    cells = product(kinds, rows, epsilons, range(runs))
    return [Case(kind, n, epsilon, seed) for seed, (kind, n, epsilon, _) in enumerate(cells)]


def sample_kind(kind: str, rows: int, rng: np.random.Generator) -> tuple[MemoryTable, Dag]:
    """Draw a table. Kinds are those of studies, and tables as `dagveil plan` makes them, of levels or of numbers."""
    word, _, size = kind.partition(" ")
    if not word.startswith("synthetic"):
        return sample_source(kind, rows, rng)
    columns: dict[str, Column] = {}
    for place in range(int(size)):
        levels = tuple(f"v{level}" for level in range(rng.integers(2, 5, endpoint=True)))
        numeric = word == "synthetic-numbers"
        columns[f"x{place + 1}"] = (
            Numeric(bounds=(-10, 10), center=0.0, spread=1.0) if numeric else Categorical(levels, levels[0])
        )
    schema = Schema(dataset="synthetic", reviewed=True, public=True, nominal_rows=rows, columns=columns)
    made = make_synthetic(schema, NO_KNOWLEDGE, SyntheticLaw(), rows, rng)
    return made.table, made.dag


def run_case(case: Case, redraws: int) -> Found:
    """Draw a table, discover its graph, and hold what is said of each pair against the truth."""
    table, truth = sample_kind(case.kind, case.rows, np.random.default_rng([case.seed, case.rows]))
    seeded = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": case.seed}
    evidence = measure_source(table, table.schema, case.epsilon, DELTA, **seeded)  # type: ignore[arg-type]
    tests = evidence.independence()
    assert tests is not None
    find, constants, _ = prepare_search(evidence, SearchSettings(redraws=redraws), NO_KNOWLEDGE, tests)
    found = find(tests)
    assert isinstance(found, Cpdag)
    shares = redraw_graphs(tests, find, redraws, silent)
    explained = find_explanations(tests, constants, found.skeleton())
    visible = visible_strength(tests, constants) or 1.0
    likely = state_probabilities(tests, found, shares, visible, explained, NO_KNOWLEDGE)
    graph = agree(found, shares, NO_KNOWLEDGE, explained)
    claims, missed, quiet = [], 0, 0
    for a, b in combinations(tests.columns, 2):
        pair = frozenset((a, b))
        if likely.of_pair(pair) is None:
            quiet += 1
            missed += pair in truth.skeleton()
            continue
        cause, effect = (b, a) if (b, a) in graph.directed else (a, b)
        forward, backward = (shares.directed[arc] / redraws for arc in ((cause, effect), (effect, cause)))
        line = shares.adjacent[pair] / redraws - forward - backward
        claims.append(
            Claim(
                case=case,
                facts=weigh_edge(shares, pair, len(tests.columns), visible),
                odds=weigh_direction(shares, cause, effect),
                share=shares.adjacent[pair] / redraws,
                forward=forward + line / 2,
                backward=backward + line / 2,
                arrow_share=forward,
                probability=likely.of_pair(pair) or 0.0,
                ahead=likely.parents[cause, effect],
                back=likely.parents[effect, cause],
                drawn=pair in graph.skeleton(),
                arrow=(cause, effect) in graph.directed,
                edge=pair in truth.skeleton(),
                causes=(cause, effect) in truth.edges,
                caused=(effect, cause) in truth.edges,
            )
        )
    return Found(case, tuple(claims), missed, quiet)


def run_cases(cases: Sequence[Case], redraws: int, progress: Progress) -> list[Found]:
    """Run all cases."""
    found = []
    for done, case in enumerate(cases):
        progress("drawing tables", done, len(cases))
        found.append(run_case(case, redraws))
    progress("drawing tables", len(cases), len(cases))
    return found


def fit_correction(claims: Sequence[Claim]) -> Correction:
    """Return the likeliest constants: of edges on all pairs, of directions on those that are edges."""
    facts = np.array([(1.0, *claim.facts) for claim in claims])
    constant, share, noise, columns = _fit_logistic(facts, np.array([claim.edge for claim in claims]))
    true = [claim for claim in claims if claim.edge]
    (direction,) = _fit_logistic(np.array([[claim.odds] for claim in true]), np.array([claim.causes for claim in true]))
    return Correction(constant, share, noise, columns, direction)


def _fit_logistic(facts: Floats, true: NDArray[np.bool_]) -> list[float]:
    signs = np.where(true, 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        odds = signs * (facts @ weights)
        return float(np.logaddexp(0.0, -odds).sum()), -facts.T @ (signs / (1.0 + np.exp(odds)))

    fitted = minimize(loss, np.zeros(facts.shape[1]), jac=True, method="BFGS")
    return [round(float(weight), 3) for weight in fitted.x]


Said = tuple[Floats, NDArray[np.bool_]]  # what is said of each case, and whether it is true


def _collect(pairs: Iterable[tuple[float, bool]]) -> Said:
    listed = list(pairs)
    return np.array([said for said, _ in listed]), np.array([true for _, true in listed], dtype=np.bool_)


def calibration_error(said: Floats, true: NDArray[np.bool_]) -> float:
    """Return how far what is said is from what is true, on average over ten bins of what is said (ECE).

    >>> calibration_error(np.array([0.25, 0.25, 0.95]), np.array([True, False, True]))
    0.18333333333333335
    """
    places = _bin(said)
    gaps = [abs(float((said - true)[places == place].sum())) for place in range(BINS)]
    return sum(gaps) / max(len(said), 1)


def _bin(said: Floats) -> NDArray[np.intp]:
    return np.minimum((said * BINS).astype(np.intp), BINS - 1)


def say_edges(claims: Iterable[Claim], corrected: bool) -> Said:
    """Return the probability, or the share before correction, of each edge."""
    return _collect((one.probability if corrected else one.share, one.edge) for one in claims)


def say_arrows(claims: Iterable[Claim], corrected: bool) -> Said:
    """Return the same of each arrow that is drawn: that it is in the true graph."""
    return _collect((one.ahead if corrected else one.arrow_share, one.causes) for one in claims if one.arrow)


def say_parents(claims: Iterable[Claim], corrected: bool) -> Said:
    """Return the same for both directions of each pair; without an arrow a redraw counts half for either."""
    listed = list(claims)
    ahead = ((one.ahead if corrected else one.forward, one.causes) for one in listed)
    return _collect((*ahead, *((one.back if corrected else one.backward, one.caused) for one in listed)))


SUBJECTS: Final[dict[str, Callable[[Iterable[Claim], bool], Said]]] = {
    "edges": say_edges,
    "drawn arrows": say_arrows,
    "possible parents": say_parents,
}


_ERRORS: Final = ("pairs", "calibration error before", "after", "Brier before", "after")


def probabilities_page(
    found: Sequence[Found], outside: Sequence[Found], redraws: int, command: str, figure: str | None
) -> str:
    """Write the page."""
    claims = [claim for one in found for claim in one.claims]
    parts = [
        "# Are probabilities of edges and arrows true?",
        f"Shares of {redraws} redraws before the correction, and probabilities after it, on tables of networks that it "
        f"was not fitted on. δ = {DELTA:g}, seeded noise. Made by `{command}`.",
        f"Fitted on: {', '.join(FITTED_ON)} (`dagveil bench probabilities --fit`). Shown on: "
        f"{', '.join(dict.fromkeys(one.case.kind for one in found))}. *random N p* and *gaussian N p* are "
        "random graphs of N columns, any two joined with probability p; *synthetic* tables are as `dagveil plan` makes "
        "them: levels cut from sums, or linear numbers. No constant was fitted on what is shown; that the others are "
        "dense, and that noise and columns count, was decided after looking at tables of both.",
        "A pair counts if the search or a redraw joined it and it has a probability. *Drawn arrows* are right if the "
        "true graph has them. *Possible parents* are both directions of each pair. The calibration error is the mean "
        "distance of what is said from what is true over ten bins, the Brier score the mean square.",
        write_table(("what", *_ERRORS), [_row(name, claims, say) for name, say in SUBJECTS.items()]),
        _describe_targets(found, claims),
    ]
    if figure:
        parts.append(f"![What is said and what is true]({figure})")
    for title, key in (("ε", "epsilon"), ("rows", "rows"), ("network", "kind")):
        parts.append(f"## By {title}")
        groups: dict[object, list[Claim]] = {}
        for claim in claims:
            groups.setdefault(getattr(claim.case, key), []).append(claim)
        for name in ("edges", "drawn arrows"):
            rows = [_row(str(value), group, SUBJECTS[name]) for value, group in groups.items()]
            parts.append(write_table((f"{name}: {title}", *_ERRORS), rows))
    parts.append("## What is said, and what is true")
    for name, say in SUBJECTS.items():
        parts.append(
            write_table((name, "before: pairs", "said", "true", "after: pairs", "said", "true"), _bins(claims, say))
        )
    parts += [
        "## Graphs of likely edges",
        "All pairs with at least this probability, as `--edges-at` draws them.",
        write_table(("edges at", "drawn", "expected to be false", "false"), [_cut(claims, at) for at in THRESHOLDS]),
    ]
    if outside:
        told = [claim for one in outside for claim in one.claims]
        parts += [
            "## Where no probability is stated",
            "Numbers of which only bins are measured: what a column does to others is not all in its bins, so edges "
            "stay that are false. The correction would have said:",
            write_table(("what", *_ERRORS), [_row(name, told, say) for name, say in SUBJECTS.items()]),
        ]
    return "\n\n".join(parts)


def draw_reliability(found: Sequence[Found], path: str | Path) -> None:
    """Draw what is true over what is said, for edges and for possible parents."""
    claims = [claim for one in found for claim in one.claims]
    panels = []
    for name, say in SUBJECTS.items():
        lines = [Line("as said", [(place + 0.5) / BINS for place in range(BINS)])]
        for label, corrected in (("share of redraws", False), ("probability", True)):
            said, true = say(claims, corrected)
            places = [_bin(said) == place for place in range(BINS)]
            lines.append(Line(label, [float(true[here].mean()) if here.sum() >= BINS else None for here in places]))
        panels.append(Panel(name, lines))
    ticks = [f"{(place + 0.5) / BINS:g}" for place in range(BINS)]
    draw_panels(panels, ticks, "said", "true", path, columns=3)


def _row(name: str, claims: Sequence[Claim], say: Callable[[Iterable[Claim], bool], Said]) -> list[str]:
    before, after = (say(claims, corrected) for corrected in (False, True))
    if not len(before[0]):
        return [name, "0", *("–",) * 4]
    errors = [f"{calibration_error(*said):.3f}" for said in (before, after)]
    return [name, str(len(before[0])), *errors, *(f"{_brier(*said):.3f}" for said in (before, after))]


def _brier(said: Floats, true: NDArray[np.bool_]) -> float:
    return float(np.mean((said - true) ** 2))


def _describe_targets(found: Sequence[Found], claims: Sequence[Claim]) -> str:
    """Hold the figures against what was aimed at; all pairs include those of which nothing is said, as if at 0."""
    targets = [("edges, calibration error", 0.05, calibration_error(*say_edges(claims, True)), "")]
    targets.append(("drawn arrows, calibration error", 0.07, calibration_error(*say_arrows(claims, True)), ""))
    for epsilon, target in ((1.0, 0.05), (0.1, 0.09)):
        here = [one for one in found if one.case.epsilon == epsilon]
        if not here:
            continue
        said, true = say_edges([claim for one in here for claim in one.claims], True)
        every = len(said) + sum(one.silent for one in here)
        whole = (float(((said - true) ** 2).sum()) + sum(one.missed for one in here)) / every
        more = f"{whole:.3f} of all {every} pairs, those of which nothing is said counted as 0"
        targets.append((f"edges, Brier at ε = {epsilon:g}", target, _brier(said, true), more))
    rows = [
        (name, f"≤ {aim:g}", f"{got:.3f}", "yes" if got <= aim else f"no, by {got - aim:.3f}", more)
        for name, aim, got, more in targets
    ]
    return write_table(("target", "", "after correction", "met", "beside it"), rows)


def _bins(claims: Sequence[Claim], say: Callable[[Iterable[Claim], bool], Said]) -> list[list[str]]:
    rows = []
    for place in range(BINS):
        row = [f"{place / BINS:g} to {(place + 1) / BINS:g}"]
        for corrected in (False, True):
            said, true = say(claims, corrected)
            here = _bin(said) == place
            row += [str(here.sum()), *(f"{part[here].mean():.3f}" if here.any() else "–" for part in (said, true))]
        rows.append(row)
    return rows


def _cut(claims: Sequence[Claim], at: float) -> list[str]:
    drawn = [claim for claim in claims if claim.probability >= at]
    expected = sum(1.0 - claim.probability for claim in drawn)
    return [f"{at:g}", str(len(drawn)), f"{expected:.1f}", str(sum(not claim.edge for claim in drawn))]

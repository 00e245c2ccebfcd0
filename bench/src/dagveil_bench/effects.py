"""Effects from private evidence against exact do-laws of known networks: error, coverage and width."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.schema import Schema
from dagveil.effects.answer import COVERED, PossibleEffect
from dagveil.effects.components import Components
from dagveil.effects.estimate import EffectEstimator
from dagveil.effects.parents import descendants, list_readings
from dagveil.effects.tables import estimate_law
from dagveil.errors import DagveilError
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import (
    LinearGaussian,
    Network,
    gaussian_schema,
    load_network,
    network_schema,
    random_linear_gaussian,
    sample_codes,
    sample_linear_gaussian,
)
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.effects import effect
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

Floats = NDArray[np.float64]

NETWORKS: Final = ("asia", "sachs", "child", "insurance", "alarm")
COMMON: Final = 0.05
"""Levels of the cause that are rarer are not counted."""
CLIP: Final = 0.1
"""Propensities of the rival's AIPW are cut to [CLIP, 1 − CLIP]."""
LARGEST: Final = 2**24
"""Cells of the largest table on the way to a do-law."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is run: networks, pairs of each, repetitions, rows, ε, and redraws where the graph is unknown."""

    networks: Sequence[str]
    pairs: int
    repetitions: int
    unknown: int
    rows: int
    epsilon: float
    redraws: int


def do_law(network: Network, cause: str, effect: str) -> Floats:
    """Return P(effect | do(cause)), exact: levels of the cause by levels of the effect.

    >>> do_law(load_network("cancer"), "Smoker", "Cancer").round(4).tolist()
    [[0.032, 0.968], [0.0029, 0.9971]]
    """
    needed, waiting = {effect}, [effect]
    while waiting:
        node = waiting.pop()
        for parent in () if node == cause else network.parents[node]:
            if parent not in needed:
                needed.add(parent)
                waiting.append(parent)
    place = {name: i for i, name in enumerate(sorted(needed | {cause}))}
    operands: list[Any] = []
    for node in sorted(needed - {cause}):
        operands += [network.tables[node], [place[name] for name in (*network.parents[node], node)]]
    wanted = [place[name] for name in (cause, effect) if name in needed]
    law = np.einsum(*operands, wanted, optimize=("greedy", LARGEST))
    return np.asarray(law if cause in needed else np.broadcast_to(law, (len(network.levels[cause]), len(law))))


def choose_pairs(dag: Dag, number: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Draw pairs of a cause and a column behind it."""
    found = [(x, y) for x in dag.nodes for y in sorted(descendants(dag, x))]
    chosen = rng.permutation(len(found))[:number]
    return [found[i] for i in sorted(chosen)]


class Tally:
    """Errors and coverages by kind."""

    def __init__(self) -> None:
        self.errors: dict[tuple[str, str], list[tuple[float, float, float, float]]] = defaultdict(list)

    def add(self, where: str, kind: str, error: float, exact: float, covered: bool, width: float) -> None:
        """Keep one estimate: its error, that of the estimate without privacy, whether covered, and its width."""
        self.errors[where, kind].append((error, exact, float(covered), width))

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each network and kind."""
        found: list[tuple[str, ...]] = []
        for (where, kind), values in self.errors.items():
            array = np.array(values)
            rmse, base = np.sqrt((array[:, :2] ** 2).mean(axis=0))
            found.append(
                (where, kind, str(len(array)), f"{100 * rmse:.3f}", f"{100 * base:.3f}", f"{rmse / base:.2f}",
                 f"{array[:, 2].mean():.3f}", f"{100 * array[:, 3].mean():.2f}")
            )  # fmt: skip
        return found


def exact_answer(schema: Schema, codes: Mapping[str, Any], cause: str, effect: str, adjust: Sequence[str]) -> Floats:
    """Return the law that the same estimator gives on the exact counts."""
    counts = count(schema, codes, (cause, effect, *adjust))
    release = NoisyCounts((cause, effect, *adjust), counts.shape, 1, Fraction(1, 10**9), tuple(counts.ravel().tolist()))
    parts = Components({name: schema.columns[name].n_levels for name in schema.columns}, [release])
    return estimate_law(parts, cause, effect, adjust).mean


def count(schema: Schema, codes: Mapping[str, Any], names: Sequence[str]) -> NDArray[np.int64]:
    """Count rows by these columns."""
    shape = [schema.columns[name].n_levels for name in names]
    flat = np.ravel_multi_index([codes[name].astype(np.intp) for name in names], shape)
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape)


def _fresh(schema: Schema, codes: Mapping[str, Any], names: tuple[str, ...], epsilon: float,
           rng: np.random.Generator) -> NoisyCounts:  # fmt: skip
    """Return what `dagveil effect FILE --from` releases: the table with discrete Laplace noise."""
    counts = count(schema, codes, names)
    share = 1.0 - math.exp(-epsilon)
    noise = rng.geometric(share, counts.shape) - rng.geometric(share, counts.shape)
    variance = Fraction(2.0 * (1.0 - share) / share**2)
    return NoisyCounts(names, counts.shape, 1, variance, tuple((counts + noise).ravel().tolist()))


def run_tables(case: Case, progress: Progress) -> tuple[Tally, list[tuple[str, ...]]]:
    """Run all networks of levels: with the true graph, and with the graph unknown."""
    tally, unknown = Tally(), []
    total = len(case.networks) * case.repetitions
    for number, name in enumerate(case.networks):
        network = load_network(name)
        dag = network.dag()
        schema = network_schema(network, case.rows)
        pairs = choose_pairs(dag, case.pairs, np.random.default_rng(number))
        laws = {pair: do_law(network, *pair) for pair in pairs}
        graph = Cpdag(dag.nodes, dag.edges, frozenset())
        hits: list[tuple[bool, bool | None, float, float]] = []
        for repetition in range(case.repetitions):
            rng = np.random.default_rng((number, repetition))
            codes = sample_codes(network, case.rows, rng)
            # the same rows as names, which a run reads
            rows = {node: np.array(network.levels[node], dtype=object)[codes[node]] for node in network.nodes}
            seed = int(rng.integers(2**62))
            evidence = measure_source(rows, schema, case.epsilon, noise=NoiseKind.SEEDED, seed=seed)
            estimator = EffectEstimator(schema, evidence.releases)
            for cause, outcome in pairs:
                (reading,) = list_readings(graph, cause, outcome)
                found = estimator.answer(reading, cause, outcome)
                keep(tally, name, found, found.form, schema, codes, cause, outcome, laws[cause, outcome])
                sets = reading.adjustment or ()
                smallest = min(sets, key=lambda one: math.prod(schema.columns[each].n_levels for each in one))
                fresh = _fresh(schema, codes, (cause, outcome, *sorted(smallest)), case.epsilon, rng)
                again = EffectEstimator(schema, [fresh]).answer_set(cause, outcome, smallest)
                keep(tally, name, again, "fresh table", schema, codes, cause, outcome, laws[cause, outcome])
            if repetition < case.unknown:
                hits += ask_unknown(evidence, pairs, laws, case.redraws)
            progress("effects of networks", number * case.repetitions + repetition + 1, total)
        unknown.append(_summarise(name, hits))
    return tally, unknown


def keep(
    tally: Tally,
    where: str,
    found: PossibleEffect,
    kind: str,
    schema: Schema,
    codes: Mapping[str, Any],
    cause: str,
    effect: str,
    law: Floats,
) -> None:
    """Compare every contrast between common levels of the cause with the truth."""
    if not found.contrasts:
        return
    shares = np.bincount(codes[cause], minlength=len(law)) / len(codes[cause])
    exact = exact_answer(schema, codes, cause, effect, found.adjust)
    effects = schema.columns[effect].labels
    levels = schema.columns[cause].labels
    for one in found.contrasts:
        a, at = levels.index(one.level), effects.index(one.outcome)
        if one.estimate is None or min(shares[a], shares[0]) < COMMON:
            continue
        truth = law[a, at] - law[0, at]
        covered = one.estimate.low <= truth <= one.estimate.high
        width = one.estimate.high - one.estimate.low
        tally.add(where, kind, one.estimate.value - truth, exact[a, at] - exact[0, at] - truth, covered, width)


def ask_unknown(
    evidence: Evidence, pairs: Sequence[tuple[str, str]], laws: Mapping[tuple[str, str], Floats], redraws: int
) -> list[tuple[bool, bool | None, float, float]]:
    """Ask with the graph that the evidence gives whether the truth is in the union, and in the interval of redraws."""
    result = search_evidence(evidence, SearchSettings(redraws=10))
    found = []
    for cause, outcome in pairs:
        try:
            answer = effect(result, cause, outcome, evidence=evidence, redraws=redraws)
        except DagveilError:  # too many readings, say: no answer
            continue
        if answer.union is None:
            continue
        law = laws[cause, outcome]
        truth = float(law[-1, -1] - law[0, -1])
        inside = answer.union.low <= truth <= answer.union.high
        again = None if answer.redrawn is None else answer.redrawn.interval
        drawn = None if again is None else again.low <= truth <= again.high
        wide = math.nan if again is None else again.high - again.low
        found.append((inside, drawn, answer.union.high - answer.union.low, wide))
    return found


def _summarise(name: str, hits: Sequence[tuple[bool, bool | None, float, float]]) -> tuple[str, ...]:
    if not hits:
        return (name, "0", "", "", "", "")
    drawn = [hit[1] for hit in hits if hit[1] is not None]
    return (
        name,
        str(len(hits)),
        f"{np.mean([hit[0] for hit in hits]):.2f}",
        f"{100 * np.mean([hit[2] for hit in hits]):.1f}",
        f"{np.mean(drawn):.2f}" if drawn else "",
        f"{100 * np.nanmean([hit[3] for hit in hits]):.1f}" if drawn else "",
    )


def total_effect(model: LinearGaussian, cause: str, effect: str) -> float:
    """Return the total effect of one unit of the cause.

    >>> weights = np.array([[0.0, 0.5, 0.1], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    >>> round(total_effect(LinearGaussian(("x", "m", "y"), weights, np.ones(3)), "x", "y"), 6)
    1.1
    """
    reached = np.linalg.inv(np.eye(len(model.nodes)) - model.weights)
    return float(reached[model.nodes.index(cause), model.nodes.index(effect)])


def run_linear(case: Case, progress: Progress, nodes: int = 10, models: int = 4) -> Tally:
    """Run random linear Gaussian networks with the true graph."""
    tally = Tally()
    for number, repetition in product(range(models), range(case.repetitions)):
        model = random_linear_gaussian(nodes, 0.3, np.random.default_rng(100 + number))
        dag = model.dag()
        pairs = choose_pairs(dag, case.pairs, np.random.default_rng(number))
        rng = np.random.default_rng((100 + number, repetition))
        rows = sample_linear_gaussian(model, case.rows, rng)
        schema = gaussian_schema(model, case.rows)
        table = {name: rows[:, i] for i, name in enumerate(model.nodes)}
        seed = int(rng.integers(2**62))
        evidence = measure_source(table, schema, case.epsilon, noise=NoiseKind.SEEDED, seed=seed)
        estimator = EffectEstimator(schema, evidence.releases)
        graph = Cpdag(dag.nodes, dag.edges, frozenset())
        for cause, outcome in pairs:
            (reading,) = list_readings(graph, cause, outcome)
            found = estimator.answer(reading, cause, outcome)
            estimate = found.contrasts[0].estimate
            if estimate is None:
                continue
            truth = total_effect(model, cause, outcome)
            design = np.column_stack([np.ones(len(rows)), table[cause], *(table[name] for name in found.adjust)])
            exact = float(np.linalg.lstsq(design, table[outcome], rcond=None)[0][1])
            scale = 1.0 / 100.0  # in units of the effect, not in points
            covered = estimate.low <= truth <= estimate.high
            error, width = estimate.value - truth, estimate.high - estimate.low
            tally.add(f"{nodes} columns", found.form, scale * error, scale * (exact - truth), covered, scale * width)
        progress("linear networks", number * case.repetitions + repetition + 1, models * case.repetitions)
    return tally


def rival_widths(rows: int, epsilon: float, effects: Sequence[int]) -> list[tuple[str, ...]]:
    """Widths by formula, for a yes/no cause and effect, all shares one half, no adjustment, in points.

    Ours: one table of all 2⁸ cells, which gives every effect. A rival spends ε anew, so each of k effects has ε/k: AIPW
    with propensities cut at CLIP has a score of at most 1/CLIP, and Laplace noise of scale 2/(CLIP n ε/k).
    """
    found = []
    sampling = 4.0 * 0.25 / rows
    for k in effects:
        # a cell of (x, y) sums 64 of 256 cells; each arm's share moves by noise (1/2, −1/2) / (rows / 2)
        ours = sampling + 2.0 * (64 * 2.0 / epsilon**2) * (0.25 + 0.25) / (rows / 2) ** 2
        aipw = sampling + 2.0 * (2.0 / (CLIP * rows * epsilon / k)) ** 2
        means = sampling + 2.0 * (2.0 * (4.0 * k / epsilon) ** 2) * 0.5 / (rows / 2) ** 2
        widths = [f"{200 * COVERED * math.sqrt(one):.2f}" for one in (sampling, ours, aipw, means)]
        found.append((str(rows), f"{epsilon:g}", str(k), *widths))
    return found

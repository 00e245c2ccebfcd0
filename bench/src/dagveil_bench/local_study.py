"""The study of local privacy: algorithms on records that four mechanisms have randomised, at equal p_max.

p_max is the probability that the true *record* is reported, so an attacker without prior knowledge guesses a record
equally well whatever the mechanism (section 4 of the publication). That is not an equal ε of local privacy: the exact
one stands beside each outcome, and one mechanism more is geometric noise at the ε of randomised response.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final
from zlib import crc32

import numpy as np

from dagveil.errors import MethodError
from dagveil.evaluation.reversals import count_wrong_edges
from dagveil.evaluation.skeleton import skeleton_f1
from dagveil.graphs.dag import Dag
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.record import (
    Integers,
    Norm,
    RecordChannel,
    Split,
    combined_response,
    component_wise_geometric,
    geometric_of_truth,
    response_of_truth,
)
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil_bench.local_algorithms import COMPARISONS, GRAPH_SEARCHES, Records, search_named
from dagveil_bench.local_data import DATA_SETS, StudyData, load_study_data
from dagveil_bench.local_pairs import PAIR_SETS, CausePair, load_pairs

Told = Callable[[str, int, int], None]

PAIRS_PER_JOB: Final = 20


class Mechanism(enum.Enum):
    """How records are randomised."""

    NONE = "no noise"
    GEOMETRIC_COLUMNS = "Geo C-wise"
    GEOMETRIC_COMBINED = "Geo Comb"
    RESPONSE_COLUMNS = "k-RR C-wise"
    RESPONSE_COMBINED = "k-RR Comb"
    GEOMETRIC_MATCHED = "Geo C-wise at the ε of k-RR C-wise"
    """Not in the publication; for graphs only."""

    @property
    def word(self) -> str:
        """Name of the mechanism in studies.

        Examples
        --------
        >>> Mechanism.RESPONSE_COMBINED.word
        'response-combined'
        """
        return self.name.lower().replace("_", "-")


NOISY: Final = tuple(mechanism for mechanism in Mechanism if mechanism is not Mechanism.NONE)
PUBLISHED: Final = tuple(mechanism for mechanism in NOISY if mechanism is not Mechanism.GEOMETRIC_MATCHED)


@dataclass(frozen=True, slots=True)
class Setting:
    """What was run: data set, mechanism and p_max; without noise p_max is 1.

    `most_rows` and `most_bins` bound pairs only.
    """

    data: str
    mechanism: Mechanism
    truth: float
    most_rows: int = 1000
    most_bins: int = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of one algorithm.

    Attributes
    ----------
    setting
        What was run.
    item
        Name of the data set, or of the pair.
    algorithm
        Name.
    epsilon
        Exact ε of local privacy of the channel, per record; infinite without noise.
    run, seed
        Number of the run, and the seed of its noise.
    shd, f1
        Of a graph; NaN for a pair.
    right, weight
        Of a pair: 1 for the right direction, ½ for none; NaN for a graph.
    """

    setting: Setting
    item: str
    algorithm: str
    epsilon: float
    run: int
    seed: int
    shd: float = math.nan
    f1: float = math.nan
    right: float = math.nan
    weight: float = math.nan


def list_settings(
    data: Sequence[str], truths: Sequence[float], most_rows: int = 1000, most_bins: int = 20
) -> list[Setting]:
    """Return every data set without noise, then with each mechanism at each p_max."""
    for name in data:
        if name not in DATA_SETS and name not in PAIR_SETS:
            raise MethodError(f"no data set is called {name!r}; there are: {', '.join((*DATA_SETS, *PAIR_SETS))}")
    for truth in truths:
        if not 0.0 < truth < 1.0:
            raise MethodError(f"p_max is {truth:g}; choose numbers between 0 and 1")
    settings = []
    for name in data:
        noisy = product(PUBLISHED if name in PAIR_SETS else NOISY, truths)
        settings += [
            Setting(name, mechanism, truth, most_rows, most_bins)
            for mechanism, truth in [(Mechanism.NONE, 1.0), *noisy]
        ]
    return settings


def make_channel(mechanism: Mechanism, levels: Sequence[int], truth: float) -> RecordChannel:
    """Return the channel that reports the true record with this probability, or blindly if that is more.

    Columns share as published: ε of randomised response in proportion to their levels.

    Examples
    --------
    >>> round(make_channel(Mechanism.RESPONSE_COLUMNS, (3, 3), 0.5).truth(), 6)
    0.5
    """
    truth = max(truth, 1.0 / math.prod(levels))
    match mechanism:
        case Mechanism.GEOMETRIC_COLUMNS:
            return geometric_of_truth(levels, truth, Split.BY_LEVELS)
        case Mechanism.GEOMETRIC_COMBINED:
            return CombinedGeometric(tuple(levels), truth, Norm.EUCLIDEAN)
        case Mechanism.RESPONSE_COLUMNS:
            return response_of_truth(levels, truth, Split.BY_LEVELS)
        case Mechanism.RESPONSE_COMBINED:
            return combined_response(levels, truth)
        case Mechanism.GEOMETRIC_MATCHED:
            epsilon = response_of_truth(levels, truth, Split.BY_LEVELS).epsilon()
            return component_wise_geometric(levels, epsilon, Split.BY_LEVELS)
        case Mechanism.NONE:
            raise MethodError("without noise there is no channel; choose a mechanism")


def score_search(algorithm: str, records: Records, truth: Dag, seed: int) -> tuple[float, float]:
    """Return the wrong edges of an algorithm's graph, and its skeleton's F1; the seed is for those that draw."""
    rng = np.random.default_rng([seed % 2**63, crc32(algorithm.encode())])
    found = search_named(algorithm)(records, rng)
    return float(count_wrong_edges(found, truth)), skeleton_f1(found, truth)


def score_direction(rule: str, codes: Integers) -> float:
    """Return 1 if a rule takes the first of two columns for the cause, 0 if the second, ½ if neither."""
    cause, effect = codes.T.astype(np.float64)
    return 0.5 + 0.5 * float(np.sign(COMPARISONS[rule](cause, effect)))


def run_local_study(
    settings: Sequence[Setting], runs: int, seed: int, workers: int, told: Told, algorithms: Sequence[str] | None = None
) -> list[Outcome]:
    """Run every setting so many times, on several processes.

    Parameters
    ----------
    settings
        What to run.
    runs
        Draws of the noise; without noise there is one.
    seed
        Of the whole study; that of each draw follows from it and from the setting.
    workers
        Processes.
    told
        Told after each job.
    algorithms
        Names; None takes all.
    """
    known = (*GRAPH_SEARCHES, *COMPARISONS)
    chosen = tuple(known if algorithms is None else algorithms)
    for name in chosen:
        if name not in known:
            raise MethodError(f"no algorithm is called {name!r}; there are: {', '.join(known)}")
    jobs: list[_Job] = []
    for setting in settings:
        parts = [slice(0, 0)]
        if setting.data in PAIR_SETS:
            count = len(pairs_of(setting.data, setting.most_rows, setting.most_bins))
            parts = [slice(start, start + PAIRS_PER_JOB) for start in range(0, count, PAIRS_PER_JOB)]
        draws = 1 if setting.mechanism is Mechanism.NONE else runs
        jobs += [_Job(setting, part.start, part.stop, draws, seed, chosen) for part in parts]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for done, found in enumerate(pool.map(_run_job, jobs, chunksize=1), start=1):
            outcomes += found
            told("settings", done, len(jobs))
    return outcomes


@dataclass(frozen=True, slots=True)
class _Job:
    setting: Setting
    first_pair: int
    last_pair: int
    runs: int
    seed: int
    algorithms: tuple[str, ...]


def _run_job(job: _Job) -> list[Outcome]:
    setting = job.setting
    if setting.data in PAIR_SETS:
        pairs = pairs_of(setting.data, setting.most_rows, setting.most_bins)
        return [outcome for pair in pairs[job.first_pair : job.last_pair] for outcome in _run_pair(job, pair)]
    return _run_graph(job, load_study_data(setting.data))


def _run_graph(job: _Job, data: StudyData) -> list[Outcome]:
    outcomes = []
    for run, seed, epsilon, codes in _randomise(job, data.name, data.levels, data.codes):
        records = Records(data.truth.nodes, data.levels, codes)
        for name in job.algorithms:
            if name in GRAPH_SEARCHES:
                shd, f1 = score_search(name, records, data.truth, seed)
                outcomes.append(Outcome(job.setting, data.name, name, epsilon, run, seed, shd, f1))
    return outcomes


def _run_pair(job: _Job, pair: CausePair) -> list[Outcome]:
    outcomes = []
    for run, seed, epsilon, codes in _randomise(job, pair.name, pair.levels, pair.codes):
        for name in job.algorithms:
            if name in COMPARISONS:
                right = score_direction(name, codes)
                outcome = Outcome(job.setting, pair.name, name, epsilon, run, seed, right=right, weight=pair.weight)
                outcomes.append(outcome)
    return outcomes


def _randomise(job: _Job, item: str, levels: Sequence[int], codes: Integers) -> list[tuple[int, int, float, Integers]]:
    """Return number, seed, ε and reports of each run."""
    setting = job.setting
    if setting.mechanism is Mechanism.NONE:
        return [(0, job.seed, math.inf, codes)]
    channel = make_channel(setting.mechanism, levels, setting.truth)
    epsilon = channel.epsilon()
    drawn = []
    for run in range(job.runs):
        key = [job.seed, run, crc32(f"{item} {setting.mechanism.value}".encode()), round(setting.truth * 1e6)]
        seed = int(np.random.default_rng(key).integers(2**53))
        drawn.append((run, seed, epsilon, channel.report(codes, noise_source(NoiseKind.SEEDED, seed))))
    return drawn


@lru_cache(maxsize=2)
def pairs_of(name: str, most_rows: int, most_bins: int) -> list[CausePair]:
    """Return the pairs of a set as `load_pairs` does, and remember them: a process runs many jobs on them."""
    return load_pairs(name, most_rows, most_bins)

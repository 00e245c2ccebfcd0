"""Randomised records as a data set of studies: "sachs geometric-columns", or with bins "pairs response-combined 20".

With the word "ibu" at its end, as in "galton geometric-columns ibu", records are drawn from the law that the iterative
Bayesian update finds behind the reports, as many as there are reports.

p_max is the probability that the true *record* is reported, so an attacker without prior knowledge guesses a record
equally well whatever the mechanism (section 4 of the publication). That is not an equal ε of local privacy: the exact
one stands beside each outcome, and one mechanism more is geometric noise at the ε of randomised response.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

import numpy as np

from dagveil.errors import DataError, MethodError
from dagveil.evaluation.comparison import check_same_nodes, skeleton_f1
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.pag import Mark, MixedGraph
from dagveil.local import record
from dagveil.local.channel import Integers
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.law import update_reports
from dagveil.local.reports import Reports
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil_bench.local_algorithms import COMPARISONS, Records, search_named
from dagveil_bench.local_data import (
    DATA_SETS,
    PAIR_SETS,
    SEED,
    StudyData,
    check_installed,
    load_pairs,
    load_study_data,
)


def count_wrong_edges(found: MixedGraph, truth: Dag) -> int:
    """Return missing, redundant and reversed edges together.

    An edge is reversed if it has an arrowhead at the true cause. An edge without a direction, or with a circle there,
    leaves the question open and counts 0, so graphs with any marks can be compared with one DAG.
    """
    check_same_nodes(found, truth)
    differing = len(found.skeleton() ^ truth.skeleton())
    return differing + sum(found.mark(effect, cause) is Mark.ARROW for cause, effect in truth.edges)


MOST_BINS = 20  # bins of each column of a pair, unless the source says otherwise


class Mechanism(enum.Enum):
    """How records are randomised: geometric noise or randomised response, by columns or on whole records."""

    GEOMETRIC_COLUMNS = "geometric-columns"
    GEOMETRIC_COMBINED = "geometric-combined"
    RESPONSE_COLUMNS = "response-columns"
    RESPONSE_COMBINED = "response-combined"
    GEOMETRIC_MATCHED = "geometric-matched"  # by columns at the ε of randomised response; not in the publication


@dataclass(frozen=True, slots=True)
class LocalSource:
    """What is randomised, and how; bins are for pairs only, the update is for data sets of few cells only."""

    data: str
    mechanism: Mechanism
    bins: int = MOST_BINS
    is_updated: bool = False

    @property
    def is_pairs(self) -> bool:
        """Whether these are cause-effect pairs, and not one graph."""
        return self.data in PAIR_SETS


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """Randomised records with their exact ε, and the true graph, or the weight of a pair whose first column causes."""

    records: Records
    epsilon: float
    truth: Dag | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class LocalScores:
    """What an algorithm made of randomised records: wrong edges and F1 of a graph, or the weighted accuracy of pairs.

    `epsilon` is the exact one of local privacy per record, the median over pairs; infinite without noise.
    """

    epsilon: float
    wrong_edges: float = math.nan
    f1: float = math.nan
    accuracy: float = math.nan


def read_source(text: str) -> LocalSource:
    """Read data set, mechanism and, for pairs, bins."""
    known = {mechanism.value: mechanism for mechanism in Mechanism}
    words = text.split()
    data, mechanism, rest = *(*words, "", "")[:2], words[2:]
    if data not in DATA_SETS and data not in PAIR_SETS:
        raise MethodError(f"no data set is called {data!r}; there are: {', '.join((*DATA_SETS, *PAIR_SETS))}")
    if mechanism not in known:
        raise MethodError(f"{text!r} needs a mechanism after the data set; there are: {', '.join(known)}")
    if not rest or (rest == ["ibu"] and data not in PAIR_SETS):
        return LocalSource(data, known[mechanism], is_updated=bool(rest))
    if data not in PAIR_SETS or len(rest) > 1 or not rest[0].isdecimal() or not 2 <= int(rest[0]) <= 100:
        raise MethodError(
            f"{text!r} has words that nothing reads; pairs may have a number of bins between 2 and 100, such as "
            f"'pairs {mechanism} 20', and other data sets the word ibu"
        )
    return LocalSource(data, known[mechanism], int(rest[0]))


def check_local_source(text: str) -> None:
    """Refuse a source that does not exist or is not installed, before a study starts."""
    check_installed(read_source(text).data)


def check_algorithm(name: str, sources: list[LocalSource]) -> None:
    """Refuse an algorithm that does not exist or does not fit what it is run on."""
    if name not in COMPARISONS:
        try:
            search_named(name)
        except MethodError as error:
            raise MethodError(f"{error}; and for pairs: {', '.join(COMPARISONS)}") from error
    for source in sources:
        if source.is_pairs != (name in COMPARISONS):
            need = "pairs" if name in COMPARISONS else "a data set with one graph"
            raise MethodError(f"{name} needs {need}, and {source.data} is not; name its data sets under data")


def load_records(name: str, n_rows: int) -> StudyData:
    """Return so many records of a data set, drawn with a public seed where there are more."""
    data = _load(name)
    present = len(data.codes)
    if n_rows > present:
        raise DataError(f"{name} has {present} records, and the study wants {n_rows} rows; write {present} or fewer")
    if n_rows == present:
        return data
    rows = np.sort(np.random.default_rng([SEED, n_rows]).choice(present, n_rows, replace=False))
    return replace(data, codes=data.codes[rows])


@lru_cache(maxsize=16)
def randomise(source: LocalSource, truth: float | None, n_rows: int, seed: int) -> tuple[Reported, ...]:
    """Send records through the channel of a mechanism: those of one graph, or at most `n_rows` of each pair.

    With the same seed and p_max the same reports are drawn, whoever searches them; p_max is None to report all
    truthfully. The latest reports are remembered, since several algorithms search the same ones.
    """
    if not source.is_pairs:
        data = load_records(source.data, n_rows)
        epsilon, codes = _report(source.mechanism, truth, data.levels, data.codes, seed, 0)
        if source.is_updated and truth is not None:
            codes = draw_updated(codes, _make_channel(source.mechanism, data.levels, truth), seed)
        return (Reported(Records(data.truth.nodes, data.levels, codes), epsilon, data.truth),)
    found = []
    for number, pair in enumerate(_pairs_of(source.data, n_rows, source.bins)):
        epsilon, codes = _report(source.mechanism, truth, pair.levels, pair.codes, seed, number)
        found.append(Reported(Records(("cause", "effect"), pair.levels, codes), epsilon, weight=pair.weight))
    return tuple(found)


def draw_updated(codes: Integers, channel: record.RecordChannel, seed: int) -> Integers:
    """Draw as many records as there are reports from the likeliest law behind them."""
    law = update_reports(Reports.of(codes), channel, range(len(channel.levels)))
    cells = np.random.default_rng([seed, 1]).choice(law.size, len(codes), p=law.reshape(-1) / law.sum())
    return np.stack(np.unravel_index(cells, law.shape), axis=1).astype(np.int64)


def search_reports(algorithm: str, reports: Sequence[Reported], seed: int) -> LocalScores:
    """Let an algorithm search reports as if they were records; the seed is for those that draw."""
    epsilon = float(np.median([report.epsilon for report in reports]))
    first = reports[0]
    if first.truth is not None:
        wrong, f1 = score_search(algorithm, first.records, first.truth, seed)
        return LocalScores(epsilon, wrong_edges=wrong, f1=f1)
    right = [score_direction(algorithm, report.records.codes) for report in reports]
    return LocalScores(epsilon, accuracy=float(np.average(right, weights=[report.weight for report in reports])))


def make_channel(mechanism: Mechanism, levels: Sequence[int], truth: float) -> record.RecordChannel:
    """Return the channel that reports the true record with this probability, or blindly if that is more.

    Columns share as published: ε of randomised response in proportion to their levels.
    """
    truth = max(truth, 1.0 / math.prod(levels))
    match mechanism:
        case Mechanism.GEOMETRIC_COLUMNS:
            return record.geometric_of_truth(levels, truth, record.Split.BY_LEVELS)
        case Mechanism.GEOMETRIC_COMBINED:
            return CombinedGeometric(tuple(levels), truth, record.Norm.EUCLIDEAN)
        case Mechanism.RESPONSE_COLUMNS:
            return record.response_of_truth(levels, truth, record.Split.BY_LEVELS)
        case Mechanism.RESPONSE_COMBINED:
            return record.combined_response(levels, truth)
        case Mechanism.GEOMETRIC_MATCHED:
            epsilon = record.response_of_truth(levels, truth, record.Split.BY_LEVELS).epsilon()
            return record.component_wise_geometric(levels, epsilon, record.Split.BY_LEVELS)


def score_search(algorithm: str, records: Records, truth: Dag, seed: int) -> tuple[float, float]:
    """Return the wrong edges of an algorithm's graph, and its skeleton's F1; the seed is for those that draw."""
    rng = np.random.default_rng([seed % 2**63, crc32(algorithm.encode())])
    found = search_named(algorithm)(records, rng)
    return float(count_wrong_edges(found, truth)), skeleton_f1(found, truth)


def score_direction(rule: str, codes: Integers) -> float:
    """Return 1 if a rule takes the first of two columns for the cause, 0 if the second, ½ if neither."""
    cause, effect = codes.T.astype(np.float64)
    return 0.5 + 0.5 * float(np.sign(COMPARISONS[rule](cause, effect)))


def _report(
    mechanism: Mechanism, truth: float | None, levels: tuple[int, ...], codes: Integers, seed: int, number: int
) -> tuple[float, Integers]:
    if truth is None:
        return math.inf, codes
    # channels of wide records are slow to make, and there are few of them; those of pairs are many and large
    channel = (_make_channel if len(levels) > 2 else make_channel)(mechanism, levels, truth)
    drawn = int(np.random.default_rng([seed, number, round(truth * 1e6)]).integers(2**53))
    return channel.epsilon(), channel.report(codes, noise_source(NoiseKind.SEEDED, drawn))


# what is remembered, because a process runs many jobs on it
_make_channel = lru_cache(maxsize=16)(make_channel)
_load = lru_cache(maxsize=2)(load_study_data)
_pairs_of = lru_cache(maxsize=2)(load_pairs)

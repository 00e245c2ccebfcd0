"""Attacks on what many runs told: telling two neighbours apart, and telling who was in a table.

Distinguishing chooses the best event on every other run and judges on the others. Membership inference knows the rest
of the table only from a public model; how well an (epsilon, delta) promise lets anyone tell is proved in docs/audit.md.
"""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, expit, logsumexp, ndtri
from scipy.stats import rankdata

from dagveil.audit import neighbours
from dagveil.audit.recording import Exchange, Recording, Rule
from dagveil.audit.replay import RepeatableRun, read_course
from dagveil.audit.runs import AttackJob, BlockStore, Rows, seed_run, work_through
from dagveil.audit.search import Floats
from dagveil.audit.transcript import read_graph, weigh_choice, weigh_rounds
from dagveil.data.memory import MemoryTable
from dagveil.errors import DataError
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method, method_named
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialChoice,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
)
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import bound_advantage
from dagveil.progress import Progress, silent

CONFIDENCE: Final = 0.95  # probability, at least, with which a bound is below the true epsilon
RIDGE: Final = 1e-3  # added to the variances of standardised features, so that constant ones do no harm
FEWEST_RUNS: Final = 8
# events are chosen at this confidence, above that of the verdict: the best of many thresholds was also lucky
CHOICE_CONFIDENCE: Final = 0.99
DRAWS: Final = 200_000
FEWEST_DRAWS: Final = 200  # rarer events are left out: their probabilities would be guesses


def find_rates(hits: ArrayLike, runs: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's bounds of a probability, each of which fails with half of 1 − confidence."""
    failing = (1.0 - confidence) / 2.0
    counts = np.asarray(hits, dtype=np.float64)
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1.0), runs - counts + 1.0, failing), 0.0)
    misses = runs - counts
    high = np.where(misses > 0, betaincinv(counts + 1.0, np.maximum(misses, 1.0), 1.0 - failing), 1.0)
    return low, high


def bound_epsilon(
    hits: ArrayLike, other_hits: ArrayLike, runs: int, other_runs: int, delta: float, confidence: float = CONFIDENCE
) -> Floats:
    """Return the epsilon that an event proves: ln((p − delta)/q) at the unlucky ends, at one joint confidence."""
    low, _ = find_rates(hits, runs, confidence)
    _, high = find_rates(other_hits, other_runs, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(low > delta, np.maximum(np.log((low - delta) / high), 0.0), 0.0))


def find_ceiling(runs: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest bound that so many judged runs on each table can give, about ln(runs/3.7)."""
    return float(bound_epsilon(runs, 0, runs, runs, delta, confidence)) if runs > 0 else 0.0


class Attack(msgspec.Struct, frozen=True):
    """What a distinguishing attack proved."""

    bound: float  # a lower bound on epsilon that holds with 95 % confidence; 0 if nothing was proved
    ceiling: float  # the largest that so many runs could have proved
    runs: int  # judged, on each table
    hits: int  # of the event, on the table where it is likelier
    other_hits: int  # on the other one
    event: str


class _Event(NamedTuple):
    weights: Floats
    threshold: float
    above: bool
    on_second: bool
    promise: float
    words: str


def distinguish(first: Floats, second: Floats, names: tuple[str, ...], delta: float) -> Attack:
    """Choose the best event on every other run, by a feature or a linear score of all, and judge on the others."""
    if min(len(first), len(second)) < FEWEST_RUNS or first.shape[1] != second.shape[1]:
        raise DataError(f"an attack needs at least {FEWEST_RUNS} runs on each table, with the same features")
    event = _choose(first[::2], second[::2], names, delta)
    likely, rare = (second[1::2], first[1::2]) if event.on_second else (first[1::2], second[1::2])
    hits, other_hits = (
        int(((rows @ event.weights >= event.threshold) == event.above).sum()) for rows in (likely, rare)
    )
    bound = float(bound_epsilon(hits, other_hits, len(likely), len(rare), delta))
    runs = min(len(likely), len(rare))
    return Attack(bound, find_ceiling(runs, delta), runs, hits, other_hits, event.words)


def _choose(first: Floats, second: Floats, names: tuple[str, ...], delta: float) -> _Event:
    candidates = list(zip(np.eye(first.shape[1]), names, strict=True))
    if len(candidates) > 1:
        candidates.append((_fit_score(first, second), "a linear score of all features"))
    events = [_choose_threshold(first, second, weights, name, delta) for weights, name in candidates]
    return max(events, key=lambda event: event.promise)


def _fit_score(first: Floats, second: Floats) -> Floats:
    """Return the direction in which the means differ most against the spread: Fisher's discriminant."""
    both = np.vstack([first, second])
    scale = np.maximum(both.std(axis=0), 1e-12)
    left, right = first / scale, second / scale
    spread = (np.cov(left.T) + np.cov(right.T)) / 2.0 + RIDGE * np.eye(first.shape[1])
    return np.asarray(np.linalg.solve(spread, right.mean(axis=0) - left.mean(axis=0)) / scale)


def _choose_threshold(first: Floats, second: Floats, weights: Floats, name: str, delta: float) -> _Event:
    """Return the threshold, the side of it and the table for which the runs at hand prove most."""
    one, other = np.sort(first @ weights), np.sort(second @ weights)
    thresholds = np.unique(np.concatenate([one, other]))
    below_one = np.searchsorted(one, thresholds, side="left")
    below_other = np.searchsorted(other, thresholds, side="left")
    best = _Event(weights, float(thresholds[0]), True, False, -1.0, "")
    for above in (True, False):
        hits = (len(one) - below_one, len(other) - below_other) if above else (below_one, below_other)
        for on_second in (False, True):
            likely, rare = (hits[1], hits[0]) if on_second else hits
            runs = (len(other), len(one)) if on_second else (len(one), len(other))
            promises = bound_epsilon(likely, rare, *runs, delta, CHOICE_CONFIDENCE)
            place = int(promises.argmax())
            if promises[place] > best.promise:
                threshold = float(thresholds[place])
                words = f"{name} {'at least' if above else 'below'} {threshold:.6g}"
                best = _Event(weights, threshold, above, on_second, float(promises[place]), words)
    return best


def find_reachable(events: Sequence[Event], runs: int, delta: float, seed: int = 0) -> float:
    """Return the epsilon that the best attack is expected to prove with so many judged runs on each table.

    Every charge is taken for the worst mechanism that it covers: Gaussian noise on answers that move by the whole
    declared change, and a randomised response for a charge of pure epsilon. Their composition is the worst that the
    accounting allows, so no attack on the method can be expected to do better.
    """
    if runs <= 0:
        return 0.0
    rng = np.random.default_rng(seed)
    found = 0.0
    for mirrored in (False, True):
        first, second = (draw_losses(events, on_second, mirrored, rng) for on_second in (False, True))
        found = max(found, _prove(second, runs, delta), _prove(-first, runs, delta))
        if not any(isinstance(event, SubsampledGaussian) for event in events):
            break  # all others look the same from both sides
    return found


def draw_losses(events: Sequence[Event], on_second: bool, mirrored: bool, rng: np.random.Generator) -> Floats:
    """Draw log-likelihood ratios of the worst composition, second table over first, from runs on either table."""
    sign = 1.0 if on_second else -1.0
    gaussian = [event for event in events if isinstance(event, DiscreteGaussian)]
    squared = math.fsum(float(event.squared_sensitivity / event.variance) for event in gaussian)
    losses = sign * squared / 2.0 + math.sqrt(squared) * rng.standard_normal(DRAWS)
    for event in events:
        if isinstance(event, DiscreteLaplace | SparseVectorRound | SmoothLaplace):
            losses += sign * _draw_bits(float(event.epsilon), 1, rng)
        elif isinstance(event, ExponentialChoice):  # more than its range of epsilon, but no less on either side
            losses += sign * _draw_bits(float(event.epsilon), event.draws, rng)
        elif isinstance(event, SubsampledGaussian):
            losses += _draw_sampled(event, on_second, mirrored, rng)
    return losses


def _draw_bits(epsilon: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw the loss of so many bits, each of which tells the truth with the odds e^epsilon."""
    return np.asarray(epsilon * (2.0 * rng.binomial(count, expit(epsilon), DRAWS) - count), dtype=np.float64)


def _draw_sampled(event: SubsampledGaussian, on_second: bool, mirrored: bool, rng: np.random.Generator) -> Floats:
    """Draw the loss of Gaussian noise on a Poisson sub-sample; mirrored, the record is on the first table."""
    rate, shift = float(event.rate), math.sqrt(float(event.squared_sensitivity / event.variance))
    has_record = on_second != mirrored
    taken = rng.random(DRAWS) < (rate if has_record else 0.0)
    answers = rng.standard_normal(DRAWS) + shift * taken
    ratio = np.log1p(rate * np.expm1(shift * answers - shift**2 / 2.0))
    return -ratio if mirrored else ratio


def _prove(losses: Floats, runs: int, delta: float) -> float:
    """Return the best bound over events "loss ≥ t"; elsewhere they have probability E[exp(−loss)] over the event."""
    ordered = np.sort(losses)[::-1]
    # an event takes all draws that are equal
    last = np.flatnonzero(np.append(np.diff(ordered) < 0.0, True))
    last = last[last >= FEWEST_DRAWS]
    last = last[:: max(1, len(last) // 2000)]
    p = (last + 1.0) / DRAWS
    q = np.minimum(np.cumsum(np.exp(-ordered))[last] / DRAWS, 1.0)
    return float(bound_epsilon(runs * p, runs * q, runs, runs, delta).max(initial=0.0))


PENALTY: Final = 1.0  # ridge penalty of the logistic score, on standardised features
_ROUNDS: Final = 25
Replays = Sequence[Sequence[Exchange]]
_GAUSSIAN: Final = frozenset({Rule.WEIGHTED_SQUARES, Rule.SAMPLED})
_LAPLACE: Final = frozenset({Rule.SCALED_SIZES, Rule.SMOOTH})
# tables of the model from which an attacker learns what answers are to be expected, with the record and without
REFERENCES: Final = 4
BLOCK: Final = 20  # trials that are done and kept together; in every other one the record is a member
FEWEST_TRIALS: Final = 40
ANSWERS: Final = "answers"
GRAPH: Final = "graph"


class Interval(NamedTuple):
    """A value, and the ends between which it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def bound_auc(epsilon: float, delta: float) -> float:
    """Return the largest area under a curve of both rates that (epsilon, delta) allows."""
    # the region's upper edge: (0, delta), (f, 1 − f), (1 − delta, 1), (1, 1)
    f = (1.0 - delta) * float(expit(-epsilon))
    return min(1.0, (delta + 1.0 - f) * f / 2.0 + (2.0 - f) * (1.0 - delta - f) / 2.0 + delta)


def measure_auc(members: Floats, others: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Return the area under the curve with DeLong's interval."""
    m, n = len(members), len(others)
    both = rankdata(np.concatenate([members, others]))
    over_others = (both[:m] - rankdata(members)) / n
    under_members = 1.0 - (both[m:] - rankdata(others)) / m
    area = float(over_others.mean())
    spreads = [
        (float(part.var(ddof=1)) if len(part) > 1 else 0.25) / len(part) for part in (over_others, under_members)
    ]
    reach = float(ndtri(0.5 + confidence / 2.0)) * math.sqrt(sum(spreads))
    return Interval(area, max(0.0, area - reach), min(1.0, area + reach))


def choose_threshold(members: Floats, others: Floats) -> float:
    """Return the score from which on a record is best called a member."""
    thresholds = np.unique(np.concatenate([members, others]))
    below = [np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores) for scores in (members, others)]
    gains = (1.0 - below[0]) - (1.0 - below[1])
    return float(thresholds[int(gains.argmax())])


def measure_advantage(members: Floats, others: Floats, threshold: float, confidence: float = CONFIDENCE) -> Interval:
    """Return true less false positive rate at a threshold chosen elsewhere, by Clopper and Pearson's bounds."""
    found = []
    for scores in (members, others):
        hits = int((scores >= threshold).sum())
        ends = find_rates(hits, len(scores), (1.0 + confidence) / 2.0)
        found.append(Interval(hits / len(scores), *map(float, ends)))
    yes, no = found
    return Interval(yes.value - no.value, yes.low - no.high, yes.high - no.low)


def fit_logistic(features: Floats, is_member: NDArray[np.bool_]) -> Floats:
    """Return the weights of a logistic score, fitted with a ridge penalty; more speaks for a member."""
    scale = np.maximum(features.std(axis=0), 1e-12)
    x = np.column_stack([np.ones(len(features)), (features - features.mean(axis=0)) / scale])
    penalty = PENALTY * np.eye(x.shape[1])
    weights = np.zeros(x.shape[1])
    for _ in range(_ROUNDS):
        chance = expit(x @ weights)
        slope = x.T @ (is_member - chance) - penalty @ weights
        curvature = (x * (chance * (1.0 - chance))[:, None]).T @ x + penalty
        weights = weights + np.linalg.solve(curvature, slope)
    # constant features carry no weight
    return np.asarray(np.where(features.std(axis=0) > 0.0, weights[1:] / scale, 0.0))


def weigh_transcript(told: Sequence[Exchange], without: Replays, with_record: Replays) -> float:
    """Return the score of a run: the larger, the more its answers look as if the record had been there.

    The replays on reference tables, without the record and with it, say by their means where an answer is to be
    expected, and by their spread how far the unknown rest of the table moves it.
    """
    score = 0.0
    for place, exchange in enumerate(told):
        if exchange.refusal is None:
            score += _weigh(exchange, [run[place] for run in without], [run[place] for run in with_record])
    rounds = [[weigh_rounds(told, run) for run in runs] for runs in (without, with_record)]
    return score + float(logsumexp(rounds[1]) - logsumexp(rounds[0]))


def _weigh(told: Exchange, without: Sequence[Exchange], with_record: Sequence[Exchange]) -> float:
    rule = without[0].exact.rule
    if rule is Rule.RECORDS:
        likelihoods = [[weigh_choice(told, one.exact.values) for one in runs] for runs in (without, with_record)]
        return float(logsumexp(likelihoods[1]) - logsumexp(likelihoods[0]))
    if rule not in _GAUSSIAN | _LAPLACE or not told.exact.values:
        return 0.0
    answer = np.array(told.exact.values)
    lengths = {len(one.exact.values) for one in (*without, *with_record)} | {len(answer)}
    if len(lengths) != 1:
        return 0.0
    low, high = (np.array([one.exact.values for one in runs]) for runs in (without, with_record))
    width = np.mean([one.exact.widths for one in without], axis=0)
    noise = 2.0 * width**2 if rule in _LAPLACE else width
    shift = (high - low).mean(axis=0)
    spread = np.vstack([low - low.mean(axis=0), high - high.mean(axis=0)]).var(axis=0)
    middle = (high.mean(axis=0) + low.mean(axis=0)) / 2.0
    return float(((answer - middle) * shift / (noise + spread)).sum())


class MemberBlock(msgspec.Struct, frozen=True):
    """Some trials of a job."""

    job: AttackJob
    number: int


class Membership(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an attacker made of the judged trials, with 95 % intervals and the most that the claim allows."""

    kind: neighbours.DataKind
    relation: Relation
    attacker: str
    trials: int
    auc: float
    auc_low: float
    auc_high: float
    auc_bound: float
    advantage: float
    advantage_low: float
    advantage_high: float
    advantage_bound: float


class Suspect:
    """Someone who knows a record and the model of the population, and sees what a run told."""

    def __init__(self, job: AttackJob) -> None:
        self._job = job
        self._repeatable = RepeatableRun(method_named(job.method), job.relation, job.budget, dict(job.options))
        self._schema = neighbours.make_schema(job.kind, job.relation, neighbours.ROWS)
        self._target = neighbours.odd_record(job.kind)
        self.columns = tuple(self._schema.columns)

    def make_table(self, rng: np.random.Generator, is_member: bool) -> MemoryTable:
        """Draw a table from the model, with the record or without it."""
        rows = neighbours.draw_rows(self._job.kind, neighbours.ROWS, rng)
        # whoever is replaced is drawn too
        other = neighbours.draw_rows(self._job.kind, 1, rng)
        if is_member:
            rows = np.vstack([rows, self._target])
        elif self._job.relation is Relation.REPLACE_ONE:
            rows = np.vstack([rows, other])
        return neighbours.read_rows(rows, self._schema)

    @cached_property
    def references(self) -> list[list[MemoryTable]]:
        """Tables of the attacker's own, without the record and with it."""
        seeds = [(self._job.seed, 7, number) for number in range(REFERENCES)]
        return [[self.make_table(np.random.default_rng(seed), is_in) for is_in in (False, True)] for seed in seeds]

    def try_once(self, number: int) -> tuple[float, ...]:
        """Do one trial: whether the record was a member, how much the answers speak for it, and marks of the graph."""
        is_member = number % 2 == 0
        table = self.make_table(np.random.default_rng((self._job.seed, 8, number)), is_member)
        recording = Recording(noise_source(NoiseKind.SEEDED, seed_run(self._job.seed, 2, number)))
        result = self._repeatable.run(table, recording)
        told = recording.exchanges
        # runs that asked the same have the same replays, unless they rest on random choices
        course = None if any(exchange.luck for exchange in told) else read_course(told)
        known = self._repeatable.replay_all([table for pair in self.references for table in pair], told, course)
        score = weigh_transcript(told, known[::2], known[1::2])
        marks = read_graph(result.graph, self.columns) if isinstance(result, Asked) else ()
        return (float(is_member), score, *marks)


_suspect_for = lru_cache(maxsize=2)(Suspect)


def run_trials(block: MemberBlock) -> Rows:
    """Do the trials of a block."""
    suspect = _suspect_for(block.job)
    return tuple(suspect.try_once(number) for number in range(block.number * BLOCK, (block.number + 1) * BLOCK))


def membership_options(method: Method, options: neighbours.Options) -> dict[str, neighbours.Setting]:
    """Return the settings of the trials: those that concentrate the budget, below those that are given."""
    sharp = next((dict(case.options) for case in method.sharp), {})
    return {**sharp, **options}


def membership_kind(method: Method) -> neighbours.DataKind:
    """Return the kind of tables that trials are drawn from."""
    return next(iter(neighbours.ordinary_kinds(method)))


def infer_membership(
    job: AttackJob, trials: int, store: BlockStore | None = None, workers: int = 1, progress: Progress = silent
) -> tuple[Membership, ...]:
    """Say how well both attackers did: they fit on half of the trials, and are judged on the others."""
    if trials < FEWEST_TRIALS:
        raise DataError(f"membership inference needs at least {FEWEST_TRIALS} trials, not {trials}")
    tasks = [MemberBlock(job, number) for number in range(-(-trials // BLOCK))]
    done = work_through(tasks, run_trials, Rows, store, workers, progress, "membership")
    rows = np.array([row for block in done for row in block], dtype=np.float64)
    is_member, marks, fitted = rows[:, 0] > 0.5, rows[:, 2:], _fitted(len(rows))
    found = [judge_scores(ANSWERS, is_member, rows[:, 1], job)]
    if marks.size:
        weights = fit_logistic(marks[fitted], is_member[fitted])
        found.append(judge_scores(GRAPH, is_member, marks @ weights, job))
    return tuple(found)


def _fitted(trials: int) -> NDArray[np.bool_]:
    """Return which trials are fitted on: two of four, one of either kind."""
    return np.asarray(np.arange(trials) % 4 < 2)


def judge_scores(attacker: str, is_member: NDArray[np.bool_], scores: Floats, job: AttackJob) -> Membership:
    """Choose a threshold on half of the trials, judge on the others."""
    fitted = _fitted(len(scores))
    threshold = choose_threshold(scores[fitted & is_member], scores[fitted & ~is_member])
    members, others = scores[~fitted & is_member], scores[~fitted & ~is_member]
    epsilon, delta = float(job.budget.epsilon), float(job.budget.delta)
    area = *measure_auc(members, others), bound_auc(epsilon, delta)
    advantage = *measure_advantage(members, others, threshold), bound_advantage(epsilon, delta)
    return Membership(job.kind, job.relation, attacker, len(members) + len(others), *area, *advantage)

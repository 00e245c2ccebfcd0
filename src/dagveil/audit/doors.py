"""The curator's doors with a recording behind them: the same code, every call noted, every exact answer read.

A door is a public method of the curator or of what it opens. `READERS` has a row for each door that answers: how the
exact numbers are read, in the unit in which noise meets them. A door without a row is an error on import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, wraps
from inspect import getmembers, signature
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from dagveil.audit.recording import Exact, NoiseLaw, Recording, Rule
from dagveil.audit.search import Floats
from dagveil.curator import Answer, Curator, Question, QuestionSession, ThresholdRounds, kernel_questions
from dagveil.curator.pair_choices import Expectation, PairChoices
from dagveil.curator.questions import RECORD, GradientQuestions, Sample
from dagveil.data.table import Table
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import DiscreteLaplace, Filter
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.mechanisms.subsampling import SAMPLING_FOR, strengthen
from dagveil.privacy.noise.source import representable_scale
from dagveil.privacy.release import NoisyMatrix, Release
from dagveil.statistics.kernels import kernel_features, root_hsic_sensitivity
from dagveil.statistics.reconciled import GRID
from dagveil.statistics.residuals import residual_sensitivity

Kind = TypeVar("Kind", bound=type)
# reads the exact numbers, from the answer, the recording, the object that was asked, and the arguments
Reader = Callable[..., Exact]
_FAR: Final = 2**60  # a score, in grid steps, that no noise brings back across a threshold


def _read_releases(answer: Release | tuple[Release, ...], recording: Recording, *rest: Any) -> Exact:
    """Read released integers, and the noise that was drawn for them; those with no noise claim to be public."""
    if answer == ():
        return Exact(Rule.NOTHING)
    releases = answer if isinstance(answer, tuple) else (answer,)
    public = tuple(float(value) for release in releases if release.variance == 0 for value in release.values)
    noisy = [release for release in releases if release.variance != 0]
    values = tuple(float(value) for release in noisy for value in release.values)
    draws = recording.noise.draws
    if any(draw.law is NoiseLaw.LAPLACE for draw in draws):
        enough = sum(draw.size for draw in draws) >= len(values)
        scale = float(min(draw.width for draw in draws)) if enough else 0.0
        return Exact(Rule.SCALED_SIZES, values, (scale,) * len(values))
    told = [width for release in noisy for width in _variances(release)]
    return Exact(Rule.WEIGHTED_SQUARES, values, _see_through(told, recording), public)


def _see_through(told: Sequence[float], recording: Recording) -> tuple[float, ...]:
    """Return the variances that an answer tells of, made smaller if smaller ones were drawn; 0 if a number got none."""
    draws = [draw for draw in recording.noise.draws if draw.law is NoiseLaw.GAUSSIAN]
    if not told or sum(draw.size for draw in draws) < len(told):
        return (0.0,) * len(told)
    part = min(1.0, float(min(draw.width for draw in draws)) / min(told))
    # told variances went through floats
    return tuple(width * (1.0 if part > 1.0 - 1e-9 else part) for width in told)


def _variances(release: Release) -> list[float]:
    if not isinstance(release, NoisyMatrix):
        return [float(release.variance)] * len(release.values)
    # the upper triangle of a square of this size
    rows, columns = np.triu_indices((math.isqrt(8 * len(release.values) + 1) - 1) // 2)
    off, on = float(release.variance), float(release.diagonal_variance)
    return [on if row == column else off for row, column in zip(rows, columns, strict=True)]


def _scales_in_records(recording: Recording) -> list[float]:
    """Return the scales of the Laplace noise of this exchange, in records."""
    return [float(draw.width) / RECORD for draw in recording.noise.draws if draw.law is NoiseLaw.LAPLACE]


def _read_answer(answer: Answer, recording: Recording, *rest: Any) -> Exact:
    """Read a score in records; draws come in blocks, so the scale told counts if it was drawn, else the smallest."""
    drawn = recording.answer_scales
    drawn += _scales_in_records(recording)
    told = answer.deviation / math.sqrt(2.0)
    scale = told if any(math.isclose(told, width, rel_tol=1e-9) for width in drawn) else min(drawn, default=0.0)
    return Exact(Rule.SCALED_SIZES, (answer.score,), (scale,))


def _read_sampled(answer: Answer, recording: Recording, *rest: Any) -> Exact:
    """Read the score of a sub-sample, in grid steps."""
    return Exact(Rule.SAMPLED, (answer.score * RECORD,), _see_through([(answer.deviation * RECORD) ** 2], recording))


def _read_median(answer: float, recording: Recording, *rest: Any) -> Exact:
    """Read a median p-value, in steps of its grid; the scale of its noise is a secret that a recording sees."""
    return Exact(Rule.SMOOTH, (answer * GRID,), tuple(float(draw.width) for draw in recording.noise.draws))


def _read_notes(answer: int, recording: Recording, *rest: Any) -> Exact:
    """Read the scores that a choice was made from, in records."""
    return Exact(Rule.RECORDS, recording.notes)


def _read_round(answer: bool, recording: Recording, rounds: AuditedRounds, given: tuple[Any, ...]) -> Exact:
    """Read a score in records, and the scales of threshold and questions as the first question draws them."""
    drawn = _scales_in_records(recording)
    if rounds.scales is None:
        rounds.scales = (drawn[0], drawn[-1]) if drawn else (0.0, 0.0)
    elif drawn and min(drawn) < min(rounds.scales):
        rounds.scales = (min(drawn), min(drawn))
    epsilon, _, rate, _ = rounds.opened_with
    return Exact(Rule.ROUND, recording.notes, (*rounds.scales, _allow(epsilon, rate, rounds._session._relation)))


@lru_cache(maxsize=64)
def _allow(epsilon: Fraction, rate: Fraction, relation: Relation) -> float:
    """Return what a round may cost on its sub-sample."""
    return float(epsilon if rate == 1 else strengthen(epsilon, rate, SAMPLING_FOR[relation], relation))


def _read_sum(base: float) -> Reader:
    """Return the reader of a sum and its deviation, in fixed point: so many units for each of the rows' bits."""

    def read(answer: tuple[Any, float], recording: Recording, asked: GradientQuestions, given: object) -> Exact:
        unit = base**asked._rows.bits
        values = tuple((np.asarray(answer[0]) * unit).reshape(-1).tolist())
        widths = _see_through([(answer[1] * unit) ** 2] * len(values), recording)
        return Exact(Rule.WEIGHTED_SQUARES, values, widths)

    return read


def _read_difference(answer: kernel_questions.NoisyDifference, recording: Recording, *rest: Any) -> Exact:
    """Read a difference of scores, in its own unit; the scale that it tells of counts as far as it was drawn."""
    (wanted,) = _grid_scales(recording, (1,))
    part = min(1.0, min(_scales_in_records(recording), default=0.0) * RECORD / wanted)
    return Exact(Rule.SCALED_SIZES, (answer.value,), (answer.scale * part,))


def _read_residual_sums(answer: kernel_questions.NoisySums, recording: Recording, *rest: Any) -> Exact:
    """Read sums of residuals and products, in grid steps of each."""
    values = (answer.products, answer.squares, answer.first, answer.second)
    variances = (answer.variance_products, answer.variance_squares, answer.variance_first, answer.variance_second)
    # one charge each for products and squares, one for both sums of residuals
    wanted = _grid_scales(recording, (1, 1, 2))
    steps = tuple(
        value / math.sqrt(variance / float(laplace_variance(Fraction(scale))))
        for value, variance, scale in zip(values, variances, wanted, strict=True)
    )
    drawn = [float(draw.width) for draw in recording.noise.draws]
    return Exact(Rule.SCALED_SIZES, steps, tuple(drawn) if len(drawn) == len(steps) else (0.0,) * len(steps))


def _grid_scales(recording: Recording, shares: Sequence[int]) -> list[float]:
    """Return the scales, in grid steps, that the charges of this exchange ask for: a record each."""
    epsilons = [event.epsilon for event in recording.events if isinstance(event, DiscreteLaplace)]
    if len(epsilons) != len(shares):
        return [float(RECORD)] * sum(shares)  # nobody paid for this, which is a finding of its own
    return [
        float(representable_scale(RECORD * share / epsilon))
        for epsilon, share in zip(epsilons, shares, strict=True)
        for _ in range(share)
    ]


def _read_permuted(
    answer: bool, recording: Recording, asked: kernel_questions.KernelQuestions, given: tuple[Any, ...]
) -> Exact:
    """Read the statistic and the permuted ones, in records: in units of what one slot moves a permuted one by."""
    (_, _, conditions), _, test, _ = cast(tuple[Question, Fraction, kernel_questions.HsicTest, str], given)
    kernel = kernel_features(
        test.bandwidth, kernel_questions.RESIDUAL_REACH if conditions else kernel_questions.COLUMN_REACH
    )
    ridge = test.regression if conditions and isinstance(test.regression, kernel_questions.Ridge) else None
    residual = 0.0 if ridge is None else residual_sensitivity(asked.slots, ridge.penalty)
    unit = root_hsic_sensitivity(asked.slots, kernel, kernel, residual, residual)
    scale = min(_scales_in_records(recording), default=0.0)
    return Exact(Rule.PERMUTED, tuple(value / unit for value in recording.notes), (scale,))


class Door(NamedTuple):
    """How the exact numbers behind an answer are read, and the statistics whose sensitivity it relies on."""

    read: Reader
    statistics: tuple[str, ...] = ()


_SCORE: Final = "score in records"
_PARTS: Final = "parts of a source without an order"
_SLOTS: Final = "slots of a source without an order"
_PAIRED: Final = "root HSIC, pairs as they are"
_RESIDUAL: Final = "residual of another slot"
# a row for each door that answers
READERS: Final[Mapping[str, Door]] = {
    "count_rows": Door(_read_releases, ("number of rows",)),
    "count_tables": Door(
        _read_releases,
        (
            "tables of counts",
            "tables of counts, Laplace noise",
            "counts of persons by the last record",
            "counts of persons by any record",
            "counts of persons by weighed records",
        ),
    ),
    "interactions": Door(
        _read_releases,
        ("interactions of pairs", "interactions of three columns", "interactions of persons by weighed records"),
    ),
    "margins": Door(_read_releases, ("margins",)),
    "magnitudes": Door(_read_releases, ("counts by magnitude",)),
    "outer_products": Door(
        _read_releases,
        (
            "second moments",
            "second moments of features",
            "second moments of levels beside numbers",
            "second moments of residuals of public functions",
            "moments of persons by weighed records",
        ),
    ),
    "pair_moments": Door(_read_releases, ("second moments of chosen pairs",)),
    "answer": Door(_read_answer, (_SCORE, _PARTS)),
    "answer_by_median": Door(_read_median, ("median of parts", _PARTS)),
    "answer_from_sample": Door(_read_sampled, (_SCORE, _PARTS)),
    "choose_number": Door(_read_notes, (_SCORE,)),
    "choose_separation": Door(_read_notes, (_SCORE,)),
    "choose_forest": Door(_read_notes, ("distance of a pair's table",)),
    "flip_coin": Door(lambda *told: Exact(Rule.NOTHING)),
    "looks_independent": Door(_read_round, (_SCORE, _PARTS)),
    "gradient": Door(_read_sum(4.0), ("sum of clipped gradients",)),
    "curvature": Door(_read_sum(2.0), ("sum of clipped curvatures",)),
    "permutation_bit": Door(_read_permuted, ("root HSIC, permuted", _PAIRED, _RESIDUAL, _SLOTS)),
    "gcm": Door(
        _read_residual_sums, ("sums of residual products and of their squares", "sums of clipped residuals", _SLOTS)
    ),
    "hsic_difference": Door(_read_difference, (_PAIRED, _RESIDUAL, _SLOTS)),
    "rank_difference": Door(_read_difference, ("rank score of residuals", _SLOTS)),
}
# a paper calibration has no guarantee to audit; a critical score is computed from public facts alone
FREE: Final = frozenset({"open_as_published", "critical_score"})


def recorded(**opened: type) -> Callable[[Kind], Kind]:
    """Put every door of the class above behind the recording; `opened` has classes for what doors open."""

    def record(kind: Kind) -> Kind:
        above = kind.__mro__[1]
        for name, call in getmembers(above, callable):
            if name.startswith("_") or name in FREE:
                continue
            if name not in READERS and name not in opened:
                raise TypeError(
                    f"{above.__name__}.{name} would go unaudited; give it a row in the table READERS of audit/doors.py"
                )
            setattr(kind, name, _record(name, call, READERS.get(name), opened.get(name)))
        return kind

    return record


def _record(name: str, call: Callable[..., Any], door: Door | None, opened: type | None) -> Callable[..., Any]:
    parameters = signature(call)

    @wraps(call)
    def ask(asked: Any, *arguments: Any, **named: Any) -> Any:
        recording: Recording = asked._recording
        given = parameters.bind(asked, *arguments, **named).args[1:] if named else arguments
        facts = tuple(_freeze(value, given) for value in given)
        if door is not None:
            read = door.read
            return recording.ask(
                name, facts, lambda: call(asked, *given), lambda answer, _: read(answer, recording, asked, given)
            )
        made = recording.open(name, facts, lambda: call(asked, *given))
        made.__class__ = opened  # of which it has all attributes but these
        made._recording, made.opened_with = recording, given
        return made

    return ask


def _freeze(value: Any, given: tuple[Any, ...]) -> Any:
    """Return an argument as a value that can be compared: regression functions must come from answers alone."""
    if isinstance(value, list | tuple):
        return tuple(_freeze(part, given) for part in value)
    if isinstance(value, dict):
        return tuple((key, _freeze(part, given)) for key, part in value.items())
    if isinstance(value, Expectation):
        return _freeze((value.places, value.centre, value.moves, value.slack), given)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, kernel_questions.HsicTest):
        return value.level, value.permutations, value.bandwidth, _freeze(value.regression, given)
    if not hasattr(value, "function"):
        return value
    if isinstance(given[0], str):
        x, y = given[:2]
        return value.function(y, (x,)), value.function(x, (y,))
    x, y, conditions = given[0]
    return value.function(x, conditions), value.function(y, conditions)


@recorded()
class AuditedRounds(ThresholdRounds):
    """Recorded rounds."""

    scales: tuple[float, float] | None = None
    opened_with: tuple[Any, ...]


@recorded()
class AuditedGradients(GradientQuestions):
    """Recorded gradient questions."""


@recorded()
class AuditedKernels(kernel_questions.KernelQuestions):
    """Recorded kernel questions. They note the exact statistics that the permutation test compares."""

    _recording: Recording

    def _permuted(self, u: Floats, v: Floats, count: int) -> Floats:
        found = super()._permuted(u, v, count)
        self._recording.note(*found.tolist())
        return found


@recorded(open_rounds=AuditedRounds)
class AuditedQuestions(QuestionSession):
    """A recorded question session. It notes the exact scores that its mechanisms are given."""

    _recording: Recording

    def _score(self, question: Question, sample: Sample) -> int:
        exact = super()._score(question, sample)
        if self._recording.door != "looks_independent":
            return exact
        self._recording.note(exact / RECORD)
        expected = self._recording.expected
        if expected is None:
            return exact
        # on a replay the mechanism must come to the answer on the recording, whatever the score is here
        return -_FAR if expected.answer else _FAR

    def _choose(self, scores: Sequence[int], epsilon: Fraction, label: str, asked: object) -> int:
        self._recording.note(*(score / RECORD for score in scores))
        with self._recording.noise.free():
            return super()._choose(scores, epsilon, label, asked)


@recorded()
class AuditedPairs(PairChoices):
    """Recorded choices of pairs. They note the exact scores that the mechanism is given."""

    _recording: Recording

    def _choose(self, scores: Sequence[int], *rest: Any) -> list[int]:
        self._recording.note(*(score / RECORD for score in scores))
        with self._recording.noise.free():
            return super()._choose(scores, *rest)


@recorded(
    ask_questions=AuditedQuestions, ask_gradients=AuditedGradients, ask_kernels=AuditedKernels, open_pairs=AuditedPairs
)
class AuditedCurator(Curator):
    """A curator whose every door is recorded."""

    def __init__(self, table: Table, relation: Relation, accounting: Filter, recording: Recording) -> None:
        super().__init__(cast(Table, WatchedTable(table, recording)), relation, accounting, recording, recording.noise)
        self._recording = recording


class WatchedTable:
    """A table that tells the recording whenever rows are read. The schema is public and may be read by anyone."""

    def __init__(self, table: Table, recording: Recording) -> None:
        self._table = table
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        if name != "schema":
            self._recording.touch(name)
        return getattr(self._table, name)

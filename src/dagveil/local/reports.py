"""Tests of independence on randomised reports, whose null hypothesis knows the channel.

For (x, y, given S) let g be the unbiased image of a report: its mean, given the record, is the record's one-hot vector.
Then U = Σ_s E[g_s (g_x − p_{x|s})(g_y − p_{y|s})ᵀ] is the pooled dependence of *true* values, its influence function is
what stands in the brackets, and its covariance is that of the brackets over reports: docs/proofs/channel-tests.md.

Columns may also count by public scores of their levels, in Fisher's question about partial correlations of *true*
scores. A report's image h has the true score as its mean, and q the true squared deviation: covariances of columns come
from products of h, variances from q.
"""

from __future__ import annotations

import csv
import enum
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TextIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import DataError
from dagveil.evidence.questions import Answers, Questions
from dagveil.evidence.scores import EvidenceScore
from dagveil.local.channel import Floats, Integers
from dagveil.local.record import Undo, join

LONGEST_LINE: Final = 2**20  # characters of a line, beyond which it is not read as a record
MOST_CELLS: Final = 20_000  # cells of x, y and the given columns together, beyond which a question is not answered
SURE_STRATA: Final = 4.0  # a stratum takes part if its share is so many standard errors above zero
# floor for the correlation matrix of conditioning columns, which noise may leave indefinite
SMALLEST_EIGENVALUE: Final = 1e-3
Mean = TypeVar("Mean", float, NDArray[np.float64])


class LineFormat(enum.Enum):
    """How records are written."""

    CSV = "csv"
    JSON = "jsonl"


def split_lines(stream: TextIO) -> Iterator[str]:
    r"""Yield lines as they come, without what ends them: a line feed, and a carriage return before it.

    Of a line that is too long to be a record only the beginning is held and yielded.
    """
    while piece := stream.readline(LONGEST_LINE + 1):
        rest = piece
        while not rest.endswith("\n") and (rest := stream.readline(LONGEST_LINE + 1)):
            pass
        yield piece.removesuffix("\n").removesuffix("\r") if piece.endswith("\n") else piece


def guess_format(lines: Iterable[str]) -> tuple[LineFormat, Iterator[str]]:
    """Look at the first line that is not blank; return the format, and all lines."""
    source, seen = iter(lines), list[str]()
    for line in source:
        seen.append(line)
        if line.strip():
            break
    first = seen[-1].lstrip("\ufeff").lstrip() if seen else ""
    return LineFormat.JSON if first.startswith("{") else LineFormat.CSV, itertools.chain(seen, source)


def read_records(
    lines: Iterable[str], form: LineFormat, columns: Sequence[str], extra: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Read records, one by one as lines come.

    - `lines`: of text; each is one record, but for a CSV's first line of names.
    - `columns`: names that the first line of a CSV must have; of a JSON object, missing ones are missing values.
    - `extra`: names that are read if they are there.
    """
    wanted = (*columns, *extra)
    return _read_json(lines, wanted) if form is LineFormat.JSON else _read_csv(lines, columns, wanted)


def check_labels(form: LineFormat, labels: Mapping[str, Sequence[str]]) -> None:
    """Refuse CSV for columns whose name or labels have a line feed, or are formulas.

    With a line feed a record would not be one line. A spreadsheet computes a text that begins like a formula, and some
    start programs; a mark before it would be another label, so that nobody could read the reports any more.
    """
    if form is not LineFormat.CSV:
        return
    split = [name for name, texts in labels.items() if any("\n" in text for text in (name, *texts))]
    if split:
        raise DataError(
            f"{len(split)} columns have a line break in their name or labels, the first is {split[0]!r}; a record is "
            "one line, so give one JSON object per line"
        )
    computed = [name for name, texts in labels.items() if any(map(_is_formula, (name, *texts)))]
    if computed:
        raise DataError(
            f"{len(computed)} columns have a name or label that a spreadsheet would compute, the first is "
            f"{computed[0]!r}; give one JSON object per line or a .parquet file instead of CSV, or rename it in the "
            "schema"
        )


def _is_formula(text: str) -> bool:
    """Tell whether a spreadsheet would compute a text; numbers and lone signs are harmless."""
    return text.startswith(("=", "@", "\t", "\r")) or (text.startswith(("+", "-")) and not set("(|!").isdisjoint(text))


class RecordWriter:
    """Writes records in the format they came in, and lets each go at once."""

    def __init__(self, stream: TextIO, form: LineFormat, columns: Sequence[str]) -> None:
        self._stream, self._form, self._columns = stream, form, list(columns)
        self._row = csv.writer(stream, lineterminator="\n").writerow  # one write for each row
        if form is LineFormat.CSV:
            self._row(self._columns)

    def write(self, record: Mapping[str, str]) -> None:
        """Write one record and flush it."""
        if self._form is LineFormat.JSON:
            self._stream.write(msgspec.json.encode({name: record[name] for name in self._columns}).decode() + "\n")
        else:
            self._row([record[name] for name in self._columns])
        self._stream.flush()


def _read_json(lines: Iterable[str], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        text = line.lstrip("\ufeff").strip()
        try:
            found = msgspec.json.decode(text) if len(line) <= LONGEST_LINE else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        record = found if isinstance(found, dict) else {}
        yield {name: record.get(name) for name in wanted}


def _read_csv(lines: Iterable[str], columns: Sequence[str], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    source = iter(lines)
    first = next((line for line in source if line.strip()), None)
    header = None if first is None else _split_row(first)
    if not header:
        raise DataError("there is no first line with column names; write one, or give one JSON object per line")
    header[0] = header[0].lstrip("\ufeff")
    if len(set(header)) < len(header):
        # not the names: without a header they are the cells of the first record
        raise DataError("the first line has a name more than once; write a first line with the names of the columns")
    lost = [name for name in columns if name not in header]
    if lost:
        raise DataError(
            f"the first line lacks {len(lost)} column{'s' * (len(lost) > 1)} of the schema, the first is {lost[0]!r}; "
            "write a first line with the names of the columns, or give one JSON object per line"
        )
    places = {name: header.index(name) for name in wanted if name in header}
    for line in source:
        row = _split_row(line)
        if row is None or len(row) != len(header):
            yield dict.fromkeys(places)
        else:
            yield {name: row[place] or None for name, place in places.items()}


def _split_row(line: str) -> list[str] | None:
    """Return the cells of one line, or None if it is no row."""
    if len(line) > LONGEST_LINE:
        return None
    source = iter((line, ""))
    try:
        row = next(csv.reader(source))
    except csv.Error:
        return None
    # a quote is open at the end of the line if the reader asked for another
    return None if next(source, None) is None else row


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Distinct reports and how often each came."""

    codes: Integers  # in the shape (distinct reports, columns)
    counts: Floats  # of each

    @classmethod
    def of(cls, codes: Integers) -> Reports:
        """Count equal reports."""
        distinct, counts = np.unique(codes, axis=0, return_counts=True)
        return cls(distinct, counts.astype(np.float64))

    @property
    def n_records(self) -> float:
        """How many records reported."""
        return float(self.counts.sum())

    def table(self, columns: Sequence[int], levels: Sequence[int]) -> Floats:
        """Count reports by some columns, in their shape."""
        shape = tuple(levels[column] for column in columns)
        if not shape:
            return np.array(self.n_records)
        cells = np.ravel_multi_index(tuple(self.codes[:, column] for column in columns), shape)
        table = np.bincount(cells, weights=self.counts, minlength=math.prod(shape))
        return table.astype(np.float64).reshape(shape)

    def redraw(self, rng: np.random.Generator) -> Reports:
        """Draw as many reports again from these."""
        counts = rng.multinomial(int(self.n_records), self.counts / self.counts.sum())
        return Reports(self.codes, counts.astype(np.float64))


def share_of_redraws(statistic: float, freedom: float) -> float:
    """Return the factor for a statistic of reports drawn again, given that of the reports themselves.

    Reports drawn from reports hold chance twice, and their statistic is larger by its degrees of freedom on average.
    With this factor it is what it was, or the degrees of freedom if that is more.
    """
    return max(statistic, freedom) / max(statistic + freedom, 1e-12)


class ReportQuestions(ABC):
    """What tests on reports have in common."""

    __slots__ = ()
    columns: tuple[str, ...]
    reports: Reports  # what was collected
    source: ReportQuestions | None  # evidence that the reports were drawn again from

    @abstractmethod
    def _test(self, x: int, y: int, given: tuple[int, ...]) -> tuple[float, float]:
        """Return the statistic of a question, a χ² that knows the channel, and its degrees of freedom."""

    def _ask(self, x: int, y: int, given: tuple[int, ...]) -> tuple[float, float]:
        statistic, freedom = self._test(x, y, given)
        if self.source is not None:
            statistic *= share_of_redraws(self.source._ask(x, y, given)[0], freedom)
        return statistic, freedom

    def test(self, questions: Questions) -> Answers:
        """Test each question."""
        asked = zip(questions.x, questions.y, questions.given, strict=True)
        rows = [self._ask(int(x), int(y), tuple(int(z) for z in given)) for x, y, given in asked]
        statistic, freedom = np.array(rows).reshape(-1, 2).T
        return Answers(statistic, freedom, special.chdtrc(freedom, statistic))

    def association(self) -> Floats:
        """Return the statistic of every pair per record, less what chance adds; chance includes the channel."""
        found = np.zeros((len(self.columns), len(self.columns)))
        x, y = np.tril_indices(len(self.columns), -1)
        answers = self.test(Questions(x, y, np.empty((len(x), 0), dtype=np.intp)))
        values = (answers.statistic - answers.freedom) / self.reports.n_records
        found[x, y] = found[y, x] = values
        return found

    def strength(self, questions: Questions) -> Floats:
        """Return the statistic per record."""
        return self.test(questions).statistic / self.reports.n_records

    def odds(self, questions: Questions) -> Floats:
        """Return odds against any dependence: tests on reports are taken at their word."""
        return np.full(len(questions), -np.inf)

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> Floats:
        """Return p-values as if nothing depended on anything: reports share no noise."""
        return rng.random((draws, len(questions)))


@dataclass(frozen=True, slots=True, eq=False)
class ReportEvidence(ReportQuestions):
    """Independence of true values, tested on reports."""

    columns: tuple[str, ...]
    levels: tuple[int, ...]  # levels of each column
    reports: Reports
    undo: Undo  # of the channel
    source: ReportEvidence | None = None
    _known: dict[tuple[int, int, tuple[int, ...]], tuple[float, float]] = field(default_factory=dict, repr=False)

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which tables are small enough."""
        sizes = np.array(self.levels, dtype=np.float64)
        cells = sizes[questions.x] * sizes[questions.y] * sizes[questions.given].prod(axis=1)
        return np.asarray(cells <= MOST_CELLS)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Every conditioning set counts as one column."""
        return np.ones(len(questions), dtype=np.bool_)

    def redraw(self, rng: np.random.Generator) -> ReportEvidence:
        """Return evidence from reports drawn again."""
        return ReportEvidence(self.columns, self.levels, self.reports.redraw(rng), self.undo, self)

    def penalty(self, x: int, y: int) -> float:
        """Return ln det(I + C⁻¹ Σ): what an edge has to bring, in units of the statistic, by BIC.

        C is the covariance of the pair's dependence as reports show it, Σ that of one record without a channel. With no
        channel it is the degrees of freedom times ln(1 + n); noise makes it smaller, since fewer records could have
        told as much.
        """
        if self.levels[x] * self.levels[y] > MOST_CELLS:
            return 0.0  # questions about this pair are not answered
        shares = self.reports.table((x, y), self.levels) / self.reports.n_records
        kept = self.undo.kept
        sides, spreads = [], []
        for column, side in ((x, shares.sum(axis=1)), (y, shares.sum(axis=0))):
            law = np.maximum((side @ self.undo.inverses[column] - (1.0 - kept) / len(side)) / kept, 1e-6)
            law = (law / law.sum())[:-1]
            sides.append(self.undo.inverses[column][:, :-1] - law)
            spreads.append(np.diag(law) - np.outer(law, law))
        flat = np.einsum("ai,bj->abij", *sides).reshape(shares.size, -1)
        if flat.shape[1] == 0:
            return 0.0
        weights = shares.reshape(-1)
        mean = weights @ flat
        covariance = ((flat * weights[:, None]).T @ flat - np.outer(mean, mean)) / (self.reports.n_records * kept**2)
        ratios = np.linalg.solve(covariance + 1e-12 * np.eye(len(covariance)), np.kron(*spreads))
        return float(np.linalg.slogdet(np.eye(len(ratios)) + ratios)[1])

    def _ask(self, x: int, y: int, given: tuple[int, ...]) -> tuple[float, float]:
        question = (min(x, y), max(x, y), tuple(sorted(given)))
        if question not in self._known:
            self._known[question] = ReportQuestions._ask(self, *question)
        return self._known[question]

    def _test(self, x: int, y: int, given: tuple[int, ...]) -> tuple[float, float]:
        table, n_records = self.reports.table((x, y, *given), self.levels), self.reports.n_records
        shares = table.reshape(self.levels[x], self.levels[y], -1) / n_records
        inverses, kept = self.undo.inverses, self.undo.kept
        return score_table(shares, inverses[x], inverses[y], join([inverses[z] for z in given]), kept, n_records)


def score_table(
    shares: Floats, inverse_x: Floats, inverse_y: Floats, strata: Floats, kept: float, n_records: float
) -> tuple[float, float]:
    """Return the pooled χ² of true values and its degrees of freedom."""
    blind = (1.0 - kept) / shares.size
    of_strata = shares.sum(axis=(0, 1))
    cells = (of_strata @ strata - (1.0 - kept) / len(of_strata)) / kept
    spread = np.maximum(of_strata @ strata**2 - (of_strata @ strata) ** 2, 0.0) / (n_records * kept**2)
    sure = cells > SURE_STRATA * np.sqrt(spread)
    if not sure.any():
        return 0.0, 1.0
    strata = strata[:, sure]
    means = []
    for axis, inverse in ((1, inverse_x), (0, inverse_y)):
        side = shares.sum(axis=axis)
        joint = (inverse.T @ side @ strata - (1.0 - kept) / side.size) / kept
        conditional = np.maximum(joint / cells[sure], 0.0)
        means.append((conditional / np.maximum(conditional.sum(axis=0), 1e-12)).T)
    # the last level follows from the others
    left = inverse_x[:, None, :-1] - means[0][None, :, :-1]
    right = inverse_y[:, None, :-1] - means[1][None, :, :-1]
    products = np.einsum("asi,bsj->sabij", left, right)
    influence = np.tensordot(strata, products, axes=(1, 0)).transpose(1, 2, 0, 3, 4)
    freedom = left.shape[2] * right.shape[2]
    if freedom == 0:
        return 0.0, 1.0
    flat = influence.reshape(shares.size, freedom)
    weights = shares.reshape(-1)
    mean = weights @ flat
    dependence = (mean - blind * flat.sum(axis=0)) / kept
    covariance = ((flat * weights[:, None]).T @ flat - np.outer(mean, mean)) / (n_records * kept**2)
    values, vectors = np.linalg.eigh(covariance)
    along = dependence @ vectors
    # a direction that never varies says nothing, unless all reports agree that there is dependence along it
    smallest = max(float(values.max()), float(mean @ mean) / n_records, 1e-300) * 1e-9
    seen = (values > smallest) | (along**2 > smallest)
    return float((along[seen] ** 2 / np.maximum(values[seen], smallest)).sum()), float(seen.sum())


@dataclass(frozen=True, slots=True, eq=False)
class LinearReportEvidence(ReportQuestions):
    """Linear independence of true scores, tested on reports."""

    columns: tuple[str, ...]
    reports: Reports
    undo: Undo  # of the channel
    scores: tuple[Floats, ...]  # public score of each level, for each column
    source: LinearReportEvidence | None = None
    _images: Floats = field(init=False, repr=False)
    _squares: Floats = field(init=False, repr=False)
    _covariance: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        codes, kept = self.reports.codes, self.undo.kept
        weights = self.reports.counts / self.reports.n_records
        d = len(self.columns)
        images, squares = np.empty((len(codes), d)), np.empty((len(codes), d))
        blind, variances = np.empty(d), np.empty(d)
        for j, (inverse, scores) in enumerate(zip(self.undo.inverses, self.scores, strict=True)):
            image = inverse @ scores
            centre = _undo_mean(float(weights @ image[codes[:, j]]), float(image.mean()), kept)
            square = inverse @ (scores - centre) ** 2
            images[:, j] = image[codes[:, j]] - centre
            squares[:, j] = square[codes[:, j]]
            blind[j] = image.mean() - centre
            variances[j] = _undo_mean(float(weights @ squares[:, j]), float(square.mean()), kept)
        products = (images * weights[:, None]).T @ images
        covariance = _undo_mean(products, np.outer(blind, blind), kept)
        floor = 1e-9 + np.sqrt(np.diag(products) / self.reports.n_records)
        np.fill_diagonal(covariance, np.maximum(variances, floor))
        for name, value in (("_images", images), ("_squares", squares), ("_covariance", covariance)):
            object.__setattr__(self, name, value)

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """One matrix answers every question."""
        return np.ones(len(questions), dtype=np.bool_)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Only main effects are seen."""
        return np.zeros(len(questions), dtype=np.bool_)

    def redraw(self, rng: np.random.Generator) -> LinearReportEvidence:
        """Return evidence from reports drawn again."""
        return LinearReportEvidence(self.columns, self.reports.redraw(rng), self.undo, self.scores, self)

    def penalty(self, x: int, y: int) -> float:
        """Return ln(1 + records that would tell as much without a channel): what an edge has to bring, by BIC."""
        products = self._images[:, x] * self._images[:, y]
        weights = self.reports.counts / self.reports.n_records
        variance = float(weights @ products**2) - float(weights @ products) ** 2
        variance /= self.reports.n_records * self.undo.kept**2
        one = float(self._covariance[x, x] * self._covariance[y, y])
        return float(np.log1p(one / variance)) if variance > 0.0 else 0.0

    def _test(self, x: int, y: int, given: tuple[int, ...]) -> tuple[float, float]:
        """Return the squared partial covariance over its variance, that of the channel included."""
        n, kept = self.reports.n_records, self.undo.kept
        weights = self.reports.counts / n
        left, right = self._images[:, x], self._images[:, y]
        influence = left * right
        value = float(self._covariance[x, y])
        if given:
            others = list(given)
            block = self._covariance[np.ix_(others, others)]
            scale = np.sqrt(np.diag(block))
            values, vectors = np.linalg.eigh(block / np.outer(scale, scale))
            inverse = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T / np.outer(scale, scale)
            u, v = inverse @ self._covariance[others, x], inverse @ self._covariance[others, y]
            value += float(u @ block @ v - u @ self._covariance[others, y] - v @ self._covariance[others, x])
            inner = self._images[:, others]
            influence = (left - inner @ u) * (right - inner @ v)
            # the square of an image is not the image of the square
            influence += (self._squares[:, others] - inner**2) @ (u * v)
        mean = float(weights @ influence)
        variance = (float(weights @ influence**2) - mean**2) / (n * kept**2)
        return (value**2 / variance if variance > 0.0 else 0.0), 1.0


def _undo_mean(seen: Mean, blind: Mean, kept: float) -> Mean:
    """Mean over true records from that over reports and that over all records, equally likely."""
    return (seen - (1.0 - kept) * blind) / kept


def report_score(evidence: ReportEvidence | LinearReportEvidence) -> EvidenceScore:
    """Return ½ (T − penalty) of the tests on reports; T stands in for twice the gain in log-likelihood.

    The penalty belongs to the pair, so graphs with one skeleton differ by statistics alone.
    """
    d = len(evidence.columns)
    penalties = np.zeros((d, d))
    for x in range(d):
        for y in range(x):
            penalties[x, y] = penalties[y, x] = evidence.penalty(x, y)
    return EvidenceScore(evidence, penalties, left_behind=0.0)

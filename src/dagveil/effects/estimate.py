"""From a graph and released evidence to the effect in every reading of the graph."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.effects.answer import (
    Contrast,
    Estimate,
    Form,
    PossibleEffect,
    Probability,
    describe_change,
    make_estimate,
    pick_main,
)
from dagveil.effects.components import Components
from dagveil.effects.parents import Reading
from dagveil.effects.tables import HIDDEN, Law, estimate_law
from dagveil.evidence.moments import covariance_from_moments
from dagveil.evidence.wald import find_root
from dagveil.privacy.release import NoisyMixedMoments, NoisyMoments, Release

Floats = NDArray[np.float64]

DOUBT = 0.5  # share of what adjusting changed that counts as a deviation: what interactions would change is not known
SMALLEST = 1e-4  # floor for the eigenvalues of the covariance of indicators


def estimate_additive_law(parts: Components, cause: str, effect: str, adjust: Sequence[str]) -> Law:
    """Estimate the law of the effect under every level of the cause from tables of pairs, as if columns added up.

    Exact if no two of these columns act on the effect together. What interactions would change cannot be known from
    pairs; half of what adjusting changed counts as a deviation, which is a guess.
    """
    names = (cause, *adjust, effect)
    levels = [parts.levels[name] for name in names]
    of = [slice(start, end) for start, end in pairwise(np.cumsum([0, *levels]).tolist())]
    margins = [np.maximum(parts.table((name,)), 1e-9) for name in names]
    rows = max(float(margins[0].sum()), 1.0)
    p = np.concatenate([margin / margin.sum() for margin in margins])
    covariance = np.diag(p)
    for i, j in combinations(range(len(names)), 2):
        pair = parts.table((names[i], names[j])) / rows
        covariance[of[i], of[j]], covariance[of[j], of[i]] = pair, pair.T
    covariance = covariance - np.outer(p, p)
    r, s, last = levels[0], levels[-1], of[-1].start
    inverse = _invert(covariance[:last, :last], p[:last])
    slopes = inverse @ covariance[:last, last:]
    explained = np.einsum("ij,ij->j", covariance[:last, last:], slopes)
    residual = np.maximum(np.diag(covariance[last:, last:]) - explained, 0.0)
    places = np.zeros((r, last))
    places[:, :r] = np.eye(r) - p[:r]
    mean = np.clip(p[last:] + places[:, :r] @ slopes[:r], 0.0, 1.0)
    mean = mean / mean.sum(axis=1, keepdims=True)

    def list_cells(u: Floats, v: Floats, own: float, at: int) -> dict[tuple[str, ...], Floats]:
        """Return what cells of pairs and margins do to u·C·v, and to the mean if `own` is 1."""
        mean_u, mean_v = float(u @ p), float(v @ p)
        found: dict[tuple[str, ...], Floats] = {}
        for name, part in zip(names, of, strict=True):
            # the table of a column with itself is its margin; means enter by the product of sums
            found[name,] = (u[part] * v[part] - mean_v * u[part] - mean_u * v[part]) / rows
        for i, j in combinations(range(len(names)), 2):
            found[names[i], names[j]] = (np.outer(u[of[i]], v[of[j]]) + np.outer(v[of[i]], u[of[j]])) / rows
        found[cause,] = found[cause,] - own * slopes[:r, at] / rows
        found[effect,] = found[effect,] + own / rows * np.eye(s)[at]
        return found

    sampling, noise = np.zeros((r, r, s)), np.zeros((r, r, s))
    others = np.diag(slopes[r:].T @ covariance[r:last, r:last] @ slopes[r:])
    for a, b in combinations_with_replacement(range(r), 2):
        place, own = (places[a], 1.0) if a == b else (places[a] - places[b], 0.0)
        u = inverse @ place
        size = float(u @ covariance[:last, :last] @ u) + own
        for at in range(s):
            sampling[a, b, at] = (size * residual[at] + own * max(float(others[at]), 0.0)) / rows
            v = np.concatenate([-slopes[:, at], np.eye(s)[at]])
            noise[a, b, at] = parts.noise_variance(list_cells(np.append(u, np.zeros(s)), v, own, at))
            sampling[b, a, at], noise[b, a, at] = sampling[a, b, at], noise[a, b, at]
    least = np.array([HIDDEN * np.sqrt(parts.noise_variance({(cause,): np.eye(r)[level]})) for level in range(r)])
    hidden = parts.table((cause,)) < np.maximum(least, 1.0)
    crude = np.maximum(parts.table((cause, effect)), 0.0)
    crude = crude / np.maximum(crude.sum(axis=1, keepdims=True), 1e-9)
    moved = DOUBT * (mean - crude)
    doubt = np.stack([[(moved[a] - (a != b) * moved[b]) ** 2 for b in range(r)] for a in range(r)])
    return Law(mean, sampling, noise, doubt, hidden, np.zeros(r))


def _invert(matrix: Floats, p: Floats) -> Floats:
    """Invert the covariance of indicators in its range: each column's indicators add up to one."""
    scale = 1.0 / np.sqrt(p)
    values, vectors = np.linalg.eigh(matrix * scale[:, None] * scale)
    kept = values > SMALLEST
    inverse: Floats = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return inverse * scale[:, None] * scale


# Rows were shrunk to a ball before they were summed, which bends slopes. So the covariance of normal rows is sought
# whose shrunk rows have the released moments, and slopes are read from it.
DRAWS, STEPS = 20_000, 12
"""Normal rows that are drawn to see what shrinking does, and steps of the search for what was shrunk."""

SHRINKING_DOUBT = 0.25
"""Share of what shrinking bent, as far as normal rows tell, that counts as a deviation: rows need not be normal."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The effect of one unit of the cause, in units of the effect, with the parts of its variance."""

    value: float
    sampling: float
    noise: float
    bent: float  # by how much shrinking rows to the ball had moved the slope, as far as normal rows tell

    @property
    def variance(self) -> float:
        """Variance of the slope."""
        return self.sampling + self.noise + (SHRINKING_DOUBT * self.bent) ** 2


def estimate_slope(release: NoisyMoments, cause: str, effect: str, adjust: Sequence[str]) -> Slope:
    """Estimate the slope of the effect on the cause, adjusting for these columns."""
    covariance = covariance_from_moments(release)
    place = {name: i for i, name in enumerate(covariance.columns)}
    given = [place[cause], *(place[name] for name in adjust)]
    outcome = place[effect]
    whole = find_unshrunk(release)
    sigma = covariance.deviation
    values, vectors = np.linalg.eigh(whole[np.ix_(given, given)])
    inverse = (vectors / np.maximum(values, max(sigma, 1e-9))) @ vectors.T
    slopes = inverse @ whole[given, outcome]
    u, v = np.zeros(len(whole)), np.zeros(len(whole))
    u[given], v[given], v[outcome] = inverse[0], -slopes, 1.0
    residual = max(float(v @ whole @ v), 0.0)
    # noise is that of shrunk rows, and grows with what is undone
    grown = np.sqrt(np.diag(whole) / np.diag(covariance.matrix))
    u, v = u * grown, v * grown
    # the row of the constant, whose noise enters by the means
    mean_u, mean_v = float(u @ covariance.means), float(v @ covariance.means)
    uu, vv, uv = u @ u + mean_u**2, v @ v + mean_v**2, u @ v + mean_u * mean_v
    noise = float(sigma**2 * (uu * vv + uv**2))
    freedom = max(covariance.n_rows - len(given) - 1.0, 1.0)
    scale = release.spreads[outcome] / release.spreads[given[0]]
    shrunk = covariance.matrix
    bent = float(slopes[0] - np.linalg.lstsq(shrunk[np.ix_(given, given)], shrunk[given, outcome], rcond=None)[0][0])
    sampling = residual * float(inverse[0, 0]) / freedom
    return Slope(float(slopes[0]) * scale, sampling * scale**2, noise * scale**2, abs(bent) * scale)


@lru_cache(maxsize=8)
def find_unshrunk(release: NoisyMoments) -> Floats:
    """Return the covariance of normal rows whose rows, shrunk to the ball, have the released one."""
    covariance = covariance_from_moments(release)
    rng = np.random.default_rng(1)  # post-processing: the same evidence gives the same answer
    normal = rng.standard_normal((DRAWS, len(covariance.columns)))
    normal = normal - normal.mean(axis=0)
    normal = normal @ np.linalg.inv(np.linalg.cholesky(np.cov(normal, rowvar=False, bias=True))).T
    radius, means = np.sqrt(release.radius_squared), covariance.means * release.constant
    released = _positive(covariance.matrix)
    found = released
    for _ in range(STEPS):
        rows = normal @ find_root(found).T + means
        length = np.sqrt((rows**2).sum(axis=1))
        shrunk = rows * np.minimum(1.0, radius / np.maximum(length, 1e-12))[:, None]
        found = _positive(found + released - np.cov(shrunk, rowvar=False, bias=True))
    return found


def _positive(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 1e-9)) @ vectors.T)


MOST_CELLS: Final = 50_000  # cells of a table of cause, effect and adjustment columns beyond which it is not looked at
THIN: Final = 0.01  # share of rows in strata too thin to tell that is spoken of


class EffectEstimator:
    """Estimates effects from tables, centred tables or moments of one table, whatever set of columns is adjusted for.

    They may be of several runs on the same rows.
    """

    def __init__(self, schema: Schema, releases: Iterable[Release]) -> None:
        released = tuple(releases)
        self.schema = schema
        self.parts = Components({name: column.n_levels for name, column in schema.columns.items()}, released)
        self.moments = next((release for release in reversed(released) if isinstance(release, NoisyMoments)), None)
        self.mixed = any(isinstance(release, NoisyMixedMoments) for release in released)
        self.answer_set = lru_cache(maxsize=4096)(self._answer_set)

    def main_contrast(self, cause: str, effect: str) -> Contrast:
        """Return the contrast that a sentence is about: last level of the cause against its first."""
        if self._is_linear(cause, effect, ()):
            return Contrast("", "", "", None)
        levels = proper_levels(self.schema, cause)
        return Contrast(levels[-1], levels[0], proper_levels(self.schema, effect)[-1], None)

    def answer(self, reading: Reading, cause: str, effect: str) -> PossibleEffect:
        """Estimate the effect in one reading, by the set of columns that tells it best."""
        parents = None if reading.parents is None else tuple(sorted(reading.parents))
        if reading.adjustment is None:
            return PossibleEffect(parents, (), "nothing", reading.why_nothing)
        answers = [self.answer_set(cause, effect, adjust) for adjust in reading.adjustment]
        found = min(answers, key=_rank)
        form, why, notes = found.form, found.why, found.notes
        if reading.why_nothing is not None:
            form, why, notes = "nothing", reading.why_nothing, (*notes, *self._describe_allowed(found, cause, effect))
        return PossibleEffect(parents, found.adjust, form, why, found.probabilities, found.contrasts, notes)

    def _describe_allowed(self, found: PossibleEffect, cause: str, effect: str) -> tuple[str, ...]:
        """Say what the evidence allows where the graph has no path: an edge that noise hides is no proof of none."""
        estimate = pick_main(found, self.main_contrast(cause, effect))
        if estimate is None:
            return ("That no edge was found does not show that there is none: noise hides weak ones.",)
        given = f"adjusted for {', '.join(found.adjust)}" if found.adjust else "as they stand"
        change = describe_change(estimate.low, estimate.high, points=bool(found.probabilities))
        against = "" if estimate.low <= 0.0 <= estimate.high else ": graph and evidence disagree here"
        return (
            "That no edge was found does not show that there is none: noise hides weak ones. The columns alone, "
            f"{given}, allow {change} (95 %){against}.",
        )

    def form(self, cause: str, effect: str, adjust: Iterable[str]) -> Form:
        """Tell how the effect is estimated with these columns adjusted for."""
        names = (cause, effect, *adjust)
        cells = math.prod(self.parts.levels[name] for name in names)
        if cells <= MOST_CELLS and not self.parts.missing(names):
            return "table"
        if self._is_linear(cause, effect, names[2:]):
            return "linear"
        return "additive" if all(not self.parts.missing(pair) for pair in combinations(names, 2)) else "unanswered"

    def _is_linear(self, cause: str, effect: str, adjust: Sequence[str]) -> bool:
        if self.moments is None or not self.parts.missing((cause, effect)):
            return False
        return set(self.moments.columns).issuperset((cause, effect, *adjust))

    def _answer_set(self, cause: str, effect: str, adjust: frozenset[str]) -> PossibleEffect:
        names = tuple(sorted(adjust))
        form = self.form(cause, effect, names)
        if form == "linear" and self.moments is not None:
            slope = estimate_slope(self.moments, cause, effect, names)
            found = make_estimate(slope.value, slope.variance, slope.sampling, slope.noise, share=False)
            notes = [] if isinstance(self.schema.columns[cause], Numeric) else [f"Levels of {cause} count as numbers."]
            if slope.bent > 0.25 * math.sqrt(slope.variance):
                notes.append("Rows were shrunk to a ball; what that bends is taken out as if rows were normal.")
            return PossibleEffect((), names, form, None, (), (Contrast("", "", "", found),), tuple(notes))
        if form == "table":
            return self._write(estimate_law(self.parts, cause, effect, names), cause, effect, names, form)
        if form == "additive":
            return self._write(estimate_additive_law(self.parts, cause, effect, names), cause, effect, names, form)
        return PossibleEffect((), names, form, self._explain_missing(cause, effect, names))

    def _explain_missing(self, cause: str, effect: str, adjust: tuple[str, ...]) -> str:
        missing = [some for some in self.parts.missing((cause, effect, *adjust)) if some]
        table = " × ".join((cause, effect, *adjust))
        if not missing:
            return f"the table of {table} has more than {MOST_CELLS} cells"
        wanted = " × ".join(missing[-1] if len(missing[0]) > 1 else missing[0])
        if self.mixed:
            return f"no table of {wanted} was released, and second moments of levels beside numbers tell graphs only"
        return f"no table or moments of {wanted} were released"

    def _write(self, law: Law, cause: str, effect: str, adjust: tuple[str, ...], form: Form) -> PossibleEffect:
        causes, effects = self.schema.columns[cause].labels, self.schema.columns[effect].labels

        def show(a: int, b: int, at: int) -> Estimate | None:
            """Estimate P(effect | do(a)) or, if b is another level, how much larger it is than P(effect | do(b))."""
            if law.hidden[a] or law.hidden[b]:
                return None
            value, variance = (law.mean[a], law.variance(a)) if a == b else law.contrast(a, b)
            sampling, noise = float(law.sampling[a, b, at]), float(law.noise[a, b, at])
            return make_estimate(float(value[at]), float(variance[at]), sampling, noise, share=a == b)

        every = list(product(enumerate(causes), enumerate(effects)))
        probabilities = [Probability(level, outcome, show(a, a, at)) for (a, level), (at, outcome) in every]
        contrasts = [Contrast(level, causes[0], outcome, show(a, 0, at)) for (a, level), (at, outcome) in every if a]
        notes = [
            f"{cause} = {level} is rarer than its noise shows: nothing is said of it."
            for level, hidden in zip(causes, law.hidden, strict=True)
            if hidden
        ]
        notes += [
            f"For {thin:.0%} of the rows, others like them ({', '.join(adjust)}) are too few with {cause} = {level} to "
            f"compare; there {effect} is taken to be as at {cause} = {level} elsewhere, give or take what others show."
            for level, thin, hidden in zip(causes, law.thin, law.hidden, strict=True)
            if thin > THIN and not hidden
        ]
        return PossibleEffect((), adjust, form, None, tuple(probabilities), tuple(contrasts), tuple(notes))


def proper_levels(schema: Schema, name: str) -> tuple[str, ...]:
    """Return the labels of a column without those for other and missing values."""
    column = schema.columns[name]
    return column.labels[: len(column.cuts) + 1] if isinstance(column, Numeric) else column.levels


def _rank(answer: PossibleEffect) -> tuple[int, float]:
    """Order answers: exact forms before the additive one, and then the mean variance of contrasts."""
    if answer.form == "additive":
        return 1, float(len(answer.adjust))
    widths = [one.estimate.high - one.estimate.low for one in answer.contrasts if one.estimate is not None]
    return 0 if answer.form in ("table", "linear") else 2, math.fsum(widths) / len(widths) if widths else math.inf

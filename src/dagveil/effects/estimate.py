"""From a graph and released evidence to the effect in every reading of the graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.effects.additive import estimate_additive_law, needed_pairs
from dagveil.effects.answer import Contrast, Form, PossibleEffect, Probability, make_estimate, pick_main, tell_change
from dagveil.effects.components import Components
from dagveil.effects.linear import estimate_slope
from dagveil.effects.parents import Reading
from dagveil.effects.tables import Law, estimate_law
from dagveil.privacy.release import NoisyMixedMoments, NoisyMoments, Release

MOST_CELLS: Final = 50_000
"""Cells of a table of cause, effect and adjustment columns beyond which it is not looked at."""

THIN: Final = 0.01
"""Share of rows in strata too thin to tell that is spoken of."""


class EffectEstimator:
    """Estimates effects from the releases of one table, whatever set of columns is adjusted for.

    - `schema`: levels of the columns.
    - `releases`: tables, centred tables or moments; of several runs on the same rows, if there were.
    """

    def __init__(self, schema: Schema, releases: Iterable[Release]) -> None:
        released = tuple(releases)
        self.schema = schema
        self.parts = Components({name: column.n_levels for name, column in schema.columns.items()}, released)
        moments = [release for release in released if isinstance(release, NoisyMoments)]
        self.moments = moments[-1] if moments else None
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
        parents = tuple(sorted(reading.parents))
        if reading.adjustment is None:
            return PossibleEffect(parents, (), "nothing", reading.why_nothing)
        answers = [self.answer_set(cause, effect, adjust) for adjust in reading.adjustment]
        place = min(range(len(answers)), key=lambda at: (*_rank(answers[at]), at))
        found = answers[place]
        form, why, notes = found.form, found.why, found.notes
        if reading.why_nothing is not None:
            form, why, notes = "nothing", reading.why_nothing, (*notes, *self._tell_allowed(found, cause, effect))
        return PossibleEffect(parents, found.adjust, form, why, found.probabilities, found.contrasts, notes)

    def _tell_allowed(self, found: PossibleEffect, cause: str, effect: str) -> tuple[str, ...]:
        """Say what the evidence allows where the graph has no path: an edge that noise hides is no proof of none."""
        estimate = pick_main(found, self.main_contrast(cause, effect))
        if estimate is None:
            return ("That no edge was found does not show that there is none: noise hides weak ones.",)
        given = f"adjusted for {', '.join(found.adjust)}" if found.adjust else "as they stand"
        change = tell_change(estimate.low, estimate.high, points=bool(found.probabilities))
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
        pairs = needed_pairs(cause, effect, names[2:])
        return "additive" if all(not self.parts.missing(pair) for pair in pairs) else "unanswered"

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
        probabilities, contrasts = [], []
        for a, level in enumerate(causes):
            variance = law.variance(a)
            for at, outcome in enumerate(effects):
                shown = None
                if not law.hidden[a]:
                    shown = make_estimate(
                        float(law.mean[a, at]),
                        float(variance[at]),
                        float(law.sampling[a, a, at]),
                        float(law.noise[a, a, at]),
                        share=True,
                    )
                probabilities.append(Probability(level, outcome, shown))
        for a, level in enumerate(causes[1:], start=1):
            value, variance = law.contrast(a, 0)
            for at, outcome in enumerate(effects):
                shown = None
                if not law.hidden[a] and not law.hidden[0]:
                    sampling, noise = float(law.sampling[a, 0, at]), float(law.noise[a, 0, at])
                    shown = make_estimate(float(value[at]), float(variance[at]), sampling, noise, share=False)
                contrasts.append(Contrast(level, causes[0], outcome, shown))
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
    forms = {"table": 0, "linear": 0, "additive": 1}
    widths = [one.estimate.high - one.estimate.low for one in answer.contrasts if one.estimate is not None]
    if answer.form == "additive":
        return 1, float(len(answer.adjust))
    return forms.get(answer.form, 2), math.fsum(widths) / len(widths) if widths else math.inf

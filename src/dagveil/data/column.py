"""The kinds of column, and the codes in which each one is counted.

Everything here is public: labels, codes and bins follow from the declaration alone, never from a record. A value that
the declaration does not foresee is mapped to a declared place, so no record can cause an error.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from dagveil.errors import SchemaError

OWN_LEVEL: Final = "own-level"  # written for `outside` or `missing`: such values get a level of their own
# written for `missing`: counted as with "own-level", but tests leave such records out of what they say of the column
PAIRWISE: Final = "pairwise"
OTHER_LABEL: Final = "(other)"
MISSING_LABEL: Final = "(missing)"
MAX_LEVELS: Final = 1000  # the largest number of levels or bins that a column may declare
MAX_LEVEL_LENGTH: Final = 200  # the longest name of a level, in characters
_FORMS: Final = (str, str.upper, str.capitalize)
LARGEST_SCORE: Final = 1e100  # the largest score of a level: its square is still a number
NORMAL_QUARTILE: Final = 0.674  # the upper quartile of the standard normal distribution, to three digits
TRUE_WORDS: Final = tuple(form(word) for word in ("true", "t", "yes", "1") for form in _FORMS)
# the texts that every boolean column accepts
FALSE_WORDS: Final = tuple(form(word) for word in ("false", "f", "no", "0") for form in _FORMS)
DEFAULT_BINS: Final = 4  # how many bins a numeric column is counted in when its declaration names none


class _Labelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    levels: tuple[str, ...]
    outside: str = OWN_LEVEL
    missing: str | None = None
    scores: tuple[float, ...] | None = None
    spellings: Mapping[str, tuple[str, ...]] | None = None
    missing_words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "levels", _checked_levels(self.levels))
        _check_places(self.levels, self.outside, self.missing)
        _check_words(self, self.levels)
        if self.scores is not None:
            msgspec.structs.force_setattr(self, "scores", _checked_scores(self.scores, len(self.levels)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the codes that the column is counted in."""
        return _extend(self.levels, self.outside, self.missing)

    @property
    def n_levels(self) -> int:
        """The number of codes."""
        return len(self.labels)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The number that stands for each code in linear methods: the scores, or else 0, 1, 2, … in order."""
        return _extend_numbers(self.scores or tuple(map(float, range(len(self.levels)))), self.n_levels)


class Categorical(_Labelled, frozen=True, tag="categorical"):
    """A column with declared levels and no order among them.

    - `levels`: the names of the levels.
    - `outside`: where a value that is no declared level goes: the name of a level, or "own-level" for a level
      "(other)".
    - `missing`: where a missing value goes: the name of a level, "own-level" for a level "(missing)", "pairwise" for a
      level "(missing)" that tests leave out, or None to treat it as an outside value.
    - `scores`: a number for each level, for linear methods; None takes 0, 1, 2, … in the order of the levels.
    - `spellings`: other texts that stand for a level, by level: {"F": ("f", "female")}.
    - `missing_words`: texts that say that a value is missing, such as "NA".

    Examples
    --------
    >>> Categorical(levels=("red", "blue"), outside="blue", missing="own-level").labels
    ('red', 'blue', '(missing)')
    """


class Ordinal(_Labelled, frozen=True, tag="ordinal"):
    """A column with declared levels, lowest first. Levels of their own for other and missing values stand last.

    Examples
    --------
    >>> Ordinal(levels=("low", "high"), outside="low").n_levels
    2
    """


class Boolean(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="boolean"):
    """A column of false and true, also spelled f, no, 0 and t, yes, 1 (lower case, UPPER CASE or Capitalised).

    Examples
    --------
    >>> Boolean(outside="false").labels
    ('false', 'true')
    """

    outside: str = OWN_LEVEL
    missing: str | None = None
    spellings: Mapping[str, tuple[str, ...]] | None = None
    missing_words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_places(self.levels, self.outside, self.missing)
        _check_words(self, [*TRUE_WORDS, *FALSE_WORDS])

    @property
    def levels(self) -> tuple[str, ...]:
        """The two levels, false first."""
        return ("false", "true")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the codes that the column is counted in."""
        return _extend(self.levels, self.outside, self.missing)

    @property
    def n_levels(self) -> int:
        """The number of codes."""
        return len(self.labels)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The number that stands for each code in linear methods: 0 and 1."""
        return _extend_numbers((0.0, 1.0), self.n_levels)


class Numeric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="numeric"):
    """A column of numbers, clipped to public bounds, and counted in public bins.

    - `bounds`: lowest and highest value. Values beyond them, infinities included, are clipped.
    - `bins`: a number of bins of equal width, or increasing edges inside the bounds (the bounds may be repeated). None
      means default bins: the quartiles of a normal distribution with the declared center and spread, or else four bins
      of equal width. A bin holds its lower edge, the last one both edges.
    - `missing`: the number that stands for a missing value (not a number, or text that is no number), or "own-level"
      for a level "(missing)" when counted, and the center with an indicator beside it otherwise, or "pairwise" for the
      same, which tests leave out. None means the center, or else the middle of the bounds.
    - `center`, `spread`: optional public guesses of the mean and the standard deviation.
    - `missing_words`: texts that say that a value is missing. A word that is a number, such as "-9", means every cell
      of that value.

    Examples
    --------
    >>> Numeric(bounds=(0, 20), bins=2).labels
    ('[0, 10)', '[10, 20]')
    """

    bounds: tuple[float, float]
    bins: int | tuple[float, ...] | None = None
    missing: float | Literal["own-level", "pairwise"] | None = None
    center: float | None = None
    spread: float | None = None
    missing_words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "bounds", _checked_bounds(self.bounds))
        msgspec.structs.force_setattr(self, "missing_words", _checked_words("missing_words", self.missing_words))
        lower, upper = self.bounds
        if isinstance(self.missing, int | float):
            msgspec.structs.force_setattr(self, "missing", _checked_inside("missing", self.missing, self.bounds))
        elif self.missing is not None and not marks_missing(self):
            raise SchemaError('missing must be a number inside the bounds, "own-level" or "pairwise"')
        if self.center is not None:
            msgspec.structs.force_setattr(self, "center", _checked_inside("center", self.center, self.bounds))
        if self.spread is not None:
            spread = float(self.spread)
            if not (math.isfinite(spread) and spread > 0):
                raise SchemaError(f"spread is {spread:g}; declare a positive finite number")
            msgspec.structs.force_setattr(self, "spread", spread)
        if self.bins is None:
            return
        if isinstance(self.bins, int):
            if isinstance(self.bins, bool) or not 1 <= self.bins <= MAX_LEVELS:
                raise SchemaError(f"bins is {self.bins}; declare between 1 and {MAX_LEVELS} bins, or their edges")
            return
        edges = tuple(_to_float(edge) for edge in self.bins)
        if not edges or len(edges) > MAX_LEVELS:
            raise SchemaError(f"bins has {len(edges)} edges; declare between 1 and {MAX_LEVELS}")
        if any(not lower <= edge <= upper for edge in edges):
            raise SchemaError(f"an edge in bins lies outside the bounds {lower:g} to {upper:g}; move it or the bounds")
        if any(left >= right for left, right in itertools.pairwise(edges)):
            raise SchemaError("the edges in bins do not increase; sort them and remove repeated ones")
        msgspec.structs.force_setattr(self, "bins", edges)

    @property
    def cuts(self) -> tuple[float, ...]:
        """The inner edges of the bins: code k counts values from cut k - 1 (included) to cut k (excluded)."""
        lower, upper = self.bounds
        if isinstance(self.bins, int):
            return _equal_cuts(lower, upper, self.bins)
        if self.bins is not None:
            return tuple(edge for edge in self.bins if lower < edge < upper)
        if self.center is not None and self.spread is not None:
            step = NORMAL_QUARTILE * self.spread
            guesses = (self.center - step, self.center, self.center + step)
            inside = tuple(edge for edge in dict.fromkeys(guesses) if lower < edge < upper)
            if inside:
                return inside
        return _equal_cuts(lower, upper, DEFAULT_BINS)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the codes that the column is counted in."""
        edges = (self.bounds[0], *self.cuts, self.bounds[1])
        texts = [f"{edge:.6g}" for edge in edges]
        if len(set(texts)) < len(texts):
            texts = [repr(edge) for edge in edges]
        bins = [f"[{left}, {right})" for left, right in itertools.pairwise(texts)]
        bins[-1] = bins[-1][:-1] + "]"
        return (*bins, MISSING_LABEL) if marks_missing(self) else tuple(bins)

    @property
    def n_levels(self) -> int:
        """The number of codes."""
        return len(self.cuts) + 1 + marks_missing(self)

    @property
    def missing_numbers(self) -> tuple[float, ...]:
        """The numbers among the words for missing values."""
        return tuple(number for word in self.missing_words or () if (number := _read_number(word)) is not None)

    @property
    def missing_value(self) -> float:
        """The number that stands for a missing value in sums."""
        if isinstance(self.missing, float):
            return self.missing
        lower, upper = self.bounds
        return min(max(lower / 2 + upper / 2, lower), upper) if self.center is None else self.center


Column = Categorical | Ordinal | Boolean | Numeric
LevelColumn = Categorical | Ordinal | Boolean


def marks_missing(column: Column | _Labelled) -> bool:
    """Tell whether missing values have a code of their own, the last one."""
    return column.missing in (OWN_LEVEL, PAIRWISE)


def _checked_levels(levels: Sequence[str]) -> tuple[str, ...]:
    if isinstance(levels, str) or not all(isinstance(level, str) for level in levels):
        raise SchemaError('levels must be a list of texts; write levels = ["0", "1"] for numbers')
    levels = tuple(levels)
    if not levels:
        raise SchemaError("levels is empty; declare at least one level")
    if len(levels) > MAX_LEVELS:
        raise SchemaError(
            f"{len(levels)} levels are declared and the limit is {MAX_LEVELS}; group rare levels, "
            "or leave them out so that they count as outside values"
        )
    if len(set(levels)) < len(levels):
        twice = next(level for position, level in enumerate(levels) if level in levels[:position])
        raise SchemaError(f"level {twice[:40]!r} is declared twice; remove one of the two")
    if "" in levels:
        raise SchemaError("a level has an empty name; an empty cell is a missing value: declare it with `missing`")
    if any(len(level) > MAX_LEVEL_LENGTH for level in levels):
        raise SchemaError(f"a level is longer than {MAX_LEVEL_LENGTH} characters; leave it out or recode the column")
    if OWN_LEVEL in levels:
        raise SchemaError(f'a level may not be called "{OWN_LEVEL}": that word has a meaning of its own; rename it')
    return levels


def _check_places(levels: tuple[str, ...], outside: str, missing: str | None) -> None:
    for key, place, label in (("outside", outside, OTHER_LABEL), ("missing", missing, MISSING_LABEL)):
        if place is None:
            if key == "outside":
                raise SchemaError(f'outside is empty; name a level or write "{OWN_LEVEL}"')
        elif place == OWN_LEVEL or (place == PAIRWISE and key == "missing"):
            if label in levels:
                raise SchemaError(f'{key} = "{place}" adds a level {label!r} that is already declared; write it out')
            if place == PAIRWISE and place in levels:
                raise SchemaError(f'missing = "{PAIRWISE}" has a meaning of its own; give that level another name')
        elif place not in levels:
            raise SchemaError(f'{key} is {place!r}, which is no level; name a declared level or write "{OWN_LEVEL}"')


def _check_words(column: Categorical | Ordinal | Boolean | _Labelled, taken: Iterable[str]) -> None:
    """Check declared spellings and words for missing values: each text may mean one thing only."""
    spellings = {
        level: _checked_words(f"spellings of {level!r}", texts) or ()
        for level, texts in (column.spellings or {}).items()
    }
    strange = [level for level in spellings if level not in column.levels]
    if strange:
        raise SchemaError(f"spellings names {strange[0][:40]!r}, which is no level; declare the level, or remove it")
    words = _checked_words("missing_words", column.missing_words)
    seen = set(taken)
    for text in (*itertools.chain.from_iterable(spellings.values()), *(words or ())):
        if text in seen:
            raise SchemaError(
                f"{text[:40]!r} stands for two things: as a level, a spelling or a word for missing values; keep one"
            )
        seen.add(text)
    msgspec.structs.force_setattr(column, "spellings", spellings or None)
    msgspec.structs.force_setattr(column, "missing_words", words)


def _checked_words(key: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise SchemaError(f'{key} must be a list of texts, such as ["NA", "-9"]')
    if "" in words:
        raise SchemaError(f"{key} has an empty text; an empty cell is a missing value anyway: remove it")
    if len(words) > MAX_LEVELS or any(len(word) > MAX_LEVEL_LENGTH for word in words):
        raise SchemaError(f"{key}: at most {MAX_LEVELS} texts of at most {MAX_LEVEL_LENGTH} characters; remove some")
    return tuple(dict.fromkeys(words)) or None


def _read_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _extend(levels: tuple[str, ...], outside: str, missing: str | None) -> tuple[str, ...]:
    labels = levels
    if outside == OWN_LEVEL:
        labels = (*labels, OTHER_LABEL)
    return (*labels, MISSING_LABEL) if missing in (OWN_LEVEL, PAIRWISE) else labels


def _checked_scores(scores: Sequence[float], n_levels: int) -> tuple[float, ...]:
    numbers = tuple(_to_float(score) for score in scores)
    if len(numbers) != n_levels:
        raise SchemaError(f"{len(numbers)} scores are declared for {n_levels} levels; give one number for each level")
    if not all(math.isfinite(number) for number in numbers):
        raise SchemaError("scores must be finite numbers")
    if max(map(abs, numbers)) > LARGEST_SCORE:
        raise SchemaError(f"a score is larger than {LARGEST_SCORE:g}; scale the scores down")
    if len(numbers) > 1 and len(set(numbers)) == 1:
        raise SchemaError("all scores are the same number, so the column could never vary; give different numbers")
    return numbers


def _extend_numbers(scores: tuple[float, ...], n_levels: int) -> tuple[float, ...]:
    """Add numbers for the levels of other and missing values: the middle, which favours neither side."""
    middle = sum(scores) / len(scores)
    return (*scores, *[middle] * (n_levels - len(scores)))


def _checked_bounds(bounds: Sequence[float]) -> tuple[float, float]:
    if isinstance(bounds, str) or len(bounds) != 2:
        raise SchemaError("bounds must be two numbers, the lowest and the highest value")
    lower, upper = _to_float(bounds[0]), _to_float(bounds[1])
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise SchemaError(f"bounds are {lower:g} and {upper:g}; declare finite numbers")
    if lower >= upper:
        raise SchemaError(f"bounds {lower:g} and {upper:g} do not increase; put the lowest value first")
    return lower, upper


def _checked_inside(key: str, number: float, bounds: tuple[float, float]) -> float:
    number = _to_float(number)
    if not bounds[0] <= number <= bounds[1]:
        raise SchemaError(
            f"{key} is {number:g}, outside the bounds {bounds[0]:g} to {bounds[1]:g}; move it or the bounds"
        )
    return number


def _to_float(number: float) -> float:
    # adding zero turns -0.0 into 0.0, so that equal columns are written equally
    return float(number) + 0.0


def _equal_cuts(lower: float, upper: float, bins: int) -> tuple[float, ...]:
    # weights first: upper - lower can overflow, and the cuts must stay inside the bounds
    cuts = (lower * ((bins - k) / bins) + upper * (k / bins) for k in range(1, bins))
    return tuple(cut for cut in dict.fromkeys(cuts) if lower < cut < upper)

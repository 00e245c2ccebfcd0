"""Released evidence as a product of its own: everything public that a search needs, without the rows."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Final, Literal

import msgspec

from dagveil.data.moments import Basis
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError
from dagveil.evidence.blocks import covariance_from_features, covariance_from_mixed
from dagveil.evidence.covariance import covariance_from_tables
from dagveil.evidence.estimates import TableEstimate, TableOne, estimate_columns, estimate_table
from dagveil.evidence.implied import implied_blocks
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.mixed import FeatureEvidence, MixedEvidence
from dagveil.evidence.moments import MomentEvidence, covariance_from_moments
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence
from dagveil.evidence.tables import (
    NoisyTable,
    ReleasedTables,
    combine_alike,
    join_pairs,
    join_released,
    two_way_margins,
)
from dagveil.evidence.triples import TripleEvidence
from dagveil.files import Document, SavedRecord, encode_json
from dagveil.privacy.receipt import Receipt, check_receipt, check_summary
from dagveil.privacy.release import (
    NoisyCounts,
    NoisyFeatureMoments,
    NoisyInteractions,
    NoisyMagnitudes,
    NoisyMixedMoments,
    NoisyMoments,
    NoisyPairMoments,
    Release,
)
from dagveil.text import write_html_lines

AUTO = "auto"  # stands for a method where one may be chosen


class Candidate(msgspec.Struct, frozen=True):
    """A method that was tried: the mean of its skeleton's F1 on synthetic tables."""

    method: str
    f1: float


class Choice(msgspec.Struct, frozen=True):
    """The method that public facts chose."""

    method: str
    why: str
    candidates: tuple[Candidate, ...] = ()  # what was tried, best first; empty if nothing was
    left_out: tuple[str, ...] = ()  # methods that fit the schema but would have taken too long to run_trial
    # `rows`, `models`, `seed`: rows of each synthetic table, how many there were, and their public seed
    rows: int = 0
    models: int = 0
    seed: int = 0


def marginal_evidence(
    columns: Sequence[str],
    tables: Sequence[NoisyTable],
    interactions: Sequence[NoisyTable] = (),
    singles: Mapping[str, NoisyTable] | None = None,
    pairwise: frozenset[str] = frozenset(),
) -> PairEvidence:
    """Build the evidence that these tables carry.

    - `columns`: in the order wanted; each must stand in at least one pair table.
    - `tables`: tables of two or three columns with noise in every cell, in any number and order.
    - `interactions`, `singles`: centred counts of pairs and triples, and the margins that they share, if these were
      measured on their own. Then tables, too, tell about pairs by their interactions only: margins have one noise,
      which is not averaged away twice.
    - `pairwise`: columns whose last level, missing values, is left out of every table.
    """
    # margins of triples tell about pairs, too
    pairs = combine_alike(two_way_margins(tables)) if singles is None else join_released(tables, interactions, singles)
    covered = frozenset().union(*pairs)
    if missing := [name for name in columns if name not in covered]:
        raise EvidenceError(f"no released table holds the columns {', '.join(missing)}; measure them first")
    ordered = {(table.columns[0], table.columns[1]): table for table in pairs.values()}
    covariance = covariance_from_tables(columns, ordered, singles, pairwise)
    if not covariance.measured.all():
        covariance = covariance.filled(implied_blocks(PairEvidence(covariance)))
    of_three = [table for table in interactions if len(table.columns) == 3]
    joined = [] if singles is None else join_pairs(of_three, pairs, singles)
    triples = combine_alike(table for table in (*tables, *joined) if len(table.columns) == 3)
    return TripleEvidence(covariance, triples, pairs) if triples else PairEvidence(covariance)


EVIDENCE_VERSION = 2  # version of the JSON; readers refuse newer ones


_LARGEST: Final = 2**100  # released integers are smaller: those of one site fit into 64 bits, and sites are few
_MOST_BITS: Final = 40
_MOST_EXPONENTS: Final = 4096
_BASES: Final = frozenset(basis.value for basis in Basis)


class Stage(msgspec.Struct, frozen=True):
    """One step of the plan: what was measured, with which share of the budget, and why."""

    stage: str
    tables: int
    cells: int
    share: float
    noise_sd: float  # deviation of the noise, in rows for tables of counts and in scaled units for moments
    why: str


class Study(msgspec.Struct, frozen=True):
    """The public plan that several custodians agreed on."""

    name: str
    plan: str
    sites: tuple[str, ...]
    after: str | None = None  # digest of the plan of the first round, if this is the second one alone


class Part(msgspec.Struct, frozen=True):
    """What one site put into evidence; `release` is the digest of what it released."""

    site: str
    release: str
    nominal_rows: int
    receipt: Receipt


class Evidence(SavedRecord, frozen=True):
    """What `measure` released, with its receipt.

    `study` and `parts` are for evidence that follows an agreed plan: one part for each site's release in it.
    `choice` is for a method that nobody named.
    """

    format: Literal["dagveil-evidence"]
    version: int
    software: str
    created: str
    method: str
    schema: Schema
    plan: tuple[Stage, ...]
    findings: tuple[str, ...]
    receipt: Receipt
    releases: tuple[Release, ...]
    study: Study | None = None
    parts: tuple[Part, ...] = ()
    choice: Choice | None = None

    def independence(self) -> Independence | None:
        """Return tests on these releases, or None if nothing about pairs was released.

        Columns that no release covers are left out.
        """
        if self.study is not None and self.study.after is not None:
            raise EvidenceError(
                "this evidence is the second round of a study alone, and its margins are in the first; add the two "
                "with `dagveil combine` and search the sum"
            )
        return independence_from(tuple(self.schema.columns), self.releases, self.schema.pairwise)

    def table(self, *columns: str) -> TableEstimate:
        """Return the estimated counts of one or several columns, with standard errors.

        They come from whatever was released: tables of these columns or of more, or interactions and margins.
        """
        return estimate_table(self.schema, self.releases, columns)

    def table_one(self) -> TableOne:
        """Return what is known of each column by itself: counts of levels, or mean and deviation."""
        return estimate_columns(self.schema, self.releases)

    def to_json(self) -> str:
        """Write the evidence as JSON."""
        return _DOCUMENT.write(self).decode()

    def _repr_html_(self) -> str:
        """Show in a notebook what was released about each column, and what is promised."""
        one = self.table_one()
        spent = f"epsilon {float(Fraction(self.receipt.epsilon)):.4g}, delta {float(Fraction(self.receipt.delta)):.4g}"
        released = f"Evidence of {self.method} on {self.schema.dataset}, released under {spent}."
        unknown = [f"Nothing was released about {', '.join(one.unknown)} by itself."] if one.unknown else []
        return write_html_lines([released, *unknown, self.receipt.words()[0]]) + one._repr_html_()


def digest_releases(releases: tuple[Release, ...]) -> str:
    """Return the SHA-256 of releases: with noise in them, no two runs have the same."""
    return hashlib.sha256(encode_json(releases)).hexdigest()


def independence_from(
    columns: tuple[str, ...], releases: tuple[Release, ...], pairwise: frozenset[str] = frozenset()
) -> Independence | None:
    """Return tests on releases, or None if nothing about pairs was released.

    Of `pairwise` columns missing values, the last level or the indicator, are left out of whatever they stand in.
    """
    if features := [release for release in releases if isinstance(release, NoisyFeatureMoments)]:
        return FeatureEvidence(covariance_from_features(features[-1]))
    if mixed := [release for release in releases if isinstance(release, NoisyMixedMoments)]:
        again = [release for release in releases if isinstance(release, NoisyPairMoments)]
        return MixedEvidence(covariance_from_mixed(mixed[-1], columns, again, pairwise))
    if moments := [release for release in releases if isinstance(release, NoisyMoments)]:
        return MomentEvidence(covariance_from_moments(moments[-1]))
    released = ReleasedTables(releases)
    tables = released.tables
    if len(tables) == 1 and not released.centred and set(tables[0].columns) == set(columns):
        return JointEvidence(tables[0].margin(columns), released.rows, pairwise)
    interactions = [table for table in released.centred if len(table.columns) > 1]
    covered = {name for table in (*tables, *interactions) for name in table.columns}
    kept = [name for name in columns if name in covered]
    return marginal_evidence(kept, tables, interactions, released.singles or None, pairwise) if covered else None


def check_receipts(receipt: Receipt, parts: tuple[Part, ...], *, asked: bool = True) -> None:
    """Refuse a receipt that does not follow from its events; that of a sum must follow from the sites' own.

    - `asked`: whether anything was asked of the rows.
    """
    if len(parts) > 1:
        check_summary(receipt, [part.receipt for part in parts])
        return
    check_receipt(receipt, asked=asked)
    if parts and parts[0].receipt != receipt:
        raise EvidenceError("this evidence is damaged: its receipt is not that of its one site; release it again")


def _check_evidence(evidence: Evidence) -> None:
    check_receipts(evidence.receipt, evidence.parts)
    check_stages(evidence.plan)
    counted = {release.columns for release in evidence.releases if isinstance(release, NoisyCounts | NoisyInteractions)}
    of_two = {frozenset(columns) for columns in counted if len(columns) == 2}
    for release in evidence.releases:
        _check_release(release, evidence.schema)
        if isinstance(release, NoisyPairMoments):
            _check_pairs(release, evidence.releases)
        # a second round goes with the margins of the first
        if isinstance(release, NoisyInteractions) and (evidence.study is None or evidence.study.after is None):
            needed = [(), *((name,) for name in release.columns)]
            known = counted.issuperset(needed) and (
                len(release.columns) < 3 or all(frozenset(pair) in of_two for pair in combinations(release.columns, 2))
            )
            if not 1 <= len(release.columns) <= 3 or not known:
                raise EvidenceError("this evidence is damaged: an interaction lacks its margins; release it again")


def _check_pairs(again: NoisyPairMoments, releases: Sequence[Release]) -> None:
    """Refuse blocks of pairs that are not blocks of the matrix they belong to."""
    mixed = [release for release in releases if isinstance(release, NoisyMixedMoments)][-1:]
    sizes = {name: size for one in mixed for name, size in zip(one.columns, (*one.sizes, *one.features), strict=True)}
    shapes = tuple((sizes.get(x, 0), sizes.get(y, 0)) for x, y in again.pairs)
    if shapes != again.shapes or any(x == y for x, y in again.pairs):
        raise EvidenceError("this evidence is damaged: pairs do not fit their matrix; release it again")


def check_stages(plan: tuple[Stage, ...]) -> None:
    """Refuse stages with numbers that no run writes."""
    if not all(stage.tables >= 0 and stage.cells >= 0 and stage.share >= 0 and stage.noise_sd >= 0 for stage in plan):
        raise EvidenceError("a stage of the plan has a number below 0, so the file is damaged; ask for it again")


def _check_release(release: Release, schema: Schema) -> None:
    """Refuse a release whose numbers do not fit its own shape or the schema."""

    def fit_levels(names: tuple[str, ...], levels: tuple[int, ...]) -> bool:
        return [schema.columns[name].n_levels if name in schema.columns else None for name in names] == list(levels)

    columns = (release.column,) if isinstance(release, NoisyMagnitudes) else release.columns
    variances = [release.variance]
    if isinstance(release, NoisyCounts | NoisyInteractions):
        fits = len(release.values) == math.prod(release.shape) and fit_levels(columns, release.shape)
        fits = fits and 0 < release.lattice <= _LARGEST
    elif isinstance(release, NoisyPairMoments):
        fits = len(release.pairs) == len(release.shapes) > 0 and min(map(min, release.shapes)) > 0
        fits = fits and len(release.values) == sum(map(math.prod, release.shapes)) and 0 <= release.bits <= _MOST_BITS
    elif isinstance(release, NoisyMagnitudes):
        fits = len(release.values) > 0 and 0 < release.lattice <= _LARGEST
        fits = fits and abs(release.first_exponent) + len(release.values) <= _MOST_EXPONENTS
    else:
        numbers, size = columns, len(columns) + 1
        if isinstance(release, NoisyMixedMoments):
            numbers, size, widths, degrees = release.numbers, release.size, release.widths, release.degrees
            fits = fit_levels(release.levels, release.sizes) and len(release.levels) == len(release.steps)
            fits = fits and min(release.steps, default=1) > 0 and set(release.marked) <= set(numbers)
            fits = fits and len(numbers) == len(degrees)
        elif isinstance(release, NoisyFeatureMoments):
            size, widths, degrees = len(columns) * release.degree + 1, release.reaches, (release.degree,)
            fits = release.basis in _BASES
        else:
            widths, degrees, fits = release.spreads, (), True
        fits = fits and len(release.values) == size * (size + 1) // 2 and min(degrees, default=1) > 0
        fits = fits and len(numbers) == len(release.centers) == len(widths) and min(widths, default=1.0) > 0
        fits = fits and 0 <= release.bits <= _MOST_BITS and release.constant > 0 and release.radius_squared > 0
        variances.append(release.diagonal_variance)
    fits = fits and len(set(columns)) == len(columns) and all(name in schema.columns for name in columns)
    # a number of rows that is public has no noise
    public = release.variance == 0 and isinstance(release, NoisyCounts) and not columns
    fits = fits and (public or all(_LARGEST**-4 <= variance <= _LARGEST**4 for variance in variances))
    if not (fits and all(-_LARGEST <= value <= _LARGEST for value in release.values)):
        raise EvidenceError(
            f"this evidence is damaged: a release about {', '.join(columns) or 'the number of rows'} does not fit the "
            "schema in it; release it again"
        )


_DOCUMENT = Document(
    Evidence,
    "dagveil-evidence",
    EVIDENCE_VERSION,
    "dagveil evidence",
    "an evidence.json",
    "`dagveil measure`",
    "release it again",
    EvidenceError,
    sealed=True,
    check=_check_evidence,
)


def evidence_from_json(text: str | bytes) -> Evidence:
    """Read evidence back."""
    return _DOCUMENT.read(text)


def load_evidence(path: str | Path) -> Evidence:
    """Read evidence from a file."""
    return _DOCUMENT.open(path)

"""Restrict the evidence of sites that followed different plans to the columns and questions that they share.

Tables of other columns are left out, a joint table is summed over them, and of second moments the rows and columns of
the shared ones are kept: post-processing, so that each site's own receipt still holds. What the sites released, each by
itself, is also a release about a column that names the site: the table of the site and some columns is the sites' own
tables side by side. Every record of a site has the same level, and what a site is cannot be an effect of what its
records hold.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from dagveil.data.column import Categorical
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError
from dagveil.evidence.bundle import Evidence, Stage, Study
from dagveil.plans.site_run import noise_deviation
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, NoisyMoments, Release
from dagveil.runs.run import schema_knowledge

Tables = TypeVar("Tables", bound=NoisyCounts | NoisyInteractions)
Key = tuple[type, tuple[str, ...], int]
"""Kind of a release, its columns, and how many of the same came before it."""


def share_columns(loaded: Sequence[Evidence]) -> tuple[list[Evidence], list[str]]:
    """Return the evidence of each with what all have in common alone, and words about the rest.

    - `loaded`: evidence that follows agreed plans, which may differ.
    """
    studies = [item.study for item in loaded if item.study is not None]
    if len(set(studies)) == 1:
        return list(loaded), []
    if any(study.after is not None for study in studies):
        raise EvidenceError(
            "a second round goes with the first of its own plan; add the rounds of each plan first, and then the sums"
        )
    schemas = [item.schema for item in loaded]
    columns = tuple(
        name
        for name, column in schemas[0].columns.items()
        if all(schema.columns.get(name) == column for schema in schemas)
    )
    restricted = [_restrict(item, columns) for item in loaded]
    asked = [key for key in restricted[0] if all(key in releases for releases in restricted)]
    if not any(len(names) > 1 for _, names, _ in asked):
        raise EvidenceError(
            f"the sites share {len(columns)} columns that they declare alike, and no question about two of them, so "
            "nothing can be added; agree on levels, bounds and method for the columns that matter"
        )
    study = Study(
        name=" and ".join(dict.fromkeys(study.name for study in studies)),
        plan=hashlib.sha256(" ".join(sorted({study.plan for study in studies})).encode()).hexdigest(),
        sites=tuple(dict.fromkeys(site for study in studies for site in study.sites)),
    )
    aligned = list(zip(*(_align([releases[key] for releases in restricted]) for key in asked), strict=True))
    shared = []
    for item, releases in zip(loaded, aligned, strict=True):
        cells = sum(len(release.values) for release in releases)
        why = "the plans of all sites have it in common"
        stage = Stage("shared columns", len(releases), cells, 1.0, noise_deviation(releases[-1]), why)
        known = schema_knowledge(item.schema).within(columns)
        schema = replace(
            item.schema.narrow({name: item.schema.columns[name] for name in columns}),
            tiers=tuple(tier for tier in known.tiers if tier),
            forbidden=tuple(sorted(known.forbidden)),
            required=tuple(sorted(known.required)),
            ignore=(),  # what a site has beyond the shared columns is its own affair
        )
        shared.append(replace(item, schema=schema, plan=(stage,), releases=releases, study=study))
    told = _describe_columns(loaded, columns)
    lost = {names for releases in restricted for _, names, _ in releases if len(names) > 1}
    if lost := lost - {names for _, names, _ in asked}:
        told.append(f"Not all sites released tables of {len(lost)} sets of shared columns, so these were left out.")
    return shared, told


def _restrict(item: Evidence, columns: tuple[str, ...]) -> dict[Key, Release]:
    """Return the releases about these columns, axes in this order, by what they answer."""
    found: dict[Key, Release] = {}
    times: Counter[tuple[type, tuple[str, ...]]] = Counter()
    wanted = set(columns)
    for release in item.releases:
        kept: Release
        if isinstance(release, NoisyCounts | NoisyInteractions):
            joint = isinstance(release, NoisyCounts) and wanted <= set(release.columns)
            if not joint and not set(release.columns) <= wanted:
                continue
            kept = _restrict_counts(release, columns)
        elif isinstance(release, NoisyMoments):
            kept = _restrict_moments(release, columns)
        else:
            raise EvidenceError(
                f"the evidence of {item.schema.dataset!r} holds moments of features, or of levels beside numbers. "
                "Their coordinates were chosen for all columns of its plan together, so they cannot be restricted to "
                "some of them; agree on one plan for the shared columns"
            )
        kind = (type(kept), kept.columns)
        found[(*kind, times[kind])] = kept
        times[kind] += 1
    return found


def _restrict_counts(release: Tables, columns: tuple[str, ...]) -> Tables:
    """Sum a table over other columns, whose cells add their noise, and put its axes in this order."""
    values = np.array(release.values, dtype=object).reshape(release.shape)  # Python's integers: nothing overflows
    left = [name for name in release.columns if name in columns]
    gone = tuple(axis for axis, name in enumerate(release.columns) if name not in columns)
    order = sorted(left, key=columns.index)
    summed = np.asarray(values.sum(axis=gone) if gone else values, dtype=object)
    turned = summed.transpose([left.index(name) for name in order])
    return replace(
        release,
        columns=tuple(order),
        shape=turned.shape,
        variance=release.variance * (values.size // turned.size),
        values=tuple(turned.ravel().tolist()),
    )


def _restrict_moments(release: NoisyMoments, columns: tuple[str, ...]) -> NoisyMoments:
    """Keep the rows and columns of these columns, in this order."""
    size = len(release.columns) + 1
    whole = np.zeros((size, size), dtype=object)
    whole[np.triu_indices(size)] = release.values
    whole = np.where(np.tri(size, k=-1, dtype=bool), whole.T, whole)
    own = [release.columns.index(name) for name in columns]
    places = [0, *(place + 1 for place in own)]
    kept = whole[np.ix_(places, places)]
    return replace(
        release,
        columns=columns,
        centers=tuple(release.centers[place] for place in own),
        spreads=tuple(release.spreads[place] for place in own),
        values=tuple(kept[np.triu_indices(len(kept))].tolist()),
    )


def _align(group: Sequence[Release]) -> list[Release]:
    """Write moments of several plans in the same units; tables are in rows everywhere."""
    moments = [release for release in group if isinstance(release, NoisyMoments)]
    if not moments:
        return list(group)
    constant = min(release.constant for release in moments)
    bits = min(release.bits for release in moments)
    radius_squared = max(release.radius_squared for release in moments)
    aligned: list[Release] = []
    for release in moments:
        factors = np.ones(len(release.columns) + 1)
        factors[0] = constant / release.constant  # at most 1, so that no noise gets larger than its variance says
        coarser = 4 ** (release.bits - bits)
        scales = np.outer(factors, factors)[np.triu_indices(len(factors))] / coarser
        values = tuple(round(value * scale) for value, scale in zip(release.values, scales, strict=True))
        units = {"constant": constant, "bits": bits, "radius_squared": radius_squared}
        noise = {name: getattr(release, name) / coarser**2 for name in ("variance", "diagonal_variance")}
        aligned.append(replace(release, **units, **noise, values=values))
    return aligned


def _describe_columns(loaded: Sequence[Evidence], columns: Sequence[str]) -> list[str]:
    """Say which columns were left out, and because of which site."""
    told = []
    for name in dict.fromkeys(name for item in loaded for name in item.schema.columns if name not in columns):
        having = [item for item in loaded if name in item.schema.columns]
        if len(having) == len(loaded):
            told.append(f"{name} (declared otherwise at some site)")
        else:
            lacking = ", ".join(part.site for item in loaded if item not in having for part in item.parts)
            told.append(f"{name} (not at {lacking})")
    return [f"Of the columns of all sites these were left out: {', '.join(told)}."] if told else []


SMALLEST_VARIANCE = Fraction(1, 10**6)
"""Stands for no noise where numbers of rows are public: a released interaction has some."""


def declare_site(schema: Schema, name: str, sites: Sequence[str]) -> Schema:
    """Return a schema with a column for the site, into which no arrow may point."""
    if name in schema.columns:
        raise EvidenceError(f"there is a column {name!r} already; give the one for the sites another name")
    column = Categorical(tuple(sites), sites[0])
    forbidden = (*schema.forbidden, *((other, name) for other in schema.columns))
    return replace(schema, columns={name: column, **schema.columns}, forbidden=forbidden)


def stack_releases(name: str, group: Sequence[Release]) -> list[Release]:
    """Return the answers of several sites to one question as an answer about the site's column as well.

    Tables with noise in every cell come as one with a further axis, which holds their sum. Of the number of rows and of
    interactions of one or two columns the interaction with the site is returned. Where noise differs from site to site,
    the largest variance stands for all: tests are then too careful.
    """
    tables = [release for release in group if isinstance(release, NoisyCounts | NoisyInteractions)]
    if len(tables) < len(group):
        raise EvidenceError(
            "these sites released moments, and which site a row belongs to has no coordinate in them; leave the column "
            "for the site out, or agree on a plan of counts, with bins for numbers"
        )
    first = tables[0]
    if len(first.columns) > 2 and isinstance(first, NoisyInteractions):
        return []
    lattice = math.lcm(*(release.lattice for release in tables))
    factors = [lattice // release.lattice for release in tables]
    variance = max(factor**2 * release.variance for factor, release in zip(factors, tables, strict=True))
    rows = [[factor * value for value in release.values] for factor, release in zip(factors, tables, strict=True)]
    columns, shape = (name, *first.columns), (len(tables), *first.shape)
    if isinstance(first, NoisyCounts) and first.columns:
        return [NoisyCounts(columns, shape, lattice, variance, tuple(value for row in rows for value in row))]
    sums = [sum(cells) for cells in zip(*rows, strict=True)]
    centred = tuple(len(rows) * value - total for row in rows for value, total in zip(row, sums, strict=True))
    noise = max(variance, SMALLEST_VARIANCE * lattice**2) * len(rows) ** 2
    return [NoisyInteractions(columns, shape, lattice, noise, centred)]

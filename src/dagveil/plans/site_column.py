"""The site as a column: what the sites released, each by itself, is also a release about a column that names the site.

The table of the site and some columns is the sites' own tables side by side, so it costs nothing. Every record of a
site has the same level, and what a site is cannot be an effect of what its records hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from msgspec.structs import replace

from dagveil.data.column import Categorical
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, Release

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

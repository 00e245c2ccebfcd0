"""From a list of released tables to evidence that answers questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagveil.errors import EvidenceError
from dagveil.evidence.covariance import covariance_from_tables
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.tables import NoisyTable, combine_each, join_margins, two_way_margins
from dagveil.evidence.triples import TripleEvidence


def pair_tables(tables: Sequence[NoisyTable]) -> dict[frozenset[str], NoisyTable]:
    """Combine every release that tells something about a pair, margins of triples included, into one table per pair."""
    found: dict[frozenset[str], list[NoisyTable]] = {}
    for margin in two_way_margins(tables):
        found.setdefault(frozenset(margin.columns), []).append(margin)
    return dict(zip(found, combine_each(list(found.values())), strict=True))


def triple_tables(tables: Sequence[NoisyTable]) -> dict[frozenset[str], NoisyTable]:
    """Combine the releases of each triple."""
    found: dict[frozenset[str], list[NoisyTable]] = {}
    for table in tables:
        if len(table.columns) == 3:
            found.setdefault(frozenset(table.columns), []).append(table)
    return dict(zip(found, combine_each(list(found.values())), strict=True))


def _centre(table: NoisyTable) -> NoisyTable:
    """Return the interaction of a pair table; `variance` is that of its directions already."""
    counts = table.counts - table.counts.mean(axis=0, keepdims=True)
    return NoisyTable(table.columns, counts - counts.mean(axis=1, keepdims=True), table.variance)


def marginal_evidence(
    columns: Sequence[str],
    tables: Sequence[NoisyTable],
    interactions: Sequence[NoisyTable] = (),
    singles: Mapping[str, NoisyTable] | None = None,
) -> PairEvidence:
    """Build the evidence that these tables carry.

    Parameters
    ----------
    columns
        The columns, in the order wanted; each must stand in at least one pair table.
    tables
        Tables of two or three columns with noise in every cell, in any number and order.
    interactions, singles
        Centred counts of pairs, and the margins that they share, if these were measured on their own. Then tables, too,
        tell about pairs by their interactions only: margins have one noise, which is not averaged away twice.
    """
    if singles is None:
        pairs = pair_tables(tables)
    else:
        centred = pair_tables([*interactions, *(_centre(margin) for margin in two_way_margins(tables))])
        pairs = {frozenset(table.columns): table for table in join_margins(list(centred.values()), singles)}
    covered = {name for pair in pairs for name in pair}
    if missing := [name for name in columns if name not in covered]:
        raise EvidenceError(f"no released table holds the columns {', '.join(missing)}; measure them first")
    ordered = {(table.columns[0], table.columns[1]): table for table in pairs.values()}
    covariance = covariance_from_tables(columns, ordered, singles)
    triples = triple_tables(tables)
    return TripleEvidence(covariance, triples, pairs) if triples else PairEvidence(covariance)

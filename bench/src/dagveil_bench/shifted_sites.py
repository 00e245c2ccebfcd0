"""Sites that differ: one of several follows a network in which the laws of some nodes were changed.

The evidence of all sites is added as if they were alike, and again with a column for the site. Its children are to be
the changed nodes, and nothing where no node was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec.structs import replace as replace_fields

from dagveil.data.memory import MemoryTable
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Cpdag
from dagveil.plans.combine import combine_evidence, compare_sites
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.studies.metrics import Metric

SITES: Final = 4
KEPT: Final = 0.5  # share of the old law in a changed one; the rest is drawn evenly from all laws
SITE: Final = "site"
ALIKE, WITH_SITE = "added", "with a column for the site"


def read_shifted(source: str) -> tuple[Network, int]:
    """Read a network and how many of its nodes are changed at one site, as in "asia 2"."""
    name, _, number = source.partition(" ")
    network = load_network(name)
    if not number.isdecimal() or int(number) > len(network.nodes):
        raise MethodError(f"{source!r} needs the number of changed nodes after the network, for example '{name} 2'")
    return network, int(number)


def change_laws(network: Network, nodes: Sequence[str], rng: np.random.Generator) -> Network:
    """Return the network with other laws of these nodes given their parents."""
    tables = dict(network.tables)
    for node in nodes:
        *cases, levels = tables[node].shape
        tables[node] = KEPT * tables[node] + (1 - KEPT) * rng.dirichlet(np.ones(levels), size=tuple(cases))
    return replace(network, tables=tables)


def measure_shifted(
    network: Network, changed: int, rows: int, epsilon: float, delta: float, seed: int
) -> tuple[list[Evidence], frozenset[str]]:
    """Let every site follow one plan, the first one on rows of the changed network; return also the changed nodes."""
    rng = np.random.default_rng([seed, changed])
    chosen = frozenset(str(node) for node in rng.choice(network.nodes, changed, replace=False))
    shifted = change_laws(network, sorted(chosen), rng)
    schema = network_schema(network, rows, "study")
    sites = {f"site {k + 1}": rows for k in range(SITES)}
    plan = plan_measurement(schema, epsilon, delta, sites=sites)
    released = []
    for k, name in enumerate(sites):
        own = replace_fields(schema, dataset=name)
        table = MemoryTable.from_codes(sample_codes(network if k else shifted, rows, rng), own)
        noise = seed * SITES + k
        released.append(measure_planned(table, plan, name, schema=own, noise=NoiseKind.SEEDED, seed=noise, ledger=None))
    return released, chosen


def search_shifted(
    way: str, released: Sequence[Evidence], changed: frozenset[str]
) -> tuple[Cpdag, dict[Metric, float]]:
    """Search the sum; return the graph without the site, and what is said of sites and of changed nodes."""
    site_column = SITE if way == WITH_SITE else None
    evidence = combine_evidence(released, site_column=site_column)
    graph = search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag
    agreement = compare_sites(released)
    scores = {
        Metric.COLUMNS_NAMED: float(bool(agreement.differing_columns)),
        Metric.PAIRS_NAMED: float(bool(agreement.differing_pairs)),
    }
    if way == WITH_SITE:
        children = {node for cause, node in graph.directed if cause == SITE}
        scores[Metric.FALSE_CHILDREN] = float(len(children - changed))
        if changed:
            scores[Metric.CHANGED_FOUND] = len(children & changed) / len(changed)
    seen = Cpdag(
        tuple(node for node in graph.nodes if node != SITE),
        frozenset(arc for arc in graph.directed if SITE not in arc),
        frozenset(pair for pair in graph.undirected if SITE not in pair),
    )
    return seen, scores

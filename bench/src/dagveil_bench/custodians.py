"""Several sites: graphs from their added evidence beside the pooled run, and sites that differ.

Where sites differ, one of several follows a network in which the laws of some nodes were changed. The evidence of all
is added as if they were alike, and again with a column for the site. Its children are to be the changed nodes, and
nothing where no node was changed.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Cpdag
from dagveil.plans.combine import combine_evidence, compare_sites
from dagveil.plans.plan_file import MeasurementPlan
from dagveil.plans.planning import plan_measurement, plan_second_round
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.studies.metrics import Metric

POOLED = 0  # stands for the pooled run, which chooses its later questions by what it has released: `measure` as it is
Codes = Mapping[str, NDArray[np.uint8]]


def count_sites(text: str) -> tuple[int, int]:
    """Read numbers of sites and rounds; a site has the whole epsilon, since its people are at no other one."""
    found = re.fullmatch(r"pooled|([1-9]\d*) sites?(, two rounds)?", text)
    if found is None:
        raise MethodError(f"{text!r} is no number of sites; write 'pooled', '1 site', '2 sites, two rounds' and so on")
    return int(found[1] or POOLED), 2 if found[2] else 1


def measure_sites(
    codes: Codes, schema: Schema, epsilon: float, delta: float, count: int, seed: int, rounds: int = 1
) -> Evidence:
    """Deal rows out to sites of equal size, let each follow one plan, and add what they release."""
    if count == POOLED:
        table = MemoryTable.from_codes(codes, schema)
        return measure_source(table, schema, epsilon, delta, noise=NoiseKind.SEEDED, seed=seed, ledger=None)
    rows = len(next(iter(codes.values())))
    cuts = np.linspace(0, rows, count + 1).astype(int)
    sizes = {f"site {k + 1}": int(cuts[k + 1] - cuts[k]) for k in range(count)}
    plan = plan_measurement(schema, epsilon, delta, sites=sizes, rounds=rounds)

    def follow(plan: MeasurementPlan, seed: int) -> list[Evidence]:
        released = []
        for k, name in enumerate(sizes):
            own = replace(schema, dataset=name, nominal_rows=sizes[name])
            part = {column: array[cuts[k] : cuts[k + 1]] for column, array in codes.items()}
            table = MemoryTable.from_codes(part, own)
            released.append(
                measure_planned(table, plan, name, schema=own, noise=NoiseKind.SEEDED, seed=seed + k, ledger=None)
            )
        return released

    first = follow(plan, seed)
    combined = combine_evidence(first) if count > 1 else first[0]
    if rounds == 1:
        return combined
    # seeds of the first round must not come again: the same noise twice would not average out
    return combine_evidence([combined, *follow(plan_second_round(plan, combined), seed + count)])


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
    return dataclasses.replace(network, tables=tables)


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
        own = replace(schema, dataset=name)
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

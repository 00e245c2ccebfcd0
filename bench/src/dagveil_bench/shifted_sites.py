"""Sites that differ: one of several follows a network in which the laws of some nodes were changed.

The evidence of all sites is added as if they were alike, and again with a column for the site. Its children are to be
the changed nodes, and nothing where no node was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from msgspec.structs import replace as replace_fields

from dagveil.data.memory import MemoryTable
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.evidence.bundle import Evidence
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Cpdag
from dagveil.plans.combine import combine_evidence, compare_sites
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.tables import write_table

SITES: Final = 4
CHANGED: Final = (0, 1, 2, 4)
KEPT: Final = 0.5  # share of the old law in a changed one; the rest is drawn evenly from all laws
DELTA: Final = "1e-6"
SITE: Final = "site"


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a network, how many of its nodes are changed at one site, rows of each site, budget and seed."""

    network: str
    changed: int
    rows: int
    epsilon: float
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found.

    - `added`, `with_site`: skeleton F1 of the added evidence, and with a column for the site, which F1 leaves out.
    - `found`, `false`: changed nodes among the site's children, and others.
    - `columns`, `pairs`: whether the comparison of sites named any column, and any pair.
    """

    case: Case
    added: float
    with_site: float
    found: int
    false: int
    columns: bool
    pairs: bool


def change_laws(network: Network, nodes: Sequence[str], rng: np.random.Generator) -> Network:
    """Return the network with other laws of these nodes given their parents."""
    tables = dict(network.tables)
    for node in nodes:
        *cases, levels = tables[node].shape
        tables[node] = KEPT * tables[node] + (1 - KEPT) * rng.dirichlet(np.ones(levels), size=tuple(cases))
    return replace(network, tables=tables)


def measure_shifted(case: Case) -> tuple[list[Evidence], frozenset[str]]:
    """Let every site follow one plan, the first one on rows of the changed network; return also the changed nodes."""
    network = load_network(case.network)
    rng = np.random.default_rng([case.seed, case.changed])
    chosen = frozenset(str(node) for node in rng.choice(network.nodes, case.changed, replace=False))
    shifted = change_laws(network, sorted(chosen), rng)
    schema = network_schema(network, case.rows, "study")
    sites = {f"site {k + 1}": case.rows for k in range(SITES)}
    plan = plan_measurement(schema, case.epsilon, DELTA, sites=sites)
    released = []
    for k, name in enumerate(sites):
        own = replace_fields(schema, dataset=name)
        table = MemoryTable.from_codes(sample_codes(network if k else shifted, case.rows, rng), own)
        seed = case.seed * SITES + k
        released.append(measure_planned(table, plan, name, schema=own, noise=NoiseKind.SEEDED, seed=seed, ledger=None))
    return released, chosen


def run_case(case: Case) -> Outcome:
    """Search the evidence with and without a column for the site."""
    released, changed = measure_shifted(case)
    truth = load_network(case.network).dag()
    settings = SearchSettings(redraws=0)
    added = search_evidence(combine_evidence(released), settings).graph.cpdag
    sited = search_evidence(combine_evidence(released, site_column=SITE), settings).graph.cpdag
    children = {node for cause, node in sited.directed if cause == SITE}
    agreement = compare_sites(released)
    return Outcome(
        case,
        skeleton_f1(added, truth),
        skeleton_f1(_without_site(sited), truth),
        len(children & changed),
        len(children - changed),
        bool(agreement.differing_columns),
        bool(agreement.differing_pairs),
    )


def _without_site(graph: Cpdag) -> Cpdag:
    return Cpdag(
        tuple(node for node in graph.nodes if node != SITE),
        frozenset(arc for arc in graph.directed if SITE not in arc),
        frozenset(pair for pair in graph.undirected if SITE not in pair),
    )


def run_shifted(networks: Sequence[str], rows: int, epsilon: float, runs: int, progress: Progress) -> list[Outcome]:
    """Run all networks with all numbers of changed nodes."""
    cases = [
        Case(network, changed, rows, epsilon, seed)
        for network in networks
        for changed in CHANGED
        for seed in range(runs)
    ]
    found = []
    for done, case in enumerate(cases):
        progress("sites that differ", done, len(cases))
        found.append(run_case(case))
    progress("sites that differ", len(cases), len(cases))
    return found


def shifted_section(found: Sequence[Outcome], command: str) -> str:
    """Write the section."""
    lines = []
    for network, changed in dict.fromkeys((one.case.network, one.case.changed) for one in found):
        runs = [one for one in found if (one.case.network, one.case.changed) == (network, changed)]
        share = f"{np.mean([one.found for one in runs]) / changed:.2f}" if changed else "–"
        named = [sum(getattr(one, field) for one in runs) / len(runs) for field in ("columns", "pairs")]
        lines.append(
            (
                network,
                str(changed),
                _write([one.added for one in runs]),
                _write([one.with_site for one in runs]),
                share,
                f"{np.mean([one.false for one in runs]):.2f}",
                *(f"{each:.2f}" for each in named),
            )
        )
    case = found[0].case
    heads = ("network", "changed", "F1, added", "F1, site column", "found", "false", "columns named", "pairs named")
    return "\n".join(
        [
            "## Sites that differ",
            "",
            f"{SITES} sites of {case.rows} rows, ε = {case.epsilon:g}, δ = 10⁻⁶, {len(runs)} runs per line, one search "
            "of each without redraws. At one site the laws of 0 to 4 nodes, drawn at random, were changed: half the "
            "old law, half one drawn evenly from all laws. The evidence is added as if sites were alike, or with a "
            "column for the site; F1 is that of the skeleton without the site (± standard error).",
            "",
            "*Found* is the share of changed nodes among the site's children, *false* how many other children a run "
            "has. The last two tell in which share of runs the comparison of sites names any column whose distribution "
            "differs, and any pair whose dependence does: where nothing was changed, each should be 0.05 at most.",
            "",
            f"    {command}",
            "",
            write_table(heads, lines),
        ]
    )


def _write(scores: Sequence[float]) -> str:
    error = float(np.std(scores, ddof=1)) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
    return f"{np.mean(scores):.3f} ± {error:.3f}"

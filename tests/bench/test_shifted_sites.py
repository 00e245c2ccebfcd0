"""The study of sites that differ: what it changes, and what it says of them."""

from __future__ import annotations

import pytest

from dagveil.errors import MethodError
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.examples.networks import load_network
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.custodians import ALIKE, WITH_SITE, measure_shifted, read_shifted, search_shifted
from dagveil_bench.studies.metrics import Metric


def test_no_node_is_changed_unless_it_is_said_and_all_sites_follow_the_network() -> None:
    network = load_network("cancer")
    released, changed = measure_shifted(network, 0, 20_000, 20.0, 1e-6, 1)
    assert changed == frozenset()
    one, *others = ([site.table(name).shares for name in site.schema.columns] for site in released)
    assert all(abs(a - b).max() < 0.02 for other in others for a, b in zip(one, other, strict=True))
    released, changed = measure_shifted(network, 2, 20_000, 20.0, 1e-6, 1)
    assert len(changed) == 2
    assert any(abs(released[0].table(name).shares - released[1].table(name).shares).max() > 0.05 for name in changed)
    found = search_evidence(released[1], SearchSettings(redraws=0)).graph.cpdag
    assert skeleton_f1(found, network.dag()) > 0.5


def test_a_changed_node_is_a_child_of_the_site_and_sites_are_said_to_differ() -> None:
    released, changed = measure_shifted(load_network("cancer"), 2, 20_000, 20.0, 1e-6, 1)
    alike, told = search_shifted(ALIKE, released, changed)
    assert told == {Metric.COLUMNS_NAMED: 1.0, Metric.PAIRS_NAMED: 1.0}
    graph, told = search_shifted(WITH_SITE, released, changed)
    assert graph.nodes == alike.nodes == load_network("cancer").nodes
    assert told[Metric.CHANGED_FOUND] > 0.0


def test_a_source_is_a_network_and_a_number_of_its_nodes() -> None:
    network, changed = read_shifted("asia 2")
    assert (network.name, changed) == ("asia", 2)
    for source in ("asia", "asia 9", "asia x"):
        with pytest.raises(MethodError, match="needs the number of changed nodes after the network"):
            read_shifted(source)

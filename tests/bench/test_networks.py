from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dagveil.errors import GraphError, MethodError
from dagveil.examples.networks import NETWORK_NAMES, load_network

SIZES = {
    "cancer": (5, 4),
    "earthquake": (5, 4),
    "survey": (6, 6),
    "asia": (8, 8),
    "sachs": (11, 17),
    "child": (20, 25),
    "alarm": (37, 46),
    "insurance": (27, 52),
    "hailfinder": (56, 66),
}


def test_the_names_are_those_of_the_literature() -> None:
    assert set(NETWORK_NAMES) == set(SIZES)


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_sizes_and_tables(name: str) -> None:
    network = load_network(name)
    dag = network.dag()
    assert (len(network.nodes), len(dag.edges)) == SIZES[name]
    assert network.name == name
    for node in network.nodes:
        assert dag.parents(node) == set(network.parents[node])
        assert len(set(network.levels[node])) == len(network.levels[node]) >= 2
        np.testing.assert_allclose(network.tables[node].sum(axis=-1), 1.0, atol=1e-12)
        assert not network.tables[node].flags.writeable
    assert dag.cpdag().is_valid()


def test_axes_of_a_table_follow_the_parents() -> None:
    """Probabilities of Lauritzen and Spiegelhalter (1988) and of Korb and Nicholson, by the names of the levels."""
    asia = load_network("asia")
    assert asia.parents["dysp"] == ("bronc", "either")
    yes, no = (asia.levels["dysp"].index(level) for level in ("yes", "no"))
    assert asia.tables["dysp"][no, yes, yes] == 0.7  # no bronchitis, but tuberculosis or cancer
    assert asia.tables["dysp"][yes, no, yes] == 0.8
    earthquake = load_network("earthquake")
    table, parents = earthquake.tables["Alarm"], earthquake.parents["Alarm"]
    case = {"Burglary": "True", "Earthquake": "False"}
    place = tuple(earthquake.levels[parent].index(case[parent]) for parent in parents)
    assert table[(*place, earthquake.levels["Alarm"].index("True"))] == 0.94


def test_unknown_network_lists_the_known_ones() -> None:
    with pytest.raises(MethodError, match=r"'asai'.*cancer, earthquake, survey, asia"):
        load_network("asai")


def test_refuses_tables_of_the_wrong_shape_or_sum() -> None:
    network = load_network("cancer")
    with pytest.raises(GraphError, match="shape"):
        dataclasses.replace(network, tables={**network.tables, "Cancer": np.array([0.5, 0.5])})
    with pytest.raises(GraphError, match="sum 1"):
        dataclasses.replace(network, tables={**network.tables, "Cancer": network.tables["Cancer"] * 1.01})

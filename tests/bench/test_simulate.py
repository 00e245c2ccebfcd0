from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from dagveil.errors import GraphError
from dagveil.examples.networks import (
    LinearGaussian,
    Network,
    load_network,
    random_linear_gaussian,
    sample_codes,
    sample_linear_gaussian,
    sample_table,
)
from dagveil_bench.drawn_tables import random_network

N_ROWS = 100_000


def exact_joint(network: Network) -> NDArray[np.float64]:
    """Return the probability of every cell, one product of table entries at a time."""
    place = {node: position for position, node in enumerate(network.nodes)}
    joint = np.zeros([len(network.levels[node]) for node in network.nodes])
    for cell in product(*(range(size) for size in joint.shape)):
        probability = 1.0
        for node in network.nodes:
            case = tuple(cell[place[parent]] for parent in network.parents[node])
            probability *= network.tables[node][(*case, cell[place[node]])]
        joint[cell] = probability
    return joint


def count_cells(network: Network, codes: dict[str, NDArray[np.uint8]]) -> NDArray[np.float64]:
    shape = [len(network.levels[node]) for node in network.nodes]
    flat = np.ravel_multi_index([codes[node].astype(int) for node in network.nodes], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def p_value(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Pearson's test of counts, with rare cells put together."""
    observed, expected = observed.ravel(), expected.ravel()
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    assert observed[~kept].sum() == 0
    statistic = float(((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    return float(chi2.sf(statistic, kept.sum() - 1))


@pytest.mark.parametrize("name", ["cancer", "earthquake", "survey", "asia"])
def test_joint_distribution_against_brute_force(name: str) -> None:
    network = load_network(name)
    joint = exact_joint(network)
    assert joint.sum() == pytest.approx(1.0)
    counts = count_cells(network, sample_codes(network, N_ROWS, np.random.default_rng(1)))
    assert counts[joint == 0].sum() == 0
    assert p_value(counts, joint * N_ROWS) > 1e-3


def test_the_chi_square_rejects_a_slightly_wrong_network() -> None:
    network = load_network("survey")
    tables = dict(network.tables)
    tables["T"] = 0.97 * tables["T"] + 0.03 * tables["T"][..., ::-1]
    wrong = Network("wrong", network.nodes, network.levels, network.parents, tables)
    counts = count_cells(network, sample_codes(wrong, N_ROWS, np.random.default_rng(1)))
    assert p_value(counts, exact_joint(network) * N_ROWS) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_random_networks_against_brute_force(seed: int) -> None:
    network = random_network(5, 0.6, np.random.default_rng(seed), n_levels=(2, 3))
    counts = count_cells(network, sample_codes(network, N_ROWS, np.random.default_rng(seed + 100)))
    assert p_value(counts, exact_joint(network) * N_ROWS) > 1e-3


def test_impossible_levels_are_never_drawn() -> None:
    """Ten times 0.1 is less than 1 in floating point; the level after it must stay impossible."""
    table = np.array([0.1] * 10 + [0.0])
    network = Network("tail", ("x",), {"x": tuple("abcdefghijk")}, {"x": ()}, {"x": table})

    class NearlyOne(np.random.Generator):
        def random(self, *args: object, **kwargs: object) -> NDArray[np.float64]:  # type: ignore[override]
            return np.full(3, np.nextafter(1.0, 0.0))

    codes = sample_codes(network, 3, NearlyOne(np.random.PCG64(0)))
    assert codes["x"].tolist() == [9, 9, 9]


def test_same_seed_same_rows_and_columns_in_the_order_of_the_nodes() -> None:
    network = load_network("child")
    one, other = (sample_codes(network, 50, np.random.default_rng(7)) for _ in range(2))
    assert tuple(one) == network.nodes
    for node in network.nodes:
        assert one[node].dtype == np.uint8
        np.testing.assert_array_equal(one[node], other[node])


def test_table_has_the_names_of_the_levels() -> None:
    network = load_network("survey")
    table = sample_table(network, 200, np.random.default_rng(3))
    codes = sample_codes(network, 200, np.random.default_rng(3))
    assert table.column_names == list(network.nodes)
    for node in network.nodes:
        column = table.column(node)
        assert pa.types.is_dictionary(column.type)
        assert pa.types.is_string(column.type.value_type)
        assert column.to_pylist() == [network.levels[node][code] for code in codes[node]]


def test_random_network_keeps_its_promises() -> None:
    rng = np.random.default_rng(0)
    n_edges, turned = [], 0
    for _ in range(60):
        network = random_network(10, 0.2, rng)
        edges = network.dag().edges
        n_edges.append(len(edges))
        turned += sum(network.nodes.index(tail) > network.nodes.index(head) for tail, head in edges)
        assert all(len(network.parents[node]) <= 4 for node in network.nodes)
        assert {len(network.levels[node]) for node in network.nodes} <= {2, 3, 4}
    assert np.mean(n_edges) == pytest.approx(0.2 * 45, abs=1.2)
    assert turned / sum(n_edges) == pytest.approx(0.5, abs=0.1)
    dense = random_network(9, 1.0, rng)
    assert sorted(len(dense.parents[node]) for node in dense.nodes) == [0, 1, 2, 3, 4, 4, 4, 4, 4]


def test_random_linear_gaussian_is_that_of_pcalg() -> None:
    rng = np.random.default_rng(0)
    model = random_linear_gaussian(60, 0.4, rng)
    weights = model.weights[np.triu_indices(60, k=1)]
    used = weights[weights != 0]
    assert not np.tril(model.weights).any()
    assert len(used) / len(weights) == pytest.approx(0.4, abs=0.04)
    assert used.min() >= 0.1
    assert used.max() <= 1.0
    assert used.mean() == pytest.approx(0.55, abs=0.03)
    assert (model.scales == 1).all()
    assert model.dag().order() == model.nodes


def test_linear_rows_against_the_exact_covariance() -> None:
    model = random_linear_gaussian(6, 0.6, np.random.default_rng(5))
    # The nodes in another order: the sampler must follow the graph, not the columns.
    mixed = np.random.default_rng(6).permutation(6)
    scales = np.linspace(0.5, 2.0, 6)
    model = LinearGaussian(tuple(model.nodes[i] for i in mixed), model.weights[np.ix_(mixed, mixed)], scales)
    rows = sample_linear_gaussian(model, N_ROWS, np.random.default_rng(7))
    covariance = model.covariance()
    # Isserlis: the variance of an entry of the sample covariance is (s_ii s_jj + s_ij²) / n.
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / N_ROWS)
    assert rows.shape == (N_ROWS, 6)
    assert (np.abs(rows.T @ rows / N_ROWS - covariance) < 5 * spread).all()


def test_exact_covariance_against_paths() -> None:
    """Wright's rule for a chain with a shortcut, worked out by hand."""
    weights = np.zeros((3, 3))
    weights[0, 1], weights[1, 2], weights[0, 2] = 0.5, 0.4, 0.3
    covariance = LinearGaussian(("x", "y", "z"), weights, np.ones(3)).covariance()
    assert covariance[0, 2] == pytest.approx(0.3 + 0.5 * 0.4)
    assert covariance[1, 1] == pytest.approx(1 + 0.25)
    assert covariance[1, 2] == pytest.approx(0.4 * 1.25 + 0.3 * 0.5)


@pytest.mark.parametrize(("n_nodes", "sparseness"), [(0, 0.5), (3, -0.1), (3, 1.1)])
def test_refuses_impossible_sizes(n_nodes: int, sparseness: float) -> None:
    for make in (random_network, random_linear_gaussian):
        with pytest.raises(GraphError, match="sparseness between 0 and 1"):
            make(n_nodes, sparseness, np.random.default_rng(0))


def test_refuses_weights_that_run_in_a_circle_or_do_not_fit() -> None:
    circle = LinearGaussian(("x", "y"), np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones(2))
    with pytest.raises(GraphError):
        circle.dag()
    with pytest.raises(GraphError, match="shape"):
        LinearGaussian(("x",), np.zeros((2, 2)), np.ones(1))
    with pytest.raises(GraphError, match="levels"):
        random_network(3, 0.5, np.random.default_rng(0), n_levels=(3, 2))


def test_no_pair_of_columns_is_joined_twice() -> None:
    network = random_network(8, 0.5, np.random.default_rng(2))
    skeleton = network.dag().skeleton()
    assert len(skeleton) == len(network.dag().edges)
    assert skeleton <= {frozenset(pair) for pair in combinations(network.nodes, 2)}

"""Tables with missing values, and ordered levels: what is drawn, and the pages."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from dagveil.data.column import PAIRWISE
from dagveil_bench import missing, ordinal


@pytest.mark.parametrize("mechanism", missing.MECHANISMS)
def test_three_quarters_of_the_columns_lose_about_the_share_wanted(mechanism: str) -> None:
    _, columns, _ = missing.draw_case("mixed", 5000, 1)
    gone = missing.choose_missing(columns, mechanism, 0.3, 1)
    assert len(gone) == 8
    assert all(0.12 < chosen.mean() < 0.48 for chosen in gone.values())
    assert np.mean([chosen.mean() for chosen in gone.values()]) == pytest.approx(0.3, abs=0.1)


def test_a_page_of_missing_values_has_every_cell() -> None:
    cases = list(missing.list_cases(("mixed",), (1000,), 1, 1))
    found = {(c.network, c.rows, c.mechanism, c.rate, c.epsilon, c.way): [(0.5, 0.25)] for c in cases}
    page = missing.missing_page(found, 1, "dagveil bench missing")
    assert page.count("0.50 / 0.25") == 2 * 2 * 2 * (len(missing.WAYS) + len(missing.PEERS))


@pytest.mark.parametrize("network", missing.NETWORKS)
def test_searches_without_privacy_leave_missing_values_out(network: str) -> None:
    case = missing.Case(network, 4000, "MAR", 0.3, 0.0, missing.DELETED, 1)
    skeleton, marked = missing.run_peer(case)
    assert skeleton > 0.7
    assert 0.0 <= marked <= skeleton


def test_mvpc_is_scored() -> None:
    pytest.importorskip("causallearn")
    assert 0.3 < missing.run_peer(missing.Case("mixed", 2000, "MCAR", 0.1, 0.0, missing.MVPC, 1))[0] <= 1.0


def test_a_chi_square_test_keeps_its_level_given_another_column() -> None:
    p_values = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        z = rng.integers(3, size=600)
        x, y = ((rng.random(600) < (1 + z) / 5).astype(int) for _ in range(2))
        p_values.append(missing.square({"x": x, "y": y, "z": z}, ("x", "y", ("z",))))
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_a_case_with_missing_values_scores_its_graph() -> None:
    skeleton, marked = missing.run_case(missing.Case("mixed", 5000, "MCAR", 0.1, 10.0, PAIRWISE, 1))
    assert skeleton > 0.6
    assert 0.0 <= marked <= skeleton


def test_ordered_levels_are_scored_and_told() -> None:
    skeleton, marked = ordinal.run_case(ordinal.Case(5000, False, 1.0, "ordinal", 1))
    assert skeleton > 0.6
    assert 0.0 <= marked <= skeleton
    found = {(c.rows, c.bent, c.epsilon, c.way): [(0.5, 0.25)] for c in ordinal.list_cases(1, 1)}
    assert ordinal.ordinal_page(found, 1, "dagveil bench ordinal").count("0.50 / 0.25") == 24

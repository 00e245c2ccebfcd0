"""NOTEARS beside its peer: rates against sets, samples by seed, the page, and a missing peer. No peer is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dagveil.cli.main import group
from dagveil.errors import MissingExtraError
from dagveil.search.score.notears import Acyclicity
from dagveil_bench import notears_peers
from dagveil_bench.notears_peers import (
    DEMO,
    PEER,
    Case,
    Error,
    Fit,
    Shape,
    compare,
    comparison_page,
    count_differences,
    list_cases,
    rate_arrows,
)

Bools = NDArray[np.bool_]
SMALL = Case(Shape.ERDOS_RENYI, Error.GAUSSIAN, 6, 200, 1)
graphs = hnp.arrays(np.bool_, (4, 4)).map(lambda graph: np.triu(graph, 1))
orders = st.permutations(range(4))


def arrows(graph: Bools) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in np.argwhere(graph)}


@given(graphs, graphs, orders)
def test_distance_and_rates_agree_with_sets_of_arrows(found: Bools, truth: Bools, order: list[int]) -> None:
    found = found[np.ix_(order, order)]
    mine, true = arrows(found), arrows(truth)
    turned = {(i, j) for i, j in mine if (j, i) in true}
    assert count_differences(found, truth) == len(mine - true) + len(true - mine) - len(turned)
    tpr, fdr = rate_arrows(found, truth)
    assert tpr * len(true) == pytest.approx(len(mine & true))
    assert fdr * len(mine) == pytest.approx(len(mine - true))
    assert 0.0 <= fdr <= 1.0
    assert 0.0 <= tpr <= 1.0


def test_a_sample_does_not_depend_on_the_other_cases() -> None:
    other = Case(Shape.SCALE_FREE, Error.GUMBEL, 5, 50)
    fast = [Acyclicity.LOG_DETERMINANT]
    alone = compare([SMALL], 2, 3, 0.0, measures=fast)
    mixed = [fit for fit in compare([other, SMALL], [1, 2], 3, 0.0, measures=fast) if fit.case == SMALL]
    assert [(fit.program, fit.seed, fit.distance, fit.tpr) for fit in alone] == [
        (fit.program, fit.seed, fit.distance, fit.tpr) for fit in mixed
    ]
    assert [fit.seed for fit in alone] == [3, 4]


def test_laws_and_shapes_have_graphs_of_their_own() -> None:
    drawn = []

    def remember(weights: Any, case: Case, rng: np.random.Generator) -> Any:
        drawn.append(weights)
        return rng.standard_normal((case.n_rows, case.n_nodes))

    cases = [Case(shape, law, 6, 20) for shape in Shape for law in Error]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notears_peers, "draw_rows", remember)
        compare(cases, 1, 1, 0.0, measures=[Acyclicity.LOG_DETERMINANT])
    assert len({weights.tobytes() for weights in drawn}) == len(cases)


def test_one_number_of_runs_per_case_is_checked() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare([SMALL], [1, 1], 1, 0.0)


def test_the_exponential_measure_is_left_out_of_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notears_peers, "MOST_NODES_EXPONENTIAL", 5)
    assert [fit.program for fit in compare([SMALL], 1, 1, 0.0)] == ["dagveil, log-determinant"]


def test_the_list_of_cases_has_every_setting_and_many_rows_once() -> None:
    cases = list_cases({6: 5, 8: 2}, 100, 1000, [Error.GAUSSIAN, Error.GUMBEL], 2)
    assert next(iter(cases)) == DEMO
    assert len(cases) == 1 + 2 * 2 * 2 + 2
    assert cases[Case(Shape.SCALE_FREE, Error.GUMBEL, 8, 100)] == 2
    assert cases[Case(Shape.ERDOS_RENYI, Error.GAUSSIAN, 8, 1000)] == 1
    assert all(case.n_rows <= 100 for case in list_cases({6: 5}, 100, 0, [Error.GUMBEL], 2))


def test_the_page_pairs_samples_and_leaves_out_fits_that_were_given_up() -> None:
    mine = [Fit(SMALL, "ours", seed, distance, 0.5, 1.0, 0.25) for seed, distance in ((1, 3), (2, 5), (3, 90))]
    theirs = [
        Fit(SMALL, PEER, 1, 2, 5.0, 0.5, 0.0),
        Fit(SMALL, PEER, 2, 3, 5.0, 0.5, 0.0),
        Fit(SMALL, PEER, 3, None, 9),
    ]
    page = comparison_page([*mine, *theirs], "dagveil bench notears --runs 3")
    assert "    dagveil bench notears --runs 3\n" in page
    assert "| 2.5 ± 0.5, > 5.00 | +1.5 ± 0.5, > 10 × |" in page
    assert "over the 2 samples that both finished: +1.5 ± 0.5 SHD" in page
    assert "| 1.00 ± 0.00, 0.25 ± 0.00 | 0.50 ± 0.00, 0.00 ± 0.00 |" in page


def test_a_missing_peer_is_told_before_any_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notears_peers, "find_spec", lambda name: None)
    monkeypatch.setattr(notears_peers, "_fit_sample", lambda job: pytest.fail("a fit was started"))
    with pytest.raises(MissingExtraError, match=r"gcastle and torch.*pip install gcastle torch.*--limit 0"):
        compare([SMALL], 1, 1, 60.0)


def test_the_command_writes_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words = ["bench", "notears", "--nodes", "6", "--rows", "200", "--many-rows", "0", "--runs", "1", "--limit", "0"]
    words += ["--errors", "gumbel", "--measures", "log-determinant", "-o", str(page)]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0, result.output
    assert "| Erdős–Rényi 2 | Gumbel | 6 | 200 |" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--errors", "normal"], "'normal' is none of gaussian, gumbel, exponential"),
        (["--nodes", "6,7", "--runs", "1,2,3"], "--runs must be one number or 2"),
        (["--nodes", "six"], "not a list of positive numbers"),
    ],
)
def test_the_command_refuses_what_it_cannot_read(words: list[str], message: str) -> None:
    result = CliRunner().invoke(group, ["bench", "notears", "--limit", "0", *words])
    assert result.exit_code == 2
    assert message in result.output

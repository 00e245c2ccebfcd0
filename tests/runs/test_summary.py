"""The sentences at the top of a result, and what the terminal lists below its table."""

from __future__ import annotations

import msgspec
import pytest

import dagveil as dv
from dagveil.cli.output import print_result
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.result import NearMiss, ResultEdge, ResultGraph
from dagveil.runs.summary import describe_solidity


def graph_of(*edges: ResultEdge) -> ResultGraph:
    return ResultGraph(family="cpdag", nodes=("a", "b", "c", "d"), edges=edges)


LINE = ResultEdge("a", "b", "undirected", 1.0, 1.0, 0.0, 0.0, 1.0)
WEAK = ResultEdge("b", "c", "directed", 1.0, 0.6, 0.6, 0.4, 0.0)
SURE = ResultEdge("c", "d", "directed", 1.0, 0.9, 0.9, 0.1, 0.0)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ((WEAK, WEAK, SURE), "2 of 3 have an arrow that fewer than 90% of the redraws show"),
        ((LINE, WEAK, SURE), "1 of 3 edges have no arrow, and 1 of 3 have an arrow that fewer than 90%"),
    ],
)
def test_knowledge_is_proposed_where_arrows_are_weak(edges: tuple[ResultEdge, ...], said: str) -> None:
    told = describe_solidity(graph_of(*edges), (), None, None)
    assert said in told[-1]
    assert "--knowledge" in told[-1]


def test_nothing_is_proposed_where_most_arrows_are_sure() -> None:
    assert len(describe_solidity(graph_of(SURE, SURE, WEAK), (), None, None)) == 1


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        (1.0, "for half of the pairs no dependence could be seen. A larger epsilon"),
        (0.7, "for half of the pairs a dependence is seen above V = 0.70 (Cramér's V, from 0 to 1). A larger epsilon"),
    ],
)
def test_it_says_what_noise_hides(visible: float, said: str) -> None:
    first, second = describe_solidity(graph_of(), (), None, visible)
    assert first.startswith("Nothing stood out from noise and chance: ")
    assert said in first
    assert second.startswith("0 edges")


def test_the_terminal_says_how_many_doubtful_pairs_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    schema = dv.Schema(
        dataset="d", reviewed=True, nominal_rows=100, columns={name: dv.Boolean("false") for name in "ab"}
    )
    rows = {name: [True, False] * 50 for name in "ab"}
    found = dv.discover(rows, schema, epsilon=1, noise=NoiseKind.SEEDED, seed=1, ledger=None)
    misses = tuple(NearMiss("a", f"b{place}", 0.5, found=place % 2 == 0) for place in range(8))
    print_result(msgspec.structs.replace(found, near_misses=misses))
    assert "and 3 more in the report, 1 doubtful" in capsys.readouterr().out

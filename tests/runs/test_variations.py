from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dagveil as dv
from dagveil.graphs.cpdag import Cpdag
from dagveil.progress import silent
from dagveil.runs.result import result_from_json
from dagveil.runs.search import compare_graphs, vary_levels
from dagveil.search.constraint.skeleton import SkeletonSettings


@pytest.fixture(scope="module")
def evidence() -> dv.Evidence:
    rng = np.random.default_rng(4)
    a = rng.random(4000) < 0.5
    b = rng.random(4000) < np.where(a, 0.55, 0.45)
    c = rng.random(4000) < np.where(b, 0.9, 0.2)
    rows = {"a": a, "b": b, "c": c, "d": rng.random(4000) < 0.5}
    columns = {name: dv.Boolean(outside="false") for name in rows}
    schema = dv.Schema(dataset="t", reviewed=True, unit="one row", nominal_rows=4000, columns=columns)
    return dv.measure_source(rows, schema, epsilon=5, delta=1e-6, noise=dv.NoiseKind.SEEDED, seed=1, ledger=None)


def test_each_variation_is_the_search_at_that_level(evidence: dv.Evidence) -> None:
    """The slow twin: search with the level as a setting, and compare by hand."""
    result = dv.search_evidence(evidence, dv.SearchSettings(redraws=1))
    base = result.method.settings
    found = dv.search_evidence(evidence, dv.SearchSettings(redraws=0)).graph.cpdag  # what one redraw drops is in it
    levels = [(name, base[name] * factor) for name in ("marginal_level", "conditional_level") for factor in (0.1, 10)]
    assert [v.setting for v in result.variations] == [name for name, _ in levels]
    assert [v.value for v in result.variations] == pytest.approx([value for _, value in levels])
    for variation in result.variations:
        settings = replace(dv.SearchSettings(redraws=0), **{variation.setting: variation.value})
        other = dv.search_evidence(evidence, settings).graph.cpdag
        assert variation.changes == compare_graphs(found, other)


def test_without_redraws_nothing_is_varied(evidence: dv.Evidence) -> None:
    assert dv.search_evidence(evidence, dv.SearchSettings(redraws=0)).variations == ()


def test_variations_come_back(evidence: dv.Evidence) -> None:
    result = dv.search_evidence(evidence, dv.SearchSettings(redraws=1))
    assert result_from_json(result.to_json()) == result


def test_levels_stay_below_a_half() -> None:
    asked: list[SkeletonSettings] = []

    def search(levels: SkeletonSettings) -> Cpdag:
        asked.append(levels)
        return Cpdag.empty(("a",))

    settings = SkeletonSettings(marginal_level=0.2, conditional_level=0.03)
    told = vary_levels(Cpdag.empty(("a",)), settings, search, silent)
    assert [(v.setting, v.value) for v in told] == [
        *(("marginal_level", 0.02), ("conditional_level", 0.003), ("conditional_level", 0.3)),
    ]
    assert [(s.marginal_level, s.conditional_level) for s in asked] == [(0.02, 0.03), (0.2, 0.003), (0.2, 0.3)]


def test_all_differences_are_found() -> None:
    nodes = tuple("abcde")
    before = Cpdag(nodes, frozenset({("a", "b"), ("c", "b"), ("d", "a")}), frozenset({frozenset("de")}))
    after = Cpdag(nodes, frozenset({("b", "a"), ("c", "b"), ("d", "e")}), frozenset({frozenset("ac")}))
    changes = {(c.source, c.target): (c.before, c.after) for c in compare_graphs(before, after)}
    assert changes == {
        ("a", "b"): ("directed", "reversed"),
        ("a", "c"): ("none", "undirected"),
        ("a", "d"): ("reversed", "none"),
        ("d", "e"): ("undirected", "directed"),
    }
    assert compare_graphs(after, after) == ()

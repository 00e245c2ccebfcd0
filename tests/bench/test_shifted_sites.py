"""The study of sites that differ: what it changes, and the section that it writes."""

from __future__ import annotations

from dagveil.evaluation.comparison import skeleton_f1
from dagveil.examples.networks import load_network
from dagveil.progress import silent
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.shifted_sites import CHANGED, Case, measure_shifted, run_shifted, shifted_section


def test_no_node_is_changed_unless_it_is_said_and_all_sites_follow_the_network() -> None:
    released, changed = measure_shifted(Case("cancer", 0, 20_000, 20.0, 1))
    assert changed == frozenset()
    one, *others = ([site.table(name).shares for name in site.schema.columns] for site in released)
    assert all(abs(a - b).max() < 0.02 for other in others for a, b in zip(one, other, strict=True))
    released, changed = measure_shifted(Case("cancer", 2, 20_000, 20.0, 1))
    assert len(changed) == 2
    assert any(abs(released[0].table(name).shares - released[1].table(name).shares).max() > 0.05 for name in changed)
    found = search_evidence(released[1], SearchSettings(redraws=0)).graph.cpdag
    assert skeleton_f1(found, load_network("cancer").dag()) > 0.5


def test_the_section_has_a_line_for_each_number_of_changed_nodes() -> None:
    section = shifted_section(run_shifted(["cancer"], 500, 1.0, 1, silent), "dagveil bench sites")
    assert section.count("\n| cancer |") == len(CHANGED)

"""The study of persons with many records: what it draws, and the page that it writes."""

from __future__ import annotations

import numpy as np

from dagveil.examples.networks import load_network
from dagveil_bench.persons import MOST_RECORDS, attack, draw_visits, persons_page, run_persons, truncate


def test_truncation_keeps_so_many_records_of_each_person() -> None:
    visits = draw_visits(load_network("cancer"), 50, np.random.default_rng(1))
    sizes = np.bincount(visits["person"].to_numpy())
    assert sizes.max() <= MOST_RECORDS
    kept = np.bincount(truncate(visits, 5, np.random.default_rng(2))["person"].to_numpy())
    assert np.array_equal(kept, np.minimum(sizes, 5))


def test_an_attacker_of_rows_is_certain_about_a_person_with_fifty() -> None:
    assert attack(load_network("cancer"), "rows", {}, 1.0, 40).advantage == 1.0


def test_the_page_has_all_ways_and_attacks() -> None:
    study = run_persons(load_network("cancer"), [80], 1.0, 1, 4)
    page = persons_page(study, "dagveil bench persons")
    assert page.count("\n| ") == 1 + 3 + 1 + 4

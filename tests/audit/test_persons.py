"""The search over persons holds, is nearly reached, and catches twins whose records weigh or count too much."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dagveil.audit.numbers import person_statistics
from dagveil.audit.sensitivity import search_statistic
from dagveil.data import persons
from dagveil.data.weighed import COUNT_LATTICE, MOMENT_LATTICE
from dagveil.privacy.budget import Relation

PAIRS = 1200
STATISTICS = {statistic.name: statistic for statistic in person_statistics()}
WEIGHED = [name for name in STATISTICS if "weighed" in name]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", sorted(STATISTICS))
def test_bounds_hold_for_a_person_with_all_records_and_are_nearly_reached(name: str, relation: Relation) -> None:
    found = search_statistic(STATISTICS[name], relation, PAIRS)
    assert found.holds, found
    assert found.ratio > 0.9  # a bound that were a tenth smaller would be broken


def weigh_each_fully(self: persons.RecordLayout, records: Any, dropped: Counter[bytes]) -> tuple[Any, int]:
    """Give every record the weight of a person: the twin that forgets to divide."""
    weighed = np.zeros(len(records), dtype=self.weighed_kind)
    for name in self._cells():
        weighed[name] = records["head"][name]
    weighed["count weight"], weighed["moment weight"] = (
        lattice * records["count"] for lattice in (COUNT_LATTICE, MOMENT_LATTICE)
    )
    return weighed, len(records)


@pytest.mark.parametrize("name", WEIGHED)
def test_weights_that_are_not_normalised_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persons.RecordLayout, "weigh", weigh_each_fully)
    found = search_statistic(STATISTICS[name], Relation.ADD_REMOVE, PAIRS)
    assert not found.holds
    assert found.ratio > 10


def test_a_choice_that_looks_at_the_order_of_reading_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # the twin hashes a record's place in the batch, not its cells
    def hash_places(heads: Any, key: bytes) -> Any:
        places = np.arange(len(heads), dtype=np.uint64)
        return np.stack([places << np.uint64(40), places], axis=1)

    monkeypatch.setattr(persons, "_hash_records", hash_places)
    monkeypatch.setattr(persons, "collapse", lambda records: records)
    found = search_statistic(STATISTICS["counts of persons by any record"], Relation.ADD_REMOVE, PAIRS)
    assert not found.holds

"""A quick audit of every method: nothing may break, and all of it stays cheap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dagveil.audit.examination import Plan, examine_method
from dagveil.audit.runs import BlockStore
from dagveil.methods.method import METHODS
from dagveil.privacy.budget import Budget


@pytest.fixture(scope="module")
def store() -> Iterator[BlockStore]:
    """Searches of statistics that methods share are done once."""
    with BlockStore(None) as blocks:
        yield blocks


@pytest.mark.parametrize("name", METHODS)
def test_nothing_breaks(name: str, store: BlockStore) -> None:
    found = examine_method(METHODS[name], Budget.of(1, 1e-6), plan=Plan(runs=100, trials=40, store=store))
    assert found.violations == ()
    assert found.replays
    assert found.statistics
    assert found.memberships
    for line in found.attacks:
        assert line.reachable is not None
        assert line.bound <= 1.0

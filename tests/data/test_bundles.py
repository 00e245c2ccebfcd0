from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.products import bundle_columns

NAMES = tuple("abcdefgh")


@given(
    st.lists(st.lists(st.sampled_from(NAMES), unique=True, max_size=3).map(tuple), max_size=30),
    st.lists(st.integers(1, 40), min_size=8, max_size=8),
    st.integers(0, 10**6),
)
@settings(max_examples=150, deadline=None)
def test_every_question_stands_in_one_bundle_that_holds_its_columns(sets, sizes, n_rows):
    levels = dict(zip(NAMES, sizes, strict=True))
    bundles = bundle_columns(sets, levels, n_rows=n_rows)
    places = sorted(position for bundle in bundles for position in bundle.members)
    assert places == [position for position, columns in enumerate(sets) if columns]
    for bundle in bundles:
        assert list(bundle.columns) == [name for name in NAMES if name in bundle.columns]
        assert set(bundle.columns) == {name for position in bundle.members for name in sets[position]}


def test_many_pairs_need_few_passes():
    names = [f"c{place}" for place in range(200)]
    pairs = list(combinations(names, 2))
    bundles = bundle_columns(pairs, dict.fromkeys(names, 2), n_rows=10**6)
    assert len(bundles) < len(pairs) / 10

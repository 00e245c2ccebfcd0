from __future__ import annotations

import pytest

from dagveil.data.column import Categorical, Numeric
from dagveil.data.schema import Schema
from dagveil.data.table import table_shape, table_shapes
from dagveil.errors import SchemaError

SCHEMA = Schema(
    dataset="t",
    columns={
        "a": Categorical(("x", "y", "z"), "x"),
        "b": Numeric(bounds=(0, 1)),
        **{name: Categorical(tuple(map(str, range(1000))), "0") for name in "cde"},
    },
)


def test_shapes_are_those_of_one_table_at_a_time():
    sets = [("a",), ("b", "a"), (), ("a", "c"), ["c", "b"]]
    assert table_shapes(SCHEMA, sets) == [table_shape(SCHEMA, columns) for columns in sets]


@pytest.mark.parametrize("wrong", [("a", "a"), ("a", "nobody"), ("c", "d", "e"), "ab"])
def test_what_one_refuses_many_refuse(wrong):
    with pytest.raises(SchemaError) as one:
        table_shape(SCHEMA, wrong)
    with pytest.raises(SchemaError) as many:
        table_shapes(SCHEMA, [("a", "b"), wrong])
    assert str(one.value) == str(many.value)

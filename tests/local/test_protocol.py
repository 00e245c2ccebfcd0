"""Protocols: what they promise is what their weights give, and a file cannot claim otherwise."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, DataError, SchemaError
from dagveil.local.channel import distances_on_line
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Form, Mechanism, Protocol, load_protocol, protocol_from_json
from dagveil.local.record import ComponentWise, Norm, Split

SCHEMA = Schema(
    dataset="survey",
    reviewed=True,
    columns={
        "z": Categorical(("a", "b", "c"), outside="c"),
        "smokes": Boolean(),
        "age": Numeric(bounds=(0, 100), bins=5),
    },
)
PLANS = [
    (mechanism, form, given) for mechanism in Mechanism for form in Form for given in ({"epsilon": 4.0}, {"truth": 0.3})
]


def plan(mechanism: Mechanism, form: Form = Form.COMPONENT_WISE, **given: object) -> Protocol:
    return plan_protocol(SCHEMA, mechanism, form, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mechanism", "form", "given"), PLANS)
def test_a_plan_keeps_its_word_and_comes_back_from_its_file(
    mechanism: Mechanism, form: Form, given: dict[str, float], tmp_path: Path
) -> None:
    protocol = plan(mechanism, form, **given)
    assert protocol.epsilon == protocol.channel.epsilon() == protocol.record.epsilon
    if "epsilon" in given:
        assert 0.9 * given["epsilon"] < protocol.epsilon <= given["epsilon"]
    else:
        assert protocol.record.success == pytest.approx(0.3, abs=1e-6)
    protocol.save(tmp_path / "protocol.json")
    again = load_protocol(tmp_path / "protocol.json")
    assert again == protocol
    assert again.digest() == protocol.digest()
    assert list(again.schema.columns) == ["z", "smokes", "age"]
    if isinstance(protocol.channel, ComponentWise):
        assert isinstance(again.channel, ComponentWise)
        for ours, theirs in zip(protocol.channel.channels, again.channel.channels, strict=True):
            assert np.array_equal(ours.weights, theirs.weights)
    else:
        assert again.channel == protocol.channel or isinstance(again.channel, CombinedGeometric)


def test_figures_of_columns_add_up_and_are_those_of_the_channels() -> None:
    protocol = plan(Mechanism.GEOMETRIC, epsilon=6.0, split=Split.BY_LEVELS)
    assert isinstance(protocol.channel, ComponentWise)
    epsilons = [column.figures.epsilon for column in protocol.columns]
    assert math.fsum(e for e in epsilons if e is not None) == pytest.approx(protocol.epsilon)
    for column, channel in zip(protocol.columns, protocol.channel.channels, strict=True):
        figures = column.figures
        assert figures.success == channel.success()
        assert figures.metric == pytest.approx(channel.metric_parameter(distances_on_line(channel.n_values)))
        assert figures.ratio is not None
        assert figures.ratio >= 1.0 - 1e-9
    # five values: the published formula understates
    assert protocol.columns[2].figures.ratio == pytest.approx(1.27, abs=0.3)
    assert protocol.columns[2].figures.ratio > 1.05  # type: ignore[operator]
    assert protocol.record.metric == max(column.figures.metric or 0.0 for column in protocol.columns)


def test_response_names_no_published_parameter_and_combined_columns_have_no_epsilon() -> None:
    assert plan(Mechanism.RESPONSE, epsilon=4.0).record.published is None
    combined = plan(Mechanism.GEOMETRIC, Form.COMBINED, truth=0.3, norm=Norm.EUCLIDEAN)
    assert all(column.figures.epsilon is None and column.weights is None for column in combined.columns)
    assert combined.record.ratio is not None
    assert combined.record.ratio > 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either epsilon or"),
        ({"epsilon": 1.0, "truth": 0.5}, "either epsilon or"),
        ({"epsilon": 0.0}, "above 0"),
        ({"epsilon": math.inf}, "more than 36"),
        ({"truth": 0.001}, "blind guessing"),
        ({"truth": 1.0}, "below 1"),
        ({"truth": 1.0 / 45.0}, "nothing to do with the records"),
    ],
)
def test_plans_that_make_no_sense_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        plan(Mechanism.RESPONSE, **given)


def test_a_schema_without_choices_is_refused() -> None:
    schema = Schema(dataset="one", columns={"a": Categorical(("x",), outside="x")})
    with pytest.raises(SchemaError, match="nothing to report"):
        plan_protocol(schema, Mechanism.RESPONSE, epsilon=1.0)


def change(protocol: Protocol, *path: str | int, to: object) -> bytes:
    content = json.loads(protocol.to_json())
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(content).encode()


def test_a_file_cannot_promise_more_than_its_weights_give() -> None:
    protocol = plan(Mechanism.RESPONSE, epsilon=4.0)
    with pytest.raises(DataError, match=r"promises epsilon 1 for a record, but its weights give"):
        protocol_from_json(change(protocol, "record", "epsilon", to=1.0))
    # a promise that is too modest does no harm: the larger one is told
    assert protocol_from_json(change(protocol, "record", "epsilon", to=9.0)).epsilon == 9.0


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (("columns", 0, "weights", "truth"), 1, "no channel"),
        (("columns", 0, "weights", "truth"), 2**70, "no channel"),
        (("columns", 0, "weights"), None, "no channel"),
        (("columns", 0, "weights"), {"kind": "matrix", "rows": [[1]]}, "no channel"),
        (("columns", 0, "labels"), ["a", "b"], "not those of its schema"),
        (("columns", 0, "name"), "x", "not those of its schema"),
        (("schema_digest",), "0" * 64, "not the one that its digest names"),
        (("record", "epsilon"), None, "does not say what it promises"),
        (("form",), "combined", "lacks the weights"),
        (("mechanism",), "magic", "damaged"),
        (("surprise",), 1, "damaged"),
        (("version",), 2, "version 1"),
        (("format",), "other", "no protocol"),
    ],
)
def test_damaged_files_are_refused(path: tuple[str | int, ...], to: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        protocol_from_json(change(plan(Mechanism.RESPONSE, epsilon=4.0), *path, to=to))


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"[", b"\xff", b"[]", b"[" * 100_000):
        with pytest.raises(DataError, match="JSON"):
            protocol_from_json(content)
    with pytest.raises(DataError, match="cannot read"):
        load_protocol(tmp_path / "missing.json")


def test_the_digest_tells_protocols_apart() -> None:
    digests = {plan(Mechanism.RESPONSE, epsilon=e, split=s).digest() for e in (1.0, 2.0) for s in Split}
    assert len(digests) == 4

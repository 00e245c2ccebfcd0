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
from dagveil.local.channel import widest_gaps
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Form, Mechanism, Protocol, load_protocol, protocol_from_json
from dagveil.local.record import CERTAIN, ComponentWise, Norm, Split

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
        apart = np.arange(1, channel.n_values)
        assert figures.metric == pytest.approx((widest_gaps(channel)[1:] / apart).max())
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
        (("columns", 0, "weights", "truth"), 1, "no channel.*column 'z'"),
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
        (("version",), 2, "version 2"),
        (("format",), "other", "not a protocol"),
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


def booleans(n_columns: int) -> Schema:
    return Schema(dataset="many", reviewed=True, columns={f"c{i}": Boolean("false") for i in range(n_columns)})


def test_a_truth_that_never_comes_is_refused() -> None:
    """One boolean that is always reported as its negation is not protected by any small number in the file."""
    protocol = plan_protocol(booleans(1), Mechanism.RESPONSE, Form.COMBINED, epsilon=1.0)
    content = json.loads(protocol.to_json())
    content["truth_weight"] = 1
    content["record"] = {"epsilon": 1e-6, "success": 0.5, "metric": 1e-6, "published": None}
    with pytest.raises(DataError, match="rarer than chance"):
        protocol_from_json(json.dumps(content))
    component_wise = plan_protocol(booleans(1), Mechanism.RESPONSE, epsilon=1.0)
    weights = json.loads(component_wise.to_json())["columns"][0]["weights"]
    swapped = {**weights, "truth": weights["other"], "other": weights["truth"]}
    with pytest.raises(DataError, match="truth is rarer"):
        protocol_from_json(change(component_wise, "columns", 0, "weights", to=swapped))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_no_figure_may_be_lower_than_the_weights_give(mechanism: Mechanism, form: Form) -> None:
    protocol = plan(mechanism, form, truth=0.3)
    content = json.loads(protocol.to_json())
    places: list[tuple[str | int, ...]] = [("columns", i, "figures") for i in range(3)]
    checked = 0
    for place in (("record",), *places):
        figures = content["record"] if place == ("record",) else content["columns"][place[1]]["figures"]
        for name, stated in figures.items():
            if stated is None:
                with pytest.raises(DataError, match="which has none"):
                    protocol_from_json(change(protocol, *place, name, to=0.5))
                continue
            checked += 1
            for lower in (stated * (1 - 1e-6), 0.0, -stated):
                with pytest.raises(DataError, match="but its weights give"):
                    protocol_from_json(change(protocol, *place, name, to=lower))
            with pytest.raises(DataError, match="does not say"):
                protocol_from_json(change(protocol, *place, name, to=None))
            # one that promises too little does no harm, and what is computed stays what it is
            again = protocol_from_json(change(protocol, *place, name, to=stated * 2))
            assert again.record_figures == protocol.record
            assert again.column_figures == tuple(column.figures for column in protocol.columns)
    geometric = mechanism is Mechanism.GEOMETRIC
    assert checked == (3 + geometric) * (4 if form is Form.COMPONENT_WISE else 1)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_weights_fit_the_words(mechanism: Mechanism, form: Form) -> None:
    protocol = plan(mechanism, form, truth=0.3)
    other = next(one for one in Mechanism if one is not mechanism)
    with pytest.raises(DataError, match=r"no channel|lacks the weights"):
        protocol_from_json(change(protocol, "mechanism", to=other.value))
    # weights of two channels at once: nobody could tell which of them holds
    for name, value in (("truth_weight", CERTAIN // 2), ("truth_probability", 0.5)):
        if json.loads(protocol.to_json())[name] is None:
            with pytest.raises(DataError, match="no channel"):
                protocol_from_json(change(protocol, name, to=value))
    if form is Form.COMBINED:
        weights = json.loads(plan(mechanism, truth=0.3).to_json())["columns"][1]["weights"]
        with pytest.raises(DataError, match="columns have none"):
            protocol_from_json(change(protocol, "columns", 1, "weights", to=weights))


def test_a_matrix_that_is_not_geometric_is_refused() -> None:
    protocol = plan(Mechanism.GEOMETRIC, epsilon=6.0)
    rows = json.loads(protocol.to_json())["columns"][2]["weights"]["rows"]
    rows[0][3], rows[0][4] = rows[0][4], rows[0][3]
    with pytest.raises(DataError, match="not those of the bounded geometric mechanism"):
        protocol_from_json(change(protocol, "columns", 2, "weights", "rows", to=rows))


@pytest.mark.parametrize("epsilon", [1e-5, 0.3, 2, 10, 14, 16, 20, 25, 30, 33, 36])
@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_a_plan_never_exceeds_what_was_asked_for(mechanism: Mechanism, form: Form, epsilon: float) -> None:
    found = plan_protocol(booleans(1), mechanism, form, epsilon=epsilon).epsilon
    assert found <= epsilon
    # geometric noise tells the truth with at most 1 − 2⁻⁴⁰
    assert found > (0.95 * epsilon if mechanism is Mechanism.RESPONSE else min(0.95 * epsilon, 27.0))


def test_an_epsilon_between_whole_numbers_is_refused_rather_than_exceeded() -> None:
    columns = {f"c{i}": Categorical(("a", "b", "c"), outside="a") for i in range(32)}
    schema = Schema(dataset="fine", reviewed=True, columns=columns)
    with pytest.raises(BudgetError, match="finer than the whole numbers"):
        plan_protocol(schema, Mechanism.RESPONSE, Form.COMBINED, epsilon=1e-5)
    assert 0.9 < plan_protocol(schema, Mechanism.RESPONSE, Form.COMBINED, epsilon=1.0).epsilon <= 1.0


@pytest.mark.parametrize("n_columns", [48, 50, 52])
def test_combined_geometric_noise_of_many_columns_finds_its_truth(n_columns: int) -> None:
    for epsilon in (0.1, 0.5, 1.0, 5.0):
        found = plan_protocol(booleans(n_columns), Mechanism.GEOMETRIC, Form.COMBINED, epsilon=epsilon).epsilon
        assert 0.6 * epsilon < found <= epsilon


@pytest.mark.parametrize("n_columns", [60, 1200])
def test_huge_products_are_refused_in_words(n_columns: int) -> None:
    schema = booleans(n_columns)
    for mechanism in Mechanism:
        for given in ({"epsilon": 1.0}, {"truth": 0.5}):
            with pytest.raises(BudgetError, match=rf"about 2\*\*{n_columns}.*component-wise"):
                plan_protocol(schema, mechanism, Form.COMBINED, **given)
    content = json.loads(plan_protocol(schema, Mechanism.RESPONSE, truth=0.5).to_json())
    content.update(form="combined", split=None, truth_weight=CERTAIN // 2)
    nothing = {"epsilon": None, "success": None, "metric": None, "published": None}
    for column in content["columns"]:
        column.update(weights=None, figures=nothing)
    for name, weight in (("response", CERTAIN // 2), ("geometric", None)):
        content.update(mechanism=name, truth_weight=weight, truth_probability=None if weight else 0.5)
        with pytest.raises(DataError, match=r"no channel.*more than 2\*\*52"):
            protocol_from_json(json.dumps(content))

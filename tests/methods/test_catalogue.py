"""The catalogue: every method is complete, its settings are explained, and what is misspelt is refused."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from dagveil.errors import MethodError
from dagveil.methods.method import METHODS, Method, method_named
from dagveil.papers.publication import PAPERS, read_settings, readings_of
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover, measure_source
from dagveil.search.settings import SearchSettings

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def kinds_of(method: Method) -> dict[Calibration, type[msgspec.Struct]]:
    published = {calibration: reading.settings for calibration, reading in readings_of(method.name).items()}
    return {Calibration.SOUND: method.settings, **published}


@every_method
def test_every_method_is_complete(method: Method) -> None:
    assert METHODS[method.name] is method is method_named(method.name)
    assert (method.release is None) != (method.ask is None)
    readings = readings_of(method.name)
    assert bool(readings) == (method.paper is not None)
    assert all(reading.flaw for reading in readings.values())
    assert method.title
    assert method.data
    assert method.cost


@every_method
def test_every_setting_is_explained_and_has_a_default(method: Method) -> None:
    for kind in kinds_of(method).values():
        # a setting may be explained by the class that it is inherited from
        text = "\n".join(inspect.cleandoc(part.__doc__ or "") for part in kind.__mro__)
        for field in msgspec.structs.fields(kind):
            assert f"\n- `{field.name}`: " in text or f"\n{field.name}\n" in text
            assert not field.required
        assert msgspec.convert({}, kind) == kind()


@every_method
def test_defaults_come_back_from_text(method: Method) -> None:
    """What `--set` gives are words: every default must be readable from its own words."""
    for calibration, kind in kinds_of(method).items():
        words: dict[str, Any] = {}
        for name, value in msgspec.to_builtins(kind()).items():
            if value is not None:
                words[name] = list(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()
        assert read_settings(method, calibration, words) == kind()
        assert read_settings(method, calibration, None) == kind()


@every_method
def test_unknown_settings_are_refused(method: Method) -> None:
    for calibration in Calibration:
        if calibration not in kinds_of(method):
            why = (
                f"has no {calibration.value} calibration, because .{{20,}}; use "
                if method.name in PAPERS
                else "is not from"
            )
            with pytest.raises(MethodError, match=why):
                read_settings(method, calibration, {})
            continue
        with pytest.raises(MethodError, match=f"{calibration.value}.* has no setting 'colour'; it has "):
            read_settings(method, calibration, {"colour": "red"})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("svt-pc", {"level": "high"}),
        ("svt-pc", {"rounds": "1.5"}),
        ("em-pc", {"order_shares": "1"}),
        ("curate", {"margins": ["1"]}),
        ("curate", {"margins": ["1", "2", "3"]}),
    ],
)
def test_values_of_the_wrong_kind(name: str, options: dict[str, Any]) -> None:
    (setting,) = options
    with pytest.raises(MethodError, match=f"a setting of {name} cannot be read: .*{setting}"):
        method_named(name).read_settings(options)


OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    *((name, "level", value) for name in ("svt-pc", "em-pc", "curate") for value in ("0", "1", "-0.1", "nan")),
    *((name, "largest_order", "-1") for name in ("svt-pc", "priv-pc", "curate", "sampled-gaussian-pc")),
    *((name, "slack", value) for name in ("svt-pc", "curate") for value in ("inf", "nan")),
    ("svt-pc", "rounds", "0"),
    ("priv-pc", "rounds", "-3"),
    *(("priv-pc", "sieve_share", value) for value in ("0", "1", "1e-9")),
    *((name, "rate", value) for name in ("priv-pc", "sampled-gaussian-pc") for value in ("0", "1.5", "1e-9")),
    ("sampled-gaussian-pc", "questions", "0"),
    *(("em-pc", "number_share", value) for value in ("0", "1", "1e-9")),
    *(("em-pc", "order_shares", value) for value in ([], ["0", "1"], ["-1", "1"], ["1", "inf"])),
    ("curate", "margins", ["-1", "0.2"]),
    ("curate", "margins", ["inf", "0.2"]),
    ("curate", "neighbours", "0"),
    ("curate", "hopeless", "0"),
    *((name, "clip", value) for name in ("noleaks", "curate-score") for value in ("0", "-1", "1e-9", "1e9", "nan")),
    *((name, "iterations", "0") for name in ("noleaks", "curate-score")),
    ("noleaks", "outer", "0"),
    ("noleaks", "penalty", "-1"),
    ("noleaks", "threshold", "0"),
    *(("curate-score", "initial", value) for value in ("0", "1e-300", "1e300", "inf")),
    ("curate-score", "schedule", "falling"),
]


@pytest.mark.parametrize(("name", "setting", "value"), OUT_OF_RANGE)
def test_values_out_of_range_cost_nothing(name: str, setting: str, value: Any, sampled: Any) -> None:
    """After the first charge a run's whole reservation is spent, so what cannot work is refused before it."""
    table = sampled("cancer", 100)
    ledger = MemoryLedger()
    with pytest.raises(MethodError, match=f"a setting of {name} cannot be read: .*{setting}"):
        discover(table, table.schema, 1, method=name, options={setting: value}, ledger=ledger)
    assert ledger.history() == ()


def test_unknown_methods() -> None:
    listed = "measure, measure-ges, measure-notears, measure-features, em-pc, "
    with pytest.raises(MethodError, match=f"no method is called 'magic'; choose one of {listed}"):
        method_named("magic")


@every_method
def test_evidence_comes_from_releasing_methods_only(method: Method, sampled: Any) -> None:
    table = sampled("cancer", 100)
    if method.release is None:
        with pytest.raises(MethodError, match="asks adaptively"):
            measure_source(table, table.schema, 1, method=method.name, ledger=None)
        first, second, *_ = method.settings.__struct_fields__
        with pytest.raises(MethodError, match=rf"releases no evidence.* as options: {first}, {second}"):
            discover(table, table.schema, 1, method=method.name, settings=SearchSettings(), ledger=None)

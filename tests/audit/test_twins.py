"""Broken twins: the audit must catch every one and let their sound counterparts pass, or its silence means nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from twins import (
    BROKEN_MECHANISMS,
    BROKEN_METHODS,
    BROKEN_STATISTICS,
    SOUND_SIEVE,
    Mechanism,
    release_soundly,
)

from dagveil.audit.attacks import Attack, distinguish
from dagveil.audit.neighbours import DataKind, fitting_kinds, make_pair
from dagveil.audit.replay import replay_method
from dagveil.audit.search import AuditedStatistic
from dagveil.audit.sensitivity import search_statistic
from dagveil.methods.method import METHODS, Method
from dagveil.privacy.budget import Budget, Relation

PAIRS = 2000
RUNS = 200


@pytest.mark.parametrize("statistic", BROKEN_STATISTICS, ids=lambda statistic: statistic.name)
def test_sensitivity_search_catches(statistic: AuditedStatistic) -> None:
    for relation in statistic.relations:
        finding = search_statistic(statistic, relation, PAIRS)
        assert not finding.holds
        assert finding.ratio > 1.1
        assert finding.pair


@pytest.mark.parametrize(("method", "words"), BROKEN_METHODS, ids=lambda value: getattr(value, "name", ""))
def test_replay_catches(method: Method, words: str) -> None:
    replay = replay_method(method, make_pair(DataKind.LEVELS, Relation.REPLACE_ONE), Budget.of(8, 0))
    assert any(words in violation for violation in replay.violations)


def spoil(method: Method, how: Callable[[Any], None]) -> Method:
    """Return the method with something wrong at its curator."""

    def spoiled(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(curator: Any, *rest: Any) -> Any:
            how(curator)
            return run(curator, *rest)

        return call

    if method.ask is not None:
        return replace(method, ask=spoiled(method.ask))
    return replace(method, release=spoiled(method.release))


def draw_faintly(curator: Any) -> None:
    """Draw a twentieth of the noise that answers tell of."""
    noise = curator._recording.noise
    gaussian, laplace = noise.discrete_gaussian, noise.discrete_laplace
    noise.discrete_gaussian = lambda variance, size: gaussian(variance / 400, size)
    noise.discrete_laplace = lambda scale, size: laplace(scale / 20, size)


def draw_nothing(curator: Any) -> None:
    noise = curator._recording.noise
    noise.discrete_gaussian = noise.discrete_laplace = lambda width, size: np.zeros(size, dtype=np.int64)


def charge_nothing(curator: Any) -> None:
    curator._gate.charge = lambda event: None


WAYS = [
    (name, kind, options)
    for name, kind, options in [
        *((name, kind, {}) for name, method in METHODS.items() for kind in fitting_kinds(method) if not kind.is_sharp),
        ("pcd", DataKind.NUMBERS, {"test": "hsic"}),
        ("pcd", DataKind.NUMBERS, {"test": "partial"}),
        ("priv-pc", DataKind.LEVELS, {"rate": "0.5"}),
    ]
    if kind is not DataKind.MANY_LEVELS or name == "measure"
]


@pytest.mark.parametrize("how", [draw_faintly, draw_nothing, charge_nothing])
@pytest.mark.parametrize(("name", "kind", "options"), WAYS)
def test_replay_catches_every_method_that_is_spoiled(
    name: str, kind: DataKind, options: dict[str, str], how: Callable[[Any], None]
) -> None:
    pair = make_pair(kind, Relation.ADD_REMOVE)
    replay = replay_method(spoil(METHODS[name], how), pair, Budget.of(3, 1e-6), options)
    words = "not charged" if how is charge_nothing else "moved by"
    doors = {violation.split(":")[0] for violation in replay.violations if words in violation}
    assert doors
    if how is not charge_nothing:
        # whatever moves by a tenth of its charge or more is seen, at every door that draws noise
        sound = replay_method(METHODS[name], pair, Budget.of(3, 1e-6), options)
        clear = {door for door, moved in sound.doors if moved > 0.1 and not door.startswith("choose")}
        assert clear <= doors


@pytest.mark.parametrize("relation", Relation)
def test_the_sound_sieve_passes_where_its_twins_do_not(relation: Relation) -> None:
    replay = replay_method(SOUND_SIEVE, make_pair(DataKind.LEVELS, relation), Budget.of(8, 0))
    assert not replay.violations
    assert 0.0 < replay.largest <= 1.0


def attack(mechanism: Mechanism, runs: int = RUNS) -> Attack:
    tables = [np.array([mechanism(table, run) for run in range(runs)]) for table in (0, 1)]
    names = ("answer", "binary places")[: tables[0].shape[1]]
    return distinguish(*tables, names, 0.0)


@pytest.mark.parametrize(("name", "mechanism"), BROKEN_MECHANISMS)
def test_attack_catches(name: str, mechanism: Mechanism) -> None:
    """All of them claim epsilon 1."""
    found = attack(mechanism)
    assert found.bound > 1.0
    assert found.bound <= found.ceiling


def test_the_sound_mechanism_survives_the_attack() -> None:
    found = attack(release_soundly, 2000)
    assert 0.5 < found.bound <= 1.0

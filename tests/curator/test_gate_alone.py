"""Only the gate refuses, records and draws: nothing else in the room calls for it, and nothing else holds noise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from spies import ROWS, SpyRun, make_rows, make_schema

import dagveil.curator
from dagveil.curator import Curator
from dagveil.curator.gate import Gate
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import PureFilter
from dagveil.privacy.mechanisms.sparse_vector import SparseVector
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import LaplaceBlocks
from dagveil.statistics.statistic import statistic_named

FILES = sorted(Path(dagveil.curator.__file__).parent.glob("*.py"))
ACTS = {"charge", "record", "discrete_gaussian", "discrete_laplace", "uniform_below", "bernoulli", "draw"}
"""To refuse, to record and to draw."""


def list_acts(source: str) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)} & ACTS


def list_imported(source: str) -> set[str]:
    """Return what comes from the modules of noise and of the ledger."""
    rooms = ("dagveil.privacy.noise", "dagveil.privacy.ledger")
    return {
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(rooms)
        for alias in node.names
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_the_gate_acts(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    if path.name == "gate.py":
        assert list_acts(source) == ACTS
    else:
        assert list_acts(source) == set()
        assert list_imported(source) <= {"NoiseSource"}  # the curator's constructor takes one, and hands it on


def walk(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an object and all that it holds, but nothing behind a gate."""
    if id(thing) in seen or isinstance(thing, Gate | MemoryTable | type):
        return
    seen.add(id(thing))
    yield thing
    for part in [*getattr(thing, "__dict__", {}).values(), *(thing if isinstance(thing, list | tuple) else ())]:
        yield from walk(part, seen)


def test_only_the_gate_holds_noise() -> None:
    noise = noise_source(NoiseKind.SEEDED, 0)
    table = make_rows(make_schema(a=2, b=2), ROWS)
    curator = Curator(table, Relation.ADD_REMOVE, PureFilter(Budget.of(1, 0)), SpyRun([]), noise)
    session = curator.ask_questions(statistic_named("kendall", ROWS))
    session.answer(("a", "b", ()), Fraction(1, 10), "question")
    rounds = session.open_rounds(Fraction(1, 10), Fraction(1, 2), Fraction(1), "round")
    plan = MomentPlan(("a", "b"), (0.0, 0.0), (1.0, 1.0), 4.0, 1.0, 8)
    opened = [curator, session, curator.ask_kernels(ROWS), curator.ask_gradients(plan)]
    assert not [held for held in walk(opened, set()) if held is noise or isinstance(held, LaplaceBlocks)]
    # a sparse vector draws by itself, after the gate has charged the round; the walk would see its noise
    held = list(walk(rounds, set()))
    assert noise in held
    (vector,) = (one for one in held if isinstance(one, SparseVector))
    assert vector._charge == curator._gate.charge

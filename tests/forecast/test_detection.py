"""The weakest dependence that is seen, beside simulated releases of the same plan."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from dagveil.data.column import Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evidence.questions import Questions
from dagveil.forecast.detection import POWER, WANTED, describe_visibility, find_weakest
from dagveil.methods.measure import search_defaults
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.search.constraint.skeleton import screening_level

RUNS = 120
DELTA = "1e-6"


def counted(columns: int, levels: int, rows: int) -> Schema:
    labels = tuple(f"v{k}" for k in range(levels))
    return Schema(
        dataset="counted",
        columns={f"x{k}": Categorical(labels, "v0") for k in range(columns)},
        reviewed=True,
        nominal_rows=rows,
    )


def numbers(columns: int, rows: int) -> Schema:
    declared = {f"x{k}": Numeric(bounds=(-9.0, 9.0), center=0.0, spread=1.0) for k in range(columns)}
    return Schema(dataset="numbers", columns=declared, reviewed=True, nominal_rows=rows)


def draw(schema: Schema, strength: float, rng: np.random.Generator) -> MemoryTable:
    """Draw independent columns, but for the first two: these have this correlation or Cramér's V."""
    size = (len(schema.columns), schema.nominal_rows or 0)
    first = schema.columns["x0"]
    if isinstance(first, Numeric):
        rows = rng.standard_normal(size)
        rows[1] = strength * rows[0] + np.sqrt(1.0 - strength**2) * rows[1]
        return MemoryTable.from_source(dict(zip(schema.columns, rows, strict=True)), schema)
    codes = rng.integers(0, first.n_levels, size)
    # repeated with probability V, else drawn anew: Cramér's V of even levels is V
    codes[1] = np.where(rng.random(size[1]) < strength, codes[0], codes[1])
    return MemoryTable.from_codes(dict(zip(schema.columns, codes, strict=True)), schema)


def see(schema: Schema, epsilon: float, strength: float, runs: int = RUNS) -> float:
    """Return how often releases by the plan show the dependence of the first two columns."""
    rng = np.random.default_rng(0)
    plan = plan_measurement(schema, epsilon)
    seen = 0
    for seed in range(runs):
        table = draw(schema, strength, rng)
        evidence = measure_planned(table, plan, schema=schema, noise=NoiseKind.SEEDED, seed=seed, ledger=None)
        tests = evidence.independence()
        assert tests is not None
        p_values = tests.test(
            Questions.of([(x, y, ()) for x, y in combinations(range(len(schema.columns)), 2)])
        ).p_value
        seen += bool(p_values[0] < screening_level(search_defaults(tests), p_values, len(p_values)))
    return seen / runs


@pytest.mark.parametrize(
    ("schema", "epsilon"),
    [
        pytest.param(counted(9, 3, 1500), 0.5, id="pairs, mostly noise"),
        pytest.param(counted(4, 3, 1500), 0.5, id="joint table"),
        pytest.param(numbers(6, 1500), 0.5, id="moments, shrunk rows"),
        pytest.param(numbers(6, 1500), 10, id="moments, mostly sampling"),
    ],
)
def test_it_is_seen_as_often_as_claimed(schema: Schema, epsilon: float) -> None:
    weakest = find_weakest(schema, Budget.of(epsilon, DELTA), schema.nominal_rows or 0)
    assert weakest.typical is not None
    assert weakest.typical == weakest.worst
    # two and a half deviations of a share of 0.8
    assert see(schema, epsilon, weakest.typical) == pytest.approx(POWER, abs=0.09)
    assert see(schema, epsilon, 0.5 * weakest.typical, runs=30) < POWER - 0.2


def test_more_budget_or_rows_show_weaker_dependence() -> None:
    schema = counted(12, 3, 1000)
    seen = [find_weakest(schema, Budget.of(epsilon, DELTA), 20_000).typical for epsilon in (0.1, 1, 10)]
    more = find_weakest(schema, Budget.of(1, DELTA), 200_000).typical
    assert all(value is not None for value in seen)
    assert seen[0] > seen[1] > seen[2]  # type: ignore[operator]
    assert more is not None
    assert more < seen[1]  # type: ignore[operator]


def test_what_cannot_be_seen_is_said() -> None:
    weakest = find_weakest(counted(12, 4, 100), Budget.of("0.01", DELTA), 100)
    assert weakest.typical is None
    assert weakest.words == "not even full dependence"
    assert find_weakest(numbers(8, 50), Budget.of("0.01", DELTA), 50).typical is None


def test_a_spread_that_a_run_has_to_find_costs_some_sight() -> None:
    declared = numbers(5, 2000)
    bare = Schema(dataset="bare", columns={name: Numeric(bounds=(-3.0, 3.0)) for name in declared.columns})
    budget = Budget.of("0.5", DELTA)
    with_spread, without = (find_weakest(schema, budget, 2000).typical for schema in (declared, bare))
    assert with_spread is not None
    assert without is not None
    assert with_spread < without < 1.2 * with_spread


def test_pairs_of_many_levels_are_the_worst() -> None:
    columns = {f"x{k}": Categorical(tuple(f"v{j}" for j in range(2 if k else 9)), "v0") for k in range(12)}
    schema = Schema(dataset="uneven", columns=columns)
    weakest = find_weakest(schema, Budget.of(1, DELTA), 3000)
    assert weakest.typical is not None
    assert weakest.worst is not None
    assert weakest.typical < weakest.worst
    assert "in the worst" in weakest.words


def test_a_table_that_noise_would_drown_is_told_what_helps() -> None:
    schema = counted(37, 3, 1629)
    words, seen = describe_visibility(schema, Budget.of(1, DELTA), 1629)
    found = re.fullmatch(
        r"Noise would drown this table: a Cramér's V of 0.3 would be seen in the typical pair with epsilon ([\d.]+), "
        r"or with (\d+) rows, or with (\d+) columns in place of 37.",
        words,
    )
    assert found is not None, words
    assert seen.startswith("The weakest dependence that is seen with probability 0.8: a Cramér's V of 0.5")
    epsilon, rows, columns = float(found[1]), int(found[2]), int(found[3])
    # each is enough by itself, and hardly more than enough
    for more, less in (
        ((schema, epsilon, 1629), (schema, 0.9 * epsilon, 1629)),
        ((schema, 1, rows), (schema, 1, int(0.9 * rows))),
        ((counted(columns, 3, 1629), 1, 1629), (counted(columns + 1, 3, 1629), 1, 1629)),
    ):
        assert (find_weakest(more[0], Budget.of(more[1], DELTA), more[2]).typical or 1) <= WANTED
        assert (find_weakest(less[0], Budget.of(less[1], DELTA), less[2]).typical or 1) > WANTED


def test_where_nothing_helps_alone_it_says_so() -> None:
    words, _ = describe_visibility(counted(37, 3, 2), Budget.of("1e-7", DELTA), 2)
    assert words.startswith("Noise would drown this table: neither budget nor rows nor fewer columns alone")


def test_a_table_that_noise_spares_gets_one_sentence() -> None:
    (words,) = describe_visibility(counted(12, 2, 6000), Budget.of(10, DELTA), 6000)
    assert words == "The weakest dependence that is seen with probability 0.8: a Cramér's V of 0.052."
    (words,) = describe_visibility(counted(12, 2, 6000), Budget.of(1, DELTA), 6000)
    assert words == (
        "The weakest dependence that is seen with probability 0.8: a Cramér's V of 0.058. `measure` would choose about "
        "27 of the 66 pairs privately, with less noise in each."
    )

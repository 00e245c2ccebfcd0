"""Refuse first, record second, draw last: in which order the curator works, and what it leaves when it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spies import SpyNoise, SpyRun, spy_on

from dagveil.curator import Curator
from dagveil.curator import curator as curator_module
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, BudgetExceededError, LedgerError, SchemaError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteLaplace, GaussianFilter, PureFilter, Unbounded
from dagveil.privacy.ledger import Ledger

PLAN = MomentPlan(("x", "y"), (0.0, 0.0), (1.0, 1.0), 4.0, 1.0, 8)
HALF = Fraction(1, 2)
PAIRS = [("x", "y"), ("y",)]


def make_table() -> MemoryTable:
    schema = Schema(dataset="numbers", columns={name: Numeric(bounds=(-5, 5)) for name in "xy"}, reviewed=True)
    rng = np.random.default_rng(0)
    return MemoryTable.from_source({name: rng.standard_normal(60) for name in "xy"}, schema)


def make_curator(fails: bool = False) -> tuple[Curator, list[str], SpyRun, SpyNoise]:
    log: list[str] = []
    run = SpyRun(log, fails)
    noise = SpyNoise(log, run)
    accounting = spy_on(GaussianFilter(Budget.of(1, 1e-6)), log)
    return Curator(make_table(), Relation.ADD_REMOVE, accounting, run, noise), log, run, noise


QUESTIONS: dict[str, Callable[[Curator, Fraction], object]] = {
    "number of rows": lambda curator, share: curator.count_rows(share),
    "tables": lambda curator, share: curator.count_tables(PAIRS, share, "tables"),
    "magnitudes": lambda curator, share: curator.magnitudes({"x": 0.0, "y": 0.0}, range(-4, 4), share),
    "moments": lambda curator, share: curator.outer_products(PLAN, share, "moments"),
}
every_question = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)


def test_seeded_noise_is_recorded_as_unbounded_before_the_first_draw() -> None:
    curator, log, run, noise = make_curator()
    noise.private = False
    curator.count_rows(Fraction(1, 4))
    curator.count_rows(Fraction(1, 4))
    assert log == ["charge", "record", "record", "draw", "charge", "record", "draw"]
    assert [isinstance(event, Unbounded) for event in run.events] == [True, False, False]
    assert len(curator.events) == 2


@every_question
def test_charge_then_record_then_draw(ask: Callable[[Curator, Fraction], object]) -> None:
    curator, log, run, noise = make_curator()
    ask(curator, HALF)
    assert log[:2] == ["charge", "record"]
    assert set(log[2:]) == {"draw"}
    assert curator.events == tuple(run.events)
    assert len(curator.events) == 1
    assert noise.drawn == curator.events[0].draws
    assert curator.accounting.spent == curator.accounting.cost(curator.events[0])
    ask(curator, HALF)
    assert len(curator.events) == 2


@every_question
def test_a_refused_charge_leaves_nothing_behind(ask: Callable[[Curator, Fraction], object]) -> None:
    curator, log, run, noise = make_curator()
    ask(curator, Fraction(2, 3))
    spent, seen = curator.accounting.spent, list(log)
    with pytest.raises(BudgetExceededError, match="nothing was drawn"):
        ask(curator, HALF)
    assert curator.accounting.spent == spent
    assert log == seen
    assert len(run.events) == len(curator.events) == 1
    assert noise.drawn == curator.events[0].draws


@every_question
def test_no_noise_without_a_ledger_that_holds_the_charge(ask: Callable[[Curator, Fraction], object]) -> None:
    curator, log, run, noise = make_curator(fails=True)
    with pytest.raises(LedgerError, match="disk"):
        ask(curator, HALF)
    assert noise.drawn == 0
    assert "draw" not in log
    assert run.events == []
    assert curator.events == ()
    # the filter stays charged: a run whose ledger fails may ask for less afterwards, never for more
    assert curator.accounting.spent > 0


@every_question
@pytest.mark.parametrize("share", [Fraction(0), Fraction(-1, 2)])
def test_a_share_that_buys_nothing_is_refused(ask: Callable[[Curator, Fraction], object], share: Fraction) -> None:
    curator, log, _, _ = make_curator()
    with pytest.raises(BudgetError, match="above 0"):
        ask(curator, share)
    assert log == []


def test_unknown_columns_cost_nothing() -> None:
    curator, log, _, _ = make_curator()
    with pytest.raises(SchemaError, match="no column 'z'"):
        curator.count_tables([("x", "y"), ("x", "z")], HALF, "tables")
    with pytest.raises(SchemaError, match="no column 'z'"):
        curator.magnitudes({"z": 0.0}, range(3), HALF)
    with pytest.raises(SchemaError, match="no column 'z'"):
        curator.outer_products(MomentPlan(("x", "z"), (0.0, 0.0), (1.0, 1.0), 4.0, 1.0, 8), HALF, "moments")
    with pytest.raises(SchemaError, match="twice"):
        curator.count_tables([("x", "x")], HALF, "tables")
    assert log == []


def test_too_many_cells_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    curator, log, _, _ = make_curator()
    monkeypatch.setattr(curator_module, "MAX_RELEASED_CELLS", 19)
    with pytest.raises(BudgetError, match=r"20 cells together.* limit is 19"):
        curator.count_tables(PAIRS, HALF, "tables")
    assert log == []
    monkeypatch.setattr(curator_module, "MAX_RELEASED_CELLS", 20)
    assert len(curator.count_tables(PAIRS, HALF, "tables")) == 2


def test_pure_accounting_cannot_pay_for_gaussian_noise() -> None:
    log: list[str] = []
    run = SpyRun(log)
    curator = Curator(make_table(), Relation.ADD_REMOVE, PureFilter(Budget.of(1, 0)), run, SpyNoise(log, run))
    with pytest.raises(BudgetError, match="delta"):
        curator.interactions([("x", "y")], HALF, "interactions")
    assert log == []


def test_pure_accounting_pays_for_laplace_noise_on_counts() -> None:
    log: list[str] = []
    run = SpyRun(log)
    curator = Curator(make_table(), Relation.REPLACE_ONE, PureFilter(Budget.of(1, 0)), run, SpyNoise(log, run))
    released = curator.count_tables(PAIRS, HALF, "tables")
    assert [type(event) for event in curator.events] == [DiscreteLaplace]
    assert curator.accounting.spent == Fraction(1, 2)
    # two tables, two cells each, half an epsilon: scale 8
    assert float(released[0].variance) == pytest.approx(2 * 8**2, rel=0.01)


def test_the_curator_shows_no_rows() -> None:
    curator, _, _, _ = make_curator()
    assert repr(curator).startswith("<dagveil.curator.curator.Curator object")
    public = {name for name in vars(curator) if not name.startswith("_")}
    assert public == {"relation", "accounting"}


CHILD = textwrap.dedent(
    """
    import os, signal, sys
    from fractions import Fraction
    import numpy as np
    from dagveil.curator import Curator
    from dagveil.data.column import Boolean
    from dagveil.data.memory import MemoryTable
    from dagveil.data.schema import Schema
    from dagveil.privacy.budget import Budget
    from dagveil.privacy.events import GaussianFilter
    from dagveil.privacy.ledger.account import Terms
    from dagveil.privacy.budget import Relation
    from dagveil.privacy.ledger import Ledger
    from dagveil.privacy.noise import source
    from dagveil.privacy.budget import Relation

    class Deadly:
        name, private = "deadly", False
        def discrete_gaussian(self, variance, size):
            os.kill(os.getpid(), signal.SIGKILL)

    schema = Schema(dataset="visits", columns={"a": Boolean("false"), "b": Boolean("false")}, reviewed=True)
    table = MemoryTable.from_codes({"a": np.array([0, 1]), "b": np.array([1, 1])}, schema)
    budget = Budget.of(1, 1e-6)
    TERMS = Terms.of(Relation.ADD_REMOVE, "one row")
    run = Ledger.open(sys.argv[1]).reserve("visits", budget, TERMS, "pure accounting", "measure", "test")
    Curator(table, Relation.ADD_REMOVE, GaussianFilter(budget), run, Deadly()).count_tables(
        [("a", "b")], Fraction(1, 2), "all pairs"
    )
    """
)


def test_a_run_killed_at_its_first_draw_is_spent(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(place)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    ledger = Ledger.open(place)
    (run,) = ledger.history("visits")
    assert [event.label for event in run.events] == ["seeded noise", "all pairs"]
    assert ledger.account("visits").spent_epsilon == 1
    assert ledger.abandon_untouched("visits") == 0
    assert ledger.account("visits").spent_epsilon == 1
    ledger.close()

"""How runs add up over the life of a data set: terms, composition, names."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget, Relation, epsilon_of_rho, mu_squared_of, rho_of
from dagveil.privacy.events import GaussianFilter, PureFilter, SparseVectorRound, ZcdpFilter
from dagveil.privacy.ledger import Ledger, MemoryLedger
from dagveil.privacy.ledger.account import (
    CONVERSION_SHARE,
    SUM_SHARE,
    Allowance,
    Composition,
    Terms,
    Totals,
    check_name,
    price_run,
)
from dagveil.privacy.receipt import filter_named

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")
EVENT = SparseVectorRound("edge", Fraction(1, 1000))


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger(request, tmp_path):
    if request.param == "memory":
        opened = MemoryLedger()
    elif request.param == "sqlite":
        opened = Ledger.open(tmp_path / "ledger.sqlite")
    else:
        opened = Ledger.open(request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


@pytest.fixture
def name(request):
    return f"visits of {abs(hash(request.node.nodeid))}"  # the server is shared by all tests


def spend(ledger, name, epsilon, delta=0, accounting="pure accounting", terms=TERMS):
    with ledger.reserve(name, Budget.of(epsilon, delta), terms, accounting, "m", "test") as run:
        run.record(EVENT)
    return run


class TestTerms:
    def test_another_relation_is_refused(self, ledger, name):
        """Two runs of epsilon 1 under different relations lost 3 under replace-one, where 2 was promised."""
        ledger.set_budget(name, Budget.of(2, 0))
        spend(ledger, name, 1)
        other = Terms.of(Relation.REPLACE_ONE, "one row")
        with pytest.raises(LedgerError, match=r"counts runs under \(add-remove, row\).*replace-one"):
            spend(ledger, name, 1, terms=other)
        spend(ledger, name, 1)
        assert ledger.account(name).terms == TERMS

    def test_another_unit_is_refused(self, ledger, name):
        spend(ledger, name, 1)
        with pytest.raises(LedgerError, match="patient"):
            spend(ledger, name, 1, terms=Terms.of(Relation.ADD_REMOVE, "one patient"))
        spend(ledger, name, 1, terms=Terms.of(Relation.ADD_REMOVE, "Row"))

    def test_a_run_that_released_nothing_binds_nobody(self, ledger, name):
        ledger.reserve(name, Budget.of(1, 0), TERMS, "pure accounting", "m", "test").close()
        other = Terms.of(Relation.REPLACE_ONE, "one row")
        spend(ledger, name, 1, terms=other)
        assert ledger.account(name).terms == other


class TestComposition:
    @pytest.mark.parametrize(("composition", "runs"), [(Composition.SUM, 10), (Composition.CONCENTRATED, 69)])
    def test_how_many_runs_fit(self, composition, runs):
        """Runs of (0.3, 1e-6) in a lifetime of (3, 1e-5)."""
        lifetime = Allowance.of(Budget.of(3, "1e-5"), composition)
        price = price_run(Budget.of("0.3", "1e-6"), GaussianFilter.name)
        fitting = next(n for n in itertools.count(1) if not lifetime.admits(_times(price, n + 1)))
        assert fitting == runs

    def test_more_gaussian_runs_fit_than_add_up(self, ledger, name, request):
        ledger.set_budget(name, Budget.of(1, "1e-5"))
        for _ in range(8):
            spend(ledger, name, "0.25", "1e-6", GaussianFilter.name)
        account = ledger.account(name)
        assert account.spent_epsilon == 2
        assert account.lifetime_epsilon < 1
        left = account.left
        assert left is not None
        with pytest.raises(BudgetExceededError):
            spend(ledger, name, left.epsilon * Fraction(101, 100), left.delta, GaussianFilter.name)
        spend(ledger, name, left.epsilon, left.delta, GaussianFilter.name)
        if "postgres" not in request.node.name:  # other tests overspend their runs on that server
            assert ledger.verify().problem is None

    def test_the_sum_admits_what_it_did(self, ledger, name):
        ledger.set_budget(name, Budget.of(3, "1e-5"))
        spend(ledger, name, 3)
        with pytest.raises(BudgetExceededError):
            spend(ledger, name, "0.001")

    def test_the_rule_cannot_change_once_runs_count(self, ledger, name):
        ledger.set_budget(name, Budget.of(3, "1e-5"), Composition.SUM)
        ledger.set_budget(name, Budget.of(3, "1e-5"), Composition.CONCENTRATED)
        spend(ledger, name, 1)
        ledger.set_budget(name, Budget.of(4, "1e-5"))
        with pytest.raises(LedgerError, match="cannot be changed"):
            ledger.set_budget(name, Budget.of(4, "1e-5"), Composition.SUM)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.tuples(st.floats(0.01, 3), st.floats(1e-9, 1e-6), st.integers(0, 2)), max_size=12))
    def test_an_admitted_set_keeps_its_promise(self, runs):
        """By the sum, or by the sum of rho, each with its own part of delta."""
        lifetime = Allowance.of(Budget.of(3, "1e-5"), Composition.CONCENTRATED)
        totals = Totals()
        for epsilon, delta, kind in runs:
            accounting = (PureFilter, ZcdpFilter, GaussianFilter)[kind]
            price = price_run(Budget.of(epsilon, 0 if kind == 0 else delta), accounting.name)
            if lifetime.admits(totals.plus(price)):
                totals = totals.plus(price)
        by_sum = totals.epsilon <= 3 and totals.delta <= SUM_SHARE * Fraction(1, 10**5)
        by_rho = epsilon_of_rho(totals.rho, CONVERSION_SHARE * Fraction(1, 10**5)) <= 3
        assert by_sum or by_rho

    def test_prices(self):
        budget = Budget.of(1, "1e-6")
        assert price_run(budget, "Gaussian accounting").rho == mu_squared_of(budget) / 2
        assert price_run(budget, "zCDP accounting").rho == rho_of(budget)
        failing = price_run(budget, "approximate zCDP accounting")
        assert (failing.rho, failing.failure) == (rho_of(Budget.of(1, "5e-7")), Fraction(1, 2 * 10**6))
        assert price_run(budget, "Renyi accounting at order 24") == Totals(
            1, budget.delta, Fraction(1, 2), budget.delta
        )

    @pytest.mark.parametrize("accounting", ["pure accounting", "zCDP accounting", "Gaussian accounting"])
    def test_no_event_costs_more_rho_than_its_run_brings(self, accounting):
        """Whatever a filter admits is concentrated with the rho that the ledger counts."""
        budget = Budget.of(1, 0 if accounting == "pure accounting" else "1e-6")
        inside = filter_named(accounting, budget)
        spent = Fraction(0)
        event = SparseVectorRound("edge", Fraction(1, 100))
        while inside.cost(event) <= inside.remaining:
            inside.charge(event)
            spent += event.epsilon**2 / 2
        assert spent <= price_run(budget, accounting).rho

    def test_tiny_and_missing_deltas_fall_back_to_the_sum(self):
        assert Allowance.of(Budget.of(1, 0), Composition.CONCENTRATED).composition is Composition.SUM
        assert Allowance.of(Budget.of("1e-9", "1e-6"), Composition.CONCENTRATED).composition is Composition.SUM


def _times(price: Totals, times: int) -> Totals:
    return Totals().plus(price, times)


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["Clinic", "CLINIC", " clinic ", "ｃｌｉｎｉｃ", "clinic\n"],
        ids=["capital", "capitals", "blanks", "wide", "line"],
    )
    def test_one_data_set_has_one_budget(self, name):
        ledger = MemoryLedger()
        ledger.set_budget("clinic", Budget.of(1, 0))
        spend(ledger, "clinic", 1)
        with pytest.raises(BudgetExceededError):
            spend(ledger, name, 1)
        assert ledger.account(name).spent_epsilon == 1

    @pytest.mark.parametrize(
        "name",
        [
            "сlinic",
            "clіnic",
            "cl\u200binic",
            "clin\u00adic",
            "\ufeffclinic",
            "cli\u2066nic",
            "clınic",
            "сосо",
            "ΚΑΤ",
            "",
            " ",
        ],
    )
    def test_names_that_could_be_taken_for_another_are_refused(self, name):
        ledger = MemoryLedger()
        for act in (lambda: spend(ledger, name, 1), lambda: ledger.set_budget(name, Budget.of(1, 0))):
            with pytest.raises(LedgerError):
                act()
        assert ledger.datasets() == ()

    @pytest.mark.parametrize("name", ["Клиника Юг", "Ambulanz für Ältere", "患者データ", "visits-2024_a", "café"])
    def test_ordinary_names_are_taken(self, name):
        assert check_name(check_name(name)) == check_name(name)


def test_composed_epsilon_is_what_one_account_says():
    """Ten runs of (0.3, 1e-6): 3 by addition, 1.04 composed, with the part of the lifetime's 1e-5 that is used."""
    price = price_run(Budget.of("0.3", "1e-6"), GaussianFilter.name)
    composed = Allowance.of(Budget.of(3, "1e-5"), Composition.CONCENTRATED).epsilon_of(_times(price, 10))
    assert math.isclose(composed, 1.04, abs_tol=0.02)

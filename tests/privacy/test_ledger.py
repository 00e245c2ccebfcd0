"""One contract for the ledger in memory, on SQLite and on PostgreSQL."""

import multiprocessing
import os
import sqlite3
import sys
import time
import urllib.parse
import uuid
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetExceededError, LedgerError, MissingExtraError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, SparseVectorRound, Unbounded
from dagveil.privacy.ledger import Ledger, MemoryLedger, RunState, store
from dagveil.privacy.ledger.account import Composition, Terms, admit

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

EVENT = SparseVectorRound("edge", Fraction(1, 3))


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger(request, tmp_path):
    if request.param == "memory":
        opened = MemoryLedger()
    elif request.param == "sqlite":
        opened = Ledger.open(tmp_path / "deep" / "ledger.db")
    else:
        opened = Ledger.open(request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


@pytest.fixture
def name():
    return f"visits-{uuid.uuid4()}"  # the server is shared by all tests


def reserve(ledger, name, epsilon=1, delta=0):
    return ledger.reserve(name, Budget.of(epsilon, delta), TERMS, "pure accounting", "pc", "dagveil test")


class TestContract:
    def test_a_new_data_set_is_unlimited_and_says_so(self, ledger, name):
        account = ledger.account(name)
        assert account.budget is None
        assert account.left is None
        assert "no lifetime budget" in account.words
        with reserve(ledger, name, 1000) as run:
            run.record(EVENT)
        assert ledger.account(name).spent_epsilon == 1000
        assert name in ledger.datasets()

    def test_a_touched_run_costs_its_whole_reservation(self, ledger, name):
        ledger.set_budget(name, Budget.of(3, "1e-5"), Composition.SUM)
        run = reserve(ledger, name, "1/3", "1e-6")
        assert ledger.account(name).spending.reserved.epsilon == Fraction(1, 3)
        run.record(SparseVectorRound("edge", Fraction(1, 100)))
        account = ledger.account(name)
        assert (account.spent_epsilon, account.spending.reserved.epsilon) == (Fraction(1, 3), 0)
        run.close()
        account = ledger.account(name)
        assert (account.spent_epsilon, account.spending.spent.delta) == (Fraction(1, 3), Fraction(1, 10**6))
        assert account.left == Budget.of("8/3", "9e-6")

    def test_an_untouched_run_costs_nothing(self, ledger, name):
        ledger.set_budget(name, Budget.of(1, 0))
        reserve(ledger, name).close()
        account = ledger.account(name)
        assert (account.spent_epsilon, account.spending.reserved.epsilon, account.runs) == (0, 0, 1)
        assert [run.state for run in ledger.history(name)] == [RunState.RELEASED]

    def test_overspending_is_refused_with_what_is_left(self, ledger, name):
        ledger.set_budget(name, Budget.of("0.3", "1e-6"), Composition.SUM)
        for _ in range(3):
            reserve(ledger, name, "0.1", 0)  # exact tenths: three fit
        with pytest.raises(BudgetExceededError, match="left epsilon 0, "):
            reserve(ledger, name, "0.001", 0)
        assert ledger.account(name).runs == 3

    def test_delta_is_kept_too(self, ledger, name):
        ledger.set_budget(name, Budget.of(10, "1e-6"), Composition.SUM)
        reserve(ledger, name, 1, "1e-6")
        with pytest.raises(BudgetExceededError, match="delta 0, but"):
            reserve(ledger, name, 1, "1e-9")
        reserve(ledger, name, 1, 0)

    def test_lifetime_budgets_may_rise_but_not_fall_below_what_is_spent(self, ledger, name):
        ledger.set_budget(name, Budget.of(1, 0))
        reserve(ledger, name, 1)
        ledger.set_budget(name, Budget.of(2, "1e-6"))
        ledger.set_budget(name, Budget.of(1, 0))
        with pytest.raises(BudgetExceededError, match="already"):
            ledger.set_budget(name, Budget.of("0.99", 0))
        assert ledger.account(name).budget == Budget.of(1, 0)

    def test_closed_runs_take_no_events(self, ledger, name):
        run = reserve(ledger, name)
        run.close()
        run.close()
        with pytest.raises(LedgerError, match="not open"):
            run.record(EVENT)

    def test_only_untouched_runs_are_abandoned(self, ledger, name):
        ledger.set_budget(name, Budget.of(3, 0))
        crashed, idle = reserve(ledger, name), reserve(ledger, name)
        crashed.record(EVENT)
        assert ledger.abandon_untouched(name) == 1
        assert ledger.abandon_untouched(name) == 0
        account = ledger.account(name)
        assert (account.spent_epsilon, account.spending.reserved.epsilon) == (1, 0)
        with pytest.raises(LedgerError, match="not open"):
            idle.record(EVENT)  # refused before any noise could be drawn
        crashed.record(EVENT)

    def test_a_release_without_guarantee_makes_the_account_unbounded(self, ledger, name):
        assert not ledger.account(name).unbounded
        with reserve(ledger, name) as run:
            run.record(Unbounded("edge", "as published"))
        account = ledger.account(name)
        assert account.unbounded
        assert "unbounded" in account.words

    def test_history_keeps_events_in_order(self, ledger, name):
        events = (EVENT, DiscreteGaussian("cells", 9, Fraction(1, 7), Fraction(101)), Unbounded("x", "y"))
        with reserve(ledger, name, "1/7", "1e-9") as run:
            for event in events:
                run.record(event)
        reserve(ledger, name)
        first, second = ledger.history(name)
        assert first.events == events
        assert first.budget == Budget.of("1/7", "1e-9")
        assert (first.method, first.software, first.state) == ("pc", "dagveil test", RunState.CLOSED)
        assert first.ended is not None
        assert second.events == ()
        assert set(ledger.history()) >= {first, second}

    def test_an_error_closes_the_run_and_keeps_what_was_recorded(self, ledger, name):
        def fail():
            with reserve(ledger, name) as run:
                run.record(EVENT)
                raise RuntimeError("search failed")

        with pytest.raises(RuntimeError, match="search failed"):
            fail()
        assert ledger.account(name).spent_epsilon == 1

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        steps=st.lists(
            st.tuples(st.sampled_from(["reserve", "record", "close", "crash", "clean"]), st.integers(0, 9)), max_size=20
        )
    )
    def test_no_sequence_overspends(self, ledger, steps):
        name = f"steps-{uuid.uuid4()}"
        lifetime = Fraction(2)
        ledger.set_budget(name, Budget(lifetime, Fraction(0)))
        living, touched, reserved = [], {}, {}  # touched and reserved: run id to epsilon
        for step, number in steps:
            if step == "reserve":
                wanted = Fraction(number + 1, 7)
                fits = sum(touched.values()) + sum(reserved.values()) + wanted <= lifetime
                try:
                    run = ledger.reserve(name, Budget(wanted, Fraction(0)), TERMS, "pure accounting", "pc", "test")
                except BudgetExceededError:
                    assert not fits
                else:
                    assert fits
                    living.append(run)
                    reserved[run.id] = wanted
            elif step == "clean":
                assert ledger.abandon_untouched(name) == len(reserved)
                living = [run for run in living if run.id not in reserved]
                reserved = {}
            elif living:
                run = living[number % len(living)]
                if step == "record":
                    run.record(EVENT)
                    touched[run.id] = reserved.pop(run.id, run.budget.epsilon)
                elif step == "close":
                    run.close()
                    reserved.pop(run.id, None)
                    living.remove(run)
                else:  # a crash: the handle is lost, the row stays
                    living.remove(run)
            account = ledger.account(name)
            assert account.spent_epsilon == sum(touched.values())
            assert account.spending.reserved.epsilon == sum(reserved.values())
            assert account.spent_epsilon + account.spending.reserved.epsilon <= lifetime


def grab(place, name, tries, wins):
    def slow_admit(*arguments):
        admit(*arguments)
        time.sleep(0.02)  # between check and insert: without the lock, others would slip in

    store.admit = slow_admit  # in this child only
    ledger = Ledger.open(place)
    won = 0
    for _ in range(tries):
        try:
            run = ledger.reserve(name, Budget.of("0.1", 0), TERMS, "pure accounting", "pc", "test")
        except BudgetExceededError:
            continue
        run.record(EVENT)
        won += 1
    wins.put(won)


REPEATABLE_READ = r"-c default_transaction_isolation=repeatable\ read"


class TestConcurrency:
    @pytest.mark.parametrize("processes", [2, 8])
    @pytest.mark.parametrize(
        "engine",
        [
            "sqlite",
            pytest.param("postgres", marks=pytest.mark.postgres),
            # a server whose default would let a transaction see an older state than the lock that it waited for
            pytest.param(REPEATABLE_READ, marks=pytest.mark.postgres),
        ],
    )
    def test_processes_never_overspend_together(self, request, tmp_path, name, engine, processes):
        place = str(tmp_path / "ledger.db") if engine == "sqlite" else request.getfixturevalue("postgres_url")
        if engine == REPEATABLE_READ:
            place += "?" + urllib.parse.urlencode({"options": REPEATABLE_READ}, quote_via=urllib.parse.quote)
        ledger = Ledger.open(place)
        ledger.set_budget(name, Budget.of(1, 0))
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        wins = context.SimpleQueue()
        ledger.close()  # no connection may be shared with children
        children = [context.Process(target=grab, args=(place, name, 10, wins)) for _ in range(processes)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * processes
        assert sum(wins.get() for _ in children) == 10
        assert ledger.account(name).spent_epsilon == 1
        ledger.close()

    def test_two_programs_may_create_the_ledger_at_once(self, tmp_path):
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        wins = context.SimpleQueue()
        place = str(tmp_path / "new" / "ledger.db")
        children = [context.Process(target=grab, args=(place, "visits", 2, wins)) for _ in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * 4
        assert Ledger.open(place).account("visits").spent_epsilon == Fraction(8, 10)


class TestTrouble:
    def test_a_new_file_is_for_its_owner_alone(self, tmp_path):
        Ledger.open(tmp_path / "ledger.db").close()
        assert (tmp_path / "ledger.db").stat().st_mode & 0o077 == 0

    def test_reopening_keeps_everything(self, tmp_path):
        place = tmp_path / "ledger.db"
        first = Ledger.open(place)
        first.set_budget("visits", Budget.of(2, 0))
        with reserve(first, "visits") as run:
            run.record(EVENT)
        again = Ledger.open(f"sqlite:///{place}")
        assert again.history() == first.history()
        assert again.account("visits").left == Budget.of(1, 0)

    def test_a_locked_ledger_is_named_after_the_wait(self, tmp_path):
        place = tmp_path / "ledger.db"
        ledger = Ledger.open(place, wait_seconds=0.1)
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="held by another process"):
            reserve(ledger, "visits")
        other.rollback()
        reserve(ledger, "visits")

    @pytest.mark.postgres
    def test_a_locked_row_is_named_after_the_wait(self, postgres_url, name):
        import psycopg

        ledger = Ledger.open(postgres_url, wait_seconds=0.2)
        ledger.set_budget(name, Budget.of(1, 0))
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT 1 FROM dagveil.dagveil_facts WHERE name = 'version' FOR UPDATE")
            with pytest.raises(LedgerError, match="held by another process"):
                reserve(ledger, name)
        ledger.close()

    def test_not_a_database(self, tmp_path):
        place = tmp_path / "notes.txt"
        place.write_text("these are notes, not a ledger\n" * 50)
        with pytest.raises(LedgerError, match="not a ledger"):
            Ledger.open(place)
        with pytest.raises(LedgerError, match="folder"):
            Ledger.open(tmp_path)

    def test_a_later_version_is_refused(self, tmp_path):
        place = tmp_path / "ledger.db"
        Ledger.open(place)
        with sqlite3.connect(place) as raw:
            raw.execute("UPDATE dagveil_facts SET value = '999' WHERE name = 'version'")
        with pytest.raises(LedgerError, match="version 999"):
            Ledger.open(place)

    @pytest.mark.parametrize("what", ["file", "folder", "parent"])
    def test_read_only_places_are_refused_before_anything(self, tmp_path, what):
        folder = tmp_path / "books"
        place = folder / "ledger.db"
        Ledger.open(place)
        target = {"file": place, "folder": folder, "parent": folder}[what]
        if what == "parent":
            place = folder / "deeper" / "ledger.db"
        target.chmod(0o444 if what == "file" else 0o555)
        try:
            message = outcome_as_ordinary_user(place, tmp_path)
        finally:
            target.chmod(0o755)
        assert message.startswith("LedgerError")
        assert "cannot be" in message

    def test_unknown_addresses_are_refused(self):
        with pytest.raises(LedgerError, match="SQLite or PostgreSQL"):
            Ledger.open("mysql://localhost/books")

    def test_a_server_that_does_not_answer(self):
        with pytest.raises(LedgerError) as caught:
            Ledger.open("postgresql://someone:secret@127.0.0.1:1/books", wait_seconds=1)
        assert "secret" not in str(caught.value)

    def test_the_missing_driver_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(MissingExtraError, match="postgres"):
            Ledger.open("postgresql://127.0.0.1/books")


def outcome_as_ordinary_user(place, tmp_path):
    """Open a ledger in a child that is not root, and return what happened."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                for folder in (tmp_path, *tmp_path.parents[:2]):
                    os.chmod(folder, 0o755)
                os.setgid(65534)
                os.setuid(65534)
            Ledger.open(place)
            message = "opened"
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


class TestNames:
    """Whatever keeps the books: one data set has one budget, and look-alikes have none."""

    @pytest.mark.parametrize("change", [str.upper, lambda name: f" {name}\n", lambda name: name.replace("-", "\uff0d")])
    def test_other_spellings_share_one_budget(self, ledger, name, change):
        ledger.set_budget(change(name), Budget.of(1, 0))
        with reserve(ledger, name) as run:
            run.record(EVENT)
        with pytest.raises(BudgetExceededError):
            reserve(ledger, change(name))
        assert ledger.account(change(name)).spent_epsilon == 1

    @pytest.mark.parametrize("sign", ["\u0441", "\u0456", "\u200b", "\u00ad", "\ufeff", "\u0578", "\u13ab"])
    def test_look_alikes_are_refused(self, ledger, name, sign):
        look_alike = f"{name}{sign}"
        for act in (
            lambda: reserve(ledger, look_alike),
            lambda: ledger.set_budget(look_alike, Budget.of(1, 0)),
            lambda: ledger.set_limit(look_alike, "ann", Budget.of(1, 0)),
        ):
            with pytest.raises(LedgerError, match=r"look like|cannot be seen"):
                act()
        assert look_alike not in ledger.datasets()

"""The history is chained: whoever changes it by hand is found out, and old ledgers are carried over."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import NoisyMax, Unbounded, encode_event
from dagveil.privacy.ledger import Ledger, MemoryLedger, RunState
from dagveil.privacy.ledger.entries import Entry, EntryKind, follow
from dagveil.privacy.ledger.verification import Head, verify_entries

EVENT = NoisyMax("edge", Fraction(1, 3))


def fill(ledger: Ledger) -> None:
    """Write 13 entries: a budget, a limit, a run of two charges, a released run, an unbounded run, an open run."""
    ledger.set_budget("visits", Budget.of(10, "1e-5"))
    ledger.set_limit("visits", "ann", Budget.of(5, 0))
    with ledger.reserve("visits", Budget.of(1, 0), "pc", "test") as run:
        run.record(EVENT)
        run.record(EVENT)
    ledger.reserve("visits", Budget.of(2, 0), "pc", "test").close()
    with ledger.reserve("other", Budget.of(3, 0), "pc", "test") as run:
        run.record(Unbounded("edge", "as published"))
    ledger.reserve("visits", Budget.of(4, 0), "pc", "test")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    ledger = Ledger.open(tmp_path / "ledger.sqlite", analyst="ann")
    fill(ledger)
    ledger.close()
    return tmp_path / "ledger.sqlite"


def tamper(place: Path, *statements: str) -> None:
    """Change the file by hand, as someone who knows how would."""
    with sqlite3.connect(place) as raw:
        raw.execute("DROP TRIGGER IF EXISTS dagveil_no_update")
        raw.execute("DROP TRIGGER IF EXISTS dagveil_no_delete")
        for statement in statements:
            raw.execute(statement)
    raw.close()


def verify(place: Path, kept: Head | None = None) -> str | None:
    ledger = Ledger.open(place)
    verdict = ledger.verify(kept)
    ledger.close()
    return verdict.problem


class TestWhole:
    def test_every_kind_of_entry_fits(self, place: Path) -> None:
        ledger = Ledger.open(place, analyst="ann")
        verdict = ledger.verify()
        assert verdict.problem is None
        assert verdict.entries == len(ledger.entries()) == 13
        assert verdict.head == ledger.head()
        assert ledger.verify(ledger.head()).problem is None
        kinds = [entry.kind.value for entry in ledger.entries()]
        assert kinds == [
            "begun",
            "budget",
            "limit",
            "reserve",
            "charge",
            "charge",
            "close",
            "reserve",
            "release",
            "reserve",
            "unbounded",
            "close",
            "reserve",
        ]
        assert {entry.analyst for entry in ledger.entries()} == {"ann"}

    def test_memory_and_file_write_the_same_entries(self, place: Path) -> None:
        memory = MemoryLedger("ann")
        fill(memory)
        stored = Ledger.open(place)

        def told(entry: Entry) -> tuple[object, ...]:
            return entry.seq, entry.kind, entry.dataset, entry.run, entry.analyst, entry.body

        assert list(map(told, memory.entries()))[1:] == list(map(told, stored.entries()))[1:]
        assert memory.history() != ()
        assert memory.account("visits") == stored.account("visits")

    def test_an_earlier_head_still_fits(self, place: Path) -> None:
        ledger = Ledger.open(place)
        head = ledger.head()
        ledger.set_budget("visits", Budget.of(11, 0))
        assert ledger.head().seq == head.seq + 1
        assert ledger.verify(Head.read(str(head))).problem is None

    def test_two_ledgers_have_different_heads(self, tmp_path: Path) -> None:
        heads = {str(Ledger.open(tmp_path / name).head()) for name in ("a.sqlite", "b.sqlite")}
        assert len(heads) == 2

    @pytest.mark.parametrize("text", ["", "7", "7:abc", "x:" + "0" * 64, "0:" + "0" * 64, "7:" + "g" * 64])
    def test_heads_that_are_none(self, text: str) -> None:
        with pytest.raises(LedgerError, match="copy it whole"):
            Head.read(text)


class TestTampering:
    def test_the_file_refuses_updates_and_deletions(self, place: Path) -> None:
        with sqlite3.connect(place) as raw:
            for statement in ("UPDATE dagveil_entries SET body = '{}'", "DELETE FROM dagveil_entries"):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    raw.execute(statement)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("body", '\'{"epsilon":"100","delta":"0"}\''),
            ("body", "x'7b7d'"),
            ("kind", "'close'"),
            ("dataset", "'other'"),
            ("run", "7"),
            ("analyst", "'ben'"),
            ("recorded", "'2020-01-01T00:00:00+00:00'"),
            ("previous", "digest"),
            ("digest", "previous"),
        ],
    )
    @pytest.mark.parametrize("seq", [1, 2, 5, 13])
    def test_any_changed_field_of_any_entry_is_named(self, place: Path, column: str, value: str, seq: int) -> None:
        tamper(place, f"UPDATE dagveil_entries SET {column} = {value} WHERE seq = {seq}")
        problem = verify(place)
        assert problem is not None
        assert problem.startswith(f"entry {seq} ")

    def test_a_deleted_entry_is_named(self, place: Path) -> None:
        tamper(place, "DELETE FROM dagveil_entries WHERE seq = 6")
        assert verify(place) == "entry 7 (close of run 1) follows entry 5: entry 6 is missing"

    def test_entries_that_change_places(self, place: Path) -> None:
        tamper(
            place,
            "UPDATE dagveil_entries SET seq = 100 WHERE seq = 5",
            "UPDATE dagveil_entries SET seq = 5 WHERE seq = 6",
            "UPDATE dagveil_entries SET seq = 6 WHERE seq = 100",
        )
        assert "entry 5 " in (verify(place) or "")

    def test_a_kind_that_nobody_knows(self, place: Path) -> None:
        tamper(place, "UPDATE dagveil_entries SET kind = 'refund' WHERE seq = 6")
        assert "entry 6 is of a kind" in (verify(place) or "")

    def test_a_cut_off_end_shows_only_with_the_head(self, place: Path) -> None:
        head = Ledger.open(place).head()
        tamper(place, "DELETE FROM dagveil_entries WHERE seq > 9")
        assert verify(place) is None
        assert "ends with entry 9, but entry 13" in (verify(place, head) or "")

    def test_a_history_that_was_written_anew_shows_only_with_the_head(self, place: Path) -> None:
        ledger = Ledger.open(place)
        entries, head = ledger.entries(), ledger.head()
        forged: list[Entry] = []
        for entry in entries:
            if entry.kind is EntryKind.CHARGE and entry.seq == 6:
                continue  # one charge less
            last = forged[-1] if forged else None
            forged.append(follow(last, entry.kind, entry.dataset, entry.run, entry.analyst, entry.body, entry.recorded))
        assert verify_entries(forged).problem is None
        forged.append(follow(forged[-1], EntryKind.BUDGET, "visits", None, "ann", '{"epsilon":"99","delta":"0"}'))
        problem = verify_entries(forged, head).problem
        assert problem is not None
        assert "entry 13 " in problem
        assert "computed anew" in problem

    def test_an_emptied_history(self, place: Path) -> None:
        tamper(place, "DELETE FROM dagveil_entries")
        assert "emptied" in (verify(place) or "")
        with pytest.raises(LedgerError, match="emptied"):
            Ledger.open(place).head()

    @pytest.mark.parametrize(
        ("forge", "words"),
        [
            (lambda last: follow(last, EntryKind.RELEASE, "visits", 1, "ann", "{}"), "its run had ended"),
            (lambda last: follow(last, EntryKind.CHARGE, "visits", 2, "ann", "{}"), "its run had ended"),
            (lambda last: follow(last, EntryKind.CLOSE, "visits", 4, "ann", "{}"), "without charges is released"),
            (lambda last: follow(last, EntryKind.CHARGE, "visits", 9, "ann", "{}"), "no such run"),
            (lambda last: follow(last, EntryKind.BEGUN, "", None, "ann", "{}"), "begins once"),
            (lambda last: follow(last, EntryKind.BUDGET, "visits", None, "ann", "{"), "cannot be read"),
            (
                lambda last: follow(last, EntryKind.BUDGET, "visits", None, "a", '{"epsilon":"1","delta":"0"}'),
                "already spent or reserved epsilon 5",
            ),
            (
                lambda last: follow(
                    last,
                    EntryKind.RESERVE,
                    "visits",
                    5,
                    "ben",
                    '{"epsilon":"6","delta":"0","method":"","software":""}',
                ),
                "has epsilon 5",
            ),
        ],
    )
    def test_entries_that_the_rules_forbid(self, place: Path, forge: Callable[[Entry], Entry], words: str) -> None:
        """Chained properly, but by someone who went around the program."""
        entries = Ledger.open(place).entries()
        problem = verify_entries([*entries, forge(entries[-1])]).problem
        assert problem is not None
        assert problem.startswith("entry 14 ")
        assert words in problem


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=4, max_size=4),
    other=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=4, max_size=4),
)
def test_different_entries_have_different_digests(names: list[str], other: list[str]) -> None:
    """Texts of neighbouring fields cannot run into each other."""
    made = [follow(None, EntryKind.BUDGET, *_spread(words)) for words in (names, other)]
    assert (made[0].digest == made[1].digest) == (names == other)


def _spread(words: list[str]) -> tuple[str, None, str, str, str]:
    return words[0], None, words[1], words[2], words[3] or "now"


class TestLimits:
    @pytest.fixture(params=["memory", "sqlite"])
    def reopen(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Ledger]:
        if request.param == "sqlite":
            return lambda analyst: Ledger.open(tmp_path / "ledger.sqlite", analyst=analyst)
        memory = MemoryLedger("ann")

        def rename(analyst: str) -> Ledger:
            memory._analyst = analyst
            return memory

        return rename

    def test_each_analyst_has_a_limit_of_their_own(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("owner")
        ledger.set_budget("visits", Budget.of(3, "1e-5"))
        ledger.set_limit("visits", "ann", Budget.of(1, "1e-6"))
        for amount in ("0.75", "0.25"):
            with reopen("ann").reserve("visits", Budget.of(amount, 0), "pc", "test") as run:
                run.record(EVENT)
        with pytest.raises(BudgetExceededError) as caught:
            reopen("ann").reserve("visits", Budget.of("0.5", 0), "pc", "test")
        assert "'visits' has epsilon 2 and delta 1e-5 left of its lifetime budget" in str(caught.value)
        assert "the analyst 'ann' has epsilon 0 and delta 1e-6 left on 'visits'" in str(caught.value)
        assert "ask the ledger's owner" in str(caught.value)
        reopen("ben").reserve("visits", Budget.of(2, 0), "pc", "test")
        account = reopen("owner").account("visits")
        assert {share.analyst: share.spending.spent_epsilon for share in account.shares} == {"ann": 1, "ben": 0}
        assert account.share("ben").spending.reserved_epsilon == 2
        assert account.share("ben").limit is None

    def test_delta_limits_too(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("ann")
        ledger.set_limit("visits", "ann", Budget.of(9, "1e-6"))
        ledger.reserve("visits", Budget.of(1, "1e-6"), "pc", "test")
        with pytest.raises(BudgetExceededError, match="'ann' has epsilon 8 and delta 0 left"):
            ledger.reserve("visits", Budget.of(1, "1e-9"), "pc", "test")

    def test_limits_change_but_not_below_what_is_spent(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("ann")
        ledger.reserve("visits", Budget.of(2, 0), "pc", "test")
        with pytest.raises(BudgetExceededError, match="'ann' on 'visits' has already spent or reserved epsilon 2"):
            ledger.set_limit("visits", "ann", Budget.of(1, 0))
        ledger.set_limit("visits", "ann", Budget.of(2, 0))
        with pytest.raises(BudgetExceededError):
            ledger.reserve("visits", Budget.of(1, 0), "pc", "test")
        ledger.set_limit("visits", "ann", None)
        ledger.reserve("visits", Budget.of(1, 0), "pc", "test")
        assert ledger.account("visits").share("ann").limit is None

    def test_a_limit_elsewhere_does_not_bind(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("ann")
        ledger.set_limit("other", "ann", Budget.of(1, 0))
        ledger.set_limit("visits", "ben", Budget.of(1, 0))
        ledger.reserve("visits", Budget.of(100, 0), "pc", "test")

    def test_there_are_no_roles(self, reopen: Callable[[str], Ledger]) -> None:
        for change in (reopen("ann").grant, reopen("ann").revoke):
            with pytest.raises(LedgerError, match="has no roles: whoever can write it is its owner"):
                change("ben")

    @pytest.mark.parametrize("name", ["", " ann", "a\nb", "a" * 201])
    def test_names_that_nobody_has(self, reopen: Callable[[str], Ledger], name: str) -> None:
        with pytest.raises(LedgerError, match="printable"):
            reopen("ann").set_limit("visits", name, None)


class TestMigration:
    @pytest.fixture
    def old(self, tmp_path: Path) -> Path:
        """Write a ledger as version 1 did: a raised and lowered budget, every state of a run, an unbounded event."""
        place = tmp_path / "old.sqlite"
        event, unbounded = encode_event(EVENT).decode(), encode_event(Unbounded("x", "y")).decode()
        with sqlite3.connect(place) as raw:
            raw.executescript(
                """
                CREATE TABLE dagveil_facts (name VARCHAR NOT NULL PRIMARY KEY, value TEXT NOT NULL);
                CREATE TABLE dagveil_datasets (name VARCHAR NOT NULL PRIMARY KEY, epsilon TEXT, delta TEXT);
                CREATE TABLE dagveil_runs (
                    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
                    dataset VARCHAR NOT NULL REFERENCES dagveil_datasets (name), epsilon TEXT NOT NULL,
                    delta TEXT NOT NULL, method TEXT NOT NULL, software TEXT NOT NULL, state VARCHAR NOT NULL,
                    started VARCHAR NOT NULL, ended VARCHAR);
                CREATE INDEX ix_dagveil_runs_dataset ON dagveil_runs (dataset);
                CREATE TABLE dagveil_events (
                    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES dagveil_runs (id),
                    kind VARCHAR NOT NULL, content TEXT NOT NULL, recorded VARCHAR NOT NULL);
                INSERT INTO dagveil_facts VALUES ('version', '1');
                INSERT INTO dagveil_datasets VALUES ('visits', '3', '1/100000'), ('free', NULL, NULL);
                INSERT INTO dagveil_runs VALUES
                    (1, 'visits', '2', '0', 'pc', 'dagveil 0', 'released', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:01+00:00'),
                    (2, 'visits', '1/3', '1/1000000', 'pc', 'dagveil 0', 'closed', '2026-01-02T00:00:00+00:00', '2026-01-02T00:00:01+00:00'),
                    (4, 'visits', '1', '0', 'pc', 'dagveil 0', 'open', '2026-01-03T00:00:00+00:00', NULL),
                    (5, 'visits', '5/3', '0', 'pc', 'dagveil 0', 'open', '2026-01-04T00:00:00+00:00', NULL),
                    (6, 'free', '7', '0', 'pc', 'dagveil 0', 'closed', '2026-01-05T00:00:00+00:00', '2026-01-05T00:00:01+00:00');
                """  # noqa: E501
            )
            rows = [
                (2, "noisy-max", event),
                (2, "noisy-max", event),
                (5, "noisy-max", event),
                (6, "unbounded", unbounded),
            ]
            for run, kind, content in rows:
                raw.execute(
                    "INSERT INTO dagveil_events (run, kind, content, recorded) VALUES (?, ?, ?, ?)",
                    (run, kind, content, "2026-01-02T00:00:00+00:00"),
                )
        raw.close()
        return place

    def test_accounts_and_runs_are_as_before(self, old: Path) -> None:
        ledger = Ledger.open(old, analyst="ann")
        account = ledger.account("visits")
        assert account.budget == Budget.of(3, "1e-5")
        assert (account.spent_epsilon, account.reserved_epsilon, account.runs) == (2, 1, 4)
        assert account.spent_delta == Fraction(1, 10**6)
        assert account.remaining_epsilon == 0
        assert ledger.account("free").unbounded
        assert ledger.datasets() == ("free", "visits")
        runs = {run.id: run for run in ledger.history()}
        assert {number: run.state.value for number, run in runs.items()} == {
            1: "released",
            2: "closed",
            4: "open",
            5: "open",
            6: "closed",
        }
        assert runs[2].events == (EVENT, EVENT)
        assert (runs[2].started, runs[2].ended) == ("2026-01-02T00:00:00+00:00", "2026-01-02T00:00:01+00:00")
        assert {run.analyst for run in runs.values()} == {""}
        assert ledger.verify().problem is None

    def test_it_goes_on_from_there(self, old: Path) -> None:
        ledger = Ledger.open(old, analyst="ann")
        with pytest.raises(BudgetExceededError, match="epsilon 0 "):
            ledger.reserve("visits", Budget.of("0.1", 0), "pc", "test")
        assert ledger.abandon_untouched("visits") == 1
        run = ledger.reserve("visits", Budget.of(1, 0), "pc", "test")
        assert run.id == 7
        run.record(EVENT)
        ledger.close()
        again = Ledger.open(old)
        assert again.verify().problem is None
        assert again.account("visits").spent_epsilon == 3
        assert [run.state for run in again.history("visits")][2] is RunState.RELEASED

    def test_an_older_program_that_has_it_open_fails_before_noise(self, old: Path) -> None:
        raw = sqlite3.connect(old)
        Ledger.open(old).close()
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            raw.execute("INSERT INTO dagveil_events (run, kind, content, recorded) VALUES (4, 'noisy-max', '{}', '')")
        assert raw.execute("SELECT value FROM dagveil_facts").fetchall() == [("2",)]
        raw.close()

    def test_a_migration_that_fails_changes_nothing(self, old: Path) -> None:
        with sqlite3.connect(old) as raw:
            raw.execute("UPDATE dagveil_runs SET epsilon = 'much' WHERE id = 6")
        raw.close()
        with pytest.raises(Exception, match="much"):
            Ledger.open(old)
        with sqlite3.connect(old) as raw:
            assert raw.execute("SELECT count(*) FROM dagveil_runs").fetchone() == (5,)
            assert raw.execute("SELECT value FROM dagveil_facts").fetchall() == [("1",)]
        raw.close()

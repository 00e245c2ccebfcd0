"""The history is chained: whoever changes it by hand is found out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import SparseVectorRound, Unbounded, encode_event
from dagveil.privacy.ledger import Ledger, LedgerRun, MemoryLedger, store
from dagveil.privacy.ledger.account import Allowance, Composition, Terms
from dagveil.privacy.ledger.accounts import Head, verify_entries
from dagveil.privacy.ledger.entries import Entry, EntryKind, budget_body, follow, reservation_body
from dagveil.privacy.ledger.store import memory_of

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

EVENT = SparseVectorRound("edge", Fraction(1, 3))
LARGE = SparseVectorRound("edge", Fraction(5))
BUDGET = budget_body(Allowance.of(Budget.of(10, "1e-5"), Composition.CONCENTRATED))
RUN = reservation_body(Budget.of(1, 0), TERMS, "pure accounting", "pc", "test")
MORE = reservation_body(Budget.of(6, 0), TERMS, "pure accounting", "pc", "test")
OTHER = reservation_body(Budget.of(1, 0), Terms.of(Relation.REPLACE_ONE, "row"), "pure accounting", "pc", "test")


def reserve(ledger: Ledger, epsilon: object) -> LedgerRun:
    return ledger.reserve("visits", Budget.of(epsilon, 0), TERMS, "pure accounting", "pc", "test")  # type: ignore[arg-type]


def create_trigger(name: str) -> str:
    """Write the trigger that keeps the history append-only."""
    return store._APPEND_ONLY.format(name=name)


def fill(ledger: Ledger) -> None:
    """Write 13 entries: a budget, a limit, a run of two charges, a released run, an unbounded run, an open run."""
    ledger.set_budget("visits", Budget.of(10, "1e-5"))
    ledger.set_limit("visits", "ann", Budget.of(5, 0))
    with ledger.reserve("visits", Budget.of(1, 0), TERMS, "pure accounting", "pc", "test") as run:
        run.record(EVENT)
        run.record(EVENT)
    ledger.reserve("visits", Budget.of(2, 0), TERMS, "pure accounting", "pc", "test").close()
    with ledger.reserve("other", Budget.of(3, 0), TERMS, "pure accounting", "pc", "test") as run:
        run.record(Unbounded("edge", "as published"))
    ledger.reserve("visits", Budget.of(4, 0), TERMS, "pure accounting", "pc", "test")


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
        ledger.set_budget("visits", Budget.of(11, "1e-5"))
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
        assert "entry 6 (unreadable of visits)" in (verify(place) or "")
        account = Ledger.open(place).account("visits")
        assert account.damaged == ("entry 6 (unreadable of visits)",)
        with pytest.raises(LedgerError, match="entry 6"):
            reserve(Ledger.open(place), 1)

    def test_a_cut_off_end_shows_only_with_the_head(self, place: Path) -> None:
        head = Ledger.open(place).head()
        with sqlite3.connect(place) as raw:
            raw.execute("DROP TRIGGER dagveil_no_delete")
            raw.execute("DELETE FROM dagveil_entries WHERE seq > 9")
            raw.execute(create_trigger("delete"))
        raw.close()
        # this computer has seen it
        assert "ends with entry 9, but entry 13" in (verify(place) or "")
        with pytest.raises(LedgerError, match="had 13 entries"):
            reserve(Ledger.open(place), 1)
        memory_of(str(place)).unlink()
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
        body = budget_body(Allowance.of(Budget.of(99, "1e-5"), Composition.CONCENTRATED))
        forged.append(follow(forged[-1], EntryKind.BUDGET, "visits", None, "ann", body))
        problem = verify_entries(forged, head).problem
        assert problem is not None
        assert "entry 13 " in problem
        assert "computed anew" in problem

    def test_a_trigger_that_keeps_charges_out(self, place: Path) -> None:
        """Forty runs were drawn against a lifetime of 3, and the history fitted."""
        run = reserve(Ledger.open(place), "0.5")
        with sqlite3.connect(place) as raw:
            raw.execute(
                "CREATE TRIGGER quiet BEFORE INSERT ON dagveil_entries WHEN new.kind = 'charge' "
                "BEGIN SELECT RAISE(IGNORE); END"
            )
        raw.close()
        assert "'quiet' in the ledger's file was added" in (verify(place) or "")
        with pytest.raises(LedgerError, match="'quiet'"):
            run.record(EVENT)
        with pytest.raises(LedgerError, match="'quiet'"):
            reserve(Ledger.open(place), 1)

    def test_an_entry_that_the_file_swallows_is_noticed(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = reserve(Ledger.open(place), "0.5")
        with sqlite3.connect(place) as raw:
            raw.execute("CREATE TRIGGER quiet BEFORE INSERT ON dagveil_entries BEGIN SELECT RAISE(IGNORE); END")
        raw.close()
        monkeypatch.setattr("dagveil.privacy.ledger.store.find_alteration", lambda connection: None)
        with pytest.raises(LedgerError, match="did not take an entry"):
            run.record(EVENT)

    def test_numbers_of_another_type(self, place: Path) -> None:
        with sqlite3.connect(place) as raw:
            raw.execute("DROP TRIGGER dagveil_no_update")
            raw.execute("UPDATE dagveil_entries SET run = 1.4 WHERE seq = 5")
            raw.execute(create_trigger("update"))
        raw.close()
        assert "entry 5 has a field of another type" in (verify(place) or "")

    def test_a_byte_that_is_no_text(self, place: Path) -> None:
        tamper(place, "UPDATE dagveil_entries SET body = CAST(x'ff7b7d' AS TEXT) WHERE seq = 6")
        assert "entry 6 " in (verify(place) or "")
        run = Ledger.open(place).history("visits")[0]
        assert (run.unreadable, run.events) == (1, (EVENT,))

    def test_a_reservation_that_cannot_be_read_stops_runs_and_nothing_else(self, place: Path) -> None:
        tamper(place, "UPDATE dagveil_entries SET body = '{}' WHERE seq = 4")
        ledger = Ledger.open(place)
        account = ledger.account("visits")
        assert account.damaged[0] == "entry 4 (reserve of run 1)"
        assert "no run is admitted" in account.words
        assert [run.id for run in ledger.history("visits")] == [2, 4]
        with pytest.raises(LedgerError, match="entry 4"):
            reserve(ledger, 1)
        assert ledger.account("other").damaged == ()

    @pytest.mark.parametrize("left", [None, b"", b"x"])
    def test_a_ledger_that_vanished_is_not_made_anew(self, place: Path, left: bytes | None) -> None:
        place.unlink()
        if left is not None:
            place.write_bytes(left)
        with pytest.raises(LedgerError, match=r"had 13 entries|is not a ledger"):
            Ledger.open(place)
        assert not place.exists() or place.stat().st_size < 2
        memory_of(str(place)).unlink()
        place.unlink(missing_ok=True)
        assert Ledger.open(place).datasets() == ()

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
                lambda last: follow(last, EntryKind.BUDGET, "visits", None, "a", BUDGET.replace('"10"', '"1"')),
                "already spent or reserved epsilon 5",
            ),
            (
                lambda last: follow(last, EntryKind.BUDGET, "visits", None, "a", '{"epsilon":"9","delta":"0"}'),
                "cannot be changed once there are any",
            ),
            (lambda last: follow(last, EntryKind.RESERVE, "visits", 5, "ben", RUN.replace('"1"', '"6"')), "worth"),
            (lambda last: follow(last, EntryKind.RESERVE, "visits", 5, "ben", MORE), "has left a run of epsilon 5"),
            (lambda last: follow(last, EntryKind.RESERVE, "visits", 5, "ben", OTHER), "counts runs under (add-remove"),
            (
                lambda last: follow(last, EntryKind.CHARGE, "visits", 4, "ann", encode_event(LARGE).decode()),
                "costs 5 epsilon, but 4 of 4 is left",
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

    def test_one_entry_that_was_written_anew(self, place: Path) -> None:
        """It fits its own digest; the next one does not follow it."""
        ledger = Ledger.open(place)
        before, changed = ledger.entries()[3:5]
        ledger.close()
        small = encode_event(SparseVectorRound("edge", Fraction(1, 1000))).decode()
        forged = follow(before, changed.kind, changed.dataset, changed.run, changed.analyst, small, changed.recorded)
        tamper(place, f"UPDATE dagveil_entries SET body = '{small}', digest = '{forged.digest}' WHERE seq = 5")
        assert "entry 6 (charge of run 1) does not follow entry 5" in (verify(place) or "")

    def test_charges_that_exceed_their_reservation_together(self, place: Path) -> None:
        """As forked copies of a filter charged them: each is within the run's 4, their sum is not."""
        entries = list(Ledger.open(place).entries())
        body = encode_event(SparseVectorRound("edge", Fraction(3))).decode()
        for _ in range(2):
            entries.append(follow(entries[-1], EntryKind.CHARGE, "visits", 4, "ann", body))
        verdict = verify_entries(entries)
        assert verdict.entries == 14
        assert "costs 3 epsilon, but 1 of 4 is left" in (verdict.problem or "")

    @pytest.mark.parametrize(
        "body",
        [
            RUN.replace('"epsilon":"1"', '"epsilon":"1/0"'),
            RUN.replace('"epsilon":"1"', '"epsilon":"-1"'),
            RUN.replace('"epsilon":"1"', '"epsilon":"NaN"'),
            RUN.replace('"epsilon":"1"', f'"epsilon":"1/{"3" * 5000}"'),
            RUN.replace("add-remove", "both"),
        ],
        ids=["no fraction", "negative", "no number", "long", "relation"],
    )
    def test_amounts_that_cannot_be_read_stop_runs_and_nothing_else(self, place: Path, body: str) -> None:
        tamper(place, f"UPDATE dagveil_entries SET body = '{body}' WHERE seq = 4")
        ledger = Ledger.open(place)
        assert ledger.account("visits").damaged[0] == "entry 4 (reserve of run 1)"
        assert [run.id for run in ledger.history("visits")] == [2, 4]
        assert "entry 4 " in (ledger.verify().problem or "")
        with pytest.raises(LedgerError, match="entry 4"):
            reserve(ledger, 1)

    def test_a_charge_that_no_event_could_be(self, place: Path) -> None:
        nothing = '{"kind":"sparse-vector-round","label":"edge","epsilon":"0"}'
        tamper(place, f"UPDATE dagveil_entries SET body = '{nothing}' WHERE seq = 6")
        run = Ledger.open(place).history("visits")[0]
        assert (run.unreadable, run.events) == (1, (EVENT,))


class TestRemembered:
    """What this computer has seen of a ledger, whatever was done last."""

    def cut(self, place: Path, last: int) -> None:
        """Take the end away, and leave no other trace."""
        with sqlite3.connect(place) as raw:
            raw.execute("DROP TRIGGER dagveil_no_delete")
            raw.execute(f"DELETE FROM dagveil_entries WHERE seq > {last}")
            raw.execute(create_trigger("delete"))
        raw.close()

    def test_a_budget_is_enough(self, tmp_path: Path) -> None:
        place = tmp_path / "ledger.sqlite"
        ledger = Ledger.open(place)
        ledger.set_budget("visits", Budget.of(1, 0))
        ledger.close()
        place.unlink()
        with pytest.raises(LedgerError, match="had 2 entries"):
            Ledger.open(place)

    def test_the_end_of_a_run_is(self, place: Path) -> None:
        """Or its charges could be cut off, and the run released."""
        with reserve(Ledger.open(place), 1) as run:
            run.record(EVENT)
        self.cut(place, 14)
        assert "ends with entry 14, but entry 16" in (verify(place) or "")
        with pytest.raises(LedgerError, match="had 16 entries"):
            reserve(Ledger.open(place), 1)

    def test_under_any_of_its_names(self, place: Path) -> None:
        link = place.with_name("link.sqlite")
        link.symlink_to(place)
        place.unlink()
        with pytest.raises(LedgerError, match="had 13 entries"):
            Ledger.open(link)


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
            memory.analyst = analyst
            return memory

        return rename

    def test_each_analyst_has_a_limit_of_their_own(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("owner")
        ledger.set_budget("visits", Budget.of(3, "1e-5"))
        ledger.set_limit("visits", "ann", Budget.of(1, "1e-6"))
        for amount in ("0.75", "0.25"):
            with reopen("ann").reserve("visits", Budget.of(amount, 0), TERMS, "pure accounting", "pc", "test") as run:
                run.record(EVENT)
        with pytest.raises(BudgetExceededError) as caught:
            reopen("ann").reserve("visits", Budget.of("0.5", 0), TERMS, "pure accounting", "pc", "test")
        assert "'visits' has left a run of epsilon 2 with" in str(caught.value)
        assert "the analyst 'ann' on 'visits' has left nothing for a run with delta 1e-6" in str(caught.value)
        assert "ask the ledger's owner" in str(caught.value)
        reopen("ben").reserve("visits", Budget.of(2, 0), TERMS, "pure accounting", "pc", "test")
        account = reopen("owner").account("visits")
        assert {share.analyst: share.spending.spent.epsilon for share in account.shares} == {"ann": 1, "ben": 0}
        assert account.share("ben").spending.reserved.epsilon == 2
        assert account.share("ben").limit is None

    def test_delta_limits_too(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("ann")
        ledger.set_limit("visits", "ann", Budget.of(9, "1e-6"))
        ledger.reserve("visits", Budget.of(1, "1e-6"), TERMS, "pure accounting", "pc", "test")
        with pytest.raises(BudgetExceededError, match="'ann' on 'visits' has left epsilon 8, delta 0"):
            ledger.reserve("visits", Budget.of(1, "1e-9"), TERMS, "pure accounting", "pc", "test")

    def test_limits_change_but_not_below_what_is_spent(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("ann")
        ledger.reserve("visits", Budget.of(2, 0), TERMS, "pure accounting", "pc", "test")
        with pytest.raises(BudgetExceededError, match="'ann' on 'visits' has already spent or reserved epsilon 2"):
            ledger.set_limit("visits", "ann", Budget.of(1, 0))
        ledger.set_limit("visits", "ann", Budget.of(2, 0))
        with pytest.raises(BudgetExceededError):
            ledger.reserve("visits", Budget.of(1, 0), TERMS, "pure accounting", "pc", "test")
        ledger.set_limit("visits", "ann", None)
        ledger.reserve("visits", Budget.of(1, 0), TERMS, "pure accounting", "pc", "test")
        assert ledger.account("visits").share("ann").limit is None

    def test_a_limit_elsewhere_does_not_bind(self, reopen: Callable[[str], Ledger]) -> None:
        ledger = reopen("ann")
        ledger.set_limit("other", "ann", Budget.of(1, 0))
        ledger.set_limit("visits", "ben", Budget.of(1, 0))
        ledger.reserve("visits", Budget.of(100, 0), TERMS, "pure accounting", "pc", "test")

    def test_there_are_no_roles(self, reopen: Callable[[str], Ledger]) -> None:
        for change in (reopen("ann").grant, reopen("ann").revoke):
            with pytest.raises(LedgerError, match="has no roles: whoever can write it is its owner"):
                change("ben")

    @pytest.mark.parametrize("name", ["", " ann", "a\nb", "a" * 201])
    def test_names_that_nobody_has(self, reopen: Callable[[str], Ledger], name: str) -> None:
        with pytest.raises(LedgerError, match="printable"):
            reopen("ann").set_limit("visits", name, None)

"""A ledger that cannot be written stops a run before any noise is drawn."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest
from desk import ROWS, Desk, ordinary_user

from dagveil.privacy.ledger import Ledger
from dagveil.privacy.ledger.entries import EntryKind


@pytest.fixture
def words(desk: Desk) -> tuple[object, ...]:
    """Return the words of a run that would spend."""
    return (
        *("discover", desk.write("t.csv", ROWS), "--schema", desk.write_schema(), "--epsilon", 1),
        *("--noise", "exact", "--redraws", 0, "-o", desk.out),
    )


@pytest.mark.parametrize("level", ["EXCLUSIVE", "IMMEDIATE"])
def test_locked(desk: Desk, words: tuple[object, ...], level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagveil.cli.options.LEDGER_WAIT_SECONDS", 0.2)
    Ledger.open(desk.ledger).close()
    other = sqlite3.connect(desk.ledger, isolation_level=None)
    other.execute(f"BEGIN {level}")
    try:
        result = desk.run(*words)
    finally:
        other.execute("ROLLBACK")
        other.close()
    desk.check_refused(result, "held by another process .* 0.2 s; nothing was drawn", "Wait for the other run")
    assert desk.run(*words).exit_code == 0


def test_locked_before_the_first_charge(desk: Desk, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock comes after the reservation: the run stops there, and what it reserved can be released."""
    monkeypatch.setattr("dagveil.cli.options.LEDGER_WAIT_SECONDS", 0.2)
    from dagveil.privacy.ledger.store import SqlLedger

    reserve = SqlLedger.reserve
    other = sqlite3.connect(desk.ledger, isolation_level=None)

    def reserve_and_lock(self: SqlLedger, *args: object, **facts: object) -> object:
        run = reserve(self, *args, **facts)  # type: ignore[arg-type]
        other.execute("BEGIN EXCLUSIVE")
        return run

    monkeypatch.setattr(SqlLedger, "reserve", reserve_and_lock)
    result = desk.run(*words)
    other.execute("ROLLBACK")
    other.close()
    assert result.exit_code == 2
    assert "held by another process" in result.stderr
    assert list(desk.out.iterdir()) == []
    (run,) = desk.history()
    assert run.events == ()
    assert "reserved by open runs epsilon 1" in desk.run("budget", "show", "patients").stdout
    assert "released 1 run\n" in desk.run("budget", "release", "patients").stdout
    desk.check_nothing_spent()


def test_a_folder_in_place_of_the_file(desk: Desk, words: tuple[object, ...]) -> None:
    desk.ledger.mkdir()
    desk.check_refused(desk.run(*words), "ledger.sqlite is a folder", "give the name of a file")


def test_a_file_in_place_of_the_folder(desk: Desk, words: tuple[object, ...]) -> None:
    desk.write("books", "a file")
    result = desk.run(*words, "--ledger", desk.path("books") / "ledger.sqlite")
    desk.check_refused(result, "folder .*books cannot be made", "choose another")


def test_not_a_database(desk: Desk, words: tuple[object, ...]) -> None:
    place = desk.write("notes.txt", "these are no books\n" * 100)
    desk.check_refused(desk.run(*words, "--ledger", place), "notes.txt is not a ledger", "restore a backup")
    assert desk.path("notes.txt").read_text().startswith("these are no books")


def test_a_ledger_of_a_newer_program(desk: Desk, words: tuple[object, ...]) -> None:
    Ledger.open(desk.ledger).close()
    with sqlite3.connect(desk.ledger) as connection:
        table = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%fact%'").fetchone()[0]
        connection.execute(f"UPDATE {table} SET value = '999' WHERE name = 'version'")
    connection.close()
    result = desk.run(*words)
    assert result.exit_code == 2
    assert "has version 999" in result.stderr
    assert "version 999" in result.stderr
    assert list(desk.out.iterdir()) == []


def test_another_kind_of_database(desk: Desk, words: tuple[object, ...]) -> None:
    result = desk.run(*words, "--ledger", "mysql://ann:pass@localhost/books")
    desk.check_refused(result, "not in mysql", "SQLite or PostgreSQL")
    assert "ann:pass" not in result.output


def test_no_server(desk: Desk, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr("dagveil.cli.options.LEDGER_WAIT_SECONDS", 2)
    result = desk.run(*words, "--ledger", "postgresql://ann:password7@127.0.0.1:1/books")
    desk.check_refused(result, "ledger postgresql.*cannot be used", "Check that the database runs")
    assert "password7" not in result.output


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc, which even root cannot write")
def test_a_folder_that_nobody_can_write(desk: Desk, words: tuple[object, ...]) -> None:
    result = desk.run(*words, "--ledger", "/proc/ledger.sqlite")
    desk.check_refused(result, "ledger /proc/ledger.sqlite cannot be written", "fix its permissions")


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="this system has no users to switch between")
@pytest.mark.parametrize("place", ["file", "folder"])
def test_read_only(desk: Desk, open_folder: Path, words: tuple[object, ...], place: str) -> None:
    """Permissions bind everyone but root, so root becomes an ordinary user for a moment."""
    assert desk.run(*words).exit_code == 0  # loads every module while the rights to read them are there
    books = Desk(open_folder)
    books.write("t.csv", ROWS)
    books.write_schema()
    Ledger.open(books.ledger).close()
    books.out.mkdir()
    books.out.chmod(0o777)
    books.ledger.chmod(0o444 if place == "file" else 0o666)
    open_folder.chmod(0o777 if place == "file" else 0o555)
    with ordinary_user():
        result = books.run(
            *("discover", books.path("t.csv"), "--schema", books.path("schema.toml"), "--epsilon", 1),
            *("--noise", "exact", "-o", books.out),
        )
    books.check_refused(result, "cannot be written", "fix its permissions")


def test_damaged_entries_stop_no_listing(desk: Desk, words: tuple[object, ...]) -> None:
    """Show and history say what they can, verify names the entry, and runs are refused."""
    desk.run("budget", "set", "patients", "--epsilon", 3)
    assert desk.run(*words).exit_code == 0
    charge = next(entry.seq for entry in Ledger.open(desk.ledger).entries() if entry.kind is EntryKind.CHARGE)
    with sqlite3.connect(desk.ledger) as raw:
        raw.execute("DROP TRIGGER dagveil_no_update")
        raw.execute(f"UPDATE dagveil_entries SET body = '{{}}' WHERE seq IN (2, {charge})")
    raw.close()
    shown = desk.run("budget", "show")
    assert shown.exit_code == 0, shown.output
    assert "entry 2 (budget of patients) cannot be read, so no run is admitted" in shown.stdout
    listed = desk.run("budget", "history")
    assert listed.exit_code == 0, listed.output
    assert "1 that cannot be read" in listed.stdout
    found = desk.run("budget", "verify")
    assert found.exit_code == 1
    assert "entry 2 (budget of patients)" in found.stderr
    again = desk.run(*words, "-o", desk.path("other"))
    assert again.exit_code == 2
    assert "entry 2 (budget of patients)" in again.stderr

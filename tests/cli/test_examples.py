"""Small examples of what the functions of cli/ return."""

from __future__ import annotations

from pathlib import Path

from dagveil.cli.effect import _two_names
from dagveil.cli.options import describe, name_ledger, read_options
from dagveil.cli.output import _percent, count, name_recovery
from dagveil.cli.plan import read_list
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.account import Account, Allowance, Composition


def test_two_names() -> None:
    assert _two_names("age, dose") == ("age", "dose")


def test_read_options() -> None:
    assert read_options(("level=0.05", "order_shares=0.5,0.5")) == {"level": "0.05", "order_shares": ["0.5", "0.5"]}


def test_name_ledger() -> None:
    assert (name_ledger("postgresql://ann:secret@host/books"), name_ledger("books.sqlite")) == (
        "postgresql://ann:***@host/books",
        "books.sqlite",
    )


def test_describe() -> None:
    assert (
        describe(Account("visits", Allowance.of(Budget.of(3, 1e-5), Composition.SUM)))
        == "visits: spent epsilon 0, delta 0 in 0 runs; lifetime epsilon 3, delta 1e-5; left epsilon 3, delta 1e-5"
    )


def test_name_recovery() -> None:
    assert name_recovery(Path("evidence.json")).name == "evidence.recovery.jsonl"


def test_read_list() -> None:
    assert read_list("0.1, 1,") == ["0.1", "1"]


def test_count() -> None:
    assert (count(1, "edge"), count(0, "edge"), count(2, "near miss", "near misses")) == (
        "1 edge",
        "0 edges",
        "2 near misses",
    )


def test_only_what_is_certain_is_called_so() -> None:
    assert [_percent(share) for share in (None, 1.0, 0.996, 0.994, 0.5)] == ["", "100%", ">99%", "99%", "50%"]

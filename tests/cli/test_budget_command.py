"""`dagveil budget`, and runs that meet a lifetime budget."""

from __future__ import annotations

import pytest
from desk import ROWS, SECRET, Desk

from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.ledger import Ledger
from dagveil.privacy.ledger.account import Terms, Totals, price_run

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

TABLES = ("--set", "plan=pairs")


class TestSet:
    def test_set_and_show(self, desk: Desk) -> None:
        result = desk.run("budget", "set", "patients", "--epsilon", 2, "--delta", "1e-5")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("patients: spent epsilon 0, delta 0 in 0 runs; lifetime epsilon 2, delta 1e-5")
        assert desk.run("budget", "show").stdout == result.stdout
        assert desk.run("budget", "show", "patients").stdout == result.stdout

    @pytest.mark.parametrize(
        "words", [("--epsilon", 0), ("--epsilon", "nan"), ("--epsilon", 1, "--delta", 1), ("--epsilon", "much")]
    )
    def test_impossible_budgets(self, desk: Desk, words: tuple[object, ...]) -> None:
        result = desk.run("budget", "set", "patients", *words)
        desk.check_refused(result, "(epsilon|delta) is", "0.1 to 10|such as 0.5|1e-6")
        assert not desk.ledger.exists()

    def test_never_below_what_is_spent(self, desk: Desk) -> None:
        assert desk.discover(desk.write("t.csv", ROWS), desk.write_schema(), *TABLES).exit_code == 0
        result = desk.run("budget", "set", "patients", "--epsilon", "0.5")
        assert result.exit_code == 2
        assert "already spent or reserved epsilon 1" in result.stderr
        assert "Choose a larger one" in result.stderr
        assert desk.run("budget", "set", "patients", "--epsilon", 1).exit_code == 0
        assert "left nothing for a run with delta 1e-6" in desk.run("budget", "show").stdout


class TestRuns:
    def test_a_run_that_would_exceed_the_lifetime_budget(self, desk: Desk) -> None:
        desk.run("budget", "set", "patients", "--epsilon", "1.5", "--composition", "sum")
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        assert desk.discover(file, schema, *TABLES).exit_code == 0
        history = desk.history()
        before = {path.name: path.read_bytes() for path in desk.out.iterdir()}
        for command, target in (("discover", desk.out), ("measure", desk.path("second.json"))):
            result = desk.run(
                command, file, "--schema", schema, "--epsilon", 1, *TABLES, "--noise", "exact", "-o", target
            )
            assert result.exit_code == 2
            assert "has left epsilon 0.5, delta 9e-6" in result.stderr
            assert "asks for epsilon 1, delta 1e-6; nothing was drawn" in result.stderr
            assert "raise the lifetime budget" in result.stderr
            assert SECRET not in result.output
        assert desk.history() == history
        assert {path.name: path.read_bytes() for path in desk.out.iterdir()} == before
        assert not desk.path("second.json").exists()
        assert desk.discover(file, schema, epsilon="0.5").exit_code == 0
        assert "left epsilon 0," in desk.run("budget", "show").stdout

    def test_delta_is_a_budget_too(self, desk: Desk) -> None:
        desk.run("budget", "set", "patients", "--epsilon", 9, "--delta", "1e-7", "--composition", "sum")
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema(), *TABLES)
        desk.check_refused(result, "left epsilon 9, delta 1e-7", "Ask for less")
        # one joint table needs no delta, and asks for none
        assert desk.discover(desk.write("t.csv", ROWS), desk.write_schema()).exit_code == 0

    def test_the_default_lifetime_delta_has_room_for_ten_default_runs(self, desk: Desk) -> None:
        desk.run("budget", "set", "patients", "--epsilon", 1)
        books = Ledger.open(desk.ledger)
        account = books.account("patients")
        books.close()
        assert account.budget == Budget.of(1, "1e-5")
        assert account.lifetime is not None
        ten = Totals().plus(price_run(Budget.of("0.1", "1e-6"), "Gaussian accounting"), 10)
        assert account.lifetime.admits(ten)


class TestHistory:
    def test_every_run_is_listed_in_full(self, desk: Desk) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema(facts="")
        for epsilon in ("0.25", "1/3"):
            assert desk.discover(file, schema, "--set", "plan=pairs", epsilon=epsilon).exit_code == 0
        result = desk.run("budget", "history", "patients")
        assert result.exit_code == 0, result.output
        rows = [line for line in result.stdout.splitlines() if "measure" in line]
        assert len(rows) == 2
        for run, row, epsilon in zip(desk.history(), rows, ("0.25", "0.3334"), strict=True):
            for word in ("patients", "closed", epsilon, "1e-6", run.started, "single columns", "all pairs"):
                assert word in row

    def test_nothing_yet(self, desk: Desk) -> None:
        result = desk.run("budget", "history")
        assert result.exit_code == 0
        assert "no runs yet" in result.stdout
        assert "knows no data set yet" in result.stderr
        assert "knows no data set yet" in desk.run("budget", "show").stderr

    @pytest.mark.parametrize("command", ["show", "history", "release"])
    def test_an_unknown_data_set_is_probably_misspelt(self, desk: Desk, command: str) -> None:
        desk.run("budget", "set", "patients", "--epsilon", 1)
        result = desk.run("budget", command, "patient")
        desk.check_refused(result, "knows no data set 'patient'; it knows: patients", "Check the name and --ledger")


def test_reservations_of_crashed_runs_can_be_released(desk: Desk) -> None:
    desk.run("budget", "set", "patients", "--epsilon", 1)
    books = Ledger.open(desk.ledger)
    budget = Budget.of(1, "1e-6")
    books.reserve("patients", budget, TERMS, "Gaussian accounting", "measure", "dagveil")  # and never comes back
    books.close()
    assert "reserved by open runs epsilon 1, delta 1e-6; left nothing" in desk.run("budget", "show").stdout
    file, schema = desk.write("t.csv", ROWS), desk.write_schema()
    refused = desk.discover(file, schema)
    assert refused.exit_code == 2
    assert "has left nothing" in refused.stderr
    result = desk.run("budget", "release", "patients")
    assert result.exit_code == 0, result.output
    assert "released 1 run\n" in result.stdout
    assert "left a run of epsilon 1" in result.stdout
    assert "released" in desk.run("budget", "history").stdout
    assert desk.discover(file, schema).exit_code == 0
    assert "released 0 runs\n" in desk.run("budget", "release", "patients").stdout


def test_names_that_look_alike_share_one_budget(desk: Desk) -> None:
    desk.run("budget", "set", " cafe\u0301 ", "--epsilon", 2)
    shown = desk.run("budget", "show", "caf\u00e9")
    assert shown.exit_code == 0, shown.output
    assert "2" in shown.stdout

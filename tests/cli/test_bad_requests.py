"""Budgets, schemas, knowledge and outputs that cannot be used are refused before anything is spent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from desk import ROWS, SECRET, TWO_COLUMNS, Desk, ordinary_user


class TestBudgets:
    @pytest.mark.parametrize("epsilon", ["0", "-1", "-0.0", "nan", "inf", "much", "", "1/0", SECRET.replace("-", "")])
    def test_epsilon(self, desk: Desk, epsilon: str) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema(), epsilon=epsilon)
        desk.check_refused(result, "epsilon is ", "common values are 0.1 to 10|finite number such as 0.5")

    @pytest.mark.parametrize("delta", ["1", "1.5", "-1e-6", "nan", "small"])
    def test_delta(self, desk: Desk, delta: str) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema(), delta=delta)
        desk.check_refused(result, "delta is ", "e.g. 1e-6|finite number such as 0.5")

    def test_delta_zero(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema(), "--set", "plan=pairs", delta=0)
        desk.check_refused(result, "Gaussian noise needs delta above 0", "1e-6")

    def test_no_epsilon(self, desk: Desk) -> None:
        for command in ("discover", "measure"):
            result = desk.run(command, desk.write("t.csv", ROWS), "--schema", desk.write_schema(), "-o", desk.out)
            desk.check_refused(result, "needs --epsilon", "--epsilon 1")

    def test_seeds_need_seeded_noise_and_back(self, desk: Desk) -> None:
        words = (desk.write("t.csv", ROWS), "--schema", desk.write_schema(), "--epsilon", 1, "-o", desk.out)
        result = desk.run("discover", *words, "--noise", "seeded")
        desk.check_refused(result, "seeded noise needs a seed", "give one")
        result = desk.run("discover", *words, "--seed", 1)
        desk.check_refused(result, "takes no seed", "Leave the seed out")
        result = desk.run("discover", *words, "--noise", "seeded", "--seed", -1)
        desk.check_refused(result, "--seed", "x>=0")


class TestSchemas:
    def test_no_schema(self, desk: Desk) -> None:
        result = desk.run("discover", desk.write("t.csv", ROWS), "--epsilon", 1, "-o", desk.out)
        desk.check_refused(result, "needs --schema", "dagveil schema draft")

    def test_missing_schema(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.path("none.toml"))
        desk.check_refused(result, "no schema at .*none.toml", "draft one")

    def test_a_folder_for_a_schema(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.folder)
        desk.check_refused(result, "cannot be read", "check that it is a file")

    @pytest.mark.parametrize(
        ("columns", "what", "next_step"),
        [
            ("= 3", "not valid TOML", "line"),
            ("[columns]\n", "no columns", "declare at least one"),
            ("[columns.a]\nlevels = ['x']\n", "columns.a: kind is missing", "write kind ="),
            ("[columns.a]\nkind = 'numeric'\nbounds = [nan, inf]\n", "columns.a: bounds are", "finite"),
            ("[columns.a]\nkind = 'numeric'\nbounds = [1, 1]\n", "columns.a: bounds 1 and 1", "lowest value first"),
            ("[columns.a]\nkind = 'categorical'\nlevels = ['x', 'x']\n", "declared twice", "remove one"),
            ("[columns.a]\nkind = 'categorical'\nlevels = [1, 2]\n", "columns.a: Expected `str`", "levels"),
        ],
    )
    def test_a_schema_that_cannot_be_used(self, desk: Desk, columns: str, what: str, next_step: str) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema(columns))
        desk.check_refused(result, what, next_step)

    def test_a_level_of_ten_megabytes(self, desk: Desk) -> None:
        level = "x" * 10_000_000
        schema = desk.write_schema(f'[columns.a]\nkind = "categorical"\nlevels = ["{level}"]\n')
        result = desk.discover(desk.write("t.csv", ROWS), schema)
        desk.check_refused(result, "columns.a: a level is longer than 200 characters", "recode the column")
        assert len(result.output) < 1000

    def test_a_hundred_thousand_levels(self, desk: Desk) -> None:
        levels = ", ".join(f'"level {k}"' for k in range(100_000))
        schema = desk.write_schema(f'[columns.a]\nkind = "categorical"\nlevels = [{levels}]\n')
        result = desk.discover(desk.write("t.csv", ROWS), schema)
        desk.check_refused(result, "100000 levels are declared and the limit is 1000", "group rare levels")
        assert len(result.output) < 1000


CONTRADICTIONS = [
    ('required = [["a", "b"], ["b", "a"]]', "run in a circle", "remove or turn"),
    ('required = [["a", "b"]]\nforbidden = [["a", "b"]]', "both required and forbidden", "remove one"),
    ('tiers = [["b"], ["a"]]\nrequired = [["a", "b"]]', "earlier tier", "move a column"),
]
WRONG_NAMES = [
    ('forbidden = [["a", "nowhere"]]', "nowhere", "remove it or declare it|the columns are: a, b"),
    ('tiers = [["a"], ["a"]]', "more than once", "keep it in one tier|tiers"),
    ('forbidden = [["a"]]', "pair|length 2", r"cause, effect|knowledge\.forbidden"),
    ('forbidden = [["a", "a"]]', "different columns|to itself", "different"),
]


class TestKnowledge:
    @pytest.mark.parametrize(("knowledge", "what", "next_step"), CONTRADICTIONS + WRONG_NAMES)
    def test_in_the_schema(self, desk: Desk, knowledge: str, what: str, next_step: str) -> None:
        schema = desk.write_schema(f"{TWO_COLUMNS}\n[knowledge]\n{knowledge}\n")
        desk.check_refused(desk.discover(desk.write("t.csv", ROWS), schema), what, next_step)

    @pytest.mark.parametrize(("knowledge", "what", "next_step"), CONTRADICTIONS + WRONG_NAMES)
    def test_in_a_file(self, desk: Desk, knowledge: str, what: str, next_step: str) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        result = desk.discover(file, schema, "--knowledge", desk.write("k.toml", knowledge))
        desk.check_refused(result, what, next_step)

    @pytest.mark.parametrize(
        ("knowledge", "what", "next_step"),
        [("= 3", "k.toml is not valid TOML", "line"), ("tier = []", "unknown field `tier`", "tiers is a list")],
    )
    def test_a_file_that_cannot_be_read(self, desk: Desk, knowledge: str, what: str, next_step: str) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        desk.check_refused(desk.discover(file, schema, "--knowledge", desk.write("k.toml", knowledge)), what, next_step)

    def test_a_missing_file_and_a_folder(self, desk: Desk) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        desk.check_refused(desk.discover(file, schema, "--knowledge", desk.path("k.toml")), "No such file", "k.toml")
        desk.check_refused(desk.discover(file, schema, "--knowledge", desk.folder), "Is a directory", "give the path")

    @pytest.mark.parametrize("knowledge", ["tiers = 3", "tiers = [3]", "knowledge = 3", 'tiers = ["ab"]'])
    def test_a_file_of_another_layout(self, desk: Desk, knowledge: str) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        result = desk.discover(file, schema, "--knowledge", desk.write("k.toml", knowledge))
        desk.check_refused(result, "tiers|knowledge", "list")


class TestSearchSettings:
    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("--marginal-level", 0), "marginal_level is 0"),
            (("--conditional-level", "nan"), "conditional_level is nan"),
            (("--largest-order", 6), "largest_order is 6"),
            (("--redraws", -1), "redraws is -1"),
            (("--arrows", "guess"), "guess"),
        ],
    )
    def test_out_of_range(self, desk: Desk, words: tuple[object, ...], what: str) -> None:
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema(), *words)
        desk.check_refused(result, what, "choose|is not one of")


class TestOutputs:
    def test_a_file_in_place_of_the_folder(self, desk: Desk) -> None:
        desk.write("out", "mine")
        for command in ("discover", "measure"):
            target = desk.out if command == "discover" else desk.out / "evidence.json"
            words = ("--schema", desk.write_schema(), "--epsilon", 1, "-o", target)
            result = desk.run(command, desk.write("t.csv", ROWS), *words)
            desk.check_refused(result, "cannot write .*out", "choose another place with -o")
        assert desk.out.read_text() == "mine"

    @pytest.mark.parametrize("name", ["result.json", "graph.svg", "report.html", "evidence.json"])
    def test_a_folder_in_place_of_a_file(self, desk: Desk, name: str) -> None:
        (desk.out / name).mkdir(parents=True)
        result = desk.discover(desk.write("t.csv", ROWS), desk.write_schema())
        assert result.exit_code == 2
        assert f"cannot write {desk.out / name}: Is a directory" in result.stderr
        desk.check_nothing_spent()
        assert [path.name for path in desk.out.iterdir()] == [name]

    @pytest.mark.skipif(not hasattr(os, "setresuid"), reason="this system has no users to switch between")
    def test_a_folder_without_rights(self, desk: Desk, open_folder: Path) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        assert desk.discover(file, schema).exit_code == 0
        for path in (file, schema):
            Path(path).rename(open_folder / Path(path).name)
        other = Desk(open_folder)
        open_folder.chmod(0o555)
        with ordinary_user():
            result = other.run(
                *("discover", other.path("t.csv"), "--schema", other.path("schema.toml"), "--epsilon", 1),
                *("--ledger", desk.path("unseen.sqlite"), "-o", other.out),
            )
        assert not desk.path("unseen.sqlite").exists()
        other.check_refused(result, "cannot write .*Permission denied", "Nothing was spent")

    def test_earlier_results_survive_a_refused_run(self, desk: Desk) -> None:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        assert desk.discover(file, schema).exit_code == 0
        before = {path.name: path.read_bytes() for path in desk.out.iterdir()}
        assert desk.discover(file, schema, "--set", "plan=pairs", delta=0).exit_code == 2
        assert {path.name: path.read_bytes() for path in desk.out.iterdir()} == before

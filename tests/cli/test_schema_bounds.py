"""`dagveil schema bounds`: from a schema without bounds to one that runs, at the price that the ledger shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from desk import SECRET, Desk

from dagveil.data.schema import load_schema
from dagveil.runs.bounds import FoundBounds, load_open_schema

N_ROWS = 10_000
LOUD = 50
"""An epsilon at which noise almost surely changes nothing: these runs cannot be repeated with the same noise."""

OPEN_COLUMNS = """
[columns.a]
kind = "numeric"
[columns."b, c"]
kind = "numeric"
[columns.d]
kind = "boolean"
outside = "false"
missing = "false"
"""
MANY_ROWS = "nominal_rows = 10000"

Find = Callable[..., Result]


@pytest.fixture
def file(desk: Desk) -> str:
    """Write numbers that fill their cells, so that bounds clip none of them, and one cell that nobody may see."""
    rng = np.random.default_rng(5)
    a = rng.uniform(-3.9, 3.9, N_ROWS)
    b = np.where(a > 0, 1.0, -1.0) * 1e6 * rng.uniform(0.6, 1.0, N_ROWS)
    lines = [f"{x!r},{y!r},{'true' if x > 1 else 'false'}" for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return desk.write("t.csv", "\n".join(['a,"b, c",d', *lines]) + "\n")


@pytest.fixture
def find(desk: Desk, file: str) -> Find:
    """Return a function that runs `schema bounds` on the rows."""

    def run(*words: object, schema: object = None, epsilon: object = LOUD, rows: object = file) -> Result:
        schema = desk.write_schema(OPEN_COLUMNS, facts=MANY_ROWS) if schema is None else schema
        return desk.run(
            *("schema", "bounds", rows, "--schema", schema, "--epsilon", epsilon, "--noise", "exact"),
            *("-o", desk.path("found.toml"), *words),
        )

    return run


class TestWay:
    def test_from_no_bounds_to_a_graph(self, desk: Desk, file: str, find: Find) -> None:
        result = find()
        assert result.exit_code == 0, result.output
        found = desk.path("found.toml")
        assert load_schema(found).columns["a"].bounds == (-4.0, 4.0)
        assert load_schema(found).columns["b, c"].bounds == (-(2.0**20), 2.0**20)
        assert found.read_text().count("# bounds found privately with epsilon 50, delta 0: public from now on") == 2
        check = desk.run("schema", "check", file, "--schema", found)
        assert check.exit_code == 0, check.output
        graph = desk.discover(file, found, epsilon=2)
        assert graph.exit_code == 0, graph.output
        assert [run.method for run in desk.history()] == ["schema-bounds", "measure"]

    def test_the_ledger_shows_the_stage(self, desk: Desk, find: Find) -> None:
        assert find().exit_code == 0
        (run,) = desk.history()
        assert (run.method, len(run.events)) == ("schema-bounds", 1)
        shown = desk.run("budget", "history").stdout
        assert "schema-bounds" in shown
        assert "bounds of numeric columns" in shown
        assert "spent epsilon 50, delta 0 in 1 run" in desk.run("budget", "show", "patients").stdout

    def test_what_is_printed(self, desk: Desk, file: str, find: Find) -> None:
        result = find()
        lines = result.stdout.splitlines()
        assert re.fullmatch(r"a: bounds -4 to 4, center \S+, spread \S+", lines[0])
        assert re.fullmatch(r"b, c: bounds -1.04858e\+06 to 1.04858e\+06, center \S+, spread \S+", lines[1])
        assert "How strongly: epsilon 50, delta 0." in result.stdout
        assert f"wrote {desk.path('found.toml')}" in result.stdout
        assert "spent epsilon 50" in result.stderr
        again = desk.run(*re.search(r"Next: `dagveil (.*)` shows", result.stdout)[1].split())
        assert again.exit_code == 0, again.output

    def test_from_a_draft(self, desk: Desk, file: str, find: Find) -> None:
        draft = desk.path("draft.toml")
        assert desk.run("schema", "draft", file, "-o", draft, "--dataset", "patients").exit_code == 0
        text = draft.read_text()
        for name in ("a", "b, c"):
            # the draft rounds; what it reads must show if it is used
            low, high = load_schema(draft).columns[name].bounds
            text = text.replace(f"    {low},\n    {high},", f"    {low - 0.0625},\n    {high + 0.0625},")
        draft.write_text(text)
        read = [str(bound) for name in ("a", "b, c") for bound in load_schema(draft).columns[name].bounds]
        assert all(".0625" in bound or ".9375" in bound or ".5625" in bound or ".4375" in bound for bound in read)
        result = find("--columns", "a", "--columns", "b, c", schema=draft)
        assert result.exit_code == 0, result.output
        text = desk.path("found.toml").read_text()
        assert not any(bound in text for bound in read)
        assert text.startswith("# unreviewed")
        assert "set reviewed = true" in result.stdout
        assert "Warning" not in result.stdout
        desk.path("found.toml").write_text(text.replace("reviewed = false", "reviewed = true"))
        assert desk.run("schema", "check", file, "--schema", desk.path("found.toml")).exit_code == 0

    def test_columns_by_name(self, desk: Desk, find: Find) -> None:
        result = find("--columns", "a")
        assert result.exit_code == 1
        assert "Next: declare bounds for b, c." in result.stdout
        half = desk.path("half.toml")
        desk.path("found.toml").rename(half)
        assert find(schema=half).exit_code == 0
        columns = desk.write_schema(OPEN_COLUMNS.replace("b, c", "b").replace('"', "'"), name="other.toml", facts="")
        rows = desk.write("other.csv", desk.path("t.csv").read_text().replace('"b, c"', "b"))
        result = find("--force", "--columns", "a, b", schema=columns, rows=rows)
        assert result.exit_code == 0, result.output

    def test_coverage(self, desk: Desk, find: Find) -> None:
        """Half a percent of the rows lie far out; the rest is what is asked for."""
        numbers = np.random.default_rng(1).uniform(-3.9, 3.9, N_ROWS)
        numbers[:100] = 5e5
        rows = desk.write("far.csv", "a\n" + "\n".join(map(repr, numbers.tolist())) + "\n")
        schema = desk.write_schema("[columns.a]\nkind = 'numeric'\n", facts=MANY_ROWS)
        for words, upper in ((), 2.0**19), (("--coverage", "0.97"), 4.0):
            assert find("--force", *words, schema=schema, rows=rows).exit_code == 0
            assert load_schema(desk.path("found.toml")).columns["a"].bounds == (-4.0, upper)


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "what", "next_step"),
        [
            (("--epsilon", 0), "epsilon is 0", "common values"),
            (("--delta", 2), "delta is 2", "far below 1/rows"),
            (("--coverage", "0.2"), "coverage is 0.2", "such as 0.999"),
            (("--columns", "z"), "'z' is no numeric column", "numeric columns are: a, b, c"),
            (("--columns", "d"), "'d' is no numeric column", "numeric columns are"),
            (("--seed", 1), "takes no seed", "Leave the seed out"),
            (("--epsilon", "1e-4"), "declares 10000 rows in all; nothing was spent", "larger epsilon"),
            (("-o", "/dev/null/found.toml"), "cannot write", "choose another place"),
        ],
    )
    def test_requests(self, desk: Desk, find: Find, words: tuple[object, ...], what: str, next_step: str) -> None:
        desk.check_refused(find(*words), what, next_step)
        assert not desk.path("found.toml").exists()

    def test_rows(self, desk: Desk, find: Find) -> None:
        rows = desk.write("odd.csv", f"a,d\n{SECRET},{SECRET}\n")
        desk.check_refused(find(rows=rows), "b, c", "")
        desk.check_refused(find(rows=desk.path("none.csv")), "no file", "check")

    def test_missing_options(self, desk: Desk, file: str) -> None:
        schema = desk.write_schema(OPEN_COLUMNS, facts="")
        words = ("schema", "bounds", file)
        desk.check_refused(
            desk.run(*words, "--schema", schema, "-o", desk.path("x")), "needs --schema and --eps", "0.5"
        )
        desk.check_refused(desk.run(*words, "--epsilon", 1, "-o", desk.path("x")), "needs --schema and --eps", "0.5")
        desk.check_refused(desk.run(*words, "--epsilon", 1, "--schema", schema), "Missing option", "--output")

    def test_an_existing_schema_is_kept(self, desk: Desk, find: Find) -> None:
        desk.write("found.toml", "mine")
        desk.check_refused(find(), "found.toml exists", "--force")
        assert desk.path("found.toml").read_text() == "mine"

    def test_nothing_to_find(self, desk: Desk, find: Find) -> None:
        schema = desk.write_schema("[columns.a]\nkind = 'numeric'\nbounds = [0, 1]\n")
        desk.check_refused(find(schema=schema), "none of the 1 numeric columns", "found anew")

    def test_a_lifetime_budget(self, desk: Desk, find: Find) -> None:
        desk.run("budget", "set", "patients", "--epsilon", "0.4")
        desk.check_refused(find(), "has left a run of epsilon 0.4", "raise the lifetime budget")

    def test_nothing_stands_out(self, desk: Desk, find: Find) -> None:
        rows = desk.write("few.csv", f'a,"b, c",d\n,{SECRET},1\n')
        result = find(rows=rows)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert re.search(r"a cell needs 1 row at epsilon 50, delta 0. That is spent. Declare bounds", result.stderr)
        desk.check_no_secret(result)
        assert len(desk.history()) == 1
        assert not desk.path("found.toml").exists()

    def test_schemas_without_bounds_run_nowhere_else(self, desk: Desk, file: str) -> None:
        schema = desk.write_schema(OPEN_COLUMNS)
        check = desk.run("schema", "check", file, "--schema", schema)
        desk.check_refused(check, "'a', 'b, c': bounds are missing", "`dagveil schema bounds` find them privately")
        desk.check_refused(desk.discover(file, schema), "columns.a: .*bounds", "")
        measured = desk.run("measure", file, "--schema", schema, "--epsilon", 1, "-o", desk.path("e.json"))
        desk.check_refused(measured, "columns.a: .*bounds", "")


class TestPaid:
    def test_what_is_paid_for_is_kept(self, desk: Desk, find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(found: FoundBounds, path: str | Path) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(FoundBounds, "save", fail)
            result = find()
        assert result.exit_code == 2
        assert "kept in" in result.stderr
        assert not desk.path("found.toml").exists()
        assert find().exit_code == 0
        assert load_open_schema(desk.path("found.toml")).columns["a"].bounds == (-4.0, 4.0)
        (run,) = desk.history()
        assert len(run.events) == 1
        assert not desk.path("found.recovery.jsonl").exists()

    def test_seeded_noise_says_so(self, desk: Desk, file: str) -> None:
        schema = desk.write_schema(OPEN_COLUMNS, facts="")
        words = ("--epsilon", 1, "--noise", "seeded", "--seed", 1, "-o", desk.path("found.toml"))
        result = desk.run("schema", "bounds", file, "--schema", schema, *words)
        assert result.exit_code == 0, result.output
        assert "No promise holds" in result.stdout
        assert "seeded noise: not private" in desk.path("found.toml").read_text()

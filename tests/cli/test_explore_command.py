"""`dagveil plan --explore` and `--method auto` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from desk import ROWS, TWO_COLUMNS, Desk

from dagveil.forecast import choose as room
from dagveil.forecast.explore import load_exploration

QUICK = ("--epsilons", "0.1,5", "--methods", "measure,em-pc", "--models", 2)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find no constants of this machine, and leave slow methods out of every trial."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "AUTO_SECONDS", 0.4)


@pytest.fixture
def schema(desk: Desk) -> str:
    return desk.write_schema(facts="nominal_rows = 1000")


class TestExplore:
    def test_it_prints_curves_and_says_what_they_mean(self, desk: Desk, schema: str) -> None:
        done = desk.run("plan", schema, "--explore", *QUICK)
        assert done.exit_code == 0, done.output
        for words in (
            "patients: expected skeleton F1 by epsilon",
            "│ measure ",
            "│ em-pc ",
            "weakest Cramér's V seen",
            "an expected skeleton F1 of 0.9",
            "Order 2",
            "with probability 0.8",
            "What an attacker gains at most",
            "synthetic tables of 1000 rows",
            "No row was read, and nothing was spent",
        ):
            assert words in done.stdout, words
        desk.check_nothing_spent()

    def test_an_answer_that_falls_short_names_no_epsilon(self, desk: Desk, schema: str) -> None:
        words = ("--methods", "measure", "--epsilons", "0.001", "--models", 2, "-o", desk.path("curve.json"))
        done = desk.run("plan", schema, "--explore", *words)
        assert done.exit_code == 0, done.output
        assert "Next: choose an E you can promise" in done.stdout
        assert f"`dagveil discover DATA --schema {schema} --epsilon E --method measure`" in done.stdout

    def test_it_writes_what_the_ending_says(self, desk: Desk, schema: str) -> None:
        for name in ("curve.json", "curve.svg", "deeper/curve.html"):
            done = desk.run("plan", "--schema", schema, "--explore", *QUICK, "--seed", 3, "-o", desk.path(name))
            assert done.exit_code == 0, done.output
            assert f"wrote {desk.path(name)}" in done.stdout
        found = load_exploration(desk.path("curve.json"))
        wanted = "Next: `dagveil" if found.recommendation.reached else "Next: choose an E you can promise"
        assert wanted in done.stdout
        assert (found.seed, found.models, len(found.curves)) == (3, 2, 2)
        drawing = desk.path("curve.svg").read_text(encoding="utf-8")
        assert drawing == found.to_svg() + "\n"
        page = desk.path("deeper/curve.html").read_text(encoding="utf-8")
        assert drawing.strip() in page
        assert found.recommendation.words[0] in page

    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("--explore",), "needs --schema"),
            (("SCHEMA", "--explore", "--epsilon", 1), "leave out --epsilon"),
            (("SCHEMA", "--explore", "--method", "measure"), "leave out --method"),
            (("SCHEMA", "--explore", "--site", "a=5"), "leave out --site"),
            (("SCHEMA", "--epsilon", 1, "--models", 3), "add it, or leave out --models"),
            (("SCHEMA", "--schema", "SCHEMA", "--explore"), "given twice"),
            (("SCHEMA", "--explore", "--epsilons", "1,x"), "epsilon is 'x'"),
            (("SCHEMA", "--explore", "--epsilons", ","), "no epsilon is named"),
            (("SCHEMA", "--explore", "--methods", "none"), "no method is called 'none'"),
            (("SCHEMA", "--explore", "--models", 1), "models is 1"),
            (("SCHEMA", "--explore", "--wanted-f1", 0), "wanted F1 is 0"),
            (("SCHEMA", "--explore", "--rows", -4), "rows is -4"),
            (("SCHEMA", "--explore", "--strength", 2), "strength is 2"),
            (("SCHEMA", "--explore", "-o", "out.pdf"), "written as .svg"),
            (("SCHEMA", "--explore", "-o", "/dev/null/x.svg"), "cannot write"),
            (("ROWLESS", "--explore"), "set nominal_rows"),
            (("SCHEMA", "--epsilon", 1, "--method", "auto"), "a plan names its method"),
        ],
    )
    def test_bad_requests_are_refused(self, desk: Desk, schema: str, words: tuple[object, ...], what: str) -> None:
        rowless = desk.write_schema(name="rowless.toml", facts="")
        done = desk.run("plan", *({"SCHEMA": schema, "ROWLESS": rowless}.get(str(word), word) for word in words))
        desk.check_refused(done, what, ".")


class TestAuto:
    def test_discover_says_which_and_why(self, desk: Desk, schema: str) -> None:
        done = desk.discover(desk.write("rows.csv", ROWS), schema, "--method", "auto")
        result = desk.check_answered(done)
        assert result["choice"]["method"] == result["method"]["name"]
        assert result["choice"]["why"] in done.stdout
        assert "Method auto" in (desk.out / "report.html").read_text(encoding="utf-8")
        again = desk.run("report", desk.out / "result.json", "-o", desk.path("again.html"))
        assert again.exit_code == 0, again.output
        assert "Method auto" in desk.path("again.html").read_text(encoding="utf-8")

    def test_evidence_keeps_it(self, desk: Desk, schema: str) -> None:
        table = desk.write("rows.csv", ROWS)
        paid = desk.path("evidence.json")
        done = desk.run(
            *("measure", table, "--schema", schema, "--epsilon", 1, "--method", "auto"),
            *("--noise", "exact", "-o", paid),
        )
        assert done.exit_code == 0, done.output
        found = desk.run("discover", paid, "--redraws", 2, "-o", desk.out)
        assert found.exit_code == 0, found.output
        evidence = json.loads(paid.read_text(encoding="utf-8"))
        result = json.loads((desk.out / "result.json").read_text(encoding="utf-8"))
        assert evidence["choice"] == result["choice"]
        assert evidence["choice"]["candidates"]

    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("--set", "plan=joint"), "settings cannot be given"),
            (("--calibration", "paper"), "among sound methods"),
            (("--schema", "DRAFT"), "unreviewed"),
        ],
    )
    def test_what_speaks_of_a_named_method_is_refused(
        self, desk: Desk, schema: str, words: tuple[str, ...], what: str
    ) -> None:
        draft = desk.write("draft.toml", f'[dataset]\nname = "patients"\nreviewed = false\n{TWO_COLUMNS}')
        given = [draft if word == "DRAFT" else word for word in words]
        done = desk.run(
            *("discover", desk.write("rows.csv", ROWS), "--schema", schema, "--epsilon", 1),
            *("--method", "auto", "-o", desk.out, *given),
        )
        desk.check_refused(done, what, ".")

"""The whole way, as a custodian goes it: sample, draft, review, check, measure, discover, search again, report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from desk import Desk

from dagveil.data.schema import load_schema
from dagveil.evidence.bundle import load_evidence
from dagveil.runs.result import load_result

SEEDED = ("--noise", "seeded", "--seed", 1)
QUICK = ("--redraws", 5)


@pytest.fixture
def asia(desk: Desk) -> Desk:
    """Return a desk with sampled rows, as CSV with their schema."""
    result = desk.run("sample", "asia", "--rows", 5000, "-o", desk.path("asia.csv"))
    assert result.exit_code == 0, result.output
    assert "5000 rows" in result.stdout
    return desk


class TestSample:
    def test_the_same_rows_in_both_formats(self, asia: Desk) -> None:
        assert asia.run("sample", "asia", "--rows", 5000, "-o", asia.path("more/asia.parquet")).exit_code == 0
        assert asia.path("more/asia.toml").read_bytes() == asia.path("asia.toml").read_bytes()
        for name in ("asia.csv", "more/asia.parquet"):
            assert asia.run("schema", "check", asia.path(name), "--schema", asia.path("asia.toml")).exit_code == 0

    def test_other_seeds_and_endings(self, asia: Desk) -> None:
        before = asia.path("asia.csv").read_bytes()
        asia.run("sample", "asia", "--rows", 5000, "--seed", 2, "-o", asia.path("asia.csv"))
        assert asia.path("asia.csv").read_bytes() != before
        for words, what in [
            (("-o", asia.path("asia.xls")), "must end in .csv or .parquet"),
            (("-o", asia.path("asia.csv") / "deep.csv"), "cannot write"),
            (("-o", asia.path("x.csv"), "--seed", -1), "x>=0"),
            ((), "Missing option"),
        ]:
            asia.check_refused(asia.run("sample", "asia", *words), what, "")
        asia.check_refused(asia.run("sample", "europe", "-o", asia.path("x.csv")), "'europe' is not one of", "'asia'")


class TestDraft:
    def test_a_draft_is_refused_until_it_is_accepted(self, asia: Desk) -> None:
        draft = asia.path("draft.toml")
        result = asia.run("schema", "draft", asia.path("asia.csv"), "-o", draft)
        assert result.exit_code == 0, result.output
        assert "8 columns, unreviewed: levels, bounds, bins, centers and spreads were read" in result.stdout
        assert draft.read_text().startswith("# unreviewed")
        refused = asia.discover(asia.path("asia.csv"), draft)
        asia.check_refused(refused, "is unreviewed", r"set reviewed = true.*--accept-draft")
        assert asia.history() == ()
        accepted = asia.discover(asia.path("asia.csv"), draft, "--accept-draft")
        content = asia.check_answered(accepted)
        assert content["schema"]["reviewed"] is False
        assert any("unreviewed draft" in warning for warning in content["receipt"]["warnings"])
        assert "Warning: the schema was accepted as an unreviewed draft" in accepted.stdout
        assert "unreviewed draft" in (asia.out / "report.html").read_text(encoding="utf-8")

    def test_a_reviewed_draft_needs_no_flag(self, asia: Desk) -> None:
        draft = asia.path("draft.toml")
        asia.run("schema", "draft", asia.path("asia.csv"), "-o", draft, "--dataset", "clinic")
        draft.write_text(draft.read_text().replace("reviewed = false", "reviewed = true"))
        content = asia.check_answered(asia.discover(asia.path("asia.csv"), draft))
        assert content["schema"]["dataset"] == "clinic"
        assert content["receipt"]["warnings"] == []

    def test_the_next_step_it_prints_works(self, asia: Desk) -> None:
        result = asia.run("schema", "draft", asia.path("asia.csv"), "-o", asia.path("my draft.toml"))
        assert f"schema check {asia.path('asia.csv')} --schema '{asia.path('my draft.toml')}'" in result.stdout


class TestCheck:
    def test_columns_are_reported_one_by_one(self, asia: Desk) -> None:
        result = asia.run("schema", "check", asia.path("asia.csv"), "--schema", asia.path("asia.toml"))
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert lines[0].startswith("For the custodian's eyes only")
        assert lines[1] == "5000 rows"
        assert [line.partition(":")[0] for line in lines[2:-1]] == list(load_schema(asia.path("asia.toml")).columns)
        assert lines[-1] == "Every value has a declared place."

    def test_what_does_not_fit_gives_exit_code_1(self, desk: Desk) -> None:
        file = desk.write("t.csv", "a,b\nno,SECRET-VALUE\nyes,\n")
        result = desk.run("schema", "check", file, "--schema", desk.write_schema())
        assert result.exit_code == 1
        assert "a: fits" in result.stdout
        assert "b: 1 outside, 1 missing" in result.stdout
        desk.check_no_secret(result)
        desk.check_nothing_spent()

    def test_refusals(self, asia: Desk) -> None:
        asia.check_refused(
            asia.run("schema", "check", asia.path("none.csv"), "--schema", asia.path("asia.toml")), "no file", "check"
        )
        asia.check_refused(
            asia.run("schema", "check", asia.path("asia.csv"), "--schema", asia.path("none.toml")), "no schema", "draft"
        )


class TestDiscover:
    def test_evidence_of_an_earlier_run_is_kept(self, asia: Desk) -> None:
        for epsilon in (5, 6, 7):
            result = asia.discover(asia.path("asia.csv"), asia.path("asia.toml"), epsilon=epsilon)
            assert result.exit_code == 0, result.output
        spent = [
            json.loads((asia.out / name).read_bytes())["receipt"]["epsilon"]
            for name in ("evidence-1.json", "evidence-2.json", "evidence.json")
        ]
        assert spent == ["5", "6", "7"]

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_everything_is_written(self, asia: Desk, ending: str) -> None:
        asia.run("sample", "asia", "--rows", 5000, "-o", asia.path(f"asia.{ending}"))
        result = asia.discover(asia.path(f"asia.{ending}"), asia.path("asia.toml"), epsilon=5)
        content = asia.check_answered(result)
        assert {path.name for path in asia.out.iterdir()} == {
            "result.json",
            "graph.svg",
            "report.html",
            "evidence.json",
        }
        assert content["graph"]["edges"]
        for edge in content["graph"]["edges"]:
            assert {"source", "target", "kind", "confidence"} <= set(edge)
            assert edge["source"] in result.stdout
        assert re.search(r"\d edges among 8 columns", result.stdout)
        assert "Who is protected: every record in asia-sample" in result.stdout
        assert "How strongly: epsilon 5, delta 0." in result.stdout
        assert str(asia.out / "report.html") in result.stdout
        assert "spent epsilon 5, delta 0" in result.stderr
        page = (asia.out / "report.html").read_text(encoding="utf-8")
        assert page.lower().startswith("<!doctype html>")
        assert "<svg" in page
        assert (asia.out / "graph.svg").read_text(encoding="utf-8").count("<svg") == 1
        loaded = load_result(asia.out / "result.json")
        assert loaded.to_json() + "\n" == (asia.out / "result.json").read_text(encoding="utf-8")

    def test_both_formats_give_the_same_graph(self, asia: Desk) -> None:
        asia.run("sample", "asia", "--rows", 5000, "-o", asia.path("asia.parquet"))
        graphs = []
        for ending in ("csv", "parquet"):
            words = (asia.path(f"asia.{ending}"), "--schema", asia.path("asia.toml"), "--epsilon", 1, *SEEDED, *QUICK)
            assert asia.run("discover", *words, "-o", asia.out).exit_code == 0
            graphs.append(load_result(asia.out / "result.json").graph)
        assert graphs[0] == graphs[1]

    def test_seeded_runs_say_so_everywhere(self, asia: Desk) -> None:
        words = (asia.path("asia.csv"), "--schema", asia.path("asia.toml"), "--epsilon", 1)
        result = asia.run("discover", *words, *SEEDED, *QUICK, "-o", asia.out)
        assert result.exit_code == 0, result.output
        assert "Warning: seeded: not private." in result.stdout
        assert "No promise holds" in result.stdout
        assert "How strongly" not in result.stdout
        for name in ("result.json", "evidence.json", "report.html"):
            assert "seeded: not private" in (asia.out / name).read_text(encoding="utf-8"), name
        again = asia.run("discover", asia.out / "evidence.json", *QUICK, "-o", asia.path("again"))
        assert "Warning: seeded: not private." in again.stdout
        private = asia.discover(asia.path("asia.csv"), asia.path("asia.toml"))
        assert "not private" not in private.stdout
        for name in ("result.json", "evidence.json", "report.html"):
            assert "seeded: not private" not in (asia.out / name).read_text(encoding="utf-8"), name

    @pytest.mark.parametrize(("asked", "drew"), [((), "exact"), (("--noise", "opendp"), "OpenDP")])
    def test_the_exact_sampler_is_the_default(self, desk: Desk, asked: tuple[str, ...], drew: str) -> None:
        file, schema = desk.write("t.csv", "a,b\nno,no\n"), desk.write_schema()
        result = desk.run("discover", file, "--schema", schema, "--epsilon", 1, *QUICK, *asked, "-o", desk.out)
        assert drew in desk.check_answered(result)["receipt"]["noise"]

    def test_names_that_look_like_markup(self, desk: Desk) -> None:
        """The terminal's own language must not swallow names, nor stop on them after the budget is spent."""
        names = ("[red]x", "[/nonsense]", ":smile:", "<b>&amp;", "\x1b[31mloud", "né → π")
        columns = "".join(f"[columns.{json.dumps(name)}]\nkind = 'boolean'\noutside = 'false'\n" for name in names)
        rows = ",".join(f'"{name}"' for name in names) + "\n" + ("1,1,1,1,1,1\n0,0,0,0,0,0\n" * 500)
        schema = desk.write_schema(columns, facts="nominal_rows = 1000")
        result = desk.discover(desk.write("t.csv", rows), schema, "--largest-order", 0, epsilon=20)
        assert desk.check_answered(result)["graph"]["nodes"] == list(names)
        for name in ("[red]x", "[/nonsense]", ":smile:", "<b>&amp;", "né → π"):
            assert name in result.stdout
        assert "\x1b" not in result.output


class TestEvidence:
    def test_searching_again_costs_nothing(self, asia: Desk) -> None:
        evidence = asia.path("released/evidence.json")
        words = (asia.path("asia.csv"), "--schema", asia.path("asia.toml"), "--epsilon", 2, *SEEDED)
        result = asia.run("measure", *words, "-o", evidence)
        assert result.exit_code == 0, result.output
        assert "Public facts" in result.stdout
        assert f"dagveil discover {evidence}" in result.stdout
        before, history = evidence.read_bytes(), asia.history()
        assert len(history) == 1
        asia.path("asia.csv").unlink()  # the rows are not needed any more
        asia.write("k.toml", 'tiers = [["smoke", "asia"]]\nforbidden = [["lung", "tub"], ["tub", "lung"]]\n')
        searches = {
            "plain": (),
            "again": (),
            "harsh": ("--marginal-level", 1e-9),
            "flat": ("--largest-order", 0),
            "classic": ("--arrows", "separating-sets"),
            "careful": ("--false-edges", 0.01),
            "known": ("--knowledge", asia.path("k.toml")),
        }
        results = {}
        for name, options in searches.items():
            folder = asia.path(name)
            outcome = asia.run("discover", evidence, *options, *QUICK, "-o", folder)
            assert outcome.exit_code == 0, outcome.output
            assert {path.name for path in folder.iterdir()} == {"result.json", "graph.svg", "report.html"}
            results[name] = load_result(folder / "result.json")
        assert results["plain"].graph == results["again"].graph
        assert (
            len(results["harsh"].graph.edges) <= len(results["plain"].graph.edges) <= len(results["flat"].graph.edges)
        )
        assert len(results["harsh"].graph.edges) < len(results["flat"].graph.edges)
        shares = {name: results[name].method.settings["false_share"] for name in ("plain", "careful")}
        assert shares["careful"] < shares["plain"]
        assert results["careful"].false_edges <= 0.01
        assert results["plain"].false_edges <= 0.5
        refused = asia.run("discover", evidence, "--false-edges", 0, "-o", asia.path("never"))
        assert refused.exit_code == 2
        assert "false_edges is 0; choose a number above 0" in refused.stderr
        assert frozenset(("lung", "tub")) not in results["known"].graph.cpdag.skeleton()
        assert results["known"].graph.family == "mpdag"
        receipt = load_evidence(evidence).receipt
        assert all(result.receipt == receipt for result in results.values())
        assert evidence.read_bytes() == before
        assert asia.history() == history

    def test_knowledge_that_does_not_fit_is_refused(self, asia: Desk) -> None:
        assert asia.discover(asia.path("asia.csv"), asia.path("asia.toml")).exit_code == 0
        knowledge = asia.write("k.toml", 'required = [["smoke", "nowhere"]]')
        result = asia.run("discover", asia.out / "evidence.json", "--knowledge", knowledge, "-o", asia.path("again"))
        assert result.exit_code == 2
        assert "unknown columns: nowhere" in result.stderr
        assert list(asia.path("again").iterdir()) == []


class TestReport:
    def test_redrawn_byte_for_byte(self, asia: Desk) -> None:
        assert asia.discover(asia.path("asia.csv"), asia.path("asia.toml"), epsilon=5).exit_code == 0
        drawn = {name: (asia.out / name).read_bytes() for name in ("report.html", "graph.svg")}
        places: dict[str, tuple[Path, tuple[object, ...]]] = {
            "report.html": (asia.out, ()),
            "report.html ": (asia.path("other"), ("-o", asia.path("other"))),
            "mine.html": (asia.path("third"), ("-o", asia.path("third/mine.html"))),
        }
        for name in drawn:
            (asia.out / name).unlink()
        for name, (folder, words) in places.items():
            result = asia.run("report", asia.out / "result.json", *words)
            assert result.exit_code == 0, result.output
            assert (folder / name.strip()).read_bytes() == drawn["report.html"]
            assert (folder / "graph.svg").read_bytes() == drawn["graph.svg"]
        assert len(asia.history()) == 1

    def test_a_place_that_cannot_be_written(self, asia: Desk) -> None:
        assert asia.discover(asia.path("asia.csv"), asia.path("asia.toml")).exit_code == 0
        result = asia.run("report", asia.out / "result.json", "-o", asia.path("asia.csv"))
        assert result.exit_code == 2
        assert "cannot write" in result.stderr

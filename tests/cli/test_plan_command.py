"""`dagveil plan`, `dagveil measure --plan` and `dagveil combine`, from the first file to one graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from desk import ROWS, TWO_COLUMNS, TWO_NUMBERS, Desk

SITES = ("--site", "north=40", "--site", "south=60,2")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, so that no constants of this machine are found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def schema(desk: Desk, cache: Path) -> str:
    return desk.write_schema()


def make_plan(desk: Desk, schema: str, *words: object, name: str = "plan.json") -> str:
    done = desk.run("plan", "--schema", schema, "--epsilon", 1, *SITES, "-o", desk.path(name), *words)
    assert done.exit_code == 0, done.output
    return str(desk.path(name))


def measure(desk: Desk, plan: str, site: str, *words: object, dataset: str | None = None) -> Path:
    path = desk.path(f"{site}.json")
    table = desk.write(f"{site}.csv", ROWS)
    done = desk.run(
        *("measure", table, "--plan", plan, "--site", site, "--dataset", dataset or f"table {site}"),
        *("--noise", "exact", "-o", path, *words),
    )
    assert done.exit_code == 0, done.output
    desk.check_no_secret(done)
    return path


class TestWholeWay:
    def test_two_sites_one_graph(self, desk: Desk, schema: str) -> None:
        plan = make_plan(desk, schema)
        north, south = measure(desk, plan, "north"), measure(desk, plan, "south")
        assert {run.dataset for run in desk.history()} == {"table north", "table south"}
        combined = desk.path("combined.json")
        done = desk.run("combine", north, south, "-o", combined)
        assert done.exit_code == 0, done.output
        assert "2 of the 2 sites" in done.stdout
        assert "no person is at more than one of the 2 sites" in done.stdout
        assert "up to epsilon 3" in done.stdout
        found = desk.run("discover", combined, "--redraws", 2, "-o", desk.out)
        assert found.exit_code == 0, found.output
        result = json.loads((desk.out / "result.json").read_text(encoding="utf-8"))
        assert [part["site"] for part in result["parts"]] == ["north", "south"]
        assert [part["receipt"]["epsilon"] for part in result["parts"]] == ["1", "2"]
        assert result["schema"]["nominal_rows"] == 100
        page = (desk.out / "report.html").read_text(encoding="utf-8")
        assert "Site south: epsilon 2" in page
        assert "does not add up" not in page

    def test_two_rounds(self, desk: Desk, cache: Path) -> None:
        names = [f"c{k}" for k in range(8)]
        columns = "".join(
            f'[columns.{name}]\nkind = "categorical"\nlevels = ["a", "b", "c", "d"]\noutside = "a"\n' for name in names
        )
        schema = desk.write("wide.toml", f'[dataset]\nname = "study"\nreviewed = true\nnominal_rows = 50\n{columns}')
        rows = desk.write("wide.csv", "\n".join([",".join(names), *(",".join("abcd"[k % 4] * 8) for k in range(50))]))
        plan, sums, second = desk.path("plan.json"), desk.path("sums.json"), desk.path("second.json")

        def run(*words: object) -> str:
            done = desk.run(*words)
            assert done.exit_code == 0, done.output
            return done.output

        def follow(planned: Path, ending: str) -> list[Path]:
            found = [desk.path(f"{site}{ending}.json") for site in ("north", "south")]
            for path, site in zip(found, ("north", "south"), strict=True):
                told = run("measure", rows, "--plan", planned, "--site", site, "--dataset", site, "-o", path)
                assert "dagveil combine" in told or not ending
            return found

        told = run("plan", "--schema", schema, "--epsilon", 1, "--rounds", 2, *SITES, "-o", plan)
        assert "site north, second round: epsilon 0.59" in told
        run("combine", *follow(plan, ""), "-o", sums)
        run("plan", "--second", plan, sums, "-o", second)
        told = run("combine", sums, *follow(second, " 2"), "-o", desk.path("both.json"))
        assert "Site north: epsilon 0.999" in told
        run("discover", desk.path("both.json"), "--redraws", 0, "-o", desk.out)
        done = desk.run("plan", "--second", plan, sums, "--epsilon", 1)
        assert done.exit_code == 2
        assert "the plan of the first round decides that: leave out --epsilon" in done.output

    def test_a_site_may_have_a_schema_of_its_own(self, desk: Desk, schema: str) -> None:
        plan = make_plan(desk, schema)
        own = desk.write("own.toml", f'[dataset]\nname = "ward"\nreviewed = true\nnominal_rows = 7\n{TWO_COLUMNS}')
        table = desk.write("rows.csv", ROWS)
        done = desk.run(
            *("measure", table, "--plan", plan, "--site", "north", "--schema", own, "--noise", "exact"),
            *("--epsilon", 1, "-o", desk.path("e.json")),
        )
        assert done.exit_code == 0, done.output
        evidence = json.loads(desk.path("e.json").read_text(encoding="utf-8"))
        assert (evidence["schema"]["dataset"], evidence["schema"]["nominal_rows"]) == ("ward", 40)


class TestPlan:
    def test_it_says_first_what_noise_would_drown(self, desk: Desk, schema: str) -> None:
        done = desk.run("plan", "--schema", schema, "--epsilon", "0.001")
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("Noise would drown this table: a Cramér's V of 0.3 would be seen")
        assert "not even full dependence" in done.stdout
        assert "at the largest site" not in done.stdout
        spared = desk.run("plan", "--schema", schema, "--epsilon", 10)
        assert spared.stdout.startswith("The weakest dependence that is seen with probability 0.8: a Cramér's V of")

    def test_it_tells_questions_shares_time_and_memory(self, desk: Desk, schema: str) -> None:
        done = desk.run("plan", "--schema", schema, "--epsilon", 1)
        assert done.exit_code == 0, done.output
        for words in (
            "1 question to 1 site",
            "joint table",
            "redrawing",
            "MB",
            "shipped constants",
            "available memory",
        ):
            assert words in done.stdout
        desk.check_nothing_spent()
        assert not desk.path("plan.json").exists()

    def test_it_tells_how_finely_moments_are_rounded(self, desk: Desk, cache: Path) -> None:
        for rows, bits in ((1000, 10), (10**13, 6)):
            columns = [f'[columns.{x}]\nkind = "numeric"\nbounds = [-6, 6]\ncenter = 0\nspread = 1' for x in "abc"]
            schema = desk.write_schema("\n".join(columns), facts=f"nominal_rows = {rows}")
            done = desk.run("plan", "--schema", schema, "--epsilon", 1)
            assert done.exit_code == 0, done.output
            assert f"second moments: rounded to {bits} binary places" in done.stdout

    def test_measured_constants_are_used_once_there_are_any(self, desk: Desk, schema: str, cache: Path) -> None:
        done = desk.run("plan", "--calibrate")
        assert done.exit_code == 0, done.output
        assert (cache / "dagveil" / "speed.json").is_file()
        again = desk.run("plan", "--schema", schema, "--epsilon", 1)
        assert "measured on this machine" in again.stdout

    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("--epsilon", 1), "needs --schema"),
            (("--schema", "SCHEMA"), "needs --epsilon"),
            (("--schema", "SCHEMA", "--epsilon", 0), "epsilon is 0"),
            (("--schema", "SCHEMA", "--epsilon", 1, "--site", "a=x"), "--site takes NAME=ROWS"),
            (("--schema", "SCHEMA", "--epsilon", 1, "--site", "=5"), "--site takes NAME=ROWS"),
            (("--schema", "SCHEMA", "--epsilon", 1, "--site", "a=5,1,0,9"), "--site takes NAME=ROWS"),
            (("--schema", "SCHEMA", "--epsilon", 1, "--site", "a=5", "--site", "a=6"), "names of their own"),
            (("--schema", "SCHEMA", "--epsilon", 1, "--method", "svt-pc"), "not known before its run"),
            (("--schema", "NUMBERS", "--epsilon", 1), "no spread is declared"),
            (("--schema", "SCHEMA", "--epsilon", 1, "-o", "/dev/null/x/plan.json"), "cannot write"),
        ],
    )
    def test_bad_requests_are_refused(self, desk: Desk, schema: str, words: tuple[object, ...], what: str) -> None:
        numbers = desk.write_schema(TWO_NUMBERS, name="numbers.toml")
        done = desk.run("plan", *({"SCHEMA": schema, "NUMBERS": numbers}.get(str(word), word) for word in words))
        desk.check_refused(done, what, ".")


class TestMeasure:
    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("--site", "north"), "what the ledger calls"),
            (("--dataset", "d"), "say which one this is"),
            (("--site", "west", "--dataset", "d"), "no site 'west'"),
            (("--site", "north", "--dataset", "d", "--epsilon", 2), "epsilon 2, delta 1e-6 was asked for"),
            (("--site", "north", "--dataset", "d", "--delta", "1e-7"), "delta 1e-7 was asked for"),
            (("--site", "north", "--dataset", "d", "--method", "measure-ges"), "leave out --method"),
            (("--site", "north", "--dataset", "d", "--set", "plan=joint"), "leave out --set"),
            (("--site", "north", "--schema", "OTHER"), "declares b otherwise"),
        ],
    )
    def test_what_is_not_the_plan_s_is_refused(
        self, desk: Desk, schema: str, words: tuple[object, ...], what: str
    ) -> None:
        plan = make_plan(desk, schema)
        other = desk.write_schema(
            TWO_COLUMNS.replace('[columns.b]\nkind = "categorical"', '[columns.b]\nkind = "ordinal"'), name="o.toml"
        )
        table = desk.write("rows.csv", ROWS)
        given = (other if word == "OTHER" else word for word in words)
        done = desk.run("measure", table, "--plan", plan, *given, "-o", desk.out / "e.json")
        desk.check_refused(done, what, ".")

    def test_sites_without_a_plan_are_refused(self, desk: Desk, schema: str) -> None:
        done = desk.run("measure", desk.write("r.csv", ROWS), "--schema", schema, "--epsilon", 1, "--site", "north")
        desk.check_refused(done, "give --plan", "--plan")


class TestCombine:
    def test_files_that_cannot_be_added_are_refused(self, desk: Desk, schema: str) -> None:
        plan = make_plan(desk, schema)
        north = measure(desk, plan, "north")
        other = make_plan(desk, schema, "--method", "measure-ges", name="other.json")
        south = measure(desk, other, "south")
        for files, what in (
            ((north,), "nothing to combine"),
            ((north, north), "given twice, with the same release"),
            ((north, south), "follows another plan"),
            ((north, plan), "not dagveil evidence"),
            ((north, desk.path("none.json")), "cannot read"),
        ):
            done = desk.run("combine", *files, "-o", desk.path("combined.json"))
            assert done.exit_code == 2, done.output
            assert what in done.stderr
            assert not desk.path("combined.json").exists()
        same = desk.run("combine", north, south, "-o", north)
        assert same.exit_code == 2
        assert "choose another place" in same.stderr

    def test_sites_that_differ_share_what_they_have(self, desk: Desk, schema: str) -> None:
        one = make_plan(desk, schema)
        text = Path(schema).read_text(encoding="utf-8")
        wider = desk.write("wider.toml", text + '[columns.ward]\nkind = "boolean"\noutside = "false"\n')
        other = make_plan(desk, wider, name="other.json")
        table = desk.write(
            "wide.csv", "\n".join(f"{line},{'ward' if not k else 'true'}" for k, line in enumerate(ROWS.split()))
        )
        south = desk.path("south.json")
        words = ("--dataset", "table south", "--noise", "exact", "-o", south)
        done = desk.run("measure", table, "--plan", other, "--site", "south", *words)
        assert done.exit_code == 0, done.output
        files, combined = (measure(desk, one, "north"), south), desk.path("combined.json")
        refused = desk.run("combine", *files, "-o", combined)
        assert refused.exit_code == 2
        assert "--shared-columns" in refused.stderr
        done = desk.run("combine", *files, "--shared-columns", "--site-column", "place", "-o", combined)
        assert done.exit_code == 0, done.output
        assert "left out: ward (not at north)" in done.stdout
        assert "place is the site that a row belongs to" in done.stdout
        desk.check_no_secret(done)
        found = desk.run("discover", combined, "--redraws", 2, "-o", desk.out)
        assert found.exit_code == 0, found.output
        result = json.loads((desk.out / "result.json").read_text(encoding="utf-8"))
        assert "place" in result["graph"]["nodes"]
        assert all(edge["target"] != "place" for edge in result["graph"]["edges"])

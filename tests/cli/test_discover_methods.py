"""`dagveil discover --method`: every method from the command line, its settings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from desk import Desk

from dagveil.methods.method import METHODS
from dagveil.papers.publication import readings_of
from dagveil.privacy.ledger import Ledger
from dagveil.runs.result import load_result

COUNTING = [name for name in METHODS if name not in ("measure", "priv-pc-star", "measure-features")]
CALIBRATED = [
    (name, calibration)
    for name in COUNTING
    for calibration in ("sound", *(reading.value for reading in readings_of(name)))
]
ASKING = [name for name, method in METHODS.items() if method.ask is not None]
SEEDED = ("--noise", "seeded", "--seed", 0)


@pytest.fixture
def cancer(desk: Desk) -> Desk:
    """Return a desk with sampled rows of patients that are not public."""
    result = desk.run("sample", "cancer", "--rows", 2000, "-o", desk.path("cancer.csv"))
    assert result.exit_code == 0, result.output
    schema = desk.path("cancer.toml")
    schema.write_text(schema.read_text().replace("public = true", "public = false"))
    return desk


def discover(desk: Desk, *words: object, epsilon: object = 1) -> Result:
    return desk.run(
        *("discover", desk.path("cancer.csv"), "--schema", desk.path("cancer.toml"), "--epsilon", epsilon),
        *("-o", desk.out, *words),
    )


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize(("method", "calibration"), CALIBRATED)
def test_every_method_runs(cancer: Desk, method: str, calibration: str) -> None:
    result = discover(cancer, "--method", method, "--calibration", calibration, "--noise", "exact")
    assert result.exit_code == 0, result.output
    loaded = load_result(cancer.out / "result.json")
    assert (loaded.method.name, loaded.method.calibration) == (method, calibration)
    releases = METHODS[method].release is not None and calibration == "sound"
    assert (cancer.out / "evidence.json").exists() == releases
    for name in ("graph.svg", "report.html"):
        assert (cancer.out / name).stat().st_size > 500
    (run,) = cancer.history()
    assert run.method == method
    assert run.events
    books = Ledger.open(cancer.ledger)
    assert books.account("cancer-sample").unbounded == (calibration != "sound")
    books.close()
    assert loaded.receipt.guaranteed == (calibration == "sound")
    if calibration != "sound":
        assert "no guarantee claimed" in result.stdout.lower()
        assert "no guarantee claimed" in (cancer.out / "report.html").read_text(encoding="utf-8").lower()


def test_numeric_columns(desk: Desk) -> None:
    numbers = "\n".join(f"{i % 7 - 3},{i % 7 - 3 + 0.1 * (i % 5)},{i % 11 - 5}" for i in range(400))
    rows = desk.write("numbers.csv", f"a,b,c\n{numbers}\n")
    columns = "".join(f'[columns.{name}]\nkind = "numeric"\nbounds = [-6.0, 6.0]\n' for name in "abc")
    schema = desk.write_schema(columns, facts="nominal_rows = 400")
    for calibration in ("sound", "paper"):
        result = desk.run(
            *("discover", rows, "--schema", schema, "--epsilon", 5, "-o", desk.out, "--noise", "exact"),
            *("--method", "priv-pc-star", "--calibration", calibration),
        )
        assert result.exit_code == 0, result.output
        edges = read(desk.out / "result.json")["graph"]["edges"]
        assert [{edge["source"], edge["target"]} for edge in edges] == [{"a", "b"}]
    result = desk.run(
        *("discover", rows, "--schema", schema, "--epsilon", 5, "-o", desk.out, "--noise", "exact"),
        *("--method", "measure-features", "--set", "degree=2"),
    )
    assert result.exit_code == 0, result.output
    assert read(desk.out / "result.json")["method"]["name"] == "measure-features"
    for method in [name for name in ASKING if "statistic" in METHODS[name].settings.__struct_fields__]:
        refused = desk.run("discover", rows, "--schema", schema, "--epsilon", 1, "--method", method, "-o", desk.out)
        assert refused.exit_code == 2
        assert "a, b, c are numeric without bins; declare bins" in refused.stderr


class TestSettings:
    def test_they_reach_the_method(self, cancer: Desk) -> None:
        words = ("--set", "statistic=g", "--set", "rounds=2", "--set", "largest-order=1", "--set", " slack = 1e6 ")
        result = discover(cancer, "--method", "svt-pc", *words, *SEEDED)
        assert result.exit_code == 0, result.output
        content = read(cancer.out / "result.json")
        assert content["method"]["settings"] == {
            "statistic": "g",
            "level": 0.01,
            "largest_order": 1,
            "rounds": 2,
            "slack": 1e6,
        }
        assert len(content["unanswered"]) == 8
        assert content["questions"] == 2
        assert "ended the search" in result.stdout

    def test_lists_are_written_with_commas(self, cancer: Desk) -> None:
        for words, expected in (("order_shares=0.5,0.5", [0.5, 0.5]), ("order_shares=1,", [1.0])):
            result = discover(cancer, "--method", "em-pc", "--set", words, *SEEDED)
            assert result.exit_code == 0, result.output
            assert read(cancer.out / "result.json")["method"]["settings"]["order_shares"] == expected

    @pytest.mark.parametrize(
        ("words", "what", "next_step"),
        [
            (("--method", "svt-pc", "--set", "level"), "--set takes NAME=VALUE", "--set level=0.05"),
            (("--method", "svt-pc", "--set", "=3"), "--set takes NAME=VALUE", "--set level=0.05"),
            (("--method", "svt-pc", "--set", "colour=red"), "has no setting 'colour'", "statistic, level"),
            (("--method", "svt-pc", "--set", "level=high"), "cannot be read", "level: expected"),
            (("--method", "svt-pc", "--set", "statistic=chi-square"), "cannot be asked about", "reconciled"),
            (("--method", "svt-pc", "--set", "statistic=median-g"), "noise whose scale depends", "reconciled-g"),
            (("--method", "lap-mech", "--set", "level=0.1"), r"lap-mech \(sound\) has no setting", "none"),
            (
                ("--method", "svt-pc", "--calibration", "program", "--set", "statistic=g"),
                r"svt-pc \(program\) has no setting 'statistic'",
                "threshold, round_epsilon",
            ),
            (("--method", "magic"), "no method is called 'magic'", "choose one of"),
            (("--calibration", "paper"), "measure is not from a publication", "leave it out"),
            (("--method", "svt-pc", "--calibration", "loud"), "'loud' is not one of", "'sound', 'paper', 'program'"),
        ],
    )
    def test_mistakes_cost_nothing(self, cancer: Desk, words: tuple[str, ...], what: str, next_step: str) -> None:
        cancer.check_refused(discover(cancer, *words), what, next_step)


class TestOptionsThatDoNotFit:
    @pytest.mark.parametrize("method", ASKING)
    def test_search_options_are_refused_for_asking_methods(self, cancer: Desk, method: str) -> None:
        for option, value in (
            ("--redraws", 5),
            ("--marginal-level", 0.1),
            ("--largest-order", 1),
            ("--arrows", "evidence"),
            ("--search", "score"),
        ):
            result = discover(cancer, "--method", method, option, value)
            cancer.check_refused(result, f"leave out {option}", f"dagveil methods {method}")

    def test_search_options_are_refused_for_paper_calibrations(self, cancer: Desk) -> None:
        result = discover(cancer, "--method", "lap-mech", "--calibration", "paper", "--redraws", 5)
        cancer.check_refused(result, "leave out --redraws", "--set")

    def test_releasing_methods_take_them(self, cancer: Desk) -> None:
        result = discover(cancer, "--method", "lap-mech", "--redraws", 2, *SEEDED)
        assert result.exit_code == 0, result.output
        assert read(cancer.out / "result.json")["confidence"]["redraws"] == 2

    def test_rows_and_evidence_give_the_same_graph_of_likely_edges(self, cancer: Desk) -> None:
        from_rows = discover(cancer, "--edges-at", 0.5, *SEEDED)
        assert from_rows.exit_code == 0, from_rows.output
        assert "with a probability of at least 0.5" in from_rows.output
        assert "expected to be false" in from_rows.output
        first = read(cancer.out / "result.json")
        assert first["graph"]["edges"]
        again = cancer.run("discover", cancer.out / "evidence.json", "--edges-at", 0.5, "-o", cancer.path("again"))
        assert again.exit_code == 0, again.output
        second = read(cancer.path("again") / "result.json")
        assert (second["graph"], second["wrong_edges"]) == (first["graph"], first["wrong_edges"])

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (("--method", "lap-mech"), "not for lap-mech; nothing was charged"),
            (("--hidden-causes",), "not with hidden causes"),
            (("--redraws", 10), "10 redraws are too few"),
            (("--marginal-level", 0.1), "usual levels"),
            (("--method", "svt-pc"), "leave out --edges-at"),
        ],
    )
    def test_likely_edges_are_refused_where_nothing_says_how_likely(
        self, cancer: Desk, words: tuple[object, ...], why: str
    ) -> None:
        result = discover(cancer, "--edges-at", 0.9, *words)
        assert result.exit_code != 0
        assert why in result.stderr
        assert not cancer.history()

    @pytest.mark.parametrize(
        "words",
        [
            ("--method", "svt-pc"),
            ("--calibration", "paper"),
            ("--set", "level=0.1"),
            ("--accept-no-guarantee",),
            ("--method", "measure"),
        ],
    )
    def test_evidence_takes_no_method(self, cancer: Desk, words: tuple[str, ...]) -> None:
        assert discover(cancer, "--redraws", 0, *SEEDED).exit_code == 0
        before = (cancer.out / "result.json").read_bytes()
        result = cancer.run("discover", cancer.out / "evidence.json", *words, "-o", cancer.out)
        assert result.exit_code == 2
        assert f"leave out {words[0]}" in result.stderr
        assert (cancer.out / "result.json").read_bytes() == before
        assert len(cancer.history()) == 1


class TestGuarded:
    def test_a_paper_calibration_needs_consent(self, cancer: Desk) -> None:
        assert cancer.run("budget", "set", "cancer-sample", "--epsilon", 3, "--delta", 1e-5).exit_code == 0
        words = ("--method", "svt-pc", "--calibration", "program", "--noise", "exact")
        cancer.check_refused(discover(cancer, *words), "has a lifetime budget", "--accept-no-guarantee")
        accepted = discover(cancer, *words, "--accept-no-guarantee")
        assert accepted.exit_code == 0, accepted.output
        assert "unbounded" in accepted.stderr
        books = Ledger.open(cancer.ledger)
        assert books.account("cancer-sample").unbounded
        books.close()
        content = read(cancer.out / "result.json")
        assert content["reported"]["delta"] == 1e-3
        assert content["reported"]["epsilon"] > 0

    def test_a_sound_run_beyond_the_lifetime_budget(self, cancer: Desk) -> None:
        assert cancer.run("budget", "set", "cancer-sample", "--epsilon", 1.5, "--delta", 1e-5).exit_code == 0
        first = discover(cancer, "--method", "svt-pc", "--noise", "exact")
        assert first.exit_code == 0, first.output
        second = discover(cancer, "--method", "svt-pc", "--noise", "exact")
        assert second.exit_code == 2
        assert len(cancer.history()) == 1


def test_a_second_run_keeps_the_first_result(cancer: Desk) -> None:
    """An asking run has no evidence: its result is all that was paid for."""
    kept = []
    for seed in range(3):
        result = discover(cancer, "--method", "svt-pc", "--noise", "seeded", "--seed", seed)
        assert result.exit_code == 0, result.output
        kept.append((cancer.out / "result.json").read_bytes())
        assert ("kept the result of an earlier run" in result.stderr) == (seed > 0)
    assert (cancer.out / "result-1.json").read_bytes() == kept[0]
    assert (cancer.out / "result-2.json").read_bytes() == kept[1]
    assert (cancer.out / "result.json").read_bytes() == kept[2]


def test_the_same_seed_gives_the_same_graph(cancer: Desk) -> None:
    for method in ("svt-pc", "curate"):
        graphs = []
        for _ in range(2):
            assert discover(cancer, "--method", method, *SEEDED).exit_code == 0
            graphs.append(read(cancer.out / "result.json")["graph"])
        assert graphs[0] == graphs[1]

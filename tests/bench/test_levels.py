"""Level and power of private tests: the page marks what errs too often, leaves gaps empty, and the command refuses."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagveil.errors import MethodError
from dagveil_bench.commands.group import bench
from dagveil_bench.level_tables import draw_levels, levels_page, rejections, standard_error
from dagveil_bench.levels import EXACT_TESTS, TESTS, UNLIMITED, Design, Trial, design_named, list_trials, run_trial

KENDALL = "conditional Kendall's τ, public bins"


def made_up(shares: dict[tuple[str, Design, float], float], runs: int = 100) -> dict[Trial, bool]:
    """Return outcomes with these shares of rejections."""
    return {
        Trial(test, design, 200, epsilon, run, 1): run < round(share * runs)
        for (test, design, epsilon), share in shares.items()
        for run in range(runs)
    }


@pytest.fixture
def found() -> dict[Trial, bool]:
    """Return outcomes of two private tests and an exact one; GCM was not run at ε = 8."""
    return made_up(
        {
            ("private GCM", Design.MARGINAL_NULL, 1.0): 0.08,
            (KENDALL, Design.MARGINAL_NULL, 1.0): 0.07,
            (KENDALL, Design.MARGINAL_NULL, 8.0): 0.0,
            ("private GCM", Design.MARGINAL_POWER, 1.0): 0.9,
            ("exact RCIT, smaller λ", Design.MARGINAL_NULL, UNLIMITED): 0.2,
        }
    )


def test_errors_above_the_level_are_bold_and_gaps_are_empty(found: dict[Trial, bool]) -> None:
    page = levels_page(found, "dagveil bench levels", "somewhere/levels.svg")
    lines = page.splitlines()
    assert "![Rejections over budgets](levels.svg)" in lines
    assert "    dagveil bench levels" in lines
    assert f"is {standard_error(0.05, 100):.3f}; **bold**" in page
    null = lines.index("## 200 rows: Z1 ⊥ Z2 (true), type I error")
    assert lines[null + 2 : null + 7] == [
        "| test | ε = 1 | ε = 8 | no noise |",
        "|---|---|---|---|",
        # 0.05 and one standard error are 0.072
        "| private GCM | **0.080** |  |  |",
        f"| {KENDALL} | 0.070 | 0.000 |  |",
        "| exact RCIT, smaller λ |  |  | **0.200** |",
    ]
    power = lines.index("## 200 rows: X ⊥ Y (false), power")
    assert lines[power + 4] == "| private GCM | 0.900 |  |  |"


def test_shares_are_means(found: dict[Trial, bool]) -> None:
    shares = rejections(found, 200, Design.MARGINAL_NULL)
    assert shares["private GCM", 1.0] == pytest.approx(0.08)
    assert ("private GCM", 8.0) not in shares
    assert rejections(found, 500, Design.MARGINAL_NULL) == {}
    assert standard_error(0.0, 50) == standard_error(0.02, 50) > 0.0


def test_the_figure_has_tests_level_and_ticks(found: dict[Trial, bool], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_levels(found, str(tmp_path / "levels.svg"))
    drawn = (tmp_path / "levels.svg").read_text(encoding="utf-8")
    assert all(words in drawn for words in ("private GCM", "level", "n = 200: Z1", "ε of one test", ">none<", ">8<"))


def test_exact_tests_are_run_once_whatever_the_budgets() -> None:
    trials = list_trials(list(TESTS), list(Design), [100, 200], [1.0, 2.0], 3, 5)
    assert len(trials) == 2 * 4 * 3 * (2 * (len(TESTS) - len(EXACT_TESTS)) + len(EXACT_TESTS))
    assert {t.epsilon for t in trials if t.test in EXACT_TESTS} == {UNLIMITED}


def test_designs_have_words() -> None:
    assert [design_named(design.word) for design in Design] == list(Design)
    with pytest.raises(MethodError, match="no design is called 'null'; choose one of conditional-null"):
        design_named("null")


def test_kendall_keeps_its_level_and_finds_what_is_plain() -> None:
    def share(design: Design, epsilon: float, rows: int) -> float:
        return sum(run_trial(Trial(KENDALL, design, rows, epsilon, run, 3)) for run in range(60)) / 60

    # at level 0.05 more than 11 of 60 happen once in 10⁴ such tests
    for design, epsilon in product((Design.MARGINAL_NULL, Design.CONDITIONAL_NULL), (0.05, 1e6)):
        assert share(design, epsilon, 200) <= 11 / 60
    assert share(Design.MARGINAL_POWER, 1.0, 500) > 0.9
    assert share(Design.MARGINAL_POWER, 0.01, 200) < 0.3


def call(*words: str, monkeypatch: pytest.MonkeyPatch | None = None) -> Result:
    if monkeypatch is not None:
        monkeypatch.setattr(sys, "argv", ["dagveil", "bench", *words])
    return CliRunner().invoke(bench, list(words))


def test_the_command_writes_page_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    page, figure = tmp_path / "levels.md", tmp_path / "deep" / "levels.svg"
    done = call(
        *("levels", "--rows", "60,80", "--epsilons", "1", "--tests", f"private GCM; {KENDALL}", "--runs", "2"),
        *("--workers", "1", "--seed", "7", "--figure", str(figure), "-o", str(page)),
        monkeypatch=monkeypatch,
    )
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.count("## ") == 8
    assert text.count("| private GCM |") == 8
    assert "![Rejections over budgets](levels.svg)" in text
    assert "dagveil bench levels --rows 60,80" in text
    trials = [Trial("private GCM", Design.MARGINAL_POWER, 80, 1.0, run, 7) for run in range(2)]
    share = sum(map(run_trial, trials)) / 2
    part = text[text.index("## 80 rows: X ⊥ Y (false)") :]
    assert f"| private GCM | {share:.3f} |  |" in part
    assert figure.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tests", "private GCM;magic"), "'magic' is none of partial covariance of residuals; private GCM"),
        (("--epsilons", "0"), "'0' is not a list of positive numbers"),
        (("--rows", "many"), "'many' is not a list of positive numbers"),
        (("--runs", "0"), "--runs"),
    ],
)
def test_the_command_refuses(words: tuple[str, ...], told: str) -> None:
    done = call("levels", *words)
    assert done.exit_code == 2
    assert told in done.output

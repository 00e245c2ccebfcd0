"""`dagveil direction`: an answer with its receipt, and mistakes that cost nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import Result
from desk import TWO_NUMBERS, Desk


@pytest.fixture
def pair(desk: Desk) -> Desk:
    """Return a desk with y = x²/2 + something that does not depend on x."""
    rows = ["a,b"]
    for i in range(2000):
        x = 4.0 * ((i * 0.6180339887) % 1.0) - 2.0
        rows.append(f"{x:.5f},{x**2 / 2 - 1.0 + (i * 0.7548776662) % 1.0 - 0.5:.5f}")
    desk.write("pair.csv", "\n".join(rows) + "\n")
    desk.write_schema(TWO_NUMBERS.replace("5.0", "2.5", 2), facts="nominal_rows = 2000")
    return desk


def ask(desk: Desk, *words: object, columns: str = "a,b", epsilon: object = 20) -> Result:
    return desk.run(
        *("direction", desk.path("pair.csv"), "--schema", desk.path("schema.toml"), "--columns", columns),
        *("--epsilon", epsilon, "-o", desk.out / "direction.json", *words),
    )


@pytest.mark.parametrize("score", ["hsic", "spearman"])
def test_an_answer(pair: Desk, score: str) -> None:
    result = ask(pair, "--score", score, "--noise", "exact")
    assert result.exit_code == 0, result.output
    content = json.loads((pair.out / "direction.json").read_text(encoding="utf-8"))
    assert (content["cause"], content["effect"]) == ("a", "b")
    assert "a → b, confidence" in result.stdout
    assert "right on 63 % of real pairs" in result.stdout
    assert "ledger" in result.stderr
    (run,) = pair.history()
    assert run.method == "direction"
    assert len(run.events) == 2


def test_an_earlier_answer_was_paid_for_and_is_kept(pair: Desk) -> None:
    for _ in range(2):
        assert ask(pair, "--noise", "exact").exit_code == 0
    assert sorted(path.name for path in pair.out.iterdir()) == ["direction-1.json", "direction.json"]


def test_ridge(pair: Desk) -> None:
    result = ask(pair, "--regression", "ridge", "--noise", "exact")
    assert result.exit_code == 0, result.output
    (run,) = pair.history()
    assert len(run.events) == 1


@pytest.mark.parametrize(
    ("words", "columns", "what", "next_step"),
    [
        ((), "a", "--columns takes two names", "such as x,y"),
        ((), "a,b,c", "--columns takes two names", "such as x,y"),
        ((), "a,", "--columns takes two names", "such as x,y"),
        ((), "a,a", "both columns are 'a'", "name two different ones"),
        ((), "a,age", "has no column 'age'", "its columns are a, b"),
        (("--score", "spearman", "--regression", "ridge"), "a,b", "no useful sensitivity", "regression=released"),
        (("--score", "kendall"), "a,b", "'kendall' is not one of", "'hsic', 'spearman'"),
        (("--epsilon", "0"), "a,b", "epsilon", "0"),
    ],
)
def test_mistakes_cost_nothing(pair: Desk, words: tuple[str, ...], columns: str, what: str, next_step: str) -> None:
    pair.check_refused(ask(pair, *words, columns=columns), what, next_step)


def test_rows_need_epsilon_and_schema(pair: Desk) -> None:
    bare = ("direction", pair.path("pair.csv"), "--columns", "a,b", "-o", pair.out / "direction.json")
    pair.check_refused(pair.run(*bare), "needs --epsilon", "--epsilon 1")
    pair.check_refused(pair.run(*bare, "--epsilon", 1), "needs --schema", "dagveil schema draft")


def test_columns_with_levels_are_refused(desk: Desk) -> None:
    desk.write("pair.csv", "a,b\nno,yes\n")
    desk.write_schema()
    desk.check_refused(ask(desk), "column 'a' is not numeric", "use `discover`")

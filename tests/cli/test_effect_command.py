"""`dagveil effect`, `dagveil plan --effect`, and what both refuse before anything is spent."""

from __future__ import annotations

import json

import pytest
from desk import Desk

FACTS = """
[dataset]
name = "desk"
reviewed = true
nominal_rows = 4000
"""
COLUMNS = "".join(
    f'[columns.{name}]\nkind = "categorical"\nlevels = ["no", "yes"]\noutside = "no"\n' for name in ("a", "b", "c")
)
ROWS = "a,b,c\n" + ("no,no,no\n" * 3 + "yes,yes,no\n" * 3 + "no,yes,yes\n" + "yes,no,yes\n") * 500
GRAPH = "digraph { a -> b; c -> a; c -> b; }"


@pytest.fixture
def found(desk: Desk) -> Desk:
    """A desk on which a graph was found."""
    desk.write("rows.csv", ROWS)
    desk.write("schema.toml", FACTS + COLUMNS)
    desk.write("known.dot", GRAPH)
    done = desk.run(
        *("discover", desk.path("rows.csv"), "--schema", desk.path("schema.toml"), "--epsilon", 2, "--redraws", 2),
        *("-o", desk.out, "--ledger", desk.ledger),
    )
    assert done.exit_code == 0, done.output
    return desk


def ask(desk: Desk, *words: object) -> str:
    done = desk.run("effect", desk.out, *words)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_free_answer_in_words_and_in_json(found: Desk) -> None:
    spent = found.history()
    words = ("--cause", "a", "--effect", "b", "--graph", found.path("known.dot"))
    told = ask(found, *words, "--redraws", 3, "--width", "0.2", "-o", found.path("answer"))
    assert "Setting a to yes instead of no would make b = yes between" in told
    assert "adjusted for c; from the table of all of them" in told
    assert "Graph and effect drawn again 3 times" in told
    assert "no unmeasured column causes both a and b" in told
    assert "gives an interval 0.2 wide" in told
    assert "This answer cost nothing." in told
    answer = json.loads((found.path("answer") / "effect.json").read_text())
    assert answer["format"] == "dagveil-effect"
    assert json.loads(ask(found, *words, "--json"))["sentence"] == answer["sentence"]
    assert found.history() == spent
    ask(found, *words, "-o", found.path("answer"))
    assert [path.name for path in found.path("answer").iterdir()] == ["effect.json"]
    drawn = found.run("report", found.out / "result.json", "--effect", found.path("answer") / "effect.json")
    assert drawn.exit_code == 0, drawn.output
    assert answer["sentence"] in (found.out / "report.html").read_text()


def test_a_paid_answer_is_charged_and_kept(found: Desk) -> None:
    done = found.run(
        *("effect", found.path("rows.csv"), "--schema", found.path("schema.toml"), "--from", found.out),
        *("--cause", "a", "--effect", "b", "--graph", found.path("known.dot"), "--epsilon", "0.5"),
        *("-o", found.path("paid"), "--ledger", found.ledger),
    )
    assert done.exit_code == 0, done.output
    assert "epsilon 0.5, delta 0" in done.output
    assert len(found.history()) == 2
    evidence = json.loads((found.path("paid") / "evidence.json").read_text())
    assert [release["columns"] for release in evidence["releases"]] == [["a", "b", "c"]]
    assert not (found.path("paid") / "recovery.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cause", "a", "--effect", "a"), "cause and effect are both 'a'"),
        (("--cause", "a", "--effect", "q"), "no column is called 'q'"),
        (("--cause", "a", "--effect", "b", "--epsilon", "1"), "leave out --epsilon"),
        (("--cause", "a", "--effect", "b", "--adjust", "b"), "the cause or the effect itself"),
        (("--cause", "a", "--effect", "b", "--width", "-1"), "the width is -1"),
        (("--cause", "a", "--effect", "b", "--graph", "CIRCLE"), "circle"),
        (("--cause", "a", "--effect", "b", "--knowledge", "AGAINST"), "both required and forbidden"),
    ],
)
def test_bad_questions_are_refused_and_spend_nothing(found: Desk, words: tuple[str, ...], message: str) -> None:
    found.write("circle.dot", "digraph { a -> b; b -> c; c -> a; }")
    found.write("against.toml", 'required = [["a", "b"]]\nforbidden = [["a", "b"]]')
    places = {"CIRCLE": str(found.path("circle.dot")), "AGAINST": str(found.path("against.toml"))}
    before = found.history()
    done = found.run("effect", found.out, *(places.get(word, word) for word in words))
    assert done.exit_code != 0
    assert message in done.output
    assert found.history() == before


def test_a_result_without_evidence_names_the_release(found: Desk) -> None:
    (found.out / "evidence.json").unlink()
    done = found.run("effect", found.out, "--cause", "a", "--effect", "b")
    assert done.exit_code != 0
    assert "no evidence beside it" in done.output
    assert "--from RESULT --cause a --effect b" in done.output


def test_a_search_elsewhere_is_asked_with_the_evidence_that_it_read(found: Desk) -> None:
    again = found.path("again")
    done = found.run("discover", found.out / "evidence.json", "--redraws", 2, "-o", again)
    assert done.exit_code == 0, done.output
    pair = ("--cause", "a", "--effect", "b")
    refused = found.run("effect", again, *pair)
    assert refused.exit_code != 0
    assert "--evidence" in refused.output
    assert "both 'a'" in found.run("effect", again, "--cause", "a", "--effect", "a").output
    told = found.run("effect", again, *pair, "--evidence", found.out / "evidence.json")
    assert told.exit_code == 0, told.output
    assert told.output == ask(found, *pair)
    paid = found.run(
        *("effect", found.path("rows.csv"), "--schema", found.path("schema.toml"), "--from", again, *pair),
        *("--evidence", found.out / "evidence.json", "--graph", found.path("known.dot"), "--epsilon", "0.5"),
        *("-o", found.path("paid"), "--ledger", found.ledger),
    )
    assert paid.exit_code == 0, paid.output
    other = found.path("paid") / "evidence.json"
    assert "is not the evidence" in found.run("effect", again, *pair, "--evidence", other).output


def test_readings_with_the_same_answer_are_told_once(desk: Desk) -> None:
    counts = {"no,no,no": 9, "no,no,yes": 3, "no,yes,no": 3, "no,yes,yes": 1}
    counts |= {"yes,yes,yes": 9, "yes,yes,no": 3, "yes,no,yes": 3, "yes,no,no": 1}
    desk.write("rows.csv", "a,b,c\n" + "".join(f"{row}\n" * count * 125 for row, count in counts.items()))
    desk.write("schema.toml", FACTS + COLUMNS)
    desk.write("open.dot", "digraph { c -> a [dir=none]; a -> b; }")
    done = desk.run(
        *("discover", desk.path("rows.csv"), "--schema", desk.path("schema.toml"), "--epsilon", 2, "--redraws", 2),
        *("-o", desk.out, "--ledger", desk.ledger),
    )
    assert done.exit_code == 0, done.output
    told = ask(desk, "--cause", "a", "--effect", "b", "--graph", desk.path("open.dot"))
    assert told.count("a set to") == 1
    assert (
        "If none of these columns causes a, or c does (nothing to adjust for; from the table of all of them):" in told
    )
    assert (
        "At no cost, --knowledge FILE.toml gives what you know and --redraws 200 draws graph and effect again." in told
    )


def test_where_no_epsilon_is_enough_none_is_proposed(found: Desk) -> None:
    told = ask(found, "--cause", "a", "--effect", "b", "--graph", found.path("known.dot"), "--width", "0.0001")
    assert "No epsilon for an interval 0.0001 wide" in told
    assert "To measure it" not in told


def test_a_plan_says_the_epsilon_of_a_width(found: Desk) -> None:
    schema = found.path("schema.toml")
    told = found.run("plan", schema, "--effect", "a", "b", "--width", "0.1", "--adjust", "c")
    assert told.exit_code == 0, told.output
    assert "gives a 95 % interval 0.1 wide for the effect of a on b, from the table of a × b × c" in told.output
    assert (
        f"Next: `dagveil effect FILE --schema {schema} --from RESULT --cause a --effect b --epsilon 0." in told.output
    )
    assert "No epsilon" in found.run("plan", schema, "--effect", "a", "b", "--width", "0.001").output
    for words, message in (
        (("--effect", "a", "b"), "--effect needs --width"),
        (("--width", "0.1"), "belong to --effect"),
        (("--effect", "a", "b", "--width", "0.1", "--epsilon", "1"), "leave out --epsilon"),
        (("--effect", "a", "a", "--width", "0.1"), "both 'a'"),
        (("--effect", "a", "b", "--width", "0.1", "--adjust", "q"), "no column to adjust for is called 'q'"),
    ):
        done = found.run("plan", schema, *words)
        assert done.exit_code != 0, words
        assert message in done.output

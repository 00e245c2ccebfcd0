"""`dagveil schema draft`: what a person is asked to look at."""

from __future__ import annotations

from desk import Desk


def test_the_command_names_them_before_the_next_step(desk: Desk) -> None:
    file = desk.write("t.csv", "day,a\n2020-01-01,yes\n2020-01-02,no\n")
    told = desk.run("schema", "draft", file, "-o", desk.path("new.toml")).output
    assert told.index("day: looks like dates") < told.index("Next:")
    assert "  a:" not in told
    plain = desk.run(
        "schema", "draft", desk.write("u.csv", "a,b\nyes,no\nno,no\nno,yes\n"), "-o", desk.path("other.toml")
    ).output
    assert "Look at" not in plain

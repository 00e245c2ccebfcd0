"""`dagveil schema draft`: what a person is asked to look at."""

from __future__ import annotations

import os

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


def test_drafts_and_new_ledgers_are_for_their_owner_alone(desk: Desk) -> None:
    before = os.umask(0o022)
    try:
        file = desk.write("t.csv", "name,age\nAlice Smith,31\n")
        assert desk.run("schema", "draft", file, "-o", desk.path("draft.toml")).exit_code == 0
        assert desk.run("schema", "draft", file, "-o", desk.path("draft.toml"), "--force").exit_code == 0
        assert desk.run("budget", "set", "patients", "--epsilon", "1").exit_code == 0
    finally:
        os.umask(before)
    for path in (desk.path("draft.toml"), desk.ledger):
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_an_older_draft_loses_the_rights_of_others(desk: Desk) -> None:
    path = desk.path("draft.toml")
    path.touch(mode=0o644)
    file = desk.write("t.csv", "name,age\nAlice Smith,31\n")
    assert desk.run("schema", "draft", file, "-o", path, "--force").exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o600

"""`dagveil studio` on the command line, and explorations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from caller import ASIA, VISITS, Caller, work
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.progress import CancelSignal
from dagveil.studio import app
from dagveil.studio.app import AccessControl
from dagveil.studio.jobs import take_lock


def test_other_hosts_need_a_word(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["studio", str(tmp_path / "box"), "--host", "0.0.0.0"])
    assert done.exit_code == 2
    assert "--allow-remote" in done.stderr
    assert "ssh -L" in done.stderr
    assert not (tmp_path / "box").exists()


def test_with_the_word_there_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(app, "serve", lambda *given, **more: seen.append((given[:4], more["limits"])))
    words = ["studio", str(tmp_path), "--host", "0.0.0.0", "--allow-remote", "--largest-upload", "1", "--jobs", "3"]
    done = CliRunner(env={"DAGVEIL_LEDGER": "postgresql://ann:secret@host/books"}).invoke(group, words)
    assert done.exit_code == 0, done.output
    assert "no encryption" in done.stderr
    assert seen == [((str(tmp_path), "postgresql://ann:secret@host/books", "0.0.0.0", 0), app.Limits(2**20, 3))]


def test_one_folder_has_one_studio(tmp_path: Path) -> None:
    assert take_lock(tmp_path / ".studio.lock") is not None
    done = CliRunner(env={"DAGVEIL_LEDGER": ""}).invoke(group, ["studio", str(tmp_path)])
    assert done.exit_code == 2
    assert "another studio serves" in done.stderr
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "box").write_text("")
    done = CliRunner().invoke(group, ["studio", str(tmp_path / "box")])
    assert done.exit_code == 2
    assert "cannot use" in done.stderr


def test_an_exploration_draws_its_curve_and_costs_nothing(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {name: {"kind": "boolean"} for name in "abc"}
    body = {"name": "visits", "reviewed": True, "nominal_rows": 300, "columns": columns}
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema", body).status == 200
    asked = {"epsilons": ["0.5", "4"], "seconds": 1}
    job = studio.ask("POST", f"/api/datasets/{VISITS}/exploration", asked).json
    assert (job["kind"], job["epsilon"]) == ("exploration", "0.5 to 4")
    assert "watch it" in studio.ask("GET", f"/datasets/{VISITS}/plan").text
    # the rows are not needed: none of these columns is in the table
    work(studio, job["id"], CancelSignal(), monkeypatch)
    found = studio.ask("GET", f"/api/jobs/{job['id']}").json
    assert (found["state"], found["has_exploration"], found["charge"]["epsilon"]) == ("done", True, "0")
    explored = studio.ask("GET", f"/api/jobs/{job['id']}/exploration").json
    assert explored["format"] == "dagveil-exploration"
    curve = studio.ask("GET", f"/jobs/{job['id']}/curve.svg")
    assert (curve.status, curve.headers["content-type"]) == (200, "image/svg+xml")
    for page in (f"/jobs/{job['id']}", f"/datasets/{VISITS}/plan"):
        text = studio.ask("GET", page).text
        assert f"/jobs/{job['id']}/curve.svg" in text
        assert "attacker" in text or "guess" in text
    studio.check_nothing_spent()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"epsilons": []}, 422),
        ({"epsilons": ["0"]}, 422),
        ({"epsilons": ["1"] * 9}, 422),
        ({"epsilons": "1"}, 422),
        ({"seconds": 10**6}, 422),
        ({"delta": "2"}, 422),
        ({"workers": 50}, 422),
    ],
)
def test_explorations_that_make_no_sense_are_refused(studio: Caller, change: dict[str, object], status: int) -> None:
    assert studio.ask("POST", f"/api/datasets/{ASIA}/exploration", change).status == status
    assert studio.service.store.all() == []


def test_a_studio_is_served_with_bounds_and_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the person's umask is: results of jobs are files of the studio's children."""
    seen: list[tuple[object, int]] = []

    def look(served: object, listener: object) -> None:
        mask = os.umask(0o022)
        seen.append((served, mask))

    monkeypatch.setattr(app, "run_server", look)
    before = os.umask(0o022)
    try:
        app.serve(tmp_path / "box", str(tmp_path / "ledger.sqlite"), "127.0.0.1", 0, lambda *_: None)
    finally:
        os.umask(before)
    ((served, mask),) = seen
    assert isinstance(served, AccessControl)
    assert mask == 0o077
    assert (tmp_path / "box").stat().st_mode & 0o777 == 0o700

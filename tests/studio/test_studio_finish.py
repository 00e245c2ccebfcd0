"""Runs of the studio that stop after they were charged: nothing paid for is lost, and nothing is paid twice."""

from __future__ import annotations

from typing import Any

import pytest
from caller import ASIA, Caller, order_job, work
from killing import KILL, KILLED, kill_worker

from dagveil.errors import DataError, LedgerError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.account import Composition
from dagveil.privacy.ledger.store import SqlLedger
from dagveil.privacy.noise.exact import ExactNoise
from dagveil.progress import CancelSignal
from dagveil.runs.result import load_result
from dagveil.studio.jobs import JobState


def told(studio: Caller, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = studio.ask("GET", f"/api/jobs/{job_id}").json
    return job


def finish(studio: Caller, job_id: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Finish a job as a visitor does, and do its work."""
    reply = studio.ask("POST", f"/api/jobs/{job_id}/finish")
    assert (reply.status, reply.json["state"], reply.json["id"]) == (202, "queued", job_id), reply.text
    work(studio, job_id, CancelSignal(), monkeypatch)
    return told(studio, job_id)


@pytest.mark.parametrize("moment", KILLED)
@pytest.mark.parametrize("method", ["measure", "priv-pc"])
def test_a_killed_run_is_finished_at_no_further_charge(
    studio: Caller, monkeypatch: pytest.MonkeyPatch, method: str, moment: str
) -> None:
    # nothing more could be reserved: finishing must not ask for it
    studio.service.books.set_budget("asia-sample", Budget.of(1, "1e-6"), Composition.SUM)
    options = {"plan": "pairs"} if method == "measure" else {}
    job_id = order_job(studio, method=method, options=options)
    kill_worker(studio, job_id, KILLED[moment])
    job = told(studio, job_id)
    assert (job["state"], job["can_finish"], job["has_result"]) == ("interrupted", True, False), job
    assert (studio.spent(), job["charge"]["epsilon"]) == (1.0, "1")
    page = studio.ask("GET", f"/jobs/{job_id}").text
    assert "Charged ε 1; what was drawn is kept." in page
    assert "Finish this run (already charged)" in page
    (before,) = studio.service.books.history()
    another = studio.ask("POST", "/api/jobs", {"dataset": ASIA, "epsilon": "1/100"})
    assert (another.status, another.json["error"]) == (409, "over budget")

    job = finish(studio, job_id, monkeypatch)
    assert (job["state"], job["has_result"], job["can_finish"], job["message"]) == ("done", True, False, "")
    (run,) = studio.service.books.history()
    assert (run.state.value, run.events[: len(before.events)]) == ("closed", before.events)
    place = studio.service.folder.results(job_id)
    paid = load_evidence(place / "evidence.json") if method == "measure" else load_result(place / "result.json")
    assert paid.receipt.events == run.events
    assert not (place / "recovery.jsonl").exists()
    assert not list(place.glob(".part-*"))
    assert (studio.spent(), studio.service.books.account("asia-sample").spending.reserved.epsilon) == (1.0, 0)
    assert studio.service.books.verify().problem is None
    assert studio.ask("POST", f"/api/jobs/{job_id}/finish").status == 409


def test_a_run_that_was_killed_before_its_first_charge_costs_nothing(studio: Caller) -> None:
    job_id = order_job(studio)
    kill_worker(studio, job_id, f"SqlLedger.record_event = lambda *a: {KILL}")
    job = told(studio, job_id)
    assert (job["state"], job["can_finish"], job["charge"]["epsilon"]) == ("interrupted", False, "0")
    (run,) = studio.service.books.history()
    assert run.state.value == "released"
    assert not (studio.service.folder.results(job_id) / "recovery.jsonl").exists()
    refused = studio.ask("POST", f"/api/jobs/{job_id}/finish")
    assert (refused.status, refused.json["error"]) == (409, "nothing to finish")


def test_evidence_that_was_saved_needs_no_recovery_file(studio: Caller) -> None:
    job_id = order_job(studio)
    last = "unlink = pathlib.Path.unlink\npathlib.Path.unlink = lambda self, **k: "
    kill_worker(studio, job_id, f"{last}{KILL} if self.name == 'recovery.jsonl' else unlink(self, **k)")
    job = told(studio, job_id)
    assert (job["state"], job["can_finish"], job["has_evidence"]) == ("interrupted", False, True)
    assert not (studio.service.folder.results(job_id) / "recovery.jsonl").exists()
    assert studio.ask("POST", f"/api/jobs/{job_id}/search", {"settings": {"redraws": 0}}).status == 201


def test_a_run_that_failed_or_was_cancelled_is_finished(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, then a cancel in the middle, then the end."""
    job_id = order_job(studio, options={"plan": "pairs"})

    def fail(*_: Any) -> None:
        raise DataError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Evidence, "save", fail)
        work(studio, job_id, CancelSignal(), monkeypatch)
    assert (told(studio, job_id)["state"], told(studio, job_id)["can_finish"]) == ("failed", True)

    bell = CancelSignal()
    assert studio.ask("POST", f"/api/jobs/{job_id}/finish").status == 202
    with monkeypatch.context() as patch:
        patch.setattr(Evidence, "save", lambda *_: bell.ring() or fail())
        work(studio, job_id, bell, monkeypatch)
    assert studio.service.store.get(job_id).state in (JobState.CANCELLED, JobState.FAILED)  # type: ignore[union-attr]
    assert told(studio, job_id)["can_finish"]

    waiting = studio.ask("POST", f"/api/jobs/{job_id}/finish").json
    assert (waiting["state"], waiting["message"], waiting["cancelling"]) == ("queued", "", False)
    assert studio.ask("POST", f"/api/jobs/{job_id}/finish").status == 409, "it waits already"
    assert studio.ask("POST", f"/api/jobs/{job_id}/cancel").json["state"] == "cancelled"
    assert finish(studio, job_id, monkeypatch)["state"] == "done"
    assert (studio.spent(), len(studio.service.books.history())) == (1.0, 1)


def test_answers_that_are_kept_are_given_again(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = order_job(studio, options={"plan": "pairs"})
    kill_worker(studio, job_id, KILLED["before it is saved"])

    def fail(*_: Any) -> None:
        raise AssertionError("everything was drawn before")

    monkeypatch.setattr(ExactNoise, "discrete_gaussian", fail)
    assert finish(studio, job_id, monkeypatch)["state"] == "done"


def test_a_run_is_finished_with_the_schema_that_it_began_with(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = order_job(studio)
    kill_worker(studio, job_id, KILLED["after the draw"])
    text = (studio.folder / "asia.toml").read_text()
    (studio.folder / "asia.toml").write_text(text.replace("nominal_rows = 400", "nominal_rows = 500"))
    refused = studio.ask("POST", f"/api/jobs/{job_id}/finish")
    assert (refused.status, refused.json["error"]) == (409, "schema changed")
    (studio.folder / "asia.toml").write_text(text)
    assert finish(studio, job_id, monkeypatch)["state"] == "done"
    assert studio.spent() == 1.0


def test_a_recovery_file_that_is_gone_starts_no_second_run(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = order_job(studio, epsilon="1/2")
    kill_worker(studio, job_id, KILLED["after the draw"])
    assert studio.ask("POST", f"/api/jobs/{job_id}/finish").status == 202
    (studio.service.folder.results(job_id) / "recovery.jsonl").unlink()
    work(studio, job_id, CancelSignal(), monkeypatch)
    job = told(studio, job_id)
    assert (job["state"], job["can_finish"]) == ("failed", False)
    assert "recovery file of this run is gone" in job["message"]
    (run,) = studio.service.books.history()
    assert (run.state.value, studio.spent()) == ("closed", 0.5)


def test_the_ledger_may_be_away_while_a_run_ends(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that could not be closed is done all the same: it counts as if it were closed."""

    def fail(*_: Any) -> None:
        raise LedgerError("locked")

    job_id = order_job(studio)
    monkeypatch.setattr(SqlLedger, "close_run", fail)
    with pytest.warns(UserWarning, match="could not be closed"):
        work(studio, job_id, CancelSignal(), monkeypatch)
    job = told(studio, job_id)
    assert (job["state"], job["has_evidence"], studio.spent()) == ("done", True, 1.0)


def test_there_may_be_nothing_to_finish(studio: Caller) -> None:
    assert studio.ask("POST", "/api/jobs/0123456789abcdef/finish").status == 404
    queued = order_job(studio)
    assert studio.ask("POST", f"/api/jobs/{queued}/finish").json["error"] == "nothing to finish"

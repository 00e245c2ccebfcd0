"""Jobs: what a cancel costs at every moment, and that no restart and no kill loses or repeats one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from caller import ASIA, Caller, fill_folder, open_books, open_studio, order_job, work
from live_server import Server

from dagveil.graphs.exchange.formats import Format
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import SparseVectorRound
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import WatchedLedger
from dagveil.progress import Cancelled, CancelSignal
from dagveil.studio.app import Limits
from dagveil.studio.jobs import JobState, JobStore, is_held

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

PATIENCE = 180.0
"""Seconds; processes of a busy machine may take long to start."""


def wait_for(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found


class CancellingStore(JobStore):
    """Sends the signal when a job reaches a stage."""

    def __init__(self, path: Path, cancel: CancelSignal, stage: str, done: int) -> None:
        super().__init__(path)
        self._signal, self._stage, self._when = cancel, stage, done

    def note_progress(self, job: str, stage: str, done: int, total: int) -> None:
        super().note_progress(job, stage, done, total)
        if stage == self._stage and done == self._when:
            self._signal.send()


@pytest.mark.parametrize(
    ("method", "stage", "done", "charged", "kept"),
    [
        ("measure", "measuring the joint table", 0, 0.0, False),
        ("measure", "measuring the joint table", 1, 1.0, False),
        ("measure", "searching", 0, 1.0, True),
        ("measure", "redrawing noise for edge confidence", 5, 1.0, True),
        ("svt-pc", "questions of order 0", 0, 1.0, False),  # its threshold is noisy, and drawn before any question
        ("em-pc", "order 0", 0, 1.0, False),
    ],
)
def test_a_cancel_costs_nothing_before_the_first_noise_and_the_reservation_after(
    studio: Caller, monkeypatch: pytest.MonkeyPatch, method: str, stage: str, done: int, charged: float, kept: bool
) -> None:
    job_id = order_job(studio, method=method, redraws=5)
    cancel = CancelSignal()
    studio.service.store = CancellingStore(studio.service.folder.jobs_path, cancel, stage, done)
    work(studio, job_id, cancel, monkeypatch)
    job = studio.ask("GET", f"/api/jobs/{job_id}").json
    assert (job["state"], job["has_result"], job["has_evidence"]) == ("cancelled", False, kept)
    assert (studio.spent(), float(job["charge"]["epsilon"])) == (charged, charged)
    account = studio.service.books.account("asia-sample")
    assert account.spending.reserved.epsilon == 0, "a cancelled run reserves nothing any more"
    assert account.runs == 1
    (run,) = studio.service.books.history()
    assert job["can_finish"] == (bool(charged) and not kept)
    state = "open" if job["can_finish"] else "closed" if charged else "released"
    assert (run.state.value, bool(run.events)) == (state, bool(charged))
    assert bool(job["charge"]["releases"]) == bool(charged)
    assert studio.service.books.verify().problem is None
    page = studio.ask("GET", f"/jobs/{job_id}").text
    assert ("charged epsilon 1" in page.lower()) == bool(charged)
    if job["can_finish"]:
        studio.service.store = JobStore(studio.service.folder.jobs_path)
        assert studio.ask("POST", f"/api/jobs/{job_id}/finish").status == 202
        work(studio, job_id, CancelSignal(), monkeypatch)
        assert studio.ask("GET", f"/api/jobs/{job_id}").json["state"] == "done"
        (run,) = studio.service.books.history()
        assert (run.state.value, studio.spent()) == ("closed", 1.0)


def test_evidence_of_a_cancelled_run_is_searched_for_free(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = order_job(studio, redraws=5)
    cancel = CancelSignal()
    plain = studio.service.store
    studio.service.store = CancellingStore(studio.service.folder.jobs_path, cancel, "searching", 0)
    work(studio, job_id, cancel, monkeypatch)
    studio.service.store = plain
    again = studio.ask("POST", f"/api/jobs/{job_id}/search", {"settings": {"redraws": 3}}).json
    work(studio, again["id"], CancelSignal(), monkeypatch)
    found = studio.ask("GET", f"/api/jobs/{again['id']}").json
    assert (found["state"], found["has_result"], found["evidence_of"]) == ("done", True, job_id)
    assert found["charge"]["epsilon"] == "0"
    assert (studio.spent(), studio.service.books.account("asia-sample").runs) == (1.0, 1)


def test_another_search_takes_settings_and_knowledge_or_says_why_not(
    studio: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = order_job(studio, epsilon="8")
    work(studio, job_id, CancelSignal(), monkeypatch)
    place = f"/api/jobs/{job_id}/search"
    for body, words in (
        ({"settings": {"marginal_level": 2}}, "marginal_level is 2"),
        ({"settings": {"arrows": "guessed"}}, "guessed"),
        ({"settings": {"search": "notears"}}, "second moments"),
        ({"settings": {"redraws": 20_000}}, "redraws is 20000"),
        ({"knowledge": "tiers = ["}, "not valid TOML"),
        ({"knowledge": 'tiers = ["smoke"]'}, "tiers is a list of lists"),
        ({"knowledge": 'forbidden = [["nobody", "smoke"]]'}, "nobody"),
        ({"redraws": 3}, "redraws"),
    ):
        refused = studio.ask("POST", place, body)
        assert (refused.status, words in refused.json["detail"]) == (422, True), refused.text
    body = {
        "settings": {"redraws": 0, "conditional_level": 0.2, "arrows": "separating-sets", "search": "tests"},
        "knowledge": 'required = [["smoke", "lung"]]',
    }
    again = studio.ask("POST", place, body).json["id"]
    work(studio, again, CancelSignal(), monkeypatch)
    result = studio.ask("GET", f"/api/jobs/{again}/result").json
    assert {"source": "smoke", "target": "lung", "kind": "directed"}.items() <= next(
        edge for edge in result["graph"]["edges"] if {edge["source"], edge["target"]} == {"smoke", "lung"}
    ).items()
    assert result["method"]["settings"]["conditional_level"] == 0.2
    assert studio.spent() == 8.0


def test_evidence_and_graphs_are_downloaded(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = order_job(studio, epsilon="8")
    assert studio.ask("GET", f"/api/jobs/{job_id}/evidence").status == 409
    assert studio.ask("GET", f"/api/jobs/{job_id}/export?to=dot").status == 404
    work(studio, job_id, CancelSignal(), monkeypatch)
    evidence = studio.ask("GET", f"/api/jobs/{job_id}/evidence")
    assert evidence.body == (studio.service.folder.results(job_id) / "evidence.json").read_bytes()
    undirected = [
        edge for edge in studio.ask("GET", f"/api/jobs/{job_id}/result").json["graph"]["edges"]
        if edge["kind"] == "undirected"
    ]  # fmt: skip
    for form in Format:
        given = studio.ask("GET", f"/api/jobs/{job_id}/export?to={form.value}")
        if form is Format.DOWHY and undirected:
            assert given.status == 422
            assert studio.ask("GET", f"/jobs/{job_id}/export?to=dowhy").status == 422
            given = studio.ask("GET", f"/api/jobs/{job_id}/export?to=dowhy&extend=nearest")
        assert (given.status, "smoke" in given.text) == (200, True)
    page = studio.ask("GET", f"/jobs/{job_id}/export?to=graphml")
    assert page.headers["content-disposition"] == 'attachment; filename="graph-graphml.graphml"'
    assert studio.ask("GET", f"/api/jobs/{job_id}/export?to=elsewhere").status == 422


def test_a_changed_schema_stops_a_run_before_it_spends(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = order_job(studio)
    text = (studio.folder / "asia.toml").read_text().replace("nominal_rows = 400", "nominal_rows = 500")
    assert studio.ask("PUT", f"/api/datasets/{ASIA}/schema.toml", text.encode(), "text/plain").status == 200
    work(studio, job_id, CancelSignal(), monkeypatch)
    job = studio.ask("GET", f"/api/jobs/{job_id}").json
    assert job["state"] == "failed"
    assert "schema was changed" in job["message"]
    studio.check_nothing_spent()


def test_an_unexpected_error_keeps_its_words_to_itself(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from caller import SECRET

    from dagveil.studio import worker

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"cannot convert {SECRET!r}")

    monkeypatch.setattr(worker, "measure_source", fail)
    job_id = order_job(studio)
    work(studio, job_id, CancelSignal(), monkeypatch)
    job = studio.ask("GET", f"/api/jobs/{job_id}").json
    assert job["state"] == "failed"
    assert "RuntimeError" in job["message"]
    assert SECRET not in studio.ask("GET", f"/jobs/{job_id}").text


def test_results_are_shown_compared_and_drawn(studio: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [order_job(studio, epsilon=epsilon, redraws=2) for epsilon in ("8", "1/5")]
    for job_id in jobs:
        work(studio, job_id, CancelSignal(), monkeypatch)
    for path in (*(f"/jobs/{job}" for job in jobs), "/jobs", "/history", f"/datasets/{ASIA}"):
        assert studio.ask("GET", path).status == 200
    report = studio.ask("GET", f"/jobs/{jobs[0]}/report")
    assert "Causal graph of asia-sample" in report.text
    assert "frame-ancestors 'self'" in report.headers["content-security-policy"]
    result = studio.ask("GET", f"/api/jobs/{jobs[0]}/result").json
    assert result["format"] == "dagveil-result"
    compared = studio.ask("GET", f"/api/comparison?here={jobs[0]}&there={jobs[1]}").json
    differing = [*compared["only_here"], *compared["turned"], *compared["marked"]]
    assert compared["same"] + len(differing) == len(result["graph"]["edges"])
    assert differing, "budgets that far apart give different graphs"
    drawing = studio.ask("GET", f"/jobs/{jobs[0]}/graph.svg?beside={jobs[1]}").text
    assert drawing.count('class="edge differs"') == drawing.count('class="halo"') == len(differing)
    assert studio.ask("GET", f"/jobs/{jobs[0]}/graph.svg").text.count('class="halo"') == 0
    asked = f"jobs/{jobs[0]}/effect?cause=smoke&effect=dysp"
    told = studio.ask("GET", f"/api/{asked}").json
    assert (told["format"], told["cause"], told["receipt"]) == ("dagveil-effect", "smoke", None)
    assert told["sentence"] in studio.ask("GET", f"/{asked}").text.replace("&#39;", "'")
    assert "does not identify" in studio.ask("GET", f"/{asked}&adjust=smoke").text
    assert studio.ask("GET", f"/api/jobs/{jobs[0]}/effect?cause=smoke&effect=smoke").status == 422
    page = studio.ask("GET", f"/compare?here={jobs[0]}&there={jobs[1]}").text
    assert page.count('<td class="differs">') >= len(differing)
    entries = studio.ask("GET", "/api/history").json["runs"]
    assert [entry["job"] for entry in entries] == jobs[::-1]


def test_the_bell_never_cuts_through_the_ledger(tmp_path: Path) -> None:
    cancel, noted = CancelSignal(), []
    books = open_books(tmp_path)
    watched = WatchedLedger(books, cancel, noted.append)
    event = SparseVectorRound("edge", Fraction(1, 10))

    def charge_and_ring() -> None:
        with watched.reserve("visits", Budget.of(1, 0), TERMS, "pure accounting", "pc", "test") as run:
            run.record(event)
            cancel.send()

    with pytest.raises(Cancelled):
        charge_and_ring()
    (run,) = books.history()
    assert (noted, run.state.value, run.events) == ([run.id], "closed", (event,))
    with pytest.raises(Cancelled):
        watched.reserve("visits", Budget.of(1, 0), TERMS, "pure accounting", "pc", "test")
    with pytest.raises(Cancelled):
        watched.record_event(run.id, event)
    assert books.account("visits").runs == 1


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Caller]:
    """Return a studio that starts processes; whatever still runs at the end is stopped."""
    fill_folder(tmp_path)
    caller = open_studio(tmp_path, Limits(running=2))
    yield caller
    for job in caller.service.store.all(JobState.RUNNING):
        if job.pid is not None and caller.service.runner.is_alive(job.id):
            os.kill(job.pid, signal.SIGKILL)
    caller.check_nothing_leaked()


def test_a_killed_process_is_interrupted_and_never_run_again(living: Caller) -> None:
    """One process is killed after its first charge; another ends while nobody looks."""
    killed, quick = order_job(living, redraws=10_000), order_job(living, epsilon="1/2")
    store = living.service.store

    def told(job_id: str) -> Any:
        return living.ask("GET", f"/api/jobs/{job_id}").json

    wait_for(lambda: told(killed)["stage"].startswith("redrawing") or told(killed)["state"] != "running")
    pid = store.get(killed).pid  # type: ignore[union-attr]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not living.service.runner.is_alive(killed))
    wait_for(lambda: not living.service.runner.is_alive(quick))

    # a server that starts now finds both
    later = open_studio(living.folder, Limits(running=2))
    later.service.runner.tick()
    job = later.ask("GET", f"/api/jobs/{killed}").json
    assert (job["state"], job["charge"]["epsilon"], job["has_evidence"]) == ("interrupted", "1", True)
    assert "will not be started again" in later.ask("GET", f"/jobs/{killed}").text
    done = later.ask("GET", f"/api/jobs/{quick}").json
    assert (done["state"], done["has_result"], done["charge"]["epsilon"]) == ("done", True, "0.5")
    for _ in range(3):
        later.service.runner.tick()
    assert later.service.store.all(JobState.RUNNING, JobState.QUEUED) == []
    assert later.spent() == 1.5
    assert {run.state.value for run in later.service.books.history()} == {"closed"}
    assert later.service.books.verify().problem is None


def test_a_process_that_dies_before_its_first_noise_costs_nothing(living: Caller) -> None:
    job_id = order_job(living)
    pid = living.service.store.get(job_id).pid  # type: ignore[union-attr]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # it is still importing
    # as if it had come as far as its reservation
    run = living.service.books.reserve("asia-sample", Budget.of(1, 0), TERMS, "pure accounting", "measure", "test")
    living.service.store.note_run(job_id, run.id)
    wait_for(lambda: not living.service.runner.is_alive(job_id))
    living.service.runner.tick()
    job = living.ask("GET", f"/api/jobs/{job_id}").json
    assert (job["state"], job["charge"]["epsilon"]) == ("interrupted", "0")
    account = living.service.books.account("asia-sample")
    assert account.spent_epsilon == account.spending.reserved.epsilon == 0


def test_another_ledger_is_never_touched_for_an_old_job(studio: Caller) -> None:
    """Run numbers of one ledger mean other runs in another."""
    order = studio.service.store.get(order_job(studio)).order  # type: ignore[union-attr]
    studio.service.store.cancel_queued(studio.service.store.all()[0].id)
    foreign = studio.service.store.add(msgspec.structs.replace(order, ledger="/elsewhere/ledger.sqlite"))
    innocent = studio.service.books.reserve("asia-sample", Budget.of(1, 0), TERMS, "pure accounting", "measure", "test")
    studio.service.store.start(foreign.id)
    studio.service.store.note_run(foreign.id, innocent.id)
    studio.service.runner.tick()
    (run,) = studio.service.books.history()
    assert run.state.value == "open"
    assert "another ledger" in studio.ask("GET", f"/api/jobs/{foreign.id}").json["charge"]["words"]


def test_a_run_outlives_its_server_and_the_next_one_cancels_it(tmp_path: Path) -> None:
    fill_folder(tmp_path)
    server = Server(tmp_path)
    try:
        body = {"dataset": ASIA, "epsilon": "1", "noise": "exact", "redraws": 10_000}
        job_id = server.ask("POST", "/api/jobs", body)["id"]
        wait_for(lambda: server.ask("GET", f"/api/jobs/{job_id}")["stage"].startswith("redrawing"))
    finally:
        server.stop(signal.SIGKILL)
    server = Server(tmp_path)
    try:
        job = server.ask("GET", f"/api/jobs/{job_id}")
        assert (job["state"], job["charge"]["epsilon"]) == ("running", "1")
        before = job["done"]
        wait_for(lambda: server.ask("GET", f"/api/jobs/{job_id}")["done"] > before)
        assert server.ask("POST", f"/api/jobs/{job_id}/cancel")["cancelling"]
        job = wait_for(lambda: _ended(server.ask("GET", f"/api/jobs/{job_id}")))
        assert (job["state"], job["charge"]["epsilon"], job["has_evidence"]) == ("cancelled", "1", True)
        assert job["charge"]["releases"] == ["joint table"]
    finally:
        server.stop()
    wait_for(lambda: not is_held(tmp_path / "results" / job_id / "alive"))
    books = open_books(tmp_path)
    assert books.account("asia-sample").runs == 1, "nothing was run twice"
    assert float(books.account("asia-sample").spent_epsilon) == 1


def _ended(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if job["state"] not in ("queued", "running") else None

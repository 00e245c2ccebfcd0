"""A run that stops anywhere is finished at no further cost: same charges, same answers as far as they were given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagveil.curator.journal import Journal, Order, read_order
from dagveil.data.column import Boolean, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DataError, LedgerError
from dagveil.evidence.bundle import Evidence
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.ledger import Ledger, RunState
from dagveil.privacy.ledger.ledger import LedgerRun
from dagveil.privacy.noise.exact import ExactNoise
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.bounds import UNKNOWN_BOUNDS, find_bounds
from dagveil.runs.direction import find_direction
from dagveil.runs.discovery import discover, measure_source

RNG = np.random.default_rng(0)
A = RNG.random(400) < 0.5
LEVELS = {"a": A, "b": np.where(RNG.random(400) < 0.9, A, ~A), "c": RNG.random(400) < 0.5}
X = RNG.normal(size=400)
NUMBERS = {"x": X, "y": X**2 / 2 + RNG.normal(size=400), "z": RNG.normal(size=400)}


def levels(**facts: Any) -> Schema:
    return Schema(
        dataset="kept", columns=dict.fromkeys(LEVELS, Boolean("false")), reviewed=True, nominal_rows=400, **facts
    )


def numbers() -> Schema:
    return Schema(dataset="kept", columns=dict.fromkeys(NUMBERS, Numeric((-4, 4))), reviewed=True, nominal_rows=400)


Run = Callable[[Ledger, Path | None], Any]


def measure(method: str, rows: dict[str, Any], schema: Schema, **options: Any) -> Run:
    def run(ledger: Ledger, recovery: Path | None) -> Evidence:
        return measure_source(
            rows, schema, 3, method=method, options=options, ledger=ledger, noise=NoiseKind.EXACT, recovery=recovery
        )

    return run


def ask(method: str, rows: dict[str, Any], schema: Schema, **facts: Any) -> Run:
    def run(ledger: Ledger, recovery: Path | None) -> Any:
        return discover(
            rows, schema, 3, method=method, ledger=ledger, noise=NoiseKind.EXACT, recovery=recovery, **facts
        )

    return run


RELEASING: dict[str, Run] = {
    "measure": measure("measure", LEVELS, levels()),
    "measure pairs": measure("measure", LEVELS, levels(), plan="pairs"),
    "measure moments": measure("measure", NUMBERS, numbers()),
    "measure-features": measure("measure-features", NUMBERS, numbers()),
    "measure-notears": measure("measure-notears", NUMBERS, numbers()),
    "lap-mech": measure("lap-mech", LEVELS, levels()),
    "priv-pc-star": measure("priv-pc-star", NUMBERS, numbers()),
    "direction": lambda ledger, recovery: find_direction(
        NUMBERS, numbers(), "x", "y", 1, ledger=ledger, noise=NoiseKind.EXACT, recovery=recovery
    ),
    "bounds": lambda ledger, recovery: find_bounds(
        {"x": X},
        Schema(dataset="kept", columns={"x": Numeric(bounds=UNKNOWN_BOUNDS)}, reviewed=True),
        3,
        ledger=ledger,
        noise=NoiseKind.EXACT,
        recovery=recovery,
    ),
}
ASKING: dict[str, Run] = {
    "em-pc": ask("em-pc", LEVELS, levels()),
    "svt-pc": ask("svt-pc", LEVELS, levels()),
    "priv-pc": ask("priv-pc", LEVELS, levels(), options={"rate": 0.5}),
    "curate": ask("curate", LEVELS, levels()),
    "sampled-gaussian-pc": ask("sampled-gaussian-pc", LEVELS, levels()),
    "pcd gcm": ask("pcd", NUMBERS, numbers()),
    "pcd hsic": ask("pcd", NUMBERS, numbers(), options={"test": "hsic"}),
    "noleaks": ask("noleaks", NUMBERS, numbers()),
}


class Stop(BaseException):
    """Stands for whatever ends a process."""


class Fuse:
    """Ends a run before or after a step that it has counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = -1
        self.steps = 0
        for kind, names in (
            (ExactNoise, ("discrete_laplace", "discrete_gaussian", "uniform_below")),
            (Journal, ("add",)),
        ):
            for name in names:
                monkeypatch.setattr(kind, name, self._wrap(getattr(kind, name)))

    def light(self, steps: int) -> None:
        self._left, self.steps = steps, 0

    def _burn(self) -> None:
        self.steps += 1
        if self.steps == self._left:
            raise Stop

    def _wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._burn()
            done = step(*args)
            self._burn()
            return done

        return call


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    return Fuse(monkeypatch)


def stop_at_every_step(run: Run, books: Ledger, path: Path, fuse: Fuse, most: int) -> None:
    """Stop a run at some of its steps, finish it, and look at what it was charged and what it gave."""
    fuse.light(-1)
    run(books, path)
    path.unlink()
    steps = sorted(set(np.linspace(1, fuse.steps, most).astype(int).tolist()))
    for step in steps:
        before = len(books.history("kept"))
        fuse.light(step)
        try:
            run(books, path)
        except Stop as error:
            stopped = error
        else:
            path.unlink()  # an adaptive run that was shorter than the first
            continue
        record = books.history("kept")[-1]
        if not path.exists():
            # it stopped before anything was charged
            assert record.events == ()
            assert record.state is RunState.RELEASED
            continue
        assert record.state is RunState.OPEN
        assert f"Run {record.id} stays open" in stopped.__notes__[0]
        kept = [line["values"] for line in map(json.loads, path.read_text().splitlines()[1:]) if "values" in line]
        fuse.light(-1)
        found = run(books, path)
        assert len(books.history("kept")) == before + 1
        record = books.history("kept")[-1]
        assert record.state is RunState.CLOSED
        assert found.receipt.events == record.events
        again = [line["values"] for line in map(json.loads, path.read_text().splitlines()[1:])]
        assert again[: len(kept)] == kept
        if isinstance(found, Evidence):
            released = [value for release in found.releases for value in release.values]
            assert [value for values in again for value in values] == released
        path.unlink()


@pytest.mark.parametrize("name", RELEASING)
def test_runs_that_release_are_finished(name: str, books: Ledger, tmp_path: Path, fuse: Fuse) -> None:
    stop_at_every_step(RELEASING[name], books, tmp_path / "kept.jsonl", fuse, 12)


@pytest.mark.parametrize("name", ASKING)
def test_runs_that_ask_are_finished(name: str, books: Ledger, tmp_path: Path, fuse: Fuse) -> None:
    stop_at_every_step(ASKING[name], books, tmp_path / "kept.jsonl", fuse, 4)


@pytest.fixture
def stopped(books: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a run that stopped after its first answer and the charge of its second."""
    path = tmp_path / "kept.jsonl"
    add = Journal.add

    def add_once(self: Journal, *answer: Any) -> None:
        if read_order(path)[1] == 1:
            raise Stop
        add(self, *answer)

    with monkeypatch.context() as context:
        context.setattr(Journal, "add", add_once)
        with pytest.raises(Stop):
            RELEASING["measure pairs"](books, path)
    assert read_order(path)[1] == 1
    assert len(books.history("kept")[0].events) == 2
    return path


class TestRefusals:
    def finish(self, books: Ledger, path: Path, **facts: Any) -> Evidence:
        given = {"schema": levels(), "epsilon": 3, "options": {"plan": "pairs"}, **facts}
        return measure_source(LEVELS, ledger=books, noise=NoiseKind.EXACT, recovery=path, **given)

    def test_the_file_is_for_its_owner_and_holds_what_was_released(self, books: Ledger, stopped: Path) -> None:
        assert stopped.stat().st_mode & 0o777 == 0o600
        order, _ = read_order(stopped)
        assert (order.run, order.asked["dataset"], order.asked["method"]) == (1, "kept", "measure")
        evidence = self.finish(books, stopped)
        lines = [json.loads(line) for line in stopped.read_text().splitlines()[1:]]
        assert [value for line in lines for value in line["values"]] == [
            value for release in evidence.releases for value in release.values
        ]
        assert set(lines[0]) == {"events", "question", "values", "digest"}

    def test_the_length_of_a_line_is_public(self, tmp_path: Path) -> None:
        """Or else a full disk, and so a second draw, would depend on the first."""
        order = Order(place="", run=1, started="", ledger="", created="", asked={})
        sizes = set()
        for values in ((0, 0), (-(2**63), 2**63 - 1), (12345, -1)):
            journal = Journal.create(tmp_path / "kept.jsonl", order)
            journal.add([DiscreteLaplace('"values":[] \\', 2, Fraction(1, 3))], "question", values)
            journal.close()
            sizes.add((tmp_path / "kept.jsonl").stat().st_size)
            again = Journal.reopen(tmp_path / "kept.jsonl")
            assert [kept.values for kept in again.answers] == [values]
            again.remove()
        assert len(sizes) == 1

    @pytest.mark.parametrize(
        ("facts", "words"),
        [
            ({"epsilon": 2}, "differs in: epsilon"),
            ({"schema": levels(unit="one patient")}, "differs in: schema"),
            ({"method": "lap-mech", "options": {}, "delta": 0}, "differs in: method"),
            ({"options": {}}, "differs in: settings"),
        ],
    )
    def test_another_order(self, facts: dict[str, Any], words: str, books: Ledger, stopped: Path) -> None:
        with pytest.raises(DataError, match=words) as refused:
            self.finish(books, stopped, **facts)
        assert "repeat its command to finish it at no further cost" in str(refused.value)
        assert len(books.history("kept")) == 1
        self.finish(books, stopped)

    def test_a_copy(self, books: Ledger, stopped: Path) -> None:
        copy = stopped.with_name("copy.jsonl")
        copy.write_bytes(stopped.read_bytes())
        with pytest.raises(DataError, match=r"is a copy .* Put the file back"):
            self.finish(books, copy)

    def test_an_older_copy(self, books: Ledger, stopped: Path) -> None:
        """Charges of more than one question without an answer: they may have been told before."""
        older = stopped.read_bytes()
        self.finish(books, stopped)
        stopped.write_bytes(older[: older.index(b"\n") + 1])
        with pytest.raises(LedgerError, match="older copy of the file"):
            self.finish(books, stopped)

    def test_another_ledger(self, stopped: Path, tmp_path: Path) -> None:
        other = Ledger.open(tmp_path / "other.sqlite")
        with pytest.raises(LedgerError, match=r"does not have that run: name .*ledger.sqlite"):
            self.finish(other, stopped)
        assert other.history("kept") == ()
        other.close()

    def test_a_run_that_is_still_at_work(self, books: Ledger, stopped: Path) -> None:
        held = Journal.reopen(stopped)
        with pytest.raises(DataError, match="another process is at work"):
            self.finish(books, stopped)
        held.close()
        self.finish(books, stopped)

    def test_a_line_that_was_cut_is_drawn_again(self, books: Ledger, stopped: Path) -> None:
        whole = stopped.read_bytes()
        stopped.write_bytes(whole[:-7])
        assert read_order(stopped)[1] == 0
        with pytest.raises(LedgerError, match="older copy"):
            self.finish(books, stopped)  # two answers would be drawn again, one too many

    @pytest.mark.parametrize("content", [b"", b"notes", b'{"format": "dagveil-evidence"}\n', b"\xff\xfe\n"])
    def test_another_file(self, content: bytes, books: Ledger, tmp_path: Path) -> None:
        path = tmp_path / "kept.jsonl"
        path.write_bytes(content)
        with pytest.raises(DataError, match="no recovery file"):
            self.finish(books, path)
        assert path.read_bytes() == content
        assert books.history("kept") == ()

    def test_changed_answers(self, books: Ledger, stopped: Path) -> None:
        self.finish(books, stopped)
        lines = stopped.read_text().splitlines(keepends=True)
        lines[1] = lines[1].replace('"values":[', '"values":[1', 1)
        stopped.write_text("".join(lines))
        with pytest.raises(DataError, match="line 2 does not fit"):
            self.finish(books, stopped)

    def test_rows_are_needed_for_what_is_left_only(self, books: Ledger, stopped: Path) -> None:
        kept = self.finish(books, stopped)
        again = self.finish(books, stopped)
        assert again.releases == kept.releases
        assert [record.state for record in books.history("kept")] == [RunState.CLOSED]

    def test_a_released_run_begins_anew(self, books: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "kept.jsonl"

        def stop(*_: object) -> None:
            raise Stop

        with monkeypatch.context() as context:  # as if it were killed right after the reservation
            context.setattr(Journal, "remove", Journal.close)
            context.setattr(LedgerRun, "close", lambda run: None)
            context.setattr("dagveil.runs.recovery.Curator", stop)
            with pytest.raises(Stop):
                self.finish(books, path)
        assert path.exists()
        assert books.abandon_untouched("kept") == 1
        self.finish(books, path)
        assert [record.state for record in books.history("kept")] == [RunState.RELEASED, RunState.CLOSED]

    def test_another_number_in_an_answer(self, books: Ledger, stopped: Path) -> None:
        """Still JSON, and of the same length: only the digest tells."""
        self.finish(books, stopped)
        lines = stopped.read_text().splitlines(keepends=True)
        place = lines[1].index("]", lines[1].index('"values":[')) - 1
        digit = "7" if lines[1][place] != "7" else "8"
        lines[1] = lines[1][:place] + digit + lines[1][place + 1 :]
        json.loads(lines[1])
        stopped.write_text("".join(lines))
        with pytest.raises(DataError, match="line 2 does not fit"):
            self.finish(books, stopped)

    def test_answers_are_on_disk_when_the_next_charge_is_written(
        self, books: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And a charged answer before it is told: an answer that a power cut took away could be drawn again."""
        done: list[str] = []
        path, sync, write, record = tmp_path / "kept.jsonl", os.fsync, os.write, LedgerRun.record

        def note(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
            def call(handle: int, *rest: Any) -> Any:
                if os.path.samestat(os.fstat(handle), path.stat()):
                    done.append(name)
                return step(handle, *rest)

            return call

        def charge(run: LedgerRun, event: Any) -> None:
            done.append("charge")
            record(run, event)

        monkeypatch.setattr(os, "fsync", note("sync", sync))
        monkeypatch.setattr(os, "write", note("write", write))
        monkeypatch.setattr(LedgerRun, "record", charge)
        ASKING["priv-pc"](books, path)
        assert done.count("charge") > 1
        assert done[:2] == ["write", "sync"]
        last = ""
        for step in done:
            assert not (step == "charge" and last == "write"), done
            last = step
        assert done[-1] == "sync"


def test_as_published_runs_go_on_too(books: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"

    def stop(*_: object) -> None:
        raise Stop

    def run(progress: Callable[..., None]) -> Any:
        return discover(
            LEVELS,
            levels(),
            3,
            method="svt-pc",
            calibration=Calibration.PROGRAM,
            ledger=books,
            noise=NoiseKind.EXACT,
            recovery=path,
            progress=progress,
        )

    with pytest.raises(Stop):
        run(stop)
    (record,) = books.history("kept")
    assert record.unbounded
    assert path.exists()
    assert run(lambda *_: None).receipt.events == record.events
    assert len(books.history("kept")) == 1


@pytest.mark.parametrize("ledger", [None, "books"])
def test_nothing_is_kept_without_a_ledger_or_with_a_seed(ledger: str | None, books: Ledger, tmp_path: Path) -> None:
    noise = {"noise": NoiseKind.EXACT} if ledger is None else {"noise": NoiseKind.SEEDED, "seed": 1}
    path = tmp_path / "kept.jsonl"
    measure_source(LEVELS, levels(), 3, ledger=None if ledger is None else books, recovery=path, **noise)
    assert not path.exists()


EXACT = "exact integer sampler"


@pytest.mark.parametrize(
    ("method", "options", "drew"),
    [
        ("measure", {}, "OpenDP"),
        ("svt-pc", {}, "OpenDP"),
        ("em-pc", {}, f"OpenDP; random choices: {EXACT}"),
        ("priv-pc", {"rate": 0.5}, f"OpenDP; random choices: {EXACT}"),
        ("svt-pc", {"statistic": "reconciled-g"}, f"OpenDP; random choices: {EXACT}"),
    ],
)
def test_the_receipt_names_what_drew(method: str, options: dict[str, Any], drew: str) -> None:
    found = discover(LEVELS, levels(), 3, method=method, options=options, noise=NoiseKind.OPENDP, ledger=None)
    assert found.receipt.noise == drew

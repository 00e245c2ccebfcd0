"""Whether what was paid for outlives the command line: `dagveil discover`, killed at random moments, and finished.

Run as `python -m dagveil_bench.run_kills`. After every kill each charge in the ledger must have its evidence (or,
of a method that asks, its result) or a recovery file, from which the same command finishes the run without another
charge.
"""

import contextlib
import multiprocessing
import os
import random
import runpy
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import click
import numpy as np

from dagveil.data.schema import save_schema
from dagveil.evidence.bundle import load_evidence
from dagveil.examples.networks import load_network, network_schema, sample_table
from dagveil.privacy.events import Event
from dagveil.privacy.ledger.account import RunRecord
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.runs.result import load_result

# two that release evidence and two that ask, with their settings
METHODS: Final = (
    ("measure", "--set", "plan=pairs", "--redraws", "0"),
    ("lap-mech", "--redraws", "0"),
    ("svt-pc",),
    ("priv-pc",),
)
RUNS_PER_LEDGER: Final = 40  # reserving takes longer the more runs a ledger has
LATEST: Final = 1.2  # kills fall anywhere up to this part of a run's usual time


@dataclass(frozen=True, slots=True)
class Kills:
    """What was found after so many kills, some of them before any charge, and in words what broke the promise.

    Charged runs had their evidence or result `saved`, or a recovery file, which kept so many answers in all.
    """

    kills: int
    uncharged: int
    saved: int
    kept: int
    answers: int
    lost: tuple[str, ...]

    @property
    def words(self) -> str:
        """The outcome in a few sentences."""
        found = (
            f"{self.kills} kills: {self.uncharged} before any charge, {self.saved} after the evidence or result was "
            f"saved, {self.kept} in between, which left a recovery file ({self.answers} answers) and were finished at "
            f"no further cost. Charges without either, or charged twice: {len(self.lost)}."
        )
        return "\n".join((found, *self.lost))


def run_kills(kills: int, folder: Path, seed: int = 0) -> Kills:
    """Kill runs and finish them, one process at a time."""
    rng = random.Random(seed)
    table, schema = folder / "cancer.csv", folder / "cancer.toml"
    network = load_network("cancer")
    from pyarrow import csv

    csv.write_csv(sample_table(network, 500, np.random.default_rng(seed)), table)
    save_schema(network_schema(network, 500), schema)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dagveil.cli.main", "dagveil.privacy.ledger.store"])
    counts = {"uncharged": 0, "saved": 0, "kept": 0, "answers": 0}
    lost: list[str] = []
    usual: dict[str, list[float]] = {}
    for number in range(kills):
        method = METHODS[number % len(METHODS)]
        out, ledger = folder / f"out-{number}", folder / f"ledger-{number // RUNS_PER_LEDGER}.sqlite"
        words = ["discover", str(table), "--schema", str(schema), "--epsilon", "1", "--noise", "exact", "--method"]
        words += [*method, "--ledger", str(ledger)]
        while len(usual.setdefault(method[0], [])) < 2:  # the first one starts the server of processes, too
            began = time.monotonic()
            _end(_start(context, [*words, "-o", str(folder / f"usual-{method[0]}")]), None)
            usual[method[0]].append(time.monotonic() - began)
        words += ["-o", str(out)]
        before = {run.id for run in _read_runs(ledger)}
        while True:
            is_killed = _end(_start(context, words), rng.uniform(0, LATEST * min(usual[method[0]])))
            run = next((run for run in _read_runs(ledger) if run.id not in before), None)
            recovery = out / "recovery.jsonl"
            if run is None or not run.events:
                counts["uncharged"] += 1
                break
            if _read_paid(out) == run.events:
                counts["saved"] += 1
                break
            if not recovery.exists():
                lost.append(f"run {run.id} of {method[0]} in {ledger.name} was charged and left nothing")
                break
            # now and then the run that finishes it is killed as well
            if is_killed and rng.random() < 0.3:
                continue
            counts["kept"] += 1
            counts["answers"] += recovery.read_bytes().count(b"\n") - 1
            _end(_start(context, words), None)
            again = [one for one in _read_runs(ledger) if one.id not in before]
            if len(again) != 1 or _read_paid(out) != again[0].events or recovery.exists():
                lost.append(f"run {run.id} of {method[0]} in {ledger.name} could not be finished")
            break
    return Kills(kills, counts["uncharged"], counts["saved"], counts["kept"], counts["answers"], tuple(lost))


def _start(context: multiprocessing.context.ForkServerContext, words: list[str]) -> ForkServerProcess:
    process = context.Process(target=_run, args=(words,))
    process.start()
    return process


def _run(words: list[str]) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    sys.argv = ["dagveil", *words]
    runpy.run_module("dagveil.cli.main", run_name="__main__")  # a layer above this one


def _end(process: ForkServerProcess, seconds: float | None) -> bool:
    """Kill a process after so many seconds, or let it end; tell whether it was killed."""
    process.join(seconds)
    is_killed = process.is_alive()
    process.kill()
    process.join()
    process.close()
    return is_killed


def _read_runs(ledger: Path) -> tuple[RunRecord, ...]:
    if not ledger.exists():
        return ()
    books = Ledger.open(ledger)
    runs = books.history()
    books.close()
    return runs


def _read_paid(out: Path) -> tuple[Event, ...] | None:
    """Return what the evidence, or the result of a method that asks, was charged."""
    with contextlib.suppress(Exception):
        return load_evidence(out / "evidence.json").receipt.events
    with contextlib.suppress(Exception):
        return load_result(out / "result.json").receipt.events
    return None


@click.command()
@click.option("--kills", type=click.IntRange(1), default=500, show_default=True, help="How many.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the moments.")
def main(kills: int, seed: int) -> None:
    """Kill `dagveil discover` at random moments, and look for charges that left nothing."""
    with tempfile.TemporaryDirectory() as folder:
        found = run_kills(kills, Path(folder), seed)
    click.echo(found.words)
    sys.exit(1 if found.lost else 0)


if __name__ == "__main__":
    main()

"""How many reports a second the collector takes, and whether it loses any that it acknowledged when it is killed.

Run as `python -m dagveil_bench.collector_load`. Server and clients share the machine: the server in a process of
its own, the clients as threads of this one.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import click
import numpy as np

from dagveil.data.column import Categorical
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.local.device import Sender
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Mechanism, Protocol
from dagveil.local.store import ReportStore

COLUMNS: Final = 8
LEVELS: Final = 4
SECONDS_TO_START: Final = 120.0
TRIES: Final = 400  # of one batch; with a wait of at most a quarter of a second that outlives a restart


@dataclass(frozen=True, slots=True)
class Load:
    """What clients got acknowledged, and what the store holds afterwards.

    An acknowledgement that a kill swallowed leaves a batch more in the store; batches that clients gave up on may be
    stored or not. Of the acknowledged batches the store lacks the `lost`, holds the `doubled` twice, and the `changed`
    otherwise than sent.
    """

    clients: int
    batch_size: int
    seconds: float
    kills: int
    acknowledged_batches: int
    acknowledged_reports: int
    stored_batches: int
    given_up: int
    lost: int
    doubled: int
    changed: int

    @property
    def rate(self) -> float:
        """Acknowledged reports a second."""
        return self.acknowledged_reports / self.seconds


@dataclass(slots=True)
class _Tally:
    """What one client was told."""

    sent: dict[UUID, bytes] = field(default_factory=dict)
    given_up: int = 0


class Server:
    """A collector in a process of its own, that can be killed and started again on the same port."""

    def __init__(self, folder: Path, protocol: Protocol) -> None:
        self.folder = folder
        self.store = folder / "reports.db"
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        protocol.save(folder / "protocol.json")

    def start(self) -> None:
        """Start, and wait until the port is bound."""
        words = ("local", "collect", "--protocol", "protocol.json", "--store", self.store.name, "--port")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dagveil.cli.main", *words, str(self.port)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        watch = threading.Timer(SECONDS_TO_START, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        if " at http://" not in line:
            raise DataError("the collector did not start; run `dagveil local collect` to see why")
        self.port = int(line.split(" at http://")[1].split(" ")[0].rsplit(":", 1)[1])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


def run_load(
    seconds: float, batch_size: int, clients: int = 8, kills: int = 0, told: Callable[[str], None] = lambda words: None
) -> Load:
    """Send reports from several clients at once, kill the server meanwhile, and compare what the store holds.

    With kills, `seconds` is how long at least there is between the first and the last. Each client is a thread that
    sends as fast as it is answered.
    """
    columns = {f"c{j}": Categorical(tuple("abcd"[:LEVELS]), outside="a") for j in range(COLUMNS)}
    protocol = plan_protocol(Schema(dataset="load", columns=columns, reviewed=True), Mechanism.RESPONSE, epsilon=8.0)
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name), protocol)
        try:
            server.start()
            with _clients(server.url, protocol, batch_size, clients) as (tallies, begun):
                if not kills:
                    time.sleep(seconds)
                for number in range(kills):
                    time.sleep(rng.uniform(0.5, 1.5) * seconds / kills)
                    server.stop(signal.SIGKILL)
                    server.start()
                    told(f"killed and started again {number + 1} of {kills}")
                if kills:
                    time.sleep(min(1.0, seconds / kills))
                elapsed = time.perf_counter() - begun
            # clients ended after their last answer: that is time too
            elapsed = max(elapsed, time.perf_counter() - begun)
        finally:
            server.stop()
        acknowledged = {batch: codes for tally in tallies for batch, codes in tally.sent.items()}
        given_up = sum(tally.given_up for tally in tallies)
        return _compare(server.store, acknowledged, batch_size, clients, elapsed, kills, given_up)


@contextlib.contextmanager
def _clients(url: str, protocol: Protocol, batch_size: int, clients: int) -> Iterator[tuple[list[_Tally], float]]:
    over = threading.Event()
    tallies = [_Tally() for _ in range(clients)]
    digest = protocol.digest()

    def work(tally: _Tally, seed: int) -> None:
        rng = np.random.default_rng(seed)
        blocks = [rng.integers(0, LEVELS, (batch_size, COLUMNS)) for _ in range(16)]
        sender = Sender(url, TRIES, lambda seconds: time.sleep(min(seconds, 0.25)))
        with contextlib.closing(sender):
            while not over.is_set():
                batch, codes = uuid4(), blocks[len(tally.sent) % len(blocks)]
                try:
                    sender.send(codes, digest, batch)
                except DataError:
                    tally.given_up += 1
                    continue  # not acknowledged, so nothing is claimed about it
                tally.sent[batch] = codes.astype(np.uint8).tobytes()

    threads = [threading.Thread(target=work, args=(tally, seed)) for seed, tally in enumerate(tallies)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    try:
        yield tallies, begun
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _compare(
    path: Path,
    acknowledged: dict[UUID, bytes],
    batch_size: int,
    clients: int,
    seconds: float,
    kills: int,
    given_up: int,
) -> Load:
    found: dict[UUID, int] = {}
    changed = 0
    with ReportStore.open(path) as store:
        for batch, codes in store.read():
            found[batch] = found.get(batch, 0) + 1
            changed += batch in acknowledged and codes.astype(np.uint8).tobytes() != acknowledged[batch]
    return Load(
        clients,
        batch_size,
        seconds,
        kills,
        len(acknowledged),
        len(acknowledged) * batch_size,
        sum(found.values()),
        given_up,
        lost=sum(batch not in found for batch in acknowledged),
        doubled=sum(times > 1 for times in found.values()),
        changed=changed,
    )


def write_page(rates: list[Load], killed: Load, busy: float, command: str) -> str:
    """Write the results as a page; `busy` is how many other processes wanted the cores before."""
    lines = [
        "# Collector",
        "",
        f"Clients send batches of reports ({COLUMNS} columns, {LEVELS} levels each) to `dagveil local collect` over "
        "loopback, each as fast as it is answered. A batch is acknowledged when SQLite has it on disk. Server and "
        "clients "
        f"share {os.cpu_count()} cores, which {busy:.0f} other processes also wanted on average in the minute before. "
        "Written by",
        "",
        f"    {command}",
        "",
        "| clients | reports in a batch | seconds | batches acknowledged | reports acknowledged | reports a second |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {load.clients} | {load.batch_size} | {load.seconds:.0f} | {load.acknowledged_batches} | "
        f"{load.acknowledged_reports} | {load.rate:.0f} |"
        for load in rates
    ]
    lines += [
        "",
        "## Killed under load",
        "",
        f"The server was killed by SIGKILL {killed.kills} times while {killed.clients} clients sent batches of "
        f"{killed.batch_size}, and started again each time on the same store.",
        "",
        "| batches acknowledged | given up | stored | acknowledged and lost | stored twice | stored otherwise than "
        "sent |",
        "|---|---|---|---|---|---|",
        f"| {killed.acknowledged_batches} | {killed.given_up} | {killed.stored_batches} | {killed.lost} | "
        f"{killed.doubled} | {killed.changed} |",
        "",
        "A batch can be stored without its acknowledgement reaching the client. The client sends it again, and it is "
        "not stored twice.",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=60.0, show_default=True, help="Of each load.")
@click.option("--clients", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--batch-sizes", default="1,100", show_default=True, metavar="LIST")
@click.option("--kills", type=click.IntRange(1, 100), default=20, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A page; otherwise it is printed.")
def main(seconds: float, clients: int, batch_sizes: str, kills: int, output: Path | None) -> None:
    """Measure the collector under load, and kill it."""
    sizes = [int(size) for size in batch_sizes.split(",")]
    busy = os.getloadavg()[0]
    rates = []
    for size in sizes:
        rates.append(run_load(seconds, size, clients))
        click.echo(f"batches of {size}: {rates[-1].rate:.0f} reports a second", err=True)
    killed = run_load(seconds, 10, clients, kills, lambda words: click.echo(words, err=True))
    command = "python -m dagveil_bench.collector_load -o bench/results/collector.md"
    page = write_page(rates, killed, busy, command)
    if output is None:
        click.echo(page, nl=False)
    else:
        output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Whether the ledger holds under fire: many processes, killed at random, over a line that is cut.

Run as `python -m dagveil_bench.ledger_load`. Every process notes each drawing of noise after its charge returned.
At the end every note must have its entry, and nothing may be spent beyond budget and limits.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, TypeVar

import click
from sqlalchemy.engine import make_url

from dagveil.errors import DataError, LedgerError
from dagveil.privacy.budget import Budget, epsilon_of_rho
from dagveil.privacy.events import SparseVectorRound
from dagveil.privacy.ledger.account import CONVERSION_SHARE, RunState, price_run
from dagveil.privacy.ledger.ledger import Ledger
from dagveil_bench.cut_line import CutLine
from dagveil_bench.ledger_worker import DATASET, LINE, PURE_BUDGET, TERMS, work
from dagveil_bench.postgres_server import start_server
from dagveil_bench.tables import write_table

Answer = TypeVar("Answer")

ANALYSTS: Final = ("ann", "ben", "cleo", "dan")
# of the lifetime budget, for each analyst: together more than there is, so both kinds of limit bind
ANALYST_SHARE: Final = Fraction(3, 10)
WAIT_SECONDS: Final = 30.0
LONGEST_SILENCE: Final = 120.0  # seconds without any progress after which the load gives up


@dataclass(frozen=True, slots=True)
class Fire:
    """What the load did and what the ledger holds afterwards.

    The line was reset `cuts` times and silent `stalls` times. Untouched runs were released, or left open by a kill.
    `missing` counts noise noted as drawn that has no entry. `spent` is the sum of all epsilons, `composed` what they
    compose to. While the load ran, what was spent and reserved was `overspent` times beyond the lifetime budget.
    `over_limit` counts analysts, `other_terms` runs under another relation than the first, which every process asks for
    too; `problem` is what verification found.
    """

    engine: str
    processes: int
    seconds: float
    kills: int
    cuts: int
    stalls: int
    charges: int
    runs: int
    untouched: int
    draws: int
    missing: int
    spent: Fraction
    composed: Fraction
    lifetime: Fraction
    overspent: int
    over_limit: int
    other_terms: int
    problem: str | None

    @property
    def holds(self) -> bool:
        """Whether nothing is missing and nothing is overspent."""
        broken = self.missing + self.overspent + self.over_limit + self.other_terms
        return broken == 0 and self.composed <= self.lifetime and self.problem is None


class LoadWorkers:
    """Processes that spend, each with a log of its own over all its lives."""

    def __init__(self, place: Callable[[str], str], folder: Path, processes: int, charges: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["dagveil_bench.ledger_worker", "dagveil.privacy.ledger.engine"])
        self._place = place
        self._folder = folder
        self._charges = charges
        self._logs = [folder / f"{number}.log" for number in range(processes)]
        self.living = {number: self._start(number) for number in range(processes)}

    def _start(self, number: int) -> ForkServerProcess:
        analyst = ANALYSTS[number % len(ANALYSTS)]
        arguments = (self._place(analyst), analyst, str(self._logs[number]), self._charges, WAIT_SECONDS)
        process = self._context.Process(target=work, args=arguments, daemon=True)
        process.start()
        return process

    def kill(self, rng: random.Random) -> None:
        """Kill one process in the middle of whatever it does, and start another in its place."""
        number = rng.choice(sorted(self.living))
        self.living[number].kill()
        self.living[number].join()
        self.living[number] = self._start(number)

    def tidy(self) -> None:
        """Forget processes that were refused and ended."""
        for number, process in list(self.living.items()):
            if not process.is_alive():
                if process.exitcode != 0:
                    raise DataError(f"a process of the load ended with code {process.exitcode}; see its output above")
                del self.living[number]

    def count_draws(self) -> int:
        """Return how many drawings were noted so far."""
        return sum(log.stat().st_size // LINE for log in self._logs if log.exists())

    def read_draws(self) -> set[tuple[int, str]]:
        """Return run and name of each drawing that was noted."""
        lines = [line for log in self._logs if log.exists() for line in log.read_text("ascii").splitlines()]
        return {(int(line[:10]), line[11:]) for line in lines}

    def show(self) -> None:
        """Let all processes print where they are."""
        for process in self.living.values():
            if process.pid is not None:
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(2)

    def stop(self) -> None:
        """End whatever is left."""
        for process in self.living.values():
            process.kill()
            process.join()


def run_fire(
    engine: str,
    charges: int,
    processes: int = 16,
    charges_a_run: int = 10,
    kills: int = 0,
    cuts: int = 0,
    told: Callable[[str], None] = lambda words: None,
) -> Fire:
    """Spend a budget with several processes, kill them and cut their line meanwhile, and look at what the ledger holds.

    The engine is "sqlite" or "postgresql", which starts a server of its own on loopback. The lifetime budget has room
    for about so many charges, and for runs that kills and cuts waste. Killed processes are replaced. Every third time
    the line to PostgreSQL goes silent before it is cut.
    """
    if engine == "sqlite" and cuts:
        raise DataError("a file has no line that could be cut; leave out cuts with sqlite")
    rng = random.Random(1)
    room = charges // charges_a_run + kills + cuts * processes // 2
    # so that the composed sum binds, when half of the runs are pure and the others cost far less
    price = price_run(PURE_BUDGET, "pure accounting").rho / 2
    delta = Fraction(1, 1000)
    lifetime = Budget(epsilon_of_rho(room * price, delta * CONVERSION_SHARE), delta)
    share = Budget(epsilon_of_rho(room * price * ANALYST_SHARE, delta * CONVERSION_SHARE), delta)
    with tempfile.TemporaryDirectory() as name, _places(engine, Path(name)) as (direct, place, line):
        books = Ledger.open(direct, WAIT_SECONDS)
        books.set_budget(DATASET, lifetime)
        for analyst in ANALYSTS:
            books.set_limit(DATASET, analyst, share)
        with books.reserve(DATASET, PURE_BUDGET, TERMS, "pure accounting", "load", "dagveil load") as first:
            first.record(SparseVectorRound("first", Fraction(1, 5000)))
        begun = time.perf_counter()
        crew = LoadWorkers(place, Path(name), processes, charges_a_run)
        overspent = 0
        done = {"kill": 0, "cut": 0}
        wanted = sorted(
            [(rng.uniform(0.02, 0.9), "kill") for _ in range(kills)]
            + [(rng.uniform(0.02, 0.9), "cut") for _ in range(cuts)]
        )
        heard, heard_at = -1, time.perf_counter()
        try:
            while crew.living:
                draws = crew.count_draws()
                if draws != heard:
                    heard, heard_at = draws, time.perf_counter()
                if time.perf_counter() - heard_at > LONGEST_SILENCE:
                    crew.show()
                    raise DataError(f"no charge for {LONGEST_SILENCE:g} s after {draws}; the ledger is stuck")
                if wanted and draws >= wanted[0][0] * charges:
                    what = wanted.pop(0)[1]
                    done[what] += 1
                    if what == "kill":
                        crew.kill(rng)
                        # living runs too: they must stop before they draw
                        _patiently(lambda: books.abandon_untouched(DATASET))
                    elif line is not None:
                        (line.stall if done["cut"] % 3 == 0 else line.cut)(rng.uniform(0.2, 1.0))
                    told(f"{draws} charges, {done['kill']} kills, {done['cut']} cuts")
                account = _patiently(lambda: books.account(DATASET))
                overspent += account.lifetime is None or not account.lifetime.admits(account.spending.counted)
                time.sleep(0.2)
                crew.tidy()
        finally:
            crew.stop()
        elapsed = time.perf_counter() - begun
        account, runs = books.account(DATASET), books.history(DATASET)
        entered = [(run.id, event.label) for run in runs for event in run.events]
        drawn = crew.read_draws()
        fire = Fire(
            engine,
            processes,
            elapsed,
            done["kill"],
            done["cut"] - done["cut"] // 3,
            done["cut"] // 3,
            charges=len(entered),
            runs=len(runs),
            untouched=sum(run.state is RunState.RELEASED or not run.events for run in runs),
            draws=len(drawn),
            missing=len(drawn - set(entered)),
            spent=account.spent_epsilon,
            composed=account.lifetime_epsilon,
            lifetime=lifetime.epsilon,
            overspent=overspent,
            over_limit=sum(
                item.limit is not None and not item.limit.admits(item.spending.counted) for item in account.shares
            ),
            other_terms=sum(run.terms != TERMS for run in runs),
            problem=books.verify().problem,
        )
        books.close()
        return fire


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask until there is an answer: SQLite's locks are not fair, and the crew is greedy."""
    while True:
        try:
            return ask()
        except LedgerError:
            time.sleep(0.1)


@contextlib.contextmanager
def _places(engine: str, folder: Path) -> Iterator[tuple[str, Callable[[str], str], CutLine | None]]:
    """Give the ledger's address for us, the one for an analyst, and the line that can be cut."""
    if engine == "sqlite":
        path = str(folder / "ledger.sqlite")
        yield path, lambda analyst: path, None
        return
    import psycopg

    with start_server() as url:
        books = Ledger.open(url)
        with psycopg.connect(url) as connection:
            for analyst in ANALYSTS:
                connection.execute(psycopg.sql.SQL("CREATE ROLE {} LOGIN").format(psycopg.sql.Identifier(analyst)))
        for analyst in ANALYSTS:
            books.grant(analyst)
        books.close()
        server = make_url(url)
        assert server.port is not None
        with CutLine(server.port) as line:
            yield (
                url,
                lambda analyst: server.set(username=analyst, port=line.port).render_as_string(hide_password=False),
                line,
            )


def write_page(fires: list[Fire], busy: float, command: str) -> str:
    """Write the results as a page; `busy` is how many other processes wanted the cores before."""
    lines = [
        "# Ledger under fire",
        "",
        "Several processes reserve runs on one ledger, record charges, and note each drawing of noise right after its "
        "charge returned. Some are killed by SIGKILL at random and replaced, and what they had reserved without using "
        "it is released, also under living runs. On PostgreSQL the processes are four roles with limits of their own, "
        "and reach the server over a line that is cut: all connections are reset, or everything on the way is "
        "swallowed. Half of the runs are pure and half Gaussian, and the account composes them; one in five asks for "
        "another relation, which must be refused. They go on until the ledger refuses. The machine has "
        f"{os.cpu_count()} cores, which {busy:.0f} other processes also wanted on average in the minute before. "
        "Written by",
        "",
        f"    {command}",
        "",
    ]
    rows: list[tuple[str, Callable[[Fire], str]]] = [
        ("processes", lambda fire: str(fire.processes)),
        ("seconds", lambda fire: f"{fire.seconds:.0f}"),
        ("processes killed", lambda fire: str(fire.kills)),
        ("line cut, of these after silence", lambda fire: f"{fire.cuts + fire.stalls}, {fire.stalls}"),
        ("charges in the ledger", lambda fire: str(fire.charges)),
        ("drawings of noise", lambda fire: str(fire.draws)),
        ("**drawings without a charge**", lambda fire: f"**{fire.missing}**"),
        ("charges whose noise was never drawn", lambda fire: str(fire.charges - fire.draws + fire.missing)),
        ("runs, of these untouched", lambda fire: f"{fire.runs}, {fire.untouched}"),
        ("sum of all ε", lambda fire: f"{float(fire.spent):.4f}"),
        ("lifetime ε, at δ = 10⁻³", lambda fire: f"{float(fire.lifetime):.4f}"),
        ("**composed ε of all runs**", lambda fire: f"**{float(fire.composed):.4f}**"),
        ("**looks at which more was spent and reserved**", lambda fire: f"**{fire.overspent}**"),
        ("**analysts beyond their limit**", lambda fire: f"**{fire.over_limit}**"),
        ("**runs under another relation**", lambda fire: f"**{fire.other_terms}**"),
        ("`dagveil budget verify`", lambda fire: fire.problem or "all entries fit"),
    ]
    lines += [
        write_table(
            ("", *(fire.engine for fire in fires)), [(name, *(value(fire) for fire in fires)) for name, value in rows]
        ),
        "",
        "A charge can be in the ledger although its noise was never drawn: the process was killed in between, or the "
        "line broke before it heard that the charge was written. That costs budget, never privacy.",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--charges", type=click.IntRange(10, 1_000_000), default=10_000, show_default=True, help="On PostgreSQL.")
@click.option(
    "--file-charges",
    type=click.IntRange(10, 1_000_000),
    default=1_000,
    show_default=True,
    help="On SQLite, whose file is locked as a whole and synced several times for each charge.",
)
@click.option("--processes", type=click.IntRange(1, 64), default=16, show_default=True)
@click.option("--kills", type=click.IntRange(0, 1000), default=60, show_default=True, help="On each.")
@click.option("--cuts", type=click.IntRange(0, 1000), default=30, show_default=True, help="Of the line to PostgreSQL.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A page; otherwise it is printed.")
def main(charges: int, file_charges: int, processes: int, kills: int, cuts: int, output: Path | None) -> None:
    """Spend a budget under fire, on PostgreSQL and on SQLite. The exit code is 1 if the ledger does not hold."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that servers are stopped, too
    busy = os.getloadavg()[0]
    fires = []
    for engine, wanted, cut in (("postgresql", charges, cuts), ("sqlite", file_charges, 0)):
        fires.append(
            run_fire(engine, wanted, processes, kills=kills, cuts=cut, told=lambda words: click.echo(words, err=True))
        )
        click.echo(f"{engine}: {'holds' if fires[-1].holds else 'DOES NOT HOLD'}", err=True)
    command = "python -m dagveil_bench.ledger_load -o bench/results/ledger-load.md"
    page = write_page(fires, busy, command)
    if output is None:
        click.echo(page, nl=False)
    else:
        output.write_text(page, encoding="utf-8")
    if not all(fire.holds for fire in fires):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

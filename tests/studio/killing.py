"""Processes of jobs that are killed at a chosen moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

from caller import Caller
from live_server import SOURCE

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
KILLED = {
    "after the first charge": f"ExactNoise.discrete_gaussian = ExactNoise.discrete_laplace = lambda *a: {KILL}",
    "after the draw": f"Journal.add = lambda *a: {KILL}",
    "after the first answer": f"add = Journal.add\nJournal.add = lambda *a: (add(*a), {KILL})",
    "before the run is closed": f"SqlLedger.close_run = lambda *a: {KILL}",
    "before it is saved": f"Evidence.save = Result.save = lambda *a: {KILL}",
    "in the middle of saving": f"Evidence.save = Result.save = lambda self, path: (path.write_text('half'), {KILL})",
    "before it has its name": "replace = os.replace\nos.replace = lambda part, place: "
    f"{KILL} if pathlib.Path(place).name in PAID else replace(part, place)",
}
WORKER = textwrap.dedent(
    """
    import os, pathlib, signal, sys
    from dagveil.curator.journal import Journal
    from dagveil.evidence.bundle import Evidence
    from dagveil.runs.result import Result
    from dagveil.privacy.ledger.store import SqlLedger
    from dagveil.privacy.noise.exact import ExactNoise
    from dagveil.studio.jobs import PAID
    from dagveil.studio.worker import main
    {}
    main()
    """
)


def kill_worker(studio: Caller, job_id: str, moment: str) -> None:
    """Run a job in a process that kills itself at a moment, and let the studio find it dead."""
    assert studio.service.store.start(job_id)
    studio.service.folder.results(job_id).mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", WORKER.format(moment), str(studio.folder), job_id],
        env={**os.environ, "PYTHONPATH": SOURCE, "DAGVEIL_LEDGER": str(studio.folder / "ledger.sqlite")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    studio.service.runner.tick()

"""A Spark cluster of one's own on loopback, one master and some workers, for tests and timing; gone afterwards."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagveil.errors import MissingExtraError
from dagveil_bench.postgres_server import find_port

START_SECONDS = 180.0  # how long the master may take to start, and the workers to find it


@dataclass(frozen=True, slots=True, eq=False)
class SparkCluster:
    """A running cluster: its spark:// URL, and its workers."""

    url: str
    log: Path
    _workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def lose_worker(self) -> None:
        """Kill one worker, and its executors with it, as a machine that fails would."""
        _kill(self._workers.pop(0))


@contextlib.contextmanager
def start_cluster(workers: int = 2, cores: int = 1, memory: str = "1200m") -> Iterator[SparkCluster]:
    """Start a cluster that nobody else uses, and stop it afterwards.

    An executor asks for 1 GB unless told otherwise.
    """
    home = _find_home()
    folder = Path(tempfile.mkdtemp(prefix="dagveil-spark-"))
    port = find_port()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
    }
    # the driver is this process, and executors run the Python that it names
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = folder / "log"
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            # a group of processes each, so that executors end with their worker
            options: dict[str, Any] = {"env": environment, "start_new_session": True, "preexec_fn": _die_with_parent}
            options |= {"stdout": output, "stderr": output}
            daemon = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
            place = ["--host", "127.0.0.1", "--webui-port", "0"]
            master = [daemon[0], f"{daemon[1]}.master.Master", *place, "--port", str(port)]
            started.append(subprocess.Popen(master, **options))
            _wait_for(log, "I have been elected leader", 1)
            for number in range(workers):
                work = ["-c", str(cores), "-m", memory, "-d", str(folder / f"worker{number}"), url]
                started.append(subprocess.Popen([daemon[0], f"{daemon[1]}.worker.Worker", *place, *work], **options))
            _wait_for(log, "Successfully registered with master", workers)
            yield SparkCluster(url, log, started[1:])
    finally:
        for process in started:
            _kill(process)
        shutil.rmtree(folder, ignore_errors=True)


def _find_home() -> Path:
    if shutil.which("java") is None:
        raise MissingExtraError("Spark needs Java 17: install openjdk-17-jre-headless")
    try:
        import pyspark
    except ImportError as error:
        raise MissingExtraError("Spark is missing: pip install 'dagveil[spark]'") from error
    return Path(pyspark.__path__[0])


def _die_with_parent() -> None:
    """Ask Linux to end this process with its parent, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait_for(log: Path, words: str, times: int) -> None:
    end = time.monotonic() + START_SECONDS
    while log.read_text(encoding="utf-8", errors="replace").count(words) < times:
        if time.monotonic() > end:
            raise MissingExtraError(f"the Spark cluster did not start in {START_SECONDS:.0f} s")
        time.sleep(0.2)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""A PostgreSQL server of our own on loopback."""

from __future__ import annotations

import getpass
import glob
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _binaries() -> Path | None:
    for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if Path(folder, "initdb").exists() and Path(folder, "postgres").exists():
            return Path(folder)
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("postgres") else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _give_up(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must test PostgreSQL, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Start a server that nobody else uses, and stop it afterwards."""
    binaries = _binaries()
    if binaries is None:
        _give_up("PostgreSQL's initdb and postgres were not found; install postgresql to run these tests")
        return
    as_owner: list[str] = []
    owner = getpass.getuser()
    if os.geteuid() == 0:  # the server refuses to run as root
        if shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            _give_up("the tests run as root and there is no user postgres to run the server")
            return
        as_owner, owner = ["runuser", "-u", "postgres", "--"], "postgres"
    folder = Path(tempfile.mkdtemp(prefix="dagveil-postgres-"))
    if as_owner:
        shutil.chown(folder, "postgres")
    port = _free_port()
    data = folder / "data"
    control = [*as_owner, str(binaries / "pg_ctl"), "-D", str(data), "-w", "-t", "60"]
    quiet = {"check": True, "cwd": str(folder), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        create = [*as_owner, str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", owner, "-E", "UTF8", "-N"]
        subprocess.run(create, **quiet)
        settings = f"-h 127.0.0.1 -p {port} -c unix_socket_directories={folder}"
        subprocess.run([*control, "-l", str(folder / "log"), "-o", settings, "start"], **quiet)
        try:
            yield f"postgresql://{owner}@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

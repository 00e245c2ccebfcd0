"""A PostgreSQL server of one's own on loopback, for tests and load; gone afterwards."""

import contextlib
import getpass
import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagveil.errors import LedgerError


def find_binaries() -> Path | None:
    """Return the folder of initdb and postgres, the newest if there are several."""
    for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if Path(folder, "initdb").exists() and Path(folder, "postgres").exists():
            return Path(folder)
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("postgres") else None


@contextlib.contextmanager
def start_server() -> Iterator[str]:
    """Start a server that nobody else uses, and stop it afterwards; give its address."""
    binaries = find_binaries()
    if binaries is None:
        raise LedgerError("PostgreSQL's initdb and postgres were not found; install postgresql.")
    owner = getpass.getuser()
    account = None
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            account = pwd.getpwnam("postgres")
        except KeyError:
            raise LedgerError("root cannot run a server, and there is no user postgres that could.") from None
        owner = account.pw_name
    folder = Path(tempfile.mkdtemp(prefix="dagveil-postgres-"))
    quiet: dict[str, Any] = {"check": True, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if account is not None:
        quiet |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        shutil.chown(folder, account.pw_uid, account.pw_gid)
    port = find_port()
    data = folder / "data"
    control = [str(binaries / "pg_ctl"), "-D", str(data), "-w", "-t", "60"]
    try:
        create = [str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", owner, "-E", "UTF8", "-N"]
        subprocess.run(create, **quiet)
        settings = f"-h 127.0.0.1 -p {port} -c unix_socket_directories={folder}"
        subprocess.run([*control, "-l", str(folder / "log"), "-o", settings, "start"], **quiet)
        try:
            yield f"postgresql://{owner}@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_port() -> int:
    """Return a port of loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

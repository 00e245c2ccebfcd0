"""`dagveil studio` as a person starts it, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec

SOURCE = str(Path(__file__).parents[2] / "src")


class Server:
    """`dagveil studio` as a person starts it."""

    def __init__(self, folder: Path) -> None:
        variables = {name: value for name, value in os.environ.items() if name != "DAGVEIL_LEDGER"}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "dagveil.cli.main",
                "studio",
                str(folder),
                "--ledger",
                str(folder / "ledger.sqlite"),
            ],
            env={**variables, "PYTHONPATH": SOURCE},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)", line)
        assert found, line
        self.address, self.token = found[1], found[2]
        self.folder = folder
        self.home = self.address
        """Where the pages are; a browser is told when it enters."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        content = None if body is None else msgspec.json.encode(body)
        with urlopen(Request(self.address + path, content, headers, method=method), timeout=60) as answer:
            return msgspec.json.decode(answer.read())

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

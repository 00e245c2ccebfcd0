"""A custodian's desk: a folder with a ledger of its own, on which commands are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import dagveil
from dagveil.cli.main import group
from dagveil.privacy.ledger import Ledger, RunRecord

SECRET = "SECRET-VALUE"
"""Stands in cells; no message and no file that is released may hold it."""

ORDINARY_USER = 65534
SOURCE = str(Path(dagveil.__file__).parents[1])

TWO_COLUMNS = """
[columns.a]
kind = "categorical"
levels = ["no", "yes"]
[columns.b]
kind = "categorical"
levels = ["no", "yes"]
"""

TWO_NUMBERS = """
[columns.a]
kind = "numeric"
bounds = [-5.0, 5.0]
[columns.b]
kind = "numeric"
bounds = [-5.0, 5.0]
"""

ROWS = f"a,b\n{SECRET},no\n" + "no,no\nyes,yes\n" * 20


class Desk:
    """Runs commands and looks into the ledger; every path is relative to the desk's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger.sqlite"
        self.out = folder / "out"

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, content: str | bytes) -> str:
        path = self.path(name)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def write_schema(
        self, columns: str = TWO_COLUMNS, *, name: str = "schema.toml", facts: str = "nominal_rows = 40"
    ) -> str:
        return self.write(name, f'[dataset]\nname = "patients"\nreviewed = true\n{facts}\n{columns}')

    def run(self, *words: object, **environment: str) -> Result:
        """Run a command in this process."""
        variables = {"DAGVEIL_LEDGER": str(self.ledger), "DAGVEIL_DEBUG": "", **environment}
        return CliRunner(env=variables).invoke(group, [str(word) for word in words])

    def spawn(self, *words: object, prelude: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command as users do, in a process of its own; `prelude` is code that runs before it."""
        start = (
            ("-c", f"{prelude}\nfrom dagveil.cli.main import main\nmain()") if prelude else ("-m", "dagveil.cli.main")
        )
        variables = {**os.environ, "DAGVEIL_LEDGER": str(self.ledger), "DAGVEIL_DEBUG": "", "PYTHONPATH": SOURCE}
        return subprocess.run(
            [sys.executable, *start, *(str(word) for word in words)],
            cwd=self.folder,
            env={**variables, "PYTHONIOENCODING": "utf-8", **environment},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
        )

    def discover(
        self, file: object, schema: object, *words: object, epsilon: object = 1, delta: object = 1e-6
    ) -> Result:
        """Run `discover` on rows, quickly."""
        return self.run(
            *("discover", file, "--schema", schema, "--epsilon", epsilon, "--delta", delta),
            *("--noise", "exact", "--redraws", 5, "-o", self.out, *words),
        )

    def history(self) -> tuple[RunRecord, ...]:
        if not self.ledger.is_file():
            return ()
        books = Ledger.open(self.ledger)
        runs = books.history()
        books.close()
        return runs

    def check_nothing_spent(self) -> None:
        """Look at every account and every run."""
        assert not any(run.events for run in self.history())
        if not self.ledger.is_file():
            return
        books = Ledger.open(self.ledger)
        for name in books.datasets():
            account = books.account(name)
            assert account.spent_epsilon == account.spending.spent.delta == 0
            assert account.spending.reserved.epsilon == account.spending.reserved.delta == 0
        books.close()

    def check_refused(self, result: Result, what: str, next_step: str) -> None:
        """Check the message, that it holds no cell, the exit code, and that nothing was spent or written."""
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert re.search(what, result.stderr), result.stderr
        assert re.search(next_step, result.stderr), result.stderr
        assert "Traceback" not in result.output
        assert "withheld" not in result.output
        self.check_no_secret(result)
        self.check_nothing_spent()
        assert not self.out.is_dir() or list(self.out.iterdir()) == []

    def check_no_secret(self, result: Result) -> None:
        """Look for the marker in what was printed and in what was released."""
        assert SECRET not in result.output
        for path in self.out.glob("*"):
            assert SECRET not in path.read_text(encoding="utf-8")

    def check_answered(self, result: Result) -> dict[str, Any]:
        """Check that a run on valid rows ended well and charged its budget; return result.json."""
        assert result.exit_code == 0, result.output
        self.check_no_secret(result)
        (run,) = self.history()
        assert run.events
        return self.read_result()

    def read_result(self) -> dict[str, Any]:
        """Read result.json and evidence.json as strictly as any other program would."""
        for name in ("evidence.json", "result.json"):
            text = (self.out / name).read_text(encoding="utf-8")
            content = json.loads(text, parse_constant=_refuse_constant)
        for edge in content["graph"]["edges"]:
            assert edge["kind"] in ("directed", "undirected")
            assert {edge["source"], edge["target"]} <= set(content["graph"]["nodes"])
            assert 0 <= edge["confidence"] <= 1
        for stage in content["plan"]:
            assert isinstance(stage["noise_sd"], float)
            assert isinstance(stage["share"], float)
        return content


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the rights of root for a while: permissions do not bind root."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(ORDINARY_USER, ORDINARY_USER, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)

"""Mutated inputs: what the readers do with them, and that the tally sees readers that fail."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.errors import DataError
from dagveil_bench.mutated import (
    ChargedError,
    Reader,
    mutate_bytes,
    mutate_json,
    mutate_lines,
    mutate_toml,
    run_mutations,
    write_tally,
)
from dagveil_bench.mutated_readers import find_readers

TABLES = ("feather", "arrow")
"""Read by a library in C++: `dagveil bench mutate` tries them, in a process that may die."""


def die(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(_: Path) -> None:
    threading.Event().wait()


def stumble(_: Path) -> None:
    raise KeyError("nobody foresaw this")


def charge(_: Path) -> None:
    raise ChargedError("a run that was refused")


def refuse(_: Path) -> None:
    raise DataError("refused")


def bad_readers() -> dict[str, Reader]:
    reads = {"dies": die, "hangs": hang, "stumbles": stumble, "charges": charge, "refuses": refuse, "reads": Path.stat}
    return {name: Reader(".txt", lambda: b"sample", mutate_bytes, read) for name, read in reads.items()}


def test_failures_are_seen(tmp_path: Path) -> None:
    tally = run_mutations(bad_readers, 12, 1, 2.0, keep=tmp_path)
    outcomes = {name: dict(counts) for name, counts in tally.counts.items()}
    assert outcomes == {
        "dies": {"crashed": 2},
        "hangs": {"hung": 2},
        "stumbles": {"unexpected": 2},
        "charges": {"charged": 2},
        "refuses": {"refused": 2},
        "reads": {"read": 2},
    }
    assert tally.failed == 8
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["charges", "dies", "hangs", "stumbles"]
    page = write_tally(tally, "the command")
    assert "seed 1" in page
    assert "KeyError at test_mutated.py" not in page, "only frames of the program are told"
    assert "| all | 12 | 2 | 2 | 2 | 2 | 2 | 2 |" in page


def test_no_reader_of_ours_fails() -> None:
    names = [name for name in find_readers() if name not in TABLES]
    for name in names:
        tally = run_mutations(find_readers, 12, 7, 60.0, only=name)
        assert not tally.failures, write_tally(tally, name)


@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_json, mutate_toml, mutate_lines])
def test_mutations_are_repeatable_and_change_something(mutate: object) -> None:
    assert callable(mutate)
    sample = b'{"a": [1, 2.5, {"b": "text"}], "c": null}' if mutate is mutate_json else b'a = 1\nb = ["x", "y"]\n'
    mutants = [mutate(sample, random.Random(seed)) for seed in range(200)]
    assert mutants == [mutate(sample, random.Random(seed)) for seed in range(200)]
    assert len(set(mutants)) > 100


def test_the_command() -> None:
    runner = CliRunner()
    good = runner.invoke(group, ["bench", "mutate", "--count", "20", "--only", "schema", "--seed", "3"])
    assert good.exit_code == 0, good.output
    assert "20 mutated inputs, seed 3" in good.output
    unknown = runner.invoke(group, ["bench", "mutate", "--only", "nothing"])
    assert unknown.exit_code == 2
    assert "choose one of schema" in unknown.output

"""The workers: every job ends once, whatever happens to the process that had it."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time
from types import ModuleType

import pytest

from dagveil.errors import MethodError
from dagveil_bench.studies.worker_pool import Lost, WorkerPool

# work that other processes can import by name stands in for runs


def test_every_job_is_done_once_and_processes_end() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    found = WorkerPool(math.factorial, 2).do(list(range(8)))
    done = [next(found)]
    assert len({child.pid for child in multiprocessing.active_children()} - before) == 2
    done += found
    assert sorted(done) == [(n, math.factorial(n)) for n in range(8)]
    assert {child.pid for child in multiprocessing.active_children()} == before
    assert list(WorkerPool(math.factorial, 2).do([])) == []


def test_processes_end_when_nobody_asks_any_more() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    found = WorkerPool(math.factorial, 1).do(list(range(50)))
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert {child.pid for child in multiprocessing.active_children()} == before


def test_a_dead_process_costs_its_own_job_and_is_replaced() -> None:
    done = dict(WorkerPool(os._exit, 1).do([7]))
    assert done == {7: Lost("the process ended with exit code 7")}
    done = dict(WorkerPool(math.factorial, 1).do([-1, 5]))
    assert done == {-1: Lost("the process ended with exit code 1"), 5: 120}


def test_a_job_that_takes_too_long_is_given_up_and_its_process_ends() -> None:
    done = dict(WorkerPool(time.sleep, 2, limit=0.5).do([300.0, 0.0, 0.01]))
    assert done == {300.0: Lost("given up after 0.5 seconds"), 0.0: None, 0.01: None}


def test_work_that_processes_cannot_import_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("module_of_this_process_only")
    exec("def work(number):\n    return number", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(MethodError, match="a process that should do the work could not start"):
        list(WorkerPool(module.work, 2).do([1, 2]))

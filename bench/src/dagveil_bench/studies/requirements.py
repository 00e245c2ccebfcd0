"""What each task asks of data sets, methods, budgets and metrics; a study that lacks it is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterable

from dagveil.errors import MethodError
from dagveil.methods.catalogue import method_named
from dagveil.papers.publication import read_settings
from dagveil.privacy.receipt import Calibration
from dagveil_bench.levels import EXACT_TESTS, PUBLISHED, TESTS, design_named
from dagveil_bench.local_source import check_algorithm, check_local_source, read_source
from dagveil_bench.studies.datasets import check_data_source
from dagveil_bench.studies.metrics import METRICS_OF, Metric
from dagveil_bench.studies.plan import DataSet, Entry, Role
from dagveil_bench.studies.task import Task


def check_source_of(task: Task, source: str) -> None:
    """Refuse a source that runs of this task cannot sample; MissingExtraError if its records are not installed."""
    match task:
        case Task.GRAPH:
            check_data_source(source)
        case Task.INDEPENDENCE:
            design_named(source)
        case Task.LOCAL:
            check_local_source(source)


def check_method_of(task: Task, entry: Entry, data: tuple[DataSet, ...]) -> None:
    """Refuse a method, test or algorithm that runs of this task do not know, or settings that it does not have."""
    match task:
        case Task.GRAPH:
            _check_settings(entry)
        case Task.INDEPENDENCE:
            _check_test(entry)
        case Task.LOCAL:
            _refuse_settings(entry, "an algorithm")
            if entry.calibration is not Calibration.SOUND:
                raise MethodError("calibration: a mechanism of local privacy has an exact ε; leave it out")
            check_algorithm(
                entry.method, [read_source(d.source) for d in data if not entry.data or d.title in entry.data]
            )


def check_budgets_of(task: Task, budgets: tuple[float, ...]) -> None:
    """Refuse a p_max of 1 or more; other budgets have no upper end."""
    if task is Task.LOCAL and any(budget >= 1.0 for budget in budgets):
        raise MethodError('a budget of this task is a p_max, between 0 and 1; role = "ceiling" runs without noise')


def check_metrics_of(task: Task, metrics: Iterable[Metric]) -> None:
    """Refuse metrics that no run of this task has."""
    known = METRICS_OF[task]
    for metric in metrics:
        if metric not in known:
            listed = ", ".join(each.value for each in Metric if each in known)
            raise MethodError(f"runs of the task {task.value} have no {metric.value}; choose from {listed}")


def _check_settings(entry: Entry) -> None:
    method = method_named(entry.method)
    settings = dict(entry.settings)
    if entry.budget_setting is not None:
        if entry.budget_setting in settings:
            raise MethodError(f"settings.{entry.budget_setting} is also the budget_setting; give one of them")
        settings[entry.budget_setting] = 1.0
    read_settings(method, entry.calibration, settings)


def _check_test(entry: Entry) -> None:
    if entry.method not in TESTS:
        raise MethodError(f"no test is called {entry.method!r}; choose one of {'; '.join(TESTS)}")
    _refuse_settings(entry, "a test")
    if entry.method in EXACT_TESTS and entry.role is not Role.CEILING:
        raise MethodError('role: an exact test has no budget; write role = "ceiling"')
    if (entry.method == PUBLISHED) is not (entry.calibration is Calibration.PAPER):
        raise MethodError(f'calibration: "paper" is for the test {PUBLISHED!r}, and for no other')


def _refuse_settings(entry: Entry, what: str) -> None:
    given = {"settings": entry.settings, "budget_setting": entry.budget_setting, "variant": entry.variant}
    for name, value in given.items():
        if value:
            raise MethodError(f"{name}: {what} has none; leave it out")

"""Reads studies from TOML and refuses what cannot be run, with the place of the mistake."""

import difflib
import enum
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from dagveil.data.schema import parse_toml
from dagveil.errors import DagveilError, DataError, MethodError, MissingExtraError
from dagveil.examples.networks import load_network
from dagveil.methods.method import method_named
from dagveil.papers.publication import read_settings
from dagveil.privacy.receipt import Calibration
from dagveil_bench.custodians import ALIKE, WITH_SITE, count_sites, read_shifted
from dagveil_bench.drawn_tables import KINDS as DRAWN
from dagveil_bench.exact_searches import EXACT_SEARCHES, read_exact_settings
from dagveil_bench.hidden_causes import CLASS, PEER, PRIVATE, read_hidden
from dagveil_bench.levels import EXACT_TESTS, PUBLISHED, TESTS, design_named
from dagveil_bench.local_aware import View, read_reports
from dagveil_bench.local_source import check_algorithm, check_local_source, read_source
from dagveil_bench.peers import read_seconds
from dagveil_bench.persons import UNITS, WAYS
from dagveil_bench.studies.datasets import check_data_source
from dagveil_bench.studies.metrics import METRICS_OF, Metric, Task
from dagveil_bench.studies.plan import LARGE, DataSet, Entry, Miniature, Printed, Role, Study
from dagveil_bench.synthesis import AIM, FRESH_ROWS, OURS, TRUE_ROWS

_ENUMS: Final[Mapping[str, type[enum.Enum]]] = {
    "metrics": Metric,
    "metric": Metric,
    "calibration": Calibration,
    "role": Role,
    "task": Task,
}
# what stands under each key, for messages about what is unknown there
_PARTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "": Study,
    "data": DataSet,
    "stand_in": DataSet,
    "methods": Entry,
    "published": Printed,
    "quick": Miniature,
}


def parse_study(text: str) -> Study:
    """Read a study from TOML; every mistake is told with its place."""
    content = parse_toml(text, MethodError, "the study")
    try:
        study = msgspec.convert(content, Study, strict=True)
    except msgspec.ValidationError as error:
        raise MethodError(f"the study cannot be read: {_name_place(str(error))}") from None
    study = resolve_data(study)
    check_study(study)
    return study


def load_study(path_or_name: str | Path) -> Study:
    """Read a study from a file, or one that comes with the package, by its name."""
    path = Path(path_or_name)
    if str(path_or_name) in shipped_studies() and not path.exists():
        return parse_study(shipped_studies()[str(path_or_name)])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DataError(
            f"cannot read the study {path_or_name}: {why}; give a TOML file, or one of {', '.join(shipped_studies())}"
        ) from error
    try:
        return parse_study(text)
    except MethodError as error:
        raise MethodError(f"{path.name}: {error}") from error


def default_store(study: Study) -> str:
    """Name the file of a study's runs, unless the user names one."""
    return f"{study.name}.sqlite"


def shipped_studies() -> Mapping[str, str]:
    """Return the studies that come with the package: their TOML by name."""
    folder = files("dagveil_bench") / "data" / "studies"
    found = {item.name.removesuffix(".toml"): item for item in folder.iterdir() if item.name.endswith(".toml")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def check_study(study: Study) -> None:
    """Refuse what cannot be run, before anything is."""
    data = study.data_sets
    titles = [item.title for item in data]
    entries = [entry.title for entry in study.methods]
    if not data or not study.methods:
        raise _mistake("data" if not data else "methods", "is empty; name at least one")
    for i, label in enumerate(titles):
        if label in titles[:i]:
            raise _called_alike("data", i, label, titles.index(label))
    _check_methods(study)
    _check_finite("budgets", study.budgets)
    _check_once("budgets", study.budgets)
    _check_once("rows", study.rows)
    _check_finite("limit", () if study.limit is None else (study.limit,))
    with _placed("budgets"):
        check_budgets_of(study.task, study.budgets)
    with _placed("metrics"):
        check_metrics_of(study.task, (*study.metrics, *(printed.metric for printed in study.published)))
    for i, item in enumerate(data):
        with _placed(f"data[{i}]"):
            for source in (item.source, *item.variants.values()):
                check_source_of(study.task, source)
            if item.stand_in is not None:
                check_source_of(study.task, item.stand_in.source)
    for i, entry in enumerate(study.methods):
        with _placed(f"methods[{i}]"):
            _check_entry(entry, study.task, data)
            wanted = len(entry.budgets or study.budgets)
            for name, each in entry.settings_at.items():
                if len(each) != wanted:
                    raise MethodError(f"settings_at.{name} has {len(each)} values for {wanted} budgets")
    for i, printed in enumerate(study.published):
        with _placed(f"published[{i}]"):
            _check_known("method", printed.method, entries)
            for label, values in printed.values.items():
                _check_known("values", label, titles)
                if len(values) != printed.size:
                    counts = f"{len(printed.budgets)} budgets and {len(printed.rows)} numbers of rows"
                    raise MethodError(f"values.{label} has {len(values)} figures for {counts}")
    contenders = [entry.title for entry in study.methods if entry.role is Role.CONTENDER]
    for place, key, labels, known in (
        ("champion", "method", [study.champion] if study.champion else [], contenders),
        ("answered_by", "method", [study.answered_by] if study.answered_by else [], entries),
        ("quick", "data", study.quick.data, titles),
        ("quick", "methods", study.quick.methods, entries),
    ):
        with _placed(place):
            for label in labels:
                _check_known(key, label, known)


def _check_entry(entry: Entry, task: Task, data: tuple[DataSet, ...]) -> None:
    _check_finite("budgets", entry.budgets)
    check_method_of(task, entry, data)
    if entry.role is not Role.CEILING:
        check_budgets_of(task, entry.budgets)
    if entry.role is Role.FLOOR:
        raise MethodError("role: floors are in every study; choose contender or ceiling")
    for label in entry.data:
        _check_known("data", label, [item.title for item in data])
    if entry.variant:
        lacking = [
            d.title for d in data if entry.variant not in d.variants and (not entry.data or d.title in entry.data)
        ]
        if lacking:
            raise MethodError(f"variant: {lacking[0]!r} has no variant {entry.variant!r}")


def _check_known(place: str, label: str, known: list[str]) -> None:
    if label not in known:
        raise MethodError(f"{place}: nothing is called {label!r}; there are: {'; '.join(known)}")


def _check_methods(study: Study) -> None:
    """Refuse two methods of one name on the same rows; on others a method may be stated again, otherwise."""
    seen: dict[tuple[str, str, int], int] = {}
    for i, entry in enumerate(study.methods):
        for data in study.data_sets:
            for n_rows in data.rows or study.rows:
                first = seen.setdefault((entry.title, data.title, n_rows), i) if entry.takes(data, n_rows) else i
                if first != i:
                    raise _called_alike("methods", i, entry.title, first)


def _called_alike(place: str, i: int, label: str, first: int) -> MethodError:
    return _mistake(f"{place}[{i}]", f"is called {label!r} like {place}[{first}]; give it a label")


def _check_finite(place: str, numbers: tuple[float, ...]) -> None:
    if not all(math.isfinite(number) for number in numbers):
        raise _mistake(place, f'must be finite; {LARGE:g} stands for no noise, and role = "ceiling" takes it by itself')


def _check_once(place: str, numbers: tuple[float, ...]) -> None:
    for i, number in enumerate(numbers):
        if number in numbers[:i]:
            raise _mistake(f"{place}[{i}]", f"{number:g} stands twice; leave one out")


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Put the place before the message of an error."""
    try:
        yield
    except DagveilError as error:
        raise _mistake(place, str(error)) from error


def _mistake(place: str, what: str) -> MethodError:
    return MethodError(f"the study cannot be run: {place}: {what}")


def _name_place(message: str) -> str:
    """Put the place first."""
    found = re.fullmatch(r"(.*) - at `\$\.?([^`]*)`", message, flags=re.DOTALL)
    what, place = (found[1], found[2]) if found else (message, "")
    what = what[:1].lower() + what[1:] + _describe_choices(what, place)
    return f"{place}: {what}" if place else what


def _describe_choices(what: str, place: str) -> str:
    """Say what could stand where something unknown stands: the nearest name, or all of them."""
    names = re.findall(r"[a-z_]+", place)
    last = names[-1] if names else ""
    if what.startswith("Invalid enum value"):
        known = [item.value for item in _ENUMS[last]] if last in _ENUMS else []
    elif what.startswith("Object contains unknown field"):
        known = list(_PARTS[last].__struct_fields__) if last in _PARTS else []
    else:
        return ""
    near = difflib.get_close_matches((re.findall(r"[`']([^`']*)[`']", what) or [""])[-1], known, n=1, cutoff=0.7)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; choose from {', '.join(known)}" if known else ""


_SOURCES: Final[Mapping[Task, Callable[[str], object]]] = {
    Task.GRAPH: check_data_source,
    Task.INDEPENDENCE: design_named,
    Task.LOCAL: check_local_source,
    Task.SITES: load_network,
    Task.REPORTS: read_reports,
    Task.SHIFTED_SITES: read_shifted,
    Task.PERSONS: load_network,
    Task.MEMBERSHIP: load_network,
    Task.SYNTHESIS: load_network,
    Task.HIDDEN_CAUSES: read_hidden,
}
# what a method of these tasks is, and all that there are
_CHOICES: Final[Mapping[Task, tuple[str, tuple[str, ...]]]] = {
    Task.REPORTS: ("view", tuple(view.value for view in View)),
    Task.SHIFTED_SITES: ("way", (ALIKE, WITH_SITE)),
    Task.PERSONS: ("way", WAYS),
    Task.MEMBERSHIP: ("unit", tuple(UNITS)),
    Task.SYNTHESIS: ("source of rows", (TRUE_ROWS, FRESH_ROWS, OURS, AIM)),
    Task.HIDDEN_CAUSES: ("program", (PRIVATE, CLASS, PEER)),
}
_WITHOUT_NOISE: Final = (TRUE_ROWS, FRESH_ROWS, PEER)


def check_source_of(task: Task, source: str) -> None:
    """Refuse a source that runs of this task cannot sample; MissingExtraError if its records are not installed."""
    _SOURCES[task](source)


def check_method_of(task: Task, entry: Entry, data: tuple[DataSet, ...]) -> None:
    """Refuse a method, test or algorithm that runs of this task do not know, or settings that it does not have."""
    match task:
        case Task.GRAPH if entry.method in EXACT_SEARCHES:
            if entry.role is not Role.CEILING:
                raise MethodError('role: a search without privacy has no budget; write role = "ceiling"')
            read_exact_settings(entry.settings)
            for item in data:
                if (not entry.data or item.title in entry.data) and item.source.split()[0] not in DRAWN:
                    raise MethodError(
                        f"{entry.method} searches rows of other kinds than {item.source!r}; name its data"
                    )
        case Task.GRAPH:
            method, settings = method_named(entry.method), dict(entry.settings)
            if entry.budget_setting is not None:
                if entry.budget_setting in settings:
                    raise MethodError(f"settings.{entry.budget_setting} is also the budget_setting; give one of them")
                settings[entry.budget_setting] = 1.0
            settings |= {name: values[0] for name, values in entry.settings_at.items() if values}
            read_settings(method, entry.calibration, settings)
        case Task.INDEPENDENCE:
            if entry.method not in TESTS:
                raise MethodError(f"no test is called {entry.method!r}; choose one of {'; '.join(TESTS)}")
            _refuse_settings(entry, "a test")
            if entry.method in EXACT_TESTS and entry.role is not Role.CEILING:
                raise MethodError('role: an exact test has no budget; write role = "ceiling"')
            if entry.method.startswith(PUBLISHED) is not (entry.calibration is Calibration.PAPER):
                raise MethodError(f'calibration: "paper" is for tests called {PUBLISHED!r}, and for no others')
        case Task.SITES:
            count_sites(entry.method)
            _refuse_choices(entry, "a number of sites")
        case Task.LOCAL:
            _refuse_settings(entry, "an algorithm")
            if entry.calibration is not Calibration.SOUND:
                raise MethodError("calibration: a mechanism of local privacy has an exact ε; leave it out")
            check_algorithm(
                entry.method, [read_source(d.source) for d in data if not entry.data or d.title in entry.data]
            )
        case _:
            what, known = _CHOICES[task]
            if entry.method not in known:
                raise MethodError(f"no {what} is called {entry.method!r}; choose {' or '.join(known)}")
            if entry.method in _WITHOUT_NOISE and entry.role is not Role.CEILING:
                raise MethodError(f'role: {entry.method} has no budget; write role = "ceiling"')
            if entry.method in (AIM, PEER):
                read_seconds(entry.settings)
            elif entry.method not in _WITHOUT_NOISE:
                _refuse_choices(entry, f"a {what}")


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


def _refuse_choices(entry: Entry, what: str) -> None:
    _refuse_settings(entry, what)
    if entry.calibration is not Calibration.SOUND or entry.role is Role.CEILING:
        raise MethodError(f"calibration, role: {what} is run at every budget, as it is; leave them out")


def _refuse_settings(entry: Entry, what: str) -> None:
    for name in ("settings", "budget_setting", "settings_at", "variant"):
        if getattr(entry, name):
            raise MethodError(f"{name}: {what} has none; leave it out")


def resolve_data(study: Study) -> Study:
    """Return the study as it can be run here: data sets whose records are missing are replaced by their stand-ins.

    A stand-in has a name of its own in every table, a note says why it is there, and no published figure stands beside
    it.
    """
    renamed: dict[str, str] = {}
    lacks: dict[str, list[str]] = {}
    chosen: list[str | DataSet] = []
    for item, data in zip(study.data, study.data_sets, strict=True):
        reason = _find_lack(study, data)
        if data.stand_in is None or reason is None:
            chosen.append(item)
            continue
        label = data.stand_in.label or f"{data.title}, simulated"
        renamed[data.title] = label
        lacks.setdefault(reason, []).append(data.title)
        chosen.append(replace(data.stand_in, label=label, rows=data.stand_in.rows or data.rows))
    if not renamed:
        return study
    return replace(
        study,
        data=tuple(chosen),
        methods=tuple(replace(m, data=tuple(renamed.get(label, label) for label in m.data)) for m in study.methods),
        published=tuple(
            replace(p, values={label: values for label, values in p.values.items() if label not in renamed})
            for p in study.published
        ),
        notes=(
            *study.notes,
            *(f"Simulated records stand in for {'; '.join(real)}. Why: {why}." for why, real in lacks.items()),
        ),
        quick=replace(study.quick, data=tuple(renamed.get(label, label) for label in study.quick.data)),
    )


def _find_lack(study: Study, data: DataSet) -> str | None:
    """Return why the records of a data set are missing; other mistakes are told later, with their place."""
    try:
        for source in (data.source, *data.variants.values()):
            check_source_of(study.task, source)
    except MissingExtraError as error:
        return str(error)
    except DagveilError:
        return None
    return None

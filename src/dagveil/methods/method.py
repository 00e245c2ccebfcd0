"""What a method is, the `METHOD` that its file ends in and everything else reads; and every method by its name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

import msgspec

from dagveil.curator import Curator
from dagveil.data.schema import Schema
from dagveil.data.weighed import ONLY_LINEAR
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, check_countable
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, Filter, PureFilter, tightest_filter
from dagveil.privacy.release import Release
from dagveil.progress import Progress
from dagveil.search.settings import SearchRule


@dataclass(frozen=True, slots=True)
class Measured:
    """Releases, the plan as it was carried out, and what a reader should know about it."""

    releases: tuple[Release, ...] = ()
    plan: tuple[Stage, ...] = ()
    findings: tuple[str, ...] = ()

    def __add__(self, later: Measured) -> Measured:
        return Measured(self.releases + later.releases, self.plan + later.plan, self.findings + later.findings)


XU_2017 = "Xu, Yuan and Wu, Differential privacy preserving causal graph discovery, PAC 2017"
WANG_2020 = "Wang, Pang and Song, Towards practical differentially private causal graph discovery, NeurIPS 2020"
BHATTACHARJEE_2024 = "Bhattacharjee and Tandon, CURATE: scaling-up differentially private causal graph discovery, 2024"
MA_2022 = "Ma, Ji, Pang and Wang, NoLeaks: differentially private causal discovery under functional causal model, 2022"
ZHENG_2018 = (
    "Zheng, Aragam, Ravikumar and Xing, DAGs with NO TEARS: continuous optimization for structure learning, 2018"
)
ZHANG_2023 = (
    "Zhang, Xia, Ren, Guan and Zhou, Differentially private nonlinear causal discovery from numerical data, 2023"
)
COUNTED = "categorical, ordinal, yes/no, and numeric with bins"

ONE_QUESTION: Mapping[str, str] = {"largest_order": "0"}
# sharp settings: G needs no one-way tables where the number of rows is public, so the questions get all of the budget
FROM_PUBLIC_ROWS: Mapping[str, str] = {**ONE_QUESTION, "statistic": "g"}
# kinds of sharp pairs, as the audit names them
TWO_COLUMNS, BLOCK, TWO_NUMBERS = "two columns of levels", "a block of columns", "two columns of numbers"
ReleaseEvidence = Callable[[Curator, Knowledge, Any, Progress], Measured]
Ask = Callable[[Curator, Knowledge, Any, Progress], Asked]


class NoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A method without settings of its own; those of the search apply, and those of its publication."""


def account_gaussian(budget: Budget, schema: Schema, settings: object, knowledge: Knowledge) -> Filter:
    """Choose the filter of a method that draws Gaussian noise only."""
    return tightest_filter(budget, [DiscreteGaussian])


def account_plainly(budget: Budget, schema: Schema, settings: object, knowledge: Knowledge) -> Filter:
    """Choose plain addition."""
    return PureFilter(budget)


@dataclass(frozen=True, slots=True)
class SharpCase:
    """A kind of pair, by its name in the audit, and the settings that a method runs with on it."""

    kind: str
    options: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Method:
    """One named method; it either releases evidence once or asks adaptively.

    - `name`: as in `--method`.
    - `title`: one line about it.
    - `paper`: where it comes from; None for our own.
    - `data`: what tables it takes.
    - `cost`: how it spends the budget.
    - `settings`: kind of the settings of the sound calibration.
    - `accounting`: chooses the filter from budget, schema, settings and knowledge, before a row is touched.
    - `check`: refuses a schema that the method cannot take; `check_schema` asks it.
    - `release`: releases evidence that is then searched for free; None for an asking method.
    - `ask`: asks adaptively; None for a releasing method.
    - `search`: what the search over its evidence goes by, unless it is told.
    - `relative_time`: about how many times as long as `measure` it takes, if it asks adaptively.
    - `sharp`: pairs and settings under which one record moves most of what the budget pays for; the audit attacks them.
    """

    name: str
    title: str
    paper: str | None
    data: str
    cost: str
    settings: type[msgspec.Struct]
    accounting: Callable[[Budget, Schema, Any, Knowledge], Filter]
    check: Callable[[Schema, Knowledge], None]
    release: ReleaseEvidence | None = None
    ask: Ask | None = None
    search: SearchRule = SearchRule.TESTS
    relative_time: float = 10.0
    sharp: tuple[SharpCase, ...] = ()

    def check_schema(self, schema: Schema, knowledge: Knowledge) -> None:
        """Refuse a schema that the method cannot take, by what it asks and by how records of persons count."""
        if schema.records == "weigh" and self.ask is not None:
            raise MethodError(f"{self.name} cannot take this schema: {ONLY_LINEAR}")
        self.check(schema, knowledge)

    def read_settings(self, options: Mapping[str, Any] | None) -> msgspec.Struct:
        """Read settings of the sound calibration from names and values; unknown names are refused."""
        return read_options(self.settings, f"{self.name} (sound)", options)


def read_options(kind: type[msgspec.Struct], owner: str, options: Mapping[str, Any] | None) -> msgspec.Struct:
    """Read settings of a kind from names and values, as `--set` gives them; unknown names are refused."""
    options = dict(options or {})
    known = kind.__struct_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise MethodError(f"{owner} has no setting {unknown[0]!r}; it has {', '.join(known) if known else 'none'}")
    name = owner.partition(" ")[0]
    try:
        settings = msgspec.convert(options, kind, strict=False)
    except msgspec.ValidationError as error:
        place = re.fullmatch(r"(.*) - at `\$\.(\w+)[^`]*`", str(error))
        what = f"{place[2]}: {place[1].lower()}" if place else str(error)
        raise MethodError(
            f"a setting of {name} cannot be read: {what}; `dagveil methods {name}` lists the settings"
        ) from error
    for field_name in known:
        value = getattr(settings, field_name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(math.isfinite(number) for number in numbers if isinstance(number, float)):
            raise MethodError(f"a setting of {name} cannot be read: {field_name} must be a finite number")
    return settings


def check_counts(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse columns that have no levels, and knowledge about others."""
    check_countable(schema)
    knowledge.check(schema.columns)


Kind = TypeVar("Kind")


class Plugins(Generic[Kind]):
    """Entry points of one group; each is imported when it is asked for.

    - `check`: returns what was found if it is of the right kind, or raises MethodError with the reason
    """

    def __init__(self, group: str, check: Callable[[str, object], Kind], found: tuple[EntryPoint, ...]) -> None:
        self._group = group
        self._check = check
        self._points: dict[str, list[EntryPoint]] = {}
        for point in found:
            self._points.setdefault(point.name, []).append(point)

    @property
    def names(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted(self._points))

    def __contains__(self, name: object) -> bool:
        return name in self._points

    def origin(self, name: str) -> str:
        """Return the package and version that a plug-in comes from."""
        packages = (point.dist for point in self._points[name])
        return " and ".join(sorted({f"{one.name} {one.version}" if one else "an unknown package" for one in packages}))

    def load(self, name: str) -> Kind:
        """Import a plug-in; MethodError says what is wrong with it."""
        points = self._points[name]
        told = f"the plug-in {name!r} ({self._group}) of {self.origin(name)}"
        if len({point.value for point in points}) > 1:
            raise MethodError(f"{told} exists twice; uninstall one of these packages")
        try:
            found = points[0].load()
        except Exception as error:  # whatever a foreign module does
            what = f"{type(error).__name__}: {error}"
            raise MethodError(
                f"{told} cannot be imported from {points[0].value!r}: {what}; mend or uninstall it"
            ) from error
        try:
            return self._check(name, found)
        except MethodError as error:
            raise MethodError(f"{told} cannot be used: {error}; mend or uninstall it") from error

    def load_all(self) -> tuple[dict[str, Kind], dict[str, str]]:
        """Import all: those that work by name, and why the others do not."""
        working, broken = dict[str, Kind](), dict[str, str]()
        for name in self.names:
            try:
                working[name] = self.load(name)
            except MethodError as error:
                broken[name] = str(error)
        return working, broken


def read_plugins(group: str, check: Callable[[str, object], Kind]) -> Plugins[Kind]:
    """Find the entry points of a group."""
    return Plugins(group, check, tuple(entry_points(group=group)))


# the methods of dagveil itself, in the order in which they are listed
NAMES = (
    *("measure", "measure-ges", "measure-notears", "measure-features", "em-pc", "lap-mech", "priv-pc-star", "svt-pc"),
    *("priv-pc", "sampled-gaussian-pc", "noleaks", "curate-score", "curate", "pcd"),
)


EXACT_NAMES = ("pc",)  # methods without any privacy: found by name, and in no list of which a guarantee is expected


class _Catalogue(Mapping[str, Method]):
    """Imports the file of a method when it is asked for."""

    def __getitem__(self, name: str) -> Method:
        if name not in NAMES:
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES  # and no file is imported


def _load(name: str) -> Method:
    method: Method = import_module(f"dagveil.methods.{name.replace('-', '_')}").METHOD
    return method


METHODS: Mapping[str, Method] = _Catalogue()  # every method of dagveil itself, by name
# entry point group by which other packages add methods: each entry is a `Method`, under its own name
GROUP = "dagveil.methods"


def method_plugins() -> Plugins[Method]:
    """Return the methods of other packages; their guarantees are those packages' own."""
    return read_plugins(GROUP, _check_plugin)


def method_named(name: str) -> Method:
    """Return a method of dagveil or of a plug-in, or say which there are."""
    if name in METHODS or name in EXACT_NAMES:
        return _load(name)
    plugins = method_plugins()
    if name not in plugins:
        raise MethodError(f"no method is called {name!r}; choose one of {', '.join((*METHODS, *plugins.names))}")
    return plugins.load(name)


def method_origin(name: str) -> str | None:
    """Return the package and version that bring a method; None if dagveil does."""
    if name in METHODS:
        return None  # looking for plug-ins reads a file of every installed package
    plugins = method_plugins()
    return plugins.origin(name) if name in plugins else None


def _check_plugin(name: str, found: object) -> Method:
    if not isinstance(found, Method):
        raise MethodError(f"it is of type {type(found).__name__}, not a dagveil Method")
    if name in METHODS or name in EXACT_NAMES:
        raise MethodError("dagveil has a method of this name; choose another")
    if found.name != name:
        raise MethodError(f"the method calls itself {found.name!r}; name the entry point the same")
    if found.release is None and found.ask is None:
        raise MethodError("it has neither release nor ask, so it cannot run")
    return found

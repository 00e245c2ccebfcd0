"""Every method by its name. A method is the `METHOD` that its file ends in; this is where files are looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from dagveil.errors import MethodError
from dagveil.methods.method import Method

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
        return " and ".join(sorted({_package(point) for point in self._points[name]}))

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
        working: dict[str, Kind] = {}
        broken: dict[str, str] = {}
        for name in self.names:
            try:
                working[name] = self.load(name)
            except MethodError as error:
                broken[name] = str(error)
        return working, broken


def read_plugins(group: str, check: Callable[[str, object], Kind]) -> Plugins[Kind]:
    """Find the entry points of a group."""
    return Plugins(group, check, tuple(entry_points(group=group)))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


NAMES = (
    "measure",
    "measure-ges",
    "measure-notears",
    "measure-features",
    "em-pc",
    "lap-mech",
    "priv-pc-star",
    "svt-pc",
    "priv-pc",
    "sampled-gaussian-pc",
    "noleaks",
    "curate-score",
    "curate",
    "pcd",
)
"""The methods of dagveil itself, in the order in which they are listed."""


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
        return name in NAMES


def _load(name: str) -> Method:
    method: Method = import_module(f"dagveil.methods.{name.replace('-', '_')}").METHOD
    return method


METHODS: Mapping[str, Method] = _Catalogue()  # every method of dagveil itself, by name
GROUP = "dagveil.methods"
"""Entry point group by which other packages add methods: each entry is a `Method`, under its own name."""


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

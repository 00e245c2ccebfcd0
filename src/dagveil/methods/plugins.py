"""What other packages add to dagveil through entry points; one that is broken does not break the others."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from dagveil.errors import MethodError

Kind = TypeVar("Kind")


class Plugins(Generic[Kind]):
    """Entry points of one group; each is imported when it is asked for.

    Parameters
    ----------
    group
        Name of the group.
    check
        Returns what was found if it is of the right kind, or raises MethodError with the reason.
    found
        The entry points.
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
    """Find the entry points of a group.

    Examples
    --------
    >>> read_plugins("dagveil.nothing", lambda name, found: found).names
    ()
    """
    return Plugins(group, check, tuple(entry_points(group=group)))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"

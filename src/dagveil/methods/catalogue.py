"""Every method by its name. A method is the `METHOD` that its file ends in; this is where files are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from dagveil.errors import MethodError
from dagveil.methods.method import Method
from dagveil.methods.plugins import Plugins, read_plugins

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


class _Catalogue(Mapping[str, Method]):
    """Imports the file of a method when it is asked for."""

    def __getitem__(self, name: str) -> Method:
        if name not in NAMES:
            raise KeyError(name)
        method: Method = import_module(f"dagveil.methods.{name.replace('-', '_')}").METHOD
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES


METHODS: Mapping[str, Method] = _Catalogue()
"""Every method of dagveil itself, by name."""

GROUP = "dagveil.methods"
"""Entry point group by which other packages add methods: each entry is a `Method`, under its own name."""


def method_plugins() -> Plugins[Method]:
    """Return the methods of other packages; their guarantees are those packages' own."""
    return read_plugins(GROUP, _check_plugin)


def method_named(name: str) -> Method:
    """Return a method of dagveil or of a plug-in, or say which there are.

    Examples
    --------
    >>> method_named("measure").cost
    'one to three releases'
    """
    if name in METHODS:
        return METHODS[name]
    plugins = method_plugins()
    if name not in plugins:
        raise MethodError(f"no method is called {name!r}; choose one of {', '.join((*METHODS, *plugins.names))}")
    return plugins.load(name)


def method_origin(name: str) -> str | None:
    """Return the package and version that bring a method; None if dagveil does.

    Examples
    --------
    >>> method_origin("measure") is None
    True
    """
    if name in METHODS:
        return None  # looking for plug-ins reads a file of every installed package
    plugins = method_plugins()
    return plugins.origin(name) if name in plugins else None


def _check_plugin(name: str, found: object) -> Method:
    if not isinstance(found, Method):
        raise MethodError(f"it is of type {type(found).__name__}, not a dagveil Method")
    if name in METHODS:
        raise MethodError("dagveil has a method of this name; choose another")
    if found.name != name:
        raise MethodError(f"the method calls itself {found.name!r}; name the entry point the same")
    if found.release is None and found.ask is None:
        raise MethodError("it has neither release nor ask, so it cannot run")
    return found

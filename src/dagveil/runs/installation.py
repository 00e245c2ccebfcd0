"""What is installed here, and what of it answers: for people who ask why something does not work."""

import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from dagveil._version import __version__
from dagveil.errors import DagveilError
from dagveil.methods.method import GROUP
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import representable_variance
from dagveil.runs.run import default_ledger

DISTRIBUTION: Final = "dagveil"
EXTRAS: Final = {
    "postgres": "a team's ledger, and tables in PostgreSQL",
    "frames": "pandas and polars frames",
    "graphs": "networkx; GraphML, GML and networkx's JSON",
    "local": "dagveil local collect",
    "studio": "dagveil studio",
    "duckdb": "tables larger than memory",
    "spark": "tables on a cluster; Java 17 too",
}
"""Extras that users need, and what for."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    - `subject`: what it is.
    - `state`: "ok", "missing" if it is optional and not there, or "failed".
    - `said`: its version, or what is wrong and what to do.
    """

    subject: str
    state: str
    said: str


class Installation(msgspec.Struct, frozen=True):
    """What was found, in sections."""

    program: tuple[Finding, ...]
    packages: tuple[Finding, ...]
    extras: tuple[Finding, ...]
    engines: tuple[Finding, ...]
    ledger: Finding

    @property
    def sections(self) -> dict[str, tuple[Finding, ...]]:
        """The findings by the name of their section."""
        return {
            "Program": self.program,
            "Packages that it needs": self.packages,
            "Extras": self.extras,
            "Engines and noise": self.engines,
            "Ledger": (self.ledger,),
        }

    @property
    def healthy(self) -> bool:
        """Whether nothing failed; what is optional may be missing."""
        return all(finding.state != "failed" for findings in self.sections.values() for finding in findings)


def check_installation(ledger: str | Path | None = None) -> Installation:
    """Look at what is installed and which parts answer. No table is read, no ledger made, nothing sent elsewhere.

    - `ledger`: the ledger to look at; None takes the default one.
    """
    clone = "run pip install ./bench in a clone. For studies and measurements"
    return Installation(
        program=(
            Finding("dagveil", "ok", f"{__version__}, in {Path(__file__).parents[1]}"),
            Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}"),
            Finding("system", "ok", platform.platform()),
            _look_for("dagveil-bench", "missing", clone, "dagveil bench"),
            *_list_plugins(),
        ),
        packages=tuple(
            _look_for(name, "failed", f"not installed; run pip install {name}")
            for name in required_packages(DISTRIBUTION)
        ),
        extras=tuple(_look_for_extra(extra, purpose) for extra, purpose in EXTRAS.items()),
        engines=(
            _try("exact noise", lambda: _draw(NoiseKind.EXACT)),
            _try("OpenDP's noise", lambda: _draw(NoiseKind.OPENDP)),
            _try("engine memory", lambda: "counts in memory"),
            _try("engine duckdb", _ask_duckdb),
            _try("engine spark", _find_spark),
        ),
        ledger=_look_at_ledger(str(default_ledger() if ledger is None else ledger)),
    )


def required_packages(distribution: str, extra: str | None = None) -> tuple[str, ...]:
    """Return the names of packages that a distribution needs, or that one of its extras adds.

    >>> "numpy" in required_packages("dagveil"), "numpy" in required_packages("dagveil", "frames")
    (True, False)
    """
    try:
        lines = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return ()
    named = ((_NAME.match(line), _EXTRA.search(line)) for line in lines)
    return tuple(dict.fromkeys(name[0] for name, marker in named if name and (marker[1] if marker else None) == extra))


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _look_for(package: str, state: str, remedy: str, subject: str | None = None) -> Finding:
    version = installed_version(package)
    said = (state, remedy) if version is None else ("ok", version)
    return Finding(subject or package, *said)


def _look_for_extra(extra: str, purpose: str) -> Finding:
    needed = required_packages(DISTRIBUTION, extra)
    missing = [name for name in needed if installed_version(name) is None]
    if missing or not needed:
        lacks = f"lacks {', '.join(missing)}; " if missing else ""
        return Finding(extra, "missing", f"{lacks}run pip install 'dagveil[{extra}]'. For {purpose}")
    versions = ", ".join(f"{name} {installed_version(name)}" for name in needed)
    return Finding(extra, "ok", f"{versions}. For {purpose}")


def _list_plugins() -> Iterator[Finding]:
    for entry in importlib.metadata.entry_points(group=GROUP):
        origin = "?" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        yield Finding(f"method {entry.name}", "ok", f"a plug-in of {origin}: what it promises is its author's word")


def _try(subject: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, "ok", ask())
    except ImportError as error:
        return Finding(subject, "missing", str(error))
    except Exception as error:  # whatever a broken package raises is the finding
        return Finding(subject, "failed", f"{type(error).__name__}: {error}")


def _draw(kind: NoiseKind) -> str:
    source = noise_source(kind)
    source.discrete_gaussian(representable_variance(Fraction(100)), 8)
    return f"draws ({source.name})"


def _ask_duckdb() -> str:
    from dagveil.data.duckdb import is_installed

    if not is_installed():
        raise ImportError("not installed; run pip install 'dagveil[duckdb]'")
    import duckdb

    with closing(duckdb.connect()) as connection:
        connection.execute("SELECT 1").fetchall()
    return f"answers ({duckdb.__version__})"


def _find_spark() -> str:
    version = installed_version("pyspark")
    if version is None:
        raise ImportError("not installed; run pip install 'dagveil[spark]'")
    if shutil.which("java") is None:
        raise ImportError(f"pyspark {version} is there, but no java; install Java 17")
    return f"pyspark {version} and java are there; no cluster was asked"


def _look_at_ledger(place: str) -> Finding:
    try:
        shown = make_url(place).render_as_string(hide_password=True) if "://" in place else place
    except ArgumentError:
        return Finding("ledger", "failed", "its address cannot be read; give a path or postgresql://user@host/name")
    if "://" not in place and not Path(place).exists():
        return Finding(shown, "missing", "not there yet; the first run or `dagveil budget set` makes it")
    try:
        with closing(Ledger.open(place)) as books:
            count = len(books.datasets())
    except DagveilError as error:
        return Finding(shown, "failed", str(error))
    return Finding(shown, "ok", f"answers; {count} data set{'' if count == 1 else 's'}")

"""A history of speed reports, one JSON object per line, so that a slowdown is seen."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dagveil._version import __version__
from dagveil.errors import DataError
from dagveil_bench.speed import Timing
from dagveil_bench.studies.machine import describe_hardware, describe_packages

SLOWER = 0.2  # a ratio that fell by more than this share is warned about
# packages whose versions an entry has, beside Python's and ours
COMPARED = ("numpy", "scipy", "pyarrow", "opendp", "causal-learn", "pgmpy")


class SpeedEntry(msgspec.Struct, frozen=True):
    """One report: how many times faster ours was than a peer in the same process, by "case: peer / ours"."""

    created: str
    ratios: dict[str, float]
    versions: dict[str, str]
    machine: str


class Change(msgspec.Struct, frozen=True):
    """One ratio, now and in an earlier entry; a `share` of -0.2 is a fifth less than before."""

    name: str
    before: float
    now: float

    @property
    def share(self) -> float:
        """By which share of the earlier ratio it changed."""
        return self.now / self.before - 1.0


def list_ratios(runs: Sequence[Timing], loading: Sequence[Timing] = ()) -> dict[str, float]:
    """Return every ratio of a report; more is faster."""
    ratios = {
        f"{mine.case}: {peer.program} / {mine.program}": peer.seconds / mine.seconds
        for mine in runs
        for peer in runs
        if mine.case == peer.case and mine.program.startswith("dagveil") and not peer.program.startswith("dagveil")
    }
    for other in loading[1:]:
        plain = loading[0]
        ratios[f"{plain.case}: {plain.program} / {other.program}"] = plain.seconds / other.seconds
    return ratios


def make_entry(ratios: dict[str, float]) -> SpeedEntry:
    """Return the entry of this moment on this machine."""
    versions = {"dagveil": __version__, "python": platform.python_version()} | describe_packages(COMPARED)
    hardware = describe_hardware()
    machine = f"{hardware['system']}, {hardware['processor']}, {hardware['cores']} cores"
    return SpeedEntry(datetime.now(UTC).isoformat(timespec="seconds"), ratios, versions, machine)


def read_history(path: str | Path) -> list[SpeedEntry]:
    """Return all entries of a history, the oldest first; none if there is no such file yet."""
    path = Path(path)
    if not path.exists():
        return []
    entries = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                entries.append(msgspec.json.decode(line, type=SpeedEntry))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DataError(
                    f"line {number} of {path} is no entry of a speed history; name another file, or mend the line"
                ) from error
    return entries


def append_entry(path: str | Path, entry: SpeedEntry) -> None:
    """Add an entry at the end of a history."""
    try:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; name a file that you may write") from error


def list_changes(before: SpeedEntry, now: SpeedEntry) -> list[Change]:
    """Return the ratios that both entries have."""
    return [
        Change(name, before.ratios[name], ratio)
        for name, ratio in now.ratios.items()
        if before.ratios.get(name, 0.0) > 0.0
    ]


def describe_changes(before: SpeedEntry | None, now: SpeedEntry) -> tuple[list[str], list[str]]:
    """Return lines about what changed since an earlier entry, and warnings about what became slower."""
    if before is None:
        return ["This is the first entry of the history."], []
    lines = [f"Since {before.created}:"]
    warnings = []
    for change in list_changes(before, now):
        line = f"{change.name}: {change.before:.3g} × before, {change.now:.3g} × now ({change.share:+.0%})"
        lines.append(f"  {line}")
        if change.share < -SLOWER:
            warnings.append(f"slower: {line}")
    if before.machine != now.machine:
        lines.append(f"  The machine was another one: {before.machine}.")
    lines += [
        f"  {name} was {before.versions.get(name, 'not installed')}, and is {version} now."
        for name, version in now.versions.items()
        if before.versions.get(name) != version
    ]
    return lines, warnings

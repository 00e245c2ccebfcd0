"""Peak memory of this process, and what it runs on."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dagveil import _version
from dagveil.data.machine import peak_memory

PACKAGES = ("numpy", "scipy", "opendp", "pyarrow", "msgspec")
# variables by which libraries of linear algebra are told how many threads to use
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Forget the peak so far, where the system can: elsewhere `read_peak` gives the peak since the process began."""
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return


def read_peak() -> float:
    """Return the largest resident size since the last reset, in MiB; NaN where nobody counts it."""
    return peak_memory() / 2**20


def describe_software() -> dict[str, str]:
    """Return the versions that a run depends on; of dagveil in a checkout also the commit."""
    ours = " ".join(
        part for part in (_version.__version__, find_commit(Path(_version.__file__).resolve().parent)) if part
    )
    return {"dagveil": ours, "python": platform.python_version()} | describe_packages(PACKAGES)


def find_commit(package: Path) -> str:
    """Return the commit of the checkout that the folder of a package lies in, with a mark if files differ from it.

    Nothing for an installed package, also where its environment lies inside somebody's checkout.
    """
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def describe_packages(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def list_changes(calls: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Name what later calls of the runner had in another version than earlier ones."""
    versions: dict[str, dict[str, None]] = {}
    for software in calls:
        for name, installed in software.items():
            versions.setdefault(name, {})[installed] = None
    return tuple(f"{name} {', '.join(found)}" for name, found in versions.items() if len(found) > 1)


def describe_hardware() -> dict[str, str]:
    """Return what the seconds of a run depend on."""
    found = {"system": f"{platform.system()} {platform.machine()}", "cores": str(os.cpu_count() or 0)}
    found["processor"] = _processor() or platform.processor() or "unknown"
    try:
        found["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (AttributeError, ValueError, OSError):
        found["memory"] = "unknown"
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")

"""What this machine has: memory that may be used, and sizes as people write them."""

import math
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from dagveil.errors import DataError

_DECIMAL: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS: Final = {**_DECIMAL, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_FEWEST_BYTES: Final = 10**8


def available_memory() -> float | None:
    """Return the bytes that the operating system would give this process now; None if it does not say."""
    found = [number for number in (_free_bytes(), _group_bytes()) if number is not None]
    return min(found) if found else None


def peak_memory() -> float:
    """Return the most bytes that this process has held so far; not a number if the operating system does not say.

    Linux tells it for the program that runs. Its `getrusage` would not do: what the process held before it started
    this program, as a copy of its parent, counts there as well.
    """
    with suppress(ImportError):  # Windows has no such module
        import resource

        # the kernel counts in kilobytes, but for macOS
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)
        return _read_kilobytes("/proc/self/status", "VmHWM") or held
    return math.nan


def _read_kilobytes(path: str, name: str) -> float | None:
    """Read a number that Linux tells of in kilobytes."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            if line.partition(":")[0] == name:
                return 1024.0 * int(line.split()[1])
    return None


def _free_bytes() -> float | None:
    with suppress(ValueError, OSError, AttributeError):
        told = _read_kilobytes("/proc/meminfo", "MemAvailable")
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if told is None else told
    return None


def _group_bytes() -> float | None:
    """Return what the control group of a container leaves."""
    folder = Path("/sys/fs/cgroup")
    # where there is no limit, this is the word max, which is no number
    with suppress(OSError, ValueError):
        most, used = (int((folder / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        return float(most - used)
    return None


def read_bytes(text: str) -> int:
    """Read a size such as 8GB, 500 MB or 2GiB."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    if found is None or found[2].lower() not in _UNITS:
        raise DataError(f"{text!r} is no amount of memory; write for example 8GB or 500MB")
    number = int(float(found[1]) * _UNITS[found[2].lower()])
    if number < _FEWEST_BYTES:
        raise DataError(f"a memory limit of {text!r} is too small to work with; give at least 100MB")
    return number

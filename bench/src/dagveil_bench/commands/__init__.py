"""The commands of `dagveil bench`: importing this package adds them to their group."""

from dagveil_bench.commands import measurements, study, timings
from dagveil_bench.commands.group import bench

__all__ = ["bench", "measurements", "study", "timings"]

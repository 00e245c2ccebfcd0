"""The commands of `dagveil bench`: importing this package adds them to their group."""

from __future__ import annotations

from dagveil_bench.commands import custodians, measurements, mutate, nonlinear, scale, study, trust, wide
from dagveil_bench.commands.group import bench

__all__ = ["bench", "custodians", "measurements", "mutate", "nonlinear", "scale", "study", "trust", "wide"]

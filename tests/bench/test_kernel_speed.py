"""The comparison of kernel tests runs, and its page has the ratios."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil_bench import kernel_speed
from dagveil_bench.kernel_speed import OURS, compare, draw_sample, kernel_speed_page
from dagveil_bench.speed import Timing


def test_samples_lie_within_the_bounds_and_depend_on_what_is_given() -> None:
    sample = draw_sample(2000, 5, np.random.default_rng(0))
    assert sample.shape == (2000, 7)
    assert np.abs(sample).max() <= 1.0
    assert np.corrcoef(sample.T)[0, 1] > 0.2


def test_every_program_is_timed_once_per_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_speed, "PEERS", {"causal-learn RCIT": "rcit"})
    steps: list[int] = []
    timings = compare(60, 5, (1, 2), 1, lambda stage, done, total: steps.append(done))
    assert [timing.program for timing in timings] == [*OURS, "causal-learn RCIT"] * 2
    assert {timing.case for timing in timings} == {"60 rows, 1 given", "60 rows, 2 given"}
    assert all(timing.seconds > 0.0 for timing in timings)
    assert steps == [1, 2, 3, 4, 5, 6]


def test_page() -> None:
    timings = [Timing("case", OURS[0], 0.5), Timing("case", OURS[1], 0.25), Timing("case", "peer", 2.0)]
    page = kernel_speed_page(timings, [Timing("alarm", "ours", 0.5), Timing("alarm", "theirs", 2.0)], "command")
    assert "| peer | 2.000 s |" in page
    assert "| ours | 0.500 s | 4.0 × |" in page
    assert "| peer / dagveil exact RCIT | 4 × |" in page
    assert "| peer / dagveil feature RCIT | 8 × |" in page


def test_graphs_are_timed_beside_a_linear_peer() -> None:
    timings = kernel_speed.compare_graphs("cancer", 300, 1, lambda stage, done, total: None)
    assert [timing.program for timing in timings] == list(kernel_speed.GRAPHS)
    assert all(timing.seconds > 0.0 for timing in timings)

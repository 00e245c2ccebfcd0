"""Level and power of private tests: designs go by name, and a test in bins keeps its level."""

from __future__ import annotations

from itertools import product
from zlib import crc32

import numpy as np
import pytest

from dagveil.errors import MethodError
from dagveil.privacy.budget import Budget
from dagveil_bench.levels import TESTS, Design, design_named, draw_design

KENDALL = "conditional Kendall's τ, public bins"


def reject(design: Design, epsilon: float, n_rows: int, run: int) -> bool:
    columns = draw_design(n_rows, np.random.default_rng([3, run, n_rows, crc32(design.name.encode())]))
    noise = np.random.default_rng([3, run, crc32(f"{KENDALL} {epsilon:g}".encode())])
    return TESTS[KENDALL](columns, design.question, Budget.of(epsilon, 1e-6), noise)


def test_designs_have_words() -> None:
    assert [design_named(design.value) for design in Design] == list(Design)
    with pytest.raises(MethodError, match="no design is called 'null'; choose one of conditional-null"):
        design_named("null")


def test_kendall_keeps_its_level_and_finds_what_is_plain() -> None:
    def share(design: Design, epsilon: float, rows: int) -> float:
        return sum(reject(design, epsilon, rows, run) for run in range(60)) / 60

    # at level 0.05 more than 11 of 60 happen once in 10⁴ such tests
    for design, epsilon in product((Design.MARGINAL_NULL, Design.CONDITIONAL_NULL), (0.05, 1e6)):
        assert share(design, epsilon, 200) <= 11 / 60
    assert share(Design.MARGINAL_POWER, 1.0, 500) > 0.9
    assert share(Design.MARGINAL_POWER, 0.01, 200) < 0.3

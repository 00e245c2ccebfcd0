"""Bits of fixed point follow from public numbers of rows, so that sums over them fit into 64-bit integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.methods.measure_features import MeasureFeaturesSettings, plan_features
from dagveil.methods.measure_moments import plan_moments
from dagveil.plans.plan_file import AskMoments, PlannedSite
from dagveil.plans.planning import plan_measurement
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyMoments
from dagveil.runs import cost as costs
from dagveil.runs.discovery import measure_source


@pytest.mark.parametrize(("rows", "bits"), [(10**6, 10), (10**9, 9), (10**10, 7)])
def test_a_thousand_columns(rows: int, bits: int) -> None:
    names = tuple(f"c{k}" for k in range(1000))
    plan = plan_moments(names, dict.fromkeys(names, 0.0), dict.fromkeys(names, 1.0), rows, 0.05)
    assert plan.bits == bits
    assert plan.max_rows() >= 4 * rows
    plan.check_rows(rows)
    plan.check_reach()


def test_a_plan_of_sites_counts_the_rows_of_all() -> None:
    columns = {f"c{k}": Numeric(bounds=(-6.0, 6.0), center=0.0, spread=1.0) for k in range(100)}
    schema = Schema(dataset="wide", columns=columns, reviewed=True, nominal_rows=10**9)
    sites = [PlannedSite(name, Fraction(1), Fraction(1, 10**6), 10**9) for name in ("north", "south")]
    one, both = plan_measurement(schema, 1).asks[0], plan_measurement(schema, 1, sites=sites).asks[0]
    assert isinstance(one, AskMoments)
    assert isinstance(both, AskMoments)
    assert (one.rows.bits, both.rows.bits) == (10, 9)
    both.rows.check_rows(8 * 10**9)


def test_features_as_well() -> None:
    columns = {f"c{k}": Numeric(bounds=(-6.0, 6.0), center=0.0, spread=1.0) for k in range(300)}
    schema = Schema(dataset="wide", columns=columns, reviewed=True)
    scales = dict.fromkeys(columns, 0.0), dict.fromkeys(columns, 1.0)
    few, many = (plan_features(schema, *scales, 2, MeasureFeaturesSettings(), n, 0.05) for n in (10**6, 10**10))
    assert (few.bits, many.bits) == (10, 8)
    assert many.rows.max_rows() >= 4 * 10**10


def test_the_true_number_of_rows_does_not_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows that are declared as many get the bits of many, and the evidence says so."""
    monkeypatch.setattr(costs, "available_memory", lambda: None)
    columns = {name: Numeric(bounds=(-6.0, 6.0), center=0.0, spread=1.0) for name in "abc"}
    rows = {name: np.random.default_rng(1).normal(size=200) for name in "abc"}
    told = []
    for nominal in (200, 10**13):
        schema = Schema(dataset="few", columns=columns, reviewed=True, public=True, nominal_rows=nominal)
        found = measure_source(rows, schema, 1, noise=NoiseKind.EXACT, ledger=None)
        (moments,) = found.releases
        assert isinstance(moments, NoisyMoments)
        told.append((moments.bits, any("binary places" in finding for finding in found.findings)))
    assert told == [(10, False), (6, True)]

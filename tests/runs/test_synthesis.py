"""Synthetic rows: close to what was released, marked, and free of dependences that are only noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import dagveil as dv
from dagveil.errors import DataError, EvidenceError
from dagveil.evidence.graphical_model import _Beliefs, fit_linear, project_onto_simplex, scale_to_margins
from dagveil.evidence.tables import ReleasedTables
from dagveil.examples.networks import (
    gaussian_schema,
    load_network,
    network_schema,
    random_linear_gaussian,
    sample_linear_gaussian,
    sample_table,
)
from dagveil.privacy.release import NoisyMoments
from dagveil.runs.synthesis import MARK
from dagveil_bench.synthesis import margin_errors

N_ROWS = 20_000


def measure(rows: object, schema: dv.Schema, epsilon: float = 1) -> dv.Evidence:
    return dv.measure_source(rows, schema, epsilon, "1e-6", ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)


@pytest.mark.parametrize("network", ["asia", "sachs"])
def test_margins_come_close(network: str) -> None:
    known = load_network(network)
    schema = network_schema(known, N_ROWS)
    table = sample_table(known, N_ROWS, np.random.default_rng(1))
    drawn = dv.synthesize(measure(table, schema, 3), N_ROWS)
    one, two, three = margin_errors(table, drawn.table, schema)
    assert one < 0.01
    assert two < 0.02
    assert three < 0.03
    # columns that are drawn one by one are far off
    rng = np.random.default_rng(0)
    apart = pa.table({name: table[name].take(pa.array(rng.permutation(N_ROWS))) for name in schema.columns})
    assert margin_errors(table, apart, schema)[1] > 2 * two


def test_rows_are_marked_in_every_format(tmp_path: Path) -> None:
    known = load_network("cancer")
    evidence = measure(sample_table(known, 1000, np.random.default_rng(1)), network_schema(known, 1000))
    drawn = dv.synthesize(evidence, 50)
    assert drawn.table.num_rows == 50
    for name in ("a.csv", "a.parquet", "a.feather"):
        drawn.save(tmp_path / name)
    assert (tmp_path / "a.csv").read_text().splitlines()[1].endswith(",true")
    for read in (parquet.read_table(tmp_path / "a.parquet"), feather.read_table(tmp_path / "a.feather")):
        assert read[MARK].to_pylist() == [True] * 50
        assert b"synthetic" in read.schema.metadata[b"dagveil"]
    assert drawn.schema.public
    assert "synthetic" in drawn.schema.dataset
    with pytest.raises(DataError, match="must end in"):
        drawn.save(tmp_path / "a.xlsx")
    assert dv.synthesize(evidence, 50).table.equals(drawn.table)
    assert not dv.synthesize(evidence, 50, seed=2).table.equals(drawn.table)
    # such rows can be measured, but not taken for the source of others
    again = measure(drawn.table, drawn.schema)
    assert MARK not in again.schema.columns


def test_rows_of_persons_name_none() -> None:
    columns = {name: dv.Boolean(outside="false") for name in "ab"}
    schema = dv.Schema(dataset="visits", columns=columns, reviewed=True, nominal_rows=500, person="who")
    rng = np.random.default_rng(4)
    rows = {"who": np.arange(1000) // 2, **{name: rng.random(1000) < 0.5 for name in "ab"}}
    drawn = dv.synthesize(measure(rows, schema, 3), 100)
    assert drawn.schema.person is None
    measure(drawn.table, drawn.schema)


def test_values_are_those_that_a_file_has() -> None:
    rng = np.random.default_rng(1)
    schema = dv.Schema(
        dataset="d",
        reviewed=True,
        columns={
            "age": dv.Numeric(bounds=(0, 100), bins=(40.0, 60.0), missing="own-level"),
            "sex": dv.Categorical(("f", "m"), missing="own-level"),
            "fit": dv.Boolean(outside="false"),
        },
    )
    rows = {
        "age": [None if k % 4 == 0 else float(k % 100) for k in range(4000)],
        "sex": [["f", "m", None, "x"][k] for k in rng.integers(0, 4, 4000)],
        "fit": rng.random(4000) < 0.5,
    }
    table = dv.synthesize(measure(rows, schema, 5), 2000).table
    ages = table["age"].to_pylist()
    assert ages.count(None) / 2000 == pytest.approx(0.25, abs=0.05)
    assert all(0 <= age <= 100 for age in ages if age is not None)
    assert set(table["sex"].to_pylist()) == {"f", "m", None, "(other)"}
    assert set(table["fit"].to_pylist()) == {"false", "true"}


def test_numbers_have_the_moments_that_were_released() -> None:
    model = random_linear_gaussian(5, 0.6, np.random.default_rng(4))
    rows = sample_linear_gaussian(model, N_ROWS, np.random.default_rng(5)) + 0.5
    columns = dict(zip(model.nodes, rows.T, strict=True))
    drawn = dv.synthesize(measure(columns, gaussian_schema(model, N_ROWS)), N_ROWS)
    found = np.stack([drawn.table[name].to_numpy() for name in model.nodes])
    np.testing.assert_allclose(found.mean(axis=1), rows.mean(axis=0), atol=0.04)
    np.testing.assert_allclose(found.std(axis=1), rows.std(axis=0), rtol=0.04)
    np.testing.assert_allclose(np.corrcoef(found), np.corrcoef(rows.T), atol=0.06)


def test_a_linear_model_keeps_variances() -> None:
    model = random_linear_gaussian(4, 0.8, np.random.default_rng(4))
    rows = sample_linear_gaussian(model, N_ROWS, np.random.default_rng(5))
    evidence = measure(dict(zip(model.nodes, rows.T, strict=True)), gaussian_schema(model, N_ROWS), 10)
    release = next(release for release in evidence.releases if isinstance(release, NoisyMoments))
    fitted, _ = fit_linear(release, model.dag())
    scaled = np.diag(fitted.covariance()) * np.square(release.spreads)
    np.testing.assert_allclose(scaled, rows.var(axis=0), rtol=0.03)


def test_noise_alone_adds_no_dependence() -> None:
    """Shrunk towards its margins, a table of independent columns loses most of what noise put into it."""
    rng = np.random.default_rng(3)
    schema = dv.Schema(
        dataset="d", reviewed=True, columns={name: dv.Categorical(tuple("abcd"), outside="a") for name in "xy"}
    )
    rows = {name: [("abcd")[k] for k in rng.integers(0, 4, 400)] for name in "xy"}
    evidence = measure(rows, schema, 0.1)
    believed = _Beliefs(ReleasedTables(evidence.releases)).find(("x", "y"))
    raw = project_onto_simplex(evidence.table("x", "y").shares)
    product = np.outer(believed.sum(axis=1), believed.sum(axis=0))
    raw_product = np.outer(raw.sum(axis=1), raw.sum(axis=0))
    assert np.abs(believed - product).sum() < 0.7 * np.abs(raw - raw_product).sum()


def test_projection_is_nearest_and_fitting_reaches_margins() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.1, 0.3, (3, 4))
    nearest = project_onto_simplex(values)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(1.0)
    for _ in range(200):
        other = rng.dirichlet(np.ones(12) * 0.3).reshape(3, 4)
        assert ((values - nearest) ** 2).sum() <= ((values - other) ** 2).sum()
    joint = rng.dirichlet(np.ones(24)).reshape(2, 3, 4)
    axes = [(0, 1), (0, 2), (1, 2)]
    margins = [joint.sum(axis=2), joint.sum(axis=1), joint.sum(axis=0)]
    fitted = scale_to_margins(np.ones((2, 3, 4)) / 24, margins, axes)
    for margin, gone in zip(margins, (2, 1, 0), strict=True):
        np.testing.assert_allclose(fitted.sum(axis=gone), margin, atol=1e-6)


def test_refusals() -> None:
    known = load_network("cancer")
    evidence = measure(sample_table(known, 1000, np.random.default_rng(1)), network_schema(known, 1000))
    with pytest.raises(DataError, match="at least 1"):
        dv.synthesize(evidence, 0)
    model = random_linear_gaussian(3, 0.5, np.random.default_rng(1))
    rows = dict(zip(model.nodes, sample_linear_gaussian(model, 1000, np.random.default_rng(2)).T, strict=True))
    schema = gaussian_schema(model, 1000)
    features = dv.measure_source(
        rows, schema, 1, "1e-6", method="measure-features", ledger=None, noise=dv.NoiseKind.SEEDED, seed=1
    )
    with pytest.raises(EvidenceError, match="nonlinear features, from which no rows are drawn"):
        dv.synthesize(features, 10)
    wide = dv.Schema(
        dataset="d",
        reviewed=True,
        columns={name: dv.Numeric(bounds=(0, 1), bins=300) for name in "ab"},
    )
    with pytest.raises(EvidenceError, match="300 levels, and rows are drawn for at most 256"):
        dv.synthesize(measure({name: [0.5] * 100 for name in "ab"}, wide), 10)


def test_levels_beside_numbers_tell_graphs_only_and_every_reader_says_so() -> None:
    rng = np.random.default_rng(1)
    columns = {"a": dv.Boolean("false"), "b": dv.Boolean("false"), "x": dv.Numeric((-4, 4), center=0, spread=1)}
    schema = dv.Schema(dataset="d", reviewed=True, nominal_rows=2000, columns=columns)
    rows = {"a": rng.random(2000) < 0.5, "b": rng.random(2000) < 0.5, "x": rng.standard_normal(2000)}
    evidence = dv.measure_source(rows, schema, 1, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
    with pytest.raises(EvidenceError, match=r"levels beside numbers.*bins for every number"):
        dv.synthesize(evidence, 10)
    with pytest.raises(EvidenceError, match=r"levels beside numbers.*read for graphs only"):
        evidence.table("a", "b")
    known = dv.Knowledge(required=frozenset({("a", "b")}))
    result = dv.search_evidence(evidence, dv.SearchSettings(redraws=0), knowledge=known)
    assert "no table of a was released" in dv.effect(result, "a", "b", evidence=evidence).sentence

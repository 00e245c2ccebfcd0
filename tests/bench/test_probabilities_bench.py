"""The study of probabilities: its scores, its fit, and that what the package says of small networks is about true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagveil.progress import silent
from dagveil.search.probabilities import FITTED, Correction
from dagveil_bench.probabilities import (
    Case,
    Claim,
    calibration_error,
    draw_reliability,
    fit_correction,
    list_cases,
    probabilities_page,
    run_cases,
    sample_kind,
    say_arrows,
    say_edges,
    say_parents,
)

CASE = Case("made up", 1000, 1.0, 0)


def make_claims(truth: Correction, pairs: int, seed: int) -> list[Claim]:
    """Draw claims whose edges and directions are true as often as a correction says."""
    rng = np.random.default_rng(seed)
    claims = []
    for _ in range(pairs):
        share, odds = float(rng.normal(0, 3)), float(rng.normal(0, 2))
        facts = (share, share * float(np.log(rng.uniform(0.01, 1))), float(np.log(rng.integers(5, 40))))
        edge = bool(rng.random() < truth.edge(facts))
        causes = edge and bool(rng.random() < truth.lean(odds))
        shares = {"share": 0.5, "forward": 0.5, "backward": 0.0, "arrow_share": 0.5}
        said = {"probability": truth.edge(facts), "ahead": 0.0, "back": 0.0}
        claims.append(
            Claim(
                CASE,
                facts,
                odds,
                **shares,
                **said,
                drawn=True,
                arrow=True,
                edge=edge,
                causes=causes,
                caused=edge and not causes,
            )
        )
    return claims


def test_a_fit_finds_the_correction_behind_claims() -> None:
    truth = Correction(constant=1.5, share=0.6, noise=-0.1, columns=-0.5, direction=1.2)
    found = fit_correction(make_claims(truth, 20_000, 1))
    for name in ("constant", "share", "noise", "columns", "direction"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), abs=0.25 if name == "constant" else 0.1)


def test_the_calibration_error_sees_what_is_off() -> None:
    rng = np.random.default_rng(3)
    said = rng.random(20_000)
    true = rng.random(20_000) < said
    assert calibration_error(said, true) < 0.02
    assert calibration_error(np.clip(said + 0.1, 0, 1), true) > 0.08
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, False])) == 0.5


def chance_error(said: np.ndarray) -> float:
    """Return the calibration error that probabilities which are right exceed by chance in one of 1000 samples."""
    rng = np.random.default_rng(0)
    return float(np.quantile([calibration_error(said, rng.random(len(said)) < said) for _ in range(4000)], 0.999))


def test_cases_differ_in_their_tables() -> None:
    cases = list_cases(("asia", "synthetic 5"), (100, 200), (1.0,), 2)
    assert len(cases) == 8
    assert len({case.seed for case in cases}) == 8
    table, dag = sample_kind("synthetic-numbers 6", 100, np.random.default_rng(0))
    assert len(dag.nodes) == 6
    assert {type(column).__name__ for column in table.schema.columns.values()} == {"Numeric"}
    table, _ = sample_kind("synthetic 6", 100, np.random.default_rng(0))
    assert {type(column).__name__ for column in table.schema.columns.values()} == {"Categorical"}


def test_probabilities_of_networks_that_nothing_was_fitted_on_are_about_true(tmp_path: Path) -> None:
    cases = list_cases(("asia", "survey", "earthquake", "synthetic 8"), (4000,), (0.3, 1.0, 3.0), 2)
    found = run_cases(cases, 20, silent)
    claims = [claim for one in found for claim in one.claims]
    said, true = say_edges(claims, True)
    assert calibration_error(said, true) < chance_error(said)
    # the power of this test: it would see probabilities that follow shares too closely, or hardly at all
    for slope in (5.0, 0.1):
        wrong = replace(FITTED, share=slope * FITTED.share, noise=slope * FITTED.noise)
        other = np.array([wrong.edge(claim.facts) for claim in claims])
        assert calibration_error(other, true) > chance_error(other)
    for claim in claims:
        assert claim.ahead + claim.back == pytest.approx(claim.probability)
        assert claim.edge == (claim.causes or claim.caused)
    assert len(say_arrows(claims, True)[0]) == sum(claim.arrow for claim in claims)
    assert len(say_parents(claims, False)[0]) == 2 * len(claims)

    page = probabilities_page(found, found[:2], 20, "dagveil bench probabilities", "figure.svg")
    assert page.count("\n## ") == 6
    assert f"| edges | {len(claims)} | " in page
    pairs = sum(len(one.claims) + one.silent for one in found if one.case.epsilon == 1.0)
    assert f"of all {pairs} pairs" in page
    draw_reliability(found, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text(encoding="utf-8").startswith("<?xml")

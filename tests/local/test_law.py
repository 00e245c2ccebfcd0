"""Laws recovered from reports, by both rules and from every channel; guesses of an attacker who knows a prior."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Categorical
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, DataError, EvidenceError
from dagveil.local.law import Law, Rule, recover_law, update_by_bayes
from dagveil.local.planning import load_priors, plan_protocol
from dagveil.local.protocol import Form, Mechanism, Protocol, success_with_priors
from dagveil.local.record import RecordChannel
from dagveil.local.store import label_reports
from dagveil.privacy.noise.kind import NoiseKind, noise_source

SCHEMA = Schema(
    dataset="people",
    reviewed=True,
    columns={"a": Boolean("false"), "b": Categorical(levels=("x", "y", "z"), outside="x"), "c": Boolean("false")},
)
LEVELS = (2, 3, 2)
KINDS = list(itertools.product(Mechanism, Form))


def plan(mechanism: Mechanism, form: Form, truth: float = 0.6) -> Protocol:
    return plan_protocol(SCHEMA, mechanism, form, truth=truth)


def draw_people(n: int, rng: np.random.Generator) -> np.ndarray:
    a = rng.integers(0, 2, n)
    b = np.where(rng.random(n) < 0.7, a, rng.integers(0, 3, n))
    return np.stack([a, b, (b > 0) ^ (rng.random(n) < 0.1)], axis=1).astype(np.int64)


def full_matrix(channel: RecordChannel, protocol: Protocol) -> np.ndarray:
    """Estimate the whole matrix by its own definition where it is known, by many draws otherwise."""
    records = np.array(list(itertools.product(*(range(k) for k in protocol.levels))))
    noise = noise_source(NoiseKind.SEEDED, seed=1)
    rows = []
    for record in records:
        reports = channel.report(np.repeat(record[None], 20_000, axis=0), noise)
        rows.append(np.bincount(np.ravel_multi_index(tuple(reports.T), protocol.levels), minlength=len(records)))
    return np.array(rows) / 20_000


@pytest.mark.parametrize(("mechanism", "form"), KINDS)
@pytest.mark.parametrize("rule", Rule)
def test_the_law_is_recovered(mechanism: Mechanism, form: Form, rule: Rule) -> None:
    protocol = plan(mechanism, form)
    people = draw_people(100_000, np.random.default_rng(3))
    reports = label_reports(protocol.channel.report(people, noise_source(NoiseKind.SEEDED, seed=4)), protocol)
    if (mechanism, form, rule) == (Mechanism.GEOMETRIC, Form.COMBINED, Rule.INVERSE):
        with pytest.raises(EvidenceError, match="ibu"):
            recover_law(reports, protocol, ["c", "a"], rule)
        return
    law = recover_law(reports, protocol, ["c", "a"], rule, redraws=20)
    truth = np.zeros((2, 2))
    np.add.at(truth, (people[:, 2], people[:, 0]), 1 / len(people))
    assert law.shares.sum() == pytest.approx(1.0)
    assert (law.errors > 0.0).all()
    # the sample itself has no error here: only the channel's
    assert (np.abs(law.shares - truth) < 5.0 * law.errors).all()
    plain = recover_law(reports, protocol, ["b"], rule, redraws=0)
    assert plain.shares.shape == (3,)
    assert np.isnan(plain.errors).all() == (rule is Rule.IBU)


@pytest.mark.parametrize(("mechanism", "form"), KINDS)
def test_columns_come_in_the_order_asked_for(mechanism: Mechanism, form: Form) -> None:
    protocol = plan(mechanism, form)
    people = draw_people(2000, np.random.default_rng(5))
    reports = label_reports(protocol.channel.report(people, noise_source(NoiseKind.SEEDED, seed=6)), protocol)
    one = recover_law(reports, protocol, ["a", "b"], Rule.IBU, redraws=0)
    other = recover_law(reports, protocol, ["b", "a"], Rule.IBU, redraws=0)
    assert one.shares == pytest.approx(other.shares.T, abs=1e-9)
    assert one.labels == (("false", "true"), ("x", "y", "z"))
    lines = one.to_table().to_pylist()
    assert [(line["a"], line["b"]) for line in lines] == list(itertools.product(*one.labels))
    assert [line["share"] for line in lines] == one.shares.ravel().tolist()


def test_the_update_with_a_share_of_noise_is_that_of_the_written_out_channel() -> None:
    counts = np.array([[30.0, 5.0, 8.0], [2.0, 40.0, 15.0]])
    kept = 0.35
    whole = kept * np.eye(6) + (1.0 - kept) / 6
    short = update_by_bayes(counts, [np.eye(2), np.eye(3)], 0.0, 40, kept=kept)
    assert short.ravel() == pytest.approx(update_by_bayes(counts.ravel(), [whole], 0.0, 40), abs=1e-12)


def test_what_cannot_be_recovered() -> None:
    protocol = plan(Mechanism.RESPONSE, Form.COMPONENT_WISE)
    empty = label_reports(np.empty((0, 3), np.int64), protocol)
    some = label_reports(np.zeros((5, 3), np.int64), protocol)
    with pytest.raises(DataError, match="no reports"):
        recover_law(empty, protocol, ["a"])
    with pytest.raises(DataError, match="no column 'q'; it has a, b, c"):
        recover_law(some, protocol, ["a", "q"])
    for columns in ([], ["a", "a"]):
        with pytest.raises(DataError, match="each once"):
            recover_law(some, protocol, columns)
    clash = Law(("share",), (("x",),), np.ones(1), np.ones(1), 1)
    with pytest.raises(DataError, match="rename it"):
        clash.to_table()
    wide = Schema(dataset="wide", reviewed=True, columns={f"c{i}": Boolean("false") for i in range(13)})
    for form in Form:
        large = plan_protocol(wide, Mechanism.GEOMETRIC, form, truth=0.5)
        reports = label_reports(np.zeros((5, 13), np.int64), large)
        names = [f"c{i}" for i in range(13)] if form is Form.COMPONENT_WISE else ["c0"]
        with pytest.raises(EvidenceError, match="8192"):
            recover_law(reports, large, names, Rule.IBU)


@pytest.mark.parametrize(("mechanism", "form"), KINDS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_success_is_that_of_the_best_guess_for_every_report(mechanism: Mechanism, form: Form, seed: int) -> None:
    protocol = plan(mechanism, form)
    rng = np.random.default_rng(seed)
    priors = [rng.dirichlet(np.ones(k)) for k in LEVELS]
    joint = np.einsum("i,j,k->ijk", *priors).ravel()
    slow = (joint[:, None] * _matrix(mechanism, form)).max(axis=0).sum()
    # the matrix was drawn: 20 000 reports of each record
    assert success_with_priors(protocol.channel, priors) == pytest.approx(slow, abs=0.02)
    assert success_with_priors(protocol.channel, priors) >= joint.max() - 1e-9
    certain = [np.eye(k)[0] for k in LEVELS]
    assert success_with_priors(protocol.channel, certain) == pytest.approx(1.0)
    even = [np.full(k, 1.0 / k) for k in LEVELS]
    assert success_with_priors(protocol.channel, even) == pytest.approx(protocol.channel.truth(), abs=1e-9)


_MATRICES: dict[tuple[Mechanism, Form], np.ndarray] = {}


def _matrix(mechanism: Mechanism, form: Form) -> np.ndarray:
    if (mechanism, form) not in _MATRICES:
        protocol = plan(mechanism, form)
        _MATRICES[mechanism, form] = full_matrix(protocol.channel, protocol)
    return _MATRICES[mechanism, form]


def test_success_about_too_many_records_is_refused() -> None:
    wide = Schema(dataset="wide", reviewed=True, columns={f"c{i}": Boolean("false") for i in range(23)})
    protocol = plan_protocol(wide, Mechanism.RESPONSE, Form.COMBINED, truth=0.5)
    with pytest.raises(BudgetError, match="component-wise"):
        success_with_priors(protocol.channel, [np.array([0.5, 0.5])] * 23)


def test_priors_from_a_file(tmp_path: Path) -> None:
    protocol = plan(Mechanism.RESPONSE, Form.COMPONENT_WISE)
    path = tmp_path / "priors.toml"
    path.write_text("[b]\nz = 0.75\nx = 0.25\n")
    priors = load_priors(path, protocol)
    assert [prior.tolist() for prior in priors] == [[0.5, 0.5], [0.25, 0.0, 0.75], [0.5, 0.5]]
    for text, what in (
        ("[q]\nx = 1", "no column 'q'"),
        ("[b]\nq = 1", "no label 'q'; it has x, y, z"),
        ("[b]\nx = 0.5", "add up to 0.5"),
        ("[b]\nx = -1\ny = 2", "0 or more"),
        ("[b]\nx = nan\ny = 1", "0 or more"),
        ("b = 1", "under \\[column\\]"),
        ("[b", "not valid TOML"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=what):
            load_priors(path, protocol)
    with pytest.raises(DataError, match="cannot read"):
        load_priors(tmp_path / "none.toml", protocol)
    assert math.isclose(sum(priors[1]), 1.0)

"""The section about an audit: what it shows, and that it tells when an audit is about another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from sample_result import model_of, render, write_sealed

from dagveil.audit.certificate import Certificate, decode_certificate, encode_certificate
from dagveil.audit.examination import Plan, examine_method
from dagveil.cli.main import group
from dagveil.errors import DataError
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.report.guarantee import find_mismatches
from dagveil.report.registry import build_card


@pytest.fixture(scope="module")
def audited() -> Certificate:
    return examine_method(method_named("lap-mech"), Budget.of(1, 0), plan=Plan(runs=50, trials=40))


@pytest.fixture
def own(result: dict[str, Any], audited: Certificate) -> Certificate:
    """A certificate that is about the result."""
    return replace(
        audited,
        method=result["method"]["name"],
        calibration=Calibration(result["method"]["calibration"]),
        epsilon=result["receipt"]["epsilon"],
        delta=result["receipt"]["delta"],
        software=f"dagveil {result['software']}",
    )


def test_a_page_without_an_audit_has_no_section(result: dict[str, Any]) -> None:
    assert "We tried to break this" not in render(result)


def test_the_section_shows_bounds_beside_claims(result: dict[str, Any], own: Certificate) -> None:
    page = render(result, own)
    for words in ("We tried to break this", "never on these rows", "epsilon is at least", "could prove", "advantage"):
        assert words in page
    assert "Nothing broke the claim" in page
    assert "another run" not in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("method", "svt-pc", "the method is svt-pc"),
        ("calibration", Calibration.PAPER, "the calibration is paper"),
        ("epsilon", "77", "epsilon is 77"),
        ("delta", "1/3", "delta is 0.3333"),
        ("software", "dagveil 99.0", "the program is 99.0"),
        ("relations", (), "the neighbours are others"),
    ],
)
def test_an_audit_of_another_run_is_told(
    result: dict[str, Any], own: Certificate, field: str, value: Any, words: str
) -> None:
    other = replace(own, **{field: value})
    (mismatch,) = find_mismatches(other, model_of(result).result)
    assert words in mismatch
    assert "about another run" in render(result, other)


def test_violations_are_told(result: dict[str, Any], own: Certificate) -> None:
    broken = replace(own.replays[0], violations=("<b>peeked</b>",))
    page = render(result, replace(own, replays=(broken, *own.replays[1:])))
    assert "The claim is broken" in page
    assert "&lt;b&gt;peeked" in page
    assert "Nothing broke the claim" not in page


def test_what_is_no_certificate_is_refused(own: Certificate) -> None:
    written = msgspec.json.decode(encode_certificate(own))
    for wrong, words in (({"format": "x"}, "not a certificate"), ({**written, "version": 1}, "has version 1")):
        with pytest.raises(DataError, match=words):
            decode_certificate(msgspec.json.encode(wrong))


def test_the_command(result: dict[str, Any], audited: Certificate, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(write_sealed(result))
    (tmp_path / "certificate.json").write_bytes(encode_certificate(audited))
    arguments = ["report", str(tmp_path / "result.json"), "--certificate"]
    done = CliRunner().invoke(group, [*arguments, str(tmp_path / "certificate.json")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "We tried to break this" in page
    assert "about another run" in page
    refused = CliRunner().invoke(group, [*arguments, str(tmp_path / "result.json")])
    assert refused.exit_code == 2
    assert "not a certificate" in refused.output


def test_the_card_tells_what_was_tried(result: dict[str, Any], own: Certificate) -> None:
    assert build_card(model_of(result))["audit"] is None
    audit = build_card(model_of(result, own))["audit"]
    assert audit["of_this_run"] is True
    assert audit["tried"]["claim"].startswith("epsilon 1")
    other = build_card(model_of(result, replace(own, epsilon="77")))["audit"]
    assert other["of_this_run"] is False
    assert "epsilon is 77" in other["differs"][0]


def test_the_bound_stands_beside_the_claim_of_this_run_only(result: dict[str, Any], own: Certificate) -> None:
    own = replace(own, attacks=tuple(replace(own.attacks[0], bound=bound) for bound in (0.25, 0.125)))
    beside = "<dt>epsilon that an audit could prove</dt><dd>at least 0.250</dd>"
    page = render(result, own)
    assert page.index(beside) < page.index("Who is protected")
    assert page.index('id="limits"') < page.index('id="attempts"') < page.index('id="budget"')
    assert beside not in render(result, replace(own, method="svt-pc"))

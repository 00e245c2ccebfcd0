"""The section about an audit: what it shows, and that it tells when an audit is about another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sample_result import write_sealed

from dagveil.audit.certificate import Certificate, encode_certificate, show_certificate
from dagveil.audit.examination import Plan, examine_method
from dagveil.cli.main import group
from dagveil.errors import DataError
from dagveil.methods.catalogue import method_named
from dagveil.privacy.budget import Budget
from dagveil.report.audit_section import read_attempts
from dagveil.report.card import build_card
from dagveil.report.html import render_report
from dagveil.report.model import check_result


@pytest.fixture(scope="module")
def audited() -> Certificate:
    return examine_method(method_named("lap-mech"), Budget.of(1, 0), plan=Plan(runs=50, trials=40))


@pytest.fixture
def own(result: dict[str, Any], audited: Certificate) -> dict[str, Any]:
    """A certificate that is about the result."""
    return {
        **show_certificate(audited),
        "method": result["method"]["name"],
        "calibration": result["method"]["calibration"],
        "epsilon": result["receipt"]["epsilon"],
        "delta": result["receipt"]["delta"],
        "software": f"dagveil {result['software']}",
    }


def test_a_page_without_an_audit_has_no_section(result: dict[str, Any]) -> None:
    assert "We tried to break this" not in render_report(result)


def test_the_section_shows_bounds_beside_claims(result: dict[str, Any], own: dict[str, Any]) -> None:
    page = render_report(result, own)
    for words in ("We tried to break this", "never on these rows", "epsilon is at least", "could prove", "advantage"):
        assert words in page
    assert "Nothing broke the claim" in page
    assert "another run" not in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("method", "svt-pc", "the method is svt-pc"),
        ("calibration", "paper", "the calibration is paper"),
        ("epsilon", "77", "epsilon is 77"),
        ("delta", "1/3", "delta is 0.3333"),
        ("software", "dagveil 99.0", "the program is 99.0"),
        ("relations", [], "the neighbours are others"),
    ],
)
def test_an_audit_of_another_run_is_told(
    result: dict[str, Any], own: dict[str, Any], field: str, value: Any, words: str
) -> None:
    attempts = read_attempts({**own, field: value}, check_result(result))
    assert len(attempts.mismatches) == 1
    assert words in attempts.mismatches[0]
    assert "about another run" in render_report(result, {**own, field: value})


def test_violations_are_told(result: dict[str, Any], own: dict[str, Any]) -> None:
    page = render_report(result, {**own, "violations": ["replay: <b>peeked</b>"]})
    assert "The claim is broken" in page
    assert "&lt;b&gt;peeked" in page
    assert "Nothing broke the claim" not in page


def test_what_is_no_certificate_is_refused(result: dict[str, Any], own: dict[str, Any]) -> None:
    for wrong, words in (({"format": "x"}, "not a certificate"), ({**own, "version": 1}, "another version")):
        with pytest.raises(DataError, match=words):
            render_report(result, wrong)


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


def test_the_card_tells_what_was_tried(result: dict[str, Any], own: dict[str, Any]) -> None:
    assert build_card(result)["audit"] is None
    audit = build_card(result, own)["audit"]
    assert audit["of_this_run"] is True
    assert audit["tried"]["claim"].startswith("epsilon 1")
    other = build_card(result, {**own, "epsilon": "77"})["audit"]
    assert other["of_this_run"] is False
    assert "epsilon is 77" in other["differs"][0]


def test_the_bound_stands_beside_the_claim_of_this_run_only(result: dict[str, Any], own: dict[str, Any]) -> None:
    own["attacks"] = [{**own["attacks"][0], "bound": 0.25}, {**own["attacks"][0], "bound": 0.125}]
    beside = "<dt>epsilon that an audit could prove</dt><dd>at least 0.250</dd>"
    page = render_report(result, own)
    assert page.index(beside) < page.index("Who is protected")
    assert page.index('id="limits"') < page.index('id="attempts"') < page.index('id="budget"')
    assert beside not in render_report(result, {**own, "method": "svt-pc"})

"""Certificates, the audit of whole methods, and the command."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from twins import ask_with_wrong_relation, make_method

from dagveil.audit.certificate import (
    Certificate,
    ReplayLine,
    decode_certificate,
    encode_certificate,
    read_amount,
)
from dagveil.audit.examination import examine_method
from dagveil.audit.neighbours import DataKind, make_pair
from dagveil.audit.replay import replay_method
from dagveil.audit.search import Effort
from dagveil.cli import audit as command
from dagveil.cli.main import group
from dagveil.errors import DataError
from dagveil.methods.catalogue import method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.relation import Relation

BUDGET = Budget.of(1, 1e-6)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return examine_method(method_named("lap-mech"), Effort.QUICK, BUDGET, runs=300)


class TestCertificate:
    def test_what_was_tried(self, certificate: Certificate) -> None:
        assert certificate.violations == ()
        assert {line.relation for line in certificate.replays} == set(Relation)
        assert {line.statistic for line in certificate.statistics} == {
            "tables of counts",
            "tables of counts, Laplace noise",
        }
        assert len(certificate.attacks) == 2
        assert certificate.strongest is not None
        assert certificate.closest is not None
        assert certificate.strongest.bound == max(line.bound for line in certificate.attacks)
        assert certificate.closest.ratio == 1.0

    def test_it_is_read_as_it_was_written(self, certificate: Certificate) -> None:
        assert decode_certificate(encode_certificate(certificate)) == certificate

    def test_it_is_frozen(self, certificate: Certificate) -> None:
        with pytest.raises(AttributeError):
            certificate.epsilon = "2"

    def test_another_version_is_refused(self, certificate: Certificate) -> None:
        other = msgspec.structs.replace(certificate, version=99)
        with pytest.raises(DataError, match="version 99"):
            decode_certificate(encode_certificate(other))
        for content in (b"{}", b"no JSON"):
            with pytest.raises(DataError, match="not a certificate"):
                decode_certificate(content)

    def test_every_kind_of_violation_is_told(self, certificate: Certificate) -> None:
        attack = msgspec.structs.replace(certificate.attacks[0], bound=1.5)
        line = msgspec.structs.replace(certificate.statistics[0], ratio=1.2)
        twin = make_method("wrong relation", ask_with_wrong_relation)
        replay = ReplayLine.of(replay_method(twin, make_pair(DataKind.LEVELS, Relation.REPLACE_ONE), BUDGET))
        broken = msgspec.structs.replace(certificate, attacks=(attack,), statistics=(line,), replays=(replay,))
        assert len(broken.violations) == 3
        assert "moved by 2 of what its charge covers" in broken.violations[0]
        assert "1.2 of what is declared" in broken.violations[1]
        assert "epsilon is at least 1.5, and 1 is claimed" in broken.violations[2]

    def test_amounts(self) -> None:
        assert read_amount("1/1000000") == 1e-6
        assert read_amount("3") == 3.0


def test_settings_choose_the_statistics() -> None:
    audited = examine_method(method_named("em-pc"), Effort.QUICK, BUDGET, {"statistic": "g"}, runs=50)
    names = {line.statistic for line in audited.statistics}
    assert {"g", "score in records"} <= names
    assert "kendall" not in names
    assert audited.options == {"statistic": "g"}
    assert audited.violations == ()


class TestCommand:
    def test_it_prints_the_claim_beside_the_bound(self, tmp_path: Path) -> None:
        path = tmp_path / "certificate.json"
        done = CliRunner().invoke(group, ["audit", "lap-mech", "--runs", "100", "-o", str(path)])
        assert done.exit_code == 0, done.output
        for words in ("claimed epsilon", "lower bound", "ceiling", "largest change / declared", "replay", "holds"):
            assert words in done.output
        assert "Nothing broke the claim" in done.output
        assert decode_certificate(path.read_bytes()).effort is Effort.QUICK

    def test_a_broken_claim_exits_with_1(self, certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
        attack = msgspec.structs.replace(certificate.attacks[0], bound=1.5)
        broken = msgspec.structs.replace(certificate, attacks=(attack,))
        monkeypatch.setattr(command, "examine_method", lambda *facts, **more: broken)
        done = CliRunner().invoke(group, ["audit", "lap-mech"])
        assert done.exit_code == 1
        assert "The claim is broken" in done.output

    def test_it_goes_on_where_it_was_stopped(self, tmp_path: Path) -> None:
        arguments = ["audit", "lap-mech", "--runs", "50", "--keep", str(tmp_path / "runs")]
        first, second = (CliRunner().invoke(group, arguments) for _ in range(2))
        assert first.output == second.output
        assert len(list((tmp_path / "runs").iterdir())) == 2

    def test_settings_with_several_values(self, tmp_path: Path) -> None:
        path = tmp_path / "certificate.json"
        arguments = ["audit", "em-pc", "--set", "order_shares=0.5,0.5", "--runs", "8", "-o", str(path)]
        assert CliRunner().invoke(group, arguments).exit_code == 0
        assert decode_certificate(path.read_bytes()).options == {"order_shares": ("0.5", "0.5")}

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["audit", "no-such"], "no method is called"),
            (["audit", "lap-mech", "--epsilon", "0"], "epsilon"),
            (["audit", "em-pc", "--set", "statistic=gamma"], "gamma"),
        ],
    )
    def test_refusals(self, arguments: list[str], words: str) -> None:
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 2
        assert words in done.output

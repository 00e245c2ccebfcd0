"""Certificates, the audit of whole methods, and the command."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from twins import ask_with_wrong_relation, make_method

from dagveil.audit import attacks, examination, runs
from dagveil.audit.certificate import (
    Certificate,
    ReplayLine,
    decode_certificate,
    encode_certificate,
    load_certificate,
    write_overview,
)
from dagveil.audit.examination import Plan, examine_method
from dagveil.audit.neighbours import DataKind, make_pair
from dagveil.audit.replay import replay_method
from dagveil.audit.search import Effort
from dagveil.audit.sensitivity import audited_statistics
from dagveil.cli import audit as command
from dagveil.cli.main import group
from dagveil.errors import DataError
from dagveil.methods.method import Method, method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.receipt import Calibration

BUDGET = Budget.of(1, 1e-6)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return examine_method(method_named("lap-mech"), BUDGET, plan=Plan(runs=300))


class TestCertificate:
    def test_what_was_tried(self, certificate: Certificate) -> None:
        assert certificate.violations == ()
        assert {line.relation for line in certificate.replays} == set(Relation)
        assert {line.statistic for line in certificate.statistics} == {
            "tables of counts",
            "tables of counts, Laplace noise",
            "counts of persons by any record",
            "counts of persons by the last record",
            "counts of persons by weighed records",
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
        for content in (b"{}", b"no JSON", b"\xff\xfe", b"[]", b'{"format": "dagveil-audit", "version": 2}'):
            with pytest.raises(DataError, match="not a certificate"):
                decode_certificate(content)

    def test_a_certificate_that_was_tampered_with_is_refused(self, certificate: Certificate) -> None:
        attack = msgspec.structs.replace(certificate.attacks[0], bound=1.5)
        broken = encode_certificate(msgspec.structs.replace(certificate, attacks=(attack,)))
        assert decode_certificate(broken).violations
        plain = msgspec.json.decode(broken)
        plain["violations"] = []
        with pytest.raises(DataError, match="was changed"):
            decode_certificate(msgspec.json.encode(plain))

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="cannot read"):
            load_certificate(tmp_path / "none.json")

    def test_every_kind_of_violation_is_told(self, certificate: Certificate) -> None:
        attack = msgspec.structs.replace(certificate.attacks[0], bound=1.5)
        line = msgspec.structs.replace(certificate.statistics[0], ratio=1.2)
        twin = make_method("wrong relation", ask_with_wrong_relation)
        found = replay_method(twin, make_pair(DataKind.LEVELS, Relation.REPLACE_ONE), BUDGET)
        replay = msgspec.convert(found, ReplayLine, from_attributes=True)
        member = msgspec.structs.replace(certificate.memberships[0], advantage_low=0.9)
        broken = msgspec.structs.replace(
            certificate, attacks=(attack,), statistics=(line,), replays=(replay,), memberships=(member,)
        )
        assert len(broken.violations) == 4
        assert "advantage is at least 0.9" in broken.violations[3]
        assert "moved by 2 of what its charge covers" in broken.violations[0]
        assert "1.2 of what is declared" in broken.violations[1]
        assert "epsilon is at least 1.5, and 1 is claimed" in broken.violations[2]


def test_settings_choose_the_statistics() -> None:
    audited = examine_method(method_named("em-pc"), BUDGET, {"statistic": "g"}, Plan(runs=50, trials=40))
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
        for words in (
            "claimed epsilon",
            "lower bound",
            "best possible attack",
            "ceiling",
            "advantage",
            "area under",
            "largest change / declared",
            "replay",
            "holds",
        ):
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

    def test_it_goes_on_where_it_was_stopped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        arguments = ["audit", "lap-mech", "--runs", "50", "--trials", "40", "--store", str(tmp_path / "audit.db")]
        first = CliRunner().invoke(group, arguments)
        assert first.exit_code == 0, first.output

        def refuse(*facts: object) -> None:
            raise AssertionError("everything is in the store")

        for module, name in ((runs, "run_block"), (attacks, "run_trials"), (examination, "run_search")):
            monkeypatch.setattr(module, name, refuse)
        second = CliRunner().invoke(group, arguments)
        assert second.output == first.output

    def test_another_program_s_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        path.write_bytes(b"these are no blocks, and no database " * 20)
        done = CliRunner().invoke(group, ["audit", "lap-mech", "--store", str(path)])
        assert done.exit_code == 2
        assert "cannot be the store of an audit" in done.output

    def test_paper_calibrations(self, tmp_path: Path) -> None:
        path = tmp_path / "certificate.json"
        arguments = ["audit", "em-pc", "--calibration", "program", "--runs", "200", "-o", str(path)]
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 1
        for words in ("epsilon that runs reported", "60 equal records", "read without noise", "The claim is broken"):
            assert words in done.output
        found = load_certificate(path)
        assert found.calibration is Calibration.PROGRAM
        assert found.relations == (Relation.REPLACE_ONE,)

    def test_settings_with_several_values(self, tmp_path: Path) -> None:
        path = tmp_path / "certificate.json"
        arguments = [
            "audit",
            "em-pc",
            "--set",
            "order_shares=0.5,0.5",
            "--runs",
            "8",
            "--trials",
            "40",
            "-o",
            str(path),
        ]
        assert CliRunner().invoke(group, arguments).exit_code == 0
        assert decode_certificate(path.read_bytes()).options == {"order_shares": ("0.5", "0.5")}

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["audit"], "give the name of a method, or --all"),
            (["audit", "lap-mech", "--all", "-o", "folder"], "give the name of a method, or --all"),
            (["audit", "--all"], "give a folder with -o"),
            (["audit", "--all", "-o", "folder", "--set", "level=0.1"], "--set is for one method"),
            (["audit", "--all", "-o", __file__], "is a file"),
            (["audit", "no-such"], "no method is called"),
            (["audit", "lap-mech", "--epsilon", "0"], "epsilon"),
            (["audit", "em-pc", "--set", "statistic=gamma"], "gamma"),
            (["audit", "measure", "--calibration", "paper"], "not from a publication"),
            (["audit", "lap-mech", "--trials", "3"], "trials"),
        ],
    )
    def test_refusals(self, arguments: list[str], words: str) -> None:
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 2
        assert words in done.output


class TestAllMethods:
    @pytest.fixture
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two methods that share a statistic stand for all."""
        monkeypatch.setattr(command, "METHODS", {name: method_named(name) for name in ("lap-mech", "measure-ges")})

    ARGUMENTS = ("audit", "--all", "--runs", "50", "--trials", "40", "--pairs", "300")

    def test_certificates_table_and_store(self, few: None, tmp_path: Path) -> None:
        folder, table = tmp_path / "audits", tmp_path / "table.md"
        done = CliRunner().invoke(group, [*self.ARGUMENTS, "-o", str(folder), "--table", str(table)])
        assert done.exit_code == 0, done.output
        assert {path.name for path in folder.iterdir()} == {"lap-mech.json", "measure-ges.json", "audit.db"}
        text = table.read_text(encoding="utf-8")
        assert text in done.output
        for words in (
            "claimed ε",
            "lower bound",
            "best possible",
            "ceiling",
            "pairs tried",
            "largest change / declared",
        ):
            assert words in text
        certificates = [load_certificate(folder / f"{name}.json") for name in ("lap-mech", "measure-ges")]
        assert text == write_overview(certificates)
        for certificate in certificates:
            for line in certificate.attacks:
                assert f"| {line.bound:.3f} |" in text
        # methods share this statistic, and it is listed once
        assert text.count("| tables of counts | add-remove |") == 1

    def test_it_goes_on_and_searches_once(self, few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        searched: list[tuple[str, Relation]] = []
        honest = examination.run_search

        def note(task: examination.SearchTask) -> object:
            searched.append((task.statistic, task.relation))
            return honest(task)

        monkeypatch.setattr(examination, "run_search", note)
        first = CliRunner().invoke(group, [*self.ARGUMENTS, "-o", str(tmp_path / "audits")])
        assert first.exit_code == 0, first.output
        assert len(searched) == len(set(searched)) > 2
        monkeypatch.setattr(runs, "run_block", lambda block: pytest.fail("everything is in the store"))
        second = CliRunner().invoke(group, [*self.ARGUMENTS, "-o", str(tmp_path / "audits")])
        assert second.output == first.output

    def test_a_broken_claim_is_told(
        self, few: None, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attack = msgspec.structs.replace(certificate.attacks[0], bound=1.5)
        broken = msgspec.structs.replace(certificate, attacks=(attack,))
        monkeypatch.setattr(command, "examine_method", lambda *facts, **more: broken)
        done = CliRunner().invoke(group, [*self.ARGUMENTS, "-o", str(tmp_path / "audits")])
        assert done.exit_code == 1
        assert "What broke a claim" in done.output
        assert "epsilon is at least 1.5" in done.output

    def test_papers_are_those_of_publications(self, few: None, tmp_path: Path) -> None:
        folder = tmp_path / "audits"
        arguments = [*self.ARGUMENTS, "--calibration", "paper", "-o", str(folder)]
        assert CliRunner().invoke(group, arguments).exit_code in (0, 1)
        assert [path.name for path in folder.glob("*.json")] == ["lap-mech.json"]


def test_attacks_on_one_pair_are_told_apart(certificate: Certificate) -> None:
    one = msgspec.structs.replace(certificate.attacks[0], options={"rate": "1", "level": "0.1"})
    other = msgspec.structs.replace(certificate.attacks[0], options={"rate": "0.5", "level": "0.1"})
    text = write_overview([msgspec.structs.replace(certificate, attacks=(one, other))])
    assert f"{one.kind.value}, rate 1 |" in text
    assert f"{one.kind.value}, rate 0.5 |" in text
    assert ", level 0.1" not in text


def test_discover_audits_at_the_budget_of_the_run(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit gets method, budget and settings, never the rows; report and certificate go into the folder."""
    asked: list[tuple[str, Budget, Calibration]] = []

    def note(method: Method, budget: Budget, *facts: object, calibration: Calibration) -> Certificate:
        asked.append((method.name, budget, calibration))
        return certificate

    monkeypatch.setattr(examination, "examine_method", note)
    table, ledger = tmp_path / "asia.csv", tmp_path / "ledger.db"
    made = CliRunner().invoke(group, ["sample", "asia", "--rows", "300", "-o", str(table)])
    assert made.exit_code == 0, made.output
    run = ["--schema", str(table.with_suffix(".toml")), "--epsilon", "1/2", "--ledger", str(ledger)]
    method = ["--method", "lap-mech", "--redraws", "0", "--audit", "quick", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(group, ["discover", str(table), *run, *method])
    assert done.exit_code == 0, done.output
    # Laplace noise spends no delta, so the receipt claims none
    assert asked == [("lap-mech", Budget.of("1/2", 0), Calibration.SOUND)]
    assert load_certificate(tmp_path / "out" / "certificate.json") == certificate
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "We tried to break this" in page
    assert "epsilon is 1, and that of the result is 0.5" in page


class TestStatistics:
    def test_every_statistic_is_searched(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(group, ["audit", "--statistics", "--pairs", "20", "--table", str(tmp_path / "t.md")])
        assert done.exit_code == 0, done.output
        text = (tmp_path / "t.md").read_text(encoding="utf-8")
        assert text in done.output
        for statistic in audited_statistics():
            for relation in statistic.relations:
                assert f"| {statistic.name} | {relation.value} |" in text

    def test_a_wrong_sensitivity_exits_with_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        (rows,) = (one for one in audited_statistics() if one.name == "number of rows")

        def look(relation: Relation, pairs: int, rng: object) -> object:
            found, declared = rows.look(relation, pairs, rng)  # type: ignore[arg-type]
            return found, declared / 2

        wrong = dataclasses.replace(rows, look=look)
        monkeypatch.setattr(command, "audited_statistics", lambda: (wrong,))
        monkeypatch.setattr(examination, "audited_statistics", lambda: (wrong,))
        assert CliRunner().invoke(group, ["audit", "--statistics", "--pairs", "20"]).exit_code == 1

    def test_it_stands_by_itself(self) -> None:
        done = CliRunner().invoke(group, ["audit", "measure", "--statistics"])
        assert done.exit_code == 2
        assert "stands by itself" in done.output

"""The certification pack: its entry fits the registry, every hazard has its line, and what was changed is noticed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

import dagveil as dv
from dagveil.errors import DataError
from dagveil.report.certification import MANIFEST, SIGNATURE, answer_hazards, build_bill, build_pack
from dagveil.report.model import build_model
from dagveil.report.registry import build_entry, find_problems, read_registry_schema, write_yaml

ROOT = Path(__file__).parents[2]
FACTS = dv.DeploymentFacts(
    name='Lung: "2026" – Süd',
    data_curators=("Clinic A", "Clinic B"),
    intended_use="Research",
    data_product_region="Germany",
    registry_authors=("A. Person",),
)


def find(epsilon: float = 1, noise: dv.NoiseKind = dv.NoiseKind.EXACT, method: str = "measure") -> dv.Result:
    schema = dv.Schema(
        dataset="clinic",
        reviewed=True,
        nominal_rows=1000,
        columns={name: dv.Boolean("false") for name in ("a", "b", "<c>")},
    )
    rows = {name: [True, False] * 500 for name in schema.columns}
    seed = 1 if noise is dv.NoiseKind.SEEDED else None
    return dv.discover(rows, schema, epsilon, "1e-6", method=method, ledger=None, noise=noise, seed=seed)


@pytest.fixture(scope="module")
def result() -> dv.Result:
    return find()


class TestRegistry:
    @pytest.mark.parametrize("method", ["measure", "svt-pc", "em-pc"])
    def test_the_entry_fits(self, method: str) -> None:
        entry = build_entry(build_model(find(method=method)), FACTS)
        assert list(find_problems(entry)) == []
        assert entry["url_slug"] == "lung_2026_s_d"
        assert entry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == 1.0

    def test_yaml_says_the_same(self, result: dv.Result) -> None:
        yaml = pytest.importorskip("yaml")
        entry = build_entry(build_model(result), FACTS)
        assert yaml.safe_load(write_yaml(entry)) == entry

    def test_the_validator_of_others_agrees(self, result: dv.Result) -> None:
        jsonschema = pytest.importorskip("jsonschema")
        jsonschema.validate(build_entry(build_model(result), FACTS), read_registry_schema())

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"status": "Done"}, "entry.status is none of"),
            ({"surprise": 1}, "entry.surprise is no field"),
            ({"tier": "1"}, "entry.tier is not of type integer"),
            ({"tier": True}, "entry.tier is not of type integer"),
            ({"deployment": {}}, "entry.deployment.basic is missing"),
        ],
    )
    def test_bad_entries_are_refused(self, result: dv.Result, change: dict[str, object], told: str) -> None:
        entry = build_entry(build_model(result), FACTS) | change
        assert any(problem.startswith(told) for problem in find_problems(entry))

    @pytest.mark.parametrize("date", ["1.1.2026", "2026-13-01", "20260101"])
    def test_bad_dates_are_refused(self, result: dv.Result, date: str) -> None:
        with pytest.raises(DataError, match="not a date"):
            build_entry(build_model(result), msgspec.structs.replace(FACTS, publication_date=date))

    def test_bad_words_are_refused(self, result: dv.Result) -> None:
        with pytest.raises(DataError, match="release_type is none of One release, Many releases"):
            build_entry(build_model(result), msgspec.structs.replace(FACTS, release_type="often"))

    def test_the_schema_says_where_it_comes_from(self) -> None:
        assert re.search(r"deployments-registry-data, commit [0-9a-f]{40}", read_registry_schema()["$comment"])


class TestHazards:
    def test_each_has_its_line_and_its_place(self, result: dv.Result) -> None:
        hazards = answer_hazards(build_model(result), FACTS)
        assert [hazard.number for hazard in hazards] == list(range(1, 25))
        content = json.loads(result.to_json())
        for hazard in hazards:
            assert "{" not in hazard.answer
            assert not hazard.answer[0].islower()
            if hazard.place:
                place = content
                for name in hazard.place.split("."):
                    place = place[name]
            if hazard.proof:
                assert (ROOT / "docs" / hazard.proof).exists(), hazard.proof

    def test_what_people_say_is_marked_as_theirs(self, result: dv.Result) -> None:
        before = {hazard.number for hazard in answer_hazards(build_model(result), FACTS) if not hazard.answered}
        facts = msgspec.structs.replace(
            FACTS,
            release_type_details="Never again.",
            access_controls="Two people.",
            preprocessing_and_hyperparameter_tuning="None.",
        )
        after = answer_hazards(build_model(result), facts)
        assert len(before) - sum(not hazard.answered for hazard in after) == 3
        assert any(hazard.answer == "The custodian states: Never again." for hazard in after)

    def test_a_large_delta_and_a_draft_are_called_out(self, result: dv.Result) -> None:
        receipt = msgspec.structs.replace(result.receipt, delta="1/100")
        schema = msgspec.structs.replace(result.schema, reviewed=False)
        page = build_model(msgspec.structs.replace(result, receipt=receipt, schema=schema))
        said = " ".join(hazard.answer for hazard in answer_hazards(page, FACTS))
        assert "NOT BELOW one in the 1,000" in said
        assert "NOBODY HAS REVIEWED" in said


def test_the_bill_lists_what_is_installed() -> None:
    bill = build_bill("2026-01-01T00:00:00Z")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    named = {part["name"]: part["version"] for part in bill["components"]}
    import numpy

    assert named["numpy"] == numpy.__version__
    references = {part["bom-ref"] for part in bill["components"]} | {"dagveil"}
    for line in bill["dependencies"]:
        assert {line["ref"], *line["dependsOn"]} <= references
    assert bill == build_bill("2026-01-01T00:00:00Z")


class TestPack:
    def test_what_is_changed_is_noticed(self, result: dv.Result, tmp_path: Path) -> None:
        pack = tmp_path / "pack"
        written = dv.certify(result, pack, FACTS)
        assert set(written) == {path.name for path in pack.iterdir()}
        assert dv.verify_pack(pack) == ((), "Nobody signed it.")
        page = (pack / "sign.html").read_text(encoding="utf-8")
        assert "<c>" not in page
        assert "Lung: &#34;2026&#34; – Süd" in page
        assert not re.search(r"(src|href)=", page)
        (pack / "card.json").write_text("{}")
        (pack / "more.txt").write_text("")
        (pack / "report.html").unlink()
        wrong, _ = dv.verify_pack(pack)
        assert set(wrong) == {
            "card.json was changed after it was written",
            "more.txt is not in the manifest",
            "report.html is missing",
        }

    def test_a_forged_receipt_with_a_fresh_manifest_is_noticed(self, result: dv.Result, tmp_path: Path) -> None:
        pack = tmp_path / "pack"
        dv.certify(result, pack, FACTS)
        forged = (pack / "result.json").read_text().replace('"epsilon": "1"', '"epsilon": "1/10"')
        (pack / "result.json").write_text(forged)
        manifest = json.loads((pack / MANIFEST).read_text())
        import hashlib

        manifest["files"]["result.json"] = hashlib.sha256(forged.encode()).hexdigest()
        (pack / MANIFEST).write_text(json.dumps(manifest))
        wrong, _ = dv.verify_pack(pack)
        assert len(wrong) == 1
        assert wrong[0].startswith("result.json:")

    def test_refusals(self, result: dv.Result, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="promises nothing"):
            build_pack(find(noise=dv.NoiseKind.SEEDED), FACTS)
        with pytest.raises(DataError, match="facts are missing: name, data_curators"):
            build_pack(result, dv.DeploymentFacts())
        (tmp_path / "kept.txt").write_text("mine")
        with pytest.raises(DataError, match="not empty"):
            dv.certify(result, tmp_path, FACTS)
        with pytest.raises(DataError, match="no certification pack"):
            dv.verify_pack(tmp_path)

    @pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH")
    def test_signatures(self, result: dv.Result, tmp_path: Path) -> None:
        for name in ("ours", "theirs"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
            subprocess.run(key, check=True)
        pack = tmp_path / "pack"
        dv.certify(result, pack, FACTS, key=tmp_path / "ours")
        assert dv.verify_pack(pack, tmp_path / "ours.pub")[0] == ()
        assert "was not checked" in dv.verify_pack(pack)[1]
        assert dv.verify_pack(pack, tmp_path / "theirs.pub")[0]
        manifest = (pack / MANIFEST).read_bytes()
        (pack / MANIFEST).write_bytes(manifest.replace(b'"version": 1', b'"version": 2'))
        assert dv.verify_pack(pack, tmp_path / "ours.pub")[0]
        assert dv.verify_pack(pack)[0]
        (pack / MANIFEST).write_bytes(manifest)
        (pack / SIGNATURE).unlink()
        assert dv.verify_pack(pack, tmp_path / "ours.pub")[0] == ("there is no signature",)
        with pytest.raises(DataError, match="cannot sign"):
            dv.certify(result, tmp_path / "second", FACTS, key=tmp_path / "ours.pub.missing")
        assert not (tmp_path / "second").exists()


def test_a_pack_about_persons_speaks_of_persons() -> None:
    schema = dv.Schema(
        dataset="clinic",
        reviewed=True,
        unit="patient",
        person="id",
        records="one",
        which="any",
        columns={name: dv.Boolean("false") for name in "ab"},
    )
    rows = {"id": [row // 2 for row in range(1000)], "a": [True, False] * 500, "b": [True, False] * 500}
    page = build_model(dv.discover(rows, schema, 1, "1e-6", ledger=None))
    answers = " ".join(hazard.answer for hazard in answer_hazards(page, FACTS))
    entry = build_entry(page, FACTS)["deployment"]["privacy_loss"]
    assert "one patient, with all records" in answers.lower() or "patient, with all records" in answers
    assert "k times" not in entry["privacy_unit_details"]
    assert "with all records" in entry["privacy_unit"]

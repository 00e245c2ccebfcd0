from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from sample_result import model_of, render, write_sealed

from dagveil.cli.main import group
from dagveil.files import seal
from dagveil.report.model import build_model
from dagveil.report.registry import build_card, encode_card
from dagveil.runs.result import result_from_json

HOSTILE = "</script><script>alert(1)</script>\"'&\u202e\u2028"


def card_in(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="card">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_the_page_holds_the_card(result: dict[str, Any]) -> None:
    card = build_card(model_of(result))
    assert card == card_in(render(result)) == build_card(build_model(result_from_json(write_sealed(result))))
    assert json.loads(encode_card(card)) == card


def test_the_card_tells_the_claim(result: dict[str, Any]) -> None:
    card = build_card(model_of(result))
    assert (card["format"], card["version"], card["dataset"]) == ("dagveil-card", 1, "asia-demo")
    guarantee = card["guarantee"]
    assert guarantee["holds"] is True
    assert guarantee["definition"] == "approximate differential privacy"
    assert (guarantee["epsilon"], guarantee["delta"]) == ("1", "1/1000000")
    assert (guarantee["model"], guarantee["unit"], guarantee["neighbours"]) == ("central", "one record", "add-remove")
    assert (guarantee["record"], guarantee["persons"]) == (
        "patient",
        "a person with k records has k times this epsilon",
    )
    assert card["accounting"]["total"] == result["receipt"]["accounting_total"]
    assert card["product"] == {
        "kind": "causal graph",
        "family": "cpdag",
        "columns": 8,
        "directed_edges": 5,
        "undirected_edges": 2,
        "doubtful_edges": 1,
        "expected_false_edges": 0.3,
        "summary": ["7 edges among 8 columns; about 0.3 would appear if nothing depended on anything."],
    }
    assert [line.partition(":")[0] for line in card["promise"]][:3] == [
        *("Who is protected", "Against what", "How strongly"),
    ]
    assert not re.search("bronc|xray|dysp", json.dumps(card)), "names of columns stay out"


def test_a_card_without_guarantee_claims_nothing(result: dict[str, Any]) -> None:
    result["receipt"]["warnings"] = ["seeded: not private"]
    card = build_card(model_of(result))
    assert card["guarantee"]["holds"] is False
    assert card["guarantee"]["definition"] is None
    assert card["promise"] == []
    assert card["warnings"][0].startswith("Seeded: not private")


def test_local_privacy_needs_nobody(result: dict[str, Any]) -> None:
    result["receipt"].update(trust="nobody", delta="0")
    guarantee = build_card(model_of(result))["guarantee"]
    assert (guarantee["model"], guarantee["trusted_with_records"]) == ("local", "nobody")
    assert guarantee["definition"] == "pure differential privacy"


def test_hostile_text_cannot_leave_the_script_element(result: dict[str, Any]) -> None:
    result["schema"]["dataset"] = result["receipt"]["unit"] = HOSTILE
    page = render(result)
    assert page.count("</script>") == 2
    card = card_in(page)
    assert card["dataset"].startswith("</script><script>alert(1)</script>\"'&")
    text = encode_card(card)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert "\\u202e" not in text


def test_the_command_writes_a_card(result: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(write_sealed(result), encoding="utf-8")
    run = CliRunner().invoke(group, ["report", str(path), "-o", str(tmp_path), "--card", str(tmp_path / "card.json")])
    assert run.exit_code == 0, run.output
    assert json.loads((tmp_path / "card.json").read_text(encoding="utf-8")) == build_card(model_of(result))
    clash = CliRunner().invoke(group, ["report", str(path), "-o", str(tmp_path), "--card", str(path)])
    assert clash.exit_code == 2
    assert "is a file that this command reads" in clash.output
    assert json.loads(path.read_text(encoding="utf-8")) == seal(result)

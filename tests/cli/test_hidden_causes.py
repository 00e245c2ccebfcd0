"""`--hidden-causes` from rows and from evidence to report, export and comparison; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from desk import Desk

from dagveil.graphs.exchange.formats import load_graph
from dagveil.graphs.pag import Mark
from dagveil.runs.result import load_result

SEEDED = ("--noise", "seeded", "--seed", 0)
SCHEMA = "\n".join(f'[columns.{name}]\nkind = "categorical"\nlevels = ["no", "yes"]' for name in "abcd")


@pytest.fixture
def hospital(desk: Desk) -> Desk:
    """Return a desk with rows in which b and c share a cause that was not measured; a causes b and d causes c."""
    rng = np.random.default_rng(5)
    a, d, h = (rng.random(20_000) < 0.5 for _ in range(3))
    b = rng.random(20_000) < 0.1 + 0.4 * a + 0.4 * h
    c = rng.random(20_000) < 0.1 + 0.4 * d + 0.4 * h
    rows = zip(*(np.where(column, "yes", "no").tolist() for column in (a, b, c, d)), strict=True)
    desk.write("rows.csv", "a,b,c,d\n" + "".join(",".join(row) + "\n" for row in rows))
    desk.write_schema(SCHEMA, facts="nominal_rows = 20000")
    return desk


def discover(desk: Desk, *words: object) -> Result:
    return desk.run(
        *("discover", desk.path("rows.csv"), "--schema", desk.path("schema.toml"), "--epsilon", 1, "--redraws", 10),
        *("-o", desk.out, *words),
    )


def test_rows_to_report_export_and_comparison(hospital: Desk, tmp_path: Path) -> None:
    shown = discover(hospital, "--hidden-causes", *SEEDED)
    assert shown.exit_code == 0, shown.output
    assert "b and c share a cause that was not measured" in shown.output
    assert "↔" in shown.output
    assert "at from: arrow/tail/o" in shown.output
    result = load_result(hospital.out / "result.json")
    pag = result.graph.pag
    assert result.graph.family == "pag"
    assert (pag.mark("b", "c"), pag.mark("c", "b")) == (Mark.ARROW, Mark.ARROW)
    assert (pag.mark("a", "b"), pag.mark("b", "a")) == (Mark.ARROW, Mark.CIRCLE)
    edge = next(edge for edge in result.graph.edges if {edge.source, edge.target} == {"b", "c"})
    assert edge.kind == "bidirected"
    assert edge.marks_at_source is not None
    assert edge.marks_at_source.arrow >= 0.5
    page = (hospital.out / "report.html").read_text(encoding="utf-8")
    assert "a shared unmeasured cause" in page
    assert "shares an unmeasured cause with" in page
    assert "circle at from" in page
    drawing = (hospital.out / "graph.svg").read_text(encoding="utf-8")
    assert 'data-kind="bidirected"' in drawing
    assert drawing.count("<polygon") >= 4  # two heads of b ↔ c, and those of a and d
    assert "<circle" in drawing

    # the same evidence without hidden causes, and back, costs nothing
    again = hospital.run("discover", hospital.out / "evidence.json", "--redraws", 2, "-o", tmp_path / "plain")
    assert again.exit_code == 0, again.output
    free = hospital.run("discover", hospital.out / "evidence.json", "--hidden-causes", "-o", tmp_path / "free")
    assert free.exit_code == 0, free.output
    assert len(hospital.history()) == 1
    compared = hospital.run("compare", hospital.out / "result.json", tmp_path / "plain/result.json")
    assert compared.exit_code == 0, compared.output
    same = hospital.run("compare", hospital.out / "result.json", tmp_path / "free/result.json", "--json")
    assert json.loads(same.output)["marked_f1"] == 1.0

    for form, ending in (("dot", "dot"), ("causal-learn", "txt"), ("dagitty", "dagitty"), ("networkx-json", "json")):
        written = tmp_path / f"graph.{ending}"
        exported = hospital.run("export", hospital.out / "result.json", "--to", form, "-o", written)
        assert exported.exit_code == 0, exported.output
        assert load_graph(written) == pag
    matrix = hospital.run("export", hospital.out / "result.json", "--to", "amat").output
    assert matrix.splitlines()[2] == '"b",1,0,2,0'
    for form in ("dowhy", "pgmpy"):
        refused = hospital.run("export", hospital.out / "result.json", "--to", form)
        assert refused.exit_code != 0
        assert "PAG, which allows for hidden causes" in refused.stderr


def test_knowledge_is_respected_and_contradictions_are_refused(hospital: Desk) -> None:
    assert discover(hospital, "--hidden-causes", *SEEDED).exit_code == 0
    tiers = hospital.write("tiers.toml", 'tiers = [["a", "d"], ["b", "c"]]\nforbidden = [["b", "c"], ["c", "b"]]\n')
    evidence = hospital.out / "evidence.json"
    out = hospital.path("known")
    ordered = hospital.run("discover", evidence, "--hidden-causes", "--knowledge", tiers, "--redraws", 4, "-o", out)
    assert ordered.exit_code == 0, ordered.output
    pag = load_result(out / "result.json").graph.pag
    assert pag.mark("a", "b") is pag.mark("b", "c") is pag.mark("c", "b") is Mark.ARROW
    circle = hospital.write("circle.toml", 'required = [["a", "b"], ["b", "a"]]\n')
    before = len(hospital.history())
    refused = discover(hospital, "--hidden-causes", "--knowledge", circle)
    assert refused.exit_code != 0
    assert "run in a circle" in refused.stderr
    assert len(hospital.history()) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--hidden-causes", "--search", "score"), "takes all causes for measured"),
        (("--hidden-causes", "--arrows", "separating-sets"), "weighed by evidence"),
        (("--selection-bias",), "ask for hidden causes too"),
        (("--hidden-causes", "--method", "em-pc"), "leave out --hidden-causes"),
        (("--hidden-causes", "--method", "noleaks"), "leave out --hidden-causes"),
    ],
)
def test_what_cannot_be_searched_so_is_refused_before_anything_is_charged(
    hospital: Desk, words: tuple[str, ...], why: str
) -> None:
    refused = discover(hospital, *words)
    assert refused.exit_code != 0
    assert why in refused.stderr
    assert not hospital.history()

"""`dagveil start`: what it asks, what it reads, and the folder that it leaves."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from desk import SECRET, SOURCE, Desk

import dagveil as dv
from dagveil.cli.main import group
from dagveil.data.files import read_names
from dagveil.errors import DataError

ROWS = "smokes;level;age\n" + f"yes;low;3,5\nno;{SECRET};4,0\nno;high;99,5\n" * 50


def answer(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def run(desk: Desk, said: str, *words: str) -> str:
    environment = {"DAGVEIL_LEDGER": str(desk.ledger), "DAGVEIL_DEBUG": ""}
    done = CliRunner(env=environment).invoke(group, ["start", *words], input=said)
    assert done.exit_code == 0, done.output
    return done.output


COLUMNS = ("yes-no", "n", "ordered", "low,mid,high", "y", "number", "0,120", "45,15", "40,60", "n")


def test_from_names_alone(desk: Desk) -> None:
    folder = desk.path("study")
    said = answer("lungs", "one patient", "3", "", "2000", "n", *COLUMNS, "skip", "y", "0.5")
    told = run(desk, said, "--columns", "smokes,level,age,id", "-o", str(folder))
    assert "has 3 times the epsilon" in told
    assert "A first look" in told
    schema = dv.load_schema(folder / "schema.toml")
    assert schema.reviewed
    assert (schema.unit, schema.relation, schema.nominal_rows) == ("one patient", "add-remove", 2000)
    assert schema.columns["level"] == dv.Ordinal(("low", "mid", "high"))
    assert schema.columns["age"] == dv.Numeric(bounds=(0, 120), bins=(40, 60), center=45, spread=15)
    assert schema.ignore == ("id",)
    assert {path.name for path in folder.iterdir()} == {
        *("schema.toml", "plan.json", "exploration.html", "discover.py", "discover.ipynb", "example.ipynb", "Makefile")
    }
    assert not desk.ledger.exists()
    assert 'epsilon="0.5"' in (folder / "discover.py").read_text()


def test_persons_are_the_unit_where_a_column_names_them(desk: Desk) -> None:
    folder = desk.path("study")
    said = answer("lungs", "one visit", "3", "nobody", "id", "patient", "2000", "n", *COLUMNS, "y", "1")
    told = run(desk, said, "--columns", "smokes,id,level,age", "-o", str(folder), "--no-explore")
    assert "protected with all their records" in told
    schema = dv.load_schema(folder / "schema.toml")
    assert (schema.person, schema.unit, schema.nominal_rows, schema.ignore) == ("id", "patient", 2000, ())
    assert "id" not in schema.columns


def test_numbers_are_cut_where_they_stand_beside_levels(desk: Desk) -> None:
    number = ("number", "0,100", "50,10", "", "n")
    beside = answer("d", "", "1", "100", "n", *number, "yes-no", "n", "y", "1")
    run(desk, beside, "--columns", "a,b", "-o", str(desk.path("beside")), "--no-explore")
    first = dv.load_schema(desk.path("beside") / "schema.toml").columns["a"]
    assert isinstance(first, dv.Numeric)
    assert first.bins == first.cuts
    alone = answer("e", "", "1", "100", "n", *number, *number, "y", "1")
    run(desk, alone, "--columns", "a,b", "-o", str(desk.path("alone")), "--no-explore")
    assert dv.load_schema(desk.path("alone") / "schema.toml").columns["a"] == dv.Numeric((0, 100), center=50, spread=10)


def test_no_row_is_read_unless_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    import dagveil.cli.start as module

    monkeypatch.setattr(module, "draft_schema", lambda file: pytest.fail("rows were read"))
    file = desk.write("rows.csv", ROWS)
    said = answer("n", "y", "lungs", "", "1", "150", "n", *COLUMNS, "y", "1")
    told = run(desk, said, file, "-o", str(desk.path("study")), "--no-explore")
    assert "and no row" in told
    schema = dv.load_schema(desk.path("study") / "schema.toml")
    assert (schema.file.separator, schema.file.decimal) == (";", ",")
    for path in desk.path("study").iterdir():
        assert SECRET not in path.read_text(encoding="utf-8")


def test_what_was_read_from_rows_is_marked(desk: Desk) -> None:
    file = desk.write("rows.csv", ROWS)
    said = answer("y", "lungs", "", "1", "150", "n", "", "y", "", "y", "", "y", "n", "1")
    told = run(desk, said, file, "-o", str(desk.path("study")))
    assert "READ ALL ROWS" in told
    assert not dv.load_schema(desk.path("study") / "schema.toml").reviewed
    assert not (desk.path("study") / "plan.json").exists()


def test_answers_that_cannot_be_are_asked_again(desk: Desk) -> None:
    said = answer(
        "x",
        "",
        "1",
        "100",
        "y",
        "number",
        "5,1",
        "",
        "",
        "n",
        "number?",
        "0;1",
        "0,1,2",
        "",
        "",
        "n",
        "0,1",
        "",
        "",
        "n",
        "skip",
    )
    said += answer("number", "0,1", "", "", "y", "yes-no", "n", "y", "-1", "2")
    told = run(desk, said, "--columns", "a,b", "-o", str(desk.path("study")), "--no-explore")
    assert "needs at least two columns" in told
    assert "do not increase" in told
    assert "2 numbers are needed, not 3" in told
    schema = dv.load_schema(desk.path("study") / "schema.toml")
    assert schema.relation == "replace-one"
    assert schema.columns["a"] == dv.Numeric(bounds=(0, 1), bins=(0.25, 0.5, 0.75), missing="own-level")


def test_a_full_folder_is_refused_before_the_questions(desk: Desk) -> None:
    desk.path("study").mkdir()
    (desk.path("study") / "mine.txt").write_text("")
    done = CliRunner().invoke(
        group, ["start", "--columns", "a,b", "-o", str(desk.path("study"))], input="x\n", catch_exceptions=False
    )
    assert done.exit_code == 2
    assert "not empty" in done.output
    assert desk.run("start").exit_code == 2
    assert desk.run("start", "--columns", " , ").exit_code == 2


def test_the_script_and_the_notebook_run(tmp_path: Path) -> None:
    schema = dv.Schema(
        dataset="d'$(x)", reviewed=True, nominal_rows=200, columns={name: dv.Boolean("false") for name in "ab"}
    )
    rows = tmp_path / "it's.csv"
    rows.write_text("a,b\n" + "yes,no\nno,yes\n" * 100)
    folder = tmp_path / "study"
    dv.write_project(folder, schema, "1/2", source=rows)
    environment = {"PATH": "", "PYTHONPATH": SOURCE, "DAGVEIL_LEDGER": str(tmp_path / "ledger.sqlite")}
    for code in (
        (folder / "discover.py").read_text(),
        "\n".join(
            "".join(cell["source"])
            for cell in json.loads((folder / "discover.ipynb").read_text())["cells"]
            if cell["cell_type"] == "code"
        ),
    ):
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, capture_output=True)
    assert (folder / "report.html").exists()
    assert dv.Ledger.open(tmp_path / "ledger.sqlite").account("d'$(x)").spent_epsilon == 1


def test_the_lines_of_the_makefile_run(desk: Desk) -> None:
    schema = dv.Schema(
        dataset="d'$(x)", reviewed=True, nominal_rows=200, columns={name: dv.Boolean("false") for name in "ab"}
    )
    rows = desk.write("it's $1.csv", "a,b\n" + "yes,no\nno,yes\n" * 100)
    folder = desk.path("study")
    dv.write_project(folder, schema, 1, source=rows)
    recipes = [line[1:] for line in (folder / "Makefile").read_text().splitlines() if line.startswith("\t")]
    lines = [recipe.removeprefix("-") for recipe in recipes]
    assert [shlex.split(line)[1] for line in lines] == [
        "schema",
        "budget",
        "discover",
        "tables",
        "synthesize",
        "doctor",
    ]
    for line in lines:
        words = [
            word if Path(word).is_absolute() or not word.startswith(("out", "schema.")) else str(folder / word)
            for word in shlex.split(line.replace("$$", "$"))[1:]
        ]
        done = desk.run(*words)
        assert done.exit_code == 0, done.output
    assert len(desk.history()) == 1


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "feather"])
def test_headers(tmp_path: Path, ending: str) -> None:
    import pyarrow as pa
    from pyarrow import feather, parquet

    path = tmp_path / f"t.{ending}"
    table = pa.table({"a b": [1], "c,d": [2]})
    if ending == "parquet":
        parquet.write_table(table, path)
    elif ending == "feather":
        feather.write_feather(table, str(path))
    else:
        path.write_text('\ufeffa b,"c,d"\n1,2\n' if ending == "csv" else "a b\tc,d\n1\t2\n", encoding="utf-8")
    assert read_names(path)[0] == ("a b", "c,d")
    path.write_text("")
    with pytest.raises(DataError):
        read_names(path)


def test_the_example_shows_what_its_code_does(desk: Desk) -> None:
    folder = desk.path("study")
    run(
        desk,
        answer("d", "", "1", "900", "n", *COLUMNS, "y", "1"),
        "--columns",
        "a,b,c",
        "-o",
        str(folder),
        "--no-explore",
    )
    cells = [
        cell for cell in json.loads((folder / "example.ipynb").read_text())["cells"] if cell["cell_type"] == "code"
    ]
    shown = [[output["output_type"] for output in cell["outputs"]] for cell in cells]
    assert shown == [[], [], ["execute_result"], ["stream"], ["stream"], ["execute_result"]]
    assert "<svg" in "".join(cells[2]["outputs"][0]["data"]["text/html"])
    code = "\n".join("".join(cell["source"]) for cell in cells)
    environment = {"PATH": "", "PYTHONPATH": str(SOURCE), "DAGVEIL_LEDGER": str(desk.ledger)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == cells[3]["outputs"][0]["text"][0].strip()
    assert not desk.ledger.exists()


def test_levels_may_have_other_spellings(desk: Desk) -> None:
    said = answer(
        "d", "", "1", "100", "n", "categories", "male|m|M, female | f", "y", "ordered", "a,b|B", "n", "y", "1"
    )
    told = run(desk, said, "--columns", "sex,x", "-o", str(desk.path("study")), "--no-explore")
    assert "study check`" in told
    columns = dv.load_schema(desk.path("study") / "schema.toml").columns
    assert columns["sex"] == dv.Categorical(("male", "female"), spellings={"male": ("m", "M"), "female": ("f",)})
    assert columns["x"] == dv.Ordinal(("a", "b"), outside="a", spellings={"b": ("B",)})

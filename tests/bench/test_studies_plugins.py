"""Methods and data sets of other packages: the recipe of the documentation works, and a broken one breaks no other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dagveil.cli.main import group
from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.errors import DataError, MethodError
from dagveil.methods.method import METHODS, method_named, method_plugins
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.report.guarantee import Standing
from dagveil.report.model import build_model
from dagveil.runs.discovery import discover
from dagveil.runs.result import RESULT_VERSION, load_result
from dagveil_bench.studies.datasets import data_plugins, sample_source
from dagveil_bench.studies.reading import parse_study
from dagveil_bench.studies.store import Store

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")

STUDY = """
name = "added"
title = "A study of plug-ins"
data = ["coins 3"]
budgets = [5]
rows = [2000]
repetitions = 1
[[methods]]
method = "pairs-only"
settings = { level = 0.05 }
"""


def install(folder: Path, name: str, points: str, module: str = "") -> None:
    """Put a distribution with entry points, and a module of its name, into a folder."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    if module:
        (folder / f"{name}.py").write_text(module, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the path that holds the package of the documentation."""
    modules = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (module,) = (text for text in modules if "def ask" in text)
    (settings,) = re.findall(r"^# pyproject.toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    settings = settings[settings.index("[project.entry-points") :]
    points = re.sub(r'\[project\.entry-points\."([\w.]+)"\]', r"[\1]", settings).replace('"', "")
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "mypackage", points, module)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mypackage", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def call(*words: str) -> Result:
    return CliRunner().invoke(group, list(words), env={"COLUMNS": "200"})


def test_the_recipe_is_short() -> None:
    (module,) = re.findall(r"^def ask.*?return Asked", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert module.count("\n") < 20


def test_an_added_method_is_listed_told_and_run(site: Path) -> None:
    listed = call("methods")
    assert listed.exit_code == 0
    assert re.search(r"pairs-only +│ every pair once", listed.stdout)
    assert "pairs-only comes from mypackage 1.2: what it promises is that package's word" in listed.stdout
    assert listed.stderr == ""
    told = call("methods", "pairs-only")
    assert "guarantee: that of mypackage 1.2, which brings this method; not ours" in told.stdout
    assert "level (default 0.01)" in told.stdout
    assert call("sample", "asia", "--rows", "2000", "-o", "asia.csv").exit_code == 0
    ran = call(
        *("discover", "asia.csv", "--schema", "asia.toml", "--epsilon", "2", "--method", "pairs-only"),
        *("--ledger", "ledger.sqlite", "-o", "out"),
    )
    assert ran.exit_code == 0, ran.output
    words = "Whose method: mypackage 1.2, a plug-in. What a plug-in promises is its author's word"
    assert words in ran.stdout
    result = load_result("out/result.json")
    assert result.receipt.plugin == "mypackage 1.2"
    assert result.version == RESULT_VERSION == 2
    assert sum(words in sentence for sentence in result.receipt.words()) == 1
    page = build_model(result)
    assert ("method of", "mypackage 1.2") in page.facts
    assert page.standing is Standing.CAUTION
    assert [alarm.headline for alarm in page.alarms] == ["A plug-in"]
    written = Path("out/report.html").read_text(encoding="utf-8")
    assert "mypackage 1.2, and what a plug-in promises is its author&#39;s word" in written


def test_receipts_of_our_own_methods_name_no_package(site: Path) -> None:
    schema = Schema(dataset="demo", reviewed=True, columns={"a": Boolean("false"), "b": Boolean("false")})
    rows = {name: np.arange(300) % 2 == 0 for name in ("a", "b")}
    for method, origin in (("measure", None), ("svt-pc", None), ("pairs-only", "mypackage 1.2")):
        result = discover(rows, schema, 1, method=method, noise=NoiseKind.EXACT, ledger=None)
        assert result.receipt.plugin == origin
        assert ("Whose method" in " ".join(result.receipt.words())) is (origin is not None)
        page = build_model(result)
        assert dict(page.facts).get("method of") == origin
        assert "plugin" not in dict(page.receipt)


def test_a_study_of_plugins_runs_in_other_processes(site: Path) -> None:
    Path("added.toml").write_text(STUDY, encoding="utf-8")
    ran = call("bench", "run", "added.toml", "--workers", "1")
    assert "3 runs done, 0 of 3 were stored before, 0 failed" in ran.stdout, ran.output
    assert "data set coins of mypackage 1.2" in call("bench", "list").stdout
    with Store("added.sqlite") as store:
        (session,) = store.sessions()
        assert session.software["plug-in pairs-only"] == "mypackage 1.2"
        assert session.software["data plug-in coins"] == "mypackage 1.2"
    page = call("bench", "table", "added.sqlite").stdout
    # three copies of a coin depend on it and on each other: all six pairs, three of them true
    assert "| pairs-only, level=0.05 | 0.67 |" in page
    assert "| the complete graph | 0.67 |" in page


def test_rows_of_a_file_are_a_data_set(site: Path) -> None:
    lines = ["smokes,coughs", *["true,true", "true,false", "false,false", "false,false"] * 100]
    (site / "clinic.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    table, dag = sample_source("clinic", 250, np.random.default_rng(1))
    assert table.n_rows == 250
    assert dag.edges == {("smokes", "coughs")}
    text = STUDY.replace("coins 3", "clinic").replace("pairs-only", "svt-pc")
    Path("own.toml").write_text(text.replace("2000", "500"), encoding="utf-8")
    refused = call("bench", "run", "own.toml")
    assert refused.exit_code == 2
    assert "500 rows of 'clinic' cannot be drawn: ValueError" in refused.output
    Path("own.toml").write_text(text.replace("2000", "400"), encoding="utf-8")
    ran = call("bench", "run", "own.toml", "--workers", "1")
    assert "3 runs done, 0 of 3 were stored before, 0 failed" in ran.stdout, ran.output


BROKEN = """
def raises(n_rows, rng):
    return 1

number = 3
"""


def test_broken_plugins_are_told_and_leave_the_others_alone(site: Path) -> None:
    points = """
[dagveil.methods]
gone = no_such_module:method
number = broken:number
renamed = mypackage:pairs_only
measure = mypackage:pairs_only
missing = broken:nothing
[dagveil.datasets]
asia = mypackage:coins
random = mypackage:coins
three = broken:number
odd = broken:raises
"""
    install(site, "broken", points, BROKEN)
    listed = call("methods")
    assert listed.exit_code == 0
    assert "pairs-only" in listed.stdout
    assert all(name in listed.stdout for name in METHODS)
    for words in (
        "'gone' (dagveil.methods) of broken 1.2 cannot be imported from 'no_such_module:method': ModuleNotFoundError",
        "'number' (dagveil.methods) of broken 1.2 cannot be used: it is of type int, not a dagveil Method",
        "'renamed' (dagveil.methods) of broken 1.2 cannot be used: the method calls itself 'pairs-only'",
        "'measure' (dagveil.methods) of broken 1.2 cannot be used: dagveil has a method of this name",
        "'missing' (dagveil.methods) of broken 1.2 cannot be imported from 'broken:nothing': AttributeError",
    ):
        assert words in listed.stderr
    assert method_named("measure") is METHODS["measure"]
    assert method_named("pairs-only").name == "pairs-only"
    with pytest.raises(MethodError, match=r"'gone' .* cannot be imported .* mend or uninstall it"):
        method_named("gone")
    with pytest.raises(MethodError, match=r"choose one of measure, .*, pcd, .*pairs-only"):
        method_named("magic")
    rng = np.random.default_rng(0)
    assert len(sample_source("asia", 10, rng)[1].nodes) == 8  # ours, not the one that wants its name
    assert sample_source("coins 2", 10, rng)[1].nodes == ("x", "y0", "y1")
    broken = data_plugins().load_all()[1]
    assert set(broken) == {"asia", "random", "three"}
    assert all("dagveil has a data set of this name" in broken[name] for name in ("asia", "random"))
    with pytest.raises(MethodError, match="'random 5' needs a number of nodes, 2 or more, and a sparseness"):
        parse_study(STUDY.replace("coins 3", "random 5"))
    with pytest.raises(DataError, match="'odd' must return rows, schema and graph"):
        sample_source("odd", 10, rng)
    with pytest.raises(MethodError, match=r"data\[0\]: the plug-in 'three' .* is not a function"):
        parse_study(STUDY.replace("coins 3", "three"))
    with pytest.raises(
        MethodError, match=r"no network is called 'mars'.*plug-in: asia, clinic, coins, odd, random, three"
    ):
        parse_study(STUDY.replace("coins 3", "mars"))


def test_a_name_that_two_packages_want_is_nobodys(site: Path) -> None:
    install(site, "rival", "[dagveil.methods]\npairs-only = rival:method\n", "method = 1\n")
    assert method_plugins().origin("pairs-only") == "mypackage 1.2 and rival 1.2"
    with pytest.raises(MethodError, match=r"of mypackage 1.2 and rival 1.2 exists twice; uninstall one"):
        method_named("pairs-only")


def test_without_plugins_there_are_none() -> None:
    assert "coins" not in data_plugins()
    assert "pairs-only" not in method_plugins()

"""The documentation is true: its Python runs, its commands run, its links lead somewhere, its pages are listed."""

from __future__ import annotations

import enum
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from fractions import Fraction
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

import pytest

from dagveil.papers.publication import PAPERS, readings_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ROOT_PAGES = [
    page
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")
    if (page := ROOT / name).exists()
]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield language and content of each fenced block."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        yield match.group(1), match.group(2)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """Return the text without fenced blocks, code spans and indented formulas."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, by the rule of mkdocs."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        plain = heading.encode("ascii", "ignore").decode()
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


PYTHON_PAGES = [
    page
    for page in (*PAGES, *ROOT_PAGES)
    # how-tos and examples run with their commands, below
    if page.parent.name != "howto"
    and page.name != "examples.md"
    and any(language == "python" for language, _ in blocks(page))
]


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}  # as a script
    for number, (language, code) in enumerate(blocks(page), start=1):
        if language == "python":
            exec(compile(code, f"{name_of(page)}, block {number}", "exec"), namespace)


def write_settings(block: str, folder: Path) -> None:
    """Do what the tutorial tells the reader to do with a TOML block: a new head for the schema, or a named file."""
    named = re.match(r"# (\S+\.toml)\n", block)
    if named:
        (folder / named.group(1)).write_text(block, encoding="utf-8")
        return
    assert block.startswith("[dataset]\n")
    schema = folder / "schema.toml"
    old = schema.read_text(encoding="utf-8")
    new = re.sub(r"^\[dataset\]\n.*?(?=^\[)", lambda _: block + "\n", old, count=1, flags=re.MULTILINE | re.DOTALL)
    assert new != old
    # as the page says above: the questionnaire has no other answers
    new = new.replace('outside = "own-level"', 'outside = "no"')
    schema.write_text(new, encoding="utf-8")


def run_dagveil(arguments: list[str], folder: Path) -> str:
    """Run the command line in a folder, with a home folder of its own, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_DATA_HOME": str(folder / "home")}
    environment.pop("DAGVEIL_LEDGER", None)
    done = subprocess.run(
        [sys.executable, "-m", "dagveil.cli.main", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_tutorial_runs_and_prints_what_it_quotes(tmp_path: Path) -> None:
    page = DOCS / "tutorial.md"
    text = page.read_text(encoding="utf-8")
    quoted = ran = 0
    for language, block in blocks(page):
        if language == "toml":
            write_settings(block, tmp_path)
        commands = [line for line in block.splitlines() if line.startswith("$ ")] if language == "console" else []
        for line in commands:
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "dagveil", line
            output = run_dagveil(arguments, tmp_path)
            ran += 1
            if (
                arguments[0] in {"sample", "schema", "budget"}
                and "check" not in arguments
                and "history" not in arguments
            ):
                # no noise in it: quoted to the letter
                assert f"{line}\n{output}" in text
                quoted += 1
    assert (ran, quoted) == (10, 5)
    assert {"evidence.json", "result.json", "graph.svg", "report.html"} <= {
        p.name for p in (tmp_path / "out").iterdir()
    }
    assert not (tmp_path / "home").exists(), "a command forgot --ledger"


def test_commands_on_other_pages_exist() -> None:
    """Each command that a page names answers to -h."""
    from click.testing import CliRunner

    from dagveil.cli.main import group

    pattern = re.compile(
        r"\bdagveil ((?:schema|budget|bench|local) [a-z-]+|"
        r"plan|measure|combine|compare|completion|discover|direction|doctor|effect|export|audit|certify|methods|report|"
        r"sample|start|studio|synthesize|tables)\b"
    )
    named = {
        tuple(match.split()) for page in (*PAGES, *ROOT_PAGES) for match in pattern.findall(page.read_text("utf-8"))
    }
    assert len(named) > 10
    for command in sorted(named):
        assert CliRunner().invoke(group, [*command, "-h"]).exit_code == 0, command


@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES], ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert goal.exists(), f"{target} leads nowhere"
        if page.is_relative_to(DOCS):
            assert goal.is_relative_to(DOCS), f"{target} leads out of the site"
        if anchor and goal.suffix == ".md":
            assert anchor in anchors(goal), f"{target}: there is no such heading"


def test_the_reference_has_every_public_name() -> None:
    import dagveil

    # a name may stand by its module, where it is imported only when asked for
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: dagveil\.(?:[\w.]+\.)?(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(set(dagveil.__all__) - {"__version__"})


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(
        r"^\s+- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_load_nothing_from_elsewhere(page: Path) -> None:
    text = prose(page)
    assert not re.search(r"<(script|img|link|iframe)\b", text)
    assert not re.search(r"!\[[^\]]*\]\(https?:", text)


def test_code_that_pages_name_exists() -> None:
    """Constants, test files and modules in the method page and the table of guarantees are found in the repository."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    measure = (DOCS / "methods" / "measure.md").read_text(encoding="utf-8")
    constants = set(re.findall(r"`([A-Z][A-Z_]{3,})`", measure))
    assert len(constants) > 20
    for constant in constants:
        assert re.search(rf"\b{constant}\b", source), constant
    for page in PAGES:
        for path in re.findall(r"`((?:tests|docs|src|dagveil)/[\w/]+\.(?:py|md))`", page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists() or (ROOT / "src" / path).exists(), f"{name_of(page)} names {path}"


def _numeric_constants() -> list[tuple[str, float]]:
    """Rows of the tables of constants: | `NAME` | value | …"""
    text = (DOCS / "methods" / "measure.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([\d ./]+) \|", text, flags=re.MULTILINE)
    values = []
    for name, value in rows:
        top, _, bottom = value.replace(" ", "").partition("/")
        values.append((name, float(top) / float(bottom or 1)))
    return values


@pytest.mark.parametrize(("name", "value"), _numeric_constants())
def test_values_of_constants_are_those_of_the_code(name: str, value: float) -> None:
    import dagveil.curator.curator
    import dagveil.evidence.covariance
    import dagveil.evidence.moments
    import dagveil.evidence.pairs
    import dagveil.evidence.triples
    import dagveil.evidence.wald
    import dagveil.methods.measure
    import dagveil.methods.measure_loop
    import dagveil.methods.measure_mixed
    import dagveil.methods.measure_moments
    import dagveil.methods.measure_tables
    import dagveil.privacy.mechanisms.gaussian as gaussian
    import dagveil.search.constraint.arrows
    import dagveil.search.constraint.skeleton
    import dagveil.search.probabilities

    rooms = (
        dagveil.curator.curator,
        dagveil.evidence.covariance,
        dagveil.evidence.moments,
        dagveil.evidence.pairs,
        dagveil.evidence.triples,
        dagveil.evidence.wald,
        dagveil.methods.measure,
        dagveil.methods.measure_loop,
        dagveil.methods.measure_mixed,
        dagveil.methods.measure_moments,
        dagveil.methods.measure_tables,
        gaussian,
        dagveil.search.constraint.arrows,
        dagveil.search.constraint.skeleton,
        dagveil.search.probabilities,
    )
    found = {float(getattr(room, name)) for room in rooms if hasattr(room, name)}
    assert found == {value}


def test_the_correction_of_shares_is_that_of_the_code() -> None:
    from dataclasses import asdict

    from dagveil.search.probabilities import FITTED

    text = (DOCS / "methods" / "measure.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| c[₀-₄] `(\w+)` \| (−?[\d.]+) \|$", text, flags=re.MULTILINE)
    assert {name: float(value.replace("−", "-")) for name, value in rows} == asdict(FITTED)


def test_values_of_settings_are_those_of_the_code() -> None:
    from dagveil.methods.measure import MOMENT_SEARCH, TABLE_SEARCH
    from dagveil.runs.result import NEAR_MISS
    from dagveil.search.settings import SearchSettings

    text = (DOCS / "methods" / "measure.md").read_text(encoding="utf-8")
    for name in ("marginal_level", "conditional_level", "largest_order", "sets_per_edge", "neighbours_considered"):
        assert f"| `{name}` | {getattr(TABLE_SEARCH, name)} | {getattr(MOMENT_SEARCH, name)} |" in text
    assert f"`redraws` times ({SearchSettings().redraws})" in text
    assert f"`NEAR_MISS` ({NEAR_MISS:g})" in text


METHOD_PAGES = sorted(page for page in (DOCS / "methods").glob("*.md") if page.name != "measure.md")


@pytest.mark.parametrize("page", [*METHOD_PAGES, *sorted((DOCS / "howto").glob("*.md"))], ids=name_of)
def test_blocks_of_methods_and_jobs_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from dagveil.cli.main import group

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGVEIL_LEDGER", str(tmp_path / "ledger.sqlite"))
    namespace: dict[str, object] = {"__name__": "documentation"}
    ran = 0
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, name_of(page), "exec"), namespace)
        if language == "toml":
            write_settings(block, tmp_path)
        for line in block.splitlines() if language == "console" else ():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "dagveil", line
            done = CliRunner().invoke(group, arguments)
            assert done.exit_code == 0, f"{line}\n{done.output}"
            ran += 1
    assert ran >= 2


def test_the_worked_examples_run_and_print_what_they_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from dagveil.cli.main import group

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGVEIL_LEDGER", str(tmp_path / "ledger.sqlite"))
    for schema in (DOCS / "examples").glob("*.toml"):
        shutil.copy(schema, tmp_path)
    printed: list[str] = []
    namespace: dict[str, object] = {"__name__": "documentation"}
    for language, block in blocks(DOCS / "examples.md"):
        if language == "python":
            with redirect_stdout(StringIO()) as told:
                exec(compile(block, "examples.md", "exec"), namespace)
            printed += told.getvalue().splitlines()
        if language == "toml":
            write_settings(block, tmp_path)
        for line in block.splitlines() if language == "console" else ():
            done = CliRunner().invoke(group, shlex.split(line.removeprefix("$ dagveil ")))
            assert done.exit_code == 0, f"{line}\n{done.output}"
            printed += done.output.splitlines()
        if language == "text":
            said = "\n".join(printed)
            missing = [part for part in re.split(r"\s*…\s*|\n", block) if part not in said]
            assert not missing, "\n".join(["quoted, but not printed:", *missing, "printed:", said])
            printed.clear()
    used = set(re.findall(r"--schema (\w+)\.toml", (DOCS / "examples.md").read_text(encoding="utf-8")))
    assert used == {schema.stem for schema in (DOCS / "examples").glob("*.toml")}


def settings_table(method: str, section: str) -> list[tuple[str, str]]:
    """Read names and defaults from the table below a heading of a method's page."""
    text = (DOCS / "methods" / f"{method}.md").read_text(encoding="utf-8")
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \|", parts[parts.index(section) + 1], flags=re.MULTILINE)


def shown(value: object) -> str:
    """Write a default as the pages do: as --set takes it, and a rule for None."""
    if value is None:
        return "by rule"
    if isinstance(value, enum.Enum):
        return str(value.value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def published_methods() -> list[str]:

    return list(PAPERS)


@pytest.mark.parametrize("name", published_methods())
def test_settings_on_method_pages_are_those_of_the_code(name: str) -> None:
    import msgspec

    from dagveil.methods.method import METHODS

    kinds = {
        "Sound calibration": METHODS[name].settings,
        **{f"{key.value.capitalize()} calibration": reading.settings for key, reading in readings_of(name).items()},
    }
    for section, kind in kinds.items():
        declared = [(field.name, shown(field.default)) for field in msgspec.structs.fields(kind)]
        assert settings_table(name, section) == declared, section


def test_every_method_has_a_page_that_papers_names() -> None:
    from dagveil.methods.method import METHODS

    papers = (DOCS / "papers.md").read_text(encoding="utf-8")
    for name in METHODS:
        assert (DOCS / "methods" / f"{name}.md").exists()
        assert f"[`{name}`](methods/{name}.md)" in papers


def test_methods_take_the_statistics_that_the_page_says() -> None:
    from dagveil.data.column import Boolean
    from dagveil.data.schema import Schema
    from dagveil.errors import MethodError
    from dagveil.methods.asking import ASKABLE
    from dagveil.methods.method import METHODS
    from dagveil.privacy.noise.kind import NoiseKind
    from dagveil.runs.discovery import discover

    text = (DOCS / "methods" / "statistics.md").read_text(encoding="utf-8")
    heading, _, *lines = text[text.index("| | `em-pc`") :].split("\n\n")[0].splitlines()
    methods = re.findall(r"`([\w-]+)`", heading)
    takers = {name for name, method in METHODS.items() if "statistic" in method.settings.__struct_fields__}
    assert set(methods) == takers
    rows = {line.split("|")[1].strip().strip("`"): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines}
    assert set(rows) == set(ASKABLE)
    schema = Schema(
        dataset="demo",
        columns={name: Boolean("false") for name in "ab"},
        reviewed=True,
        nominal_rows=400,
    )
    table = {name: [index % 2 == 0 for index in range(400)] for name in "ab"}
    for statistic, cells in rows.items():
        for method, cell in zip(methods, cells, strict=True):
            try:
                discover(
                    table,
                    schema,
                    1,
                    method=method,
                    options={"statistic": statistic},
                    noise=NoiseKind.EXACT,
                    ledger=None,
                )
                taken = "yes"
            except MethodError:
                taken = "no"
            assert taken == cell, (method, statistic)


def test_limits_and_constants_on_method_pages_are_those_of_the_code() -> None:
    from dagveil.methods import asking, lap_mech, svt_pc
    from dagveil.papers import wang2020
    from dagveil.statistics.distance import REACH
    from dagveil.statistics.reconciled import PartTest, Reconciled
    from dagveil.statistics.statistic import TableShape

    def page(name: str) -> str:
        return " ".join((DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8").split())

    assert f"more than {lap_mech.MOST_CELLS:,} cells".replace(",", " ") in page("lap-mech")
    assert f"{float(100 * svt_pc.THRESHOLD_SHARE):g} % of a round's ε goes to its threshold" in page("svt-pc")
    assert f"at least 1/{1 / wang2020.SMALLEST_RATE:g}" in page("priv-pc")
    statistics = page("statistics")
    assert Fraction(1, 20) == asking.MARGIN_SHARE
    assert "One twentieth of the budget releases one-way tables" in statistics
    assert f"dealt out to {asking.PARTS} parts, each runs the G test at 5 %" in statistics
    votes = Reconciled(PartTest.G, asking.PARTS)
    assert votes.part_level == 0.05
    assert f"{votes.critical_value(0.01, 1, TableShape(1, 2, 2)):g} is the threshold at level 0.01" in statistics
    assert f"cut off at {REACH} records" in statistics

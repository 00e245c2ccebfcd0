"""The documentation is true: its Python runs, its commands run, its links lead somewhere, its pages are listed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ROOT_PAGES = [page for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md") if (page := ROOT / name).exists()]
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


PYTHON_PAGES = [page for page in (*PAGES, *ROOT_PAGES) if any(language == "python" for language, _ in blocks(page))]


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "documentation"}
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
    schema.write_text(new, encoding="utf-8")


def test_the_tutorial_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_DATA_HOME": str(tmp_path), "COLUMNS": "200"}
    environment.pop("DAGVEIL_LEDGER", None)
    ran = []
    for language, block in blocks(DOCS / "tutorial.md"):
        if language == "toml":
            write_settings(block, tmp_path)
        if language != "console":
            continue
        for line in block.splitlines():
            if not line.startswith("$ "):
                continue
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "dagveil", line
            done = subprocess.run(
                [sys.executable, "-m", "dagveil.cli.main", *arguments],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                encoding="utf-8",
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            ran.append((line, done.stdout))
    assert len(ran) >= 8
    shown = {line: output for line, output in ran}
    budget = next(output for line, output in shown.items() if "budget show" in line)
    assert "spent epsilon 1, delta 1e-6 in 1 runs; lifetime epsilon 3, delta 1e-5" in budget
    assert {"evidence.json", "result.json", "graph.svg", "report.html"} <= {p.name for p in (tmp_path / "out").iterdir()}
    assert not (tmp_path / "dagveil").exists(), "a command forgot --ledger and wrote to the home folder"


def test_quoted_output_of_the_tutorial_is_what_is_printed(tmp_path: Path) -> None:
    """Lines whose output does not depend on noise are quoted to the letter."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    for command in (
        "sample asia --rows 50000 -o asia.csv",
        "schema draft asia.csv -o schema.toml",
        "budget set clinic --epsilon 3 --delta 1e-5 --ledger ledger.sqlite",
    ):
        done = subprocess.run(
            [sys.executable, "-m", "dagveil.cli.main", *shlex.split(command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
        assert f"$ dagveil {command}\n{done.stdout}" in text


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


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"^\s+- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
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
    import dagveil.curator
    import dagveil.evidence.covariance
    import dagveil.evidence.moments
    import dagveil.evidence.pairs
    import dagveil.evidence.triples
    import dagveil.evidence.wald
    import dagveil.methods.measure
    import dagveil.methods.measure_moments
    import dagveil.methods.measure_tables
    import dagveil.privacy.mechanisms.gaussian as gaussian

    rooms = (
        dagveil.curator,
        dagveil.evidence.covariance,
        dagveil.evidence.moments,
        dagveil.evidence.pairs,
        dagveil.evidence.triples,
        dagveil.evidence.wald,
        dagveil.methods.measure,
        dagveil.methods.measure_moments,
        dagveil.methods.measure_tables,
        gaussian,
    )
    found = [float(getattr(room, name)) for room in rooms if hasattr(room, name)]
    assert found, f"{name} is in none of the modules that the page names"
    assert all(abs(number - value) < 1e-12 for number in found), f"{name} is {found}, the page says {value}"

"""Print how large the house is: lines, files, words, and what a command imports.

Run as `python bench/scripts/measure_house.py` from the repository. Seconds are processor time of this machine.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEEL, BENCH = ROOT / "src" / "dagveil", ROOT / "bench"

COUNT = """
import sys, time
from dagveil.cli.main import group
try:
    group({words!r}, prog_name="dagveil")
except SystemExit:
    pass
ours = [name for name in sys.modules if name == "dagveil" or name.startswith("dagveil.")]
print(len(ours), time.process_time(), file=sys.stderr)
"""


def count_lines(folder: Path) -> tuple[int, int]:
    """Return the lines and the files of Python below a folder."""
    paths = list(folder.rglob("*.py"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths), len(paths)


def share_of_imports(folder: Path) -> float:
    """Return the share of lines with code, docstrings and comments left out, that import."""
    imports = code = 0
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        strings: set[int] = set()
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                strings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#") and number not in strings:
                code += 1
                imports += number in lines
    return imports / code


def count_words(folder: Path) -> int:
    """Return the words of all Markdown below a folder."""
    return sum(len(re.findall(r"\S+", path.read_text(encoding="utf-8"))) for path in folder.rglob("*.md"))


def run(*words: str) -> tuple[int, float]:
    """Run a command, and return the modules of ours that it imported, and its processor seconds."""
    command = [sys.executable, "-c", COUNT.format(words=list(words))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules, seconds = done.stderr.split("\n")[-2].split()
    return int(modules), float(seconds)


def main() -> None:
    """Print the table."""
    lines, files = count_lines(WHEEL)
    more, _ = count_lines(BENCH)
    with tempfile.TemporaryDirectory() as folder:
        table, schema = f"{folder}/asia.csv", f"{folder}/asia.toml"
        run("sample", "asia", "--rows", "1000", "-o", table)
        place = ("--schema", schema, "--epsilon", "1", "--ledger", f"{folder}/ledger.sqlite", "-o", f"{folder}/out")
        discover, _ = run("discover", table, *place)
    version, seconds = run("--version")
    rows = (
        ("lines / files in the wheel", f"{lines} / {files}", "42000 / 270"),
        ("lines in the repository (src and bench)", str(lines + more), "55000"),
        ("modules of ours imported by `discover` on a CSV / by `--version`", f"{discover} / {version}", "160 / 10"),
        ("`--version`, processor seconds", f"{seconds:.2f}", "0.3"),
        ("words under docs/", str(count_words(ROOT / "docs")), "75000"),
        ("imports as share of code lines", f"{share_of_imports(WHEEL):.1%}", "10%"),
    )
    print("| what | now | target, at most |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()

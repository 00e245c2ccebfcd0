"""Convert published Bayesian networks from BIF to the JSON files that `dagveil.examples.networks` reads.

The BIF files come with the PyPI package pgmpy (MIT licence), which took them from the bnlearn repository of
Bayesian networks. Run it on pgmpy's wheel or on a folder with the unpacked wheel::

    python scripts/convert_networks.py pgmpy-1.1.2-py3-none-any.whl
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any

NAMES = ("alarm", "asia", "cancer", "child", "earthquake", "insurance", "sachs", "survey")
INSIDE = "pgmpy/utils/example_models/{name}.bif.gz"
TARGET = Path(__file__).resolve().parents[2] / "src" / "dagveil" / "examples" / "data"

VARIABLE = re.compile(r"variable\s+(\S+)\s*\{\s*type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{([^}]*)\}\s*;\s*\}")
PROBABILITY = re.compile(r"probability\s*\(\s*([^|)]+?)\s*(?:\|\s*([^)]*?)\s*)?\)\s*\{(.*?)\}", re.DOTALL)
ROW = re.compile(r"(?:\(([^)]*)\)|(table))\s*([^;]*);")


def read_bif(source: Path, name: str) -> str:
    """Return the text of one network from a wheel or from an unpacked wheel."""
    inside = INSIDE.format(name=name)
    if source.is_dir():
        return gzip.decompress((source / inside).read_bytes()).decode()
    with zipfile.ZipFile(source) as wheel:
        return gzip.decompress(wheel.read(inside)).decode()


def parse_bif(text: str) -> list[dict[str, Any]]:
    """Return the nodes in the order of the file, with levels, parents and one flat table each.

    The table runs through the parents' levels in their order, the first parent slowest, and then the node's levels.
    """
    levels: dict[str, list[str]] = {}
    for name, count, listed in VARIABLE.findall(text):
        levels[name] = split(listed)
        if len(levels[name]) != int(count):
            raise ValueError(f"{name}: {count} levels announced, {len(levels[name])} listed")
    blocks = {head: (split(parents), body) for head, parents, body in PROBABILITY.findall(text)}
    if set(blocks) != set(levels):
        raise ValueError(f"nodes without a table, or the reverse: {sorted(set(blocks) ^ set(levels))}")
    return [
        {"name": name, "levels": levels[name], "parents": blocks[name][0], "table": read_table(name, levels, blocks)}
        for name in levels
    ]


def read_table(name: str, levels: dict[str, list[str]], blocks: dict[str, tuple[list[str], str]]) -> list[float]:
    """Return one node's conditional probabilities, rows with rounded digits normalised to the sum 1."""
    parents, body = blocks[name]
    rows: dict[tuple[str, ...], list[float]] = {}
    for case, table, numbers in ROW.findall(body):
        row = [float(number) for number in split(numbers)]
        total = math.fsum(row)
        if len(row) != len(levels[name]) or min(row) < 0 or abs(total - 1) > 0.02:
            raise ValueError(f"{name}: a row of {len(row)} probabilities with the sum {total}")
        # A row that is off by no more than float rounding keeps the digits of the file.
        scaled = row if abs(total - 1) < 1e-12 else [number / total for number in row]
        rows[() if table else tuple(split(case))] = scaled
    cases = list(itertools.product(*(levels[parent] for parent in parents)))
    if set(cases) != set(rows):
        raise ValueError(f"{name}: {len(rows)} rows for {len(cases)} cases of the parents")
    return [number for case in cases for number in rows[case]]


def split(listed: str) -> list[str]:
    """Split a list at its commas."""
    return [item.strip() for item in listed.split(",") if item.strip()]


def main() -> None:
    """Convert every network and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="pgmpy's wheel, or the folder of an unpacked wheel")
    parser.add_argument("--target", type=Path, default=TARGET, help="folder for the JSON files")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        nodes = parse_bif(read_bif(options.source, name))
        origin = f"{name}.bif of the bnlearn repository of Bayesian networks, as shipped with pgmpy (MIT licence)"
        lines = ",\n".join("  " + json.dumps(node, ensure_ascii=False, separators=(",", ":")) for node in nodes)
        head = f'{{"name": {json.dumps(name)},\n "source": {json.dumps(origin)},\n "nodes": [\n'
        (options.target / f"{name}.json").write_text(f"{head}{lines}\n]}}\n", encoding="utf-8")
        print(f"{name}: {len(nodes)} nodes, {sum(len(node['parents']) for node in nodes)} edges")


if __name__ == "__main__":
    main()

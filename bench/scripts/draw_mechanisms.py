"""Draw figures 6 and 7 of the study of local privacy: how likely each report of one record is.

Run as `python bench/scripts/draw_mechanisms.py bench/results`. As published, four columns of 2, 5, 5 and 5 bins. The
publication names neither the record nor p_max; here they are (0, 1, 2, 3) and 0.05. The blocks of a panel are the bins
of the first two columns, down and across; rows and columns of a block are those of the last two.
"""

from __future__ import annotations

import math
import sys
from functools import reduce
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np
from numpy.typing import NDArray

from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.record import ComponentWise, Norm
from dagveil_bench.local_source import Mechanism, make_channel

LEVELS, RECORD, TRUTH = (2, 5, 5, 5), (0, 1, 2, 3), 0.05
CELL, SPACE, GAP = 6, 3, 30


def law_of(channel: object) -> NDArray[np.float64]:
    """Return the probability of each report of the record."""
    if isinstance(channel, ComponentWise):
        lines = [column.matrix[value] for column, value in zip(channel.channels, RECORD, strict=True)]
        return np.asarray(reduce(np.multiply.outer, lines))
    if isinstance(channel, CombinedGeometric):
        place = int(np.ravel_multi_index(RECORD, LEVELS))
        return channel.write_out().matrix[place].reshape(LEVELS)
    law = np.full(LEVELS, (1.0 - TRUTH) / (math.prod(LEVELS) - 1))
    law[RECORD] = TRUTH
    return law


def draw(panels: dict[str, NDArray[np.float64]], title: str) -> bytes:
    """Draw laws side by side; a darker cell is a likelier report, black is the record."""
    down, across, rows, columns = LEVELS
    wide, high = columns * CELL + SPACE, rows * CELL + SPACE
    width, height = len(panels) * (across * wide + GAP) + GAP, down * high + 2 * GAP
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}"})
    root.attrib |= {"font-family": "sans-serif", "font-size": "12"}
    SubElement(root, "title").text = title
    for number, (label, law) in enumerate(panels.items()):
        left = GAP + number * (across * wide + GAP)
        SubElement(root, "text", {"x": str(left), "y": str(GAP - 8)}).text = label
        for (first, second, row, column), share in np.ndenumerate(law):
            grey = round(255 * (1.0 - np.sqrt(share / law[RECORD])))
            place = {
                "x": str(left + second * wide + CELL * column),
                "y": str(GAP + first * high + CELL * row),
                "width": str(CELL),
                "height": str(CELL),
            }
            SubElement(root, "rect", {**place, "fill": f"rgb({grey},{grey},{grey})"})
    return tostring(root) + b"\n"


def main() -> None:
    """Write both figures into a folder."""
    folder = Path(sys.argv[1])
    names = {
        "Geo Comb": Mechanism.GEOMETRIC_COMBINED,
        "Geo C-wise": Mechanism.GEOMETRIC_COLUMNS,
        "k-RR Comb": Mechanism.RESPONSE_COMBINED,
        "k-RR C-wise": Mechanism.RESPONSE_COLUMNS,
    }
    four = {label: law_of(make_channel(mechanism, LEVELS, TRUTH)) for label, mechanism in names.items()}
    (folder / "local-fig6.svg").write_bytes(draw(four, "Four mechanisms: probability of each report"))
    norms = {f"Geo Comb, p = {norm.value}": law_of(CombinedGeometric(LEVELS, TRUTH, norm)) for norm in Norm}
    (folder / "local-fig7.svg").write_bytes(draw(norms, "Three distances: probability of each report"))


if __name__ == "__main__":
    main()

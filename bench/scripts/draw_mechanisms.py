"""Draw figures 6 and 7 of the study of local privacy: how likely each report of one record is.

Run as `python bench/scripts/draw_mechanisms.py bench/results`. The publication draws four columns and says neither how
many bins they have nor which record is true; here are two columns of 15 bins, the record (4, 9), and p_max = 0.05.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np
from numpy.typing import NDArray

from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.record import ComponentWise, Norm
from dagveil_bench.local_source import Mechanism, make_channel

BINS, RECORD, TRUTH = 15, (4, 9), 0.05
CELL, GAP = 10, 30


def law_of(channel: object) -> NDArray[np.float64]:
    """Return the probability of each report of the record."""
    if isinstance(channel, ComponentWise):
        first, second = (column.matrix[value] for column, value in zip(channel.channels, RECORD, strict=True))
        return np.outer(first, second)
    if isinstance(channel, CombinedGeometric):
        place = int(np.ravel_multi_index(RECORD, (BINS, BINS)))
        return channel.write_out().matrix[place].reshape(BINS, BINS)
    law = np.full((BINS, BINS), (1.0 - TRUTH) / (BINS**2 - 1))
    law[RECORD] = TRUTH
    return law


def draw(panels: dict[str, NDArray[np.float64]], title: str) -> bytes:
    """Draw laws side by side; a darker cell is a likelier report, black is p_max."""
    side = CELL * BINS
    width, height = len(panels) * (side + GAP) + GAP, side + 2 * GAP
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}"})
    root.attrib |= {"font-family": "sans-serif", "font-size": "12"}
    SubElement(root, "title").text = title
    for number, (label, law) in enumerate(panels.items()):
        left = GAP + number * (side + GAP)
        SubElement(root, "text", {"x": str(left), "y": str(GAP - 8)}).text = label
        for (row, column), share in np.ndenumerate(law):
            grey = round(255 * (1.0 - np.sqrt(share / TRUTH)))
            place = {
                "x": str(left + CELL * column),
                "y": str(GAP + CELL * row),
                "width": str(CELL),
                "height": str(CELL),
            }
            SubElement(root, "rect", {**place, "fill": f"rgb({grey},{grey},{grey})"})
    return tostring(root) + b"\n"


def main() -> None:
    """Write both figures into a folder."""
    folder, levels = Path(sys.argv[1]), (BINS, BINS)
    names = {
        "Geo Comb": Mechanism.GEOMETRIC_COMBINED,
        "Geo C-wise": Mechanism.GEOMETRIC_COLUMNS,
        "k-RR Comb": Mechanism.RESPONSE_COMBINED,
        "k-RR C-wise": Mechanism.RESPONSE_COLUMNS,
    }
    four = {label: law_of(make_channel(mechanism, levels, TRUTH)) for label, mechanism in names.items()}
    (folder / "local-fig6.svg").write_bytes(draw(four, "Four mechanisms: probability of each report"))
    norms = {f"Geo Comb, p = {norm.value}": law_of(CombinedGeometric(levels, TRUTH, norm)) for norm in Norm}
    (folder / "local-fig7.svg").write_bytes(draw(norms, "Three distances: probability of each report"))


if __name__ == "__main__":
    main()

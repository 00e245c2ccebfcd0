"""Figures of studies: what is drawn, what is left out, and the same file every time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagveil.errors import MissingExtraError
from dagveil_bench import plots
from dagveil_bench.plots import DASHES, LEVEL_COLOURS, LEVEL_DASHES, Line, Panel, draw_panels

PANELS = [
    Panel(
        "one & two",
        [Line("ours", [0.25, None, 0.75]), Line("theirs", [0.5, 0.5, 0.5], [0.1, None, 0.2])],
        {"level": 0.1},
    ),
    Panel("three", [Line("ours", [None, None, None])]),
    Panel("four", []),
]


@pytest.fixture
def draw(tmp_path: Path) -> Path:
    """Return where figures go, where they can be drawn."""
    pytest.importorskip("matplotlib")
    return tmp_path / "figure.svg"


def test_panels_have_titles_ticks_labels_and_one_legend(draw: Path) -> None:
    draw_panels(PANELS, ["0.1", "1", "none"], "budget", "height", draw)
    text = draw.read_text(encoding="utf-8")
    for words in ("one &amp; two", "three", "four", "budget", "height", "level"):
        assert words in text
    assert len(re.findall(r">ours<", text)) == 1
    assert len(re.findall(r">theirs<", text)) == 1
    # ticks stand below the last panel of each column, wherever that is
    assert len(re.findall(r">none<", text)) == 2


def test_the_same_figure_is_the_same_file(draw: Path) -> None:
    draw_panels(PANELS, ["0.1", "1", "none"], "budget", "height", draw)
    first = draw.read_bytes()
    draw_panels(PANELS, ["0.1", "1", "none"], "budget", "height", draw)
    assert draw.read_bytes() == first
    assert b"<dc:date>" not in first


def test_heights_that_were_not_run_are_left_out(draw: Path) -> None:
    """The markers of a line are as many as its heights."""
    lines = [Line("ours", [0.2, None, 0.4, 0.6])]
    draw_panels([Panel("p", lines)], ["1", "2", "3", "4"], "x", "y", draw, columns=1)
    gap = _count_markers(draw)
    draw_panels([Panel("p", [Line("ours", [0.2, 0.3, 0.4, 0.6])])], ["1", "2", "3", "4"], "x", "y", draw, columns=1)
    assert _count_markers(draw) == gap + 1


def _count_markers(path: Path) -> int:
    """Count uses of the largest group of markers, which is the line's."""
    text = path.read_text(encoding="utf-8")
    line = next(
        part
        for part in text.split("<g id=")
        if "clip-path" in part and part.count("<use") >= 3 and "fill: #0072b2" in part
    )
    return line.count("<use")


def test_places_make_a_logarithmic_axis(draw: Path) -> None:
    line = Line("ours", [0.2, 0.9], [0.1, 0.1], [0.01, 10.0])
    draw_panels([Panel("p", [line])], (), "ε", "y", draw, columns=1, limits=None)
    text = draw.read_text(encoding="utf-8")
    assert "10^{-2}" in text or "−2" in text or "-2" in text
    assert ">ε<" in text


def looks_of(panels: list[Panel]) -> list[dict[str, tuple[object, str]]]:
    """Return colour and dashes of each line without markers, by label, for each panel."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    found = []
    for panel in panels:
        axis = Figure().subplots()
        plots._draw(axis, panel, ["1"], (0.0, 1.0), plots._style_levels(panels))
        found.append(
            {str(line.get_label()): (line.get_color(), str(line._unscaled_dash_pattern)) for line in axis.lines}
        )  # type: ignore[attr-defined]
    return found


def test_no_two_horizontal_lines_look_alike() -> None:
    many = len(LEVEL_DASHES) * len(LEVEL_COLOURS)
    (looks,) = looks_of([Panel("p", [], {f"level {i}": i / many for i in range(many)})])
    assert len(set(looks.values())) == many


def test_a_horizontal_line_looks_the_same_in_panels_that_lack_another() -> None:
    first, second = looks_of([Panel("p", [], {"ceiling": 0.9, "floor": 0.1}), Panel("q", [], {"floor": 0.2})])
    assert second["floor"] == first["floor"] != first["ceiling"]


def test_a_wide_line_is_wide(draw: Path) -> None:
    draw_panels(
        [Panel("p", [Line("ours", [0.1, 0.2], width=2.8), Line("theirs", [0.1, 0.2])])], ["1", "2"], "", "", draw
    )
    text = draw.read_text(encoding="utf-8")
    assert "stroke: #0072b2; stroke-width: 2.8" in text
    assert "stroke: #d55e00; stroke-width: 1.2" in text


def test_no_two_of_32_lines_look_alike() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    plots._draw(axis, Panel("p", [Line(str(i), [0.5]) for i in range(32)]), ["1"], None, {})
    looks = {(line.get_color(), line.get_linestyle()) for line in axis.lines if line.get_linestyle() in DASHES}
    assert len(looks) == 32


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(plots, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"figures need matplotlib: pip install './bench\[plots\]'"):
        draw_panels(PANELS, ["1"], "x", "y", tmp_path / "f.svg")
    assert list(tmp_path.iterdir()) == []


def test_published_figures_are_small_and_their_text_is_text() -> None:
    root = Path(__file__).parents[2]
    drawn = [path for folder in ("docs", "bench/results") for path in (root / folder).rglob("*.svg")]
    assert len(drawn) > 20
    for path in (*drawn, *(root / "docs").rglob("*.png"), *(root / "bench" / "results").rglob("*.png")):
        assert path.stat().st_size <= 300_000, f"{path.relative_to(root)}: draw it with fewer elements"
    assert all("<text" in path.read_text(encoding="utf-8") for path in drawn)

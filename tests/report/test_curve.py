"""Explorations as drawings and pages: well formed, readable without colour, safe with any name, and standing alone."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from xml.etree import ElementTree

import msgspec
import pytest

import dagveil as dv
from dagveil.data.column import Boolean
from dagveil.forecast.detection import Weakest
from dagveil.forecast.explore import Exploration
from dagveil.forecast.recommendation import Curve, Point, recommend
from dagveil.report.exploration import (
    _look,
    describe_exploration,
    draw_exploration,
    draw_exploration_inline,
    render_exploration,
)

SPACE = {"s": "http://www.w3.org/2000/svg"}
NASTY = 'a <b> & "c"\x00\u202e'


def curve(name: str, *heights: float | None) -> Curve:
    seen = Weakest("Cramér's V", 0.05, 0.1)
    return Curve(
        name,
        tuple(
            Point(
                Fraction(10) ** (place - 1),
                height,
                None if height is None else max(0.0, height - 0.1),
                None if height is None else min(1.0, height + 0.1),
                3,
                seen,
            )
            for place, height in enumerate(heights)
        ),
    )


def explored(*curves: Curve, dataset: str = "clinic", wanted: float = 0.9) -> Exploration:
    schema = dv.Schema(dataset=dataset, columns={name: Boolean() for name in "abc"}, reviewed=True, nominal_rows=100)
    return Exploration(
        format="dagveil-exploration",
        version=1,
        software="0",
        dataset=dataset,
        columns=3,
        nominal_rows=100,
        delta="0",
        rows=100,
        models=5,
        density=0.5,
        strength=0.4,
        seed=0,
        curves=curves,
        left_out=(),
        unfit={},
        recommendation=recommend(curves, wanted, schema, Fraction(0), 100),
        notes=("A note.",),
    )


@pytest.fixture
def found() -> Exploration:
    return explored(curve("measure", 0.2, 0.8, 1.0), curve("em-pc", None, 0.5, 0.7), dataset=NASTY)


class TestDrawing:
    def test_every_point_stands_where_its_number_is(self, found: Exploration) -> None:
        root = ElementTree.fromstring(draw_exploration(found))
        groups = root.findall("s:g[@class='curve']", SPACE)
        assert [group.findtext("s:title", namespaces=SPACE) for group in groups] == ["measure", "em-pc"]
        assert [len(group.findall("s:polygon", SPACE)) for group in groups] == [3, 2]
        ticks = {text.text: float(text.get("y", "")) for text in root.iterfind(".//s:g[@class='axes']/s:text", SPACE)}
        bars = groups[0].findall("s:line", SPACE)
        height = (ticks["0"] - ticks["0.8"]) / 0.8  # an epsilon is labelled 1 too
        lows = [(ticks["0"] - float(bar.get("y1", ""))) / height for bar in bars]
        highs = [(ticks["0"] - float(bar.get("y2", ""))) / height for bar in bars]
        assert lows == pytest.approx([0.1, 0.7, 0.9], abs=0.01)
        assert highs == pytest.approx([0.3, 0.9, 1.0], abs=0.01)
        across = [float(bar.get("x1", "")) for bar in bars]
        assert across[2] - across[1] == pytest.approx(across[1] - across[0], abs=0.2)  # epsilon grows by factors

    def test_it_can_be_heard(self, found: Exploration) -> None:
        root = ElementTree.fromstring(draw_exploration(found))
        told = root.findtext("s:desc", namespaces=SPACE)
        assert told == describe_exploration(found)
        assert "measure: 0.2 at 0.1, 0.8 at 1, 1 at 10; em-pc: 0.5 at 1, 0.7 at 10." in (told or "")
        assert root.get("role") == "img"

    def test_lines_differ_without_colour(self) -> None:
        """Dash and marker tell neighbours apart, and with the colour any two of twenty."""
        looks = [(*_look(number), number % 5, number // 5 % 2) for number in range(20)]
        assert len(set(looks)) == 20
        assert all(a[1] != b[1] or a[2] != b[2] for a, b in pairwise(looks))

    def test_one_epsilon_is_enough(self) -> None:
        assert "<svg" in draw_exploration(explored(curve("measure", 0.95)))

    def test_the_wish_is_drawn_and_its_epsilon_only_if_reached(self, found: Exploration) -> None:
        reached = ElementTree.fromstring(draw_exploration(found)).findall("s:g[@class='wanted']/s:line", SPACE)
        missed = ElementTree.fromstring(draw_exploration(explored(curve("measure", 0.1, 0.2), wanted=0.9)))
        assert len(reached) == 2
        assert len(missed.findall("s:g[@class='wanted']/s:line", SPACE)) == 1


class TestPages:
    def test_the_page_stands_alone(self, found: Exploration) -> None:
        page = render_exploration(found)
        assert page == render_exploration(found)
        assert not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)", page)
        assert "default-src 'none'" in page
        assert "a &lt;b&gt; &amp; &#34;c&#34;\ufffd\ufffd" in page
        assert "0.80 (0.70–0.90)" in page
        assert '<td class="number">–</td>' in page
        for words in (*found.recommendation.words[1:], *found.notes):
            assert words.replace("'", "&#39;") in page

    def test_notebooks_show_curves_and_words(self, found: Exploration) -> None:
        shown = found._repr_html_()
        assert shown == draw_exploration_inline(found)
        assert "<svg" in shown
        assert "A note." in shown
        assert "What an attacker gains at most" in shown

    def test_the_methods_of_the_object_are_these(self, found: Exploration) -> None:
        assert found.to_svg() == draw_exploration(found)
        assert found.to_html() == render_exploration(found)
        assert msgspec.json.decode(found.to_json())["curves"][0]["points"][0]["epsilon"] == "1/10"

"""PAGs: projections of DAGs with hidden nodes, and the marks of their classes."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.exchange.dot import from_dagitty, from_dot, to_dagitty, to_dot
from dagveil.graphs.exchange.formats import (
    EXPORTERS,
    Extension,
    Format,
    from_gml,
    from_graphml,
    from_node_link,
    from_tetrad,
    to_tetrad,
    write_amat,
    write_graph,
)
from dagveil.graphs.pag import CIRCLE, NONE, TAIL, Edge, Mark, MixedGraph, OrientationRules, find_class
from dagveil_bench.hidden_causes import project_dag
from separation import is_separated

TAIL_MARK, ARROW_MARK, CIRCLE_MARK = Mark.TAIL, Mark.ARROW, Mark.CIRCLE


def random_dag(nodes: int, seed: int) -> Dag:
    rng = np.random.default_rng(seed)
    names = tuple("abcdefgh"[:nodes])
    order = rng.permutation(nodes)
    arcs = {(names[order[i]], names[order[j]]) for i, j in combinations(range(nodes), 2) if rng.random() < 0.4}
    return Dag(names, frozenset(arcs))


def separations(dag: Dag, seen: tuple[str, ...]) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    return frozenset(
        (x, y, given)
        for x, y in combinations(seen, 2)
        for size in range(len(seen) - 1)
        for given in combinations([name for name in seen if name not in (x, y)], size)
        if is_separated(dag, x, y, given)
    )


@pytest.mark.parametrize("seed", range(30))
def test_nodes_are_joined_if_no_set_of_seen_ones_separates_them(seed: int) -> None:
    dag = random_dag(7, seed)
    mag = project_dag(dag, ["f", "g"])
    apart = {frozenset((x, y)) for x, y, _ in separations(dag, mag.nodes)}
    assert mag.skeleton() == {frozenset(pair) for pair in combinations(mag.nodes, 2)} - apart


def test_graphs_with_the_same_separations_have_the_same_class_and_only_they() -> None:
    """Every mark of a class that is no circle is in all of its members, and circles differ between some."""
    members: dict[frozenset[tuple[str, str, tuple[str, ...]]], list[MixedGraph]] = {}
    names = ("a", "b", "c", "d")
    hidden = {"h": ("a", "b"), "k": ("b", "c"), "l": ("c", "d"), "m": ("a", "d")}
    pairs = list(combinations(names, 2))
    for chosen in product((0, 1), repeat=4):
        causes = [name for name, used in zip(hidden, chosen, strict=True) if used]
        for arcs in product((0, 1, 2), repeat=6):
            if sum(map(bool, arcs)) + len(causes) > 4:
                continue
            edges = {(a, b) if kind == 1 else (b, a) for (a, b), kind in zip(pairs, arcs, strict=True) if kind}
            try:
                dag = Dag((*names, *causes), frozenset(edges | {(h, end) for h in causes for end in hidden[h]}))
            except GraphError:
                continue
            members.setdefault(separations(dag, names), []).append(project_dag(dag, causes))
    assert len(members) > 50
    classes = [{find_class(mag) for mag in mags} for mags in members.values()]
    assert all(len(found) == 1 for found in classes)
    for mags, (pag,) in zip(members.values(), classes, strict=True):
        for edge in pag.edges:
            for start, end in (edge[:2], edge.turned()[:2]):
                seen = {mag.mark(start, end) for mag in mags}
                assert pag.mark(start, end) is CIRCLE_MARK or seen == {pag.mark(start, end)}


def test_a_ring_of_four_shows_selection() -> None:
    ring = np.zeros((4, 4), dtype=np.int8)
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)):
        ring[a, b] = ring[b, a] = CIRCLE
    ends = OrientationRules(ring.copy(), lambda *_: None, selection=True).close()
    assert (ends[ring != NONE] == TAIL).all()
    assert (OrientationRules(ring.copy(), lambda *_: None).close() == ring).all()


def test_refuses_to_hide_what_is_not_there() -> None:
    with pytest.raises(GraphError, match="no node is called z"):
        project_dag(Dag(("a", "b"), frozenset()), ["z"])


EVERY = MixedGraph(
    ("a", "b", "c", "d", "e"),
    frozenset(
        {
            Edge("a", "b", CIRCLE_MARK, ARROW_MARK),
            Edge("c", "b", ARROW_MARK, ARROW_MARK),
            Edge("c", "d", CIRCLE_MARK, CIRCLE_MARK),
            Edge("d", "e", TAIL_MARK, ARROW_MARK),
            Edge("a", "e", CIRCLE_MARK, TAIL_MARK),
        }
    ),
)


def test_every_format_that_takes_a_pag_gives_it_back() -> None:
    pytest.importorskip("networkx")
    assert from_dot(to_dot(EVERY)) == EVERY
    assert from_tetrad(to_tetrad(EVERY)) == EVERY
    assert from_dagitty(to_dagitty(EVERY)) == EVERY
    for form, read in ((Format.GML, from_gml), (Format.GRAPHML, from_graphml), (Format.NETWORKX_JSON, from_node_link)):
        assert read(write_graph(EVERY, form)) == EVERY


def test_pcalgs_matrix_has_the_mark_at_the_column() -> None:
    rows = [line.split(",") for line in write_amat(EVERY).splitlines()]
    assert rows[0] == ['""', '"a"', '"b"', '"c"', '"d"', '"e"']
    table = np.array([row[1:] for row in rows[1:]], dtype=int)
    assert (table[0, 1], table[1, 0]) == (2, 1)  # a o→ b
    assert (table[3, 4], table[4, 3]) == (2, 3)  # d → e
    assert table[0, 2] == 0
    chain = Dag(("a", "b"), frozenset({("a", "b")})).cpdag()
    assert write_amat(chain).splitlines()[1:] == ['"a",0,1', '"b",1,0']


@pytest.mark.parametrize("form", [form for form in Format if EXPORTERS[form].no_pag])
def test_formats_without_marks_refuse_a_pag(form: Format) -> None:
    with pytest.raises(GraphError, match="PAG, which allows for hidden causes"):
        write_graph(EVERY, form)


def test_no_dag_is_chosen_from_a_pag() -> None:
    with pytest.raises(GraphError, match="takes all causes for measured"):
        write_graph(EVERY, Format.DOT, Extension.CONSISTENT)
    assert {form for form in Format if EXPORTERS[form].no_pag} == {Format.DOWHY, Format.PGMPY}

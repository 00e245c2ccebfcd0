"""Synthetic tables: they have the schema's columns, obey knowledge, and follow the law that the documentation has."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.forecast.synthetic import EDGES_PER_COLUMN, EXPLAINED, SyntheticLaw, draw_dag, make_synthetic
from dagveil.graphs.knowledge import Knowledge

MIXED = Schema(
    dataset="mixed",
    columns={
        "flag": Boolean(),
        "grade": Ordinal(levels=("low", "mid", "high"), outside="low"),
        "town": Categorical(levels=("a", "b", "c", "d"), missing="own-level"),
        "size": Numeric(bounds=(0.0, 60.0)),
        "weight": Numeric(bounds=(-9.0, 9.0), center=1.0, spread=2.0),
        "constant": Categorical(levels=("only",), outside="only"),
    },
)


def wide(columns: int) -> Schema:
    return Schema(dataset="wide", columns={f"x{k}": Boolean(outside="false") for k in range(columns)})


class TestGraphs:
    def test_edges_are_as_many_as_the_law_says(self) -> None:
        schema = wide(21)
        rng = np.random.default_rng(0)
        for law, wanted in ((SyntheticLaw(), EDGES_PER_COLUMN), (SyntheticLaw(degree=3.0), 3.0)):
            edges = [len(draw_dag(schema, Knowledge.none(), law, rng).edges) for _ in range(60)]
            assert np.mean(edges) / 21 == pytest.approx(wanted, rel=0.1)

    def test_the_order_of_columns_says_nothing(self) -> None:
        rng = np.random.default_rng(1)
        dags = [draw_dag(wide(8), Knowledge.none(), SyntheticLaw(), rng) for _ in range(200)]
        forward = sum(tail < head for dag in dags for tail, head in dag.edges)
        assert 0.45 < forward / sum(len(dag.edges) for dag in dags) < 0.55

    def test_knowledge_is_obeyed(self) -> None:
        names = tuple(wide(6).columns)
        knowledge = Knowledge(
            tiers=(names[3:], names[:2]),
            forbidden=frozenset({("x3", "x4"), ("x4", "x3")}),
            required=frozenset({("x5", "x2")}),
        )
        rng = np.random.default_rng(2)
        seen = set()
        for _ in range(100):
            dag = draw_dag(wide(6), knowledge, SyntheticLaw(degree=2.5), rng)
            assert ("x5", "x2") in dag.edges
            assert all(knowledge.allows(*edge) for edge in dag.edges)
            seen |= dag.edges
        allowed = {edge for pair in combinations(names, 2) for edge in (pair, pair[::-1]) if knowledge.allows(*edge)}
        assert seen == allowed

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            ({"degree": -1.0}, "edges per column"),
            ({"degree": float("nan")}, "edges per column"),
            ({"strength": 0.0}, "strength is 0"),
            ({"strength": 0.9}, "strength is 0.9"),
        ],
    )
    def test_bad_laws_are_refused(self, settings: dict[str, float], what: str) -> None:
        with pytest.raises(MethodError, match=what):
            SyntheticLaw(**settings)

    def test_more_edges_than_pairs_are_refused(self) -> None:
        with pytest.raises(MethodError, match=r"at most 1\.5"):
            SyntheticLaw(degree=2.0).density(4)


class TestRows:
    def test_every_kind_of_column_is_drawn_as_declared(self) -> None:
        made = make_synthetic(MIXED, Knowledge.none(), SyntheticLaw(), 4000, np.random.default_rng(3))
        counts = {name: made.table.counts([name]) for name in MIXED.columns}
        assert {name: len(array) for name, array in counts.items()} == {
            name: column.n_levels for name, column in MIXED.columns.items()
        }
        # places for other and missing values stay empty, all others are drawn
        assert counts["flag"][2] == counts["town"][4] == counts["town"][5] == 0
        assert all((counts[name][: len(MIXED.columns[name].levels)] > 0).all() for name in ("flag", "grade", "town"))
        sizes, weights = (made.table._numbers(name) for name in ("size", "weight"))
        assert ((sizes >= 0.0) & (sizes < 60.0)).sum() > 3900
        assert ((weights >= -1.0) & (weights < 3.0)).mean() == pytest.approx(0.68, abs=0.05)
        assert not any("constant" in edge for edge in made.dag.edges)
        assert made.table.schema.public
        assert made.table.schema.nominal_rows == 4000

    def test_the_same_seed_draws_the_same(self) -> None:
        first, again, other = (
            make_synthetic(MIXED, Knowledge.none(), SyntheticLaw(), 500, np.random.default_rng(seed))
            for seed in (4, 4, 5)
        )
        assert first.dag == again.dag
        names = tuple(MIXED.columns)
        assert (first.table.counts(names) == again.table.counts(names)).all()
        assert first.dag != other.dag or (first.table.counts(names) != other.table.counts(names)).any()

    def test_strength_is_about_a_correlation(self) -> None:
        """One edge between two numbers: its correlation is uniform between a quarter and seven quarters of the mean."""
        columns = {name: Numeric(bounds=(-9.0, 9.0), center=0.0, spread=1.0) for name in "ab"}
        schema = Schema(dataset="pair", columns=columns, required=(("a", "b"),))
        knowledge = Knowledge(required=frozenset({("a", "b")}))
        found = []
        for seed in range(150):
            table = make_synthetic(schema, knowledge, SyntheticLaw(), 1500, np.random.default_rng(seed)).table
            rows = np.column_stack([table._numbers(name) for name in "ab"])
            found.append(abs(np.corrcoef(rows.T)[0, 1]))
        assert np.mean(found) == pytest.approx(0.4, abs=0.04)
        assert 0.03 < min(found) < 0.2
        assert 0.6 < max(found) < 0.77

    def test_parents_never_explain_everything(self) -> None:
        columns = {f"x{k}": Numeric(bounds=(-9.0, 9.0), center=0.0, spread=1.0) for k in range(8)}
        schema = Schema(dataset="many", columns=columns)
        knowledge = Knowledge(required=frozenset((f"x{k}", "x7") for k in range(7)))
        made = make_synthetic(
            schema, knowledge, SyntheticLaw(degree=0.0, strength=0.55), 20_000, np.random.default_rng(6)
        )
        rows = np.column_stack([made.table._numbers(name) for name in columns])
        fitted = np.linalg.lstsq(rows[:, :7], rows[:, 7], rcond=None)[1][0] / (20_000 * rows[:, 7].var())
        assert fitted == pytest.approx(1.0 - EXPLAINED, abs=0.03)

    def test_a_gap_in_the_graph_is_independence(self) -> None:
        made = make_synthetic(wide(6), Knowledge.none(), SyntheticLaw(degree=0.0), 20_000, np.random.default_rng(7))
        for pair in combinations(made.dag.nodes, 2):
            table = made.table.counts(pair) / 20_000
            assert abs(table - np.outer(table.sum(1), table.sum(0))).max() < 0.02


@pytest.mark.parametrize(
    "column",
    [
        Numeric(bounds=(0, 25), bins=(1.0, 1.2, 1.6)),
        Numeric(bounds=(0, 25), bins=(1.0, 1.2, 1.6), center=1.4),
        Numeric(bounds=(0, 25), bins=(1.0, 1.2, 1.6), center=12, spread=2),
        Numeric(bounds=(0, 25), bins=(1.0, 1.2, 1.6), center=1.4, spread=0.9),
        Numeric(bounds=(0, 25), bins=(1.0, 1.2, 1.6), missing="own-level"),
        Numeric(bounds=(0, 121), bins=(1.0,)),
        Numeric(bounds=(0, 25)),
        Numeric(bounds=(0, 25), bins=2),
    ],
)
def test_made_up_numbers_fill_several_bins(column: Numeric) -> None:
    """Bounds and bins alone once put everybody into the last bin, and every method saw nothing."""
    schema = Schema(dataset="demo", columns={"x": column, "y": column}, nominal_rows=1000)
    made = make_synthetic(schema, Knowledge.none(), SyntheticLaw(), 2000, np.random.default_rng(1))
    counts = made.table.counts(["x"])
    assert counts.max() < 0.9 * counts.sum()
    assert counts[: len(column.cuts) + 1].min() > 0

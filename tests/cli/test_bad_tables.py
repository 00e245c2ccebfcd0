"""Files that cannot be read are refused before anything is spent; odd but valid rows are answered."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from desk import ROWS, SECRET, TWO_COLUMNS, TWO_NUMBERS, Desk

TEN_MEGABYTES = 10_000_000


class TestUnreadable:
    def test_empty_file(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", ""), desk.write_schema())
        desk.check_refused(result, "t.csv is empty", "needs a line with the column names")

    def test_blank_lines_only(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", "\n\n"), desk.write_schema())
        desk.check_refused(result, "no line with column names", "add one")

    def test_missing_file(self, desk: Desk) -> None:
        result = desk.discover(desk.path("none.csv"), desk.write_schema())
        desk.check_refused(result, "no file .*none.csv", "check the path")

    def test_a_folder(self, desk: Desk) -> None:
        desk.path("t.csv").mkdir()
        result = desk.discover(desk.path("t.csv"), desk.write_schema())
        desk.check_refused(result, "there are no files in", "check the folder")

    def test_unknown_ending(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.xlsx", ROWS), desk.write_schema())
        desk.check_refused(result, "format of t.xlsx is not known", r"must end in .*\.parquet")

    def test_duplicate_names(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", f"a,b,a\n{SECRET},no,no\n"), desk.write_schema())
        desk.check_refused(result, "names more than once", "rename them")

    def test_a_column_that_the_file_lacks(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", f"a,c\n{SECRET},no\n"), desk.write_schema())
        desk.check_refused(result, "lacks 1 column of the schema, the first is 'b'", "remove them from the schema")

    @pytest.mark.parametrize("line", [f"{SECRET},né\n", "né,no\n"])
    def test_wrong_encoding(self, desk: Desk, line: str) -> None:
        content = ROWS.encode() + line.encode("latin-1")
        result = desk.discover(desk.write("t.csv", content), desk.write_schema())
        desk.check_refused(result, "t.csv is not encoded as UTF-8", "iconv")

    def test_wrong_encoding_of_names(self, desk: Desk) -> None:
        result = desk.discover(desk.write("t.csv", f"a,b,é\n{SECRET},no,no\n".encode("utf-16")), desk.write_schema())
        desk.check_refused(result, "not encoded as UTF-8", "iconv")

    def test_corrupt_parquet(self, desk: Desk) -> None:
        table = pa.table({"a": [SECRET, "no"], "b": ["no", "yes"]})
        pyarrow.parquet.write_table(table, desk.path("t.parquet"))
        whole = desk.path("t.parquet").read_bytes()
        schema = desk.write_schema()
        for content in (
            b"no parquet at all",
            whole[: len(whole) // 2],
            whole[:4] + bytes(len(whole) - 12) + whole[-8:],
        ):
            result = desk.discover(desk.write("t.parquet", content), schema)
            desk.check_refused(result, "t.parquet cannot be read as Parquet", "write it again")

    def test_corrupt_gzip(self, desk: Desk) -> None:
        squeezed = gzip.compress((ROWS * 1000).encode())
        for content in (b"not gzip", squeezed[:60]):
            result = desk.discover(desk.write("t.csv.gz", content), desk.write_schema())
            desk.check_refused(result, r"t\.csv\.gz cannot be read", "check")

    def test_a_type_that_holds_no_levels(self, desk: Desk) -> None:
        table = pa.table({"a": [[SECRET], ["no"]], "b": ["no", "yes"]})
        pyarrow.parquet.write_table(table, desk.path("t.parquet"))
        result = desk.discover(desk.path("t.parquet"), desk.write_schema())
        desk.check_refused(result, "column 'a' has the type list", "convert it")

    def test_one_column(self, desk: Desk) -> None:
        schema = desk.write_schema('[columns.a]\nkind = "boolean"\n')
        result = desk.discover(desk.write("t.csv", f"a\n{SECRET}\n"), schema)
        desk.check_refused(result, "the schema has 1 column", "needs at least 2")


@pytest.mark.filterwarnings("error")
class TestOddButValid:
    """What one record says never stops a run: these rows are charged and answered like any others."""

    @pytest.mark.parametrize("columns", [TWO_COLUMNS, TWO_NUMBERS], ids=["levels", "numbers"])
    @pytest.mark.parametrize("facts", ["nominal_rows = 40", ""], ids=["nominal", "estimated"])
    @pytest.mark.parametrize("rows", ["a,b", "a,b\n", f"a,b\n{SECRET},no\n"], ids=["header", "header line", "one row"])
    def test_hardly_any_rows(self, desk: Desk, columns: str, facts: str, rows: str) -> None:
        result = desk.discover(desk.write("t.csv", rows), desk.write_schema(columns, facts=facts))
        content = desk.check_answered(result)
        assert content["graph"]["nodes"] == ["a", "b"]

    @pytest.mark.parametrize("columns", [TWO_COLUMNS, TWO_NUMBERS], ids=["levels", "numbers"])
    def test_constant_column(self, desk: Desk, columns: str) -> None:
        cells = ("no", "yes") if columns is TWO_COLUMNS else ("-1", "1")
        rows = "a,b\n" + "".join(f"{cells[0]},{cells[k % 2]}\n" for k in range(4000))
        schema = desk.write_schema(columns, facts="nominal_rows = 4000")
        content = desk.check_answered(
            desk.discover(desk.write("t.csv", rows), schema, "--noise", "seeded", "--seed", 1)
        )
        assert content["graph"]["edges"] == []
        assert "0 edges among 2 columns" in desk.run("discover", desk.out / "evidence.json", "-o", desk.out).stdout

    def test_not_a_number_and_infinity(self, desk: Desk) -> None:
        numbers = [
            *np.random.default_rng(1).standard_normal(400).tolist(),
            *["nan", "inf", "-inf", "1e999", "", SECRET],
        ]
        rows = "a,b\n" + "".join(f"{number},{number}\n" for number in numbers)
        content = desk.check_answered(
            desk.discover(desk.write("t.csv", rows), desk.write_schema(TWO_NUMBERS), epsilon=9)
        )
        assert content["graph"]["nodes"] == ["a", "b"]

    def test_not_a_number_and_infinity_in_parquet(self, desk: Desk) -> None:
        numbers = [*np.random.default_rng(1).standard_normal(400).tolist(), np.nan, np.inf, -np.inf, None]
        pyarrow.parquet.write_table(pa.table({"a": numbers, "b": numbers}), desk.path("t.parquet"))
        desk.check_answered(desk.discover(desk.path("t.parquet"), desk.write_schema(TWO_NUMBERS), epsilon=9))

    def test_a_cell_of_ten_megabytes(self, desk: Desk) -> None:
        cell = SECRET * (TEN_MEGABYTES // len(SECRET))
        content = desk.check_answered(
            desk.discover(desk.write("t.csv", f"a,b\n{cell},no\nno,no\n"), desk.write_schema())
        )
        assert len(str(content)) < 100_000

    def test_a_hundred_thousand_distinct_cells(self, desk: Desk) -> None:
        rows = "a,b\n" + "".join(f"{SECRET}{k},no\n" for k in range(100_000))
        desk.check_answered(desk.discover(desk.write("t.csv", rows), desk.write_schema()))

    def test_broken_lines(self, desk: Desk) -> None:
        rows = ROWS + f"{SECRET}\n{SECRET},no,no,no\n,\n"
        desk.check_answered(desk.discover(desk.write("t.csv", rows), desk.write_schema()))


class TestDrafts:
    """Drafting reads the data for the custodian; it never prints them."""

    @pytest.mark.parametrize(("content", "what"), [("", "is empty"), ("a,a\n1,2\n", "more than once")])
    def test_unreadable(self, desk: Desk, content: str, what: str) -> None:
        result = desk.run("schema", "draft", desk.write("t.csv", content), "-o", desk.path("new.toml"))
        desk.check_refused(result, what, "needs|rename")
        assert not desk.path("new.toml").exists()

    def test_a_cell_of_ten_megabytes(self, desk: Desk) -> None:
        cell = SECRET * (TEN_MEGABYTES // len(SECRET))
        result = desk.run(
            "schema", "draft", desk.write("t.csv", f"a,b\n{cell},no\nno,no\n"), "-o", desk.path("new.toml")
        )
        assert result.exit_code == 0, result.output
        desk.check_no_secret(result)
        assert desk.path("new.toml").stat().st_size < 10_000

    def test_a_hundred_thousand_levels(self, desk: Desk) -> None:
        rows = "a,b\n" + "".join(f"{SECRET}{k},no\n" for k in range(100_000))
        result = desk.run("schema", "draft", desk.write("t.csv", rows), "-o", desk.path("new.toml"))
        assert result.exit_code == 0, result.output
        desk.check_no_secret(result)
        assert desk.path("new.toml").stat().st_size < 10_000

    def test_an_existing_schema_is_kept(self, desk: Desk) -> None:
        path = Path(desk.write_schema())
        before = path.read_bytes()
        file = desk.write("t.csv", ROWS)
        desk.check_refused(desk.run("schema", "draft", file, "-o", path), "exists", "--force")
        assert path.read_bytes() == before
        assert desk.run("schema", "draft", file, "-o", path, "--force").exit_code == 0
        assert path.read_bytes() != before

    def test_a_place_that_cannot_be_written(self, desk: Desk) -> None:
        file = desk.write("t.csv", ROWS)
        result = desk.run("schema", "draft", file, "-o", desk.path("t.csv") / "new.toml")
        desk.check_refused(result, "cannot write", "choose another place")

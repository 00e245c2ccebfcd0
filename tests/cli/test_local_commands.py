"""`dagveil local`: the roles one after the other, what each refuses, and that no true record is printed."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from desk import SECRET, Desk

from dagveil.cli.main import group
from dagveil.local.device import NOT_PRIVATE
from dagveil.local.protocol import load_protocol
from dagveil.local.store import ReportStore
from dagveil_bench.collector_load import Server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "local.md"

COLUMNS = """
[columns.a]
kind = "categorical"
levels = ["no", "yes"]
[columns.b]
kind = "numeric"
bounds = [0.0, 30.0]
bins = 3
"""


def plan(desk: Desk, *words: object, columns: str = COLUMNS) -> Path:
    path = desk.path("protocol.json")
    schema = desk.write_schema(columns)
    done = desk.run("local", "plan", "--schema", schema, "--mechanism", "response", *words, "-o", path)
    assert done.exit_code == 0, done.output
    return path


def randomise(desk: Desk, protocol: Path, text: str, *words: object) -> str:
    done = CliRunner().invoke(group, ["local", "randomise", "--protocol", str(protocol), *map(str, words)], input=text)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    outputs = {}
    for line in "".join(blocks).splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        assert program == "dagveil"
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        outputs[line] = done.output
    assert len(outputs) == 11
    shown = next(text for line, text in outputs.items() if " show " in line)
    assert "One report has epsilon 16 and delta 0" in shown
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("out", "by-score", "blind")]
    aware, _, blind = (len(result["graph"]["edges"]) for result in results)
    assert blind > aware
    assert "BLIND" in next(text for line, text in outputs.items() if "--blind" in line)
    assert "nobody need be trusted" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_every_command_that_the_page_names_exists() -> None:
    named = set(re.findall(r"dagveil local ([a-z]+)", PAGE.read_text(encoding="utf-8")))
    assert named == {"plan", "show", "randomise", "send", "collect", "export", "recover", "discover"}
    for command in named:
        assert CliRunner().invoke(group, ["local", command, "-h"]).exit_code == 0


def test_the_plan_is_printed_and_shown_again(desk: Desk) -> None:
    path = plan(desk, "--epsilon", "4", "--split", "levels")
    protocol = load_protocol(path)
    shown = desk.run("local", "show", path)
    assert protocol.digest() in shown.stdout
    assert "One report has epsilon 4 and delta 0" in shown.stdout
    assert "epsilon split levels" in shown.stdout
    schema = desk.path("schema.toml")
    words = ("local", "plan", "--schema", schema, "--mechanism", "geometric")
    for extra, what, step in (
        ((), "--epsilon or --truth", "one of the two"),
        (("--epsilon", "1", "--truth", "0.5"), "--epsilon or --truth", "one of the two"),
        (("--epsilon", "1", "-o", path), "exists", "--force"),
        (("--epsilon", "-1"), "epsilon is -1", "above 0"),
        (("--truth", "0.01", "-o", desk.path("p.json")), "blind guessing", "at least"),
    ):
        desk.check_refused(desk.run(*words, *extra), what, step)
    done = desk.run(*words, "--form", "combined", "--truth", "0.4", "-o", desk.path("combined.json"))
    assert "have no epsilon of their own" in done.stdout
    draft = desk.write(
        "draft.toml", desk.path("schema.toml").read_text().replace("reviewed = true", "reviewed = false")
    )
    refused = desk.run("local", "plan", "--schema", draft, "--mechanism", "response", "--epsilon", 1)
    desk.check_refused(refused, "unreviewed", "--accept-draft")


def test_guesses_with_a_prior(desk: Desk) -> None:
    path = plan(desk, "--epsilon", "1")
    priors = desk.write("priors.toml", "[a]\nno = 0.99\nyes = 0.01\n")
    shown = desk.run("local", "show", path, "--priors", priors)
    line = next(line for line in shown.stdout.splitlines() if line.split()[1:2] == ["a"])
    # so little noise as epsilon 0.5 allows tells nothing against such a prior
    assert line.count("0.99") == 2
    desk.check_refused(desk.run("local", "show", path, "--priors", desk.write("p.toml", "[a]\nno = 2")), "2", "add up")


def test_a_law_is_printed_and_written(desk: Desk) -> None:
    path = plan(desk, "--epsilon", "12")
    reports = desk.write("reports.csv", randomise(desk, path, "a,b\n" + "yes,5\n" * 300 + "no,25\n" * 100))
    words = ("local", "recover", reports, "--protocol", path, "--columns")
    for rule in ("inverse", "ibu"):
        law = desk.path(f"{rule}.csv")
        done = desk.run(*words, "a,b", "--by", rule, "-o", law)
        assert "400 reports" in done.stdout
        cells = {(line["a"], line["b"]): float(line["share"]) for line in csv.DictReader(law.open())}
        assert sum(cells.values()) == pytest.approx(1.0)
        assert cells["yes", "[0, 10)"] == pytest.approx(0.75, abs=0.1)
        assert cells["no", "[20, 30]"] == pytest.approx(0.25, abs=0.1)
    desk.check_refused(desk.run(*words, "a,q"), "no column 'q'", "it has a, b")
    desk.check_refused(desk.run(*words, "a", "-o", path.parent), "cannot write", "another place")


def test_algorithms_pairs_and_ways_to_undo_the_channel(desk: Desk) -> None:
    path = plan(desk, "--epsilon", "12")
    reports = desk.write("reports.csv", randomise(desk, path, "a,b\n" + "yes,5\n" * 300 + "no,25\n" * 300))
    words = ("local", "discover", reports, "--protocol", path, "--redraws", 0)
    for algorithm in ("pc", "ges", "mmhc", "mcmc"):
        for how in ((), ("--by", "ibu"), ("--blind",)):
            done = desk.run(*words, "--algorithm", algorithm, *how, "-o", desk.out)
            assert done.exit_code == 0, done.output
            saved = json.loads(desk.out.joinpath("result.json").read_text())
            assert saved["method"]["settings"]["algorithm"] == algorithm
            assert [(edge["source"], edge["target"]) for edge in saved["graph"]["edges"]] == [("a", "b")]
    pag = desk.run(*words, "--algorithm", "fci", "-o", desk.path("pag"))
    assert "1. a o-o b" in desk.path("pag").joinpath("graph.txt").read_text()
    assert "Partial ancestral graph" in pag.stdout
    pairs = desk.run(*words[:-2], "--pairs", "cds", "-o", desk.path("pairs"))
    assert "Directions by cds" in pairs.stdout
    (pair,) = json.loads(desk.path("pairs").joinpath("result.json").read_text())["pairs"]
    assert {pair["first"], pair["second"]} == {"a", "b"}


def test_options_of_a_search_that_contradict_each_other_are_refused(desk: Desk) -> None:
    path = plan(desk, "--epsilon", "12")
    reports = desk.write("reports.csv", randomise(desk, path, "a,b\nyes,5\n"))
    words = ("local", "discover", reports, "--protocol", path)
    desk.check_refused(desk.run(*words, "--blind", "--by", "ibu"), "--blind ignores the channel", "one of the two")
    desk.check_refused(
        desk.run(*words, "--pairs", "reci", "--redraws", 3), "rules for pairs search no graph", "leave out"
    )
    for name, value in (("--algorithm", "ges"), ("--tests", "linear")):
        desk.check_refused(desk.run(*words, "--pairs", "reci", name, value), "rules for pairs", f"leave out {name}")
    desk.check_refused(
        desk.run(*words, "--algorithm", "fci", "--knowledge", "k.toml"), "no background knowledge", "leave out"
    )
    desk.check_refused(
        desk.run(*words, "--pairs", "reci", "--by", "inverse"), "rules for pairs read records", "choose ibu"
    )


def test_streams_of_csv_and_json(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    text = randomise(desk, protocol, f"b,a,other\n12,yes,{SECRET}\n{SECRET},{SECRET},x\nbroken\n")
    header, *rows = list(csv.reader(text.splitlines()))
    assert header == ["a", "b"]
    assert len(rows) == 3
    assert all(a in ("no", "yes", "(other)") and b in ("[0, 10)", "[10, 20)", "[20, 30]") for a, b in rows)
    assert SECRET not in text
    lines = randomise(desk, protocol, json.dumps({"a": "yes", "b": 3}) + f"\n{SECRET}\n" + "{}\n").splitlines()
    # the first line decides the format; a line that is no JSON is a record of missing values
    assert [list(json.loads(line)) for line in lines] == [["a", "b"]] * 3
    assert SECRET not in "".join(lines)


def test_a_stream_is_answered_line_by_line(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    words = [sys.executable, "-m", "dagveil.cli.main", "local", "randomise", "--protocol", str(protocol)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            process.stdin.write('{"a": "yes", "b": 3}\n')
            process.stdin.flush()
            # this would wait for ever if the report were kept back
            assert list(json.loads(process.stdout.readline())) == ["a", "b"]
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_seed_is_for_tests_and_says_so(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    rows = "a,b\n" + "yes,3\n" * 20
    first, second = (randomise(desk, protocol, rows, "--seed", 7) for _ in range(2))
    assert first == second
    assert NOT_PRIVATE in first.splitlines()[0]
    assert randomise(desk, protocol, rows) != randomise(desk, protocol, rows)
    assert "--seed" not in desk.run("local", "randomise", "-h").output
    reports = desk.write("seeded.csv", first)
    done = desk.run("local", "discover", reports, "--protocol", protocol, "--redraws", 0, "-o", desk.out)
    assert "No promise holds" in done.output


def test_what_randomise_refuses(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    rows = desk.write("rows.csv", f"a,x\n{SECRET},1\n")
    words = ("local", "randomise", "--protocol", protocol)
    desk.check_refused(desk.run(*words, rows), "lacks 1 column of the schema.*'b'", "first line")
    desk.check_refused(desk.run(*words, desk.path("none.csv")), "cannot read", "check the path")
    desk.check_refused(desk.run(*words, desk.write("rows.txt", "a,b\n")), "must end in", "--format")
    good = desk.write("good.csv", "a,b\nyes,3\n")
    desk.check_refused(desk.run(*words, good, "-o", good), "a file that this command reads", "another place")
    assert Path(good).read_text() == "a,b\nyes,3\n"


def test_reports_reach_the_store_and_the_analyst(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "8")
    reports = desk.path("reports.jsonl")
    records = "".join(json.dumps({"a": "yes" if i % 2 else "no", "b": 15 * (i % 2)}) + "\n" for i in range(1200))
    randomise(desk, protocol, records, "-", "-o", reports)
    server = Server(desk.folder, load_protocol(protocol))
    try:
        server.start()
        done = desk.run("local", "send", "--to", server.url, "--protocol", protocol, reports)
        assert done.exit_code == 0, done.output
        assert "sent 1200 records; all were acknowledged" in done.stderr
        raw = desk.write("raw.csv", f"a,b\nyes,{SECRET}\n")
        refused = desk.run("local", "send", "--to", server.url, raw)
        desk.check_refused(refused, "record 1 is no report", "Randomise records first")
        seeded = desk.write("seeded.csv", randomise(desk, protocol, "a,b\nyes,3\n", "--seed", 1))
        desk.check_refused(desk.run("local", "send", "--to", server.url, seeded), "from a seed", "not sent")
        # while the collector runs
        done = desk.run("local", "export", "--store", server.store, "-o", desk.path("reports.parquet"))
        assert "wrote 1200 reports" in done.stdout
    finally:
        server.stop()
    with ReportStore.open(server.store) as store:
        assert store.totals().batches == 3
    edges = []
    for place in (server.store, desk.path("reports.parquet")):
        done = desk.run("local", "discover", place, "--protocol", protocol, "--redraws", 3, "-o", desk.out)
        assert done.exit_code == 0, done.output
        edges.append(json.loads((desk.out / "result.json").read_text())["graph"]["edges"])
    assert edges[0] == edges[1]
    assert [(edge["source"], edge["target"]) for edge in edges[0]] == [("a", "b")]


def test_other_hosts_need_a_word(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    words = ("local", "collect", "--protocol", protocol, "--store", desk.path("r.db"), "--host", "0.0.0.0")
    desk.check_refused(desk.run(*words), "other machines", "--allow-remote")
    assert not desk.path("r.db").exists()


def test_send_and_discover_refuse_with_a_next_step(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    reports = desk.write("r.csv", "a,b\n")
    refused = desk.run("local", "send", "--to", "http://127.0.0.1:9", "--tries", 1, reports)
    desk.check_refused(refused, "did not acknowledge after 1 tries", "check that it runs")
    words = ("local", "discover", "--protocol", protocol, "-o", desk.out)
    desk.check_refused(desk.run(*words, reports), "there are no reports", "collect")
    desk.check_refused(desk.run(*words, desk.path("none.db")), "there is no store", "collect --store")
    raw = desk.write("raw.csv", f"a,b\nyes,{SECRET}\n")
    desk.check_refused(desk.run(*words, raw), "1 of 1 reports hold no label", "local randomise")


@pytest.mark.parametrize("bad", [b'yes,"3', b"yes,\r3", b"y\x00es,3", b"\xff,3", b"", b"y" * 2_000_000])
def test_no_line_joins_or_splits_others_in_files_and_streams(desk: Desk, bad: bytes) -> None:
    protocol = plan(desk, "--epsilon", "4")
    other = json.dumps({"a": "yes", "b": 3}).encode()
    for name, head, good in (("rows.csv", [b"a,b"], b"no,12"), ("rows.jsonl", [], other)):
        content = b"\n".join([*head, *[good] * 3, bad, *[good] * 40, b""])
        desk.path(name).write_bytes(content)
        words = ["local", "randomise", "--protocol", str(protocol)]
        for given, place in ((None, str(desk.path(name))), (content, "-")):
            done = CliRunner().invoke(group, [*words, place], input=given)
            assert done.exit_code == 0, done.output
            assert len(done.stdout.splitlines()) == len(head) + 44


def test_show_prints_what_the_weights_give(desk: Desk) -> None:
    path = plan(desk, "--epsilon", "4")
    shown = desk.run("local", "show", path).stdout
    content = json.loads(path.read_text())
    content["columns"][0]["figures"]["epsilon"] = 7.5
    content["record"]["epsilon"] = 8.5
    modest = desk.write("modest.json", json.dumps(content))
    again = desk.run("local", "show", modest).stdout
    assert again.splitlines()[:-1] == shown.splitlines()[:-1]  # but for the digest
    content["columns"][0]["figures"]["epsilon"] = 0.01
    lying = desk.write("lying.json", json.dumps(content))
    desk.check_refused(desk.run("local", "show", lying), "promises epsilon 0.01 for column 'a'", "do not use it")


def test_blank_lines_are_no_reports(desk: Desk) -> None:
    protocol = plan(desk, "--epsilon", "4")
    server = Server(desk.folder, load_protocol(protocol))
    try:
        server.start()
        reports = desk.write("reports.csv", 'a,b\n\nyes,"[0, 10)"\n\n')
        done = desk.run("local", "send", "--to", server.url, reports)
        assert done.exit_code == 0, done.output
        assert "sent 1 record;" in done.stderr
    finally:
        server.stop()

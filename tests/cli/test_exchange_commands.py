"""`dagveil export`, `compare` and `completion`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from desk import SOURCE, Desk

import dagveil as dv
from dagveil.cli.completion import PROGRAM, SHELLS, VARIABLE
from dagveil.cli.main import group
from dagveil.graphs.exchange.formats import Format, load_graph
from dagveil.runs.result import ResultEdge, ResultGraph

HARD = 'say "hi" & go'


@pytest.fixture(scope="module")
def result() -> dv.Result:
    rows = {name: [True, False] for name in ("a", "b", "c", HARD)}
    schema = dv.Schema(
        dataset="small", reviewed=True, nominal_rows=2, columns={name: dv.Boolean("false") for name in rows}
    )
    found = dv.discover(
        rows, schema, epsilon=1, noise=dv.NoiseKind.SEEDED, seed=1, settings=dv.SearchSettings(redraws=0)
    )
    edges = (
        ResultEdge("a", "b", "directed", 0.9, 0.8),
        ResultEdge("c", "b", "directed", 0.9, 0.7),
        ResultEdge("c", HARD, "undirected", 0.5, 1.0),
    )
    import msgspec

    return msgspec.structs.replace(found, graph=ResultGraph(("a", "b", "c", HARD), "cpdag", edges))


@pytest.fixture
def saved(desk: Desk, result: dv.Result) -> Path:
    result.save(desk.path("result.json"))
    return desk.path("result.json")


class TestExport:
    @pytest.mark.parametrize(
        ("form", "suffix"),
        [("dot", "dot"), ("graphml", "graphml"), ("gml", "gml"), ("networkx-json", "json"), ("dagitty", "dagitty")],
    )
    def test_there_and_back(self, desk: Desk, saved: Path, result: dv.Result, form: str, suffix: str) -> None:
        target = desk.path(f"graph.{suffix}")
        done = desk.run("export", saved, "--to", form, "-o", target)
        assert done.exit_code == 0, done.output
        assert load_graph(target) == result.graph.cpdag
        assert desk.run("export", saved, "--to", form).stdout == target.read_text()
        compared = desk.run("compare", saved, target)
        assert compared.exit_code == 0, compared.output
        assert "Hamming distance 0" in compared.stdout

    def test_confidences_go_along(self, desk: Desk, saved: Path) -> None:
        content = json.loads(desk.run("export", saved, "--to", "networkx-json").stdout)
        assert {edge["confidence"] for edge in content["edges"]} == {0.9, 0.5}

    @pytest.mark.parametrize("form", [form.value for form in Format if form is not Format.DOWHY])
    def test_undirected_edges_stay(self, desk: Desk, saved: Path, form: str) -> None:
        done = desk.run("export", saved, "--to", form)
        if form == "causal-learn":
            desk.check_refused(done, "cannot hold the name", "rename the column")
        else:
            assert done.exit_code == 0, done.output

    def test_dowhy_gets_a_dag_only_when_told(self, desk: Desk, saved: Path) -> None:
        target = desk.path("dag.gml")
        refused = desk.run("export", saved, "--to", "dowhy", "-o", target)
        assert refused.exit_code == 2
        assert "1 edges of this graph have no direction" in refused.stderr
        assert "--extend" in refused.stderr
        assert not target.exists()
        done = desk.run("export", saved, "--to", "dowhy", "--extend", "-o", target)
        assert done.exit_code == 0, done.output
        assert "CausalModel" in done.stdout
        assert "1 of its arrows were chosen arbitrarily" in done.stderr
        dag = load_graph(target)
        assert isinstance(dag, dv.Dag)
        assert dag.skeleton() == {frozenset("ab"), frozenset("bc"), frozenset(("c", HARD))}

    def test_bad_requests(self, desk: Desk, saved: Path) -> None:
        assert desk.run("export", saved, "--to", "word").exit_code == 2
        assert "not JSON" in desk.run("export", desk.write("x.json", "{"), "--to", "dot").stderr
        assert "cannot read" in desk.run("export", "nowhere.json", "--to", "dot").stderr
        assert desk.run("export", saved, "--to", "dot", "-o", desk.folder).exit_code == 2


class TestCompare:
    def test_differences_are_listed(self, desk: Desk, saved: Path) -> None:
        known = desk.write(
            "known.dagitty", f'dag {{ b -> a  c -> b  "{HARD.replace(chr(34), chr(92) + chr(34))}"  a -> c }}'
        )
        done = desk.run("compare", saved, known, "--drawn")
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert lines[1].startswith("skeleton: F1 0.667, precision 0.667, recall 0.667; structural Hamming distance 3")
        assert lines[lines.index("only here: 1 edge") + 1] == f"  c — {HARD}"
        assert lines[lines.index("only there: 1 edge") + 1] == "  a → c"
        assert lines[lines.index("turned, as they are here: 1 edge") + 1] == "  a → b"
        numbers = json.loads(desk.run("compare", saved, known, "--drawn", "--json").stdout)
        assert (numbers["shd"], numbers["same"]) == (3, 1)
        assert numbers["turned"] == [{"first": "a", "second": "b", "here": "→", "there": "←"}]

    def test_two_results(self, desk: Desk, saved: Path) -> None:
        assert "3 edges the same in both" in desk.run("compare", saved, saved).stdout

    def test_a_known_dag_stands_for_its_class(self, desk: Desk, saved: Path) -> None:
        known = desk.write("known.dot", f"digraph {{ a -> b; c -> b; x -> c; x [label={json.dumps(HARD)}] }}")
        assert "Hamming distance 0" in desk.run("compare", saved, known).stdout
        drawn = desk.run("compare", saved, known, "--drawn").stdout
        assert "with a direction in one only: 1 edge" in drawn
        assert f"  c — {HARD} here, {HARD} → c there" in drawn

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("k.dot", "digraph { a -> b }", "2 nodes are in one graph only"),
            ("k.dot", "digraph {", "cannot be read"),
            ("k.png", "x", "is no graph that can be read"),
            ("k.json", "[1]", "neither a dagveil result nor a graph"),
            ("k.dagitty", "pag { a @-> b }", "2 nodes are in one graph only"),
        ],
    )
    def test_graphs_that_do_not_fit(self, desk: Desk, saved: Path, name: str, content: str, words: str) -> None:
        done = desk.run("compare", saved, desk.write(name, content))
        assert done.exit_code == 2
        assert words in done.stderr

    def test_no_such_file(self, desk: Desk, saved: Path) -> None:
        for name in ("nowhere.dot", "nowhere.json"):
            assert "cannot read" in desk.run("compare", saved, name).stderr


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_script_is_printed(self, desk: Desk, shell: str) -> None:
        done = desk.run("completion", shell)
        assert done.exit_code == 0, done.output
        assert f"_DAGVEIL_COMPLETE={shell}_complete" in done.stdout
        assert "to keep it" in done.stderr
        assert desk.run("completion", "tcsh").exit_code == 2

    @staticmethod
    def complete(*words: str) -> list[tuple[str, str]]:
        """Complete the last word."""
        shell = SHELLS["bash"](group, {}, PROGRAM, VARIABLE)
        return [(item.type, item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]

    def test_commands_options_and_files(self) -> None:
        assert self.complete("bud") == [("plain", "budget")]
        assert {("plain", "verify"), ("plain", "grant")} <= set(self.complete("budget", ""))
        assert self.complete("export", "r.json", "--to", "dow") == [("plain", "dowhy")]
        assert self.complete("discover", "pat") == [("file", "pat")]

    def test_the_program_answers_the_shell(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": SOURCE,
            VARIABLE: "bash_complete",
            "COMP_WORDS": "dagveil discover pat",
            "COMP_CWORD": "2",
        }
        done = subprocess.run(
            [sys.executable, "-m", "dagveil.cli.main"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["file,pat"]

    @pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
    def test_bash_takes_the_script(self, desk: Desk) -> None:
        script = desk.write("completion.sh", desk.run("completion", "bash").stdout)
        done = subprocess.run(["bash", "-c", f"source {script} && complete -p dagveil"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "_dagveil_completion" in done.stdout


class TestNotebook:
    def test_a_result_shows_itself(self, result: dv.Result) -> None:
        page = result._repr_html_()
        assert page is not None
        assert "<svg" in page
        assert "seeded" in page.lower()  # a result that promises nothing says so wherever it goes
        assert HARD not in page
        assert "&amp; go" in page
        assert "<script" not in page


class TestVerify:
    def test_a_whole_history_and_a_changed_one(self, desk: Desk) -> None:
        import sqlite3

        desk.run("budget", "set", "patients", "--epsilon", 2)
        done = desk.run("budget", "verify")
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("2 entries fit; head 2:")
        head = done.stdout.split("head ")[1].strip()
        desk.run("budget", "limit", "patients", "ann", "--epsilon", 1)
        assert desk.run("budget", "verify", "--head", head).exit_code == 0
        with sqlite3.connect(desk.ledger) as raw:
            raw.execute("DROP TRIGGER dagveil_no_update")
            raw.execute("UPDATE dagveil_entries SET body = replace(body, '\"2\"', '\"9\"') WHERE seq = 2")
        raw.close()
        broken = desk.run("budget", "verify")
        assert broken.exit_code == 1
        assert "entry 2 (budget of patients) does not fit its own digest: it was changed" in broken.stderr
        assert "1 entry before that fit" in broken.stderr
        assert "copy it whole" in desk.run("budget", "verify", "--head", "2").stderr

    def test_limits_from_the_command_line(self, desk: Desk) -> None:
        desk.run("budget", "set", "patients", "--epsilon", 2)
        done = desk.run("budget", "limit", "patients", "ann", "--epsilon", "0.5", "--delta", 0)
        assert done.exit_code == 0, done.output
        assert "  ann: spent epsilon 0, delta 0 in 0 runs; limit epsilon 0.5, delta 0; left epsilon 0.5" in done.stdout
        assert desk.run("budget", "limit", "patients", "ann").exit_code == 2
        assert desk.run("budget", "limit", "patients", "ann", "--epsilon", 1, "--none").exit_code == 2
        assert "ann" not in desk.run("budget", "limit", "patients", "ann", "--none").stdout
        for command in ("grant", "revoke"):
            desk_says = desk.run("budget", command, "ann")
            assert desk_says.exit_code == 2
            assert "has no roles" in desk_says.stderr
            assert "PostgreSQL" in desk_says.stderr

"""The reader for R agrees with the graph and the tables; where R and jsonlite are not installed it is not tried."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dagveil as dv
from dagveil.examples.networks import load_network, network_schema, sample_table

READER = Path(__file__).parents[2] / "docs" / "r" / "dagveil.R"


def run_r(code: str) -> str:
    program = shutil.which("Rscript")
    if program is None:
        pytest.skip("needs Rscript")
    prelude = f'if (!requireNamespace("jsonlite", quietly = TRUE)) quit(status = 77)\nsource("{READER}")\n'
    done = subprocess.run([program, "-e", prelude + code], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("needs jsonlite")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_matrix_and_tables(tmp_path: Path) -> None:
    network = load_network("asia")
    table = sample_table(network, 5000, np.random.default_rng(1))
    evidence = dv.measure_source(
        table, network_schema(network, 5000), 1, "1e-6", ledger=None, noise=dv.NoiseKind.SEEDED, seed=1
    )
    evidence.save(tmp_path / "evidence.json")
    result = dv.search_evidence(evidence, dv.SearchSettings(redraws=2))
    result.save(tmp_path / "result.json")
    told = run_r(
        f'result <- read_dagveil_result("{tmp_path}/result.json")\n'
        f'counts <- read_dagveil_counts("{tmp_path}/evidence.json")[[1]]\n'
        'cat(dagveil_matrix(result), "\\n"); cat(apply(counts, 3, sum), attr(counts, "standard_error"), "\\n")'
    )
    matrix, margin = (np.array(line.split(), dtype=np.float64) for line in told.strip().splitlines())
    place = {name: number for number, name in enumerate(result.graph.nodes)}
    expected = np.zeros((len(place), len(place)))
    for edge in result.graph.edges:
        expected[place[edge.source], place[edge.target]] = 1
        if edge.kind == "undirected":
            expected[place[edge.target], place[edge.source]] = 1
    np.testing.assert_array_equal(matrix.reshape(expected.shape, order="F"), expected)
    dv.search_evidence(evidence, dv.SearchSettings(hidden_causes=True, redraws=2)).save(tmp_path / "pag.json")
    refused = run_r(f'cat(inherits(try(dagveil_arcs(read_dagveil_result("{tmp_path}/pag.json"))), "try-error"))')
    assert refused == "TRUE"
    third = evidence.table(tuple(evidence.schema.columns)[2])
    np.testing.assert_allclose(margin[:2], third.counts)

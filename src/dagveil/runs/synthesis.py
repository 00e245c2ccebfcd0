"""Synthetic rows from released evidence: free, without the rows, and marked as what they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, feather, parquet

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DataError, EvidenceError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.evidence.estimates import Frame
from dagveil.evidence.graphical_model import fill_values, fit_linear, fit_network, nearest_levels
from dagveil.examples.networks import sample_codes, sample_linear_gaussian
from dagveil.graphs.cpdag import Dag, nearest_extension
from dagveil.privacy.release import NoisyFeatureMoments, NoisyMixedMoments, NoisyMoments
from dagveil.progress import Progress, silent
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings

MARK: Final = "dagveil_synthetic"
"""Column of synthetic rows, true in each: a mark that survives in every format."""

FORMATS: Final = (".csv", ".parquet", ".feather", ".arrow")


@dataclass(frozen=True, eq=False)
class Synthetic(Frame):
    """Synthetic rows.

    - `table`: the rows, with the column `dagveil_synthetic`, which is true in each.
    - `schema`: their schema. They are post-processing of a release, so they are public as it is.
    - `dag`: the graph that they were drawn along: one of those that fit the evidence equally well.
    - `notes`: what the model leaves out, in sentences.
    """

    table: pa.Table
    schema: Schema
    dag: Dag
    notes: tuple[str, ...]

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
        return self.table

    def save(self, path: str | Path) -> None:
        """Write the rows to a .csv, .parquet, .feather or .arrow file."""
        writers = {".csv": csv.write_csv, ".parquet": parquet.write_table}
        writers.get(check_format(path), feather.write_feather)(self.table, str(path))


def check_format(path: str | Path) -> str:
    """Return the suffix of a file of rows, or refuse it."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{Path(path).name} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return suffix


def synthesize(
    evidence: Evidence | str | Path, rows: int = 10_000, *, seed: int = 1, progress: Progress = silent
) -> Synthetic:
    """Draw synthetic rows from a graphical model that is fitted to released evidence: free, without the rows.

    The model is a DAG that the evidence supports, with conditional tables, or a linear model for second moments. What
    the DAG does not join is independent given its parents, so rows show the dependences that the evidence shows and no
    others.

    - `evidence`: what `measure_source` released, or the path of its JSON.
    - `rows`: how many rows to draw.
    - `seed`: of the drawing; it protects nobody, since evidence is public already.
    - `progress`: told what is being done.
    """
    if not isinstance(evidence, Evidence):
        evidence = load_evidence(evidence)
    if rows < 1:
        raise DataError(f"{rows} rows were asked for; ask for at least 1")
    if MARK in evidence.schema.columns:
        raise EvidenceError(f"this evidence has a column {MARK}, the mark of synthetic rows: it describes such rows")
    tests = evidence.independence()
    if tests is None:
        raise EvidenceError("this evidence tells nothing about pairs of columns, so no rows can be drawn from it")
    if any(isinstance(release, NoisyFeatureMoments) for release in evidence.releases):
        raise EvidenceError(
            "this evidence holds moments of nonlinear features, from which no rows are drawn; release tables or second "
            "moments with --method measure"
        )
    if any(isinstance(release, NoisyMixedMoments) for release in evidence.releases):
        raise EvidenceError(
            "this evidence holds second moments of levels beside numbers, from which no rows are drawn; with bins for "
            "every number `measure` releases tables instead"
        )
    # redraws tell how certain edges are, which a model does not ask
    found = search_evidence(evidence, SearchSettings(redraws=0), progress=progress).graph.cpdag
    covered = tuple(name for name in evidence.schema.columns if name in tests.columns)
    edges = nearest_extension(found.nodes, found.directed, found.undirected)
    dag = Dag(covered, frozenset(edge for edge in edges if set(edge) <= set(covered)))
    rng = np.random.default_rng(seed)
    progress("drawing rows", 0, 1)
    notes: tuple[str, ...] = ()
    moments = [release for release in evidence.releases if isinstance(release, NoisyMoments)]
    if moments:
        columns = _draw_numbers(evidence.schema, moments[-1], dag, rows, rng)
    else:
        network, notes = fit_network(evidence.schema, evidence.releases, dag)
        codes = sample_codes(network, rows, rng)
        columns = {
            name: _to_array(evidence.schema, name, fill_values(evidence.schema.columns[name], codes[name], rng))
            for name in covered
        }
    progress("drawing rows", 1, 1)
    if left := [name for name in evidence.schema.columns if name not in covered]:
        notes = (*notes, f"Nothing was released about {', '.join(left)}: these columns are left out.")
    table = pa.table({**columns, MARK: pa.array([True] * rows)})
    mark = {
        "dagveil": f"synthetic rows, drawn from the released evidence of {evidence.schema.dataset}; no real records"
    }
    return Synthetic(table.replace_schema_metadata(mark), _synthetic_schema(evidence.schema, covered, rows), dag, notes)


def _draw_numbers(
    schema: Schema, release: NoisyMoments, dag: Dag, rows: int, rng: np.random.Generator
) -> dict[str, pa.Array]:
    model, means = fit_linear(release, dag)
    drawn = sample_linear_gaussian(model, rows, rng) + means
    columns = {}
    for place, name in enumerate(dag.nodes):
        column, at = schema.columns[name], release.columns.index(name)
        numbers = release.centers[at] + release.spreads[at] * drawn[:, place]
        if isinstance(column, Numeric):
            columns[name] = pa.array(np.clip(numbers, *column.bounds))
        else:
            columns[name] = _to_array(schema, name, fill_values(column, nearest_levels(column, numbers), rng))
    return columns


def _to_array(schema: Schema, name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, type=pa.float64() if isinstance(schema.columns[name], Numeric) else pa.string())


def _synthetic_schema(schema: Schema, covered: tuple[str, ...], rows: int) -> Schema:
    """Return the schema of synthetic rows: columns of the evidence that were drawn, and no persons behind them."""
    tiers = (tuple(name for name in tier if name in covered) for tier in schema.tiers)
    return Schema(
        dataset=f"{schema.dataset}-synthetic",
        columns={name: schema.columns[name] for name in covered},
        reviewed=schema.reviewed,
        unit="one synthetic row",
        relation=schema.relation,
        nominal_rows=rows,
        tiers=tuple(tier for tier in tiers if tier),
        forbidden=tuple(pair for pair in schema.forbidden if set(pair) <= set(covered)),
        required=tuple(pair for pair in schema.required if set(pair) <= set(covered)),
        public=True,
        ignore=(MARK,),
    )

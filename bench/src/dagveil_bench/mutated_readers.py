"""Sound inputs of every kind that the program reads, and how it reads them: for `dagveil bench mutate`."""

import gzip
import io
import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import csv, feather, parquet

from dagveil.audit.certificate import AttackLine, Certificate, encode_certificate, load_certificate
from dagveil.audit.neighbours import DataKind
from dagveil.audit.search import Effort
from dagveil.data.check import check_source
from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.draft import draft_schema
from dagveil.data.schema import Schema, load_schema, schema_to_toml
from dagveil.errors import DagveilError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.files import seal
from dagveil.forecast.explore import explore, load_exploration
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.exchange.formats import Format, load_graph, write_graph
from dagveil.local.device import Device
from dagveil.local.planning import load_priors, plan_protocol
from dagveil.local.protocol import Mechanism, Protocol, load_protocol
from dagveil.local.reports import guess_format, read_records, split_lines
from dagveil.plans.combine import combine_evidence
from dagveil.plans.plan_file import PlannedSite, load_plan
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.budget import Relation
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.report.exploration import draw_exploration, render_exploration
from dagveil.report.html import render_report
from dagveil.report.model import build_model
from dagveil.runs.bounds import load_open_schema
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.result import load_result
from dagveil.runs.run import load_knowledge
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.mutated import ChargedError, Mutation, Reader, mutate_bytes, mutate_json, mutate_lines, mutate_toml
from dagveil_bench.studies.reading import load_study, shipped_studies

ROWS: Final = 60
_QUICK: Final = SearchSettings(redraws=2)
_GRAPH: Final = Cpdag(("a", "b c", "d"), frozenset({("a", "d"), ("b c", "d")}), frozenset({frozenset(("a", "b c"))}))
_PLAIN_GRAPH: Final = Cpdag(("a", "b", "c"), frozenset({("a", "c"), ("b", "c")}), frozenset())
_LOUD: Final = 100  # an epsilon at which evidence has something to search


def find_readers() -> dict[str, Reader]:
    """Return every reader by name."""
    document, table = _document, _table_reader
    return {
        "schema": Reader(".toml", lambda: schema_to_toml(_schema()).encode(), mutate_toml, load_schema),
        "open-schema": Reader(".toml", lambda: schema_to_toml(_schema()).encode(), mutate_toml, load_open_schema),
        "knowledge": Reader(".toml", lambda: schema_to_toml(_schema()).encode(), mutate_toml, load_knowledge),
        "priors": Reader(".toml", lambda: _PRIORS, mutate_toml, lambda path: load_priors(path, _protocol())),
        "study": Reader(".toml", lambda: next(iter(shipped_studies().values())).encode(), mutate_toml, load_study),
        "plan": document(lambda: _plan().to_json().encode(), _follow_plan),
        "protocol": document(lambda: _protocol().to_json(), _use_protocol),
        "evidence": document(lambda: _evidence().to_json().encode(), _search, sealed=True),
        "numeric-evidence": document(lambda: _numeric_evidence().to_json().encode(), _search, sealed=True),
        "combined-evidence": document(lambda: _combined().to_json().encode(), _search, sealed=True),
        "result": document(lambda: _result().to_json().encode(), _show_result, sealed=True),
        "published-result": document(lambda: _published().to_json().encode(), _show_result, sealed=True),
        "certificate": document(
            lambda: encode_certificate(_certificate()),
            lambda path: render_report(build_model(_result(), load_certificate(path))),
        ),
        "exploration": document(
            lambda: explore(_schema(), (1, 4), methods=("measure",), models=2, rows=100).to_json().encode(),
            _show_exploration,
        ),
        "dot": _graph_reader(".dot", Format.DOT, _GRAPH),
        "gml": _graph_reader(".gml", Format.GML, _GRAPH),
        "graphml": _graph_reader(".graphml", Format.GRAPHML, _GRAPH),
        "dagitty": _graph_reader(".dagitty", Format.DAGITTY, _GRAPH),
        "tetrad": _graph_reader(".txt", Format.CAUSAL_LEARN, _PLAIN_GRAPH),
        "node-link": Reader(
            ".json", lambda: write_graph(_GRAPH, Format.NETWORKX_JSON).encode(), mutate_json, _show_graph
        ),
        "csv": table(".csv", mutate_lines, lambda rows, out: csv.write_csv(rows, out)),
        "tsv": table(
            ".tsv", mutate_lines, lambda rows, out: csv.write_csv(rows, out, csv.WriteOptions(delimiter="\t"))
        ),
        "csv-gz": Reader(".csv.gz", lambda: gzip.compress(_write_csv()), mutate_bytes, _measure),
        "parquet": table(".parquet", mutate_bytes, lambda rows, out: parquet.write_table(rows, out)),
        "feather": table(".feather", mutate_bytes, lambda rows, out: feather.write_feather(rows, out)),
        "arrow": table(".arrow", mutate_bytes, _write_stream),
        "records": Reader(".csv", _write_csv, mutate_lines, _randomise),
        "json-records": Reader(
            ".jsonl",
            lambda: b"".join(msgspec.json.encode(row) + b"\n" for row in _rows().to_pylist()),
            mutate_lines,
            _randomise,
        ),
    }


def _document(sample: Callable[[], bytes], read: Callable[[Path], object], *, sealed: bool = False) -> Reader:
    return Reader(".json", sample, _mutate_sealed if sealed else mutate_json, read)


def _mutate_sealed(content: bytes, rng: random.Random) -> bytes:
    """Edit a document, and mostly seal it again: otherwise nothing behind the seal would be tried."""
    mutated = mutate_json(content, rng)
    try:
        plain = msgspec.json.decode(mutated)
        return msgspec.json.encode(seal(plain)) if isinstance(plain, dict) and rng.random() < 0.9 else mutated
    except (ValueError, RecursionError):
        return mutated


def _graph_reader(suffix: str, form: Format, graph: Cpdag) -> Reader:
    return Reader(suffix, lambda: write_graph(graph, form).encode(), mutate_bytes, _show_graph)


def _table_reader(suffix: str, mutate: Mutation, write: Callable[[pa.Table, Any], object]) -> Reader:
    def sample() -> bytes:
        out = io.BytesIO()
        write(_rows(), out)
        return out.getvalue()

    return Reader(suffix, sample, mutate, _measure)


def _rows() -> pa.Table:
    rng = random.Random(1)
    return pa.table(
        {
            "smokes": [rng.random() < 0.3 for _ in range(ROWS)],
            "city": [rng.choice(("north", "south", "west")) for _ in range(ROWS)],
            "age": [round(rng.gauss(50, 10), 2) for _ in range(ROWS)],
        }
    )


def _write_csv() -> bytes:
    out = io.BytesIO()
    csv.write_csv(_rows(), out)
    return out.getvalue()


def _write_stream(rows: pa.Table, out: Any) -> None:
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows)


def _schema() -> Schema:
    return Schema(
        dataset="demo",
        reviewed=True,
        nominal_rows=ROWS,
        columns={
            "smokes": Boolean("false"),
            "city": Categorical(levels=("north", "south", "west"), outside="north"),
            "age": Numeric(bounds=(0.0, 110.0), bins=4),
        },
        tiers=(("city", "age"), ("smokes",)),
        forbidden=(("age", "city"),),
    )


_PRIORS: Final = b"[smokes]\ntrue = 0.2\nfalse = 0.8\n[city]\nnorth = 0.5\nsouth = 0.5\n"


@cache
def _protocol() -> Protocol:
    return plan_protocol(_schema(), Mechanism.RESPONSE, epsilon=2.0)


def _plan() -> Any:
    sites = [PlannedSite(name, Fraction(1), Fraction(1, 10**6), ROWS) for name in ("north", "south")]
    return plan_measurement(_schema(), 1, sites=sites)


def _evidence() -> Evidence:
    return measure_source(_rows(), _schema(), _LOUD, noise=NoiseKind.EXACT, ledger=None)


def _numeric_evidence() -> Evidence:
    rng = random.Random(2)
    rows = {name: [rng.gauss(0, 1) for _ in range(ROWS)] for name in ("x", "y")}
    numeric = Numeric(bounds=(-5.0, 5.0), center=0.0, spread=1.0)
    schema = Schema(dataset="numbers", reviewed=True, nominal_rows=ROWS, columns={"x": numeric, "y": numeric})
    return measure_source(rows, schema, _LOUD, noise=NoiseKind.EXACT, ledger=None)


def _combined() -> Evidence:
    plan = _plan()
    return combine_evidence(
        [
            measure_planned(_rows(), plan, name, dataset=name, noise=NoiseKind.EXACT, ledger=None)
            for name in ("north", "south")
        ]
    )


@cache
def _result() -> Any:
    return search_evidence(_evidence(), _QUICK)


def _published() -> Any:
    return discover(
        _rows(), _schema(), 1, method="svt-pc", calibration=Calibration.PROGRAM, noise=NoiseKind.EXACT, ledger=None
    )


def _certificate() -> Certificate:
    line = AttackLine(DataKind.LEVELS, Relation.ADD_REMOVE, {}, 1.0, 0.1, 0.5, 0.9, 100, 60, 40, "some event", "a pair")
    return Certificate(
        format="dagveil-audit",
        version=2,
        software="dagveil",
        created="2026-01-01T00:00:00Z",
        method="measure",
        calibration=Calibration.SOUND,
        options={},
        effort=Effort.QUICK,
        epsilon="1",
        delta="1/1000000",
        relations=(Relation.ADD_REMOVE,),
        replays=(),
        statistics=(),
        attacks=(line,),
    )


def _follow_plan(path: Path) -> None:
    plan = load_plan(path)
    books = MemoryLedger()
    try:
        measure_planned(_rows(), plan, plan.sites[0].name, dataset="demo", ledger=books, noise=NoiseKind.EXACT)
    except Exception:
        _check_uncharged(books)
        raise


def _use_protocol(path: Path) -> None:
    protocol = load_protocol(path)
    Device(protocol).report([{}])
    protocol.channel.undo()


def _search(path: Path) -> None:
    evidence = load_evidence(path)
    for sentence in evidence.receipt.words():
        sentence.encode()
    search_evidence(evidence, _QUICK)


def _show_result(path: Path) -> None:
    result = load_result(path)
    render_report(build_model(result))
    _export(result.graph.cpdag)


def _show_graph(path: Path) -> None:
    graph = load_graph(path)
    if isinstance(graph, Cpdag):
        _export(graph)


def _export(graph: Cpdag) -> None:
    for form in Format:
        try:
            write_graph(graph, form).encode()
        except DagveilError:
            continue  # not every format can hold every graph


def _show_exploration(path: Path) -> None:
    found = load_exploration(path)
    draw_exploration(found)
    render_exploration(found)


def _measure(path: Path) -> None:
    books = MemoryLedger()
    try:
        draft_schema(path)
        check_source(path, _schema())
        measure_source(path, _schema(), 1, ledger=books, noise=NoiseKind.EXACT)
    except Exception:
        _check_uncharged(books)
        raise


def _check_uncharged(books: MemoryLedger) -> None:
    if books.account("demo").spent_epsilon or books.account("demo").spending.reserved.epsilon:
        raise ChargedError("a run that was refused")


def _randomise(path: Path) -> None:
    device = Device(_protocol())
    with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        form, lines = guess_format(split_lines(stream))
        device.report(list(read_records(lines, form, device.protocol.names)))

"""Causal graph discovery from sensitive tables, under differential privacy.

    import dagveil as dv

    schema = dv.load_schema("schema.toml")
    result = dv.discover("patients.parquet", schema, epsilon=1, delta=1e-6)
    result.graph.to_networkx()

Rows are touched by one object, the curator, which charges the budget before it draws noise. Everything after is
post-processing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from dagveil._version import __version__

if TYPE_CHECKING:
    from dagveil.data.check import check_source
    from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
    from dagveil.data.draft import draft_schema
    from dagveil.data.draft_warnings import find_doubts
    from dagveil.data.engine import DatabaseTable, Engine, choose_engine
    from dagveil.data.schema import Schema, load_schema, save_schema
    from dagveil.errors import DagveilError
    from dagveil.evidence.bundle import Evidence, load_evidence
    from dagveil.forecast.explore import Exploration, explore
    from dagveil.graphs.cpdag import Cpdag
    from dagveil.graphs.dag import Dag
    from dagveil.graphs.knowledge import Knowledge
    from dagveil.privacy.budget import Budget
    from dagveil.privacy.ledger.ledger import Ledger
    from dagveil.privacy.noise.kind import NoiseKind
    from dagveil.privacy.receipt import Calibration, Receipt
    from dagveil.report.html import write_report
    from dagveil.runs.default_ledger import default_ledger
    from dagveil.runs.discovery import discover, measure_source
    from dagveil.runs.result import Result, load_result
    from dagveil.runs.search import search_evidence
    from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings

__all__ = [
    "ArrowRule",
    "Boolean",
    "Budget",
    "Calibration",
    "Categorical",
    "Cpdag",
    "Dag",
    "DagveilError",
    "DatabaseTable",
    "Engine",
    "Evidence",
    "Exploration",
    "Knowledge",
    "Ledger",
    "NoiseKind",
    "Numeric",
    "Ordinal",
    "Receipt",
    "Result",
    "Schema",
    "SearchRule",
    "SearchSettings",
    "__version__",
    "check_source",
    "choose_engine",
    "default_ledger",
    "discover",
    "draft_schema",
    "explore",
    "find_doubts",
    "load_evidence",
    "load_result",
    "load_schema",
    "measure_source",
    "save_schema",
    "search_evidence",
    "write_report",
]

_MODULES: Final = {
    "ArrowRule": "dagveil.search.settings",
    "Boolean": "dagveil.data.column",
    "Budget": "dagveil.privacy.budget",
    "Calibration": "dagveil.privacy.receipt",
    "Categorical": "dagveil.data.column",
    "Cpdag": "dagveil.graphs.cpdag",
    "Dag": "dagveil.graphs.dag",
    "DagveilError": "dagveil.errors",
    "DatabaseTable": "dagveil.data.engine",
    "Engine": "dagveil.data.engine",
    "Evidence": "dagveil.evidence.bundle",
    "Exploration": "dagveil.forecast.explore",
    "Knowledge": "dagveil.graphs.knowledge",
    "Ledger": "dagveil.privacy.ledger.ledger",
    "NoiseKind": "dagveil.privacy.noise.kind",
    "Numeric": "dagveil.data.column",
    "Ordinal": "dagveil.data.column",
    "Receipt": "dagveil.privacy.receipt",
    "Result": "dagveil.runs.result",
    "Schema": "dagveil.data.schema",
    "SearchRule": "dagveil.search.settings",
    "SearchSettings": "dagveil.search.settings",
    "check_source": "dagveil.data.check",
    "choose_engine": "dagveil.data.engine",
    "default_ledger": "dagveil.runs.default_ledger",
    "discover": "dagveil.runs.discovery",
    "draft_schema": "dagveil.data.draft",
    "explore": "dagveil.forecast.explore",
    "find_doubts": "dagveil.data.draft_warnings",
    "load_evidence": "dagveil.evidence.bundle",
    "load_result": "dagveil.runs.result",
    "load_schema": "dagveil.data.schema",
    "measure_source": "dagveil.runs.discovery",
    "save_schema": "dagveil.data.schema",
    "search_evidence": "dagveil.runs.search",
    "write_report": "dagveil.report.html",
}
"""Where the public names are: each is imported when it is first asked for."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'dagveil' has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

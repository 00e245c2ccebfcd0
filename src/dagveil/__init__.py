"""Causal graph discovery from sensitive tables, under differential privacy.

    import dagveil as dv

    schema = dv.load_schema("schema.toml")
    result = dv.discover("patients.parquet", schema, epsilon=1, delta=1e-6)
    result.graph.to_networkx()

Rows are touched by one object, the curator, which charges the budget before it draws noise. Everything after is
post-processing.
"""

from __future__ import annotations

from dagveil._version import __version__
from dagveil.data.check import check_source
from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.doubts import find_doubts
from dagveil.data.draft import draft_schema
from dagveil.data.engine import DatabaseTable, Engine, choose_engine
from dagveil.data.schema import Schema, load_schema, save_schema
from dagveil.errors import DagveilError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.default_ledger import default_ledger
from dagveil.methods.discovery import discover, measure_source
from dagveil.methods.evidence_search import search_evidence
from dagveil.methods.exploration import Exploration, draw_explorations_by, explore
from dagveil.methods.result import Result, draw_inline_by, load_result
from dagveil.methods.settings import ArrowRule, SearchRule, SearchSettings
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.book import Ledger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration, Receipt

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


def __getattr__(name: str) -> object:
    # the report lies above this module's layer and needs Jinja: imported when asked for
    if name == "write_report":
        from dagveil.report.html import write_report

        return write_report
    raise AttributeError(f"module 'dagveil' has no attribute {name!r}")


def _draw_inline(result: Result) -> str:
    from dagveil.report.notebook import draw_inline

    return draw_inline(result)


def _draw_exploration(found: Exploration) -> str:
    from dagveil.report.curve import draw_exploration

    return draw_exploration(found)


def _render_exploration(found: Exploration) -> str:
    from dagveil.report.exploration import render_exploration

    return render_exploration(found)


def _draw_exploration_inline(found: Exploration) -> str:
    from dagveil.report.exploration import draw_exploration_inline

    return draw_exploration_inline(found)


draw_inline_by(_draw_inline)
draw_explorations_by(svg=_draw_exploration, html=_render_exploration, inline=_draw_exploration_inline)

"""Causal graph discovery from sensitive tables, under differential privacy.

    import dagveil as dv

    schema = dv.load_schema("schema.toml")
    result = dv.discover("patients.parquet", schema, epsilon=1, delta=1e-6)
    result.graph.to_networkx()

Rows are touched by one object, the curator, which charges the budget before it draws noise. Everything after is
post-processing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from dagveil._version import __version__

if TYPE_CHECKING:
    from dagveil.data.check import check_source
    from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
    from dagveil.data.draft import draft_schema, find_doubts
    from dagveil.data.engine import DatabaseTable, Engine, choose_engine
    from dagveil.data.schema import Schema, load_schema, save_schema
    from dagveil.effects.answer import Effect
    from dagveil.errors import DagveilError
    from dagveil.evidence.bundle import Evidence, load_evidence
    from dagveil.evidence.estimates import TableEstimate, TableOne
    from dagveil.evidence.homogeneity import Agreement
    from dagveil.evidence.questions import Questions
    from dagveil.forecast.explore import Exploration, explore
    from dagveil.forecast.project import write_project
    from dagveil.graphs.cpdag import Cpdag, Dag
    from dagveil.graphs.knowledge import Knowledge
    from dagveil.methods.asking import (
        Asked,
        AskingSettings,
        Needs,
        ThresholdedQuestions,
        asking_filter,
        check_countable,
    )
    from dagveil.methods.method import Measured, Method, SharpCase
    from dagveil.plans.combine import combine_evidence, compare_sites
    from dagveil.plans.planning import plan_measurement, plan_second_round
    from dagveil.plans.site_run import measure_planned
    from dagveil.privacy.budget import Budget
    from dagveil.privacy.ledger.ledger import Ledger
    from dagveil.privacy.mechanisms.laplace import epsilon_for
    from dagveil.privacy.noise.kind import NoiseKind
    from dagveil.privacy.receipt import Calibration, Receipt
    from dagveil.report.certification import certify, verify_pack
    from dagveil.report.html import write_report
    from dagveil.report.registry import DeploymentFacts
    from dagveil.runs.bounds import find_bounds
    from dagveil.runs.direction import DirectionSettings, find_direction
    from dagveil.runs.discovery import discover, measure_source
    from dagveil.runs.effects import effect, measure_effect
    from dagveil.runs.installation import Installation, check_installation
    from dagveil.runs.local import discover_reports
    from dagveil.runs.result import Result, load_result
    from dagveil.runs.run import default_ledger
    from dagveil.runs.search import search_evidence
    from dagveil.runs.synthesis import Synthetic, synthesize
    from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings

__all__ = [
    "Agreement",
    "ArrowRule",
    "Asked",
    "AskingSettings",
    "Boolean",
    "Budget",
    "Calibration",
    "Categorical",
    "Cpdag",
    "Dag",
    "DagveilError",
    "DatabaseTable",
    "DeploymentFacts",
    "DirectionSettings",
    "Effect",
    "Engine",
    "Evidence",
    "Exploration",
    "Installation",
    "Knowledge",
    "Ledger",
    "Measured",
    "Method",
    "Needs",
    "NoiseKind",
    "Numeric",
    "Ordinal",
    "Questions",
    "Receipt",
    "Result",
    "Schema",
    "SearchRule",
    "SearchSettings",
    "SharpCase",
    "Synthetic",
    "TableEstimate",
    "TableOne",
    "ThresholdedQuestions",
    "__version__",
    "asking_filter",
    "certify",
    "check_countable",
    "check_installation",
    "check_source",
    "choose_engine",
    "combine_evidence",
    "compare_sites",
    "default_ledger",
    "discover",
    "discover_reports",
    "draft_schema",
    "effect",
    "epsilon_for",
    "explore",
    "find_bounds",
    "find_direction",
    "find_doubts",
    "load_evidence",
    "load_result",
    "load_schema",
    "measure_effect",
    "measure_planned",
    "measure_source",
    "plan_measurement",
    "plan_second_round",
    "save_schema",
    "search_evidence",
    "synthesize",
    "verify_pack",
    "write_project",
    "write_report",
]

_NAMES: Final = {
    "data.check": "check_source",
    "data.column": "Boolean Categorical Numeric Ordinal",
    "data.draft": "draft_schema find_doubts",
    "data.engine": "DatabaseTable Engine choose_engine",
    "data.schema": "Schema load_schema save_schema",
    "effects.answer": "Effect",
    "errors": "DagveilError",
    "evidence.bundle": "Evidence load_evidence",
    "evidence.estimates": "TableEstimate TableOne",
    "evidence.homogeneity": "Agreement",
    "evidence.questions": "Questions",
    "forecast.explore": "Exploration explore",
    "forecast.project": "write_project",
    "graphs.cpdag": "Cpdag Dag",
    "graphs.knowledge": "Knowledge",
    "methods.asking": "Asked AskingSettings Needs ThresholdedQuestions asking_filter check_countable",
    "methods.method": "Measured Method SharpCase",
    "plans.combine": "combine_evidence compare_sites",
    "plans.planning": "plan_measurement plan_second_round",
    "plans.site_run": "measure_planned",
    "privacy.budget": "Budget",
    "privacy.ledger.ledger": "Ledger",
    "privacy.mechanisms.laplace": "epsilon_for",
    "privacy.noise.kind": "NoiseKind",
    "privacy.receipt": "Calibration Receipt",
    "report.certification": "certify verify_pack",
    "report.html": "write_report",
    "report.registry": "DeploymentFacts",
    "runs.bounds": "find_bounds",
    "runs.direction": "DirectionSettings find_direction",
    "runs.discovery": "discover measure_source",
    "runs.effects": "effect measure_effect",
    "runs.installation": "Installation check_installation",
    "runs.local": "discover_reports",
    "runs.result": "Result load_result",
    "runs.run": "default_ledger",
    "runs.search": "search_evidence",
    "runs.synthesis": "Synthetic synthesize",
    "search.settings": "ArrowRule SearchRule SearchSettings",
}
"""Where the public names are: each is imported when it is first asked for."""
_MODULES: Final = {name: f"dagveil.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'dagveil' has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

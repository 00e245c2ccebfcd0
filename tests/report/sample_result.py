"""Complete results, as decoded JSON, for the tests of the report and of the browser."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from dagveil.audit.certificate import Certificate
from dagveil.files import read_fraction, seal
from dagveil.privacy.budget import Budget, mu_squared_of
from dagveil.report.html import render_report
from dagveil.report.model import ReportModel, build_model
from dagveil.runs.result import Result

EDGES = [
    ("either", "dysp", "directed", 0.89, 0.82, 0.73, 0.06, 0.1),
    ("either", "xray", "directed", 0.974, 0.72, 0.7, 0.174, 0.1),
    ("tub", "either", "directed", 0.86, 0.59, 0.51, 0.05, 0.3),
    ("lung", "either", "directed", 0.63, 0.79, 0.5, 0.03, 0.1),
    ("bronc", "dysp", "directed", 0.57, 0.88, 0.5, 0.02, 0.05),
    ("lung", "smoke", "undirected", 0.62, 0.45, 0.3, 0.04, 0.28),
    ("bronc", "smoke", "undirected", None, None, None, None, None),
]


def make_result() -> dict[str, Any]:
    nodes = ["asia", "tub", "smoke", "lung", "bronc", "either", "xray", "dysp"]
    names = ("source", "target", "kind", "confidence", "arrow_confidence", "forward", "backward", "line")
    return {
        "format": "dagveil-result",
        "version": 2,
        "software": "0.1.0",
        "created": "2026-11-15T12:00:00Z",
        "method": {
            "name": "measure",
            "calibration": "sound",
            "settings": {"marginal_level": 0.01, "arrows": "evidence"},
        },
        "graph": {"nodes": nodes, "family": "cpdag", "edges": [dict(zip(names, edge, strict=True)) for edge in EDGES]},
        "near_misses": [
            {"source": "dysp", "target": "smoke", "confidence": 0.44, "found": True},
            {"source": "asia", "target": "tub", "confidence": 0.31, "found": False},
        ],
        "false_edges": 0.3,
        "summary": ["7 edges among 8 columns; about 0.3 would appear if nothing depended on anything."],
        "confidence": {"redraws": 50, "meaning": "share of redraws in which the edge returned"},
        "schema": {
            "dataset": "asia-demo",
            "digest": "9f2b" * 16,
            "reviewed": True,
            "unit": "patient",
            "nominal_rows": 100_000,
            "columns": {node: {"kind": "categorical", "levels": 2} for node in nodes},
        },
        "variations": [
            {"setting": "marginal_level", "value": 0.001, "changes": []},
            {
                "setting": "marginal_level",
                "value": 0.1,
                "changes": [
                    {"source": "asia", "target": "tub", "before": "none", "after": "directed"},
                    {"source": "bronc", "target": "smoke", "before": "undirected", "after": "reversed"},
                    {"source": "dysp", "target": "either", "before": "reversed", "after": "none"},
                ],
            },
        ],
        "plan": [
            {
                "stage": "all pairs",
                "tables": 28,
                "cells": 112,
                "share": 0.5,
                "noise_sd": 31.7,
                "why": "no edge is missed",
            }
        ],
        "findings": ["28 pair tables were measured."],
        "receipt": {
            "calibration": "sound",
            "epsilon": "1",
            "delta": "1/1000000",
            "spent": "epsilon 0.7 of 1",
            "relation": "add-remove",
            "unit": "patient",
            "nominal_rows": 100_000,
            "accounting": "Gaussian accounting",
            "accounting_total": str(mu_squared_of(Budget.of(1, 1e-6))),
            "accounting_spent": "33/1000",
            "dataset": "asia-demo",
            "software": "dagveil 0.1.0",
            "noise": "OpenDP",
            "events": [
                {
                    "kind": "discrete-gaussian",
                    "label": "all pairs",
                    "draws": 112,
                    "squared_sensitivity": "28",
                    "variance": "1002",
                    "changed": 28,
                },
                {
                    "kind": "discrete-gaussian",
                    "label": "triples",
                    "draws": 80,
                    "squared_sensitivity": "10",
                    "variance": "2002",
                    "changed": None,
                },
            ],
            "public_facts": ["the column names and levels of the schema"],
            "warnings": [],
        },
    }


def model_of(result: dict[str, Any], certificate: Certificate | None = None) -> ReportModel:
    """Return the model of a result, whether or not a reader of files would believe its receipt."""
    return build_model(msgspec.convert(result, Result, dec_hook=read_fraction), certificate)


def render(result: dict[str, Any], certificate: Certificate | None = None) -> str:
    """Return the page of such a result."""
    return render_report(model_of(result, certificate))


def write_sealed(result: dict[str, Any]) -> str:
    """Return the text of a result.json."""
    return json.dumps(seal(result))


def make_large(nodes: int) -> dict[str, Any]:
    """Return a result with so many columns, and about one and a half edges for each."""
    rng = random.Random(nodes)
    result = make_result()
    names = [f"column_{i}" for i in range(nodes)]
    edges = []
    for effect in range(1, nodes):
        for cause in rng.sample(range(max(0, effect - 12), effect), min(effect, rng.choice((1, 1, 2)))):
            kind = "undirected" if rng.random() < 0.2 else "directed"
            share, arrow = round(rng.betavariate(3, 1), 2), round(rng.betavariate(2, 1), 2)
            ends = {"source": names[cause], "target": names[effect]}
            edges.append({**ends, "kind": kind, "confidence": share, "arrow_confidence": arrow})
    result["graph"] = {"nodes": names, "family": "cpdag", "edges": edges}
    result["near_misses"] = []
    result["variations"] = []
    result["schema"]["columns"] = {name: {"kind": "categorical", "levels": 3} for name in names}
    return result

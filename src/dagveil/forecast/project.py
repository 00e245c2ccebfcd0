"""A folder to begin with: schema, plan, exploration, a commented script, a notebook and a Makefile."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from dagveil.data.schema import Schema, save_schema
from dagveil.errors import DagveilError, DataError
from dagveil.forecast.explore import Exploration
from dagveil.plans.planning import plan_measurement
from dagveil.privacy.budget import Amount, Budget

_STEPS = (
    (
        "What is public about the table. Nothing is read yet.",
        'import dagveil as dv\n\nschema = dv.load_schema("schema.toml")',
    ),
    (
        "What the data set may ever lose, over all runs. This is set once, by whoever answers for the data; it is the "
        "command `dagveil budget set`.",
        "ledger = dv.Ledger.open(dv.default_ledger())\nprint(ledger.account(schema.dataset))",
    ),
    (
        "THIS READS THE ROWS AND SPENDS BUDGET: epsilon {epsilon}, delta {delta}. What comes back is noisy and may be "
        "kept; run it once.",
        'evidence = dv.measure_source({rows}, schema, epsilon="{epsilon}", delta="{delta}")\n'
        'evidence.save("evidence.json")',
    ),
    (
        "From here on nothing is read and nothing is spent: search as often as you like.",
        'evidence = dv.load_evidence("evidence.json")\nresult = dv.search_evidence(evidence)\n'
        'result.save("result.json")\ndv.write_report(result, "report.html")',
    ),
    ("What is promised, and what is not.", 'print("\\n".join(result.receipt.words()))'),
    (
        "Each column by itself, with standard errors of the noise, and the edges with their confidence.",
        "print(evidence.table_one().to_arrow())\n"
        "for edge in result.graph.edges:\n    print(edge.source, edge.sign, edge.target, edge.confidence)",
    ),
)


def write_project(
    folder: str | Path,
    schema: Schema,
    epsilon: Amount,
    delta: Amount = "1e-6",
    *,
    source: str | Path | None = None,
    exploration: Exploration | None = None,
) -> tuple[Path, ...]:
    """Write a folder to begin with, and return its files. No row is read.

    Parameters
    ----------
    folder
        A new or empty one.
    schema
        What is public. If it is unreviewed, or no plan can be made for it, there is none in the folder.
    epsilon, delta
        The budget of the run.
    source
        Where the rows are; None leaves a place to fill in.
    exploration
        What `explore` found, to be kept beside.
    """
    place = Path(folder)
    check_empty(place)
    budget = Budget.of(epsilon, delta)
    plan = None
    with suppress(DagveilError):  # without a plan the rest is of use
        plan = plan_measurement(schema, budget.epsilon, budget.delta)
    rows = "rows.csv" if source is None else str(Path(source).absolute())
    words = {"epsilon": str(epsilon), "delta": str(delta), "rows": json.dumps(rows, ensure_ascii=False)}
    steps = [tuple(_fill(text, words) for text in step) for step in _STEPS]
    try:
        place.mkdir(parents=True, exist_ok=True)
        save_schema(schema, place / "schema.toml")
        texts = {
            "discover.py": _write_script(schema.dataset, steps),
            "discover.ipynb": _write_notebook(schema.dataset, steps),
            "Makefile": _write_makefile(schema.dataset, rows, words),
        }
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        if plan is not None:
            plan.save(place / "plan.json")
        if exploration is not None:
            exploration.save(place / "exploration.html")
    except OSError as error:
        raise DataError(f"cannot write {place}: {error.strerror}; choose another folder") from error
    return tuple(sorted(place.iterdir()))


def check_empty(folder: Path) -> None:
    """Refuse a folder in which something would be replaced."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not empty; choose a new folder")


def _fill(text: str, words: dict[str, str]) -> str:
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


def _write_script(dataset: str, steps: list[tuple[str, ...]]) -> str:
    title = f"The causal graph of {dataset}, step by step."
    parts = [f"# {' '.join(title.split())}"]
    parts += [f"# {number}. {words}\n{code}" for number, (words, code) in enumerate(steps, start=1)]
    return "\n\n".join(parts) + "\n"


def _write_notebook(dataset: str, steps: list[tuple[str, ...]]) -> str:
    cells: list[dict[str, Any]] = [_cell("markdown", f"# The causal graph of {dataset}", 0)]
    for words, code in steps:
        cells.append(_cell("markdown", words, len(cells)))
        cells.append(_cell("code", code, len(cells)) | {"execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}


def _write_makefile(dataset: str, rows: str, words: dict[str, str]) -> str:
    # make takes a dollar for a variable of its own
    name, place = (shlex.quote(word).replace("$", "$$") for word in (dataset, rows))
    epsilon, delta = words["epsilon"], words["delta"]
    return f"""\
# `make graph` reads the rows and spends epsilon {epsilon}, unless there is a result; everything else is free.
.PHONY: check budget graph tables synthetic doctor

check:  ## what does not fit the schema; for the custodian's eyes only
\t-dagveil schema check {place} --schema schema.toml

budget:  ## what all runs together may ever spend: this one run; choose more before the first if there will be others
\tdagveil budget set {name} --epsilon {epsilon} --delta {delta} --composition sum

graph: out/result.json

# it depends on no file, so that no edit spends budget again
out/result.json:
\tdagveil discover {place} --schema schema.toml --epsilon {epsilon} --delta {delta} -o out

tables:
\tdagveil tables out/evidence.json

synthetic:
\tdagveil synthesize out/evidence.json --rows 10000 -o out/synthetic.csv

doctor:
\tdagveil doctor
"""

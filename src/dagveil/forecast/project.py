"""A folder to begin with: schema, plan, exploration, a commented script, notebooks and a Makefile."""

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema, save_schema
from dagveil.errors import DagveilError, DataError
from dagveil.forecast.explore import Exploration
from dagveil.forecast.synthetic import SyntheticLaw, make_synthetic
from dagveil.graphs.knowledge import Knowledge
from dagveil.plans.planning import plan_measurement
from dagveil.privacy.budget import Amount, Budget
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence

EXAMPLE_ROWS: Final = 5000
EXAMPLE_COLUMNS: Final = 60  # of more, none is made: it would take too long
EXAMPLE_SEED: Final = 1

_EXAMPLE_TITLE = (
    "What discover.ipynb looks like once it has run. These rows are synthetic: drawn from the schema by a public law, "
    "and nobody's. The graph means nothing."
)


class _Step(NamedTuple):
    """What a step says, its code, and what is shown after it: printed by the script, by itself in the notebook."""

    words: str
    code: str
    printed: str = ""
    shown: str = ""


_PUBLIC = _Step(
    "What is public about the table. Nothing is read yet.",
    'import dagveil as dv\n\nschema = dv.load_schema("schema.toml")',
)
_READ = (
    _Step(
        "What the data set may ever lose, over all runs. This is set once, by whoever answers for the data; it is the "
        "command `dagveil budget set`.",
        "ledger = dv.Ledger.open(dv.default_ledger())\nprint(ledger.account(schema.dataset).words)",
    ),
    _Step(
        "THIS READS THE ROWS AND SPENDS BUDGET: epsilon {epsilon}, delta {delta}. What comes back is noisy and may be "
        "kept; run it once.",
        'evidence = dv.measure_source({rows}, schema, epsilon="{epsilon}", delta="{delta}")\n'
        'evidence.save("evidence.json")',
    ),
    _Step(
        "From here on nothing is read and nothing is spent: search as often as you like.",
        'evidence = dv.load_evidence("evidence.json")\nresult = dv.search_evidence(evidence)\n'
        'result.save("result.json")\ndv.write_report(result, "report.html")',
        shown="result",
    ),
)
_DRAWN = (
    _Step(
        "Synthetic rows take the place of yours: nothing is read, and nothing is spent.",
        "from dagveil.forecast.project import draw_example\n\nrows = draw_example(schema)\n"
        'evidence = dv.measure_source(rows, rows.schema, epsilon="{epsilon}", delta="{delta}", ledger=None)',
    ),
    _Step(
        "The search. It can be repeated as often as you like.", "result = dv.search_evidence(evidence)", shown="result"
    ),
)
_TOLD = (
    _Step("What is promised, and what is not.", 'print("\\n".join(result.receipt.words()))'),
    _Step(
        "The edges with their confidence.",
        "for edge in result.graph.edges:\n    print(edge.source, edge.sign, edge.target, edge.confidence)",
    ),
    _Step(
        "Each column by itself, with standard errors of the noise.",
        "columns = evidence.table_one()",
        'for row in columns.to_arrow().to_pylist():\n    print(row["column"], row["level"] or "", row["statistic"], '
        'round(row["estimate"], 2), "±", round(row["standard_error"], 2))',
        "columns",
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

    - `folder`: a new or empty one.
    - `schema`: what is public. If it is unreviewed, or no plan can be made for it, there is none in the folder.
    - `epsilon`, `delta`: the budget of the run.
    - `source`: where the rows are; None leaves a place to fill in.
    - `exploration`: what `explore` found, to be kept beside.
    """
    place = Path(folder)
    check_empty(place)
    budget = Budget.of(epsilon, delta)
    plan = None
    with suppress(DagveilError):  # without a plan the rest is of use
        plan = plan_measurement(schema, budget.epsilon, budget.delta)
    rows = "rows.csv" if source is None else str(Path(source).absolute())
    words = {"epsilon": str(epsilon), "delta": str(delta), "rows": json.dumps(rows, ensure_ascii=False)}
    steps = _fill((_PUBLIC, *_READ, *_TOLD), words)
    title = " ".join(f"The causal graph of {schema.dataset}, step by step.".split())
    try:
        place.mkdir(parents=True, exist_ok=True)
        save_schema(schema, place / "schema.toml")
        texts = {
            "discover.py": _write_script(title, steps),
            "discover.ipynb": _write_notebook(title, steps),
            **_write_example(schema, budget, _fill((_PUBLIC, *_DRAWN, *_TOLD), words)),
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


def draw_example(schema: Schema) -> MemoryTable:
    """Draw synthetic rows by a public law. Of the schema, levels and bounds are all that is used."""
    rng = np.random.default_rng(EXAMPLE_SEED)
    return make_synthetic(schema, Knowledge(), SyntheticLaw(), EXAMPLE_ROWS, rng).table


def _fill(steps: Sequence[_Step], words: dict[str, str]) -> list[_Step]:
    filled = []
    for step in steps:
        texts = list(step)
        for name, word in words.items():
            texts = [text.replace(f"{{{name}}}", word) for text in texts]
        filled.append(_Step(*texts))
    return filled


def _write_script(title: str, steps: Sequence[_Step]) -> str:
    parts = [f"# {title}"]
    for number, step in enumerate(steps, start=1):
        parts.append("\n".join(filter(None, (f"# {number}. {step.words}", step.code, step.printed))))
    return "\n\n".join(parts) + "\n"


def _write_example(schema: Schema, budget: Budget, steps: Sequence[_Step]) -> dict[str, str]:
    """Write a notebook that has been run, on synthetic rows; none if that cannot be done, or would take long."""
    if not schema.reviewed or len(schema.columns) > EXAMPLE_COLUMNS:
        return {}
    try:
        table = draw_example(schema)
        evidence = measure_source(table, table.schema, budget.epsilon, budget.delta, ledger=None)
        result = search_evidence(evidence)
    except DagveilError:
        return {}
    edges = [f"{edge.source} {edge.sign} {edge.target} {edge.confidence}" for edge in result.graph.edges]
    shown = {"result": result._repr_html_(), "columns": evidence.table_one()._repr_html_()}
    printed = {_TOLD[0].words: "\n".join(result.receipt.words()), _TOLD[1].words: "\n".join(edges)}
    outputs: list[dict[str, Any]] = []
    for number, step in enumerate(steps, start=1):
        if step.shown:
            data = {"text/html": shown[step.shown].splitlines(keepends=True)}
            outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
        elif step.words in printed:
            text = (printed[step.words] + "\n").splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": text})
        else:
            outputs.append({})
    return {"example.ipynb": _write_notebook(_EXAMPLE_TITLE, steps, outputs)}


def _write_notebook(title: str, steps: Sequence[_Step], outputs: Sequence[dict[str, Any]] | None = None) -> str:
    """Write a notebook; with `outputs`, one for each step, as it is once it has run."""
    cells: list[dict[str, Any]] = [_cell("markdown", f"# {title}" if outputs is None else title, 0)]
    for number, step in enumerate(steps):
        cells.append(_cell("markdown", step.words, len(cells)))
        code = _cell("code", "\n".join(filter(None, (step.code, step.shown))), len(cells))
        code |= {"execution_count": None, "outputs": []}
        if outputs is not None:
            code |= {"execution_count": number + 1, "outputs": [outputs[number]] if outputs[number] else []}
        cells.append(code)
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

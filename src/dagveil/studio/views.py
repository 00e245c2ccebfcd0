"""What a visitor is told of what the library knows: public facts, rounded towards privacy; and files to take along."""

import io
import json
import re
import tomllib
import zipfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import tomli_w
from pyarrow import csv

from dagveil.data.draft import DATES
from dagveil.data.schema import Schema, schema_from_toml, schema_to_toml
from dagveil.errors import DataError, MethodError, SchemaError
from dagveil.evidence.bundle import Evidence
from dagveil.local.collector import Refused
from dagveil.methods.method import method_named
from dagveil.plans.plan_file import MeasurementPlan
from dagveil.plans.planning import forecast_plan, plan_measurement, work_at_site, work_of_search
from dagveil.privacy.budget import Budget, round_down, round_up
from dagveil.privacy.ledger import account as books
from dagveil.privacy.ledger.account import RunRecord
from dagveil.privacy.noise.kind import DEFAULT_NOISE
from dagveil.report.certification import build_pack
from dagveil.report.registry import NEEDED, DeploymentFacts, read_fact
from dagveil.runs.cost import describe_bytes, describe_seconds, estimate_cost, work_of_run
from dagveil.runs.machine_speed import load_speed
from dagveil.runs.result import Result
from dagveil.runs.run import schema_knowledge
from dagveil.runs.synthesis import synthesize
from dagveil.studio import responses
from dagveil.studio.folder import DataFile, SchemaState
from dagveil.studio.jobs import STOPPED, Job, JobKind, JobState, is_kept
from dagveil.studio.responses import Charge

Shown = TypeVar("Shown", bound=msgspec.Struct)

NOTHING: Final = Charge(epsilon="0", delta="0", releases=[], words="nothing was drawn, and nothing is charged")

_FREE: Final = {
    JobKind.SEARCH: "a search over released evidence costs nothing",
    JobKind.EXPLORATION: "synthetic tables cost nothing, and no row was read",
}


def show_charge(job: Job, run: RunRecord | None, ledger: str) -> Charge:
    """Tell what a job has cost according to the ledger. `ledger` is the one that the studio uses now."""
    if job.order.kind is not JobKind.RUN:
        return _nothing(_FREE[job.order.kind])
    if job.order.ledger != ledger:
        words = f"what it has charged stands in another ledger: {job.order.ledger}"
        return Charge(epsilon="?", delta="?", releases=[], words=words)
    if run is not None and run.events:
        epsilon, delta = round_up(run.budget.epsilon, 4), round_up(run.budget.delta, 4)
        words = f"charged epsilon {epsilon}, delta {delta}: the run's whole reservation, since noise was drawn"
        return Charge(epsilon=epsilon, delta=delta, releases=describe_releases(run), words=words)
    if job.state.ended:
        return NOTHING
    return _nothing("nothing is charged yet" if run is None else "reserved, and nothing is drawn yet")


def _nothing(words: str) -> Charge:
    return msgspec.structs.replace(NOTHING, words=words)


def show_job(job: Job, run: RunRecord | None, place: Path, ledger: str) -> responses.JobFacts:
    """Show a job. `place` is the folder of its files."""
    order = job.order
    return copy_facts(
        responses.JobFacts,
        *(job, order),
        kind=order.kind.value,
        state=job.state.value,
        dataset=order.table,
        name=order.dataset,
        cancelling=job.cancelling and not job.state.ended,
        charge=show_charge(job, run, ledger),
        has_result=job.state is JobState.DONE and (place / "result.json").exists(),
        has_evidence=job.state.ended and (order.evidence is not None or (place / "evidence.json").exists()),
        has_exploration=job.state is JobState.DONE and (place / "exploration.json").exists(),
        can_finish=job.state in STOPPED and is_kept(place, run),
        evidence_of=order.evidence,
    )


def copy_facts(answer: type[Shown], /, *sources: object, **others: Any) -> Shown:
    """Return an answer whose fields are those of the first source that has them, but for the others."""
    names = [name for name in answer.__struct_fields__ if name not in others]
    found = {name: next(getattr(one, name) for one in sources if hasattr(one, name)) for name in names}
    return answer(**found, **others)


def show_dataset(table: DataFile, account: books.Account | None) -> responses.Dataset:
    """Show a data set with its account; of an unreviewed schema only what was not read from the rows."""
    schema = table.schema
    declared = table.state is SchemaState.REVIEWED
    return responses.Dataset(
        id=table.id,
        file=table.file,
        has_rows=table.has_rows,
        schema_file=table.schema_path.name,
        schema_state=table.state.value,
        name=None if schema is None else schema.dataset,
        **{name: getattr(schema, name, None) for name in ("unit", "protected", "relation", "nominal_rows")},
        public=schema is not None and schema.public,
        columns=[show_column(name, column, declared) for name, column in (schema.columns if schema else {}).items()],
        ignored=list(schema.ignore) if schema else [],
        doubts=read_doubts(table.schema_bytes().decode("utf-8-sig")) if table.state is SchemaState.DRAFT else {},
        account=None if account is None else show_account(account),
    )


def show_run(run: RunRecord, job: str | None) -> responses.LedgerEntry:
    """Show a run of the ledger, with the job that made it if it was one of this studio's."""
    return copy_facts(
        responses.LedgerEntry,
        run,
        run=run.id,
        state=f"{run.state.value}, unbounded" if run.unbounded else run.state.value,
        epsilon=round_up(run.budget.epsilon, 4),
        delta=round_up(run.budget.delta, 4),
        releases=describe_releases(run),
        job=job,
    )


def show_column(name: str, column: msgspec.Struct, declared: bool) -> responses.DeclaredColumn:
    """Show a column; levels and bounds of a draft were read from the data, so they stay in its file."""
    facts: dict[str, Any] = msgspec.to_builtins(column)
    kind = str(facts.pop("kind"))
    shown = {key: value for key, value in facts.items() if value is not None} if declared else {}
    return responses.DeclaredColumn(name=name, kind=kind, facts=shown)


def show_account(account: books.Account) -> responses.Account:
    """Show what a data set has spent."""
    budget, left, spending = account.budget, account.left, account.spending
    return responses.Account(
        budget_epsilon=None if budget is None else round_up(budget.epsilon, 4),
        budget_delta=None if budget is None else round_up(budget.delta, 4),
        spent_epsilon=round_up(account.spent_epsilon, 4),
        spent_delta=round_up(spending.spent.delta, 4),
        reserved_epsilon=round_up(spending.reserved.epsilon, 4),
        reserved_delta=round_up(spending.reserved.delta, 4),
        left_epsilon=None if budget is None else "0" if left is None else round_down(left.epsilon, 4),
        left_delta=None if budget is None else "0" if left is None else round_down(left.delta, 4),
        composed=budget is not None and left is not None and left.epsilon > budget.epsilon - account.lifetime_epsilon,
        spent_share=None if budget is None else float(account.lifetime_epsilon / budget.epsilon),
        runs=account.runs,
        unbounded=account.unbounded,
        words=account.words,
    )


def describe_releases(run: RunRecord) -> list[str]:
    """Name the releases of a run."""
    return [
        label if (times := len(list(same))) == 1 else f"{label} ×{times}"
        for label, same in groupby(event.label for event in run.events)
    ]


SHORTEST = 0.01  # seconds below which nobody cares
ADAPTIVE = (
    "This method chooses each question by the answers before it, so its questions are not known beforehand. It never "
    "spends more than the budget: it stops and returns what it has."
)
SINGLE = (
    "The stages are those of a plan that is fixed before any row is read. The run itself may choose its last questions "
    "by its first answers, within the same budget."
)


def forecast_run(schema: Schema, method: str, budget: Budget, redraws: int) -> responses.PlanFacts:
    """Tell what a run would ask and take."""
    chosen = method_named(method)
    settings = chosen.read_settings({})
    knowledge = schema_knowledge(schema)
    chosen.check(schema, knowledge)
    accounting = chosen.accounting(budget, schema, settings, knowledge)
    words = [f"Accounting: {accounting.name}.", f"How it spends: {chosen.cost}."]
    plan: MeasurementPlan | None = None
    if chosen.release is None:
        words.append(ADAPTIVE)
    else:
        try:
            plan = plan_measurement(schema, budget.epsilon, budget.delta, method=method)
            words.append(SINGLE)
        except MethodError as error:
            words.append(f"No plan can be fixed beforehand: {error}.")
    speed = load_speed()[0]
    if plan is None:
        work = work_of_run(schema, chosen, accounting, settings, knowledge, redraws=redraws)
        steps = estimate_cost(work, speed).steps
    else:
        site = estimate_cost(work_at_site(plan, plan.sites[0], DEFAULT_NOISE), speed)
        steps = (*site.steps[:4], *estimate_cost(work_of_search(plan, redraws), speed).steps[4:])
    stages = [
        copy_facts(responses.PlannedStage, stage, ask, share=float(stage.share), numbers=stage.cells)
        for stage, ask in (() if plan is None else zip(forecast_plan(plan), plan.asks, strict=True))
    ]
    shortest = f"under {describe_seconds(SHORTEST)}"
    return responses.PlanFacts(
        method=method,
        epsilon=str(budget.epsilon),
        delta=str(budget.delta),
        questions=None if plan is None else sum(stage.tables for stage in stages),
        noise="not known beforehand" if plan is None else plan.noise.value,
        stages=stages,
        steps=[
            responses.PlannedStep(
                step=step.name,
                time=describe_seconds(step.seconds) if step.seconds >= SHORTEST else shortest,
                memory=describe_bytes(step.memory),
            )
            for step in steps
        ],
        words=words,
    )


OUTLINE: Final = (
    "# Levels and bounds of the draft were read from the data, so they are not shown here. Declare what is public\n"
    "# knowledge, and set reviewed = true. To leave a column out, delete its section and name it under ignore.\n"
)

_LOOK: Final = re.compile(r'# look at ("(?:[^"\\]|\\.)*"): (.*)')
_KEY: Final = re.compile(r"\s*([A-Za-z_]+)\s*=")
_TO_DECLARE: Final = {"categorical": "levels", "ordinal": "levels", "numeric": "bounds"}

_DOUBTS: Final = (
    ("dates or times", DATES),
    (
        "spellings of",
        "a level has several spellings: make them the same in the data, or declare `spellings` in the text",
    ),
    ("became levels", "too many different texts to be levels: group them in the data, or leave the column out"),
    ("in these rows", "it hardly varies in these rows: is it the column that you meant?"),
    ("missing values", "it has missing values: say where they go"),
)
_UNFIT: Final = "looks like names of records or persons: left out"
_OTHER: Final = "something is odd about it: `dagveil schema draft` at the command line says what"


def read_schema(text: str) -> Schema:
    """Read a schema, or say on which line it is wrong."""
    try:
        return schema_from_toml(text)
    except SchemaError as error:
        line = _find_line(text, str(error))
        raise SchemaError(str(error) if line is None else f"line {line}: {error}") from None


def is_same_text(text: str, content: bytes) -> bool:
    """Say whether a text is that of a file, as far as an editor can tell: not by its line ends or byte order mark."""
    try:
        return _lines(content.decode("utf-8-sig")) == _lines(text)
    except UnicodeDecodeError:
        return False


def outline_draft(draft: Schema) -> str:
    """Return a draft without anything that was read from cells: what is left is for a person to fill in."""
    document: dict[str, Any] = tomllib.loads(schema_to_toml(draft))
    document["columns"] = {
        name: {"kind": column["kind"], **({wanted: []} if (wanted := _TO_DECLARE.get(column["kind"])) else {})}
        for name, column in document["columns"].items()
    }
    return OUTLINE + tomli_w.dumps(document)


def write_draft(draft: Schema, doubts: Mapping[str, str]) -> str:
    """Return the text of a draft, with what to look at in its first lines; these hold no cell and no count."""
    text = schema_to_toml(draft)
    header, _, rest = text.partition("\n")
    told = {name: _describe(doubt, name in draft.ignore) for name, doubt in doubts.items()}
    return "\n".join([header, *(f"# look at {json.dumps(name)}: {words}" for name, words in told.items()), rest])


def read_doubts(text: str) -> dict[str, str]:
    """Return what `write_draft` wrote about columns."""
    found = {}
    for line in text.split("\n"):
        if not line.startswith("#"):
            break
        if look := _LOOK.fullmatch(line):
            found[str(json.loads(look[1]))] = look[2]
    return found


def _describe(doubt: str, left_out: bool) -> str:
    """Say a doubt without the values and counts that it may quote."""
    known = next((words for part, words in _DOUBTS if part in doubt), None)
    if left_out:
        return DATES if known == DATES else _UNFIT
    return known or _OTHER


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _find_line(text: str, message: str) -> int | None:
    """Return the line that an error is about, as far as it can be found."""
    if " line " in message or message.startswith("line "):
        return None  # it says so itself
    place: tuple[str, ...] = ()
    section: int | None = None
    for number, line in enumerate(_lines(text).split("\n"), start=1):
        if line.lstrip().startswith("["):
            place = _read_header(line)
            if _is_about(message, place) and section is None:
                section = number
        elif _is_about(message, place) and (key := _KEY.match(line)):
            words = re.split(r"[^A-Za-z_]+", message.removeprefix(".".join(place)))
            if key[1] in words:
                return number
    return section


def _read_header(line: str) -> tuple[str, ...]:
    try:
        inner: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    place: list[str] = []
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        place.append(name)
    return tuple(place)


def _is_about(message: str, place: tuple[str, ...]) -> bool:
    if place[:1] == ("columns",):
        return len(place) > 1 and message.startswith(f"columns.{place[1]}: ")
    return len(place) == 1 and (message.startswith(f"{place[0]}.") or f"`{place[0]}" in message)


_MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold; when a file was made stands inside it


def zip_synthetic(evidence: Evidence, rows: int, seed: int) -> bytes:
    """Draw synthetic rows; what the model leaves out is told beside them."""
    drawn = synthesize(evidence, rows, seed=seed)
    table = io.BytesIO()
    csv.write_csv(drawn.table, table)
    notes = "\n".join(("Synthetic rows, drawn from released evidence. No record is real.", *drawn.notes, ""))
    files = {"synthetic.csv": table.getvalue(), "synthetic.toml": schema_to_toml(drawn.schema).encode()}
    return _zip({**files, "notes.txt": notes.encode()})


def zip_certification(result: Result, facts: DeploymentFacts) -> bytes:
    """Write the certification pack, unsigned."""
    return _zip(build_pack(result, facts))


def list_facts(kept: DeploymentFacts) -> dict[str, dict[str, str]]:
    """Return what a form asks: the facts that are needed with their questions, then the others; each with its value."""
    found = {}
    for name in sorted(kept.__struct_fields__, key=lambda name: name not in NEEDED):
        value = getattr(kept, name)
        said = "; ".join(value) if isinstance(value, tuple) else value
        found[name] = {"ask": NEEDED.get(name, name.replace("_", " ").capitalize()), "said": said}
    return found


def read_facts(place: Path) -> DeploymentFacts:
    """Read the facts that are kept beside a schema."""
    try:
        return msgspec.convert(tomllib.loads(place.read_text(encoding="utf-8")), DeploymentFacts)
    except FileNotFoundError:
        return DeploymentFacts()
    except (OSError, ValueError) as error:
        raise DataError(f"{place.name} cannot be read; correct it, or move it away") from error


def write_facts(given: Mapping[str, str]) -> str:
    """Return facts as they are kept, or say what is missing."""
    try:
        facts = msgspec.convert({name: read_fact(name, value) for name, value in given.items()}, DeploymentFacts)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong layout", str(error)) from None
    if missing := facts.missing():
        raise Refused(422, "missing", " ".join(("Not answered yet:", *(NEEDED[name] for name in missing))))
    return tomli_w.dumps(msgspec.to_builtins(facts))


def _zip(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, content in files.items():
            folder.writestr(zipfile.ZipInfo(name, _MOMENT), content)
    return packed.getvalue()

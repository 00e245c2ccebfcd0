"""One run: what is settled before rows are touched, the reservation, the one curator, and the receipt after.

Every way of spending budget goes through `open_run`.
"""

import enum
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypedDict

import msgspec

from dagveil._version import __version__
from dagveil.curator import Curator
from dagveil.data.engine import Engine, Rows, choose_engine
from dagveil.data.ids import KEY_BYTES
from dagveil.data.schema import Schema, load_toml, parse_toml
from dagveil.data.table import Table
from dagveil.data.weighed import ONLY_LINEAR
from dagveil.errors import KnowledgeError, MethodError, UnreviewedSchemaError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import Method, method_origin
from dagveil.privacy.budget import Budget, Relation, round_up
from dagveil.privacy.events import Event, ExponentialChoice, Filter, PureFilter
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import WAIT_SECONDS, Ledger, LedgerRun, MemoryLedger
from dagveil.privacy.noise.kind import DEFAULT_NOISE, NoiseKind, noise_source
from dagveil.privacy.noise.opendp import OpendpNoise
from dagveil.privacy.noise.source import NoiseSource
from dagveil.privacy.receipt import SEEDED, Calibration, Receipt
from dagveil.progress import Progress
from dagveil.runs.cost import Work, check_fits, work_of_reading, work_of_run
from dagveil.runs.machine_speed import Speed
from dagveil.runs.recovery import open_curator


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    tiers: tuple[tuple[str, ...], ...] = ()
    forbidden: frozenset[tuple[str, str]] = frozenset()
    required: frozenset[tuple[str, str]] = frozenset()


def load_knowledge(path: str | Path) -> Knowledge:
    """Read `tiers`, `forbidden` and `required`, at the top of the file or under [knowledge] as in a schema."""
    document = load_toml(path, KnowledgeError, "the knowledge", "give the path of a knowledge file")
    return _read(document, f"the knowledge in {path}")


def knowledge_from_toml(text: str) -> Knowledge:
    """Read background knowledge from the text of such a file."""
    return _read(parse_toml(text, KnowledgeError, "the knowledge"), "the knowledge")


def _read(document: dict[str, Any], what: str) -> Knowledge:
    # a schema declares columns beside its knowledge, and may declare no knowledge at all
    content = document.get("knowledge", {} if "columns" in document else document)
    try:
        parsed = msgspec.convert(content, _Content)
    except msgspec.ValidationError as error:
        raise KnowledgeError(
            f"{what} cannot be read: {error}. tiers is a list of lists of columns, forbidden and required are lists of "
            "pairs [cause, effect]"
        ) from error
    return Knowledge(parsed.tiers, parsed.forbidden, parsed.required)


LEDGER_VARIABLE: Final = "DAGVEIL_LEDGER"


class UnnamedLedger(enum.Enum):
    """What the argument `ledger` is where a call leaves it out. None is another answer: no ledger."""

    DEFAULT = "default_ledger()"

    def __repr__(self) -> str:
        return self.value


LedgerPlace = Ledger | str | Path | UnnamedLedger | None  # a ledger, its path or URL, the default one, or none


def default_ledger() -> str:
    """Return the ledger that is used when none is named: $DAGVEIL_LEDGER, or a file in the user's data folder."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return os.environ.get(LEDGER_VARIABLE) or str(folder / "dagveil" / "ledger.sqlite")


def open_private(place: str, wait_seconds: float = WAIT_SECONDS) -> Ledger:
    """Open a ledger; a new one is for its owner alone."""
    before = os.umask(0o077)
    try:
        return Ledger.open(place, wait_seconds)
    finally:
        os.umask(before)


def find_left(ledger: LedgerPlace, dataset: str) -> Fraction | None:
    """Return the epsilon that is left of a data set's lifetime budget; None where no ledger or no budget is known."""
    if ledger is UnnamedLedger.DEFAULT:
        ledger = default_ledger()
    if isinstance(ledger, str | Path):
        # to look is not to make one
        ledger = Ledger.open(ledger) if "://" in str(ledger) or Path(ledger).exists() else None
    if ledger is None or (account := ledger.account(dataset)).budget is None:
        return None
    return Fraction(0) if account.left is None else account.left.epsilon


def open_books(ledger: LedgerPlace, schema: Schema) -> Ledger | None:
    """Open the ledger of a run; None if nothing is to be recorded: at the caller's word, or by default if public."""
    if ledger is UnnamedLedger.DEFAULT:
        return None if schema.public else open_private(default_ledger())
    return ledger if ledger is None or isinstance(ledger, Ledger) else Ledger.open(ledger)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRun:
    """A run whose schema, knowledge and ledger have been checked."""

    source: Rows
    schema: Schema
    budget: Budget
    relation: Relation
    knowledge: Knowledge
    noise: NoiseSource
    books: Ledger
    recorded: bool
    method: Method
    accounting: Filter
    calibration: Calibration
    key: bytes = b""  # decides which records of a person count, where the schema leaves that to a hash

    def __repr__(self) -> str:
        return f"PreparedRun({self.schema.dataset!r}, {self.budget.words})"

    def table(self, key: bytes | None = None) -> Table:
        """Open the rows; only a curator may hold what comes back. A run that is finished brings its first key."""
        return self.source.open(self.schema, self.key if key is None else key)

    def reserve(self) -> LedgerRun:
        """Reserve the whole budget in the ledger."""
        terms = Terms.of(self.relation, self.schema.protected)
        software = f"dagveil {__version__}"
        return self.books.reserve(
            self.schema.dataset, self.budget, terms, self.accounting.name, self.method.name, software
        )

    def check_guarded(self) -> None:
        """Refuse a run without a guarantee, as published or seeded, on data whose budget someone keeps."""
        if self.calibration is Calibration.SOUND and self.noise.private:
            return
        guarded = self.books.account(self.schema.dataset).budget is not None
        if guarded and not self.schema.public:
            sound = self.calibration is Calibration.SOUND
            what = "a run with seeded noise" if sound else f"the {self.calibration.value} calibration"
            raise MethodError(
                f"{self.schema.dataset!r} has a lifetime budget, and {what} claims no guarantee: after it no total "
                "could be stated any more. Use the sound calibration and real noise. If anyone may see the rows, "
                "declare the data set public in the schema. Or accept that (--accept-no-guarantee, in Python "
                "accept_no_guarantee=True), and the ledger records the run as unbounded."
            )

    def _name_noise(self, events: tuple[Event, ...]) -> str:
        """Name what drew: OpenDP draws noise; choices, orders and sub-samples come from the exact sampler."""
        choices = [isinstance(event, ExponentialChoice) for event in events]
        if not isinstance(self.noise, OpendpNoise) or not (self.noise.was_helped or any(choices)):
            return self.noise.name
        return self.noise.helper if all(choices) else f"{self.noise.name}; random choices: {self.noise.helper}"

    def receipt(self, events: tuple[Event, ...]) -> Receipt:
        """Write the receipt."""
        schema, accounting, method = self.schema, self.accounting, self.method
        sound = self.calibration is Calibration.SOUND
        facts = [
            f"the {len(schema.columns)} column names, kinds, levels, bounds, bins, centers and spreads of the schema"
        ]
        if self.relation is Relation.REPLACE_ONE:
            facts.append("the number of rows" if schema.person is None else "the number of persons")
        if self.knowledge != Knowledge.none():
            facts.append("the background knowledge (tiers, forbidden and required edges)")
        warnings = []
        if not self.noise.private:
            warnings.append(SEEDED)
        if not self.recorded and not schema.public:
            warnings.append("the run was not recorded in any ledger: nothing keeps count of what this data set spends")
        if not schema.reviewed:
            warnings.append(
                "the schema was accepted as an unreviewed draft: its levels and bounds were read from the data"
            )
        # a share of the filter's total, not an epsilon: only the total was fixed before the run
        used = round_up(100 * accounting.spent / accounting.total, 4) if accounting.spent else "0"
        return Receipt(
            calibration=self.calibration,
            epsilon=str(self.budget.epsilon),
            delta=str(self.budget.delta),
            spent=f"{used} % of the run's budget" if sound else "not known: nothing bounds it",
            relation=self.relation,
            unit=schema.unit if schema.person is None else schema.person_word,
            per_person=schema.person is not None,
            nominal_rows=schema.nominal_rows,
            accounting=accounting.name if sound else f"none: it follows {self.calibration.words}",
            accounting_total=str(accounting.total),
            accounting_spent=str(accounting.spent),
            dataset=schema.dataset,
            software=f"dagveil {__version__}",
            noise=self._name_noise(events) if sound else "floating point, as published",
            events=events,
            public_facts=tuple(facts),
            warnings=tuple(warnings),
            # package and version that bring the method, if dagveil does not
            plugin=None if method.release is None and method.ask is None else method_origin(method.name),
        )


class RunOptions(TypedDict, total=False):
    """What every run takes, whatever it asks: one list for Python, the command line, the studio and the benches."""

    ledger: LedgerPlace
    """Where the charge is written: a ledger, its path or its URL. Left out, it is the one that the command line uses,
    `default_ledger()`; for data that the schema calls public, none. None records nothing: for simulated data."""

    noise: NoiseKind
    """Where noise comes from."""

    seed: int | None
    """For `NoiseKind.SEEDED` only: tests and benchmarks. The result then says that it is not private."""

    accept_draft: bool
    """Take an unreviewed schema; the receipt then says so."""

    accept_no_guarantee: bool
    """Let a run with seeded noise, or one as published, touch a data set that has a budget and is not public."""

    engine: Engine | str
    """Where rows are held and counted: in memory while files are small, or else by DuckDB; answers are the same."""

    memory_limit: str | int | None
    """Such as 8GB, for engines that do not hold the rows."""

    recovery: str | Path | None
    """A file that keeps every answer as it is released: if the run stops, the same call finishes it at no further
    cost. Delete it once you have saved the evidence. Nothing is kept without a ledger or with seeded noise."""

    progress: Progress
    """Told what is being done."""


@contextmanager
def open_run(
    source: Any,
    schema: Schema,
    budget: Budget,
    method: Method,
    settings: object,
    *,
    knowledge: Knowledge | None = None,
    calibration: Calibration = Calibration.SOUND,
    accounting: Filter | None = None,
    redraws: int = 0,
    work: Work | None = None,
    run: RunOptions,
) -> Iterator[tuple[PreparedRun, Curator]]:
    """Check everything that needs no rows, reserve, hand out the one curator, and close when all is released.

    `redraws` are those of the search that is to follow: a run that would not fit into memory is refused before it
    spends. What is None is found here: knowledge in the schema, accounting by the method, work by forecast.
    """
    if unknown := sorted(set(run) - RunOptions.__annotations__.keys()):
        raise MethodError(
            f"a run has no option {', '.join(unknown)}; it has {', '.join(RunOptions.__annotations__)}. Settings of a "
            "method go into `options`"
        )
    check_reviewed(schema, accept_draft=run.get("accept_draft", False))
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    method.check_schema(schema, knowledge)
    if schema.records == "weigh" and calibration is not Calibration.SOUND:
        raise MethodError(f"the {calibration.value} calibration cannot take this schema: {ONLY_LINEAR}")
    kind = NoiseKind(run.get("noise", DEFAULT_NOISE))
    noise = noise_source(kind, run.get("seed"))
    books = open_books(run.get("ledger", UnnamedLedger.DEFAULT), schema)
    rows = choose_engine(source, run.get("engine", Engine.AUTO), run.get("memory_limit"))
    sound = calibration is Calibration.SOUND
    if accounting is None:
        accounting = method.accounting(budget, schema, settings, knowledge) if sound else PureFilter(budget)
    if sound and isinstance(accounting, PureFilter):
        budget = Budget(budget.epsilon, Fraction(0))  # plain addition uses no delta, and promises more
    # nobody can foresee which records of a person count, unless seeded
    key = b"" if schema.person is None else secrets.token_bytes(KEY_BYTES)
    if key and kind is NoiseKind.SEEDED:
        key = hashlib.sha256(f"records of persons {run.get('seed')}".encode()).digest()
    prepared = PreparedRun(
        rows,
        schema,
        budget,
        Relation(schema.relation),
        knowledge,
        noise,
        MemoryLedger() if books is None else books,
        recorded=books is not None,
        method=method,
        accounting=accounting,
        calibration=calibration,
        key=key,
    )
    if not run.get("accept_no_guarantee", False):
        prepared.check_guarded()
    if work is None and sound:
        work = work_of_run(schema, method, accounting, settings, knowledge, redraws=redraws)
    work = replace(work or work_of_reading(schema), noise=kind, held=rows.held, engine=rows.engine)
    check_fits(work, Speed())  # memory does not hang on how fast the machine is
    with open_curator(prepared, settings, run.get("recovery")) as curator:
        yield prepared, curator


def check_reviewed(schema: Schema, *, accept_draft: bool) -> None:
    """Refuse a schema that nobody has reviewed, unless its draft is accepted as it is."""
    if not schema.reviewed and not accept_draft:
        raise UnreviewedSchemaError(
            f"the schema of {schema.dataset!r} is unreviewed: its levels and bounds were read from the data and may "
            "give records away. Check them, set reviewed = true, or accept the draft as it is (--accept-draft)."
        )


def schema_knowledge(schema: Schema) -> Knowledge:
    """Return the background knowledge that a schema declares."""
    return Knowledge(schema.tiers, frozenset(schema.forbidden), frozenset(schema.required))

"""One run: everything that is settled before rows are touched, and the receipt after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dagveil._version import __version__
from dagveil.data.engine import Rows, choose_engine
from dagveil.data.schema import Schema, load_schema
from dagveil.data.table import Table
from dagveil.errors import MethodError, UnreviewedSchemaError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import Method
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.events import Event, ExponentialChoice
from dagveil.privacy.filter import Filter, PureFilter
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import Ledger, LedgerRun
from dagveil.privacy.ledger.memory import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.opendp import OpendpNoise
from dagveil.privacy.noise.source import NoiseSource
from dagveil.privacy.receipt import SEEDED, Calibration, Receipt
from dagveil.privacy.relation import Relation
from dagveil.runs.default_ledger import LedgerPlace, open_books


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
    plugin: str | None = None
    """Package and version that bring the method, if dagveil does not."""

    def __repr__(self) -> str:
        return f"PreparedRun({self.schema.dataset!r}, {self.budget.words})"

    def table(self) -> Table:
        """Open the rows; only a curator may hold what comes back."""
        return self.source.open(self.schema)

    def charged_by(self, accounting: Filter) -> PreparedRun:
        """Return the run with the delta that the accounting uses: plain addition uses none, and promises more."""
        if not isinstance(accounting, PureFilter):
            return self
        return replace(self, budget=Budget(self.budget.epsilon, Fraction(0)))

    def reserve(self, method: Method, accounting: Filter) -> LedgerRun:
        """Reserve the whole budget in the ledger."""
        terms = Terms.of(self.relation, self.schema.unit)
        software = f"dagveil {__version__}"
        return self.books.reserve(self.schema.dataset, self.budget, terms, accounting.name, method.name, software)

    def check_guarded(self, calibration: Calibration, *, accept_no_guarantee: bool) -> None:
        """Refuse a run without a guarantee, as published or seeded, on data whose budget someone keeps."""
        if calibration is Calibration.SOUND and self.noise.private:
            return
        guarded = self.books.account(self.schema.dataset).budget is not None
        if guarded and not self.schema.public and not accept_no_guarantee:
            what = "the paper calibration" if calibration is Calibration.PAPER else "a run with seeded noise"
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

    def receipt(
        self, accounting: Filter, events: tuple[Event, ...], calibration: Calibration = Calibration.SOUND
    ) -> Receipt:
        """Write the receipt."""
        schema = self.schema
        sound = calibration is Calibration.SOUND
        facts = [
            f"the {len(schema.columns)} column names, kinds, levels, bounds, bins, centers and spreads of the schema"
        ]
        if self.relation is Relation.REPLACE_ONE:
            facts.append("the number of rows")
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
            calibration=calibration,
            epsilon=str(self.budget.epsilon),
            delta=str(self.budget.delta),
            spent=f"{used} % of the run's budget" if sound else "not known: nothing bounds it",
            relation=self.relation,
            unit=schema.unit,
            nominal_rows=schema.nominal_rows,
            accounting=accounting.name if sound else "none: as published",
            accounting_total=str(accounting.total),
            accounting_spent=str(accounting.spent),
            dataset=schema.dataset,
            software=f"dagveil {__version__}",
            noise=self._name_noise(events) if sound else "floating point, as published",
            events=events,
            public_facts=tuple(facts),
            warnings=tuple(warnings),
            plugin=self.plugin,
        )


def prepare_run(
    source: Any,
    schema: Schema | str | Path,
    budget: Budget,
    method: Method,
    ledger: LedgerPlace,
    noise: NoiseKind,
    seed: int | None,
    accept_draft: bool,
    knowledge: Knowledge | None,
    plugin: str | None = None,
) -> PreparedRun:
    """Check everything that can be checked without the rows; parameters as in `measure_source` and `PreparedRun`."""
    if not isinstance(schema, Schema):
        schema = load_schema(schema)
    check_reviewed(schema, accept_draft=accept_draft)
    knowledge = schema_knowledge(schema) if knowledge is None else knowledge
    method.check(schema, knowledge)
    draws = noise_source(noise, seed)
    books = open_books(ledger, schema)
    return PreparedRun(
        choose_engine(source),
        schema,
        budget,
        Relation(schema.relation),
        knowledge,
        draws,
        MemoryLedger() if books is None else books,
        recorded=books is not None,
        plugin=plugin,
    )


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

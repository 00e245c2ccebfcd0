"""The plan of a measurement as a public file: what is asked of each site, fixed before any row is read.

Several custodians who follow the same plan release answers to the same questions, so that their evidence can be added.
"""

import enum
import hashlib
import math
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec

from dagveil.data.column import Numeric, Ordinal
from dagveil.data.mixed import MixedPlan
from dagveil.data.moments import FeaturePlan, MomentPlan
from dagveil.data.schema import MOST_ROWS, Schema
from dagveil.errors import MethodError, SchemaError
from dagveil.evidence.bundle import Study
from dagveil.files import Document, SavedRecord, encode_json
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, Filter, PureFilter, tightest_filter
from dagveil.text import write_html_lines, write_html_table

PLAN_FORMAT = "dagveil-plan"
PLAN_VERSION = 2  # version of the JSON; readers refuse others
# what a schema says about one site's table alone, replaced by the same words for all sites
_OWN_FACTS: dict[str, Any] = {"dataset": "any", "nominal_rows": None, "reviewed": True, "public": False}


class NoiseLaw(enum.Enum):
    """Law of the noise, and with it the accounting."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"

    def filter(self, budget: Budget) -> Filter:
        """Return the filter that pays for noise of this law."""
        return PureFilter(budget) if self is NoiseLaw.LAPLACE else tightest_filter(budget, [DiscreteGaussian])


class _Asked(msgspec.Struct, frozen=True, tag_field="kind"):
    """What every question has: its stage, its share of the budget, and why it is asked."""

    stage: str
    share: Fraction
    why: str


class AskTables(_Asked, frozen=True, tag="tables"):
    """Release the tables of counts of these sets of columns, with this share of the budget."""

    sets: tuple[tuple[str, ...], ...]


class AskMargins(_Asked, frozen=True, tag="margins"):
    """Release the number of rows, and what the one-way tables of these columns hold beyond it."""

    columns: tuple[str, ...]


class AskInteractions(_Asked, frozen=True, tag="interactions"):
    """Release what the tables of these pairs or triples hold beyond their margins."""

    sets: tuple[tuple[str, ...], ...]


class AskMoments(_Asked, frozen=True, tag="moments"):
    """Release the second moments of scaled rows."""

    rows: MomentPlan


class AskFeatures(_Asked, frozen=True, tag="features"):
    """Release the second moments of features."""

    rows: FeaturePlan


class AskMixed(_Asked, frozen=True, tag="mixed"):
    """Release the second moments of levels beside numbers."""

    rows: MixedPlan


AskMatrix = AskMoments | AskFeatures | AskMixed
Ask = AskTables | AskMargins | AskInteractions | AskMatrix


class PlannedSite(msgspec.Struct, frozen=True):
    """One custodian: a name, what its run may spend, and its public number of rows."""

    name: str
    epsilon: Fraction
    delta: Fraction
    nominal_rows: int

    @property
    def budget(self) -> Budget:
        """What the site's run may spend."""
        return Budget(self.epsilon, self.delta)


class MeasurementPlan(SavedRecord, frozen=True):
    """Everything that custodians agree on before anyone looks at rows.

    A site's own schema may differ in the data set's name, the nominal rows and whether they are public. Asks are in
    order, with their shares of each site's budget.

    `second` holds the sites with their budgets of a second round, if one was agreed on: those of `sites` are then the
    first round's. `after` is the digest of the first round's plan, in the plan of a second one.
    """

    format: Literal["dagveil-plan"]
    version: int
    software: str
    created: str
    schema: Schema
    method: str
    settings: dict[str, Any]
    noise: NoiseLaw
    sites: tuple[PlannedSite, ...]
    asks: tuple[Ask, ...]
    second: tuple[PlannedSite, ...] = ()
    after: str | None = None

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.schema.dataset

    @property
    def study(self) -> Study:
        """What evidence says about the plan that it follows."""
        return Study(self.name, self.digest(), tuple(site.name for site in self.sites), self.after)

    def digest(self) -> str:
        """Return the SHA-256 of all that decides what is released: equal plans have equal digests."""
        fields = {
            "study": self.name,
            "schema": digest_questions(self.schema),
            "method": self.method,
            "settings": self.settings,
            "noise": self.noise,
            "sites": self.sites,
            "asks": self.asks,
            **({"second": self.second} if self.second else {}),
            **({"after": self.after} if self.after is not None else {}),
        }
        plain = msgspec.json.decode(encode_json(fields))
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()

    def site_named(self, name: str | None) -> PlannedSite:
        """Return a site; the name may be left out if there is one only."""
        if name is None and len(self.sites) == 1:
            return self.sites[0]
        known = ", ".join(site.name for site in self.sites)
        if name is None:
            raise MethodError(f"the plan has {len(self.sites)} sites; say which one this is (--site): {known}")
        for site in self.sites:
            if site.name == name:
                return site
        late = " A second round is for the sites of the first alone: sums over other rows do not go together."
        raise MethodError(f"the plan has no site {name!r}; its sites are {known}.{late if self.after else ''}")

    def _repr_html_(self) -> str:
        """Show in a notebook what is asked of each site, and how noisy the answers will be."""
        from dagveil.plans.planning import forecast_plan  # it makes plans

        each = (f"{site.name}: {site.budget.words}, {site.nominal_rows} nominal rows" for site in self.sites)
        lines = (f"Plan of {self.name} for {self.method}, from public facts alone.", f"{'; '.join(each)}.")
        stages = (
            (stage.stage, f"{float(stage.share):.1%}", stage.tables, stage.cells, stage.noise, ask.why)
            for stage, ask in zip(forecast_plan(self), self.asks, strict=True)
        )
        return write_html_lines(lines) + write_html_table(
            ("Stage", "Share of epsilon", "Tables", "Numbers", "Noise (deviation)", "Why"), stages
        )


def digest_questions(schema: Schema) -> str:
    """Return the digest of all that a schema has in common with those of other sites."""
    return msgspec.structs.replace(schema, **_OWN_FACTS).digest()


def check_same_questions(own: Schema, agreed: Schema) -> None:
    """Refuse a schema under which the plan's questions would mean something else, and say where it differs."""
    if digest_questions(own) == digest_questions(agreed):
        return
    if apart := sorted(set(own.columns) ^ set(agreed.columns)):
        what = f"only one of the two has {', '.join(apart)}"
    elif different := [name for name in own.columns if own.columns[name] != agreed.columns[name]]:
        what = f"it declares {', '.join(different)} otherwise"
    else:
        others = ("relation", "unit", "tiers", "forbidden", "required")
        what = "it differs in " + ", ".join(name for name in others if getattr(own, name) != getattr(agreed, name))
    raise SchemaError(
        f"the schema of {own.dataset!r} is not that of the plan: {what}; use the schema that was agreed on"
    )


def list_sets(ask: Ask) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns that a stage asks about."""
    if isinstance(ask, AskMatrix):
        return (ask.rows.columns,)
    if isinstance(ask, AskMargins):
        return tuple((name,) for name in ask.columns)
    return ask.sets


def count_coordinates(ask: AskMatrix) -> int:
    """Return how many coordinates a row has in a matrix of moments, the constant included."""
    rows = ask.rows.rows
    return 1 + rows.leading + len(rows.columns)


def count_cells(ask: Ask, schema: Schema) -> int:
    """Return how many numbers a stage releases."""
    if isinstance(ask, AskMatrix):
        size = count_coordinates(ask)
        return size * (size + 1) // 2
    total = 1 if isinstance(ask, AskMargins) else 0
    return total + sum(math.prod(schema.columns[name].n_levels for name in names) for names in list_sets(ask))


def plan_from_json(text: str | bytes) -> MeasurementPlan:
    """Read a plan back."""
    return _DOCUMENT.read(text)


def load_plan(path: str | Path) -> MeasurementPlan:
    """Read a plan from a file."""
    return _DOCUMENT.open(path)


def check_plan(plan: MeasurementPlan) -> None:
    """Refuse a plan that no site could follow."""
    names = [site.name for site in plan.sites]
    if not names or not all(name.strip() for name in names) or len(set(names)) < len(names):
        raise MethodError("a plan needs sites with names of their own; give each --site another name")
    if plan.second and [(site.name, site.nominal_rows) for site in plan.second] != [
        (site.name, site.nominal_rows) for site in plan.sites
    ]:
        raise MethodError("the sites of the second round are not those of the first; plan it again")
    for site in (*plan.sites, *plan.second):
        _ = site.budget  # refuses amounts outside their range
        if not 1 <= site.nominal_rows <= MOST_ROWS:
            raise MethodError(f"the nominal rows of site {site.name!r} must lie between 1 and {MOST_ROWS:.0e}")
    shares = sum((ask.share for ask in plan.asks), Fraction(0))
    if not plan.asks or any(ask.share <= 0 for ask in plan.asks) or shares > 1:
        raise MethodError(f"the shares of a plan must be above 0 and at most 1 together; these make {float(shares):g}")
    for ask in plan.asks:
        sets = list_sets(ask)
        names = [name for columns in sets for name in columns]
        if unknown := [name for name in names if name not in plan.schema.columns]:
            raise MethodError(f"the plan asks about {unknown[0]!r}, which is no column of its schema")
        if not sets or any(len(set(columns)) < len(columns) for columns in sets):
            raise MethodError("a stage of the plan asks nothing, or about a column twice in one table; plan it again")
        if isinstance(ask, AskMixed):
            names = [name for name in ask.rows.numbers if not isinstance(plan.schema.columns[name], Ordinal)]
        if isinstance(ask, AskMatrix) and not all(isinstance(plan.schema.columns[name], Numeric) for name in names):
            raise MethodError("the plan asks for moments of columns that are not numeric")


_DOCUMENT = Document(
    MeasurementPlan,
    PLAN_FORMAT,
    PLAN_VERSION,
    "a dagveil plan",
    "a plan.json",
    "`dagveil plan`",
    "ask for it again",
    check=check_plan,
)

"""The receipt: what a result promises, to whom, on which public facts, and what it does not promise.

A receipt's events must cost what it says, and be allowed. What an attacker gains at most by a release, how often he
guesses right, is proved in docs/audit.md.
"""

import enum
import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import BudgetError, DataError
from dagveil.files import encode_json, parse_fraction
from dagveil.privacy.budget import TOTAL_MARGIN, Budget, Relation, round_up, total_margin
from dagveil.privacy.events import (
    ApproximateZcdpFilter,
    Event,
    Filter,
    GaussianFilter,
    PureFilter,
    Unbounded,
    ZcdpFilter,
)
from dagveil.privacy.renyi import RenyiFilter

# what a guarantee for records is worth to people, for as long as nothing bounds how many records one has
PER_PERSON = "a person with k records has k times this epsilon"
_LARGEST = Fraction(700)  # above this e^ε is no float; guesses are then as good as certain


def bound_advantage(epsilon: float, delta: float) -> float:
    """Return the largest difference of true and false positive rates that (epsilon, delta) allows."""
    return min(1.0, math.tanh(epsilon / 2.0) * (1.0 - delta) + delta)


def describe_guessing(
    epsilon: Fraction, delta: Fraction, relation: Relation, unit: str = "one record", *, contents_only: bool = False
) -> str:
    """Say how well anyone can guess: the bound on the sum of both errors of a test, for an even chance.

    `contents_only`: every record is known to be there, as with reports that people sent.
    """
    content = f"someone who guesses which of two values {unit} has"
    if relation is Relation.REPLACE_ONE or contents_only:
        return f"{content} {_describe_bound(epsilon, delta)}, where chance gives 50 %."
    # two contents are two steps apart: remove the one, add the other
    twice = delta * (1 + Fraction(math.exp(min(epsilon, _LARGEST))))
    return (
        f"someone who guesses whether {unit} is in the table {_describe_bound(epsilon, delta)}, and {content} "
        f"{_describe_bound(2 * epsilon, twice)}, where chance gives 50 %."
    )


def _describe_bound(epsilon: Fraction, delta: Fraction) -> str:
    percent = write_accuracy(epsilon, delta)
    return "may be right every time" if percent == "100.0" else f"is right at most {percent} % of the time"


def write_accuracy(epsilon: Fraction, delta: Fraction) -> str:
    """Bound, in percent, on guessing right between neighbours: (e^ε + δ) / (1 + e^ε), rounded up to a tenth."""
    inverse = math.exp(-min(epsilon, _LARGEST))
    percent = 100 * (1 + float(delta) * inverse) / (1 + inverse)
    return f"{min(100.0, math.ceil(percent * 10 + 1e-9) / 10):.1f}"


def name_unit(unit: str) -> str:
    """Return the unit without its article: schemas say "one row"."""
    return unit.removeprefix("one ").removeprefix("a ")


NO_GUARANTEE = "as published: no guarantee claimed"
SEEDED = "seeded: not private"
PLUGIN = "what a plug-in promises is its author's word"


class Calibration(enum.Enum):
    """Whether the noise has a proof, or follows a publication: its text, or its authors' program; or there is none."""

    SOUND = "sound"
    PAPER = "paper"
    PROGRAM = "program"
    NONE = "none"

    @property
    def words(self) -> str:
        """Say what a run follows."""
        return _FOLLOWS[self]


_FOLLOWS = {
    Calibration.SOUND: "a proof of its guarantee",
    Calibration.PAPER: "the printed text of the publication",
    Calibration.PROGRAM: "the program that the publication's authors released",
    Calibration.NONE: "the exact rows, without noise",
}


class Trust(enum.Enum):
    """Who has to be trusted with records."""

    CURATOR = "curator"  # whoever holds the table: noise is added to what leaves it
    NOBODY = "nobody"  # records were randomised before they left the person


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The privacy receipt of one result; amounts are exact fractions as text.

    `plugin` names the package and version that brought the method, if that is not dagveil itself. `per_person`: the
    unit is a person with all records, not one record.

    Examples
    --------
    >>> receipt = Receipt(
    ...     calibration=Calibration.SOUND, epsilon="1", delta="0", spent="1 of 1 epsilon", relation=Relation.ADD_REMOVE,
    ...     unit="patient", nominal_rows=1000, accounting="pure accounting", accounting_total="1", accounting_spent="1",
    ...     dataset="visits", software="dagveil 0", noise="OpenDP")
    >>> receipt.words()[2].split(". ")[1]
    'Any outcome is at most 2.719 times as likely with one record as without it.'
    """

    calibration: Calibration
    epsilon: str
    delta: str
    spent: str
    relation: Relation
    unit: str
    nominal_rows: int | None
    accounting: str
    accounting_total: str
    accounting_spent: str
    dataset: str
    software: str
    noise: str
    events: tuple[Event, ...] = ()
    public_facts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: Trust = Trust.CURATOR
    plugin: str | None = None
    per_person: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "calibration", Calibration(self.calibration))
        force_setattr(self, "relation", Relation(self.relation))
        for name in ("epsilon", "delta", "accounting_total", "accounting_spent"):
            value = getattr(self, name)
            force_setattr(self, name, str(value if isinstance(value, Fraction) else parse_fraction(value)))

    @property
    def guaranteed(self) -> bool:
        """Whether the receipt promises anything: sound noise that nobody can draw again."""
        unbounded = any(isinstance(event, Unbounded) for event in self.events)
        seeded = SEEDED in self.warnings or SEEDED in self.noise
        return self.calibration is Calibration.SOUND and not unbounded and not seeded

    def words(self) -> tuple[str, ...]:
        """Say the receipt in plain sentences."""
        origin = (
            f"Whose method: {self.plugin}, a plug-in. {PLUGIN[0].upper()}{PLUGIN[1:]}: dagveil's proofs do not cover "
            "how it uses the rows."
        )
        told = (*self._promise(), *((origin,) if self.plugin is not None else ()), *self._limits())
        return (*told, *(f"Warning: {warning}." for warning in self.warnings))

    def to_json(self) -> bytes:
        """Write the receipt as JSON."""
        return encode_json(self)

    def _promise(self) -> tuple[str, ...]:
        if SEEDED in self.warnings and self.calibration is Calibration.SOUND:
            return ("No promise holds: the noise was seeded, so anyone with the seed can take it away again.",)
        if not self.guaranteed:
            reasons = dict.fromkeys(event.reason for event in self.events if isinstance(event, Unbounded))
            followed = () if self.calibration is Calibration.SOUND else (f"It follows {self.calibration.words}.",)
            return (f"{NO_GUARANTEE.capitalize()}.", *followed, *(f"Why: {reason}" for reason in reasons))
        epsilon, delta = Fraction(self.epsilon), Fraction(self.delta)
        if self.trust is Trust.NOBODY:
            return self._local_promise(epsilon, delta)
        return (
            self._describe_protected(),
            "Against what: anyone who sees this result, whatever else they know and however much they compute.",
            f"How strongly: epsilon {round_up(epsilon, 4)}, delta {round_up(delta, 4)}. "
            f"{self._likelihood(epsilon, delta)}",
            f"What that means: {self.describe_guessing()}",
            f"Accounting: {self.accounting}; noise: {self.noise}; spent: {self.spent}.",
        )

    def _local_promise(self, epsilon: Fraction, delta: Fraction) -> tuple[str, ...]:
        return (
            f"Who is protected: every record that was reported to {self.dataset}. {self._describe_record()}"
            "It was randomised before leaving the person; nobody need be trusted, not even whoever collects reports.",
            "Against what: anyone who sees the reports or this result, whatever else they know and however much they "
            "compute.",
            f"How strongly: epsilon {round_up(epsilon, 4)} per record, delta {round_up(delta, 4)}. Any report is at "
            f"most {_factor(epsilon)} times as likely from one record as from any other.",
            f"Per person: epsilon {round_up(epsilon, 4)} for one report. Repeated reports add up: {PER_PERSON}.",
            f"What that means: {self.describe_guessing()}",
            f"Accounting: {self.accounting}; noise: {self.noise}; spent: {self.spent}.",
        )

    @property
    def protected(self) -> str:
        """What one unit is, in words."""
        return f"{self.unit}, with all records" if self.per_person else "one record"

    @property
    def neighbours(self) -> str:
        """How two neighbouring tables differ, in words."""
        if not self.per_person:
            return self.relation.words
        return self.relation.describe(self._one, "with all records", "number of persons")

    @property
    def _one(self) -> str:
        return f"one {name_unit(self.unit)}" if self.per_person else "one record"

    def _describe_protected(self) -> str:
        if self.per_person:
            return (
                f"Who is protected: every {name_unit(self.unit)} in {self.dataset}, with all records that have its id. "
                f"Neighbours: {self.neighbours}."
            )
        return (
            f"Who is protected: every record in {self.dataset}; {PER_PERSON}. {self._describe_record()}"
            f"Neighbours: {self.neighbours}."
        )

    def _describe_record(self) -> str:
        # the guarantee is about records: a name in a schema makes no person of a row
        return "" if name_unit(self.unit) in ("row", "record") else f'The schema calls a record "{self.unit}". '

    def _likelihood(self, epsilon: Fraction, delta: Fraction) -> str:
        pair = f"with {self._one} as without it"
        if self.relation is Relation.REPLACE_ONE:
            pair = "with one value of a record as with another"
            if self.per_person:
                pair = f"with the records of {self._one} as with those of another"
        extra = f", up to an additional probability of {round_up(delta, 4)}" if delta else ""
        return f"Any outcome is at most {_factor(epsilon)} times as likely {pair}{extra}."

    def describe_guessing(self) -> str:
        """Say how well anyone can guess."""
        promised = Fraction(self.epsilon), Fraction(self.delta)
        return describe_guessing(*promised, self.relation, self._one, contents_only=self.trust is Trust.NOBODY)

    def _limits(self) -> tuple[str, ...]:
        facts = f"{'; '.join(self.public_facts) or 'none'}."
        if self.nominal_rows is not None:
            rows = "persons" if self.per_person else "rows"
            facts += f" The nominal number of {rows}, {self.nominal_rows}, is public."
        if not self.guaranteed:
            return (f"Public facts: {facts}",)
        if self.trust is Trust.NOBODY:
            return (
                f"Assumed public: {facts}",
                "Not promised: secrecy of these public facts, of patterns that hold without any single record, or of "
                "who reported, from where and when. Whoever reports again spends epsilon again.",
            )
        return (
            f"Assumed public: {facts}",
            "Not promised: secrecy of these public facts, or of patterns that hold without any single "
            f"{self._one.removeprefix('one ')}. Other releases from the same data add to this epsilon.",
        )


def _factor(epsilon: Fraction) -> str:
    return f"e^{round_up(epsilon, 4)}" if epsilon > 20 else round_up(math.exp(epsilon) * (1 + 1e-14), 4)


_BY_NAME: Final = {kind.name: kind for kind in (PureFilter, ZcdpFilter, ApproximateZcdpFilter, GaussianFilter)}
_RENYI: Final = re.compile(r"Renyi accounting at order ([0-9]{1,6})")


def filter_named(name: str, budget: Budget) -> Filter:
    """Make the filter that a receipt or a reservation names."""
    found = _RENYI.fullmatch(name)
    if found is not None:
        return RenyiFilter(budget, int(found[1]))
    if name not in _BY_NAME:
        raise BudgetError(f"there is no accounting {name!r}; it is one of {', '.join(_BY_NAME)} or Renyi accounting.")
    return _BY_NAME[name](budget)


_LARGEST_EPSILON: Final = 10**9  # no accounting goes further
# bits of a denominator: what a receipt states has fewer, so that a longer sum cannot be equal to it
_LONGEST_SUM: Final = 20_000
# totals come from floating point, which another machine may round otherwise: epsilon with a little room for that
_ROOM: Final = 1 + Fraction(1, 2**30)


def check_receipt(receipt: Receipt, *, asked: bool = True) -> None:
    """Refuse a receipt whose events do not cost what it says, or cost more than its epsilon and delta allow.

    Anyone may have edited the file. `asked`: whether anything was asked of the rows at all; a run whose background
    knowledge answers everything asks nothing.
    """
    unbounded = any(isinstance(event, Unbounded) for event in receipt.events)
    if receipt.calibration is not Calibration.SOUND:
        if not unbounded:
            _refuse("it is of a published calibration, and the event that says so is missing")
        return
    if unbounded:
        _refuse("it claims a guarantee, and one of its events has none")
    if asked and not receipt.events:
        _refuse("it claims a guarantee for a release, and lists no event")
    if Fraction(receipt.epsilon) > _LARGEST_EPSILON:
        _refuse(f"its epsilon is above {_LARGEST_EPSILON}, which no run has")
    try:
        _recount(receipt)
    except BudgetError:
        _refuse("its events cost more than its epsilon and delta allow, or its accounting cannot price them")


def check_summary(receipt: Receipt, parts: Iterable[Receipt]) -> None:
    """Refuse the receipt of a sum of several sites that does not follow from the sites' own, or one of these."""
    receipts = list(parts)
    for part in receipts:
        check_receipt(part)
    stated = (Fraction(receipt.epsilon), Fraction(receipt.delta))
    largest = tuple(max(Fraction(getattr(part, name)) for part in receipts) for name in ("epsilon", "delta"))
    if stated != largest:
        _refuse("its epsilon and delta are not the largest of the sites'")
    if receipt.events not in [part.events for part in receipts if Fraction(part.epsilon) == stated[0]]:
        _refuse("its events are not those of the site with the largest epsilon")
    if any(one.calibration is not Calibration.SOUND for one in (receipt, *receipts)):
        _refuse("one of the sites claims no guarantee, and only sound releases are added")


_REFUSAL: Final = "the receipt does not follow from its events"


def _refuse(reason: str) -> None:
    raise DataError(f"{_REFUSAL}: {reason}; ask for the file as it was written")


def _recount(receipt: Receipt) -> None:
    total, spent = Fraction(receipt.accounting_total), Fraction(receipt.accounting_spent)
    budget = Budget(Fraction(receipt.epsilon), Fraction(receipt.delta))
    allowed = filter_named(receipt.accounting, budget).total
    counted = filter_named(receipt.accounting, Budget(budget.epsilon * _ROOM, budget.delta))
    for event in receipt.events:
        counted.charge(event)
        if counted.spent.denominator.bit_length() > _LONGEST_SUM:
            _refuse("its events have too many digits to add up")
    # only these prices and totals come from floating point
    prices, margin = Fraction(0), Fraction(0)
    if isinstance(counted, RenyiFilter):
        prices = margin = Fraction(TOTAL_MARGIN)
    elif not isinstance(counted, PureFilter):
        margin = total_margin(budget)
    if abs(counted.spent - spent) > prices * spent:
        _refuse("what it says was spent is not what its events cost")
    if abs(total - allowed) > margin * allowed:
        _refuse(f"its total is not that of {budget.words}")
    if spent > total:
        _refuse(f"its events cost more than {budget.words} allows")

"""The receipt: what a result promises, to whom, on which public facts, and what it does not promise."""

from __future__ import annotations

import enum
import math
from fractions import Fraction

import msgspec
from msgspec.structs import force_setattr

from dagveil.files import decode_json, encode_json, parse_fraction
from dagveil.privacy.budget import round_up
from dagveil.privacy.events import Event, Unbounded
from dagveil.privacy.guessing import PER_PERSON, describe_guessing, name_unit
from dagveil.privacy.relation import Relation

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
    >>> Receipt.from_json(receipt.to_json()) == receipt
    True
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
        return (
            *self._promise(),
            *self._origin(),
            *self._limits(),
            *(f"Warning: {warning}." for warning in self.warnings),
        )

    def to_json(self) -> bytes:
        """Write the receipt as JSON."""
        return encode_json(self)

    @classmethod
    def from_json(cls, content: bytes | str) -> Receipt:
        """Read a receipt from JSON."""
        return decode_json(content, cls)

    def _origin(self) -> tuple[str, ...]:
        """Say who answers for a method that dagveil does not bring."""
        if self.plugin is None:
            return ()
        return (
            f"Whose method: {self.plugin}, a plug-in. {PLUGIN[0].upper()}{PLUGIN[1:]}: dagveil's proofs do not cover "
            "how it uses the rows.",
        )

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
            f"What that means: {self._guessing(epsilon, delta)}",
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
            f"What that means: {self._guessing(epsilon, delta)}",
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
        return self.relation.describe(f"one {name_unit(self.unit)}", "with all records", "number of persons")

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
        unit = f"one {name_unit(self.unit)}" if self.per_person else "one record"
        pair = f"with {unit} as without it"
        if self.relation is Relation.REPLACE_ONE:
            pair = f"with one value of {unit.replace('one ', 'a ', 1)} as with another"
            if self.per_person:
                pair = f"with the records of {unit} as with those of another"
        extra = f", up to an additional probability of {round_up(delta, 4)}" if delta else ""
        return f"Any outcome is at most {_factor(epsilon)} times as likely {pair}{extra}."

    def describe_guessing(self) -> str:
        """Say how well anyone can guess."""
        return self._guessing(Fraction(self.epsilon), Fraction(self.delta))

    def _guessing(self, epsilon: Fraction, delta: Fraction) -> str:
        unit = f"one {name_unit(self.unit)}" if self.per_person else "one record"
        return describe_guessing(epsilon, delta, self.relation, unit, contents_only=self.trust is Trust.NOBODY)

    @property
    def _rows(self) -> str:
        return "persons" if self.per_person else "rows"

    def _limits(self) -> tuple[str, ...]:
        facts = "; ".join(self.public_facts) or "none"
        rows = (
            "" if self.nominal_rows is None else f" The nominal number of {self._rows}, {self.nominal_rows}, is public."
        )
        if not self.guaranteed:
            return (f"Public facts: {facts}.{rows}",)
        if self.trust is Trust.NOBODY:
            return (
                f"Assumed public: {facts}.{rows}",
                "Not promised: secrecy of these public facts, of patterns that hold without any single record, or of "
                "who reported, from where and when. Whoever reports again spends epsilon again.",
            )
        return (
            f"Assumed public: {facts}.{rows}",
            "Not promised: secrecy of these public facts, or of patterns that hold without any single "
            f"{name_unit(self.unit) if self.per_person else 'record'}. Other "
            "releases from the same data add to this epsilon.",
        )


def _factor(epsilon: Fraction) -> str:
    return f"e^{round_up(epsilon, 4)}" if epsilon > 20 else round_up(math.exp(epsilon) * (1 + 1e-14), 4)

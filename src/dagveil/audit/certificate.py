"""The certificate of an audit: what was tried against a method, and what came of it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from dagveil.audit.distinguish import Attack
from dagveil.audit.neighbours import DataKind
from dagveil.audit.replay import Replay
from dagveil.audit.runs import Setting
from dagveil.audit.search import Effort, Finding
from dagveil.errors import DataError
from dagveil.privacy.relation import Relation

CERTIFICATE_VERSION: Final = 1
"""Raised whenever a field changes its meaning."""


class AttackLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One distinguishing attack: the pair, and what was proved about it."""

    kind: DataKind
    relation: Relation
    bound: float
    ceiling: float
    runs: int
    hits: int
    other_hits: int
    event: str

    @classmethod
    def of(cls, kind: DataKind, relation: Relation, attack: Attack) -> AttackLine:
        """Write an attack down."""
        return cls(
            kind, relation, attack.bound, attack.ceiling, attack.runs, attack.hits, attack.other_hits, attack.event
        )


class SensitivityLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One search for neighbours: the largest change beside the declared one, and the pair."""

    statistic: str
    function: str
    relation: Relation
    change: float
    declared: float
    ratio: float
    pairs: int
    pair: str

    @classmethod
    def of(cls, finding: Finding) -> SensitivityLine:
        """Write a finding down."""
        return cls(
            finding.statistic,
            finding.function,
            finding.relation,
            finding.change,
            finding.declared,
            finding.ratio,
            finding.pairs,
            finding.words,
        )


class ReplayLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replay: how many questions, the furthest movement, and what was wrong."""

    kind: DataKind
    relation: Relation
    questions: int
    largest: float
    where: str
    violations: tuple[str, ...]

    @classmethod
    def of(cls, replay: Replay) -> ReplayLine:
        """Write a replay down."""
        return cls(replay.kind, replay.relation, replay.questions, replay.largest, replay.where, replay.violations)


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that an audit found.

    It says what was tried, never that a guarantee is proved: the proofs do that.

    Attributes
    ----------
    software, created
        Which program, when.
    method, options
        What was audited.
    effort
        How hard.
    epsilon, delta
        The claim, as exact fractions in text.
    replays, statistics, attacks
        One line for each of what was tried.
    """

    format: Literal["dagveil-audit"]
    version: int
    software: str
    created: str
    method: str
    options: dict[str, Setting]
    effort: Effort
    epsilon: str
    delta: str
    replays: tuple[ReplayLine, ...]
    statistics: tuple[SensitivityLine, ...]
    attacks: tuple[AttackLine, ...]

    @property
    def strongest(self) -> AttackLine | None:
        """The attack with the largest lower bound on epsilon."""
        return max(self.attacks, key=lambda attack: attack.bound, default=None)

    @property
    def closest(self) -> SensitivityLine | None:
        """The statistic that came closest to its declared sensitivity, or went beyond."""
        return max(self.statistics, key=lambda line: line.ratio, default=None)

    @property
    def violations(self) -> tuple[str, ...]:
        """Everything that breaks the claim, in words; empty if nothing was found."""
        found = [f"replay, {line.relation.value}: {words}" for line in self.replays for words in line.violations]
        found += [
            f"{line.statistic}, {line.relation.value}: a neighbour moves it by {line.ratio:.4g} of what is declared"
            for line in self.statistics
            if line.ratio > 1.0 + 1e-9
        ]
        claimed = read_amount(self.epsilon)
        found += [
            f"attack, {line.relation.value}: epsilon is at least {line.bound:.4g}, and {claimed:.4g} is claimed"
            for line in self.attacks
            if line.bound > claimed
        ]
        return tuple(found)


def read_amount(text: str) -> float:
    """Read an exact fraction as a number for people.

    Examples
    --------
    >>> read_amount("1/4")
    0.25
    """
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)


def encode_certificate(certificate: Certificate) -> bytes:
    """Write a certificate as JSON."""
    return msgspec.json.format(msgspec.json.encode(certificate), indent=2)


def decode_certificate(content: bytes) -> Certificate:
    """Read a certificate from JSON, or say why it cannot be read."""
    try:
        certificate = msgspec.json.decode(content, type=Certificate)
    except msgspec.DecodeError as error:
        raise DataError(f"this is not a certificate of an audit: {error}") from error
    if certificate.version != CERTIFICATE_VERSION:
        raise DataError(
            f"the certificate has version {certificate.version} and this program reads {CERTIFICATE_VERSION}; "
            "use the program that wrote it"
        )
    return certificate

"""The certificate of an audit: what was tried against a method, and what came of it."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from dagveil.audit.attacks import Membership
from dagveil.audit.neighbours import DataKind, Setting
from dagveil.audit.runs import Conduct
from dagveil.audit.search import Effort, Finding
from dagveil.errors import DataError
from dagveil.files import parse_fraction
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.receipt import Calibration

CERTIFICATE_VERSION: Final = 2  # raised whenever a field changes its meaning
_LARGEST: Final = 2**60


class AttackLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One distinguishing attack: the pair, and what was proved about it, as of an `Attack`."""

    kind: DataKind
    relation: Relation
    options: dict[str, Setting]
    claimed: float  # what the bound is held against; of a published program the largest epsilon that a run reported
    bound: float
    reachable: float | None  # what the best attack is expected to prove, by the accounting; None without one
    ceiling: float
    runs: int
    hits: int
    other_hits: int
    event: str
    pair: str = ""
    conduct: Conduct = Conduct.EACH


class ReplayLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replay, as of a `Replay`: how many questions, the furthest movement, and what was wrong."""

    kind: DataKind
    relation: Relation
    questions: int
    largest: float
    where: str
    violations: tuple[str, ...]


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that an audit found.

    It says what was tried, never that a guarantee is proved: the proofs do that.

    Epsilon and delta, the claim, are exact fractions in text. `readings` is what a published program reads of the rows
    without noise: a sound method reads nothing.
    """

    format: Literal["dagveil-audit"]
    version: int
    software: str
    created: str
    method: str
    calibration: Calibration
    options: dict[str, Setting]
    effort: Effort
    epsilon: str
    delta: str
    relations: tuple[Relation, ...]
    replays: tuple[ReplayLine, ...]
    statistics: tuple[Finding, ...]
    attacks: tuple[AttackLine, ...]
    memberships: tuple[Membership, ...] = ()
    readings: tuple[str, ...] = ()

    @property
    def strongest(self) -> AttackLine | None:
        """The attack with the largest lower bound on epsilon."""
        return max(self.attacks, key=lambda attack: attack.bound, default=None)

    @property
    def farthest(self) -> Membership | None:
        """The membership attacker with the largest advantage."""
        return max(self.memberships, key=lambda line: line.advantage, default=None)

    @property
    def closest(self) -> Finding | None:
        """The statistic that came closest to its declared sensitivity, or went beyond."""
        return max(self.statistics, key=lambda line: line.ratio, default=None)

    @property
    def violations(self) -> tuple[str, ...]:
        """Everything that breaks the claim, in words; empty if nothing was found."""
        found = [f"replay, {line.relation.value}: {words}" for line in self.replays for words in line.violations]
        found += [
            f"{line.statistic}, {line.relation.value}: a neighbour moves it by {line.ratio:.4g} of what is declared"
            for line in self.statistics
            if not line.holds
        ]
        found += [
            f"attack, {line.relation.value}: epsilon is at least {line.bound:.4g}, and {line.claimed:.4g} is claimed"
            for line in self.attacks
            if line.bound > line.claimed
        ]
        found += [
            f"membership by the {line.attacker}, {line.relation.value}: the advantage is at least "
            f"{line.advantage_low:.4g}, and the claim allows {line.advantage_bound:.4g}"
            for line in self.memberships
            if line.advantage_low > line.advantage_bound
        ]
        return tuple(found)


def _list_numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a document."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_numbers(item)
    elif isinstance(value, int | float):
        yield value


def encode_certificate(certificate: Certificate) -> bytes:
    """Write a certificate as JSON."""
    content = {**msgspec.to_builtins(certificate), "violations": list(certificate.violations)}
    return msgspec.json.format(msgspec.json.encode(content), indent=2)


def load_certificate(path: str | Path) -> Certificate:
    """Read the certificate in a file, or say why it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; give the file that `dagveil audit -o` wrote") from error
    return decode_certificate(content)


def decode_certificate(content: bytes) -> Certificate:
    """Read a certificate from JSON, or say why it cannot be read."""
    try:
        plain = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            "this is not a certificate of an audit: it is no JSON; give the file that `dagveil audit -o` wrote"
        ) from error
    if not isinstance(plain, dict) or plain.get("format") != "dagveil-audit":
        raise DataError("this is not a certificate of an audit; give the file that `dagveil audit -o` wrote")
    if plain.get("version") != CERTIFICATE_VERSION:
        raise DataError(
            f"the certificate has version {plain.get('version')} and this program reads {CERTIFICATE_VERSION}; "
            "use the program that wrote it, or run the audit again"
        )
    # they follow from the other fields, and stand there for whoever reads the file
    told = plain.pop("violations", None)
    try:
        certificate = msgspec.convert(plain, Certificate)
        budget = Budget(parse_fraction(certificate.epsilon), parse_fraction(certificate.delta))
    except msgspec.ValidationError as error:
        raise DataError(f"this is not a certificate of an audit: {error}") from error
    except (ValueError, ArithmeticError) as error:
        raise DataError(
            "the claim of this certificate is no epsilon and delta, so it is damaged; audit again"
        ) from error
    if budget.epsilon > _LARGEST or not all(-_LARGEST <= number <= _LARGEST for number in _list_numbers(plain)):
        raise DataError("this certificate has a number that no audit finds, so it is damaged; run the audit again")
    if told != list(certificate.violations):
        raise DataError("the certificate was changed: its violations do not follow from what it says was tried")
    return certificate


def list_findings(certificate: Certificate) -> list[tuple[str, str]]:
    """Return what an audit tried and how far it got, one line each: a name, and what was found."""
    epsilon, delta = float(Fraction(certificate.epsilon)), float(Fraction(certificate.delta))
    rows = [("claimed epsilon", f"{epsilon:g}, delta {delta:g}")]
    strongest, closest, farthest = certificate.strongest, certificate.closest, certificate.farthest
    if strongest is not None:
        if strongest.reachable is None:
            rows.append(("epsilon that runs reported", f"at most {strongest.claimed:.3g}"))
        rows.append(("lower bound by attack", f"{strongest.bound:.3f} ({strongest.relation.value}, 95 % confidence)"))
        if strongest.reachable is not None:
            words = f"{strongest.reachable:.3f} with {strongest.runs} judged runs"
            rows.append(("best possible attack", f"{words}, by the accounting"))
        rows.append(("ceiling of the attack", f"{strongest.ceiling:.3f} with {strongest.runs} judged runs"))
        if strongest.pair:
            rows.append(("attacked on", strongest.pair))
    if farthest is not None:
        ends = f"{farthest.advantage_low:.3f} to {farthest.advantage_high:.3f}"
        words = f"{farthest.advantage:.3f} ({ends}, by the {farthest.attacker}); "
        rows.append(("advantage in telling members", f"{words}the claim allows {farthest.advantage_bound:.3f}"))
        ends = f"{farthest.auc_low:.3f} to {farthest.auc_high:.3f}"
        rows.append(("area under the curve", f"{farthest.auc:.3f} ({ends}); the claim allows {farthest.auc_bound:.3f}"))
    if closest is not None:
        words = f"{closest.ratio:.6f} ({closest.statistic}, {closest.relation.value})"
        rows.append(("largest change / declared", words))
        rows.append(("neighbours tried", str(sum(line.pairs for line in certificate.statistics))))
    furthest = max(certificate.replays, key=lambda line: line.largest, default=None)
    if furthest is not None:
        broken = sum(bool(line.violations) for line in certificate.replays)
        verdict = "holds" if not broken else f"broken on {broken} of {len(certificate.replays)} pairs"
        rows.append(("replay on neighbours", f"{verdict}; furthest answer {furthest.largest:.6f} of its charge"))
    if certificate.readings:
        rows.append(("read without noise", ", ".join(certificate.readings)))
    return rows


def write_overview(certificates: Sequence[Certificate]) -> str:
    """Return what audits found as Markdown: the attacks, the searches, the trials of membership, and what broke."""
    first = ("method", "attacked on", "neighbours", "claimed ε", "lower bound", "best possible", "ceiling")
    header = (*first, "judged runs", "runs", "pairs for each statistic", "largest change / declared")
    searches: dict[tuple[str, Relation, int], Finding] = {}  # each once, though methods share statistics
    for one in certificates:
        for line in one.statistics:
            searches.setdefault((line.statistic, line.relation, line.pairs), line)
    parts = [
        _draw(header, [_describe_attack(attack, one) for one in certificates for attack in one.attacks]),
        write_searches(list(searches.values())),
        _draw(
            ("method", "attacker sees", "neighbours", "judged trials", "advantage", "allowed", "area", "allowed area"),
            [_describe_membership(trial, one.method) for one in certificates for trial in one.memberships],
        ),
    ]
    broken = [f"- `{one.method}`: {words}" for one in certificates for words in one.violations]
    silence = "Nothing broke a claim. That is no proof: the proofs are."
    parts.append("\n".join(["What broke a claim:", "", *broken]) if broken else silence)
    return "\n\n".join(part for part in parts if part) + "\n"


def _describe_attack(line: AttackLine, certificate: Certificate) -> tuple[str, ...]:
    """Name the pair and the settings that tell two attacks on it apart, and say what was proved."""
    same = [other for other in certificate.attacks if (other.kind, other.relation) == (line.kind, line.relation)]
    names = sorted({name for other in same for name in other.options})
    differing = [
        f"{name} {line.options.get(name, 'as it is')}"
        for name in names
        if any(other.options.get(name) != line.options.get(name) for other in same)
    ]
    closest = certificate.closest
    return (
        f"`{certificate.method}`",
        ", ".join([line.kind.value, *differing]),
        line.relation.value,
        f"{line.claimed:.3g}",
        f"{line.bound:.3f}",
        "–" if line.reachable is None else f"{line.reachable:.3f}",
        f"{line.ceiling:.2f}",
        f"{line.runs}",
        "at once" if line.conduct is Conduct.TOGETHER else "one by one",
        f"{min((search.pairs for search in certificate.statistics), default=0)}",
        "–" if closest is None else f"{closest.ratio:.4f}",
    )


def _describe_membership(line: Membership, method: str) -> tuple[str, ...]:
    return (
        f"`{method}`",
        line.attacker,
        line.relation.value,
        f"{line.trials}",
        f"{line.advantage:.3f} ({line.advantage_low:.3f} to {line.advantage_high:.3f})",
        f"{line.advantage_bound:.3f}",
        f"{line.auc:.3f} ({line.auc_low:.3f} to {line.auc_high:.3f})",
        f"{line.auc_bound:.3f}",
    )


def write_searches(lines: Sequence[Finding]) -> str:
    """Return what searches for neighbours found, as Markdown."""
    header = ("statistic", "neighbours", "pairs tried", "largest change / declared", "worst neighbours")
    rows = [
        (line.statistic, line.relation.value, f"{line.pairs}", f"{line.ratio:.6f}", line.pair.replace("|", "\\|"))
        for line in lines
    ]
    return _draw(header, rows)


def _draw(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = (header, ["---"] * len(header), *rows) if rows else ()
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)

"""The section "we tried to break this": what an audit found, beside the claim of the result."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dagveil.report.formatting import write_epsilon
from dagveil.runs.result import Result

if TYPE_CHECKING:
    from dagveil.audit.certificate import Certificate


@dataclass(frozen=True, slots=True)
class Attempts:
    """What was tried, in words.

    `rows` say what was tried, and how far that got; `mismatches` where the certificate is about something else than the
    result. `bound` is the largest epsilon that was proved, to stand beside the claim; empty if no tables were told
    apart.
    """

    effort: str
    created: str
    rows: tuple[tuple[str, str], ...]
    violations: tuple[str, ...]
    mismatches: tuple[str, ...]
    bound: str = ""


def describe_attempts(certificate: Certificate, result: Result) -> Attempts:
    """Tell a certificate beside the result that it is shown with."""
    strongest = certificate.strongest
    return Attempts(
        effort=certificate.effort.value,
        created=certificate.created[:10],
        rows=tuple(_describe_rows(certificate)),
        violations=certificate.violations,
        mismatches=tuple(find_mismatches(certificate, result)),
        bound="" if strongest is None else f"{strongest.bound:.3f}",
    )


def find_mismatches(certificate: Certificate, result: Result) -> list[str]:
    """Return where a certificate and a result differ: method, calibration, program, budget and neighbours."""
    facts = [
        ("the method", certificate.method, result.method.name),
        ("the calibration", certificate.calibration.value, result.method.calibration),
        ("the program", certificate.software.removeprefix("dagveil "), result.software),
    ]
    found = [f"{what} is {audited}, and that of the result is {own}" for what, audited, own in facts if audited != own]
    for name in ("epsilon", "delta"):
        tried, claimed = (Fraction(getattr(one, name)) for one in (certificate, result.receipt))
        if tried != claimed:
            found.append(f"{name} is {float(tried):.4g}, and that of the result is {float(claimed):.4g}")
    relation = result.receipt.relation
    if relation not in certificate.relations:
        found.append(f"the neighbours are others: it does not tell about {relation.value}")
    return found


def _describe_rows(certificate: Certificate) -> list[tuple[str, str]]:
    epsilon, delta = write_epsilon(Fraction(certificate.epsilon)), float(Fraction(certificate.delta))
    rows = [("claim", f"epsilon {epsilon}, delta {delta:.3g}")]
    if strongest := certificate.strongest:
        words = f"epsilon is at least {strongest.bound:.3f} (95 % confidence, {strongest.runs} judged runs on each)"
        rows.append(("telling two tables apart", words))
        if strongest.reachable is not None:
            rows.append(("the best attack with so many runs", f"could prove {strongest.reachable:.3f}"))
    if best := certificate.farthest:
        words = f"advantage {best.advantage:.3f} ({best.advantage_low:.3f} to {best.advantage_high:.3f})"
        rows.append(("telling who is in the table", f"{words}; the claim allows {best.advantage_bound:.3f}"))
    if closest := certificate.closest:
        pairs = sum(line.pairs for line in certificate.statistics)
        words = f"{pairs:,} pairs; the largest change is {closest.ratio:.4g} of the declared one"
        rows.append(("worst neighbours", words))
    if count := len(certificate.replays):
        broken = sum(bool(line.violations) for line in certificate.replays)
        words = f"broke on {broken} of {count} pairs" if broken else f"held on all {count} pairs"
        rows.append(("frozen answers on a neighbour", words))
    return rows

"""The section "we tried to break this": what an audit found, beside the claim of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagveil.errors import DataError
from dagveil.report.fields import Record
from dagveil.report.formatting import write_epsilon

CERTIFICATE_VERSION: Final = 2
"""Version of certificates that this page reads."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """What was tried, in words.

    Attributes
    ----------
    effort, created
        How hard, and when.
    rows
        What was tried, and how far that got.
    violations
        What broke the claim; empty if nothing did.
    mismatches
        Where the certificate is about something else than the result.
    bound
        The largest epsilon that was proved, to stand beside the claim; empty if no tables were told apart.
    """

    effort: str
    created: str
    rows: tuple[tuple[str, str], ...]
    violations: tuple[str, ...]
    mismatches: tuple[str, ...]
    bound: str = ""


def read_attempts(certificate: Mapping[str, Any], result: Record) -> Attempts:
    """Read a certificate beside the result that it is shown with.

    Parameters
    ----------
    certificate
        A certificate of `dagveil audit`, decoded.
    result
        The result, checked.

    Examples
    --------
    >>> read_attempts({"format": "something else"}, Record({}, "result"))
    Traceback (most recent call last):
    dagveil.errors.DataError: this is not a certificate of an audit; give a file that `dagveil audit -o` wrote
    """
    if not isinstance(certificate, Mapping) or certificate.get("format") != "dagveil-audit":
        raise DataError("this is not a certificate of an audit; give a file that `dagveil audit -o` wrote")
    if certificate.get("version") != CERTIFICATE_VERSION:
        raise DataError(
            f"the certificate has another version than {CERTIFICATE_VERSION}, which this program reads; run "
            "`dagveil audit` again"
        )
    record = Record(certificate, "certificate")
    rows = (
        ("claim", _tell_claim(record)),
        *_tell_attacks(record),
        *_tell_memberships(record),
        *_tell_neighbours(record),
    )
    return Attempts(
        effort=record.text("effort"),
        created=record.text("created")[:10],
        rows=rows,
        violations=record.texts("violations"),
        mismatches=tuple(find_mismatches(record, result)),
        bound=max((f"{line.number('bound') or 0.0:.3f}" for line in record.records("attacks")), key=float, default=""),
    )


def find_mismatches(certificate: Record, result: Record) -> list[str]:
    """Return where a certificate and a result differ: method, calibration, neighbours, budget and program."""
    method, receipt = result.record("method"), result.record("receipt")
    facts = [
        ("the method", certificate.text("method"), method.text("name")),
        ("the calibration", certificate.text("calibration"), method.text("calibration")),
        ("the program", certificate.text("software").removeprefix("dagveil "), result.text("software")),
    ]
    found = [f"{what} is {audited}, and that of the result is {own}" for what, audited, own in facts if audited != own]
    for name in ("epsilon", "delta"):
        audited, own = certificate.fraction(name), receipt.fraction(name)
        if audited != own:
            found.append(f"{name} is {float(audited):.4g}, and that of the result is {float(own):.4g}")
    relation = receipt.text("relation")
    if relation not in certificate.texts("relations"):
        found.append(f"the neighbours are others: it does not tell about {relation}")
    return found


def _tell_claim(record: Record) -> str:
    delta = float(record.fraction("delta"))
    return f"epsilon {write_epsilon(record.fraction('epsilon'))}, delta {delta:.3g}"


def _tell_attacks(record: Record) -> list[tuple[str, str]]:
    attacks = record.records("attacks")
    if not attacks:
        return []
    strongest = max(attacks, key=lambda line: line.number("bound") or 0.0)
    runs, reachable = strongest.whole("runs"), strongest.number("reachable")
    rows = [
        (
            "telling two tables apart",
            f"epsilon is at least {strongest.number('bound') or 0.0:.3f} (95 % confidence, {runs} judged runs on each)",
        )
    ]
    if reachable is not None:
        rows.append(("the best attack with so many runs", f"could prove {reachable:.3f}"))
    return rows


def _tell_memberships(record: Record) -> list[tuple[str, str]]:
    lines = record.records("memberships")
    if not lines:
        return []
    best = max(lines, key=lambda line: line.number("advantage") or 0.0)
    values = {name: best.number(name) or 0.0 for name in ("advantage", "advantage_low", "advantage_high")}
    ends = f"{values['advantage_low']:.3f} to {values['advantage_high']:.3f}"
    allowed = best.number("advantage_bound") or 0.0
    words = f"advantage {values['advantage']:.3f} ({ends}); the claim allows {allowed:.3f}"
    return [("telling who is in the table", words)]


def _tell_neighbours(record: Record) -> list[tuple[str, str]]:
    rows = []
    statistics = record.records("statistics")
    if statistics:
        ratio = max(line.number("ratio") or 0.0 for line in statistics)
        pairs = sum(line.whole("pairs") or 0 for line in statistics)
        rows.append(("worst neighbours", f"{pairs:,} pairs; the largest change is {ratio:.4g} of the declared one"))
    replays = record.records("replays")
    if replays:
        broken = sum(bool(line.texts("violations")) for line in replays)
        words = "held" if not broken else f"broke on {broken} of"
        rows.append(
            (
                "frozen answers on a neighbour",
                f"{words} {len(replays)} pairs" if broken else f"{words} on all {len(replays)} pairs",
            )
        )
    return rows

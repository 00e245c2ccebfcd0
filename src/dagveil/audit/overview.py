"""The certificates of several methods in tables, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagveil.audit.batched_runs import Conduct
from dagveil.audit.certificate import AttackLine, Certificate, SensitivityLine


def write_overview(certificates: Sequence[Certificate]) -> str:
    """Return what audits found as Markdown: the attacks, the searches, the trials of membership, and what broke."""
    parts = [_tell_attacks(certificates), _tell_searches(certificates), _tell_memberships(certificates)]
    broken = [f"- `{one.method}`: {words}" for one in certificates for words in one.violations]
    silence = "Nothing broke a claim. That is no proof: the proofs are."
    parts.append("\n".join(["What broke a claim:", "", *broken]) if broken else silence)
    return "\n\n".join(part for part in parts if part) + "\n"


def _tell_attacks(certificates: Sequence[Certificate]) -> str:
    header = (
        "method",
        "attacked on",
        "neighbours",
        "claimed ε",
        "lower bound",
        "best possible",
        "ceiling",
        "judged runs",
        "runs",
        "pairs for each statistic",
        "largest change / declared",
    )
    return _draw(header, [row for one in certificates for row in _tell_method(one)])


def _tell_method(certificate: Certificate) -> Iterable[tuple[str, ...]]:
    closest = certificate.closest
    pairs = min((line.pairs for line in certificate.statistics), default=0)
    share = "–" if closest is None else f"{closest.ratio:.4f}"
    for line in certificate.attacks:
        yield (
            f"`{certificate.method}`",
            _tell_case(line, certificate),
            line.relation.value,
            f"{line.claimed:.3g}",
            f"{line.bound:.3f}",
            "–" if line.reachable is None else f"{line.reachable:.3f}",
            f"{line.ceiling:.2f}",
            f"{line.runs}",
            "at once" if line.conduct is Conduct.TOGETHER else "one by one",
            f"{pairs}",
            share,
        )


def _tell_case(line: AttackLine, certificate: Certificate) -> str:
    """Name the pair, and the settings that tell two attacks on it apart."""
    same = [other for other in certificate.attacks if (other.kind, other.relation) == (line.kind, line.relation)]
    names = {name for other in same for name in other.options if other.options != line.options}
    differing = [
        f"{name} {line.options.get(name, 'as it is')}"
        for name in sorted(names)
        if any(other.options.get(name) != line.options.get(name) for other in same)
    ]
    return ", ".join([line.kind.value, *differing])


def _tell_searches(certificates: Sequence[Certificate]) -> str:
    """List each search once, though methods share statistics."""
    lines: dict[tuple[str, str, int], SensitivityLine] = {}
    for certificate in certificates:
        for line in certificate.statistics:
            lines.setdefault((line.statistic, line.relation.value, line.pairs), line)
    return write_searches(list(lines.values()))


def write_searches(lines: Sequence[SensitivityLine]) -> str:
    """Return what searches for neighbours found, as Markdown."""
    header = ("statistic", "neighbours", "pairs tried", "largest change / declared", "worst neighbours")
    rows = [
        (line.statistic, line.relation.value, f"{line.pairs}", f"{line.ratio:.6f}", _escape(line.pair))
        for line in lines
    ]
    return _draw(header, rows)


def _tell_memberships(certificates: Sequence[Certificate]) -> str:
    header = ("method", "attacker sees", "neighbours", "judged trials", "advantage", "allowed", "area", "allowed area")
    rows = [
        (
            f"`{certificate.method}`",
            line.attacker,
            line.relation.value,
            f"{line.trials}",
            f"{line.advantage:.3f} ({line.advantage_low:.3f} to {line.advantage_high:.3f})",
            f"{line.advantage_bound:.3f}",
            f"{line.auc:.3f} ({line.auc_low:.3f} to {line.auc_high:.3f})",
            f"{line.auc_bound:.3f}",
        )
        for certificate in certificates
        for line in certificate.memberships
    ]
    return _draw(header, rows)


def _draw(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")

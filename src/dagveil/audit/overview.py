"""What audits found: in a few lines for people, and the certificates of several methods in tables, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dagveil.audit.certificate import AttackLine, Certificate
from dagveil.audit.runs import Conduct
from dagveil.audit.search import Finding


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
    attacks = _draw(header, [row for one in certificates for row in _tell_method(one)])
    parts = [attacks, _tell_searches(certificates), _tell_memberships(certificates)]
    broken = [f"- `{one.method}`: {words}" for one in certificates for words in one.violations]
    silence = "Nothing broke a claim. That is no proof: the proofs are."
    parts.append("\n".join(["What broke a claim:", "", *broken]) if broken else silence)
    return "\n\n".join(part for part in parts if part) + "\n"


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
    lines: dict[tuple[str, str, int], Finding] = {}
    for certificate in certificates:
        for line in certificate.statistics:
            lines.setdefault((line.statistic, line.relation.value, line.pairs), line)
    return write_searches(list(lines.values()))


def write_searches(lines: Sequence[Finding]) -> str:
    """Return what searches for neighbours found, as Markdown."""
    header = ("statistic", "neighbours", "pairs tried", "largest change / declared", "worst neighbours")
    rows = [
        (line.statistic, line.relation.value, f"{line.pairs}", f"{line.ratio:.6f}", line.pair.replace("|", "\\|"))
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

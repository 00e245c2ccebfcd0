"""What an audit found, in a few lines for people."""

from __future__ import annotations

from dagveil.audit.certificate import Certificate, read_amount


def list_findings(certificate: Certificate) -> list[tuple[str, str]]:
    """Return what an audit tried and how far it got, one line each: a name, and what was found."""
    rows = [("claimed epsilon", f"{read_amount(certificate.epsilon):g}, delta {read_amount(certificate.delta):g}")]
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

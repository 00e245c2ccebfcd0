"""Add the evidence of several custodians who followed one plan, so that one graph can be found from all of it.

Whoever combines sees released evidence only, so this is post-processing and costs nothing. What it promises follows
from the sites' own receipts (docs/proofs/custodians.md).
"""

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from msgspec.structs import asdict, replace

from dagveil._version import __version__
from dagveil.errors import EvidenceError
from dagveil.evidence.bundle import EVIDENCE_VERSION, Evidence, Part, Study, digest_releases, load_evidence
from dagveil.evidence.estimates import MOST_NAMED
from dagveil.evidence.homogeneity import Agreement, compare_releases
from dagveil.plans.plan_file import check_same_questions
from dagveil.plans.shared_columns import declare_site, share_columns, stack_releases
from dagveil.plans.site_run import describe_noise
from dagveil.privacy.budget import Budget, epsilon_of_mu_squared, mu_squared_of, round_up
from dagveil.privacy.receipt import Calibration, Receipt, filter_named
from dagveil.privacy.release import NoisyCounts, NoisyMagnitudes, Release
from dagveil.runs.result import head

EPSILON_DIGITS = 5  # digits of an epsilon that two rounds compose to, rounded up

# fields that differ from site to site; all others say what was asked
_NOISE = ("lattice", "variance", "diagonal_variance", "values")


def add_releases(sites: Sequence[Sequence[Release]], site_column: str | None = None) -> tuple[Release, ...]:
    """Add the releases of several sites, question by question.

    - `sites`: the questions and their order are the same at all of them; noise may differ from site to site.
    - `site_column`: name of a column for the site, if there is to be one.
    """
    if not sites or len({len(releases) for releases in sites}) > 1:
        raise EvidenceError("the sites released different numbers of tables; all must follow the same plan")
    added: list[Release] = []
    for group in zip(*sites, strict=True):
        sum_ = _add(group)
        stacked = [] if site_column is None else stack_releases(site_column, group)
        # side by side, tables with noise in every cell hold their sum
        if not any(isinstance(release, NoisyCounts) for release in stacked):
            added.append(sum_)
        added += stacked
    return tuple(added)


def _add(group: Sequence[Release]) -> Release:
    """Bring all to the finest common lattice: values and deviations grow by a whole factor, so nothing is rounded."""
    first = group[0]
    asked = [
        (type(release), {name: value for name, value in asdict(release).items() if name not in _NOISE})
        for release in group
    ]
    if any(other != asked[0] for other in asked[1:]):
        columns = (first.column,) if isinstance(first, NoisyMagnitudes) else first.columns
        raise EvidenceError(
            f"the sites answered different questions where one site has {', '.join(columns) or 'the number of rows'}; "
            "all must follow the same plan"
        )
    if len({len(release.values) for release in group}) > 1:
        raise EvidenceError("this evidence is damaged: a release has lost values; ask the site for it again")
    # a matrix of moments has no lattice of its own: its units are part of the question
    lattices = [getattr(release, "lattice", 1) for release in group]
    factors = [math.lcm(*lattices) // lattice for lattice in lattices]
    sums = {
        name: sum(factor**2 * getattr(release, name) for factor, release in zip(factors, group, strict=True))
        for name in ("variance", "diagonal_variance")
        if hasattr(first, name)
    }
    # Python's integers: a lattice times a sum over sites may leave 64 bits
    scaled = ([factor * value for value in release.values] for factor, release in zip(factors, group, strict=True))
    values = tuple(map(sum, zip(*scaled, strict=True)))
    lattice = {"lattice": math.lcm(*lattices)} if hasattr(first, "lattice") else {}
    return replace(first, **lattice, **sums, values=values)


def combine_evidence(
    evidence: Sequence[Evidence | str | Path], *, shared_columns: bool = False, site_column: str | None = None
) -> Evidence:
    """Add the evidence of several sites to that of all rows together: noise variances add, `parts` has all receipts.

    - `evidence`: what each site released by the same plan, or the paths of these files; sums of some sites may be among
      them.
    - `shared_columns`: whether plans may differ: then columns and questions that not all sites share are left out.
    - `site_column`: name of a column for the site that is added, with arrows out of it alone: its children are what
      differs between sites. It needs each site's own evidence, and counts.
    """
    loaded = _load(evidence)
    second = [item for item in loaded if item.study is not None and item.study.after is not None]
    if second and len(second) < len(loaded) and not shared_columns:
        first = _add_sites([item for item in loaded if item not in second], site_column)
        return _join_rounds(first, _add_sites(second, site_column))
    shared, told = share_columns(loaded) if shared_columns else (loaded, [])
    return _add_sites(shared, site_column, told)


def compare_sites(evidence: Sequence[Evidence | str | Path], *, shared_columns: bool = False) -> Agreement:
    """Test whether sites agree, from what they released, at no cost.

    P-values are those of one distribution at all sites, of each column, and of the dependence of each pair; what
    differs is told by Holm's procedure.

    - `evidence`, `shared_columns`: as in `combine_evidence`.
    """
    loaded = _load(evidence)
    if any(item.study is not None and item.study.after is not None for item in loaded):
        raise EvidenceError("a second round alone has no margins to compare; give the first round of each site")
    compared = share_columns(loaded)[0] if shared_columns else loaded
    _check_plans(compared)
    _check_parts(compared)
    return compare_releases(tuple(compared[0].schema.columns), [item.releases for item in compared])


def _load(evidence: Sequence[Evidence | str | Path]) -> list[Evidence]:
    """Read evidence, and refuse what is not what its site released or follows no plan."""
    loaded = [item if isinstance(item, Evidence) else load_evidence(item) for item in evidence]
    if len(loaded) < 2:
        raise EvidenceError(f"{len(loaded)} file is nothing to combine; give the evidence of at least two sites")
    for item in loaded:
        if item.study is None or not item.parts:
            raise EvidenceError(
                f"the evidence of {item.schema.dataset!r} follows no agreed plan, so its questions need not be those "
                "of the others; let every site run `dagveil measure --plan plan.json`"
            )
        if len(item.parts) == 1 and digest_releases(item.releases) != item.parts[0].release:
            raise EvidenceError(
                f"the evidence of site {item.parts[0].site!r} was changed after its release; ask the site for it again"
            )
    return loaded


def _add_sites(loaded: Sequence[Evidence], site_column: str | None = None, told: Sequence[str] = ()) -> Evidence:
    """Add evidence of one round; `told` is said of what was left out before."""
    study = _check_plans(loaded)
    parts = _check_parts(loaded)
    if site_column is not None and (len(loaded) == 1 or len(parts) > len(loaded)):
        raise EvidenceError(
            "a column for the site needs each site's own evidence, and a sum no longer tells its sites apart; give the "
            "files as the sites released them, two or more"
        )
    if len(loaded) == 1:
        return loaded[0]
    if site_column is not None:
        # levels of the site are in the order of the plan, so that two rounds have the same
        parts = tuple(sorted(parts, key=lambda part: study.sites.index(part.site)))
        loaded = sorted(loaded, key=lambda item: study.sites.index(item.parts[0].site))
    first = loaded[0]
    rows = sum(part.nominal_rows for part in parts)
    releases = add_releases([item.releases for item in loaded], site_column)
    stages = tuple(
        replace(group[0], noise_sd=math.sqrt(sum(stage.noise_sd**2 for stage in group)))
        for group in zip(*(item.plan for item in loaded), strict=True)
    )
    schema = replace(
        first.schema,
        dataset=study.name,
        nominal_rows=rows,
        reviewed=all(item.schema.reviewed for item in loaded),
        public=all(item.schema.public for item in loaded),
    )
    findings = [
        *_describe_sites(study, parts),
        *told,
        *_common_findings(loaded),
        *describe_noise(releases, stages, rows),
    ]
    if len(parts) > len(loaded):
        findings.append("Sites were not compared: some were added before. Give their own files together for that.")
    elif study.after is None:
        columns = tuple(schema.columns)
        findings += _describe_agreement(compare_releases(columns, [item.releases for item in loaded]), columns)
    if site_column is not None:
        schema = declare_site(schema, site_column, [part.site for part in parts])
        findings.append(
            f"{site_column} is the site that a row belongs to, and no arrow may point into it. Its children are the "
            "columns that other columns do not explain alike at all sites."
        )
    return Evidence(
        **head("dagveil-evidence", EVIDENCE_VERSION),
        method=first.method,
        schema=schema,
        plan=stages,
        findings=tuple(findings),
        receipt=combine_receipts(study.name, parts),
        releases=releases,
        study=study,
        parts=parts,
    )


def _join_rounds(first: Evidence, second: Evidence) -> Evidence:
    """Put the sums of two rounds side by side; tests weigh what both tell by its variance."""
    assert first.study is not None
    assert second.study is not None
    if second.study.after != first.study.plan:
        raise EvidenceError(
            f"the second round was planned after {str(second.study.after)[:12]}, and the first is "
            f"{first.study.plan[:12]}; all sites must follow the same plans"
        )
    check_same_questions(second.schema, first.schema)
    earlier, later = ({part.site: part for part in item.parts} for item in (first, second))
    if apart := sorted(earlier.keys() ^ later.keys()):
        raise EvidenceError(
            f"site {apart[0]!r} took part in one round only, and sums over other rows do not go together; give the "
            f"evidence of both rounds of {', '.join(apart)}, or that of neither"
        )
    releases = (*first.releases, *second.releases)
    # of one site alone the digest is that of what the file holds
    digest = digest_releases(releases) if len(earlier) == 1 else None
    parts = tuple(_join_parts(part, later[site], digest) for site, part in earlier.items())
    study, rows = replace(second.study, after=None), sum(part.nominal_rows for part in parts)
    joined = "A second round asked what the sum of the first left open. A site's two rounds keep one budget together."
    return replace(
        first,
        **head("dagveil-evidence", EVIDENCE_VERSION),
        plan=(*first.plan, *second.plan),
        findings=(
            joined,
            *_describe_sites(study, parts),
            *_common_findings([first]),
            *describe_noise(first.releases, first.plan, rows),
        ),
        receipt=combine_receipts(first.study.name, parts) if len(parts) > 1 else parts[0].receipt,
        releases=releases,
        study=study,
        parts=parts,
    )


def _join_parts(first: Part, second: Part, digest: str | None) -> Part:
    """Write what a site's two rounds promise together: mu squared adds up, at the same delta."""
    one, other = first.receipt, second.receipt
    if any(getattr(one, fact) != getattr(other, fact) for fact in ("accounting", "delta", "relation", "dataset")):
        raise EvidenceError(
            f"the two rounds of site {first.site!r} have another data set, relation, delta or accounting; both must be "
            "of the same rows, by their plans"
        )
    spent, delta = Fraction(one.accounting_spent) + Fraction(other.accounting_spent), Fraction(one.delta)
    budget = Budget(Fraction(round_up(epsilon_of_mu_squared(spent, delta), EPSILON_DIGITS)), delta)
    receipt = replace(
        one,
        epsilon=str(budget.epsilon),
        accounting_total=str(mu_squared_of(budget)),
        accounting_spent=str(spent),
        spent=f"{round_up(one.epsilon, 4)} and {round_up(other.epsilon, 4)} epsilon in two rounds that compose to it",
        noise="; ".join(dict.fromkeys((one.noise, other.noise))),
        events=(*one.events, *other.events),
        public_facts=tuple(dict.fromkeys((*one.public_facts, *other.public_facts))),
        warnings=tuple(dict.fromkeys((*one.warnings, *other.warnings))),
    )
    both = digest or hashlib.sha256(f"{first.release} {second.release}".encode()).hexdigest()
    return Part(first.site, both, first.nominal_rows, receipt)


def combine_receipts(name: str, parts: Sequence[Part]) -> Receipt:
    """Write what holds for evidence of several sites: the largest of their budgets, if nobody is at two of them."""
    receipts = [part.receipt for part in parts]
    largest = max(receipts, key=lambda receipt: Fraction(receipt.epsilon))
    delta = max(Fraction(receipt.delta) for receipt in receipts)
    epsilons, deltas = (
        sum(Fraction(getattr(receipt, field)) for receipt in receipts) for field in ("epsilon", "delta")
    )
    facts = (
        f"no person is at more than one of the {len(parts)} sites: then epsilon and delta are the largest of "
        f"the sites'. For a person at several sites their budgets add, up to epsilon {round_up(epsilons, 4)} and delta "
        f"{round_up(deltas, 4)} at all of them",
        "the agreed plan: sites, questions, budgets and nominal numbers of rows",
        *dict.fromkeys(fact for receipt in receipts for fact in receipt.public_facts),
    )
    return replace(
        largest,
        delta=str(delta),
        accounting_total=str(filter_named(largest.accounting, Budget(Fraction(largest.epsilon), delta)).total),
        nominal_rows=sum(part.nominal_rows for part in parts),
        dataset=f"{name} ({len(parts)} sites)",
        software=f"dagveil {__version__}",
        noise="; ".join(dict.fromkeys(receipt.noise for receipt in receipts)),
        spent=f"{largest.spent} at site {parts[receipts.index(largest)].site}, and at no site more than its own budget",
        public_facts=facts,
        warnings=tuple(
            dict.fromkeys(
                warning if warning.startswith("seeded") else f"site {part.site}: {warning}"
                for part in parts
                for warning in part.receipt.warnings
            )
        ),
    )


def _check_plans(loaded: Sequence[Evidence]) -> Study:
    study = loaded[0].study
    assert study is not None
    for item in loaded[1:]:
        if item.study is not None and item.study != study:
            raise EvidenceError(
                f"the evidence of {item.schema.dataset!r} follows another plan than that of "
                f"{loaded[0].schema.dataset!r}: {item.study.plan[:12]} and {study.plan[:12]}; let all sites "
                "follow the same one, or add what their plans share (--shared-columns)"
            )
        check_same_questions(item.schema, loaded[0].schema)
    return study


def _check_parts(loaded: Sequence[Evidence]) -> tuple[Part, ...]:
    """Refuse rows that would count twice."""
    seen: dict[str, Part] = {}
    for item in loaded:
        for part in item.parts:
            if part.site not in seen:
                seen[part.site] = part
                continue
            if seen[part.site].release == part.release:
                raise EvidenceError(
                    f"site {part.site!r} is given twice, with the same release: its rows would count twice; "
                    "give each file once"
                )
            raise EvidenceError(
                f"site {part.site!r} is given twice, with two releases: its rows would count twice. Leave one out; if "
                "two sites ran under one name, let one of them run again under its own"
            )
    parts = tuple(seen.values())
    if len({part.release for part in parts}) < len(parts):
        raise EvidenceError("one release is given under the names of two sites: its rows would count twice")
    if any(part.receipt.calibration is not Calibration.SOUND for part in parts):
        raise EvidenceError("a site's receipt claims no guarantee; only sound releases are added")
    return parts


def _describe_sites(study: Study, parts: Sequence[Part]) -> list[str]:
    told = [
        f"Evidence of {len(parts)} of the {len(study.sites)} sites of the study was added, noise variances included."
    ]
    if absent := [name for name in study.sites if name not in {part.site for part in parts}]:
        told.append(f"Without evidence so far: {', '.join(absent)}. It can be added later, at no further cost.")
    told += [
        f"Site {part.site}: epsilon {round_up(part.receipt.epsilon, 4)}, delta {round_up(part.receipt.delta, 4)}, "
        f"{part.nominal_rows} nominal rows, release {part.release[:12]}."
        for part in parts
    ]
    return told


def _describe_agreement(agreement: Agreement, columns: Sequence[str]) -> list[str]:
    """Say where sites differ."""
    tested = len(agreement.columns)
    if not tested:
        return ["Whether sites agree was not tested: they released moments of features, or of levels beside numbers."]
    told = []
    if apart := agreement.differing_columns:
        told.append(f"Distributed differently at the sites: {_list(apart)}.")
    if pairs := agreement.differing_pairs:
        named = [f"{x} – {y}" for x, y in pairs]
        told.append(f"Depending on each other otherwise, not only more or less frequent: {_list(named)}.")
    left_out = "" if tested == len(columns) else f" {len(columns) - tested} columns without counts were not compared."
    if told:
        return [f"The sites differ beyond noise and chance (5 %, by Holm's procedure). {' '.join(told)}{left_out}"]
    return [f"What was released shows no difference between sites beyond noise and chance.{left_out}"]


def _list(names: Sequence[str]) -> str:
    """Name the first ones, and say how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _common_findings(loaded: Sequence[Evidence]) -> list[str]:
    """Return what all sites say, but for the noise of each and the names of the sites."""
    own: set[str] = set()
    for item in loaded:
        own.update(describe_noise(item.releases, item.plan, item.schema.nominal_rows or 1))
        own.update(() if item.study is None else _describe_sites(item.study, item.parts))
    common = set.intersection(*({*item.findings} for item in loaded)) - own
    return [line for line in loaded[0].findings if line in common]

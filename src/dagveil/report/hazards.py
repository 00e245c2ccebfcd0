"""Answers to the hazards that NIST SP 800-226 warns of, each with the place in the receipt and the proof.

The questions stand in `hazards.toml`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from typing import Final

from dagveil.privacy.guessing import PER_PERSON
from dagveil.privacy.receipt import PLUGIN, Receipt, Trust
from dagveil.privacy.relation import Relation
from dagveil.report.formatting import write_delta, write_epsilon, write_plural
from dagveil.report.guarantee import Attempts
from dagveil.report.model import ReportModel
from dagveil.report.registry import DeploymentFacts

NOT_ANSWERED: Final = "not answered by the program"


@dataclass(frozen=True, slots=True)
class Hazard:
    """One hazard, answered.

    - `number`: ours.
    - `about`: the level of the publication's pyramid.
    - `question`: what may go wrong.
    - `answer`: a sentence, or "not answered by the program: …", with who must answer.
    - `place`: where in result.json the fact stands; empty if nowhere.
    - `proof`: a page of the documentation; empty if there is none.
    """

    number: int
    about: str
    question: str
    answer: str
    place: str = ""
    proof: str = ""

    @property
    def answered(self) -> bool:
        """Whether the program, or the custodian's facts, answer all of it."""
        return NOT_ANSWERED not in self.answer


def answer_hazards(page: ReportModel, facts: DeploymentFacts) -> tuple[Hazard, ...]:
    """Answer every hazard for one result."""
    words = _fill_in(page, facts)
    listed = tomllib.loads((files("dagveil.report") / "hazards.toml").read_text(encoding="utf-8"))["hazards"]
    return tuple(
        Hazard(number, **{name: text.format_map(words).strip() for name, text in hazard.items()})
        for number, hazard in enumerate(listed, start=1)
    )


def _fill_in(page: ReportModel, facts: DeploymentFacts) -> dict[str, str]:
    """Return what the answers leave open."""
    result, receipt = page.result, page.result.receipt
    epsilon, delta = Fraction(receipt.epsilon), Fraction(receipt.delta)
    local = receipt.trust is Trust.NOBODY
    guessing = receipt.describe_guessing()
    access = _from_people(facts.access_controls, "say who has access under access_controls")
    certainty = "Tests know their noise." if result.confidence.redraws else "This method gives no confidence of edges."
    if result.confidence.redraws:
        certainty += " Each edge has a confidence."
    if result.false_edges is not None:
        certainty += f" About {result.false_edges:.1f} edges are expected where nothing depends on anything."
    return {
        "epsilon": write_epsilon(epsilon),
        "guessing": f"{guessing[0].upper()}{guessing[1:]}",
        "delta": _describe_delta(receipt),
        "kind": "approximate" if delta else "pure",
        "relation": receipt.relation.value,
        "neighbours": receipt.neighbours,
        "model": "local" if local else "central",
        "accounting": receipt.accounting,
        "accounting_proof": _name_proof(receipt.accounting),
        "renewal": _from_people(facts.release_type_details, "the ledger never renews a budget; say whether people do"),
        "unit": f"The unit is {receipt.protected}."
        if receipt.per_person
        else f"The unit is one record, which the schema calls: {receipt.unit}; {PER_PERSON}.",
        "bounded": "It does not matter: all records that share an id count together, as one record or by weights of "
        "sum one."
        if receipt.per_person
        else f"{NOT_ANSWERED}: rows are taken as records, and the custodian must know how many one person has.",
        "rows": "Yes, it is public: neighbours have the same number of rows."
        if receipt.relation is Relation.REPLACE_ONE
        else "No: neighbours differ in it, and only a noisy number is released. The nominal number is declared.",
        "plugin": f"The method comes from {receipt.plugin}: {PLUGIN}." if receipt.plugin else "",
        "reviewed": "A person has reviewed them." if result.schema.reviewed else "NOBODY HAS REVIEWED THEM.",
        "tuning": facts.preprocessing_and_hyperparameter_tuning
        or f"{NOT_ANSWERED}: say it under preprocessing_and_hyperparameter_tuning.",
        "noise": receipt.noise,
        "audit": _describe_audit(page.attempts, result.method.name),
        "releases": write_plural(len(receipt.events), "release"),
        "certainty": certainty,
        "trust": "Nobody: records were randomised before they left the person."
        if local
        else f"The custodian of the table, and whoever runs the program. {access}",
    }


def _describe_delta(receipt: Receipt) -> str:
    delta, rows = Fraction(receipt.delta), receipt.nominal_rows
    if not delta:
        return "Delta is 0: it cannot."
    if not rows:
        return f"Delta is {write_delta(delta)}; no number of rows was declared to compare it with."
    judged = "below" if delta * rows < 1 else "NOT BELOW"
    counted = "persons" if receipt.per_person else "rows"
    return f"Delta is {write_delta(delta)}, {judged} one in the {rows:,} nominal {counted}."


def _describe_audit(attempts: Attempts | None, method: str) -> str:
    if attempts is None:
        return f"{NOT_ANSWERED}: no certificate of an audit was given; `dagveil audit {method}` writes one."
    broken = "; ".join(attempts.violations) or "nothing broke the claim"
    differs = f" It differs from this run: {'; '.join(attempts.mismatches)}." if attempts.mismatches else ""
    return f"An audit ({attempts.effort}, {attempts.created}) tried to: {broken}.{differs}"


def _from_people(said: str, request: str) -> str:
    return f"The custodian states: {said}" if said else f"{NOT_ANSWERED}: {request}."


def _name_proof(accounting: str) -> str:
    for word, page in (("zCDP", "zcdp-filter"), ("pure", "pure-filter"), ("Renyi", "renyi-filter")):
        if word in accounting:
            return f"proofs/{page}.md"
    return "proofs/gaussian-filter.md"

"""The certification pack of a result: what a person who signs needs, in one folder, with digests and a signature.

The signature is OpenSSH's (docs/decisions/0022-signatures-by-openssh.md).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dagveil._version import __version__
from dagveil.errors import DagveilError, DataError, MissingExtraError
from dagveil.privacy.budget import Relation
from dagveil.privacy.receipt import PER_PERSON, PLUGIN, Receipt, Trust
from dagveil.report.formatting import write_delta, write_epsilon, write_plural
from dagveil.report.guarantee import Attempts, Standing
from dagveil.report.html import open_templates, render_report
from dagveil.report.model import ReportModel, build_model
from dagveil.report.registry import DeploymentFacts, build_card, build_entry, encode_card, write_yaml
from dagveil.runs.installation import DISTRIBUTION, installed_version, required_packages
from dagveil.runs.result import Result, now, result_from_json

if TYPE_CHECKING:
    from dagveil.audit.certificate import Certificate

NOT_ANSWERED: Final = "Not answered by the program"


@dataclass(frozen=True, slots=True)
class Hazard:
    """One hazard, answered."""

    number: int  # ours
    about: str  # the level of the publication's pyramid
    question: str  # what may go wrong
    answer: str  # a sentence, or "Not answered by the program: …", with who must answer
    place: str = ""  # where in result.json the fact stands
    proof: str = ""  # a page of the documentation

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
    local = receipt.trust is Trust.NOBODY
    guessing = receipt.describe_guessing()
    access = _from_people(facts.access_controls, "say who has access under access_controls")
    certainty = "Tests know their noise." if result.confidence.redraws else "This method gives no confidence of edges."
    if result.confidence.redraws:
        certainty += " Each edge has a confidence."
    if result.false_edges is not None:
        certainty += f" About {result.false_edges:.1f} edges are expected where nothing depends on anything."
    return {
        "epsilon": write_epsilon(Fraction(receipt.epsilon)),
        "guessing": f"{guessing[0].upper()}{guessing[1:]}",
        "delta": _describe_delta(receipt),
        "kind": "approximate" if Fraction(receipt.delta) else "pure",
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
    kinds = {"zCDP": "zcdp", "pure": "pure", "Renyi": "renyi"}
    return f"proofs/{next((kinds[word] for word in kinds if word in accounting), 'gaussian')}-filter.md"


def build_bill(created: str) -> dict[str, Any]:
    """Return the bill, in CycloneDX 1.5; `created` is a time in ISO 8601."""
    needs = _follow_needs(DISTRIBUTION)
    components = [_describe(name) for name in sorted(needs) if name != DISTRIBUTION]
    components.append({"type": "platform", "bom-ref": "python", "name": "python", "version": platform.python_version()})
    listed = "\n".join(f"{part['name']} {part['version']}" for part in components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'dagveil {__version__} {created} {listed}')}",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": _name_part("application", DISTRIBUTION, __version__),
        },
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": sorted(needs[name])} for name in sorted(needs)],
    }


def _follow_needs(distribution: str) -> dict[str, set[str]]:
    """Return what each package needs, from one on; what is not installed here is not in use, and left out."""
    needs: dict[str, set[str]] = {}
    waiting = [_tidy(distribution)]
    while waiting:
        name = waiting.pop()
        if name not in needs:
            found = {_tidy(other) for other in required_packages(name)}
            needs[name] = {other for other in found if installed_version(other) is not None}
            waiting += needs[name]
    return needs


def _name_part(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "bom-ref": name, "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}


def _describe(name: str) -> dict[str, Any]:
    part = _name_part("library", name, installed_version(name) or "unknown")
    facts = importlib.metadata.metadata(name).json
    licence = str(facts.get("license_expression") or facts.get("license") or "").split("\n")[0]
    if licence:
        part["licenses"] = [{"license": {"name": licence[:100]}}]
    return part


def _tidy(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.json.sig"
NAMESPACE: Final = "dagveil-certification"
_SIGNER: Final = "custodian"
_SECONDS: Final = 60


def build_pack(
    result: Result, facts: DeploymentFacts, certificate: Certificate | None = None, certificate_json: bytes = b""
) -> dict[str, bytes]:
    """Return the files of the pack by name, without a signature. A result that promises nothing is refused."""
    page = build_model(result, certificate)
    if page.standing is Standing.NOT_PRIVATE:
        reason = page.alarms[0].headline.lower()
        raise DataError(f"this result promises nothing ({reason}), so there is nothing to certify")
    if missing := facts.missing():
        raise DataError(f"these facts are missing: {', '.join(missing)}; they are for people to state")
    created = now()
    entry, hazards = build_entry(page, facts), answer_hazards(page, facts)
    listed = [msgspec.to_builtins(hazard) | {"answered": hazard.answered} for hazard in hazards]
    files = {
        "result.json": (result.to_json() + "\n").encode(),
        "report.html": render_report(page).encode(),
        "card.json": f"{encode_card(build_card(page))}\n".encode(),
        "registry.yaml": write_yaml(entry).encode(),
        "hazards.json": _encode({"source": "NIST SP 800-226, in our own words and numbers", "hazards": listed}),
        "bill-of-materials.cdx.json": _encode(build_bill(created)),
    }
    if certificate is not None:
        files["certificate.json"] = certificate_json
    facts_shown = {"entry": entry, "hazards": hazards, "open": sum(not hazard.answered for hazard in hazards)}
    template = open_templates().get_template("certification.html.j2")
    files["sign.html"] = template.render(page=page, digests=_digest(files), **facts_shown).encode()
    manifest = {"format": "dagveil-certification", "version": 1, "software": __version__, "created": created}
    return {**files, MANIFEST: _encode({**manifest, "files": _digest(files)})}


def certify(
    result: Result,
    folder: str | Path,
    facts: DeploymentFacts,
    *,
    certificate: Certificate | None = None,
    certificate_json: bytes = b"",
    key: str | Path | None = None,
) -> tuple[str, ...]:
    """Write the certification pack of a result into a new or empty folder, and return the names of its files.

    The result has a guarantee. `facts` are what only people know. `certificate` and `certificate_json` are of an audit
    of the method, and the content of its file. `key` is a private key of OpenSSH's to sign with.
    """
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise DataError(f"{place} is not empty, and a pack holds nothing else; choose a new folder")
    files = build_pack(result, facts, certificate, certificate_json)
    if key is not None:
        files[SIGNATURE] = sign_manifest(files[MANIFEST], key)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    except OSError as error:
        raise DataError(f"cannot write {place}: {error.strerror}; choose another folder") from error
    return tuple(files)


def sign_manifest(manifest: bytes, key: str | Path) -> bytes:
    """Return the detached signature of a manifest by a private key of OpenSSH's; ssh-keygen asks for its passphrase."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / MANIFEST
        place.write_bytes(manifest)
        done = _call("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(place))
        if done.returncode:
            raise DataError(f"ssh-keygen cannot sign with {key}: {_last_line(done)}; give a private key of OpenSSH's")
        return place.with_name(SIGNATURE).read_bytes()


def verify_pack(folder: str | Path, public_key: str | Path | None = None) -> tuple[tuple[str, ...], str]:
    """Check a pack: the digests of its files, the receipt of its result, and its signature.

    Returns what is wrong, nothing if all is well, and a sentence about who signed. Without a public key the signature
    is checked against the key that it names itself, which tells only that nothing was changed afterwards.
    """
    folder, wrong = Path(folder), []
    try:
        manifest = (folder / MANIFEST).read_bytes()
        expected: Mapping[str, str] = json.loads(manifest)["files"]
        present = {path.name for path in folder.iterdir()} - {MANIFEST, SIGNATURE}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder} is no certification pack; give a folder that `dagveil certify` wrote") from error
    wrong += [f"{name} is missing" for name in expected if name not in present]
    wrong += [f"{name} is not in the manifest" for name in sorted(present - set(expected))]
    for name in sorted(present & set(expected)):
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected[name]:
            wrong.append(f"{name} was changed after it was written")
    if "result.json" in present:
        try:
            result_from_json((folder / "result.json").read_bytes())
        except DagveilError as error:
            wrong.append(f"result.json: {error}")
    if not (folder / SIGNATURE).exists():
        if public_key is not None:
            wrong.append("there is no signature")
        return tuple(wrong), "Nobody signed it."
    problem, signer = _check_signature(manifest, folder / SIGNATURE, public_key)
    return (*wrong, *problem), signer


def _check_signature(manifest: bytes, signature: Path, public_key: str | Path | None) -> tuple[list[str], str]:
    if public_key is None:
        done = _call("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature), given=manifest)
        if done.returncode:
            return ["the signature does not fit the manifest"], "Its signature is wrong."
        return [], f"Signed: {_last_line(done)}. Whose key that is was not checked: give --public-key."
    try:
        key = Path(public_key).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the public key {public_key}; give a .pub file of OpenSSH's") from error
    with tempfile.TemporaryDirectory() as folder:
        allowed = Path(folder) / "allowed"
        allowed.write_text(f'{_SIGNER} namespaces="{NAMESPACE}" {key}\n', encoding="utf-8")
        done = _call(
            *("-Y", "verify", "-f", str(allowed), "-I", _SIGNER, "-n", NAMESPACE, "-s", str(signature)), given=manifest
        )
    if done.returncode:
        return ["the signature is not by this key, or does not fit the manifest"], "Its signature is wrong."
    return [], f"Signed with the key in {public_key}."


def _call(*words: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise MissingExtraError("signatures need ssh-keygen: install OpenSSH 8.1 or newer (openssh-client)")
    try:
        # without an input of its own it may ask a person for a passphrase
        return subprocess.run([program, *words], input=given, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError("ssh-keygen did not answer within a minute; unlock the key in an agent first") from error


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return said[-1] if said else "it said nothing"


def _digest(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _encode(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()

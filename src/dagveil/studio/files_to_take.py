"""Files to take along: synthetic rows, and the certification pack, each in one zip."""

from __future__ import annotations

import io
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import tomli_w
from pyarrow import csv

from dagveil.data.schema import schema_to_toml
from dagveil.errors import DataError
from dagveil.evidence.bundle import Evidence
from dagveil.report.certification import build_pack
from dagveil.report.registry import NEEDED, DeploymentFacts, read_fact
from dagveil.runs.result import Result
from dagveil.runs.synthesis import synthesize
from dagveil.studio.responses import Refused

_MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold; when a file was made stands inside it


def zip_synthetic(evidence: Evidence, rows: int, seed: int) -> bytes:
    """Draw synthetic rows; what the model leaves out is told beside them."""
    drawn = synthesize(evidence, rows, seed=seed)
    table = io.BytesIO()
    csv.write_csv(drawn.table, table)
    notes = "\n".join(("Synthetic rows, drawn from released evidence. No record is real.", *drawn.notes, ""))
    files = {"synthetic.csv": table.getvalue(), "synthetic.toml": schema_to_toml(drawn.schema).encode()}
    return _zip({**files, "notes.txt": notes.encode()})


def zip_certification(result: Result, facts: DeploymentFacts) -> bytes:
    """Write the certification pack, unsigned."""
    return _zip(build_pack(result, facts))


def list_facts(kept: DeploymentFacts) -> dict[str, dict[str, str]]:
    """Return what a form asks: the facts that are needed with their questions, then the others; each with its value."""
    said = {name: "; ".join(value) if isinstance(value, tuple) else value for name, value in _fields(kept)}
    return {name: {"ask": NEEDED.get(name, name.replace("_", " ").capitalize()), "said": said[name]} for name in said}


def read_facts(place: Path) -> DeploymentFacts:
    """Read the facts that are kept beside a schema."""
    try:
        return msgspec.convert(tomllib.loads(place.read_text(encoding="utf-8")), DeploymentFacts)
    except FileNotFoundError:
        return DeploymentFacts()
    except (OSError, ValueError) as error:
        raise DataError(f"{place.name} cannot be read; correct it, or move it away") from error


def write_facts(given: Mapping[str, str]) -> str:
    """Return facts as they are kept, or say what is missing."""
    try:
        facts = msgspec.convert({name: read_fact(name, value) for name, value in given.items()}, DeploymentFacts)
    except msgspec.ValidationError as error:
        raise Refused(422, "wrong layout", str(error)) from None
    if missing := facts.missing():
        raise Refused(422, "missing", " ".join(("Not answered yet:", *(NEEDED[name] for name in missing))))
    return tomli_w.dumps(msgspec.to_builtins(facts))


def _fields(facts: DeploymentFacts) -> list[tuple[str, str | tuple[str, ...]]]:
    names = sorted(facts.__struct_fields__, key=lambda name: name not in NEEDED)
    return [(name, getattr(facts, name)) for name in names]


def _zip(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, content in files.items():
            folder.writestr(zipfile.ZipInfo(name, _MOMENT), content)
    return packed.getvalue()

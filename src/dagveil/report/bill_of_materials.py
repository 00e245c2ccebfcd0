"""A software bill of materials in CycloneDX: the packages of this environment that dagveil needs, with versions."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import uuid
from typing import Any

from dagveil._version import __version__
from dagveil.runs.installation import DISTRIBUTION, installed_version, required_packages


def build_bill(created: str) -> dict[str, Any]:
    """Return the bill, in CycloneDX 1.5.

    - `created`: a time in ISO 8601.
    """
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
            "component": {
                "type": "application",
                "bom-ref": DISTRIBUTION,
                "name": DISTRIBUTION,
                "version": __version__,
                "purl": f"pkg:pypi/{DISTRIBUTION}@{__version__}",
            },
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


def _describe(name: str) -> dict[str, Any]:
    version = installed_version(name) or "unknown"
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    facts = importlib.metadata.metadata(name).json
    licence = str(facts.get("license_expression") or facts.get("license") or "").split("\n")[0]
    if licence:
        part["licenses"] = [{"license": {"name": licence[:100]}}]
    return part


def _tidy(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

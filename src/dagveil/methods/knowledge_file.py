"""Background knowledge from a TOML file, for searching evidence again with other knowledge."""

from __future__ import annotations

import tomllib
from pathlib import Path

from dagveil.errors import KnowledgeError
from dagveil.graphs.knowledge import Knowledge


def load_knowledge(path: str | Path) -> Knowledge:
    """Read `tiers`, `forbidden` and `required`, at the top of the file or under [knowledge] as in a schema.

    Parameters
    ----------
    path
        A TOML file.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise KnowledgeError(f"there is no file {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path} is not TOML: {error}") from error
    content = document.get("knowledge", document)
    unknown = (
        sorted(set(content) - {"tiers", "forbidden", "required"})
        if content is not document or "columns" not in document
        else []
    )
    if unknown:
        raise KnowledgeError(f"{path} has unknown keys: {', '.join(unknown)}; use tiers, forbidden and required")
    return Knowledge(
        tuple(tuple(str(name) for name in tier) for tier in content.get("tiers", ())),
        _arcs(content.get("forbidden", ()), "forbidden"),
        _arcs(content.get("required", ()), "required"),
    )


def _arcs(pairs: object, key: str) -> frozenset[tuple[str, str]]:
    if not isinstance(pairs, list | tuple):
        raise KnowledgeError(f"{key} must be a list of pairs [cause, effect]")
    found = set()
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise KnowledgeError(f"{key} must be a list of pairs [cause, effect]")
        found.add((str(pair[0]), str(pair[1])))
    return frozenset(found)

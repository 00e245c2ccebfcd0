"""Background knowledge as TOML, for searching evidence again with other knowledge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dagveil.data.schema import load_toml, parse_toml
from dagveil.errors import KnowledgeError
from dagveil.graphs.knowledge import Knowledge


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    tiers: list[list[str]] = []
    forbidden: list[tuple[str, str]] = []
    required: list[tuple[str, str]] = []


def load_knowledge(path: str | Path) -> Knowledge:
    """Read `tiers`, `forbidden` and `required`, at the top of the file or under [knowledge] as in a schema.

    Parameters
    ----------
    path
        A TOML file.
    """
    document = load_toml(path, KnowledgeError, "the knowledge", "give the path of a knowledge file")
    return _read(document, f"the knowledge in {path}")


def knowledge_from_toml(text: str) -> Knowledge:
    """Read background knowledge from the text of such a file.

    Examples
    --------
    >>> knowledge_from_toml('tiers = [["smokes"], ["coughs"]]').tiers
    (('smokes',), ('coughs',))
    """
    return _read(parse_toml(text, KnowledgeError, "the knowledge"), "the knowledge")


def _read(document: dict[str, Any], what: str) -> Knowledge:
    # a schema declares columns beside its knowledge, and may declare no knowledge at all
    content = document.get("knowledge", {} if "columns" in document else document)
    try:
        parsed = msgspec.convert(content, _Content)
    except msgspec.ValidationError as error:
        raise KnowledgeError(
            f"{what} cannot be read: {error}. tiers is a list of lists of columns, forbidden and required are lists of "
            "pairs [cause, effect]"
        ) from error
    return Knowledge(
        tuple(tuple(tier) for tier in parsed.tiers), frozenset(parsed.forbidden), frozenset(parsed.required)
    )

"""The neighbouring relation: which two tables must be hard to tell apart."""

from __future__ import annotations

import enum


class Relation(enum.Enum):
    """How two neighbouring tables differ; an argument of every sensitivity."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @property
    def words(self) -> str:
        """The relation in plain words."""
        if self is Relation.ADD_REMOVE:
            return "one record is added or removed"
        return "one record is replaced by another; the number of rows is public"

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
        return self.describe("one record")

    def describe(self, unit: str, more: str = "", known: str = "number of rows") -> str:
        """Say the relation about some unit."""
        with_more = f" {more}" if more else ""
        if self is Relation.ADD_REMOVE:
            return f"{unit}{with_more} is added or removed"
        return f"{unit}{with_more} is replaced by another; the {known} is public"

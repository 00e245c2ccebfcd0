"""Background knowledge: tiers, forbidden edges and required edges."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain, permutations

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import KnowledgeError
from dagveil.graphs.cpdag import Arc, Cpdag, Dag, close, nearest_extension, sort_topologically


class Knowledge(msgspec.Struct, frozen=True, dict=True):
    """What is known about the graph before the data are seen. It is public and costs no budget.

    - `tiers`: groups of columns in the order of time: a later tier never causes an earlier one. Columns in no tier are
      free.
    - `forbidden`: edges (cause, effect) that cannot be. The reverse stays possible unless it is forbidden as well.
    - `required`: edges (cause, effect) that must be.

    Examples
    --------
    >>> knowledge = Knowledge(tiers=(("age", "sex"), ("income",)), forbidden=frozenset({("age", "sex")}))
    >>> knowledge.allows("income", "age"), knowledge.allows("sex", "age")
    (False, True)
    """

    tiers: tuple[tuple[str, ...], ...] = ()
    forbidden: frozenset[Arc] = frozenset()
    required: frozenset[Arc] = frozenset()

    def __post_init__(self) -> None:
        force_setattr(self, "tiers", tuple(tuple(tier) for tier in self.tiers))
        force_setattr(self, "forbidden", frozenset((cause, effect) for cause, effect in self.forbidden))
        force_setattr(self, "required", frozenset((cause, effect) for cause, effect in self.required))

    @classmethod
    def none(cls) -> Knowledge:
        """Return the knowledge that says nothing."""
        return cls()

    def within(self, nodes: Iterable[str]) -> Knowledge:
        """Return the part of this knowledge that speaks of these nodes only."""
        kept = set(nodes)
        return Knowledge(
            tuple(tuple(node for node in tier if node in kept) for tier in self.tiers),
            frozenset(arc for arc in self.forbidden if kept.issuperset(arc)),
            frozenset(arc for arc in self.required if kept.issuperset(arc)),
        )

    def check(self, nodes: Iterable[str]) -> None:
        """Refuse knowledge that names other nodes than these or contradicts itself.

        Call it before any budget is spent. Forbidden edges contradict each other when the directions that they leave
        could run in a circle: then some graphs found by data would have no reading that obeys them.
        """
        if not (self.tiers or self.forbidden or self.required):
            return
        names = tuple(nodes)
        listed = [node for tier in self.tiers for node in tier]
        ends = {node for arc in self.forbidden | self.required for node in arc}
        unknown = sorted((ends | set(listed)) - set(names))
        if unknown:
            raise KnowledgeError(
                f"knowledge names {len(unknown)} unknown columns: {', '.join(unknown)}; "
                f"the columns are: {', '.join(names)}"
            )
        twice = sorted({node for node in listed if listed.count(node) > 1})
        if twice:
            raise KnowledgeError(f"{len(twice)} columns are listed more than once in the tiers: {', '.join(twice)}")
        for cause, effect in sorted(self.forbidden | self.required):
            if cause == effect:
                raise KnowledgeError(f"knowledge joins {cause!r} to itself; give two different columns")
        for cause, effect in sorted(self.required):
            arc = f"{cause!r} → {effect!r}"
            if (cause, effect) in self.forbidden:
                raise KnowledgeError(f"{arc} is both required and forbidden; remove one of the two")
            if self._is_against_tiers(cause, effect):
                raise KnowledgeError(
                    f"{arc} is required, but {cause!r} is in tier {self._tier_of[cause] + 1} and {effect!r} in the "
                    f"earlier tier {self._tier_of[effect] + 1}; move a column or remove the edge"
                )
        if sort_topologically(names, self.required) is None:
            raise KnowledgeError(f"the {len(self.required)} required edges run in a circle; remove or turn one of them")
        if sort_topologically(names, self._list_forced([names])) is None:
            raise KnowledgeError(
                f"the directions left open by {len(self.forbidden)} forbidden edges, {len(self.required)} required "
                f"edges and {len(self.tiers)} tiers can run in a circle; forbid both directions of an edge of the "
                "circle, or allow one of them again"
            )

    def allows(self, cause: str, effect: str) -> bool:
        """Return whether cause → effect is possible: not forbidden, not against the tiers, its reverse not required."""
        return not (
            (cause, effect) in self.forbidden
            or (effect, cause) in self.required
            or self._is_against_tiers(cause, effect)
        )

    def excludes(self, x: str, y: str) -> bool:
        """Return whether neither direction is possible: no question about this pair needs budget."""
        if not (self.forbidden or self.required or self.tiers):
            return False
        return not self.allows(x, y) and not self.allows(y, x)

    def requires(self, x: str, y: str) -> bool:
        """Return whether an edge between the two is required, in either direction."""
        return (x, y) in self.required or (y, x) in self.required

    def orient(self, cpdag: Cpdag) -> Cpdag:
        """Return the graph that obeys this knowledge and keeps all of `cpdag` that does not contradict it.

        Knowledge wins over data, in this way:

        1. edges that are excluded go, and required edges that are missing come;
        2. an edge that knowledge allows in one direction only points there, whatever the data said;
        3. the other arrows found by data stay in as long as they close no cycle;
        4. the rest is directed without new colliders where that is possible, which gives a DAG;
        5. the result is that DAG's CPDAG with the arrows of step 2, closed under Meek's rules.

        So an arrow of data that rested on a collider which knowledge has overthrown becomes undirected again. The
        result is always an MPDAG: it has a DAG, and each of its DAGs obeys the knowledge. A valid CPDAG comes back
        unchanged from knowledge that says nothing; an impossible graph comes back as the nearest possible one.

        Examples
        --------
        >>> chain = Cpdag(("a", "b", "c"), frozenset(), frozenset({frozenset("ab"), frozenset("bc")}))
        >>> sorted(Knowledge(tiers=(("a",), ("b", "c"))).orient(chain).directed)
        [('a', 'b'), ('b', 'c')]
        """
        nodes = cpdag.nodes
        self.check(nodes)
        skeleton = {pair for pair in cpdag.skeleton() if not self.excludes(*pair)}
        skeleton |= {frozenset(arc) for arc in self.required}
        fixed = self._list_forced(skeleton)
        settled = {frozenset(arc) for arc in fixed}
        arrows = set(fixed)
        free = skeleton - settled
        seen = {arc for arc in cpdag.directed if frozenset(arc) in free}
        if sort_topologically(nodes, arrows | seen) is not None:
            arrows |= seen
        else:
            for arc in sorted(seen):
                if sort_topologically(nodes, arrows | {arc}) is not None:
                    arrows.add(arc)
        loose = skeleton - {frozenset(arc) for arc in arrows}
        learned = Dag(nodes, nearest_extension(nodes, arrows, loose)).cpdag()
        undirected = frozenset(pair for pair in learned.undirected if pair not in settled)
        return Cpdag(nodes, *close(nodes, learned.directed | fixed, undirected))

    def _list_forced(self, groups: Iterable[Iterable[str]]) -> set[Arc]:
        """Return the arcs within groups of nodes of which knowledge allows this direction only."""
        arcs = chain.from_iterable(permutations(group, 2) for group in groups)
        return {arc for arc in arcs if self.allows(*arc) and not self.allows(*arc[::-1])}

    def _is_against_tiers(self, cause: str, effect: str) -> bool:
        later, earlier = self._tier_of.get(cause), self._tier_of.get(effect)
        return later is not None and earlier is not None and later > earlier

    @cached_property
    def _tier_of(self) -> dict[str, int]:
        return {node: position for position, tier in enumerate(self.tiers) for node in tier}


NO_KNOWLEDGE = Knowledge.none()  # the knowledge that says nothing

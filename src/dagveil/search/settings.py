"""Settings of the search over evidence: changing them costs nothing."""

import enum
import math
from dataclasses import dataclass, replace

from dagveil.errors import MethodError
from dagveil.search.constraint.skeleton import FALSE_EDGES, SkeletonSettings
from dagveil.search.probabilities import FEWEST_REDRAWS


class ArrowRule(enum.Enum):
    """How arrows are found."""

    EVIDENCE = "evidence"
    SEPARATING_SETS = "separating-sets"


class SearchRule(enum.Enum):
    """What the search goes by."""

    AUTO = "auto"
    """Tests; on pairs and three-way tables the score may put back what tests separated in doubt."""

    TESTS = "tests"
    """Independence tests, as PC does."""

    SCORE = "score"
    """A noise-aware score, as greedy equivalence search does."""

    NOTEARS = "notears"
    """The least squares of a linear model without cycles; for moments only."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Thresholds and rules; None means the default for the kind of evidence.

    - `marginal_level`: an edge is kept at first if its marginal p-value is below this.
    - `conditional_level`: a set separates if its p-value is above this, and if the Bayes factor does not speak for a
      dependence.
    - `largest_order`: size of the largest conditioning set.
    - `arrows`: how arrows are found.
    - `redraws`: how often noise is drawn again for edge confidence; 0 leaves it out.
    - `search`: what the search goes by; None takes what the method stands for.
    - `false_edges`: edges that may appear on average if nothing depended on anything.
    - `hidden_causes`: whether columns may share causes that were not measured: the graph is a PAG, found by tests.
    - `selection_bias`: whether rows may also have been selected by what is studied; only with `hidden_causes`.
    - `edges_at`: draw the edges with at least this probability; None draws those that redraws agree on.
    """

    marginal_level: float | None = None
    conditional_level: float | None = None
    largest_order: int | None = None
    arrows: ArrowRule = ArrowRule.EVIDENCE
    redraws: int = 50
    search: SearchRule | None = None
    false_edges: float = FALSE_EDGES
    hidden_causes: bool = False
    selection_bias: bool = False
    edges_at: float | None = None

    def __post_init__(self) -> None:
        for name in ("marginal_level", "conditional_level"):
            level = getattr(self, name)
            if level is not None and not 0.0 < level < 1.0:
                raise MethodError(f"{name} is {level:g}; choose a number between 0 and 1, for example 0.01")
        if self.largest_order is not None and not 0 <= self.largest_order <= 5:
            raise MethodError(f"largest_order is {self.largest_order}; choose between 0 and 5")
        if not 0.0 < self.false_edges < math.inf:
            raise MethodError(f"false_edges is {self.false_edges:g}; choose a number above 0, for example 0.5")
        if not 0 <= self.redraws <= 10_000:
            raise MethodError(f"redraws is {self.redraws}; choose between 0 and 10000")
        if self.selection_bias and not self.hidden_causes:
            raise MethodError("selection bias shows in a PAG only; ask for hidden causes too, or leave it out")
        if self.hidden_causes and self.search in (SearchRule.SCORE, SearchRule.NOTEARS):
            raise MethodError(
                f"a search by {self.search.value} takes all causes for measured, so it cannot allow for hidden ones; "
                "search by tests or auto, or leave hidden causes out"
            )
        if self.hidden_causes and self.arrows is not ArrowRule.EVIDENCE:
            raise MethodError(
                f"marks of hidden causes are weighed by evidence, not by {self.arrows.value}; leave arrows out, or "
                "leave hidden causes out"
            )
        if self.edges_at is not None:
            if not 0.0 < self.edges_at < 1.0:
                raise MethodError(f"edges_at is {self.edges_at:g}; choose a probability between 0 and 1, such as 0.9")
            if reason := self.why_no_probabilities():
                raise MethodError(f"edges_at needs probabilities, and {reason}; leave one of the two out")

    def why_no_probabilities(self) -> str | None:
        """Say why a search by these settings has no probabilities of edges; None if it may have them."""
        if self.hidden_causes:
            return "probabilities were checked only where every common cause is a column, not with hidden causes"
        if self.redraws < FEWEST_REDRAWS:
            return f"{self.redraws} redraws are too few, take at least {FEWEST_REDRAWS}"
        free = replace(self, search=None, edges_at=None)
        if self.search not in (None, SearchRule.AUTO) or free != SearchSettings(redraws=self.redraws):
            return "probabilities were checked for the usual levels and rules of the search, not for others"
        return None

    def skeleton(self, defaults: SkeletonSettings) -> SkeletonSettings:
        """Return the skeleton's settings with these changes."""
        changes = {
            name: value
            for name in ("marginal_level", "conditional_level", "largest_order")
            if (value := getattr(self, name)) is not None
        }
        return replace(defaults, **changes)

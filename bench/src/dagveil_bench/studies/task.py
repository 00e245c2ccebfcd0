"""What one run of a study is: the discovery of a graph, a test of independence, or a search of randomised records."""

from __future__ import annotations

import enum


class Task(enum.Enum):
    """What one run of a study is."""

    GRAPH = "graph"
    """A method discovers the graph of a sample."""

    INDEPENDENCE = "independence"
    """A test decides one question of independence on one sample."""

    LOCAL = "local"
    """An algorithm searches records that a local mechanism has randomised; a budget is a p_max."""

    @property
    def axis(self) -> str:
        """What budgets are called in tables and figures."""
        return "p_max" if self is Task.LOCAL else "ε"

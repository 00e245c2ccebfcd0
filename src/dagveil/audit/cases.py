"""What is attacked: pairs and public settings under which one record moves most of what the budget pays for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dagveil.audit.neighbours import DataKind, fitting_kinds, fitting_relations
from dagveil.audit.search import Effort
from dagveil.methods.catalogue import Method
from dagveil.privacy.relation import Relation

Setting = str | tuple[str, ...]
"""The value of a setting, or several, as the command line gives them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pair, and the settings that a method runs with on it."""

    kind: DataKind
    relation: Relation
    options: Mapping[str, Setting] = field(default_factory=dict)


_ONE_QUESTION: Final = {"largest_order": "0"}
_FROM_PUBLIC_ROWS: Final = {**_ONE_QUESTION, "statistic": "g"}
"""G needs no one-way tables where the number of rows is public, so all of the budget goes into the questions."""

SHARP: Final[Mapping[str, tuple[tuple[DataKind, Mapping[str, Setting]], ...]]] = {
    # one round of many questions: those that a record moves look like a threshold that moved, until one comes that the
    # record does not move
    "svt-pc": ((DataKind.BLOCK, {**_FROM_PUBLIC_ROWS, "rounds": "1", "level": "0.999", "slack": "0.17"}),),
    # the rounds lets everything pass, and nearly all of the budget examines one question
    "priv-pc": ((DataKind.TWO_COLUMNS, {**_FROM_PUBLIC_ROWS, "rounds": "1", "sieve_share": "0.001", "tweak": "20"}),),
    # one neighbour: how many go is the only choice, and a threshold far away makes one outcome rare
    "em-pc": (
        (DataKind.TWO_COLUMNS, {"statistic": "g", "order_shares": ("1",), "number_share": "0.999", "level": "1e-8"}),
    ),
    "curate": ((DataKind.TWO_COLUMNS, _FROM_PUBLIC_ROWS),),
    "sampled-gaussian-pc": (
        # a quarter of the rows moves G by less than is declared for all, and Kendall's sum hardly
        (DataKind.TWO_COLUMNS, {**_ONE_QUESTION, "questions": "1"}),
        (DataKind.TWO_COLUMNS, {**_FROM_PUBLIC_ROWS, "questions": "1", "rate": "1"}),
    ),
    "noleaks": ((DataKind.TWO_NUMBERS, {"iterations": "1", "outer": "1"}),),
    "curate-score": ((DataKind.TWO_NUMBERS, {"iterations": "1", "outer": "1"}),),
    "pcd": tuple(
        (DataKind.TWO_NUMBERS, {**_ONE_QUESTION, "questions": "1", "test": test}) for test in ("partial", "gcm")
    ),
    "measure": ((DataKind.TWO_COLUMNS, {}), (DataKind.TWO_NUMBERS, {})),
    "measure-ges": ((DataKind.TWO_COLUMNS, {}), (DataKind.TWO_NUMBERS, {})),
    "measure-notears": ((DataKind.TWO_NUMBERS, {}),),
    "measure-features": ((DataKind.TWO_NUMBERS, {}),),
    "priv-pc-star": ((DataKind.TWO_NUMBERS, {}),),
    "lap-mech": ((DataKind.TWO_COLUMNS, {}),),
}
"""For each method the pairs and settings that concentrate its budget on answers that one record moves most."""


def attack_cases(method: Method, effort: Effort, options: Mapping[str, Setting]) -> tuple[Case, ...]:
    """Return what is attacked: the sharp cases, and in a full audit ordinary tables with settings as they are given.

    Settings that are given stand above those of a case. A method that has no case of its own gets ordinary tables.

    Examples
    --------
    >>> from dagveil.methods.catalogue import method_named
    >>> [case.kind.value for case in attack_cases(method_named("curate"), Effort.QUICK, {})]
    ['two columns of levels', 'two columns of levels']
    """
    cases = [
        Case(kind, relation, {**chosen, **options})
        for kind, chosen in SHARP.get(method.name, ())
        for relation in fitting_relations(method, kind)
    ]
    ordinary = [kind for kind in fitting_kinds(method) if kind in (DataKind.LEVELS, DataKind.NUMBERS)]
    if effort is Effort.FULL or not cases:
        cases += [
            Case(kind, relation, dict(options)) for kind in ordinary[:1] for relation in fitting_relations(method, kind)
        ]
    return tuple(cases)


def is_slow(method: Method) -> bool:
    """Tell whether runs of a method take so long that fewer must do: one that asks adaptively runs one by one."""
    return method.ask is not None


def count_runs(method: Method, case: Case, effort: Effort) -> int:
    """Return how many runs on each table an attack has.

    Examples
    --------
    >>> from dagveil.methods.catalogue import method_named
    >>> cases = attack_cases(method_named("curate"), Effort.FULL, {})
    >>> [count_runs(method_named("curate"), case, Effort.FULL) for case in cases]
    [10000, 10000, 200, 200]
    """
    if case.kind.is_sharp:
        return effort.slow_runs if is_slow(method) else effort.runs
    return effort.slow_ordinary_runs if is_slow(method) else effort.ordinary_runs

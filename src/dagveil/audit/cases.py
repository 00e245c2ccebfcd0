"""What is attacked: pairs and public settings under which one record moves most of what the budget pays for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagveil.audit.neighbours import DataKind, fitting_kinds, fitting_relations
from dagveil.audit.search import Effort
from dagveil.methods.method import Method
from dagveil.privacy.relation import Relation

Setting = str | tuple[str, ...]
"""The value of a setting, or several, as the command line gives them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pair, and the settings that a method runs with on it."""

    kind: DataKind
    relation: Relation
    options: Mapping[str, Setting] = field(default_factory=dict)


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
        for kind, chosen in ((DataKind(case.kind), case.options) for case in method.sharp)
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

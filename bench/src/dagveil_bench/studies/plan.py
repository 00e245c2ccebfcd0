"""A study as data: what is sampled, which methods run at which budgets, how often, and what was printed elsewhere."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any

import msgspec
from msgspec.structs import force_setattr, replace

from dagveil.privacy.receipt import Calibration
from dagveil_bench.studies.metrics import Metric, Task

LARGE = 1e6  # budget of a ceiling that names none: noise no longer matters
QUICK = "-quick"  # ending of a miniature's name
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Role(enum.Enum):
    """What a method is in a study."""

    CONTENDER = "contender"  # run at every budget
    CEILING = "ceiling"  # run at one very large budget: what is possible without noise
    # an answer that needs no rows: the complete and the empty graph, a coin. Every study has those of its task
    FLOOR = "floor"


class DataSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One data set.

    The source is one of `dagveil_bench.studies.datasets`, or the name of a plug-in with its arguments; or what the
    study's task takes, such as a design of tests, or a data set and a mechanism of local privacy. Samples are seeded by
    the label, which is the source if empty. Variants are other sources of the same rows, for methods that ask for them:
    such as rows in public bins. Rows stand in place of the study's; repetitions are at most so many. The stand-in is
    sampled where the records are not installed; tables name it, as simulated if it has no label of its own.
    """

    source: Name
    label: str = ""
    variants: dict[str, str] = {}
    rows: tuple[Count, ...] = ()
    repetitions: Count | None = None
    stand_in: DataSet | None = None

    @property
    def title(self) -> str:
        """Its label, or its source."""
        return self.label or self.source


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One method with what was chosen for it.

    An empty label is made from the choices. The budget setting is given the budget as well, for published methods that
    take an epsilon per round; `settings_at` have one value for each budget. Budgets stand in place of the study's; data
    and rows are those that it takes, all if empty. Repetitions are at most so many, for runs that take long.
    """

    method: Name
    label: str = ""
    calibration: Calibration = Calibration.SOUND
    settings: dict[str, Any] = {}
    budget_setting: str | None = None
    settings_at: dict[str, tuple[float, ...]] = {}
    budgets: tuple[Positive, ...] = ()
    data: tuple[str, ...] = ()
    rows: tuple[Count, ...] = ()
    repetitions: Count | None = None
    variant: str = ""
    role: Role = Role.CONTENDER

    @property
    def title(self) -> str:
        """Its label, or one made from the choices."""
        if self.label:
            return self.label
        words = [self.method, *(f"{name}={value}" for name, value in self.settings.items())]
        if self.calibration is not Calibration.SOUND:
            words.append("as published")
        if self.role is Role.CEILING:
            words.append("without noise")
        return ", ".join(words)

    def takes(self, data: DataSet, n_rows: int) -> bool:
        """Tell whether it is run on this data set."""
        return (not self.data or data.title in self.data) and (not self.rows or n_rows in self.rows)


class Printed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of one method as they were published.

    They stand beside the method of this label. The source says where they are printed, and how they differ from ours. A
    figure holds for any budget, or any number of rows, if these are empty. Values have for each data set one figure per
    budget, or per number of rows, or a single one; with both, all budgets of the first number of rows come first; nan
    where none is printed.
    """

    method: Name
    metric: Metric
    source: Name
    values: dict[str, tuple[float | None, ...]]
    budgets: tuple[Positive, ...] = ()
    rows: tuple[Count, ...] = ()

    def __post_init__(self) -> None:
        # TOML has nan and no null, JSON has null and no nan
        clean = {
            label: tuple(None if value is None or math.isnan(value) else value for value in values)
            for label, values in self.values.items()
        }
        force_setattr(self, "values", clean)

    @property
    def size(self) -> int:
        """Figures that each data set has."""
        return max(1, len(self.budgets)) * max(1, len(self.rows))

    def at(self, data: str, epsilon: float, n_rows: int) -> float | None:
        """Return the figure for a data set, budget and number of rows, if there is one."""
        budgets = [math.isclose(budget, epsilon) for budget in self.budgets] or [True]
        rows = [number == n_rows for number in self.rows] or [True]
        places = [this and that for this in rows for that in budgets]
        return next((v for v, here in zip(self.values.get(data, ()), places, strict=False) if here), None)


class Miniature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a quick look changes: fewer of everything; empty keeps the study's."""

    rows: tuple[Count, ...] = ()
    repetitions: Count = 1
    budgets: tuple[Positive, ...] = ()
    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study.

    All combinations of data, methods, budgets and rows are run, but where a data set or a method says otherwise. The
    repetitions share so many samples; 0 draws one for each, and all methods and budgets see the same. Metrics are those
    of tables and figures; the store has them all. A run is given up after `limit` seconds. The champion is the method
    about which the page says where others have a higher F1; published figures stand beside ours. With `redraws`
    confidence is drawn so often, and graphs are those that a user sees; without, they have all that the search finds.
    Means are over the samples on which the method `answered_by` has an answer, if it has any: it may run out of time.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    title: Name
    data: tuple[str | DataSet, ...]
    methods: tuple[Entry, ...]
    budgets: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
    rows: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]
    task: Task = Task.GRAPH
    reproduces: str = ""
    repetitions: Count = 20
    samples: Annotated[int, msgspec.Meta(ge=0)] = 0
    redraws: Annotated[int, msgspec.Meta(ge=0)] = 0
    seed: Annotated[int, msgspec.Meta(ge=0)] = 1
    delta: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 1e-6
    metrics: Annotated[tuple[Metric, ...], msgspec.Meta(min_length=1)] = (Metric.SKELETON_F1,)
    limit: Positive | None = None
    champion: str = ""
    answered_by: str = ""
    published: tuple[Printed, ...] = ()
    notes: tuple[str, ...] = ()
    quick: Miniature = Miniature()

    @property
    def data_sets(self) -> tuple[DataSet, ...]:
        """The data sets; a name alone is a source."""
        return tuple(DataSet(item) if isinstance(item, str) else item for item in self.data)

    def miniature(self) -> Study:
        """Return the quick form of the study, under a name of its own."""
        quick = self.quick
        return replace(
            self,
            name=self.name + QUICK,
            title=f"{self.title} (a miniature)",
            rows=quick.rows or self.rows,
            repetitions=quick.repetitions,
            samples=0,
            budgets=quick.budgets or self.budgets,
            data=tuple(
                replace(data, rows=()) if quick.rows else data
                for data in self.data_sets
                if not quick.data or data.title in quick.data
            ),
            methods=tuple(
                replace(
                    entry,
                    rows=() if quick.rows else entry.rows,
                    budgets=() if quick.budgets and entry.role is Role.CONTENDER else entry.budgets,
                    data=tuple(label for label in entry.data if not quick.data or label in quick.data) or entry.data,
                )
                for entry in self.methods
                if not quick.methods or entry.title in quick.methods
            ),
            champion="" if quick.methods and self.champion not in quick.methods else self.champion,
            answered_by="" if quick.methods and self.answered_by not in quick.methods else self.answered_by,
            published=(),  # figures of others are not of a miniature
        )

    def to_json(self) -> str:
        """Write the study as JSON, as the store keeps it."""
        return msgspec.json.encode(self).decode()

"""The runs of a study: each has a key by which the store knows it, and seeds that do not depend on the other runs."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagveil.errors import MethodError
from dagveil.privacy.receipt import Calibration
from dagveil_bench.local_data import PAIR_SETS
from dagveil_bench.studies.metrics import Task
from dagveil_bench.studies.plan import LARGE, DataSet, Entry, Role, Study

COMPLETE = "complete-graph"
EMPTY = "empty-graph"
NO_ROWS = "no-rows"
COIN = "coin"
# answers that need no rows, with their labels
FLOORS = {
    COMPLETE: "the complete graph",
    EMPTY: "the empty graph",
    NO_ROWS: "a test that looks at no rows",
    COIN: "a coin",
}
FILTERS = ("data", "method", "calibration", "epsilon", "rows", "role", "repetition")  # what runs can be chosen by


class Job(msgspec.Struct, frozen=True):
    """One run: what is sampled and run, with seeds from the study's, the sample's number and the repetition.

    Samples are seeded by label, rows and number of the sample; label and role are of the method in tables.
    """

    data: str
    source: str
    n_rows: int
    method: str
    calibration: Calibration
    settings: dict[str, Any]
    epsilon: float
    delta: float
    seed: int
    sample: int
    repetition: int
    label: str
    role: Role
    task: Task = Task.GRAPH
    redraws: int = 0

    @property
    def key(self) -> str:
        """Digest of everything that can change the outcome: labels of methods can be mended after a run."""
        parts: tuple[object, ...] = (
            *(self.data, self.source, self.n_rows, self.method, self.calibration.value, sorted(self.settings.items())),
            *(self.epsilon, self.delta, self.seed, self.sample, self.repetition),
        )
        if self.task is not Task.GRAPH:  # keys of stored graphs stay what they were
            parts = (self.task.value, *parts)
        if self.redraws:
            parts = (*parts, self.redraws)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:24]

    @property
    def sample_seed(self) -> int:
        """Seed of the rows: the same for all methods and budgets."""
        return _seed_of("rows", self.seed, self.data, self.n_rows, self.sample)

    @property
    def noise_seed(self) -> int:
        """Seed of the noise: of this run alone."""
        return _seed_of("noise", self.key)

    @property
    def plain_seed(self) -> int:
        """The study's seed and the number of the sample, for tasks that draw rows and noise from such numbers."""
        return self.seed + self.sample


def list_jobs(study: Study) -> list[Job]:
    """Return all runs, one repetition after the other, so that half a study is a study of half the repetitions."""
    combinations = [
        (data, n_rows, entry, epsilon)
        for data in study.data_sets
        for n_rows in data.rows or study.rows
        for entry in (*study.methods, *_floors(study.task, data))
        if entry.takes(data, n_rows)
        for epsilon in _budgets(study, entry)
    ]
    jobs = [
        _job(study, *chosen, repetition)
        for repetition in range(study.repetitions)
        for chosen in combinations
        if repetition == 0
        or (
            _is_repeated(study.task, chosen[2].role)
            and all(part.repetitions is None or repetition < part.repetitions for part in (chosen[0], chosen[2]))
        )
    ]
    seen: dict[str, Job] = {}
    for job in jobs:
        twin = seen.setdefault(job.key, job)
        if twin is not job:
            raise MethodError(
                f"the study cannot be run: {job.label!r} and {twin.label!r} are the same run on {job.data} at "
                f"epsilon {job.epsilon:g}; leave one out"
            )
    return jobs


def choose_jobs(jobs: Sequence[Job], only: Mapping[str, Sequence[str]]) -> list[Job]:
    """Keep the runs that match any of the values of each name among FILTERS.

    A method goes by its name or its label. Ceilings and floors have no budget, so they stay with any.
    """
    kept = list(jobs)
    for name, values in only.items():
        if name not in FILTERS:
            raise MethodError(f"runs cannot be chosen by {name!r}; choose by {', '.join(FILTERS)}")
        wanted = set(map(_write_number, values)) if name == "epsilon" else set(values)
        present = {value for job in jobs for value in _values(job, name)}
        missing = sorted(wanted - present)
        if missing:
            raise MethodError(f"no run has {name} {missing[0]!r}; there are: {'; '.join(sorted(present))}")
        kept = [job for job in kept if wanted & (found := _values(job, name)) or not found]
    return kept


def _values(job: Job, name: str) -> set[str]:
    return {
        "data": {job.data},
        "method": {job.method, job.label},
        "calibration": {job.calibration.value},
        "epsilon": {f"{job.epsilon:g}"} if job.role is Role.CONTENDER else set(),
        "rows": {str(job.n_rows)},
        "role": {job.role.value},
        "repetition": {str(job.repetition)},
    }[name]


def _write_number(text: str) -> str:
    """Write a number as budgets are written; leave what is none to the message about it."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _floors(task: Task, data: DataSet) -> tuple[Entry, ...]:
    without = (Task.MEMBERSHIP, Task.SYNTHESIS, Task.HIDDEN_CAUSES)
    chosen: tuple[str, ...] = () if task in without else (COMPLETE, EMPTY)
    if task is Task.INDEPENDENCE or (task is Task.REPORTS and data.source.endswith("null")):
        chosen = (NO_ROWS,)
    elif task is Task.LOCAL and data.source.split()[0] in PAIR_SETS:
        chosen = (COIN,)
    return tuple(Entry(method, label=FLOORS[method], role=Role.FLOOR) for method in chosen)


def _is_repeated(task: Task, role: Role) -> bool:
    """Tell whether another repetition is another run: records of local studies are always the same, noise is not."""
    return role is Role.CONTENDER if task is Task.LOCAL else task is not Task.INDEPENDENCE or role is not Role.FLOOR


def _budgets(study: Study, entry: Entry) -> tuple[float, ...]:
    if entry.role is Role.FLOOR:
        return (0.0,)
    return entry.budgets or ((LARGE,) if entry.role is Role.CEILING else study.budgets)


def _job(study: Study, data: DataSet, n_rows: int, entry: Entry, epsilon: float, repetition: int) -> Job:
    settings = dict(entry.settings)
    if entry.budget_setting is not None:
        settings[entry.budget_setting] = epsilon
    place = _budgets(study, entry).index(epsilon) if entry.settings_at else 0
    settings |= {name: values[place] for name, values in entry.settings_at.items()}
    return Job(
        data=data.title,
        source=data.variants[entry.variant] if entry.variant else data.source,
        n_rows=n_rows,
        method=entry.method,
        calibration=entry.calibration,
        settings=settings,
        epsilon=epsilon,
        delta=study.delta,
        seed=study.seed,
        sample=repetition % study.samples if study.samples else repetition,
        repetition=repetition,
        label=entry.title,
        role=entry.role,
        task=study.task,
        redraws=study.redraws,
    )


def _seed_of(*parts: object) -> int:
    """Return 62 bits: they fit a column of the store."""
    digest = hashlib.sha256(msgspec.json.encode(parts)).digest()
    return int.from_bytes(digest[:8], "big") >> 2

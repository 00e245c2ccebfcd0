"""Fixtures that several rooms share: small schemas, sampled rows, all small DAGs, an oracle in place of evidence."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dagveil.data.column import Boolean, Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evidence.questions import Answers, Questions
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Dag
from dagveil.runs.run import LEDGER_VARIABLE
from dagveil_bench.postgres_server import find_binaries

sys.path.insert(0, str(Path(__file__).parent))

from separation import is_separated

ASIA_ROWS = 50_000

SERVICES = {
    "postgres": ("PostgreSQL", lambda: find_binaries() is not None),
    "spark": ("Java 17", lambda: shutil.which("java") is not None),
    "browser": ("Chromium", lambda: all(map(shutil.which, ("chromium", "chromedriver")))),
}
"""What tests with a mark need besides Python, and how to see that it is there."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of services that are not installed; continuous integration runs them all, and fails without."""
    missing = {} if os.environ.get("CI") else {mark: name for mark, (name, found) in SERVICES.items() if not found()}
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        for mark, name in missing.items():
            if item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.skip(reason=f"needs {name}"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Say in one line, at the very end, which services were missing."""
    yield
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    counted = {name: sum(f"needs {name}" in reason for reason in reasons) for name, _ in SERVICES.values()}
    told = [f"{number} for lack of {name}" for name, number in counted.items() if number]
    if told:
        terminalreporter.write_line(
            f"Tests skipped: {', '.join(told)}. Install that, as .ci/run does, to include them."
        )


class OracleEvidence:
    """Independence evidence that reads a known DAG: separated pairs have p = 1, all others p = 0.

    It notes every question that `test` is asked, so that tests can see what a search wanted to know.
    """

    def __init__(self, dag: Dag, columns: tuple[str, ...] | None = None) -> None:
        self.dag = dag
        self._columns = dag.nodes if columns is None else columns
        self.tested: list[tuple[frozenset[str], frozenset[str]]] = []

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    def association(self) -> NDArray[np.float64]:
        x, y = (axis.reshape(-1) for axis in np.indices((len(self._columns),) * 2))
        apart = x != y
        matrix = np.ones((len(self._columns),) * 2)
        questions = Questions(x[apart], y[apart], np.empty((int(apart.sum()), 0), dtype=np.intp))
        matrix[x[apart], y[apart]] = self.strength(questions)
        return matrix

    def strength(self, questions: Questions) -> NDArray[np.float64]:
        return np.where(self._separated(questions), 0.0, 1.0)

    def test(self, questions: Questions) -> Answers:
        names = self._columns
        for x, y, given in zip(questions.x, questions.y, questions.given, strict=True):
            self.tested.append((frozenset((names[x], names[y])), frozenset(names[z] for z in given)))
        separated = self._separated(questions)
        return Answers(np.where(separated, 0.0, 100.0), np.ones(len(questions)), np.where(separated, 1.0, 0.0))

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        return np.ones(len(questions), dtype=bool)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        return np.ones(len(questions), dtype=bool)

    def odds(self, questions: Questions) -> NDArray[np.float64]:
        return np.full(len(questions), -np.inf)

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.random((draws, len(questions)))

    def redraw(self, rng: np.random.Generator) -> OracleEvidence:
        return self

    def _separated(self, questions: Questions) -> NDArray[np.bool_]:
        names = self._columns
        return np.array(
            [
                is_separated(self.dag, names[x], names[y], {names[z] for z in given})
                for x, y, given in zip(questions.x, questions.y, questions.given, strict=True)
            ],
            dtype=bool,
        )


@pytest.fixture(scope="session")
def oracle() -> type[OracleEvidence]:
    """Return the class of evidence that reads a known DAG."""
    return OracleEvidence


@pytest.fixture(scope="session")
def all_dags() -> tuple[Dag, ...]:
    """Return the 543 DAGs of the nodes a, b, c and d, found by trying every order."""
    nodes = ("a", "b", "c", "d")
    orders = [{node: place for place, node in enumerate(order)} for order in permutations(nodes)]
    found = []
    for choice in product((None, False, True), repeat=6):
        edges = frozenset(
            (b, a) if turned else (a, b)
            for (a, b), turned in zip(combinations(nodes, 2), choice, strict=True)
            if turned is not None
        )
        if any(all(place[tail] < place[head] for tail, head in edges) for place in orders):
            found.append(Dag(nodes, edges))
    return tuple(found)


@pytest.fixture(scope="session")
def make_schema() -> Callable[..., Schema]:
    """Return a function that declares reviewed categorical columns from their numbers of levels."""

    def make(levels: dict[str, int], **facts: object) -> Schema:
        columns = {
            name: Categorical(tuple(f"v{code}" for code in range(count)), "v0") for name, count in levels.items()
        }
        return Schema(**{"dataset": "small", "reviewed": True, "columns": columns} | facts)

    return make


@pytest.fixture(scope="session")
def boolean_schema() -> Callable[..., Schema]:
    """Return a function that declares reviewed boolean columns by their names."""

    def make(*names: str, **facts: object) -> Schema:
        columns = {name: Boolean("false") for name in names}
        return Schema(**{"dataset": "small", "reviewed": True, "columns": columns} | facts)

    return make


@pytest.fixture(scope="session")
def asia() -> Network:
    """Return the network Asia."""
    return load_network("asia")


@pytest.fixture(scope="session")
def asia_table(asia: Network) -> MemoryTable:
    """Return sampled rows of Asia, with the schema that declares them."""
    codes = sample_codes(asia, ASIA_ROWS, np.random.default_rng(20))
    return MemoryTable.from_codes(codes, network_schema(asia, ASIA_ROWS))


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the default ledger of a run that names none out of the user's own folder, and apart for each test."""
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / f"data-{uuid.uuid4().hex}"))


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep ledgers, and what is remembered of them, out of the user's own folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.delenv(LEDGER_VARIABLE, raising=False)
        yield

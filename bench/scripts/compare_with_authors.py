"""Set an authors' program, of which you have a copy, beside our `--calibration program`.

Noise scales, tests, reported totals, skeleton F1 and CPU seconds of both, on the same sample. Nothing of theirs is
fetched, built or kept.

    python bench/scripts/compare_with_authors.py priv-pc PATH --network cancer --network asia --epsilon 0.1 --epsilon 1
"""

from __future__ import annotations

import importlib.util
import sys
import time
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.examples.networks import Network, load_network, network_schema, sample_codes
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import method_named
from dagveil.papers.common import PublishedTests, g_p_value, largest_published_order
from dagveil.papers.publication import PublishedAccess, read_settings, require_reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent

SEED = 20261118


@dataclass
class Runs:
    """What one side did."""

    f1: list[float]
    reported: list[float]
    tests: list[int]
    seconds: list[float]
    scales: set[float]

    def row(self) -> str:
        """Write means as cells of a table."""
        scales = ", ".join(f"{scale:.6g}" for scale in sorted(self.scales)) or "-"
        means = (np.mean(self.f1), np.mean(self.reported), np.mean(self.tests), np.mean(self.seconds))
        return " | ".join((*(f"{mean:.3g}" for mean in means), scales))


class RecordingNoise:
    """A generator that remembers the scales of the noise that it drew."""

    def __init__(self, rng: Any, scales: set[float]) -> None:
        self._rng, self._scales = rng, scales

    def __getattr__(self, name: str) -> Any:
        drawn = getattr(self._rng, name)
        if name not in ("laplace", "normal"):
            return drawn

        def record(center: float, scale: float, *size: Any) -> Any:
            self._scales.add(float(f"{scale:.9g}"))
            return drawn(center, scale, *size)

        return record


def score(network: Network, edges: set[frozenset[str]]) -> float:
    """Return the F1 of a skeleton against the network."""
    true = {frozenset(edge) for edge in network.dag().edges}
    return 2.0 * len(edges & true) / (len(edges) + len(true))


def run_ours(table: MemoryTable, network: Network, method: str, options: Mapping[str, Any], runs: int) -> Runs:
    """Run our reading of the program."""
    chosen = method_named(method)
    settings = read_settings(chosen, Calibration.PROGRAM, options)
    done = Runs([], [], [], [], set())
    for seed in range(runs):
        access = PublishedAccess(table, RecordingNoise(np.random.default_rng((SEED, seed)), done.scales))  # type: ignore[arg-type]
        started = time.process_time()
        asked = require_reading(chosen, Calibration.PROGRAM).publish(
            access, Budget.of(1, 0), Knowledge.none(), settings, silent
        )
        done.seconds.append(time.process_time() - started)
        done.f1.append(score(network, {frozenset(edge) for edge in asked.graph.directed} | set(asked.graph.undirected)))
        done.reported.append(asked.reported[0] if asked.reported else 0.0)
        done.tests.append(asked.questions)
    return done


def run_theirs(network: Network, run: Callable[[], Any], runs: int, module: Any) -> Runs:
    """Run a function of theirs that returns a graph of numbered nodes, and at its end a total, δ and the tests."""
    done = Runs([], [], [], [], set())
    numpy_of_theirs = types.SimpleNamespace(**{**vars(np), "random": RecordingNoise(np.random, done.scales)})
    module.np = numpy_of_theirs
    for seed in range(runs):
        np.random.seed(SEED + seed)  # noqa: NPY002 - what they draw from
        started = time.process_time()
        graph, *_, total, _, tests = run()
        done.seconds.append(time.process_time() - started)
        done.f1.append(score(network, {frozenset((network.nodes[i], network.nodes[j])) for i, j in graph.edges}))
        done.reported.append(float(total))
        done.tests.append(int(tests))
    return done


def supply_gsq(table: MemoryTable, names: tuple[str, ...]) -> None:
    """Stand in for the package gsq, which their G tests come from, unless it is installed: our G test, and faster."""
    if importlib.util.find_spec("gsq") is not None:
        return
    tests = PublishedTests(PublishedAccess(table, np.random.default_rng(0)))

    def test(rows: Any, i: int, j: int, given: set[int], **_: Any) -> float:
        return g_p_value(tests.table((names[i], names[j], tuple(names[k] for k in sorted(given)))))

    for module in ("gsq", "gsq.ci_tests", "gsq.gsq_testdata"):
        sys.modules[module] = types.ModuleType(module)
    sys.modules["gsq.ci_tests"].__dict__.update(ci_test_bin=test, ci_test_dis=test)
    sys.modules["gsq.gsq_testdata"].__dict__.update(bin_data=None, dis_data=None)


def print_comparison(heading: str, theirs: Runs, ours: Runs) -> None:
    """Print two rows."""
    click.echo(f"| {heading} | theirs | {theirs.row()} |\n| {heading} | ours | {ours.row()} |")


@click.group()
def compare() -> None:
    """Compare with an authors' program."""


@compare.command("priv-pc")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--network", "networks", multiple=True, default=("cancer",), help="A network of `dagveil sample`.")
@click.option("--epsilon", "epsilons", multiple=True, type=float, default=(1.0,), help="Of each round or node.")
@click.option("--method", "methods", multiple=True, default=("svt-pc", "priv-pc", "em-pc"), help="Of the three.")
@click.option("--rows", "n_rows", default=100_000, show_default=True, help="Of the sample.")
@click.option("--runs", default=20, show_default=True, help="Of theirs and of ours.")
def priv_pc(
    path: Path, networks: tuple[str, ...], epsilons: tuple[float, ...], methods: tuple[str, ...], n_rows: int, runs: int
) -> None:
    """Compare with sunblaze-ucb/Priv-PC-Differentially-Private-Causal-Graph-Discovery at PATH."""
    sys.path.insert(0, str(path / "src"))
    np.Inf = np.inf  # type: ignore[attr-defined] # noqa: NPY201 - numpy 2 took the name away, and they use it
    warnings.simplefilter("ignore", RuntimeWarning)  # they take logarithms of empty cells
    click.echo("| network, method, ε per round | whose | F1 | reported ε | tests | CPU seconds | noise scales |")
    click.echo("|---|---|---|---|---|---|---|")
    for name in networks:
        network = load_network(name)
        codes = sample_codes(network, n_rows, np.random.default_rng(SEED))
        table = MemoryTable.from_codes(codes, network_schema(network, n_rows))
        theirs, functions = _load_priv_pc(table, codes)
        for method, epsilon in product(methods, epsilons):
            setting = "node_epsilon" if method == "em-pc" else "round_epsilon"
            print_comparison(
                f"{name}, {method}, {epsilon:g}",
                run_theirs(network, partial(functions[method], eps=epsilon), runs, theirs),
                run_ours(table, network, method, {setting: epsilon}, runs),
            )


def _load_priv_pc(table: MemoryTable, codes: Mapping[str, Any]) -> tuple[Any, dict[str, Callable[..., Any]]]:
    """Import their modules, and bind the rows as they code them: levels by their names."""
    names = tuple(table.schema.columns)
    supply_gsq(table, names)
    for module in ("indep_test", "findJS", "pc"):
        sys.modules.pop(module, None)
    theirs, tests = importlib.import_module("pc"), importlib.import_module("indep_test")
    order = [np.argsort(np.argsort(table.schema.columns[name].labels)) for name in names]
    rows = np.column_stack([order[i][codes[name]] for i, name in enumerate(names)]).astype(int)
    common = {"data_matrix": rows, "alpha": 0.10, "delta": 1e-3}
    kendall = {"indep_test_func": tests.discondKendall, "max_reach": largest_published_order(len(rows), len(names))}
    return theirs, {
        "svt-pc": partial(theirs.estimate_skeleton_SVT, **common, **kendall),
        "priv-pc": partial(theirs.estimate_skeleton_probe_examine, **common, **kendall),
        "em-pc": partial(theirs.estimate_skeleton_EM, **common, indep_test_func=tests.wrapped_ci_test_dis, task="dis"),
    }


if __name__ == "__main__":
    compare()

"""Run the authors' programs of CURATE, NOLEAKS and Priv-PC beside ours, on the same rows, and print both.

    python bench/scripts/compare_authors.py --curate PATH/TO/cgdCURATE --noleaks PATH/TO/NoLeaks-artifact
    python bench/scripts/compare_authors.py --priv-pc PATH/TO/Priv-PC --networks cancer asia

The paths are copies that the reader has: nothing is fetched, and nothing of them is kept here. Their programs run in
this process, from their own files; only names of networks, budgets and files are given to them, modules that they
import without need are left empty, and answers to a test that they ask again are remembered.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import io
import math
import os
import re
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import method_named
from dagveil.papers.bhattacharjee2024 import CONDUCTS, solve_opt
from dagveil.papers.ma2022 import NoleaksProgram, gaussian_deviation, noleaks_weights, published_gradient_sensitivity
from dagveil.papers.publication import (
    PublishedAccess,
    g_p_value,
    largest_published_order,
    read_settings,
    require_reading,
)
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent

NETWORKS = ("cancer", "earthquake", "survey", "asia", "sachs")
BUDGETS = (0.1, 1.0, 10.0)
ROWS, SEED = 100_000, 1
PRIV_PC_BUDGETS, PRIV_PC_SEED = (0.1, 1.0), 20261118
HAS_GSQ = find_spec("gsq") is not None
UNUSED = ("matplotlib", "matplotlib.pyplot", "igraph", "networkx.drawing", "notears.linear")


@contextlib.contextmanager
def quiet(folder: Path, answer: str = "") -> Iterator[None]:
    """Work in a folder, silently, with one answer for every question."""
    before, asked = Path.cwd(), builtins.input
    os.chdir(folder)
    builtins.input = lambda *_: answer
    try:
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            yield
    finally:
        os.chdir(before)
        builtins.input = asked


def skeleton_f1(pairs: set[frozenset[str]], truth: Dag) -> float:
    """Return F1 of the pairs against the edges of the true graph."""
    wanted = {frozenset(edge) for edge in truth.edges}
    return 2.0 * len(pairs & wanted) / max(1, len(pairs) + len(wanted))


def sample(network: str, seed: int = SEED) -> tuple[dict[str, list[str]], MemoryTable, Dag]:
    """Return rows as text, the same rows as a table, and the true graph."""
    model = load_network(network)
    codes = sample_codes(model, ROWS, np.random.default_rng(seed))
    schema = network_schema(model, ROWS)
    texts = {name: list(np.array(schema.columns[name].labels)[values]) for name, values in codes.items()}
    return texts, MemoryTable.from_codes(codes, schema), model.dag()


def curate_of_authors(source: str, folder: Path, network: str, epsilon: float, runs: int, columns: list[str]) -> Any:
    """Run their CURATE; returns (first epsilon, reported totals, tests, skeletons)."""
    text = re.sub(r"(?m)^dataset = .*$", f"dataset = {network!r}", source)
    space: dict[str, Any] = {"__name__": "authors"}
    with quiet(folder, str(epsilon)):
        exec(compile(text, "CURATE_cb.py", "exec"), space)
        known: dict[Any, Any] = {}
        test: Callable[..., Any] = space["indeptest"]

        def remember(data: Any, i: int, j: int, given: set[int], **more: Any) -> Any:
            key = (i, j, frozenset(given))
            if key not in known:
                known[key] = test(data, i, j, given, **more)
            return known[key]

        found = [
            space["estimate_skeleton_curate"](
                epstotal=epsilon,
                delta_prime=1e-14,
                delta_ad=1e-14,
                delta_total=1e-10,
                indep_test_func=remember,
                data_matrix=space["dm"],
                max_reach=space["maxreach"],
            )
            for _ in range(runs)
        ]
    pairs = [{frozenset((columns[i], columns[j])) for i, j in one[0].edges} for one in found]
    return float(space["results"].x[0]), [float(sum(one[5])) for one in found], [sum(one[2]) for one in found], pairs


def compare_curate(copy: Path, runs: int, networks: list[str]) -> None:
    """Print both CURATEs."""
    source = (copy / "CURATE_cb.py").read_text(encoding="utf-8")
    print("| network | ε | ε of order 0, theirs / ours | ε reported | tests | skeleton F1 |\n|---|---|---|---|---|---|")
    method = method_named("curate")
    reading = require_reading(method, Calibration.PROGRAM)
    settings = read_settings(method, Calibration.PROGRAM, {})
    for network in networks:
        texts, table, truth = sample(network)
        columns = list(texts)
        d = len(columns)
        most = [math.comb(d, 2) * math.comb(d - 2, j) for j in range(d - 1)]
        distance = 0.05 / (CONDUCTS[Calibration.PROGRAM].constant / math.sqrt(ROWS))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = zip(*texts.values(), strict=True)
            rows = [",".join(("Unnamed: 0", *columns))]
            rows += [",".join((str(i), *line)) for i, line in enumerate(lines)]
            (folder / f"{network}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
            for epsilon in BUDGETS:
                np.random.seed(SEED)  # noqa: NPY002
                theirs = curate_of_authors(source, folder, network, epsilon, runs, columns)
                access = PublishedAccess(table, np.random.default_rng(SEED))
                asked = [
                    reading.publish(access, Budget.of(epsilon, 0), Knowledge.none(), settings, silent)
                    for _ in range(runs)
                ]
                first = float(solve_opt(most, epsilon, 1e-14, distance, (0.2, 0.2), (1.0, 1.0))[0])
                cells = [
                    f"{theirs[0]:.5f} / {first:.5f}",
                    f"{np.mean(theirs[1]):.3f} / {np.mean([one.reported[0] for one in asked if one.reported]):.3f}",
                    f"{np.mean(theirs[2]):.0f} / {np.mean([one.counted for one in asked if one.counted]):.0f}",
                    f"{np.mean([skeleton_f1(pairs, truth) for pairs in theirs[3]]):.2f} / "
                    f"{np.mean([skeleton_f1(pairs_of(one.graph), truth) for one in asked]):.2f}",
                ]
                print(f"| {network} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def pairs_of(graph: Any) -> set[frozenset[str]]:
    """Return the skeleton of a graph."""
    return {frozenset(edge) for edge in (*graph.directed, *graph.undirected)}


def best_by_truth(weights: Any, columns: list[str], truth: Dag) -> float:
    """Return the best F1 of 2000 thresholds that leave no cycle, as the artifact scores."""
    best = 0.0
    for threshold in np.arange(2000) / 1000:
        kept = np.abs(np.where(np.abs(weights) < threshold, 0.0, weights)) > 0
        power = np.linalg.matrix_power(np.eye(len(kept)) + kept, len(kept))
        if not np.any((power > 0) & (power.T > 0) & ~np.eye(len(kept), dtype=bool)):
            pairs = {frozenset((columns[i], columns[j])) for i, j in zip(*np.nonzero(kept), strict=True)}
            best = max(best, skeleton_f1(pairs, truth))
    return best


def compare_noleaks(copy: Path, runs: int, networks: list[str]) -> None:
    """Print both NOLEAKS, with the threshold that the true graph chooses, as the artifact does."""
    sys.path.insert(0, str(copy))
    setattr(np, "float", float)  # noqa: B010  # the artifact is older than numpy 1.24
    for module, name in (("numpy.core.numeric", "zeros_like"), ("scipy.optimize", "zeros")):  # imported without need
        if not hasattr(import_module(module), name):
            setattr(import_module(module), name, None)
    from notears import bnlearn, noleaks  # type: ignore[import-not-found]

    print("\n| network | ε per gradient | σ, theirs / ours | gradients | F1 by the truth, theirs / ours |")
    print("|---|---|---|---|---|")
    for network in networks:
        texts, table, truth = sample(network)
        columns = list(texts)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for place in ("dag", "dag_data"):
                (folder / "bnlearn" / place).mkdir(parents=True)
            rows = ["\t".join(f'"{column}"' for column in columns)]
            rows += ["\t".join(line) for line in zip(*texts.values(), strict=True)]
            (folder / "bnlearn" / "dag_data" / f"{network}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
            edges = "\n".join(f"{cause}->{effect}" for cause, effect in sorted(truth.edges))
            (folder / "bnlearn" / "dag" / f"{network}.txt").write_text(edges + "\n", encoding="utf-8")
            with quiet(folder):
                used, public, _ = bnlearn.get_dataset(network, 5000, True)
            for epsilon in (None, 0.1, 1.0):
                scores: list[list[float]] = [[], []]
                counts: list[list[int]] = [[], []]
                price = epsilon or 1.0
                for seed in range(1 if epsilon is None else runs):
                    np.random.seed(seed)  # noqa: NPY002
                    config = noleaks.PrivConfiguration(price, 1e-4)
                    with quiet(folder):
                        weights = noleaks.noleaks(used, config, public, is_priv=epsilon is not None)
                    scores[0].append(best_by_truth(weights, columns, truth))
                    counts[0].append(config.clipping_count)
                    access = PublishedAccess(table, np.random.default_rng(seed))
                    settings = NoleaksProgram(gradient_epsilon=price, private=epsilon is not None)
                    ours, _, asked = noleaks_weights(access, 1.0, Knowledge.none(), settings, silent)
                    scores[1].append(best_by_truth(ours, columns, truth))
                    counts[1].append(asked)
                sensitivity = 2.0 * published_gradient_sensitivity(len(columns), 5000, 2.0)
                sigmas = [noleaks.PrivConfiguration(price, 1e-4).get_agm_sigma(sensitivity)]
                sigmas.append(gaussian_deviation(sensitivity, price, 1e-4))
                noise = "none" if epsilon is None else " / ".join(f"{sigma:.6f}" for sigma in sigmas)
                asked_of = "–" if epsilon is None else " / ".join(f"{np.mean(each):.0f}" for each in counts)
                means = " / ".join(f"{np.mean(each):.2f}" for each in scores)
                print(f"| {network} | {epsilon or 'no noise'} | {noise} | {asked_of} | {means} |", flush=True)


class RecordingNoise:
    """A generator that remembers the scales of the noise that it drew."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng
        self.scales: set[float] = set()

    def __getattr__(self, name: str) -> Any:
        drawn = getattr(self._rng, name)
        if name not in ("laplace", "normal"):
            return drawn

        def record(center: float, scale: float, *size: Any) -> Any:
            self.scales.add(float(f"{scale:.6g}"))
            return drawn(center, scale, *size)

        return record


def load_priv_pc(table: MemoryTable, texts: dict[str, list[str]]) -> tuple[Any, dict[str, Callable[..., Any]]]:
    """Import their modules, and bind the rows as they code them: levels by their names.

    Their G tests come from the package gsq; unless it is installed, our G test stands in, and is faster.
    """
    names = tuple(texts)
    tests = PublishedAccess(table, np.random.default_rng(0))

    def g_test(rows: Any, i: int, j: int, given: set[int], **_: Any) -> float:
        return g_p_value(tests.ordered_counts((names[i], names[j], tuple(names[k] for k in sorted(given)))))

    if not HAS_GSQ:
        stand_in = {"gsq": {}, "gsq.ci_tests": {"ci_test_bin": g_test, "ci_test_dis": g_test}}
        stand_in["gsq.gsq_testdata"] = {"bin_data": None, "dis_data": None}
        for module, content in stand_in.items():
            sys.modules[module] = types.ModuleType(module)
            sys.modules[module].__dict__.update(content)
    for module in ("indep_test", "findJS", "pc"):
        sys.modules.pop(module, None)
    theirs, functions = import_module("pc"), import_module("indep_test")
    rows = np.column_stack([np.unique(texts[name], return_inverse=True)[1] for name in names])
    common = {"data_matrix": rows, "alpha": 0.10, "delta": 1e-3}
    kendall = {"indep_test_func": functions.discondKendall, "max_reach": largest_published_order(ROWS, len(names))}
    g = {"indep_test_func": functions.wrapped_ci_test_dis, "task": "dis"}
    return theirs, {
        "svt-pc": partial(theirs.estimate_skeleton_SVT, **common, **kendall),
        "priv-pc": partial(theirs.estimate_skeleton_probe_examine, **common, **kendall),
        "em-pc": partial(theirs.estimate_skeleton_EM, **common, **g),
    }


def compare_priv_pc(copy: Path, runs: int, networks: list[str], methods: list[str]) -> None:
    """Print both of each method of Priv-PC's program; one run of EM-PC takes it minutes."""
    sys.path.insert(0, str(copy / "src"))
    setattr(np, "Inf", np.inf)  # noqa: B010  # the program is older than numpy 2
    print("| network | method | ε per round | F1, theirs / ours | ε reported | tests | CPU seconds | noise scales |")
    print("|---|---|---|---|---|---|---|---|")
    for network, method, epsilon in product(networks, methods, PRIV_PC_BUDGETS):
        texts, table, truth = sample(network, PRIV_PC_SEED)
        names = list(texts)
        module, functions = load_priv_pc(table, texts)
        noises = [RecordingNoise(np.random), RecordingNoise(np.random.default_rng(PRIV_PC_SEED))]
        module.np = types.SimpleNamespace(**{**vars(np), "random": noises[0]})
        chosen = method_named(method)
        option = {"node_epsilon" if method == "em-pc" else "round_epsilon": epsilon}
        settings = read_settings(chosen, Calibration.PROGRAM, option)
        reading = require_reading(chosen, Calibration.PROGRAM)
        found: list[list[tuple[float, ...]]] = [[], []]
        for seed in range(runs):
            np.random.seed(PRIV_PC_SEED + seed)  # noqa: NPY002
            started = time.process_time()
            with warnings.catch_warnings(action="ignore"):
                graph, _, total, _, tests = functions[method](eps=epsilon)
            spent = time.process_time() - started
            pairs = {frozenset((names[i], names[j])) for i, j in graph.edges}
            found[0].append((skeleton_f1(pairs, truth), total, tests, spent))
            access = PublishedAccess(table, noises[1])  # type: ignore[arg-type]
            started = time.process_time()
            asked = reading.publish(access, Budget.of(1, 0), Knowledge.none(), settings, silent)
            spent = time.process_time() - started
            total = asked.reported[0] if asked.reported else 0.0
            found[1].append((skeleton_f1(pairs_of(asked.graph), truth), total, asked.questions, spent))
        cells = [
            f"{theirs:.3g} / {ours:.3g}"
            for theirs, ours in zip(*(np.mean(each, axis=0) for each in found), strict=True)
        ]
        scales = " / ".join(", ".join(map(str, sorted(noise.scales))) or "–" for noise in noises)
        print(f"| {network} | {method} | {epsilon:g} | {' | '.join(cells)} | {scales} |", flush=True)


def main() -> None:
    """Read the paths, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curate", type=Path, help="A copy of cgdCURATE.")
    parser.add_argument("--noleaks", type=Path, help="A copy of NoLeaks-artifact.")
    parser.add_argument("--priv-pc", type=Path, help="A copy of sunblaze-ucb's Priv-PC.")
    parser.add_argument(
        "--methods", nargs="+", default=["svt-pc", "priv-pc"], help="Of Priv-PC: svt-pc, priv-pc, em-pc, which is slow."
    )
    parser.add_argument("--runs", type=int, default=10, help="Runs of each program (default: 10).")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="Networks (default: all but child).")
    given = parser.parse_args()
    for name in UNUSED:
        sys.modules.setdefault(name, types.ModuleType(name))
    if given.curate is not None:
        compare_curate(given.curate, given.runs, given.networks)
    if given.noleaks is not None:
        compare_noleaks(given.noleaks, given.runs, given.networks)
    if given.priv_pc is not None:
        compare_priv_pc(given.priv_pc, given.runs, given.networks, given.methods)


if __name__ == "__main__":
    main()

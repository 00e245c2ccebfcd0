"""Run the authors' programs of CURATE and NOLEAKS beside ours, on the same rows, and print both.

    python bench/scripts/compare_authors.py --curate PATH/TO/cgdCURATE --noleaks PATH/TO/NoLeaks-artifact

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
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dagveil.data.memory import MemoryTable
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.dag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import method_named
from dagveil.papers.bhattacharjee2024 import CONDUCTS, solve_opt
from dagveil.papers.ma2022 import NoleaksProgram, gaussian_deviation, noleaks_weights, published_gradient_sensitivity
from dagveil.papers.publication import PublishedAccess, read_settings, require_reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent

NETWORKS = ("cancer", "earthquake", "survey", "asia", "sachs")
BUDGETS = (0.1, 1.0, 10.0)
ROWS, SEED = 100_000, 1
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


def sample(network: str) -> tuple[dict[str, list[str]], MemoryTable, Dag]:
    """Return rows as text, the same rows as a table, and the true graph."""
    model = load_network(network)
    codes = sample_codes(model, ROWS, np.random.default_rng(SEED))
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


def main() -> None:
    """Read the paths, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curate", type=Path, help="A copy of cgdCURATE.")
    parser.add_argument("--noleaks", type=Path, help="A copy of NoLeaks-artifact.")
    parser.add_argument("--runs", type=int, default=10, help="Runs of each program (default: 10).")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="Networks (default: all but child).")
    given = parser.parse_args()
    for name in UNUSED:
        sys.modules.setdefault(name, types.ModuleType(name))
    if given.curate is not None:
        compare_curate(given.curate, given.runs, given.networks)
    if given.noleaks is not None:
        compare_noleaks(given.noleaks, given.runs, given.networks)


if __name__ == "__main__":
    main()
